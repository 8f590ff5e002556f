//! [`DeviceBatch`]: a batch in device memory.

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

/// A batch in device memory, or one that is being copied there. It holds one of the device slots of
/// a [`DeviceLoader`](crate::DeviceLoader).
///
/// Call [`ready_on`](Self::ready_on) before you read the batch on a stream. Batches can be dropped
/// on any thread and in any order. When a batch is dropped, its slot is refilled as soon as all
/// streams that the batch was made ready on have finished the work that they were given before the
/// drop. A batch may outlive the pass and the loader. Dropping it then waits for these streams, for
/// at most the host loader's [`close_timeout`](slotline::loader::Builder::close_timeout), and frees
/// the memory.
pub struct DeviceBatch {
    slot: Lease,
    /// Whether the ends of the batch's uses were recorded on its streams.
    released: bool,
    device: Device,
    fields: Arc<[Field]>,
    about: About,
}

/// A slot that is returned to its loader when this is dropped, even if releasing it panics.
struct Lease {
    /// The slot; `None` once this is dropped.
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
                // At the fork, another thread of the parent may have been inside the channel. That
                // thread does not exist in this process, and dropping the channel's last end would
                // wait for it.
                return std::mem::forget(self.back.clone());
            }
            // If the loader was dropped, nothing receives the slot, and it is dropped here.
            let _ = self.back.send(slot);
        }
    }
}

/// Information about a batch, without its contents.
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

    pub(crate) fn slot(&self) -> &Slot {
        self.slot.get()
    }

    /// Makes `stream` wait for the copy: work launched on the stream from now on may read the
    /// batch. The host does not wait.
    ///
    /// The batch records the stream: dropping the batch [releases](Self::release_on) it on every
    /// recorded stream. The driver is not called if the copy was already observed to be done, or if
    /// the stream was made to wait before.
    ///
    /// # Errors
    ///
    /// Returns [`Error::WrongDevice`] for a stream of another device, [`Error::TooManyStreams`] for
    /// a fifth stream, or the driver's error. The stream is then not recorded.
    pub fn ready_on(&self, stream: &Stream) -> Result<(), Error> {
        self.check(stream)?;
        self.slot().ready_on(&self.device, stream)
    }

    /// Releases the slot, which is refilled once `stream` has finished the work that it was given
    /// so far. All reads of the batch must come before that point, on this stream or on other
    /// streams that it has waited for.
    ///
    /// # Errors
    ///
    /// Returns [`Error::WrongDevice`] for a stream of another device; the batch is then dropped as
    /// it would be without this call. Returns the driver's error if the release fails; then there
    /// is no way to find out when the memory is free, and it is [leaked](crate::leaked).
    pub fn release_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.check(stream)?;
        self.released = true;
        let slot = self.slot.get_mut();
        slot.used_by(stream);
        Ok(slot.release()?)
    }

    /// Records that `stream` has read the batch too, in addition to the streams that the batch was
    /// made ready on. Dropping the batch then also records the end of its use on this stream. The
    /// number of such streams is unlimited. This is the equivalent of `release_on` for a batch that
    /// is still shared.
    ///
    /// # Errors
    ///
    /// Returns [`Error::WrongDevice`] for a stream of another device, which is not recorded.
    /// Returns the driver's error if the stream cannot be recorded; then there is no way to find
    /// out when the memory is free, and it is [leaked](crate::leaked) when the batch is dropped.
    #[doc(hidden)]
    pub fn also_used_by(&self, stream: &Stream) -> Result<(), Error> {
        self.check(stream)?;
        Ok(self.slot().also_used_by(&self.device, stream)?)
    }

    /// Blocks this thread until the copy is done. For reading the batch on a stream this is neither
    /// necessary nor sufficient: [`ready_on`](Self::ready_on) also records which stream uses the
    /// batch.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    pub fn wait(&self) -> Result<(), Error> {
        let copied = self.slot().copied.as_ref();
        wait::poll(None, || copied.map_or(Ok(true), |copied| copied.is_done()))?;
        Ok(())
    }

    /// Returns the number of samples: the batch size, or less for the last batch.
    pub fn len(&self) -> usize {
        self.slot().indices.len()
    }

    /// Returns whether the batch has no samples. Only a batch sampler that yields an empty list
    /// creates such a batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the dataset index of each sample, in host memory.
    pub fn indices(&self) -> &[i64] {
        &self.slot().indices
    }

    /// Returns the number of the batch in its pass, from 0.
    pub fn batch_index(&self) -> usize {
        self.about.task
    }

    /// Returns the number of the pass, from 0.
    pub fn epoch(&self) -> u32 {
        self.about.epoch
    }

    /// Returns the device of the batch.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of fields.
    pub fn fields(&self) -> usize {
        self.fields.len()
    }

    /// Returns field `i`, in declaration order, or `None` if `i` is out of range.
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

    /// Returns the field with this name, or `None` if no field has this name.
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
            tracing::warn!("batch {} could not be released: {error}", self.about.task);
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
    /// Returns the device address of the data, a multiple of 256. It is for kernels on streams that
    /// the batch was [made ready on](DeviceBatch::ready_on).
    pub fn ptr(&self) -> u64 {
        self.ptr
    }

    /// Returns the shape: `[rows, …]`, `[…]` for a single sample, or `[total, …]` for a packed
    /// field.
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.field.dtype()
    }

    /// Returns the size of the data, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the field as it was declared, with its name.
    pub fn field(&self) -> &'b Field {
        self.field
    }

    /// Returns the device address and the number of the `i64` values that describe the rows. For a
    /// padded field these are the rows' lengths. For a packed field these are offsets, in items:
    /// the start of each row, and the end of the last row, so there is one value more than there
    /// are rows.
    pub fn ends(&self) -> Option<(u64, usize)> {
        self.ends
    }
}
