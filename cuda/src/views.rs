//! The fields of a batch as views of cudarc.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, DevicePtrMut};
use slotline::dtype::Element;

use crate::batch::{DeviceBatch, DeviceTensor};
use crate::error::{DriverError, Error};
use crate::stream::Stream;

/// The fields of a batch as views of cudarc, for work on a stream: returned by
/// [`DeviceBatch::views`].
///
/// The views borrow from this value, and this value borrows from the batch, so the batch cannot be
/// dropped before the last call that takes a view. The work on the stream may end later than that:
/// the slot is refilled only when the stream has finished the work that it was given before the
/// batch was dropped.
#[derive(Debug)]
pub struct Views<'b> {
    batch: &'b DeviceBatch,
    /// The memory of the batch. cudarc must never free it.
    memory: ManuallyDrop<CudaSlice<u8>>,
}

impl DeviceBatch {
    /// Makes the batch [ready on](Self::ready_on) a stream of cudarc, and returns its fields as
    /// views for work that is launched on the stream from now on.
    ///
    /// ```no_run
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    /// use slotline_cuda::cudarc::driver::CudaContext;
    /// use slotline_cuda::{Device, DeviceLoader, probe};
    ///
    /// probe()?; // an error where there is no driver; cudarc panics there
    /// let context = CudaContext::new(0)?;
    /// let stream = context.new_stream()?;
    /// let device = Device::from_context(&context)?;
    ///
    /// let digits = TensorDataset::new(slotline::source::digits())?;
    /// let host = Loader::builder(digits).batch_size(64).hold(3).memory(device.pinned()).build()?;
    /// let mut loader = DeviceLoader::new(host, &device)?;
    /// for batch in loader.epoch()? {
    ///     let batch = batch?;
    ///     let views = batch.views(&stream)?; // the stream waits for the copy
    ///     let (images, labels) = (views.get::<u8>(0)?, views.get::<i64>(1)?);
    ///     assert_eq!(stream.clone_dtoh(&labels)?.len(), batch.len());
    ///     assert_eq!(images.len(), batch.len() * 8 * 8);
    /// } // the batch is dropped: its slot is refilled once the stream has done the work so far
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    ///
    /// # Other streams
    ///
    /// A view can be used on another stream of the context, like any view of cudarc. While cudarc
    /// tracks events (its default once there are two streams), the other stream waits for this one,
    /// and dropping the [`Views`] makes this stream wait for the other one. As everywhere in
    /// cudarc, this stream waits only for the last of several other streams, so call `views` for
    /// each stream if you use several. The events take 18 driver calls. After
    /// `CudaContext::disable_event_tracking` they take none, but then you must order the streams
    /// yourself.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotPrimary`] if the stream is not of the primary context of the batch's
    /// device, and the errors of [`ready_on`](Self::ready_on). Also returns errors of cudarc: one
    /// that an earlier call could not return, or one of recording its events. If an event cannot be
    /// created, cudarc panics, and the error says that a panic was caught.
    pub fn views(&self, stream: &Arc<CudaStream>) -> Result<Views<'_>, Error> {
        self.ready_on(&Stream::from_cudarc(self.device(), stream)?)?;
        let slot = self.slot();
        // cudarc creates two events if it tracks them, and panics if that fails.
        let memory = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the memory is valid as long as the batch has its slot, and this is its
            // length. `Views` borrows the batch, and prevents the slice from freeing the memory.
            ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<u8>(slot.ptr(), slot.len()) })
        }));
        let memory = memory.map_err(|_| DriverError::interrupted("cuEventCreate"))?;
        let mut views = Views { batch: self, memory };
        // For cudarc's tracking, the copy was the last write: other streams wait for this stream
        // before they read.
        drop(views.memory.device_ptr_mut(stream));
        match stream.context().check_err() {
            Ok(()) => Ok(views),
            Err(error) => Err(self.device().error("a call of cudarc", error.0 as u32).into()),
        }
    }
}

impl<'b> Views<'b> {
    /// Returns field `i`, in declaration order: its elements, contiguous and in C order. Its shape
    /// is that of [`DeviceBatch::field`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoField`] if `i` is out of range, and [`Error::DType`] if the field's
    /// elements are not of type `T`.
    pub fn get<T: Element>(&self, i: usize) -> Result<CudaView<'_, T>, Error> {
        self.view(self.batch.field(i).ok_or_else(|| self.no_field(i.to_string()))?)
    }

    /// Returns the field with this name, as [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoField`] if no field has this name, and [`Error::DType`] if the field's
    /// elements are not of type `T`.
    pub fn by_name<T: Element>(&self, name: &str) -> Result<CudaView<'_, T>, Error> {
        self.view(self.batch.by_name(name).ok_or_else(|| self.no_field(format!("{name:?}")))?)
    }

    /// Returns the values that describe the rows of field `i`: the lengths for a padded field, the
    /// offsets for a packed field (see [`DeviceTensor::ends`]). Returns `None` for a field whose
    /// rows all have the same length.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoField`] if `i` is out of range.
    pub fn ends(&self, i: usize) -> Result<Option<CudaView<'_, i64>>, Error> {
        let field = self.batch.field(i).ok_or_else(|| self.no_field(i.to_string()))?;
        // SAFETY: the batch has `len` values of type `i64` at this address.
        Ok(field.ends().map(|(ptr, len)| unsafe { self.part(ptr, len) }))
    }

    /// Returns the batch.
    pub fn batch(&self) -> &'b DeviceBatch {
        self.batch
    }

    fn view<T: Element>(&self, field: DeviceTensor<'_>) -> Result<CudaView<'_, T>, Error> {
        if field.dtype() != T::DTYPE {
            let name = field.field().name().to_owned();
            return Err(Error::DType { field: name, has: field.dtype(), requested: T::DTYPE });
        }
        // SAFETY: the field's elements are of type `T`.
        Ok(unsafe { self.part(field.ptr(), field.bytes() / size_of::<T>()) })
    }

    /// Returns the view of `len` elements from this address, which is in the batch.
    ///
    /// # Safety
    ///
    /// The batch must have this many elements of type `T` there.
    unsafe fn part<T>(&self, ptr: u64, len: usize) -> CudaView<'_, T> {
        let start = (ptr - self.batch.slot().ptr()) as usize;
        let bytes = self.memory.slice(start..start + len * size_of::<T>());
        // SAFETY: the caller guarantees that the bytes are elements of type `T`.
        unsafe { bytes.transmute(len) }.expect("the bytes are those of `len` elements")
    }

    fn no_field(&self, field: String) -> Error {
        let fields = (0..self.batch.fields()).filter_map(|i| self.batch.field(i));
        Error::NoField { field, fields: fields.map(|field| field.field().name().to_owned()).collect() }
    }
}

impl Drop for Views<'_> {
    fn drop(&mut self) {
        if self.batch.device().is_lost() {
            // The events and the stream belong to the parent process.
            return;
        }
        // SAFETY: the slice is taken only here, and not used after that.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        // The stream waits for other streams that read the views. This frees cudarc's events, but
        // not the memory.
        memory.leak();
    }
}
