//! A loader whose batches come out on a device.

use std::fmt;
use std::time::Duration;

use slotline::loader::State;
use slotline::{Batch, Loader};

use crate::batch::DeviceBatch;
use crate::copier::{Copier, page_locked};
use crate::device::Device;
use crate::error::Error;
use crate::pass::{DevicePass, Progress};

/// Device slots, unless said: one that is read, one that is copied into, and one more, so that the next copy is there when
/// the one before it ends.
const SLOTS: usize = 3;

/// Feeds a training loop with the batches of a [loader](slotline::Loader), on a device.
///
/// The host's loader writes its batches into [page-locked memory](crate::Pinned); each goes to one of three device slots by one
/// copy on a stream of this loader's own, while kernels read the batches before it. Nothing is allocated after the
/// first pass began, no thread is started, and the caller's stream waits for copies by itself, without the host.
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
///         batch.ready_on(&stream)?; // what is launched on the stream from here on may read the batch
///         let images = batch.field(0).expect("a field");
///         println!("{} images {:?} at {:#x}", batch.len(), images.shape(), images.ptr());
///     } // dropped: refilled when the stream has come to this point
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// Several loaders on one device have a copy stream each, so that none waits for another one's slots. For several devices there
/// is a loader for each, of a part of the dataset (`DistributedSampler`); memory that is page-locked for one device is so for all.
///
/// # What it asks of the host's loader
///
/// - [`memory(device.pinned())`](slotline::loader::Builder::memory), or another [`Pinned`](crate::Pinned);
/// - [`hold`](slotline::loader::Builder::hold) of as many batches as there are device slots, so that loading ahead goes on while
///   copies are on their way. With less, copies wait for each other more than they need.
///
/// A batch with [spilled](slotline::loader::Overflow::Spill) fields is an error in its place: these are not in page-locked memory.
///
/// # What it costs
///
/// For each batch the driver is called to have the copy stream wait for the slot, to copy, and to mark the end of the copy; and
/// once for every two batches to be asked whether copies are done, with three slots and copies that are faster than the steps
/// (with two slots once for each; more often only where the host must wait for a copy). Releasing the batch is a call,
/// and so is [`ready_on`](crate::DeviceBatch::ready_on) if the copy was not seen to be done: 3.5 calls beside the copy itself
/// (counted over the fake driver), of which 2.5 are `next`'s.
/// Memory of more than 64 GiB is locked in pieces of that size, and a batch that lies in two of them takes two copies.
///
/// # When things go wrong
///
/// | what | outcome |
/// |---|---|
/// | the host's loader has an error | [`Error::Loader`] in the place of its batch |
/// | the host's loader is [stopped](slotline::loader::Stopper) | [`Error::Loader`] with [`Stopped`](slotline::Error::Stopped), after the batches that are on the device already |
/// | the driver refuses a copy | [`Error::Copy`] in the place of its batch; the next batch comes. After two errors of the driver one after the other the pass is over |
/// | a copy that was begun cannot be waited for | [`Error::Leaked`]: its host memory is leaked rather than written or freed; the host's loader takes [other memory](slotline::loader::OnHeld) in its place, if it may |
/// | a batch cannot be released | an error of `release_on`, or a warning if it is dropped; [`Error::Lost`] by the next `next`, and one slot less |
/// | all device slots are held | [`Error::Held`] from each call until a batch is dropped; then the next one comes. Or it [waits](DeviceLoader::wait_for_release). On a device no more memory is taken for batches that are kept |
/// | copies take longer than the [`timeout`](DeviceLoader::timeout) | [`Error::Timeout`]; the next call waits again |
/// | a loader dropped with copies on the way | it waits for them, at most [`GRACE`](slotline::loader::GRACE), and then leaks what they may use |
/// | the slots' memory is freed while other kernels of the context run | the driver's `cuMemFree` may wait for these, without a limit |
/// | a batch dropped after its loader | it waits in the same way for the streams that it was made ready on |
/// | a thread captures a stream into a graph (not in relaxed mode) | [`Error::Driver`] if a copy must be waited for, and the next call asks again; batches must not be made ready or dropped on that stream meanwhile |
/// | the context of the device is destroyed | the driver's errors, as above |
/// | the process is forked | in the child [`Error::Loader`] with [`Forked`](slotline::Error::Forked); nothing is given back there, and the driver is not called |
pub struct DeviceLoader {
    /// Dropped first: copies read the loader's memory.
    copier: Copier,
    pub(crate) pass: Progress,
    host: Loader,
}

