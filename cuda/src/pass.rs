//! One pass over the dataset, delivered on the device.

use std::fmt;

use slotline::Loader;
use slotline::loader::{PassSpan, State, Stats, Warning};

use crate::batch::DeviceBatch;
use crate::copier::{Copier, Next};
use crate::error::Error;
use crate::loader::DeviceLoader;

/// One pass (an epoch) of a [`DeviceLoader`](crate::DeviceLoader): an iterator over its batches. An
/// error takes the place of a batch that cannot be delivered.
///
/// In order to copy ahead, the pass takes further batches from the host's loader, but only those
/// that are ready. So `next` waits only for the batch that it returns. There are two exceptions,
/// which are noticed only when a batch is taken: a worker of an iterable dataset has reached its
/// end, or all samples of a batch were skipped. A pass that is dropped before its end is abandoned.
/// If a loop cannot borrow the loader for the whole pass, it can call
/// [`DeviceLoader::next_batch`](crate::DeviceLoader::next_batch) instead.
pub struct DevicePass<'l> {
    pub(crate) loader: &'l mut DeviceLoader,
    pub(crate) _span: PassSpan,
}

impl DevicePass<'_> {
    /// Returns the statistics of the host's loader. They include batches that are already on the
    /// device and were not delivered yet.
    pub fn stats(&self) -> Stats {
        self.loader.loader().stats()
    }

    /// Returns the warnings of the host's loader.
    pub fn warnings(&self) -> &[Warning] {
        self.loader.loader().warnings()
    }

    /// Returns the position of the pass: after the last delivered batch, and before the batches
    /// that are already on the device and were not delivered yet. Pass it to
    /// [`Loader::load_state`](slotline::Loader::load_state). It is `None` unless the loader is
    /// [`resumable`](crate::DeviceLoader::resumable).
    pub fn state(&self) -> Option<&State> {
        self.loader.pass.state()
    }
}

impl Iterator for DevicePass<'_> {
    type Item = Result<DeviceBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.loader.next_batch()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Errors are items too, and an error can end the pass early.
        (0, None)
    }
}

impl Drop for DevicePass<'_> {
    fn drop(&mut self) {
        self.loader.end_epoch();
    }
}

impl fmt::Debug for DevicePass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePass")
            .field("ended", &self.loader.pass.ended)
            .field("over", &self.loader.pass.over)
            .finish_non_exhaustive()
    }
}

/// The progress of a pass. The default value represents no pass.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether there is a pass that has not returned `None` yet.
    open: bool,
    /// The state of the host's pass right after the last delivered batch was taken from it.
    state: Option<State>,
    /// Whether the host's pass has ended, and the state of its loader at that point.
    ended: bool,
    end: Option<State>,
    /// Whether the host's next batch needs the host slot of a batch that is being copied.
    blocked: bool,
    /// Whether the last item was an error that can repeat indefinitely.
    failed: bool,
    /// Whether the pass has ended and returns nothing more.
    over: bool,
}

impl Progress {
    /// Starts a pass. The host's pass must have been started right before.
    pub(crate) fn begin(&mut self, host: &Loader, copier: &mut Copier) {
        copier.begin();
        let state = copier.resumable.then(|| host.state());
        *self = Self { open: true, state, ..Self::default() };
    }

    /// Abandons the pass, if there is one.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns whether there is a pass that has not returned `None` yet.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Returns the next batch, or an error instead of it. The host's loader must be the one that
    /// the copier was made for.
    pub(crate) fn next(&mut self, host: &mut Loader, copier: &mut Copier) -> Option<Result<DeviceBatch, Error>> {
        let next = if self.open && !self.over { self.advance(host, copier) } else { None };
        self.open = next.is_some();
        next
    }

    fn advance(&mut self, host: &mut Loader, copier: &mut Copier) -> Option<Result<DeviceBatch, Error>> {
        if let Err(error) = copier.check_not_forked() {
            self.over = true;
            return Some(Err(error));
        }
        let mut next = match self.step(host, copier) {
            Ok(Some(next)) => next,
            Ok(None) => {
                (self.over, self.state) = (true, self.end.take());
                return None;
            }
            Err(error) => return Some(Err(self.fail(error))),
        };
        self.state = next.state.take();
        match copier.deliver(next) {
            Ok(batch) => {
                self.failed = false;
                Some(Ok(batch))
            }
            Err(error) => Some(Err(self.fail(error))),
        }
    }

    /// Takes as many batches as there is room for, and returns the next queued item.
    fn step(&mut self, host: &mut Loader, copier: &mut Copier) -> Result<Option<Next>, Error> {
        copier.collect()?;
        while copier.is_empty() && !self.ended {
            copier.make_room()?;
            self.take(host, copier)?;
        }
        while !self.ended && copier.has_room() && host.is_ready() {
            self.take(host, copier)?;
        }
        Ok(copier.pop())
    }

    /// Takes the next batch from the host's pass and starts its copy.
    fn take(&mut self, host: &mut Loader, copier: &mut Copier) -> Result<(), Error> {
        if self.blocked {
            copier.wait_for_copies()?;
            self.blocked = false;
        }
        let taken = if copier.is_copying() {
            let taken = host.next_or_held();
            if matches!(taken, Some(Err(slotline::Error::Held { .. }))) {
                // After an error in place of a batch, earlier batches may hold the host slots that
                // later ones need.
                self.blocked = true;
                return Ok(());
            }
            taken
        } else {
            host.next_batch()
        };
        let state = copier.resumable.then(|| host.state());
        match taken {
            Some(Ok(batch)) => copier.copy(batch, state),
            Some(Err(error)) => copier.fail(error, state),
            None => (self.ended, self.end) = (true, state),
        }
        Ok(())
    }

    /// Returns an error to the caller. A second repeatable error in a row ends the pass, so that a
    /// loop that ignores driver errors does not run forever.
    fn fail(&mut self, error: Error) -> Error {
        let failed = std::mem::replace(&mut self.failed, error.can_repeat());
        self.over = failed && self.failed;
        error
    }
}
