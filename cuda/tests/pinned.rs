//! Tests of page-locked memory for batches.

#[path = "../../runtime/tests/support/warnings.rs"]
mod warnings;

use std::ptr;

use cudarc::driver::sys::{self, CUresult};
use slotline::Loader;
use slotline::arena::{ALIGN, Memory, Pages};
use slotline::dataset::TensorDataset;
use slotline_cuda::{Device, Error, PageSize, Pinned, leaked};
use slotline_cuda_fake::{Fake, Options, Session};
use warnings::Warnings;

type Make = fn(&Device, usize) -> Result<Pinned, Error>;

fn session() -> (Session, Device) {
    let fake = Fake::load().session(Options::default());
    (fake, Device::new(0).unwrap())
}

fn bytes(memory: &mut Pinned) -> &mut [u8] {
    // SAFETY: the caller has exclusive access to the memory.
    unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr(), memory.len()) }
}

#[test]
fn both_forms_are_whole_zeroed_pages_and_are_freed() {
    let (fake, device) = session();
    let make: [Make; 3] =
        [Pinned::registered, Pinned::allocated, |device, bytes| Pinned::registered_on(device, bytes, PageSize::Small)];
    for (form, make) in make.iter().enumerate() {
        for len in [0, 1, ALIGN, ALIGN + 1, (5 << 20) + 3] {
            let mut memory = make(&device, len).unwrap();
            assert_eq!(memory.len(), len.max(1).next_multiple_of(ALIGN));
            assert_eq!(memory.start().as_ptr().align_offset(ALIGN), 0);
            assert_eq!((memory.is_registered(), memory.device()), (form != 1, &device));
            if !fake.is_absent() {
                let live = fake.live();
                assert_eq!(live.registered_bytes, if form == 1 { 0 } else { memory.len() });
                assert_eq!(live.host_alloc_bytes >= memory.len(), form == 1);
            }
            assert!(bytes(&mut memory).iter().all(|&byte| byte == 0));
            bytes(&mut memory).fill(9);
            assert!(format!("{memory:?}").contains(&format!("len: {}", memory.len())));
        }
    }
    drop(device);
    fake.assert_released();
}

#[test]
fn oversized_requests_are_refused() {
    let (fake, device) = session();
    for len in [usize::MAX, isize::MAX as usize, 1 << 50] {
        let error = Pinned::registered(&device, len).unwrap_err();
        assert!(matches!(error, Error::HostMemory { bytes, .. } if bytes == len), "{error}");
    }
    for len in [usize::MAX, isize::MAX as usize] {
        let error = Pinned::allocated(&device, len).unwrap_err();
        assert!(matches!(error, Error::HostMemory { bytes, .. } if bytes == len), "{error}");
    }
    drop(device);
    fake.assert_released();
}

#[test]
fn a_loader_s_batches_are_in_registered_memory() {
    let (fake, device) = session();
    let data = TensorDataset::new(slotline::source::digits()).unwrap();
    let mut loader = Loader::builder(data).batch_size(64).num_workers(1).memory(device.pinned()).build().unwrap();
    assert!(fake.is_absent() || fake.live().registered_bytes > 0);
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let (images, _) = batch.tensors();
        let start = images.as_slice().as_ptr().cast_mut();
        // Registering it again fails, since it is already registered.
        // SAFETY: the page is inside the loader's memory.
        let code = unsafe { register(start.wrapping_sub(start.addr() % ALIGN)) };
        assert_eq!(code, CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    drop((loader, device));
    fake.assert_released();
}

/// # Safety
///
/// The page must be mapped.
unsafe fn register(page: *mut u8) -> CUresult {
    let mut context = ptr::null_mut();
    // SAFETY: the driver writes the context, which the caller's device also retains; the page is mapped.
    unsafe {
        assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuCtxSetCurrent(context), CUresult::CUDA_SUCCESS);
        let code = sys::cuMemHostRegister_v2(page.cast(), ALIGN, 0);
        assert_eq!(sys::cuCtxSetCurrent(ptr::null_mut()), CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuDevicePrimaryCtxRelease_v2(0), CUresult::CUDA_SUCCESS);
        code
    }
}

