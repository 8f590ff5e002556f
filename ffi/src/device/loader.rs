//! Loaders that deliver batches on a device.

use std::ptr::null_mut;
use std::time::Duration;

use slotline::loader::{State, StatsReader, Stopper, Warning};
use slotline_cuda::{Device, DeviceBatch, DeviceLoader, probe};

use super::batch::slotline_device_batch;
use crate::boundary::{boundary, guarded};
use crate::bytes::slotline_bytes;
use crate::check;
use crate::dataset::slotline_dataset;
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::handle::{self, Handle, Handled};
use crate::loader::{build, take};
use crate::options::slotline_options;
use crate::running::{HostLoader, LoaderInfo, LoaderOps};
use crate::state;
use crate::stats::{self, slotline_stats};
use crate::status::{
    SLOTLINE_END, SLOTLINE_ERROR_BUILD, SLOTLINE_ERROR_DEVICE, SLOTLINE_ERROR_STATE, SLOTLINE_OK, slotline_status,
};
use crate::versioned::{self, Versioned};

/// A loader that delivers batches on a device. Only one thread at a time may use it, unless a function says otherwise; it does
/// not have to be the same thread each time.
#[derive(Debug)]
pub struct slotline_device_loader(Handle<DeviceLoader>);

impl Handled for slotline_device_loader {
    type Loader = DeviceLoader;

    #[inline]
    fn handle(&self) -> &Handle<DeviceLoader> {
        &self.0
    }
}

/// The options for copying batches to the device. Except for the size, zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_device_options {
    /// `sizeof(slotline_device_options)`.
    pub struct_size: usize,
    /// The device's number (0).
    pub ordinal: usize,
    /// The number of batches that can be on the device at once (0: 3). The loader's `hold` is raised to at least this number.
    pub slots: usize,
    /// The maximum time to wait for one copy, in milliseconds (0: no limit).
    pub timeout_ms: u64,
    /// Whether a state is kept for each batch, so that `slotline_device_loader_state` can be called during a pass (no).
    pub resumable: u8,
    /// Zeros; reserved for later versions.
    pub reserved: [u8; 7],
}

// SAFETY: it contains only numbers, and its first field is its size.
unsafe impl Versioned for slotline_device_options {
    const FIRST: usize = versioned::end!(reserved);
    const END: usize = versioned::end!(reserved);

    fn defaults() -> Self {
        Self { struct_size: size_of::<Self>(), ordinal: 0, slots: 0, timeout_ms: 0, resumable: 0, reserved: [0; 7] }
    }

    fn is_known(&self) -> bool {
        self.reserved == [0; 7]
    }
}

impl LoaderOps for DeviceLoader {
    type Item = DeviceBatch;

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        Ok(Self::begin_epoch(self)?)
    }

    fn next_batch(&mut self) -> Option<Result<DeviceBatch, Box<Failure>>> {
        Some(Self::next_batch(self)?.map_err(Failure::boxed))
    }

    fn next_epoch(&self) -> u32 {
        self.loader().next_epoch()
    }

    fn facts(&self) -> LoaderInfo {
        LoaderInfo::of(self.loader())
    }

    fn stopper(&self) -> Stopper {
        self.loader().stopper()
    }

    fn state(&self) -> Result<State, Failure> {
        let unknown = || {
            Failure::new(
                SLOTLINE_ERROR_STATE,
                "the loader keeps no state during a pass; set resumable in slotline_device_options when you make it",
            )
        };
        Self::state(self).ok_or_else(unknown)
    }

    fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        Ok(self.loader_mut().load_state(state)?)
    }

    fn stats_reader(&self) -> StatsReader {
        self.loader().stats_reader()
    }

    fn warnings(&self) -> &[Warning] {
        self.loader().warnings()
    }
}

/// Looks for a CUDA driver, and returns the number of its devices in `*devices`, which is 0 on failure. Can be called from any
/// thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer. `SLOTLINE_ERROR_DEVICE`: there is no driver, it is too old, it does not start, or
/// it has no device; the message says which.
///
/// # Safety
///
/// `devices` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_probe(
    devices: *mut usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `devices` and `error` are NULL or writable.
    unsafe {
        boundary(error, || {
            let devices = check::place(devices, 0, "devices")?;
            let driver = probe().map_err(|reason| Failure::of(SLOTLINE_ERROR_DEVICE, &reason))?;
            *devices = driver.devices.len();
            Ok(SLOTLINE_OK)
        })
    }
}

