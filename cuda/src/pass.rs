//! One pass over the dataset, to the device.

use std::fmt;

use slotline::Loader;
use slotline::loader::{PassSpan, State, Stats, Warning};

use crate::batch::DeviceBatch;
use crate::copier::{Copier, Next};
use crate::error::Error;
use crate::loader::DeviceLoader;

/// One pass (an epoch) of a [`DeviceLoader`](crate::DeviceLoader): an iterator over its batches, or the errors in their places.
///
/// It takes a batch from the host's loader ahead of its being asked for only if that is ready, so that `next` does not wait for
/// others than the one that it returns (but where a worker of an iterable dataset is at its end, or all samples of a batch were
/// skipped: that shows only when it is taken). Dropped before its end, it is given up. A loop that must own what it iterates, or
/// take batches here and there, asks the loader itself: [`DeviceLoader::next_batch`](crate::DeviceLoader::next_batch).
pub struct DevicePass<'l> {
    pub(crate) loader: &'l mut DeviceLoader,
    pub(crate) _span: PassSpan,
}

impl DevicePass<'_> {
    /// What the host's loader has done so far. Batches that wait on the device are counted.
    pub fn stats(&self) -> Stats {
        self.loader.loader().stats()
    }

    /// What the host's loader noticed so far.
    pub fn warnings(&self) -> &[Warning] {
        self.loader.loader().warnings()
    }

    /// Where the pass is: behind what it has given, and before what waits on the device. For
    /// [`Loader::load_state`](slotline::Loader::load_state); `None` unless the loader is
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
        // Errors come on top of the batches, and can end the pass.
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

/// How far a pass is; by default there is none.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// There is a pass, and its `None` has not come yet.
    open: bool,
    /// Where the host's pass was when what was delivered last had been taken from it.
    state: Option<State>,
    /// The host's pass is over; and where its loader is then.
    ended: bool,
    end: Option<State>,
    /// The host's next batch needs a slot of one that is being copied.
    blocked: bool,
    /// The last answer was an error that can come again and again.
    failed: bool,
    /// Nothing more comes.
    over: bool,
}

impl Progress {
    /// Begins a pass, as the host's has just begun.
    pub(crate) fn begin(&mut self, host: &Loader, copier: &mut Copier) {
        copier.begin();
        let state = copier.resumable.then(|| host.state());
        *self = Self { open: true, state, ..Self::default() };
    }

    /// Gives the pass up, if there is one.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether there is a pass, whose end was not seen yet.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The next batch, or the error in its place. The host's loader must be the one that the copier was made for.
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

    /// What comes next.
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

    /// Takes the next batch from the host's pass, and has it copied.
    fn take(&mut self, host: &mut Loader, copier: &mut Copier) -> Result<(), Error> {
        if self.blocked {
            copier.end_copies()?;
            self.blocked = false;
        }
        let taken = if copier.is_copying() {
            let taken = host.next_or_held();
            if matches!(taken, Some(Err(slotline::Error::Held { .. }))) {
                // After an error in the place of a batch, those before it may have the slots of those behind it.
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

    /// Delivers an error. A loop that does not mind those of the driver must not go round for ever.
    fn fail(&mut self, error: Error) -> Error {
        let failed = std::mem::replace(&mut self.failed, error.can_repeat());
        self.over = failed && self.failed;
        error
    }
}
