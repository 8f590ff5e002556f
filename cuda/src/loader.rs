//! [`DeviceLoader`]: a loader that delivers its batches on a device.

use std::fmt;
use std::time::Duration;

use slotline::loader::State;
use slotline::{Batch, Loader};

use crate::batch::DeviceBatch;
use crate::copier::{Copier, page_locked};
use crate::device::Device;
use crate::error::Error;
use crate::pass::{DevicePass, Progress};

/// The default number of device slots: one is read, one is copied into, and the third lets the next
/// copy be queued before the current copy ends.
const SLOTS: usize = 3;

/// A loader that delivers the batches of another [loader](slotline::Loader), the host's loader, on
/// a device.
///
/// The host's loader writes its batches into [page-locked memory](crate::Pinned). Each batch is
/// copied to one of three device slots with a single copy, on a stream that belongs to this loader,
/// while kernels read earlier batches. Nothing is allocated after the first pass has started, no
/// thread is started, and the caller's stream waits for copies without involving the host.
///
/// ```no_run
/// use slotline::Loader;
/// use slotline::dataset::TensorDataset;
/// use slotline_cuda::{Device, DeviceLoader, Stream};
///
/// let device = Device::new(0)?;
/// let stream = Stream::new(&device)?; // or the training loop's own: `Stream::from_raw`
///
/// let (images, labels) = slotline::source::digits();
/// let digits = TensorDataset::new((images, labels))?;
/// let host = Loader::builder(digits).batch_size(64).shuffle(true).num_workers(2).hold(3).memory(device.pinned()).build()?;
/// let mut loader = DeviceLoader::new(host, &device)?;
/// for _epoch in 0..3 {
///     for batch in loader.epoch()? {
///         let batch = batch?;
///         batch.ready_on(&stream)?; // work launched on the stream from here on may read the batch
///         let images = batch.field(0).expect("the batch has fields");
///         println!("{} images {:?} at {:#x}", batch.len(), images.shape(), images.ptr());
///     } // the batch is dropped: its slot is refilled once the stream has done the work so far
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// Several loaders on one device each have their own copy stream, so none waits for another one's
/// slots. For several devices, create one loader for each, over a part of the dataset
/// (`DistributedSampler`). Memory that is page-locked for one device is page-locked for all of
/// them.
///
/// # Requirements on the host's loader
///
/// - [`memory(device.pinned())`](slotline::loader::Builder::memory), or another
///   [`Pinned`](crate::Pinned);
/// - [`hold`](slotline::loader::Builder::hold) with at least the number of device slots, so that
///   workers continue to load while batches are copied. With a smaller value, copies wait for each
///   other more often than necessary.
///
/// A batch with [spilled](slotline::loader::Overflow::Spill) fields is replaced by an error, since
/// these fields are not in page-locked memory.
///
/// # Cost
///
/// Each batch takes three driver calls: make the copy stream wait for the slot, copy, and record
/// the end of the copy. In addition, the driver is asked whether copies are done. With three slots,
/// this is one call for every two batches if copies are faster than steps; with two slots, one for
/// each batch; there are more only if the host must wait for a copy. Releasing the batch is a call,
/// and so is [`ready_on`](crate::DeviceBatch::ready_on) if the copy was not yet observed to be
/// done. With three slots and copies that are done in time, this adds up to 3.5 calls in addition
/// to the copy itself, of which `next` makes 2.5 (counted with the simulated driver of the tests).
///
/// Memory of more than 64 GiB is locked in pieces of that size, and a batch that spans two of them
/// takes two copies.
///
/// # Errors and edge cases
///
/// | Situation | Outcome |
/// |---|---|
/// | the host's loader returns an error | [`Error::Loader`] instead of its batch |
/// | the host's loader is [stopped](slotline::loader::Stopper) | [`Error::Loader`] with [`Stopped`](slotline::Error::Stopped), after the batches that are already on the device |
/// | the driver refuses a copy | [`Error::Copy`] instead of the batch; the pass continues with the next batch. After two driver errors in a row the pass ends |
/// | a copy that was started cannot be waited for | [`Error::Leaked`]: its host memory is leaked rather than written or freed; the host's loader uses [other memory](slotline::loader::OnHeld) instead, if allowed |
/// | a batch cannot be released | an error from `release_on`, or a warning if the batch is dropped; then [`Error::Lost`] from the following `next`, and one slot less |
/// | all device slots are held | [`Error::Held`] from each call until a batch is dropped; then the next batch. Alternatively the loader [waits](DeviceLoader::wait_for_release). No more device memory is allocated for batches that are kept |
/// | copies take longer than the [`timeout`](DeviceLoader::timeout) | [`Error::Timeout`]; the next call waits again |
/// | a loader is dropped while copies are in progress | it waits for them for at most the host loader's [`close_timeout`](slotline::loader::Builder::close_timeout), and then leaks the memory that they may use |
/// | the slots' memory is freed while other kernels of the context run | the driver's `cuMemFree` may wait for these kernels, without a limit |
/// | a batch is dropped after its loader | it waits in the same way for the streams that it was made ready on |
/// | a thread captures a stream into a graph (not in relaxed mode) | [`Error::Driver`] if a copy must be waited for, and the next call asks again; batches must not be made ready or dropped on that stream during the capture |
/// | the device's context is destroyed | the driver's errors, as above |
/// | the process is forked | in the child, [`Error::Loader`] with [`Forked`](slotline::Error::Forked); the child releases nothing and does not call the driver |
pub struct DeviceLoader {
    /// Dropped first: copies read the loader's memory.
    copier: Copier,
    pub(crate) pass: Progress,
    host: Loader,
}

