//! The errors of this crate.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::time::Duration;

use slotline::dtype::DType;
use slotline::with_causes;

use crate::driver::{self, CUresult};

/// An operation on a device failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No CUDA driver is available.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The driver has no device with this number.
    #[error(
        "there is no device {ordinal}: the driver has {devices}, numbered from 0 (CUDA_VISIBLE_DEVICES may hide some)"
    )]
    NoSuchDevice {
        /// The requested device number.
        ordinal: usize,
        /// The number of devices that the driver has.
        devices: usize,
    },
    /// The host's loader returned an error instead of a batch, or failed to start a pass.
    #[error(transparent)]
    Loader(#[from] slotline::Error),
    /// The batches of the host's loader are not in page-locked memory, so the device cannot copy
    /// them directly.
    #[error("the loader's batches are not in page-locked memory; build it with memory(device.pinned())")]
    NotPageLocked,
    /// The host's loader was replaced after the device slots were made for it.
    #[error("the loader behind loader_mut() was replaced with another one; make a new DeviceLoader from that one")]
    Exchanged,
    /// The number of device slots is 0.
    #[error("the number of device slots is 0; use 2 or 3")]
    NoSlots,
    /// The driver refused to copy a batch, and the batch is not delivered. The pass continues with
    /// the next batch, unless this is the second such error in a row.
    #[error("batch {task} could not be copied: {}", with_causes(source))]
    Copy {
        /// The number of the batch, from 0.
        task: usize,
        /// The driver's error.
        r#source: DriverError,
    },
    /// A field of a batch was larger than the memory reserved for it and spilled to the heap, so it
    /// is not in page-locked memory.
    #[error(
        "field {field} of batch {task} has more items than it has room for, and cannot be copied from the heap; give \
         the field more room, and build the loader without on_overflow(Spill)"
    )]
    Spilled {
        /// The number of the batch, from 0.
        task: usize,
        /// The name of the field.
        field: String,
    },
    /// A copy was started and there is no way to find out when it is done.
    #[error(
        "cannot wait for the copy of batch {task} ({why}): the {bytes} bytes of host memory that hold the loader's \
         batches are leaked, since the device may still read them; end this process"
    )]
    Leaked {
        /// The number of the batch, from 0.
        task: usize,
        /// The size of the leaked memory, in bytes. Batches of the same loader share this memory,
        /// so don't add it up over several errors.
        bytes: usize,
        /// Why the copy cannot be waited for.
        why: String,
    },
    /// A device slot is lost: its batch was released, or its copy failed, and there is no way to
    /// find out when its memory is free again.
    #[error(
        "a device slot is lost, since the work that uses it cannot be waited for; device slots left: {left}: {}",
        with_causes(source)
    )]
    Lost {
        /// The number of device slots that are left.
        left: usize,
        /// The driver's error.
        r#source: DriverError,
    },
    /// All device slots are held by batches that were not dropped. Each call returns this error
    /// until a batch is dropped. There are as many batches on a device as slots at most, since no
    /// more memory is allocated.
    #[error("all {slots} device slots are held; drop batches sooner, or create the loader with_slots({})", slots + 1)]
    Held {
        /// The number of device slots of the loader.
        slots: usize,
    },
    /// A copy took longer than the timeout.
    #[error(
        "the copy of batch {task} is not done after {} seconds: a kernel that the copy waits for may be stuck",
        after.as_secs_f64()
    )]
    Timeout {
        /// The timeout.
        after: Duration,
        /// The number of the batch, from 0.
        task: usize,
    },
    /// The stream and the batch belong to different devices.
    #[error(
        "a stream of device {stream} cannot use a batch on device {batch}; copy it, or use a stream of that device"
    )]
    WrongDevice {
        /// The number of the stream's device.
        stream: usize,
        /// The number of the batch's device.
        batch: usize,
    },
    /// A batch was made ready on too many streams.
    #[error(
        "a batch can be made ready on at most {most} streams; let one of them wait for the others, and pass it to \
         release_on"
    )]
    TooManyStreams {
        /// The maximum number of streams.
        most: usize,
    },
    /// A context or stream of cudarc is not of the device's primary context, which is the only one
    /// that this crate uses.
    #[error(
        "cudarc's context is not the primary context of device {device}; use one that CudaContext::new({device}) \
         returned"
    )]
    NotPrimary {
        /// The number of the device.
        device: usize,
    },
    /// A batch has no such field.
    #[error("the batch has no field {field}; it has {}", fields.join(", "))]
    NoField {
        /// The requested field: its name or number.
        field: String,
        /// The names of the fields that the batch has.
        fields: Vec<String>,
    },
    /// The elements of a field are of another type.
    #[error("field {field} has elements of type {has}, not {requested}")]
    DType {
        /// The name of the field.
        field: String,
        /// The type of the field's elements.
        has: DType,
        /// The requested type.
        requested: DType,
    },
    /// The system does not have enough memory.
    #[error(
        "{bytes} bytes of host memory cannot be allocated; make batch_size or prefetch_factor smaller: {}",
        with_causes(source)
    )]
    HostMemory {
        /// The requested size, in bytes.
        bytes: usize,
        /// The error of the system.
        r#source: std::io::Error,
    },
}

