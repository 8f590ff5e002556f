//! Pinning where the system locks no more memory. Its own process, since it limits and counts what the whole one locks.
#![cfg(target_os = "linux")]

use std::process::Command;

use slotline_value::Value;

/// Set in the child process, to how many bytes it may lock.
const CHILD: &str = "SLOTLINE_TEST_LOCK_LIMIT";

/// Bytes that this process has locked.
fn locked() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() << 10
}

/// Limits this process, and gives up the privilege to lock more than the limit.
fn limit_locks(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the call reads the struct it is given.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    // SAFETY: changes nothing but this process's user.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(65_534), 0);
        }
    }
}

/// Two tensors of two pages each, so that a limit may allow for one of them.
#[test]
#[ignore = "the next test runs it, in processes of their own"]
fn child() {
    let Some(limit) = std::env::var(CHILD).ok().and_then(|limit| limit.parse().ok()) else { return };
    limit_locks(limit);
    let value = Value::map([("a", vec![1.0_f64; 1_000].into()), ("b", vec![2_i64; 1_000].into())]);
    let refused = [".a", ".b"][usize::from(limit >= 8_192)];
    match value.clone().pin_memory() {
        Ok(pinned) => {
            assert!(limit >= 16_384 && pinned.is_pinned() && pinned == value);
            assert_eq!(locked(), 16_384);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(limit < 16_384 && text.contains(&format!("RLIMIT_MEMLOCK is {limit} bytes")), "{text}");
            assert!(text.starts_with(&format!("the tensor at {refused} could not be pinned: 8192 bytes")), "{text}");
        }
    }
    assert_eq!(locked(), 0);
    println!("child of limit {limit} is done");
}

#[test]
fn a_tensor_that_cannot_be_locked_is_an_error_that_names_it_and_the_limit() {
    // SAFETY: the call fills the struct it is given.
    let (hard, privileged) = unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit), 0);
        (limit.rlim_max, libc::geteuid() == 0)
    };
    for limit in [0_u64, 8_192, 16_384] {
        if limit > hard && !privileged {
            continue;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CHILD, limit.to_string());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&format!("child of limit {limit} is done")), "{text}");
    }
}
