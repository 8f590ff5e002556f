//! Asking the system to refuse things, and to send signals.

use std::io;

use crate::child::not_provoked;

/// Sets a limit of this process (the soft one, so that it can be raised again).
pub(crate) fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls use the struct that they are given.
    let outcome = unsafe {
        libc::getrlimit(resource, &mut limit);
        limit.rlim_cur = value.min(limit.rlim_max);
        libc::setrlimit(resource, &limit)
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

/// How much memory this process has mapped.
pub(crate) fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Allows this process so much more memory than it has mapped.
pub(crate) fn allow_memory(more: u64) {
    limit(libc::RLIMIT_AS, mapped() + more);
}

/// Has the system refuse these calls to this process, each with an error, from now on. `false` if it will not.
pub(crate) fn refuse(calls: &[(libc::c_long, i32)]) -> bool {
    let instruction = |code, k, yes| libc::sock_filter { code, jt: yes, jf: u8::from(yes == 0), k };
    let (load, equal, give) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    // The number of the call is the first word of what a filter sees.
    let mut filter = vec![libc::sock_filter { code: load as _, jt: 0, jf: 0, k: 0 }];
    for &(call, error) in calls {
        // If it is not this call, the next instruction is passed over.
        filter.push(instruction((equal | libc::BPF_K) as _, call as _, 0));
        filter.push(libc::sock_filter { code: give as _, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | error as u32 });
    }
    filter.push(libc::sock_filter { code: give as _, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW });
    let program = libc::sock_fprog { len: filter.len() as _, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives as long as the call, which copies it.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if outcome != 0 {
        not_provoked(&format!(
            "calls that are refused, as there is no filter for them: {}",
            io::Error::last_os_error()
        ));
    }
    outcome == 0
}

/// The threads of this process, with their names.
pub(crate) fn threads() -> Vec<(libc::pid_t, String)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let thread = |task: io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, name.trim().to_owned()))
    };
    // One that has ended meanwhile is none.
    tasks.filter_map(thread).collect()
}

/// The worker of a loader, which is the only one that this process has.
pub(crate) fn worker(id: usize) -> Option<libc::pid_t> {
    let name = format!("slotline-{id}");
    Some(threads().into_iter().find(|(_, other)| *other == name)?.0)
}

/// Has a function run by every thread that gets this signal.
pub(crate) fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: zeros are an action without flags, so that calls are interrupted; the handler does only what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Sends a signal to a thread of this process, if it is there.
pub(crate) fn signal(thread: libc::pid_t, signal: i32) {
    // SAFETY: signals whose handlers were set, to a thread of our own.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}