impl Error {
    /// Whether a pass can return this error repeatedly without making progress, regardless of what
    /// the user does.
    pub(crate) fn can_repeat(&self) -> bool {
        // A slot is missing in the host's loader because it was leaked here, so this error does not
        // go away.
        let is_host_held = matches!(self, Self::Loader(slotline::Error::Held { .. }));
        is_host_held || matches!(self, Self::Driver(_) | Self::Copy { .. } | Self::Leaked { .. } | Self::Lost { .. })
    }
}

/// The reason why no CUDA driver is available to this process.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The driver's library is missing or cannot be loaded.
    #[error(
        "no CUDA driver library can be loaded ({reason}; tried {}); install NVIDIA's driver, or give the container \
         access to it",
        tried.join(" and ")
    )]
    NoLibrary {
        /// The library names that were tried, in this order.
        tried: Vec<String>,
        /// The error of the system's loader.
        reason: String,
    },
    /// The library lacks a required function.
    #[error("the CUDA driver library {library} has no {symbol}: update to a driver for CUDA 11.4 (R470) or newer")]
    MissingSymbol {
        /// The name of the library.
        library: String,
        /// The missing function.
        symbol: &'static str,
    },
    /// The driver does not start, or does not report its devices.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The driver has no device.
    #[error(
        "the CUDA driver works, but has no device; check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices"
    )]
    NoDevice,
}

/// A failed driver call.
///
/// The cause may be a kernel or a copy that failed earlier: the driver can report such a failure
/// from any later call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverError {
    /// The name of the driver function.
    pub call: &'static str,
    /// The returned `CUresult`; `u32::MAX` if a panic interrupted the call.
    pub code: u32,
    /// The name of the `CUresult`.
    pub name: String,
    /// The driver's description of the code.
    pub text: String,
    /// The device, if the call concerned one.
    pub device: Option<usize>,
}

impl DriverError {
    /// Creates the error for a call that returned `code`. The driver must be loaded, since it is
    /// asked for the name and description.
    pub(crate) fn new(call: &'static str, code: CUresult, device: Option<usize>) -> Self {
        let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
        // SAFETY: both write a pointer to a string that is never freed, or null.
        let _ = unsafe { (driver::cuGetErrorName(code, &mut name), driver::cuGetErrorString(code, &mut text)) };
        let string = |from: *const c_char, otherwise: &str| {
            if from.is_null() {
                return otherwise.to_owned();
            }
            // SAFETY: the pointer is not null, so it is one of the driver's static, nul-terminated
            // strings.
            unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
        };
        let (name, text) = (string(name, "CUDA error"), string(text, "the driver has no description"));
        Self { call, code, name, text, device }
    }

    /// Creates the error for a call that did not return because a panic unwound through it.
    pub(crate) fn interrupted(call: &'static str) -> Self {
        let (name, text) = ("no answer".to_owned(), "a panic interrupted it".to_owned());
        Self { call, code: u32::MAX, name, text, device: None }
    }

    /// Creates the error for a call that is not made because the process was forked. The driver
    /// would return the same code if it could be called.
    #[cold]
    pub(crate) fn forked(call: &'static str, device: Option<usize>) -> Self {
        let (name, text) = ("CUDA_ERROR_NOT_INITIALIZED".to_owned(), "this process was forked".to_owned());
        Self { call, code: driver::NOT_INITIALIZED, name, text, device }
    }

    /// Whether the error is temporary: the driver refuses queries while a thread captures a stream,
    /// which says nothing about the queried object.
    pub(crate) fn is_passing(&self) -> bool {
        self.code == driver::CAPTURE_UNSUPPORTED
    }

    /// Returns what to do about the error, if that is known.
    fn advice(&self) -> Option<&'static str> {
        Some(match self.code {
            2 if self.call.starts_with("cuMemHost") => {
                "that much memory cannot be page-locked: make batch_size or prefetch_factor smaller"
            }
            2 => "the device's memory is full: use fewer device slots or smaller batches, or stop other programs there",
            3 => "CUDA does not survive a fork: spawn the process instead, or use CUDA after the fork only",
            4 => "the process is ending: drop loaders before main returns",
            34 => "this is the toolkit's stub library, not a driver: remove its folder from LD_LIBRARY_PATH",
            46 => "another process uses the device exclusively, or it is busy: check its compute mode in nvidia-smi",
            100 => "check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices",
            201 | 709 => "the device's primary context was reset by other code: create a new Device",
            304 => "the system refused: check its log, and `ulimit -l` if the call was to page-lock memory",
            400 => "a stream or an event was already destroyed, or belongs to another device",
            712 => {
                "other code registered memory with the driver and unmapped it without unregistering it: fix that code, \
                 or use Pinned::allocated"
            }
            214 | 220 | 700 | 702 | 710 | 714..=719 => {
                "a kernel or copy failed earlier, and this process cannot use the device any more: restart it \
                 (compute-sanitizer finds the kernel)"
            }
            802 => "wait for the system's fabric manager, or check its log",
            803 | 804 => {
                "the driver's library and kernel module don't match: reboot after an update, or install matching ones"
            }
            900..=907 => {
                "a stream is captured into a graph: load and drop batches before or after that, or use relaxed mode"
            }
            999 => "check the system's log (dmesg), and load the driver's kernel module",
            _ => return None,
        })
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        if let Some(device) = self.device {
            write!(f, " on device {device}")?;
        }
        write!(f, ": {} ({}), {}", self.name, self.code, self.text)?;
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for DriverError {}
