//! Device loaders.

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
use crate::running::{Facts, HostLoader, Loads};
use crate::state;
use crate::stats::{self, slotline_stats};
use crate::status::{SLOTLINE_BUILD, SLOTLINE_DEVICE, SLOTLINE_END, SLOTLINE_OK, SLOTLINE_STATE, slotline_status};
use crate::versioned::{self, Versioned};

/// A loader whose batches come out on a device. One thread at a time may use it, unless a function says otherwise; it may be
/// another one each time.
#[derive(Debug)]
pub struct slotline_device_loader(Handle<DeviceLoader>);

impl Handled for slotline_device_loader {
    type Loader = DeviceLoader;

    #[inline]
    fn handle(&self) -> &Handle<DeviceLoader> {
        &self.0
    }
}

/// How batches get to the device. All zeros, but for the size, are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_device_options {
    /// `sizeof(slotline_device_options)`.
    pub struct_size: usize,
    /// The device's number (0).
    pub ordinal: usize,
    /// Batches that there can be on the device at once (0: 3). The options' `hold` is raised to as many.
    pub slots: usize,
    /// How many milliseconds the wait for one copy may take (0: for ever).
    pub timeout_ms: u64,
    /// Whether a state is kept for each batch, so that `slotline_device_loader_state` can be asked in a pass (no).
    pub resumable: u8,
    /// Zeros, for later versions.
    pub reserved: [u8; 7],
}

// SAFETY: numbers, the first one the size.
unsafe impl Versioned for slotline_device_options {
    const END: usize = versioned::end!(reserved);

    fn defaults() -> Self {
        Self { struct_size: size_of::<Self>(), ordinal: 0, slots: 0, timeout_ms: 0, resumable: 0, reserved: [0; 7] }
    }

    fn is_known(&self) -> bool {
        self.reserved == [0; 7]
    }
}

impl Loads for DeviceLoader {
    type Item = DeviceBatch;

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        Ok(Self::begin_epoch(self)?)
    }

    fn next_batch(&mut self) -> Option<Result<DeviceBatch, Failure>> {
        Some(Self::next_batch(self)?.map_err(Failure::from))
    }

    fn next_epoch(&self) -> u32 {
        self.loader().next_epoch()
    }

    fn facts(&self) -> Facts {
        Facts::of(self.loader())
    }

    fn stopper(&self) -> Stopper {
        self.loader().stopper()
    }

    fn state(&self) -> Result<State, Failure> {
        let unknown = || {
            Failure::new(
                SLOTLINE_STATE,
                "the loader keeps no states of its pass; make it with resumable set in slotline_device_options",
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

/// Looks for a driver, and says how many devices it has. Any thread; `*devices` is 0 if it fails.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer. `SLOTLINE_DEVICE`: there is no driver, it is too old, it will not start, or it has no
/// device; the message says which.
///
/// # Safety
///
/// `devices` and `error` must be writable, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_probe(
    devices: *mut usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let devices = check::place(devices, 0, "devices")?;
            let driver = probe().map_err(|reason| Failure::of(SLOTLINE_DEVICE, &reason))?;
            *devices = driver.devices.len();
            Ok(SLOTLINE_OK)
        })
    }
}

/// Makes a loader whose batches come out on a device: as `slotline_loader_new`, with page-locked memory on the host. `device`
/// may be NULL: then its options are the defaults. Any thread; `*out` is NULL if it fails.
///
/// # Errors
///
/// As of `slotline_loader_new`; `SLOTLINE_DEVICE`: no driver, no such device, or no memory there.
///
/// # Safety
///
/// As of `slotline_loader_new`; `device` must be NULL or readable for `device->struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_new(
    dataset: *const slotline_dataset,
    options: *const slotline_options,
    device: *const slotline_device_options,
    out: *mut *mut slotline_device_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            // First of all, since its callbacks are taken over in any case.
            let options = take(options);
            let out = check::place(out, null_mut(), "out")?;
            let (mut options, owned) = options?;
            // Before the device is looked for.
            check::reference(dataset, "dataset")?;
            let wanted = match device.is_null() {
                true => slotline_device_options::defaults(),
                false => versioned::read(device, "device", |_| ())?.0,
            };
            let device = Device::new(wanted.ordinal)?;
            let slots = if wanted.slots == 0 { 3 } else { wanted.slots };
            options.hold = options.hold.max(slots);
            let HostLoader::Stacked(host) = build(dataset, (options, owned), Some(device.pinned()))? else {
                return Err(Failure::new(
                    SLOTLINE_BUILD,
                    "what a collate callback makes is not copied to a device; leave collate out, or use slotline_loader_new",
                ));
            };
            let loader = DeviceLoader::with_slots(host, &device, slots)?;
            let loader = loader.timeout(Duration::from_millis(wanted.timeout_ms)).resumable(wanted.resumable != 0);
            *out = Box::into_raw(Box::new(slotline_device_loader(Handle::new(loader))));
            Ok(SLOTLINE_OK)
        })
    }
}

