//! Pinning where the system locks no more memory. Its own process, since it limits and counts what the whole one locks.
#![cfg(target_os = "linux")]

#[path = "../../runtime/tests/support/locks.rs"]
mod locks;

use locks::{is_done, limit_locks, run_children, status};
use slotline_value::Value;

/// Two tensors of two pages each, so that a limit may allow for one of them.
#[test]
#[ignore = "the next test runs it, in processes of their own"]
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
            let text = error.to_string();
            assert!(limit < 16_384 && text.contains(&format!("RLIMIT_MEMLOCK is {limit} bytes")), "{text}");
            assert!(text.starts_with(&format!("the tensor at {refused} could not be pinned: 8192 bytes")), "{text}");
        }
    }
    assert_eq!(status("VmLck"), 0);
    println!("{}", is_done(limit));
}

#[test]
fn a_tensor_that_cannot_be_locked_is_an_error_that_names_it_and_the_limit() {
    run_children([0, 8_192, 16_384]);
}
