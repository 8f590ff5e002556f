//! Tells code that reads a sample that the sample is no longer needed.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use crate::fork::Process;
use crate::loader::worker::cancel::CancelFlag;
use crate::placed::Placed;

/// Tells whether a sample is no longer needed, because the pass was abandoned, or the loader was
/// stopped or dropped.
///
/// A dataset that may wait long, for example for a server, should check the token between its
/// steps, or wait for the token's file descriptor as well as its own. If the token is set, it
/// should return an error, which is then discarded. So the next pass can begin, or the loader be
/// dropped, without waiting for the dataset.
///
/// A token can be cloned and moved to other threads. It belongs to the loader, not to the sample: a
/// clone that is kept also reports the end of later passes.
///
/// ```
/// use std::time::Duration;
///
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
///
/// let slow = from_fn(100, |index, cx| {
///     // Ten seconds of work, in steps.
///     for _ in 0..1000 {
///         if index > 0 && cx.stop().is_stopping() {
///             return Err("nobody waits for it".into());
///         }
///         if index > 0 {
///             std::thread::sleep(Duration::from_millis(10));
///         }
///     }
///     Ok(index as i64)
/// });
/// let mut loader = Loader::builder(slow).num_workers(1).build()?;
/// assert_eq!(loader.epoch()?.next().expect("a batch")?.indices(), [0]);
/// let begun = std::time::Instant::now();
/// drop(loader);
/// assert!(begun.elapsed() < Duration::from_secs(1));
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Default)]
pub struct StopToken {
    flag: Placed<CancelFlag>,
    pipe: Arc<StopPipe>,
}

/// The pipe whose reading end becomes readable when reading should stop. Made when
/// [`StopToken::fd`] is first called.
#[derive(Debug, Default)]
struct StopPipe {
    ends: OnceLock<(io::PipeReader, io::PipeWriter)>,
    process: Process,
    /// Whether the loader is in another process, which does not have the pipe and cannot write to
    /// it.
    is_remote: bool,
}

impl StopToken {
    /// Returns whether the sample is no longer needed. Takes about as long as reading a variable.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.flag.get()
    }

    /// Returns a file descriptor that is readable while [`is_stopping`](Self::is_stopping) returns
    /// true, for `poll` and similar calls. It must not be read from. It is the same for all samples
    /// of a loader, and is valid until the token and all of its clones are dropped.
    ///
    /// # Errors
    ///
    /// The system's error if there are no more file descriptors, and
    /// [`Unsupported`](io::ErrorKind::Unsupported) in a worker process that was started by a
    /// [command](crate::loader::ProcessBuilder::spawn), where only `is_stopping` is available.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let pipe = &*self.pipe;
        if pipe.ends.get().is_none() {
            if pipe.is_remote || !pipe.process.is_this() {
                let message = "the loader is in another process, and its file descriptor did not come along";
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            let ends = io::pipe()?;
            for end in [ends.0.as_fd(), ends.1.as_fd()] {
                // SAFETY: the descriptor is open.
                if unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // Another thread may have set its pipe first.
            _ = pipe.ends.set(ends);
            // With the fence in `signal`, either this thread sees the flag, or `signal` sees the pipe.
            fence(Ordering::SeqCst);
            if self.is_stopping() {
                self.signal();
            }
        }
        Ok(pipe.ends.get().expect("it was just made").0.as_fd())
    }

    /// Makes the file descriptor readable. Allowed in a signal handler.
    fn signal(&self) {
        fence(Ordering::SeqCst);
        // A forked process must not wake its parent's threads.
        if let Some((_, end)) = self.pipe.ends.get()
            && self.pipe.process.is_this()
        {
            // If the pipe is full, it is already readable.
            _ = (&*end).write(&[0]);
        }
    }

    /// Makes a token from a flag in memory that processes share. A process that is forked later
    /// inherits the file descriptor.
    pub(crate) fn shared(flag: Placed<CancelFlag>, pipe: SharedStopPipe) -> Self {
        Self { flag, pipe: pipe.0 }
    }

    /// Returns the flag.
    #[inline(always)]
    pub(crate) fn flag(&self) -> &CancelFlag {
        &self.flag
    }

    /// Returns whether the loader was stopped permanently.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.flag.is_stopped()
    }

    /// Abandons the pass, or resets the flag for the next one.
    pub(crate) fn set(&self, cancel: bool) {
        self.flag.set(cancel);
        if cancel {
            self.signal();
        } else if let Some((end, _)) = self.pipe.ends.get()
            && self.pipe.process.is_this()
        {
            let mut signals = [0; 64];
            while (&*end).read(&mut signals).is_ok_and(|len| len == signals.len()) {}
        }
    }

    /// Stops this pass and all later ones. A thread that sees the flag also sees everything before this call. Allowed in a
    /// signal handler.
    pub(crate) fn stop(&self) {
        self.flag.stop();
        self.signal();
    }
}

/// The pipe of a token whose flag is in memory that processes share.
#[derive(Clone, Debug)]
pub(crate) struct SharedStopPipe(Arc<StopPipe>);

impl SharedStopPipe {
    /// Makes the pipe, in the loader's process before any worker process is forked.
    pub(crate) fn new() -> Self {
        let token = StopToken::default();
        // If the pipe cannot be made, workers can check only the flag.
        _ = token.fd();
        Self(token.pipe)
    }

    /// Makes a value without a pipe, for a process that was not forked from the loader's.
    pub(crate) fn remote() -> Self {
        Self(Arc::new(StopPipe { is_remote: true, ..StopPipe::default() }))
    }
}

impl fmt::Debug for StopToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopToken").field("is_stopping", &self.is_stopping()).finish_non_exhaustive()
    }
}
