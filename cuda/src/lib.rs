//! Batches on CUDA devices: samples are written into page-locked host memory, and each batch is
//! copied to the device with one copy that overlaps with training.
//!
//! The crate builds, and programs that use it start, without a CUDA toolkit and without a driver.
//! The driver's library is loaded when a device is first requested; if there is none, that is an
//! error ([`Unavailable`]).
//!
//! - [`probe()`]: reports the driver and its devices.
//! - [`Device`]: a device, represented by its primary context, which PyTorch and cudarc use too.
//!   [`Stream`]: a stream of a device, either created here or wrapped from a raw handle of the
//!   training loop. [`TimedEvent`]: measures times by the device's clock.
//! - [`Pinned`]: page-locked memory, for a loader's batches ([`Device::pinned`]) or for any other
//!   use.
//! - [`DeviceLoader`], [`DeviceBatch`]: a loader that delivers its batches on a device.
//! - [`Views`]: the fields of a batch as views of [`cudarc`], for programs that use its safe types.
//!   [`Device`] and [`Stream`] can be made from cudarc's too.
//! - [`Error`]: every failed driver call is an error that names the call and says what to do.
//!   [`leaked()`]: memory that the driver does not take back, or may still be copying, is leaked
//!   and counted rather than freed.

mod batch;
mod call;
mod copier;
mod device;
mod driver;
mod error;
mod event;
mod leak;
mod loader;
mod memory;
mod numa;
mod pass;
mod pinned;
mod probe;
mod slot;
mod stream;
#[cfg(test)]
mod tests;
mod views;
mod wait;

pub use self::batch::{DeviceBatch, DeviceTensor};
pub use self::device::Device;
pub use self::error::{DriverError, Error, Unavailable};
pub use self::event::TimedEvent;
pub use self::leak::{Leaked, leaked};
pub use self::loader::DeviceLoader;
pub use self::pass::DevicePass;
pub use self::pinned::{PageSize, Pinned};
pub use self::probe::{DeviceInfo, Driver, probe};
pub use self::stream::Stream;
pub use self::views::Views;
/// The crate cudarc, version 0.19, whose contexts, streams and views this crate takes and returns.
/// Changing the version would be a breaking change of this crate.
///
/// A program can use it by this name, or depend on cudarc 0.19 itself to choose its features. Here
/// it has no feature that requires a part of the CUDA toolkit.
pub use cudarc;
