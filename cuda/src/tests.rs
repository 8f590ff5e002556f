//! Tests that need the crate's internals.

use cudarc::driver::sys::{CUresult, cuMemcpyDtoH_v2};
use slotline::Loader;
use slotline::arena::{ALIGN, Memory};
use slotline::dataset::from_fn;
use slotline_cuda_fake::{Fake, Live, Options, Session};

use crate::event::Event;
use crate::memory::DeviceMemory;
use crate::pinned::Kind;
use crate::{Device, DeviceLoader, Error, Leaked, PageSize, Pinned, Stream, TimedEvent, leaked};

/// Makes most of the driver calls that this crate uses.
fn life() -> Result<(), Error> {
    let device = Device::new(0)?;
    let registered = Pinned::registered_in_pieces(&device, 3 * ALIGN, Kind::Own(PageSize::Huge), 4 * ALIGN)?;
    let allocated = Pinned::allocated(&device, ALIGN)?;
    let memory = DeviceMemory::new(&device, 1000)?;
    let (owned, default) = (Stream::new(&device)?, Stream::legacy_default(&device));
    let (event, times) = (Event::new(&device)?, [TimedEvent::new(&device)?, TimedEvent::new(&device)?]);
    for stream in [&owned, &default] {
        times[0].record(stream)?;
        event.record(stream)?;
        event.wait_on(&owned)?;
        times[1].record(stream)?;
        event.is_done()?;
        stream.is_idle()?;
        stream.synchronize()?;
        times[1].synchronize()?;
        times[1].elapsed_since(&times[0])?;
    }
    device.synchronize()?;
    memory.free();
    drop((allocated, registered));
    Ok(())
}

/// Returns the resources that the fake driver still holds, in the form of this crate's counters.
fn left(fake: &Fake) -> Leaked {
    let Live { contexts, streams, events, device_bytes, registered_bytes, host_alloc_bytes, .. } = fake.live();
    Leaked {
        host_bytes: (registered_bytes + host_alloc_bytes) as u64,
        device_bytes: device_bytes as u64,
        handles: (contexts + streams + events) as u64,
    }
}

fn since(before: Leaked) -> Leaked {
    let now = leaked();
    Leaked {
        host_bytes: now.host_bytes - before.host_bytes,
        device_bytes: now.device_bytes - before.device_bytes,
        handles: now.handles - before.handles,
    }
}

/// Runs a function on a new thread, which has no context at first.
fn on_a_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn session() -> Session {
    Fake::load().session(Options::default())
}

/// Returns the options of two fake drivers: one like current drivers, and an older one, which needs
/// a context for more calls.
fn drivers() -> [Options; 2] {
    [13_000, 12_000].map(|driver_version| Options { driver_version, ..Options::default() })
}

#[test]
fn every_leak_of_a_failing_call_is_counted() {
    for options in drivers() {
        fail_each_call(&options);
    }
}

fn fail_each_call(options: &Options) {
    let fake = Fake::load().session(options.clone());
    on_a_thread(life).unwrap();
    let calls = fake.calls();
    assert!(calls > 60, "{calls}");
    assert_eq!(left(&fake), Leaked::default());
    let mut kinds = [0; 3];
    for code in [2, 201, 600, 700, 709, 712, 999] {
        for n in 0..calls {
            fake.reset(options.clone());
            let before = leaked();
            fake.fail_call(n, code);
            let outcome = on_a_thread(life);
            fake.fail_none();
            assert_eq!(left(&fake), since(before), "call {n} fails with {code}: {outcome:?}");
            assert_eq!(fake.violations(), Vec::<String>::new());
            let leaks = since(before) != Leaked::default();
            match outcome {
                Err(_) => kinds[0] += 1,
                Ok(()) if leaks => kinds[1] += 1,
                Ok(()) => kinds[2] += 1,
            }
        }
    }
    assert!(kinds.iter().all(|&kind| kind > 0), "each kind must occur (errors, leaks, no effect): {kinds:?}");
}

#[test]
fn every_leak_after_a_sticky_error_is_counted() {
    for options in drivers() {
        let fake = Fake::load().session(options.clone());
        on_a_thread(life).unwrap();
        let calls = fake.calls();
        for n in 0..calls {
            fake.reset(options.clone());
            let before = leaked();
            fake.fail_from(n, 700);
            let outcome = on_a_thread(life);
            fake.fail_none();
            assert_eq!(left(&fake), since(before), "from call {n} on: {outcome:?}");
        }
    }
}