#[test]
fn stale_registrations_are_never_used() {
    for stale in [1, 8] {
        let (fake, device) = session();
        let left = leaked();
        // Registers pages where the system is likely to map the next ones, and unmaps them without unregistering.
        let pages: Vec<_> = (0..stale).map(|_| Pages::new(ALIGN).unwrap()).collect();
        let taken: Vec<_> = pages.iter().map(|pages| pages.start().addr()).collect();
        for page in &pages {
            // SAFETY: the page is mapped during the call; that it is unmapped later is the point of the test.
            assert_eq!(unsafe { register(page.start().as_ptr()) }, CUresult::CUDA_SUCCESS);
        }
        drop(pages);
        let count = || if fake.is_absent() { 0 } else { fake.count("cuMemHostRegister_v2") };
        let before = count();
        let outcome = Pinned::registered(&device, ALIGN);
        let tries = if fake.is_absent() { 4 } else { count() - before };
        match &outcome {
            Ok(memory) => {
                assert!(!taken.contains(&memory.start().addr()));
                assert!(fake.is_absent() || tries <= stale + 1);
            }
            Err(Error::Driver(error)) => assert_eq!((error.call, error.code, tries), ("cuMemHostRegister", 712, 4)),
            Err(error) => panic!("{error}"),
        }
        assert!(outcome.is_ok() || stale > 3, "one more attempt than there are stale registrations is enough");
        drop((outcome, device));
        assert_eq!(leaked(), left);
    }
}

#[test]
fn an_already_registered_address_is_retried_elsewhere() {
    let (fake, device) = session();
    for code in [712, 2] {
        let before = fake.count("cuMemHostRegister_v2");
        // The third call is the one that registers, after two to get and set the context.
        fake.fail_call(2, code);
        let memory = Pinned::registered(&device, 1);
        assert_eq!(memory.is_ok(), code == 712);
        assert_eq!(fake.count("cuMemHostRegister_v2"), before + if code == 712 { 2 } else { 1 });
        assert_eq!(fake.live().registered_bytes, memory.map_or(0, |memory| memory.len()));
        // The same code from another call does not cause a retry.
        fake.fail_call(0, code);
        let error = Pinned::registered(&device, 1).unwrap_err();
        assert!(matches!(&error, Error::Driver(error) if error.call == "cuCtxGetCurrent"), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_fork_neither_shares_nor_copies_registered_memory() {
    let (_fake, device) = session();
    for bytes in [ALIGN, 5 << 20] {
        let memory = Pinned::registered(&device, bytes).unwrap();
        let start = format!("{:x}-", memory.start().addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let flags = maps.lines().skip_while(|line| !line.starts_with(&start)).find(|line| line.starts_with("VmFlags:"));
        let flags = flags.expect("a mapping should start there");
        assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }
}

#[test]
fn memory_that_cannot_be_freed_is_leaked_and_counted() {
    for (make, name) in [(Pinned::registered as Make, "cuMemHostUnregister"), (Pinned::allocated, "cuMemFreeHost")] {
        let (fake, device) = session();
        let mut memory: Pinned = make(&device, 3 * ALIGN).unwrap();
        bytes(&mut memory).fill(5);
        let (before, at, calls) = (leaked(), memory.start(), fake.count(name));
        let warnings = Warnings::default();
        fake.fail_from(0, 700);
        tracing::subscriber::with_default(warnings.clone(), || drop(memory));
        fake.fail_none();
        let warnings = warnings.take();
        assert!(!warnings.is_empty() && warnings.iter().all(|warning| warning.contains("(700)")), "{warnings:?}");
        assert!(warnings.iter().any(|warning| warning.starts_with("page-locked memory is leaked")), "{warnings:?}");
        assert!(fake.count(name) <= calls + 1);
        let live = fake.live();
        let kept = live.registered_bytes + live.host_alloc_bytes;
        assert!(kept >= 3 * ALIGN);
        assert_eq!(leaked().host_bytes - before.host_bytes, kept as u64);
        // SAFETY: the memory was leaked, so it is still mapped and nothing else uses it.
        assert!(unsafe { std::slice::from_raw_parts(at.as_ptr(), 3 * ALIGN) }.iter().all(|&byte| byte == 5));
    }
}
