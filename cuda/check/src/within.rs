//! Runs jobs that may hang or panic, on a machine that is not supervised.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

/// Runs `job` on a separate thread. A panic is returned as an error. If the job has not finished
/// after `patience`, that is an error, too, and the thread is abandoned.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, outcome) = sync_channel(1);
    std::thread::Builder::new().name("job".into()).spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(job));
        // After the timeout, the receiver no longer exists.
        let _ = done.send(outcome);
    })?;
    match outcome.recv_timeout(patience) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Err(anyhow!("panicked: {}", text.unwrap_or("without a message")))
        }
        Err(RecvTimeoutError::Timeout) => {
            bail!("not finished after {} s; its thread was abandoned", patience.as_secs())
        }
        Err(RecvTimeoutError::Disconnected) => bail!("its thread ended without a result"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_hangs_are_errors() {
        assert_eq!(within(Duration::from_secs(60), || Ok(3)).unwrap(), 3);
        let panic = within::<()>(Duration::from_secs(60), || panic!("number {}", 7)).unwrap_err();
        assert_eq!(panic.to_string(), "panicked: number 7");
        let (_open, never) = std::sync::mpsc::channel::<()>();
        let hang = within(Duration::from_millis(1), move || Ok(never.recv()?)).unwrap_err();
        assert!(hang.to_string().starts_with("not finished"), "{hang}");
    }
}
