//! What can go wrong between here and the device.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::time::Duration;

use crate::driver::{self, CUresult};

/// Why something could not be done with a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver to be had.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A call of the driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There is no such device.
    #[error(
        "there is no device {ordinal}: the driver has {devices}, counted from 0 (CUDA_VISIBLE_DEVICES may hide some)"
    )]
    NoSuchDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// How many there are.
        devices: usize,
    },
    /// The host's loader has an error in the place of a batch, or for a pass.
    #[error(transparent)]
    Loader(#[from] slotline::Error),
    /// The host's loader has its batches in memory that the device cannot copy from by itself.
    #[error("the loader's batches are not in page-locked memory; build it with memory(device.pinned())")]
    NotPageLocked,
    /// The host's loader is not the one that the device slots were made for.
    #[error("the loader behind loader_mut() was exchanged for another one; make a DeviceLoader of that")]
    Exchanged,
    /// A loader without device slots.
    #[error("a device loader needs a device slot; give it two, or three")]
    NoSlots,
    /// The driver refused to copy a batch, which is not delivered. The next one comes, unless this was the second such error
    /// one after the other.
    #[error("batch {task} could not be copied: {source}")]
    Copy {
        /// The batch, counted from 0.
        task: usize,
        /// What the driver said.
        source: DriverError,
    },
    /// Fields of a batch are not in page-locked memory.
    #[error(
        "batch {task} has more items in field {field} than it has room for, and can't be copied from the heap; give the field \
         more room, and build the loader without on_overflow(Spill)"
    )]
    Spilled {
        /// The batch, counted from 0.
        task: usize,
        /// The field.
        field: String,
    },
    /// A copy was begun and nobody can tell when it is done.
    #[error(
        "the copy of batch {task} can't be waited for ({why}): the {bytes} bytes of host memory that the loader's batches are \
         in are leaked, since the device may still read them; end this process"
    )]
    Leaked {
        /// The batch, counted from 0.
        task: usize,
        /// Bytes that are leaked; of several batches of a loader they are the same ones.
        bytes: usize,
        /// Why.
        why: String,
    },
    /// Nobody can tell when the memory of a batch that was released, or whose copy failed, is free again.
    #[error("a device slot is lost, since what uses it can't be waited for ({source}); {left} are left")]
    Lost {
        /// Device slots that are left.
        left: usize,
        /// What the driver said.
        source: DriverError,
    },
    /// The batches that were not dropped have all device slots. Each call says so until one is dropped: on a device there are as
    /// many batches as slots, and no more memory is taken for those that are kept.
    #[error("all {slots} device slots are held; drop batches sooner, or make the loader with_slots({})", slots + 1)]
    Held {
        /// Device slots of the loader.
        slots: usize,
    },
    /// A copy takes longer than the timeout.
    #[error(
        "the copy of batch {task} is not done after {} seconds: a kernel that the device slot waits for may be stuck",
        after.as_secs_f64()
    )]
    Timeout {
        /// The timeout.
        after: Duration,
        /// The batch, counted from 0.
        task: usize,
    },
    /// A stream of one device and a batch on another one.
    #[error("a stream of device {stream} can't use a batch on device {batch} directly; copy it, or use a stream there")]
    WrongDevice {
        /// The stream's device.
        stream: usize,
        /// The batch's device.
        batch: usize,
    },
    /// A batch that is used on too many streams.
    #[error(
        "a batch can be made ready on {most} streams; have one of them wait for the others, and release_on that one"
    )]
    TooManyStreams {
        /// How many there can be.
        most: usize,
    },
    /// The system has not so much memory.
    #[error("{bytes} bytes of host memory can't be had ({source}); make batch_size or prefetch_factor smaller")]
    HostMemory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether a pass can give this again and again without getting on, whatever the user does.
    pub(crate) fn can_repeat(&self) -> bool {
        // What the host's loader lacks was leaked here.
        let is_host_held = matches!(self, Self::Loader(slotline::Error::Held { .. }));
        is_host_held || matches!(self, Self::Driver(_) | Self::Copy { .. } | Self::Leaked { .. } | Self::Lost { .. })
    }
}