impl DeviceLoader {
    /// Has the batches of `host` come out on `device`, by three device slots. Device loaders are of one type, whatever their
    /// samples are: what a batch on a device has are [fields](DeviceBatch::field).
    ///
    /// # Errors
    ///
    /// [`Error::NotPageLocked`], and what the driver says, for one if the device has no memory for the slots.
    pub fn new<S>(host: Loader<Batch<S>>, device: &Device) -> Result<Self, Error> {
        Self::with_slots(host, device, SLOTS)
    }

    /// The same with so many device slots. With one, nothing is copied while a batch is read; with two, a copy begins when the
    /// one before it was seen to be done.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); [`Error::NoSlots`] for 0.
    pub fn with_slots<S>(host: Loader<Batch<S>>, device: &Device, slots: usize) -> Result<Self, Error> {
        if slots == 0 {
            return Err(Error::NoSlots);
        }
        let host = host.untyped();
        let memory = page_locked(&host).ok_or(Error::NotPageLocked)?;
        Ok(Self { copier: Copier::new(&host, memory, device, slots)?, pass: Progress::default(), host })
    }

    /// How long `next` waits for a copy before it says [`Error::Timeout`]; zero, the default, for as long as it takes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.copier.timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        self
    }

    /// Whether `next` waits, when all device slots are held, until another thread drops a batch, and says [`Error::Held`] only
    /// after the [timeout](Self::timeout).
    ///
    /// Only for loops that hand batches to other threads: a thread that holds them all itself would wait for ever.
    pub fn wait_for_release(mut self, wait: bool) -> Self {
        self.copier.waits_for_release = wait;
        self
    }

    /// Whether passes keep a [state](Self::state) for each batch, to be gone on from. It is made when the batch is taken
    /// from the host's loader, which allocates a few hundred bytes.
    pub fn resumable(mut self, resumable: bool) -> Self {
        self.copier.resumable = resumable;
        self
    }

    /// Starts a pass over the dataset. A pass before it that is not over is given up.
    ///
    /// # Errors
    ///
    /// What the host's loader says; [`Error::Exchanged`] if that is not the one any more that this was made of.
    pub fn epoch(&mut self) -> Result<DevicePass<'_>, Error> {
        self.begin_epoch()?;
        let span = self.host.pass_span();
        Ok(DevicePass { loader: self, _span: span })
    }

    /// Starts a pass as [`epoch`](Self::epoch) does, for [`next_batch`](Self::next_batch) to take the batches of: where a
    /// [`DevicePass`], which borrows the loader, is in the way.
    ///
    /// # Errors
    ///
    /// As [`epoch`](Self::epoch).
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

    /// The next batch of the pass, or the error in its place; `None` after the last one, and where no pass was begun.
    pub fn next_batch(&mut self) -> Option<Result<DeviceBatch, Error>> {
        let next = self.pass.next(&mut self.host, &mut self.copier);
        if next.is_none() {
            // After errors of the driver the host's may go on.
            self.host.end_epoch();
        }
        next
    }

    /// Gives the pass up, if there is one that is not over, with what of it is on the device already;
    /// [`next_batch`](Self::next_batch) then gives `None`. A [`DevicePass`] does that when it is dropped.
    pub fn end_epoch(&mut self) {
        self.pass.end();
        self.host.end_epoch();
    }

    /// Where the loader is: in a pass behind what that has given, as [`DevicePass::state`], and `None` unless the loader is
    /// [`resumable`](Self::resumable). Without a pass, or after it, this is the state of the host's loader, which is behind what
    /// was taken from that: batches that a pass had copied ahead when it was given up are passed over.
    pub fn state(&self) -> Option<State> {
        if self.pass.is_open() { self.pass.state().cloned() } else { Some(self.host.state()) }
    }

    /// The host's loader.
    pub fn loader(&self) -> &Loader {
        &self.host
    }

    /// The host's loader, to load a state into, say. It must stay this one. A pass that is not over is given up.
    pub fn loader_mut(&mut self) -> &mut Loader {
        // Batches of another loader would not be in the memory that copies are for.
        self.end_epoch();
        &mut self.host
    }

    /// How many device slots there are; those that were [lost](Error::Lost) are not counted.
    pub fn slots(&self) -> usize {
        self.copier.slots()
    }

    /// Bytes of device memory that the slots take.
    pub fn device_bytes(&self) -> usize {
        self.slots() * self.host.batch_bytes()
    }

    /// Waits for the copies that are on their way, at most [`GRACE`](slotline::loader::GRACE), and gives the host's loader back.
    /// Dropping does the same, but can only warn.
    ///
    /// # Errors
    ///
    /// [`Error::Leaked`] if a copy cannot be waited for; [`Error::Loader`] with [`Forked`](slotline::Error::Forked).
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