impl DeviceLoader {
    /// Creates a loader that delivers the batches of `host` on `device`, with three device slots.
    /// Device loaders have the same type for all sample types: a batch on a device provides
    /// [fields](DeviceBatch::field).
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotPageLocked`], or the driver's error, for example if the device does not
    /// have enough memory for the slots.
    pub fn new<S>(host: Loader<Batch<S>>, device: &Device) -> Result<Self, Error> {
        Self::with_slots(host, device, SLOTS)
    }

    /// Creates a loader as [`new`](Self::new) does, with `slots` device slots. With one slot,
    /// nothing is copied while a batch is read; with two, a copy starts once the previous copy was
    /// observed to be done.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new), and [`Error::NoSlots`] if `slots` is 0.
    pub fn with_slots<S>(host: Loader<Batch<S>>, device: &Device, slots: usize) -> Result<Self, Error> {
        if slots == 0 {
            return Err(Error::NoSlots);
        }
        let host = host.untyped();
        let memory = page_locked(&host).ok_or(Error::NotPageLocked)?;
        Ok(Self { copier: Copier::new(&host, memory, device, slots)?, pass: Progress::default(), host })
    }

    /// Sets how long `next` waits for a copy before it returns [`Error::Timeout`]. Zero, the
    /// default, means no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.copier.timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        self
    }

    /// Sets whether `next` waits, if all device slots are held, until another thread drops a batch.
    /// It then returns [`Error::Held`] only after the [timeout](Self::timeout).
    ///
    /// Use it only if batches are passed to other threads: a thread that holds all of them itself
    /// would wait forever.
    pub fn wait_for_release(mut self, wait: bool) -> Self {
        self.copier.waits_for_release = wait;
        self
    }

    /// Sets whether passes keep a [state](Self::state) for each batch, from which a pass can be
    /// resumed. The state is created when the batch is taken from the host's loader, which
    /// allocates a few hundred bytes.
    pub fn resumable(mut self, resumable: bool) -> Self {
        self.copier.resumable = resumable;
        self
    }

    /// Starts a pass over the dataset. An unfinished earlier pass is abandoned.
    ///
    /// # Errors
    ///
    /// Returns the errors of the host's loader, and [`Error::Exchanged`] if the host's loader was
    /// replaced with another one.
    pub fn epoch(&mut self) -> Result<DevicePass<'_>, Error> {
        self.begin_epoch()?;
        let span = self.host.pass_span();
        Ok(DevicePass { loader: self, _span: span })
    }

    /// Starts a pass as [`epoch`](Self::epoch) does, whose batches [`next_batch`](Self::next_batch)
    /// returns. Use it where a [`DevicePass`], which borrows the loader, is inconvenient.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`epoch`](Self::epoch).
    pub fn begin_epoch(&mut self) -> Result<(), Error> {
        self.pass.end();
        self.copier.check_not_forked()?;
        if !self.copier.is_made_for(&self.host) {
            return Err(Error::Exchanged);
        }
        self.host.begin_epoch()?;
        self.pass.begin(&self.host, &mut self.copier);
        Ok(())
    }

    /// Returns the next batch of the pass, or an error instead of it; `None` after the last one,
    /// and if no pass was started.
    pub fn next_batch(&mut self) -> Option<Result<DeviceBatch, Error>> {
        let next = self.pass.next(&mut self.host, &mut self.copier);
        if next.is_none() {
            // After driver errors the host's pass may not have ended yet.
            self.host.end_epoch();
        }
        next
    }

    /// Abandons the current pass, if it has not ended, together with its batches that are already
    /// on the device. [`next_batch`](Self::next_batch) then returns `None`. Dropping a
    /// [`DevicePass`] does the same.
    pub fn end_epoch(&mut self) {
        self.pass.end();
        self.host.end_epoch();
    }

    /// Returns the position of the loader.
    ///
    /// In a pass, this is the position after the last delivered batch, as in [`DevicePass::state`],
    /// or `None` unless the loader is [`resumable`](Self::resumable). Outside of a pass, it is the
    /// state of the host's loader, which comes after all batches that the passes took from it. So
    /// batches that an abandoned pass had already copied are skipped.
    pub fn state(&self) -> Option<State> {
        if self.pass.is_open() { self.pass.state().cloned() } else { Some(self.host.state()) }
    }

    /// Returns the host's loader.
    pub fn loader(&self) -> &Loader {
        &self.host
    }

    /// Returns the host's loader, for example to load a state. It must not be replaced with another
    /// loader. An unfinished pass is abandoned.
    pub fn loader_mut(&mut self) -> &mut Loader {
        // Batches of another loader would not be in the memory that the copier expects.
        self.end_epoch();
        &mut self.host
    }

    /// Returns the number of device slots, without those that were [lost](Error::Lost).
    pub fn slots(&self) -> usize {
        self.copier.slots()
    }

    /// Returns the size of the device memory of the slots, in bytes.
    pub fn device_bytes(&self) -> usize {
        self.slots() * self.host.batch_bytes()
    }

    /// Waits for the copies in progress, for at most the host loader's
    /// [`close_timeout`](slotline::loader::Builder::close_timeout), and returns the host's loader.
    /// Dropping waits in the same way, but can only log a warning on failure.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Leaked`] if a copy cannot be waited for, and [`Error::Loader`] with
    /// [`Forked`](slotline::Error::Forked) in a forked process.
    pub fn close(mut self) -> Result<Loader, Error> {
        self.copier.check_not_forked()?;
        self.copier.close()?;
        Ok(self.host)
    }
}

impl fmt::Debug for DeviceLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLoader").field("host", &self.host).field("slots", &self.slots()).finish_non_exhaustive()
    }
}