/// Makes a loader that delivers batches on a device, as `slotline_loader_new` does, with page-locked memory on the host. If
/// `device` is NULL, the defaults of `slotline_device_options` apply. On failure `*out` is NULL. Can be called from any thread.
///
/// # Errors
///
/// The same as for `slotline_loader_new`; `SLOTLINE_ERROR_DEVICE`: there is no driver, the device does not exist, or it does
/// not have enough memory.
///
/// # Safety
///
/// The same as for `slotline_loader_new`; `device` must be NULL or readable for `device->struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_new(
    dataset: *const slotline_dataset,
    options: *const slotline_options,
    device: *const slotline_device_options,
    out: *mut *mut slotline_device_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary`, `take`, `build` and `read`.
    unsafe {
        boundary(error, || {
            // This comes first, because the user's pointers are taken over even if this function fails.
            let options = take(options);
            let out = check::place(out, null_mut(), "out")?;
            let (mut options, owned) = options?;
            // Checked before the device is opened.
            check::reference(dataset, "dataset")?;
            let wanted = match device.is_null() {
                true => slotline_device_options::defaults(),
                false => versioned::read(device, "device", |_| ())?.0,
            };
            let device = Device::new(wanted.ordinal)?;
            let slots = if wanted.slots == 0 { 3 } else { wanted.slots };
            options.hold = options.hold.max(slots);
            let HostLoader::Stacked(host) = build(dataset, (options, owned), Some(device.pinned()), true)? else {
                return Err(Failure::new(
                    SLOTLINE_ERROR_BUILD,
                    "collated batches cannot be copied to a device; leave collate NULL, or use slotline_loader_new",
                ));
            };
            let loader = DeviceLoader::with_slots(host, &device, slots)?;
            let loader = loader
                .timeout(Duration::from_millis(wanted.timeout_ms))
                .resumable(check::flag(wanted.resumable, "device->resumable")?);
            *out = Box::into_raw(Box::new(slotline_device_loader(Handle::new(loader))));
            Ok(SLOTLINE_OK)
        })
    }
}

/// Starts a pass; see `slotline_loader_epoch`.
///
/// # Errors
///
/// The same as for `slotline_loader_epoch`.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_epoch(
    loader: *mut slotline_device_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed, and that `error` is NULL or writable.
    unsafe {
        boundary(error, || {
            handle::enter(loader)?.running().begin_epoch()?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Returns the next batch of the pass in `*out`; the caller must free or release it. The batch may still be on its way to the
/// device. After the last batch the status is `SLOTLINE_END`. An error can take the place of a batch. `*out` is NULL unless
/// there is a batch.
///
/// # Errors
///
/// The same as for `slotline_loader_next`; `SLOTLINE_ERROR_HELD` also means that too many batches on the device are held, and
/// `SLOTLINE_ERROR_TIMEOUT` also that a copy took too long. `SLOTLINE_ERROR_DEVICE`: the driver refused a copy. The next call
/// returns the next batch, but two such errors in a row end the pass.
///
/// # Safety
///
/// The same as for `slotline_device_loader_epoch`; `out` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_next(
    loader: *mut slotline_device_loader,
    out: *mut *mut slotline_device_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed, and that `out` and `error` are NULL or writable.
    unsafe {
        boundary(error, || {
            let out = check::place(out, null_mut(), "out")?;
            let mut inside = handle::enter(loader)?;
            let Some(batch) = inside.next_batch()? else { return Ok(SLOTLINE_END) };
            *out = slotline_device_batch::boxed(batch, inside.fields());
            Ok(SLOTLINE_OK)
        })
    }
}

/// Stops a loader; see `slotline_loader_stop`. Batches that are on the device already are delivered before
/// `SLOTLINE_ERROR_STOPPED`.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_stop(loader: *const slotline_device_loader) {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed.
    unsafe { handle::stop(loader) }
}

/// Returns the position of the loader; see `slotline_loader_state`. The bytes can also be loaded into a loader on the host.
///
/// # Errors
///
/// The same as for `slotline_loader_state`; `SLOTLINE_ERROR_STATE`: called during a pass, and the loader is not `resumable`.
///
/// # Safety
///
/// The same as for `slotline_loader_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_state(
    loader: *mut slotline_device_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contract of `save`, which is the same.
    unsafe { state::save(loader, out, error) }
}

/// Moves the loader to the position of a state; see `slotline_loader_load_state`.
///
/// # Errors
///
/// The same as for `slotline_loader_load_state`.
///
/// # Safety
///
/// The same as for `slotline_loader_load_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_load_state(
    loader: *mut slotline_device_loader,
    data: *const u8,
    len: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contract of `load`, which is the same.
    unsafe { state::load(loader, data, len, error) }
}

/// Writes the statistics of the loader's host side to `*out`; see `slotline_loader_stats`.
///
/// # Errors
///
/// The same as for `slotline_loader_stats`.
///
/// # Safety
///
/// The same as for `slotline_loader_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_stats(
    loader: *mut slotline_device_loader,
    out: *mut slotline_stats,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contract of `write_stats`, which is the same.
    unsafe { stats::write_stats(loader, out, error) }
}

/// Returns the warnings of the loader since it was made; see `slotline_loader_warnings`.
///
/// # Errors
///
/// The same as for `slotline_loader_warnings`.
///
/// # Safety
///
/// The same as for `slotline_loader_warnings`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_warnings(
    loader: *mut slotline_device_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contract of `warnings_text`, which is the same.
    unsafe { stats::warnings_text(loader, out, error) }
}

/// Returns the number of batches of a pass; -1 if it is not known in advance, or for NULL. Can be called from any thread.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_len(loader: *const slotline_device_loader) -> i64 {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed.
    unsafe { handle::ask(loader, -1, LoaderInfo::len) }
}

/// Returns the number of the pass that the next `slotline_device_loader_epoch` starts, from 0. 0 for NULL, or while the loader
/// is in use.
///
/// # Safety
///
/// The same as for `slotline_device_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_next_epoch(loader: *mut slotline_device_loader) -> u32 {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed.
    guarded(0, || unsafe { handle::enter(loader) }.map_or(0, |mut inside| inside.loader().next_epoch()))
}

/// Frees a loader. Does nothing for NULL. Its batches stay valid; see `slotline_loader_free`. The call waits for copies in
/// progress, for up to `close_timeout_ms` (5 s), and then leaks the memory that they may still use; a batch that is freed
/// afterwards waits in the same way for its streams.
///
/// # Safety
///
/// The same as for `slotline_loader_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_free(loader: *mut slotline_device_loader) {
    // SAFETY: `slotline_device_loader_new` made the loader, and the caller upholds the rest.
    unsafe { handle::free(loader) }
}
