//! Checks of requests that must fail.

use anyhow::{Result, bail, ensure};
use slotline::Loader;
use slotline_cuda::{Device, DeviceLoader, Error, probe};

use crate::bench::{Bench, ROWS};
use crate::rows::Stamps;

/// The code `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

pub(crate) fn out_of_memory(bench: &Bench) -> Result<String> {
    let device = &bench.gpu.device;
    // A size for which few slots exceed the device's memory, and which needs little memory on the
    // host.
    let row_bytes = (device.info().memory / 16).min(64 << 20) / ROWS;
    let make = || Loader::builder(Stamps { len: 4 * ROWS, row_bytes }).batch_size(ROWS).memory(device.pinned()).build();
    let slots = device.info().memory / (ROWS * row_bytes) + 1;
    let message = match DeviceLoader::with_slots(make()?, device, slots) {
        Ok(_) => bail!("the device accepted more than its memory"),
        Err(Error::Driver(error)) if error.code == OUT_OF_MEMORY => error.to_string(),
        Err(other) => bail!("a different error: {other}"),
    };
    let mut loader = DeviceLoader::new(make()?, device)?;
    ensure!(loader.epoch()?.count() == 4, "a new loader does not work afterwards");
    Ok(message)
}

pub(crate) fn no_such_device(_: &Bench) -> Result<String> {
    match Device::new(probe()?.devices.len()) {
        Err(error @ Error::NoSuchDevice { .. }) => Ok(error.to_string()),
        other => bail!("{other:?}"),
    }
}
