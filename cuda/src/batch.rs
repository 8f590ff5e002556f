//! A batch on the device.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use slotline::dtype::DType;
use slotline::sample::Field;
use slotline::shape::Shape;

use crate::Device;
use crate::error::Error;
use crate::slot::Slot;
use crate::stream::Stream;
use crate::wait;

/// A batch in device memory, or on its way there: the lease on one of the device slots of a
/// [`DeviceLoader`](crate::DeviceLoader).
///
/// Whoever reads it on a stream calls [`ready_on`](Self::ready_on) first. Dropped, on any thread and in any order, its slot is
/// filled again as soon as all streams that it was made ready on have come to that point. It may outlive the pass and the
/// loader; then dropping it waits for these streams, at most [`GRACE`](slotline::loader::GRACE), and frees the memory.
pub struct DeviceBatch {
    slot: Lease,
    /// The ends of its uses are marked.
    released: bool,
    device: Device,
    fields: Arc<[Field]>,
    about: About,
}

/// A slot that goes back to its loader when this is dropped, also by a panic while it is released.
struct Lease {
    /// Until then.
    slot: Option<Slot>,
    back: SyncSender<Slot>,
}

impl Lease {
    fn get(&self) -> &Slot {
        self.slot.as_ref().expect("a batch has its slot until it is dropped")
    }

    fn get_mut(&mut self) -> &mut Slot {
        self.slot.as_mut().expect("a batch has its slot until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            if slot.is_lost() {
                // A thread that is gone may be in the channel, and even the last end to be dropped would wait for it.
                return std::mem::forget(self.back.clone());
            }
            // Without a loader the slot ends here.
            let _ = self.back.send(slot);
        }
    }
}

/// What is known of a batch beside its contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) task: usize,
    pub(crate) epoch: u32,
}

/// A field of a [`DeviceBatch`]: contiguous, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceTensor<'b> {
    field: &'b Field,
    ptr: u64,
    shape: Shape,
    bytes: usize,
    ends: Option<(u64, usize)>,
}

impl DeviceBatch {
    pub(crate) fn new(slot: Slot, about: About, device: Device, fields: Arc<[Field]>, back: SyncSender<Slot>) -> Self {
        Self { slot: Lease { slot: Some(slot), back }, released: false, device, fields, about }
    }

    fn slot(&self) -> &Slot {
        self.slot.get()
    }

    /// Has `stream` wait for the copy: what is launched on it from now on may read the batch. The host does not wait.
    ///
    /// The stream is noted: dropping the batch is as much as [releasing](Self::release_on) it on each such stream. If the copy
    /// was seen to be done, or the stream was made to wait before, the driver is not called.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for a stream of another device, [`Error::TooManyStreams`] for a fifth one, and what the driver
    /// says; the stream is then not noted.
    pub fn ready_on(&self, stream: &Stream) -> Result<(), Error> {
        self.check(stream)?;
        self.slot().ready_on(&self.device, stream)
    }

    /// Gives the slot back: it is filled again once `stream` has come to this point. All reads of the batch must be before that,
    /// on this stream or on others that it has waited for.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for a stream of another device; the batch is then dropped as without this call. What the
    /// driver says: then nobody can tell when the memory is free, and it is [leaked](crate::leaked).
    pub fn release_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.check(stream)?;
        self.released = true;
        let slot = self.slot.get_mut();
        slot.used_by(stream);
        Ok(slot.release()?)
    }

    /// Notes that `stream` has read the batch, too, beside those that it was made ready on: dropping the batch marks its end there
    /// as well. There is no limit to such streams. This is `release_on` for a batch that others still hold.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for a stream of another device, which is not noted. What the driver says: then nobody can tell when
    /// the memory is free, and it is [leaked](crate::leaked) when the batch is dropped.
    #[doc(hidden)]
    pub fn also_used_by(&self, stream: &Stream) -> Result<(), Error> {
        self.check(stream)?;
        Ok(self.slot().also_used_by(&self.device, stream)?)
    }

    /// Waits, in this thread, for the copy. To read the batch on a stream this is neither needed nor enough:
    /// [`ready_on`](Self::ready_on) also says who uses it.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn wait(&self) -> Result<(), Error> {
        let copied = self.slot().copied.as_ref();
        wait::poll(None, || copied.map_or(Ok(true), |copied| copied.is_done()))?;
        Ok(())
    }

    /// How many samples it has: the batch size, or less for the last batch.
    pub fn len(&self) -> usize {
        self.slot().indices.len()
    }

    /// Whether it has no sample, as only a batch sampler's empty list makes one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of each sample, in host memory.
    pub fn indices(&self) -> &[i64] {
        &self.slot().indices
    }

    /// Its number in the pass, from 0.
    pub fn task(&self) -> usize {
        self.about.task
    }

    /// The number of its pass, from 0.
    pub fn epoch(&self) -> u32 {
        self.about.epoch
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many fields it has.
    pub fn fields(&self) -> usize {
        self.fields.len()
    }

    /// Field `i`, in the order declared; `None` if there is none.
    pub fn field(&self, i: usize) -> Option<DeviceTensor<'_>> {
        let (field, slot) = (self.fields.get(i)?, self.slot());
        let place = slot.places.get(i)?;
        let at = |offset: usize| slot.ptr() + offset as u64;
        let ends = place.ends.as_ref().map(|ends| (at(ends.start), ends.len() / size_of::<i64>()));
        Some(DeviceTensor {
            field,
            ptr: at(place.data.start),
            shape: place.shape.clone(),
            bytes: place.data.len(),
            ends,
        })
    }

    /// The field of this name; `None` if there is none.
    pub fn by_name(&self, name: &str) -> Option<DeviceTensor<'_>> {
        self.field(self.fields.iter().position(|field| field.name() == name)?)
    }

    fn check(&self, stream: &Stream) -> Result<(), Error> {
        if stream.device() == &self.device {
            return Ok(());
        }
        Err(Error::WrongDevice { stream: stream.device().ordinal(), batch: self.device.ordinal() })
    }
}

impl Drop for DeviceBatch {
    fn drop(&mut self) {
        if self.device.is_lost() {
            return;
        }
        if !self.released
            && let Err(error) = self.slot.get_mut().release()
        {
            tracing::warn!("batch {} cannot be released: {error}", self.about.task);
        }
    }
}

impl fmt::Debug for DeviceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBatch")
            .field("task", &self.about.task)
            .field("epoch", &self.about.epoch)
            .field("len", &self.len())
            .field("device", &self.device.ordinal())
            .finish_non_exhaustive()
    }
}

impl<'b> DeviceTensor<'b> {
    /// Its address on the device, a multiple of 256; for kernels on streams that the batch was [made ready
    /// on](DeviceBatch::ready_on).
    pub fn ptr(&self) -> u64 {
        self.ptr
    }

    /// `[rows, …]`, or of a single sample `[…]`; of a packed field `[total, …]`.
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.field.dtype()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was declared, with its name.
    pub fn field(&self) -> &'b Field {
        self.field
    }

    /// Of a ragged field, the address on the device of each row's length, and how many there are; of a packed one, of the
    /// offsets where rows begin and the last one ends, in items, one more than there are rows. They are `i64`.
    pub fn ends(&self) -> Option<(u64, usize)> {
        self.ends
    }
}
