//! One pass over the dataset, to the device.

use std::fmt;

use slotline::loader::{BatchLoader, BatchPass, State, Stats, Warning};

use crate::batch::DeviceBatch;
use crate::copier::{Copier, Next};
use crate::error::Error;

/// One pass (an epoch) of a [`DeviceLoader`](crate::DeviceLoader): an iterator over its batches, or the errors in their places.
///
/// It takes a batch from the host's loader ahead of its being asked for only if that is ready, so that `next` does not wait for
/// others than the one that it returns (but where a worker of an iterable dataset is at its end, or all samples of a batch were
/// skipped: that shows only when it is taken). Dropped before its end, it is given up.
pub struct DevicePass<'l, L: BatchLoader + 'l> {
    host: L::Pass<'l>,
    copier: &'l mut Copier,
    /// Where the host's pass was when what was delivered last had been taken from it.
    state: Option<State>,
    /// The host's pass is over; and where its loader is then.
    ended: bool,
    end: Option<State>,
    /// The host's next batch needs a slot of one that is being copied.
    blocked: bool,
    /// The last answer was an error that can come again and again.
    failed: bool,
    /// The last answer was `Held`.
    held: bool,
    /// Nothing more comes.
    over: bool,
}

impl<'l, L: BatchLoader> DevicePass<'l, L> {
    pub(crate) fn new(host: L::Pass<'l>, copier: &'l mut Copier) -> Self {
        copier.begin();
        let state = copier.resumable.then(|| host.state());
        Self { host, copier, state, ended: false, end: None, blocked: false, failed: false, held: false, over: false }
    }

    /// What the host's loader has done so far. Batches that wait on the device are counted.
    pub fn stats(&self) -> Stats {
        self.host.stats()
    }

    /// What the host's loader noticed so far.
    pub fn warnings(&self) -> &[Warning] {
        self.host.warnings()
    }

    /// Where the pass is: behind what it has given, and before what waits on the device. For
    /// [`Loader::load_state`](slotline::Loader::load_state); `None` unless the loader is
    /// [`resumable`](crate::DeviceLoader::resumable).
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Takes the next batch from the host's pass, and has it copied.
    fn take(&mut self) -> Result<(), Error> {
        if self.blocked {
            self.copier.end_copies()?;
            self.blocked = false;
        }
        let taken = if self.copier.is_copying() {
            let taken = self.host.next_or_held();
            if matches!(taken, Some(Err(slotline::Error::Held { .. }))) {
                // After an error in the place of a batch, those before it may have the slots of those behind it.
                self.blocked = true;
                return Ok(());
            }
            taken
        } else {
            self.host.next()
        };
        let state = self.copier.resumable.then(|| self.host.state());
        match taken {
            Some(Ok(batch)) => self.copier.copy(batch.untyped(), state),
            Some(Err(error)) => self.copier.fail(error, state),
            None => (self.ended, self.end) = (true, state),
        }
        Ok(())
    }

    /// What comes next.
    fn step(&mut self) -> Result<Option<Next>, Error> {
        self.copier.collect()?;
        while self.copier.is_empty() && !self.ended {
            self.copier.make_room()?;
            self.take()?;
        }
        while !self.ended && self.copier.has_room() && self.host.is_ready() {
            self.take()?;
        }
        Ok(self.copier.pop())
    }
}

impl<L: BatchLoader> Iterator for DevicePass<'_, L> {
    type Item = Result<DeviceBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        if let Err(error) = self.copier.check_not_forked() {
            self.over = true;
            return Some(Err(error));
        }
        let mut next = match self.step() {
            Ok(Some(next)) => next,
            Ok(None) => {
                (self.over, self.state) = (true, self.end.take());
                return None;
            }
            Err(error) => return self.fail(error),
        };
        self.state = next.state.take();
        match self.copier.deliver(next) {
            Ok(batch) => {
                (self.failed, self.held) = (false, false);
                Some(Ok(batch))
            }
            Err(error) => self.fail(error),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Errors come on top of the batches, and can end the pass.
        (0, None)
    }
}

impl<L: BatchLoader> DevicePass<'_, L> {
    /// Delivers an error. A loop that does not mind errors must not go round for ever.
    fn fail(&mut self, error: Error) -> Option<Result<DeviceBatch, Error>> {
        let held = matches!(error, Error::Held { .. });
        let was_held = std::mem::replace(&mut self.held, held);
        let failed = std::mem::replace(&mut self.failed, error.can_repeat());
        self.over = if held { was_held } else { failed && self.failed };
        if held && was_held { None } else { Some(Err(error)) }
    }
}

impl<'l, L: BatchLoader> fmt::Debug for DevicePass<'l, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePass").field("ended", &self.ended).field("over", &self.over).finish_non_exhaustive()
    }
}
