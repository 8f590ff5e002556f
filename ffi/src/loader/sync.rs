//! The atomics of handles. Tests can replace them: with `--cfg delays`, a random delay precedes
//! each operation (see `slotline_core::sync`), and tests can run code when a call enters or leaves
//! a loader.

#[cfg(delays)]
pub(crate) use slotline_core::sync::watched::{AtomicBool, AtomicUsize};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(delays))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A point in a call to a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(delays), expect(unreachable_pub, reason = "tests see it, with delays"))]
pub enum Step {
    /// The call is counted, but has done nothing else yet.
    In,
    /// The call has finished its work, but is still counted.
    Out,
}

/// Marks a step of a call to a loader.
#[cfg(not(delays))]
#[inline(always)]
pub(crate) fn step(_: Step) {}

#[cfg(delays)]
pub use self::steps::on_step;
#[cfg(delays)]
pub(crate) use self::steps::step;

#[cfg(delays)]
mod steps {
    use std::cell::RefCell;

    use super::Step;

    type Hook = Box<dyn FnOnce()>;

    std::thread_local! {
        static HOOK: RefCell<Option<(Step, Hook)>> = const { RefCell::new(None) };
    }

    /// Runs `hook` once, when a call of this thread reaches this step.
    pub fn on_step(step: Step, hook: impl FnOnce() + 'static) {
        HOOK.set(Some((step, Box::new(hook))));
    }

    pub(crate) fn step(step: Step) {
        let hook = HOOK.with_borrow_mut(|hook| hook.take_if(|(when, _)| *when == step));
        if let Some((_, hook)) = hook {
            hook();
        }
    }
}
