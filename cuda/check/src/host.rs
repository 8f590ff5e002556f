//! The fake driver, with the kernels on the host.

use std::path::Path;

use anyhow::Result;
use slotline_cuda_fake::{Fake, Launch, Options};

use crate::fold::fold;

/// Loads the fake driver from a file, or from where cargo puts it, with two small devices.
pub(crate) fn load(path: Option<&Path>, seed: u64) -> Result<&'static Fake> {
    let fake = Fake::load_from(&path.map_or_else(Fake::find, |path| Ok(path.to_owned()))?)?;
    fake.reset(Options { seed, devices: 2, memory_bytes: 64 << 20, ..Options::default() });
    fake.kernel("spin", |_| {});
    // SAFETY: the parameters that `Training::fold` gives.
    fake.kernel("fold", |launch| unsafe { run(launch) });
    fake.watch("fold", 0, 1, 1);
    Ok(fake)
}

/// The kernel `fold`. The host is quick: whatever the pause is.
///
/// # Safety
///
/// Its parameters are those of the kernel, with memory that is there.
unsafe fn run(launch: &Launch<'_>) {
    // SAFETY: the caller's word; where there are no bytes, the pointer may be anything.
    unsafe {
        let (data, bytes, salt, turns) = (launch.param(0), launch.param::<u64>(1), launch.param(2), launch.param(3));
        let data: &[u8] = if bytes == 0 { &[] } else { std::slice::from_raw_parts(data, bytes as usize) };
        let sum = launch.param::<*mut u64>(5);
        *sum = (*sum).wrapping_add(fold(data, salt).wrapping_mul(turns));
    }
}
