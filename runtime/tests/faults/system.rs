//! Functions that make the system refuse memory and calls, and that send signals.

use std::io;

use crate::child::not_provoked;

/// Sets a resource limit of this process. It is the soft limit, so that it can be raised again.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only use `limit`, which outlives them.
    let outcome = unsafe {
        libc::getrlimit(resource, &mut limit);
        limit.rlim_cur = value.min(limit.rlim_max);
        libc::setrlimit(resource, &limit)
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

/// Returns the number of bytes that this process has mapped.
pub(crate) fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Limits this process's memory to `more` bytes more than it has mapped.
pub(crate) fn allow_memory(more: u64) {
    limit(libc::RLIMIT_AS, mapped() + more);
}

/// Makes the system refuse these calls of this process with these errors from now on. Returns false
/// if the system does not support this.
pub(crate) fn refuse(calls: &[(libc::c_long, i32)]) -> bool {
    let instruction = |code, k, yes| libc::sock_filter { code, jt: yes, jf: u8::from(yes == 0), k };
    let (load, equal, give) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    // The number of the call is the first word of the filter's input.
    let mut filter = vec![libc::sock_filter { code: load as _, jt: 0, jf: 0, k: 0 }];
    for &(call, error) in calls {
        // If the number is not that of `call`, skip the next instruction, which returns the error.
        filter.push(instruction((equal | libc::BPF_K) as _, call as _, 0));
        filter.push(libc::sock_filter { code: give as _, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | error as u32 });
    }
    filter.push(libc::sock_filter { code: give as _, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW });
    let program = libc::sock_fprog { len: filter.len() as _, filter: filter.as_mut_ptr() };
    // SAFETY: `program` and `filter` outlive the call, which copies them.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if outcome != 0 {
        not_provoked(&format!(
            "refused system calls, since no filter can be installed: {}",
            io::Error::last_os_error()
        ));
    }
    outcome == 0
}

/// Returns the threads of this process with their names.
pub(crate) fn threads() -> Vec<(libc::pid_t, String)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let thread = |task: io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, name.trim().to_owned()))
    };
    // A thread that has just ended is left out.
    tasks.filter_map(thread).collect()
}

/// Returns the thread of worker `id`. This process has only one loader.
pub(crate) fn worker(id: usize) -> Option<libc::pid_t> {
    let name = format!("slotline-{id}");
    Some(threads().into_iter().find(|(_, other)| *other == name)?.0)
}

/// Installs a handler for a signal.
pub(crate) fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: an all-zero `sigaction` is valid; it has no flags, so that system calls are interrupted. The handlers passed here
    // call only async-signal-safe functions.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Sends a signal to a thread of this process, if the thread still exists.
pub(crate) fn signal(thread: libc::pid_t, signal: i32) {
    // SAFETY: `tgkill` reaches only threads of this process, and the signals sent here have handlers.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}
