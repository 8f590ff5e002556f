//! Batches on CUDA devices: page-locked memory that samples are written into, and one copy per batch, beside training.
//!
//! It builds and its programs start without a toolkit and without a driver: the driver's library is loaded when a device is
//! asked for, and where there is none that is an error ([`Unavailable`]).
//!
//! - [`probe()`]: what driver and devices there are.
//! - [`Device`], [`Stream`], [`TimedEvent`]: a device by its primary context, which PyTorch and cudarc use, too; its own
//!   streams, and the training loop's by their raw handles; times by the device's clock.
//! - [`Pinned`]: page-locked memory, for a loader's batches ([`Device::pinned`]) and anything else.
//! - [`DeviceLoader`], [`DeviceBatch`]: a loader whose batches come out on a device.
//! - [`Error`], [`leaked()`]: every call of the driver that fails is an error that names it and says what to do. Memory that
//!   the driver won't take back, or may still be copying, is leaked rather than freed, and counted.

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
