//! Loaders that deliver batches on a device.

use std::ptr::null_mut;
use std::time::Duration;

use slotline_cuda::{Device, DeviceLoader, probe};

use crate::abi::{
    Failure, SLOTLINE_ERROR_BUILD, SLOTLINE_ERROR_DEVICE, Versioned, check, done, slotline_error, slotline_status,
    versioned,
};
use crate::data::dataset::slotline_dataset;
use crate::loader::{AnyLoader, Handle, build, slotline_loader, slotline_options, take};

/// The options for copying batches to the device. Except for the size, zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_device_options {
    /// `sizeof(slotline_device_options)`.
    pub struct_size: usize,
    /// The device's number (0).
    pub ordinal: usize,
    /// The number of batches that can be on the device at the same time (0: 3). The loader's `hold`
    /// is raised to at least this number.
    pub slots: usize,
    /// The maximum time to wait for one copy, in milliseconds (0: no limit).
    pub timeout_ms: u64,
    /// Whether to save the loader's state with each batch, so that `slotline_loader_state` can be
    /// called during a pass (no).
    pub resumable: u8,
    /// Zeros; reserved for later versions.
    pub reserved: [u8; 7],
}

// SAFETY: it contains only numbers, and its first field is its size.
unsafe impl Versioned for slotline_device_options {
    const END: usize = versioned::end!(reserved);

    fn is_known(&self) -> bool {
        self.reserved == [0; 7]
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
        done(error, || {
            let devices = check::place(devices, 0, "devices")?;
            let driver = probe().map_err(|reason| Failure::of(SLOTLINE_ERROR_DEVICE, &reason))?;
            *devices = driver.devices.len();
            Ok(())
        })
    }
}

/// Creates a loader that delivers batches on a device. It works like `slotline_loader_new`, with
/// page-locked memory on the host. If `device` is NULL, the defaults of `slotline_device_options`
/// apply. A batch may still be being copied to the device when it is delivered. On failure `*out`
/// is NULL. Can be called from any thread.
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
pub unsafe extern "C" fn slotline_loader_new_on_device(
    dataset: *const slotline_dataset,
    options: *const slotline_options,
    device: *const slotline_device_options,
    out: *mut *mut slotline_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary`, `take`, `build` and `read`.
    unsafe {
        done(error, || {
            // Comes first, because ownership of the user's pointers is taken even if this function
            // fails.
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
            let AnyLoader::Stacked(host) = build(dataset, (options, owned), Some(device.pinned()), true)? else {
                return Err(Failure::new(
                    SLOTLINE_ERROR_BUILD,
                    "collated batches cannot be copied to a device; leave collate NULL, or use slotline_loader_new",
                ));
            };
            let loader = DeviceLoader::with_slots(host, &device, slots)?;
            let loader = loader
                .timeout(Duration::from_millis(wanted.timeout_ms))
                .resumable(check::flag(wanted.resumable, "device->resumable")?);
            *out = Box::into_raw(Box::new(slotline_loader(Handle::new(AnyLoader::Device(Box::new(loader))))));
            Ok(())
        })
    }
}