#[test]
fn all_pieces_of_registered_memory_are_unregistered() {
    let fake = session();
    let device = Device::new(0).unwrap();
    let make = || Pinned::registered_in_pieces(&device, 5 * ALIGN, Kind::Own(PageSize::Huge), 2 * ALIGN);
    let memory = make().unwrap();
    assert_eq!((fake.count("cuMemHostRegister_v2"), fake.live().registered_bytes), (3, 5 * ALIGN));
    drop(memory);
    assert_eq!((fake.count("cuMemHostUnregister"), fake.live().registered_bytes), (3, 0));

    // If a later piece is refused, the earlier ones are unregistered, for any error code, and
    // before a retry.
    for (code, tries) in [(2, 1), (712, 2)] {
        let outcomes: Vec<_> = (0..8)
            .map(|n| {
                let before = fake.count("cuMemHostRegister_v2");
                fake.fail_call(n, code);
                let made = make();
                fake.fail_none();
                let outcome = made.map(|_memory| fake.live().registered_bytes);
                assert_eq!(fake.live().registered_bytes, 0, "call {n} fails with {code}");
                (outcome.ok(), fake.count("cuMemHostRegister_v2") - before)
            })
            .collect();
        for piece in 1..=3 {
            let expected = if tries == 2 { (Some(5 * ALIGN), piece + 3) } else { (None, piece) };
            assert!(outcomes.contains(&expected), "piece {piece} fails with {code}: {outcomes:?}");
        }
    }
}

#[test]
fn a_batch_that_spans_two_pieces_is_copied_completely() {
    let fake = session();
    let device = Device::new(0).unwrap();
    let dataset = from_fn(40, |index, _| Ok([index as u32; 1500]));
    let locking = device.clone();
    let in_pieces =
        move |bytes| Ok(Pinned::registered_in_pieces(&locking, bytes, Kind::Own(PageSize::Small), 2 * ALIGN)?);
    let host = Loader::builder(dataset).batch_size(4).hold(2).memory(in_pieces).build().unwrap();
    let mut loader = DeviceLoader::new(host, &device).unwrap();
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        batch.wait().unwrap();
        let field = batch.field(0).unwrap();
        let mut numbers = vec![0_u32; field.bytes() / 4];
        let _entered = device.enter().unwrap();
        // SAFETY: the vector has room for the field, which nothing writes now.
        let code = unsafe { cuMemcpyDtoH_v2(numbers.as_mut_ptr().cast(), field.ptr(), field.bytes()) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        assert!(numbers.into_iter().eq(batch.indices().iter().flat_map(|&index| [index as u32; 1500])));
    }
    drop(loader);
    assert_eq!(fake.violations(), Vec::<String>::new());
    if !fake.is_absent() {
        let copies = fake.count("cuMemcpyHtoDAsync_v2");
        assert!(copies > 20, "batches of six pages: {copies}");
    }
}

#[test]
fn memory_that_may_be_in_use_is_leaked_with_its_context() {
    let fake = session();
    let before = leaked();
    let device = Device::new(0).unwrap();
    let memory = DeviceMemory::new(&device, 3000).unwrap();
    assert!(memory.len() == 3000 && memory.ptr() != 0);
    drop(memory);
    drop(device);
    assert_eq!(since(before), Leaked { host_bytes: 0, device_bytes: 3000, handles: 1 });
    if fake.is_absent() {
        return;
    }
    assert_eq!(left(&fake), since(before));
    assert_eq!(fake.count("cuMemFree_v2") + fake.count("cuDevicePrimaryCtxRelease_v2"), 0);
}

#[test]
fn an_event_is_reached_when_earlier_work_is_done() {
    let fake = session();
    let device = Device::new(0).unwrap();
    let (stream, event) = (Stream::new(&device).unwrap(), Event::new(&device).unwrap());
    assert!(event.is_done().unwrap(), "never recorded");
    fake.hold(true);
    event.record(&stream).unwrap();
    assert!(!event.is_done().unwrap());
    let other = Stream::new(&device).unwrap();
    event.wait_on(&other).unwrap();
    assert!(!other.is_idle().unwrap(), "it waits for the event");
    fake.hold(false);
    other.synchronize().unwrap();
    assert!(event.is_done().unwrap());
}

#[test]
fn a_full_device_is_an_error() {
    let fake = Fake::load().session(Options { memory_bytes: 1 << 20, ..Options::default() });
    let device = Device::new(0).unwrap();
    let all = DeviceMemory::new(&device, 1 << 19).unwrap();
    let error = DeviceMemory::new(&device, 1 << 20).unwrap_err();
    assert_eq!((error.call, error.code), ("cuMemAlloc", 2));
    all.free();
    drop(device);
    assert_eq!(fake.live(), Live::default());
}

#[cfg(target_os = "linux")]
#[test]
fn registered_memory_is_populated() {
    let _fake = session();
    let device = Device::new(0).unwrap();
    // A size that three threads populate, if there are enough cores, and a size for one thread.
    for (bytes, size) in [((200 << 20) + 5, PageSize::Huge), (3 << 20, PageSize::Small)] {
        let memory = Pinned::registered_on(&device, bytes, size).unwrap();
        let mut present = vec![0_u8; memory.len() / ALIGN];
        // SAFETY: the call only queries the pages of `memory`, and `present` has a byte for each.
        let asked = unsafe { libc::mincore(memory.start().as_ptr().cast(), memory.len(), present.as_mut_ptr()) };
        assert_eq!(asked, 0);
        assert!(present.iter().all(|page| page & 1 == 1));
    }
}
