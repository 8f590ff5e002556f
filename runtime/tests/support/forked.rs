//! Forks the process of a test. Tests of other crates include this file, too.

/// Forks this process, and returns whether this is the child. The child exits with an error if it
/// panics, and is killed if it hangs. The parent waits for the child and asserts that it succeeded.
pub(crate) fn is_child() -> bool {
    // SAFETY: the child is a copy of this process with only this thread. The tests check that the
    // code under test works in such a process.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: `alarm` only sets a timer, whose signal ends the process.
        unsafe { libc::alarm(30) };
        std::panic::set_hook(Box::new(|panic| {
            eprintln!("{panic}");
            exit(1)
        }));
        return true;
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child hung: signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
    false
}

/// Ends a child process without destructors, which would affect what belongs to its parent.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` ends the process and has no preconditions.
    unsafe { libc::_exit(code) }
}
