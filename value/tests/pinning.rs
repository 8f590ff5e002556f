//! Pinning when the system refuses to lock more memory. It runs in a separate process, since the limit on locked
//! memory, and how much is locked, are per process.
#![cfg(target_os = "linux")]

#[path = "../../runtime/tests/support/chain.rs"]
mod chain;

#[path = "../../runtime/tests/support/locks.rs"]
mod locks;

use chain::chain;
use locks::{is_done, limit_locks, run_children, status};
use slotline_value::Value;

/// Pins two tensors of two pages each, so that a limit can allow only one of them.
#[test]
#[ignore = "run by the next test in separate processes"]
fn child() {
    let Some(limit) = limit_locks() else { return };
    let value = Value::map([("a", vec![1.0_f64; 1_000].into()), ("b", vec![2_i64; 1_000].into())]);
    let refused = [".a", ".b"][usize::from(limit >= 8_192)];
    match value.clone().pin_memory() {
        Ok(pinned) => {
            assert!(limit >= 16_384 && pinned.is_pinned() && pinned == value);
            assert_eq!(status("VmLck"), 16_384);
        }
        Err(error) => {
            let text = chain(&error);
            assert!(limit < 16_384 && text.contains(&format!("RLIMIT_MEMLOCK is {limit} bytes")), "{text}");
            assert!(text.starts_with(&format!("the tensor at {refused} could not be pinned: 8192 bytes")), "{text}");
        }
    }
    assert_eq!(status("VmLck"), 0);
    println!("{}", is_done(limit));
}

#[test]
fn an_error_names_the_unlockable_tensor_and_the_limit() {
    run_children([0, 8_192, 16_384]);
}
