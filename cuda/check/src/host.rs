//! Loads the fake driver, and implements the kernels on the host for it.

use std::path::Path;

use anyhow::Result;
use slotline_cuda_fake::{Fake, Launch, Options};

use crate::fold::fold;

/// Loads the fake driver from a file, or from the folder in which cargo puts it. It has two devices
/// with little memory.
pub(crate) fn load(path: Option<&Path>, seed: u64) -> Result<&'static Fake> {
    let fake = Fake::load_from(&path.map_or_else(Fake::find, |path| Ok(path.to_owned()))?)?;
    fake.reset(Options { seed, devices: 2, memory_bytes: 64 << 20, ..Options::default() });
    fake.kernel("spin", |_| {});
    // SAFETY: the parameters are those that `Training::fold` passes.
    fake.kernel("fold", |launch| unsafe { run(launch) });
    fake.watch("fold", 0, 1, 1);
    Ok(fake)
}

/// Implements the kernel `fold`. The pause is ignored.
///
/// # Safety
///
/// The parameters must be those of the kernel, with valid memory.
unsafe fn run(launch: &Launch<'_>) {
    // SAFETY: the caller passes the kernel's parameters, with valid memory; if there are no bytes,
    // the pointer is not used.
    unsafe {
        let (data, bytes, salt, turns) = (launch.param(0), launch.param::<u64>(1), launch.param(2), launch.param(3));
        let data: &[u8] = if bytes == 0 { &[] } else { std::slice::from_raw_parts(data, bytes as usize) };
        let sum = launch.param::<*mut u64>(5);
        *sum = (*sum).wrapping_add(fold(data, salt).wrapping_mul(turns));
    }
}