/// Starts a pass; see `slotline_loader_epoch`.
///
/// # Errors
///
/// As of `slotline_loader_epoch`.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_epoch(
    loader: *mut slotline_device_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            handle::enter(loader)?.running().begin_epoch()?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Gives the next batch of the pass, which is the caller's to free or release; or `SLOTLINE_END` after the last one; or an
/// error in a batch's place. It may still be on its way to the device. `*out` is NULL unless there is a batch.
///
/// # Errors
///
/// As of `slotline_loader_next`, where `SLOTLINE_HELD` is also for batches on the device and `SLOTLINE_TIMEOUT` also for copies;
/// `SLOTLINE_DEVICE`: the driver refused a copy. Then the next batch comes, but after two such errors one after the other the
/// pass is over.
///
/// # Safety
///
/// As of `slotline_device_loader_epoch`; `out` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_next(
    loader: *mut slotline_device_loader,
    out: *mut *mut slotline_device_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
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

/// Stops a loader; see `slotline_loader_stop`. Batches that are on the device already still come before `SLOTLINE_STOPPED`.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_stop(loader: *const slotline_device_loader) {
    // SAFETY: the caller's word.
    unsafe { handle::stop(loader) }
}

/// Says where the loader is; see `slotline_loader_state`. The same bytes may be loaded into a loader on the host.
///
/// # Errors
///
/// As of `slotline_loader_state`; `SLOTLINE_STATE`: in a pass, unless the loader is `resumable`.
///
/// # Safety
///
/// As of `slotline_loader_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_state(
    loader: *mut slotline_device_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { state::save(loader, out, error) }
}

/// Puts the loader where a state is; see `slotline_loader_load_state`.
///
/// # Errors
///
/// As of `slotline_loader_load_state`.
///
/// # Safety
///
/// As of `slotline_loader_load_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_load_state(
    loader: *mut slotline_device_loader,
    data: *const u8,
    len: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { state::load(loader, data, len, error) }
}

/// Says what the host's side of the loader has done so far; see `slotline_loader_stats`.
///
/// # Errors
///
/// As of `slotline_loader_stats`.
///
/// # Safety
///
/// As of `slotline_loader_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_stats(
    loader: *mut slotline_device_loader,
    out: *mut slotline_stats,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { stats::figures(loader, out, error) }
}

/// What was noticed when the loader was made, and since; see `slotline_loader_warnings`.
///
/// # Errors
///
/// As of `slotline_loader_warnings`.
///
/// # Safety
///
/// As of `slotline_loader_warnings`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_warnings(
    loader: *mut slotline_device_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { stats::warned(loader, out, error) }
}

/// How many batches a pass has; -1 if only its end will tell, or for NULL. Any thread.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_len(loader: *const slotline_device_loader) -> i64 {
    // SAFETY: the caller's word.
    unsafe { handle::ask(loader, -1, Facts::len) }
}

/// The number of the pass that the next `slotline_device_loader_epoch` starts, from 0. 0 for NULL, or while the loader is in
/// use.
///
/// # Safety
///
/// As of `slotline_device_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_next_epoch(loader: *mut slotline_device_loader) -> u32 {
    // SAFETY: the caller's word.
    guarded(0, || unsafe { handle::enter(loader) }.map_or(0, |mut inside| inside.loader().next_epoch()))
}

/// Frees a loader; NULL is fine. Its batches live on; see `slotline_loader_free`. It waits for copies that are on their way, at
/// most 5 s, and leaks what they may still use then.
///
/// # Safety
///
/// As of `slotline_loader_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_loader_free(loader: *mut slotline_device_loader) {
    // SAFETY: it was made by `slotline_device_loader_new`; else the caller's word.
    unsafe { handle::free(loader) }
}