/// Why there is no CUDA driver for this process.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The driver's library is not there, or cannot be loaded.
    #[error(
        "no CUDA driver library can be loaded ({reason}; {} names tried, {} first); install NVIDIA's driver, or give the \
         container access to it",
        tried.len(), tried.first().map_or("none", String::as_str)
    )]
    NoLibrary {
        /// The names that were looked for, in this order.
        tried: Vec<String>,
        /// What the system said.
        reason: String,
    },
    /// The library lacks a function that is needed.
    #[error(
        "the CUDA driver library {library} has no {symbol}: a driver of CUDA 11.4 (R470) or newer is needed; update it"
    )]
    MissingSymbol {
        /// The library's name.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// The driver will not start, or not say what there is.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The driver has no device.
    #[error(
        "the CUDA driver works, but has no device; look at nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices"
    )]
    NoDevice,
}

/// A call of the driver that failed.
///
/// A kernel or copy that failed earlier may be the cause: the driver says so at any later call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverError {
    /// The driver's function.
    pub call: &'static str,
    /// What it returned, a `CUresult`; `u32::MAX` if a panic came before the answer.
    pub code: u32,
    /// The name of that.
    pub name: String,
    /// The driver's words for it.
    pub text: String,
    /// The device, unless the call was about none.
    pub device: Option<usize>,
}

impl DriverError {
    /// The error that a call returned. The driver must be loaded: it is asked for its words.
    pub(crate) fn new(call: &'static str, code: CUresult, device: Option<usize>) -> Self {
        let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
        // SAFETY: both write a pointer to a string that is never freed, or null.
        let _ = unsafe { (driver::cuGetErrorName(code, &mut name), driver::cuGetErrorString(code, &mut text)) };
        let words = |from: *const c_char, otherwise: &str| {
            if from.is_null() {
                return otherwise.to_owned();
            }
            // SAFETY: not null, so a string of the driver's.
            unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
        };
        let (name, text) = (words(name, "CUDA error"), words(text, "the driver has no words for it"));
        Self { call, code, name, text, device }
    }

    /// For a call that nobody has seen return, since a panic unwound through it.
    pub(crate) fn interrupted(call: &'static str) -> Self {
        let (name, text) = ("no answer".to_owned(), "a panic interrupted it".to_owned());
        Self { call, code: u32::MAX, name, text, device: None }
    }

    /// The error of a call that is not made, as the process was forked. The driver would say the same, if it could be asked.
    #[cold]
    pub(crate) fn forked(call: &'static str, device: Option<usize>) -> Self {
        let (name, text) = ("CUDA_ERROR_NOT_INITIALIZED".to_owned(), "this process was forked".to_owned());
        Self { call, code: driver::NOT_INITIALIZED, name, text, device }
    }

    /// Whether it says nothing of what was asked about: while a thread captures a stream, the driver answers no questions.
    pub(crate) fn is_passing(&self) -> bool {
        self.code == driver::CAPTURE_UNSUPPORTED
    }

    /// What to do about it, where that is known.
    fn advice(&self) -> Option<&'static str> {
        Some(match self.code {
            2 if self.call.starts_with("cuMemHost") => {
                "that much memory can't be page-locked: make batch_size or prefetch_factor smaller"
            }
            2 => "the device's memory is full: use fewer device slots, smaller batches, or stop what else uses it",
            3 => "CUDA does not survive a fork: spawn the process instead, or use CUDA after the fork only",
            4 => "the process is ending: drop loaders before main returns",
            34 => "this is the toolkit's stub, not a driver: take its folder off LD_LIBRARY_PATH",
            46 => "another process has the device to itself, or it is busy: see its compute mode in nvidia-smi",
            100 => "look at nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices",
            201 | 709 => "the device's primary context was reset behind slotline's back: make the Device anew",
            304 => "the system refused: look at its log, and at `ulimit -l` if memory was to be page-locked",
            400 => "a stream, or an event, is gone already or of another device",
            712 => {
                "somebody registered memory with the driver and unmapped it without unregistering: find who, or use the \
                 allocated form"
            }
            214 | 220 | 700 | 702 | 710 | 714..=719 => {
                "a kernel or copy failed earlier, and nothing works on this device in this process any more: start it anew \
                 (compute-sanitizer finds the kernel)"
            }
            802 => "wait for the system's fabric manager, or look at its log",
            803 | 804 => {
                "the driver's library and its kernel module don't fit: restart after the update, or align both"
            }
            900..=907 => {
                "a stream is captured into a graph: load and drop batches before or after that, or capture in relaxed mode"
            }
            999 => "look at the system's log (dmesg), and load the driver's kernel module",
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
