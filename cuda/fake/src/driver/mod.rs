//! The state of the driver, behind one lock. Work progresses only in steps, and only driver calls
//! (and the ticker, a thread, if it is enabled) make steps. So the schedule is determined by the
//! seed and the program's calls.

mod code;
mod controls;
mod event;
mod exports;
mod host;
mod kernel;
mod memory;
mod stream;
mod transfer;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::control::{Live, Options, Skip};
use code::Outcome;

/// The representation of CUDA's handles: numbers that are never reused. They are never
/// dereferenced.
type Handle = usize;

/// The handle of device 0's primary context, and the difference between the handles of consecutive
/// devices.
const FIRST_CONTEXT: Handle = 0xc0_0000;
const CONTEXTS: Handle = 0x100;
/// The version from which on some calls need no current context. It is not known which version was
/// the first; `cuda.h` specifies that these calls return 201 (`CUDA_ERROR_INVALID_CONTEXT`).
const NEEDS_NO_CONTEXT: i32 = 13_000;
/// The maximum number of violations that are kept.
const MAX_VIOLATIONS: usize = 1000;

pub(crate) struct Driver {
    options: Options,
    random: Random,
    /// A number that determines which stream currently makes most of the steps.
    ahead: u32,
    /// The number of the last reset. A ticker that was started before it exits.
    round: u64,
    initialised: bool,
    held: bool,
    skipped: u32,
    fail: Option<Fail>,

    devices: Vec<Device>,
    streams: BTreeMap<Handle, stream::Stream>,
    events: BTreeMap<Handle, event::Event>,
    modules: BTreeMap<Handle, kernel::Module>,
    functions: BTreeMap<Handle, kernel::Function>,
    host: host::HostMemory,
    kernels: BTreeMap<String, kernel::HostFunction>,
    watches: BTreeMap<String, Vec<kernel::Watch>>,
    last_handle: Handle,

    /// The number of steps made. This is the driver's only clock; a step counts as a microsecond in
    /// reported times.
    now: u64,
    streams_made: u64,
    jobs_made: u64,
    calls: u64,
    counts: BTreeMap<&'static str, u64>,
    pageable_copies: u64,
    /// Resources that were not released before their context was destroyed.
    lost: Live,
    violations: Vec<String>,
    trace: Vec<String>,
}

struct Device {
    /// The reference count of the primary context.
    retained: u32,
    /// A sticky error, such as after an illegal memory access of a kernel.
    broken: Option<u32>,
    memory: memory::DeviceMemory,
}

struct Fail {
    calls_left: u64,
    code: u32,
    sticky: bool,
}

thread_local! {
    static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

/// Returns the number of the calling thread's default stream. As with a real driver, a thread that
/// has destroyed its thread-local variables has another default stream from then on.
fn own_stream() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            OWN.set(0);
        }
    }
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
        static END: End = const { End };
    }
    if OWN.get() == 0 {
        OWN.set(NEXT.fetch_add(1, Ordering::Relaxed));
        // This is an error if the thread-local variable was destroyed already.
        let _ = END.try_with(|_| ());
    }
    OWN.get()
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new(Options::default(), 0, 0x1000)));

fn lock() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wraps every driver call: counts it, fails it if a failure is injected, and makes some steps of
/// the streams.
fn call(name: &'static str, body: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    let mut driver = lock();
    driver.calls += 1;
    *driver.counts.entry(name).or_default() += 1;
    driver.note(|| name.to_owned());
    if let Some(code) = driver.failure() {
        return code;
    }
    driver.advance_some();
    body(&mut driver).err().unwrap_or(0)
}

/// Like [`call`], but fails unless `cuInit` was called before.
fn call_after_init(name: &'static str, body: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    call(name, |driver| if driver.initialised { body(driver) } else { Err(code::NOT_INITIALIZED) })
}

impl Driver {
    fn new(options: Options, round: u64, last_handle: Handle) -> Self {
        let device = || Device { retained: 0, broken: None, memory: memory::DeviceMemory::new(options.memory_bytes) };
        let mut random = Random(options.seed);
        Self {
            ahead: random.up_to(u32::MAX),
            random,
            round,
            initialised: false,
            held: false,
            skipped: 0,
            fail: None,
            devices: (0..options.devices).map(|_| device()).collect(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            host: host::HostMemory::default(),
            kernels: BTreeMap::new(),
            watches: BTreeMap::new(),
            last_handle,
            now: 0,
            streams_made: 0,
            jobs_made: 0,
            calls: 0,
            counts: BTreeMap::new(),
            pageable_copies: 0,
            lost: Live::default(),
            violations: Vec::new(),
            trace: Vec::new(),
            options,
        }
    }

    /// See [`Fake::reset`](crate::Fake::reset). Handles continue from the last one, so that an old
    /// handle is never mistaken for a new one.
    fn reset(&mut self, options: Options) -> Live {
        let left = self.live();
        let next = Self::new(options, self.round + 1, self.last_handle);
        let initialised = self.initialised;
        *self = Self { initialised, ..next };
        if self.options.ticker {
            let round = self.round;
            std::thread::spawn(move || tick(round));
        }
        left
    }

    fn live(&self) -> Live {
        let lost = self.lost;
        Live {
            contexts: self.devices.iter().filter(|device| device.retained > 0).count(),
            streams: lost.streams + self.streams.values().filter(|stream| stream.is_users()).count(),
            events: lost.events + self.events.len(),
            modules: lost.modules + self.modules.len(),
            device_bytes: lost.device_bytes + self.devices.iter().map(|device| device.memory.used()).sum::<usize>(),
            registered_bytes: lost.registered_bytes + self.host.registered(),
            host_alloc_bytes: lost.host_alloc_bytes + self.host.allocated(),
        }
    }

    fn failure(&mut self) -> Option<u32> {
        let fail = self.fail.as_mut()?;
        if fail.calls_left > 0 {
            fail.calls_left -= 1;
            return None;
        }
        let code = fail.code;
        if !fail.sticky {
            self.fail = None;
        }
        Some(code)
    }

    fn advance_some(&mut self) {
        let most = self.options.max_steps_per_call;
        let steps = self.random.up_to(most);
        self.advance(u64::from(steps));
    }

    fn handle(&mut self) -> Handle {
        self.last_handle += 0x10;
        self.last_handle
    }

    fn skips(&self, gate: Skip) -> bool {
        self.skipped & gate as u32 != 0
    }

    fn violation(&mut self, text: String) {
        self.note(|| format!("    violation: {text}"));
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(text);
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.options.trace {
            self.trace.push(text());
        }
    }

    /// Returns the device with this ordinal.
    fn device(&mut self, ordinal: i32) -> Outcome<&mut Device> {
        usize::try_from(ordinal).ok().and_then(|ordinal| self.devices.get_mut(ordinal)).ok_or(code::INVALID_DEVICE)
    }

    /// Returns the device whose context is current on the calling thread.
    fn current(&self) -> Outcome<usize> {
        let context = CURRENT.get();
        if context == 0 {
            return Err(code::INVALID_CONTEXT);
        }
        let ordinal = (context - FIRST_CONTEXT) / CONTEXTS;
        match self.devices.get(ordinal) {
            Some(Device { broken: Some(code), .. }) => Err(*code),
            Some(device) if device.retained > 0 => Ok(ordinal),
            _ => Err(code::CONTEXT_IS_DESTROYED),
        }
    }

    /// Checks the current context for a call that acts only on objects of this device. Any context
    /// is sufficient, and newer drivers need none. `None` stands for an object that does not exist.
    fn check_context_for(&self, device: Option<usize>) -> Outcome {
        if CURRENT.get() != 0 || self.options.driver_version < NEEDS_NO_CONTEXT {
            return self.current().map(drop);
        }
        device.and_then(|device| self.devices[device].broken).map_or(Ok(()), Err)
    }

    fn set_current(&self, context: Handle) -> Outcome {
        let mut known = (0..self.devices.len()).filter(|&ordinal| self.devices[ordinal].retained > 0);
        if context != 0 && !known.any(|ordinal| context == FIRST_CONTEXT + ordinal * CONTEXTS) {
            return Err(code::INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    }

    fn retain(&mut self, ordinal: i32) -> Outcome<Handle> {
        self.device(ordinal)?.retained += 1;
        Ok(FIRST_CONTEXT + ordinal as usize * CONTEXTS)
    }

    /// Releases a context once. The last release destroys it, with everything that was created in
    /// it, after its work is done.
    fn release(&mut self, ordinal: i32) -> Outcome {
        match self.device(ordinal)?.retained {
            0 => return Err(code::INVALID_CONTEXT),
            1 => {}
            _ => {
                self.device(ordinal)?.retained -= 1;
                return Ok(());
            }
        }
        let device = ordinal as usize;
        self.finish_device(device)?;
        let before = self.live();
        self.streams.retain(|_, stream| stream.device() != device);
        self.events.retain(|_, event| event.device() != device);
        self.modules.retain(|_, module| module.device() != device);
        self.functions.retain(|_, function| function.device() != device);
        self.host.forget(device);
        let memory = memory::DeviceMemory::new(self.options.memory_bytes);
        self.devices[device] = Device { retained: 0, broken: None, memory };
        let after = self.live();
        // `before` and `after` both include what was lost earlier.
        self.lost.streams += before.streams - after.streams;
        self.lost.events += before.events - after.events;
        self.lost.modules += before.modules - after.modules;
        self.lost.device_bytes += before.device_bytes - after.device_bytes;
        self.lost.registered_bytes += before.registered_bytes - after.registered_bytes;
        self.lost.host_alloc_bytes += before.host_alloc_bytes - after.host_alloc_bytes;
        Ok(())
    }
}

/// Makes steps concurrently with the program's calls, until the next reset. This is the ticker's
/// thread.
fn tick(round: u64) {
    loop {
        let mut driver = lock();
        if driver.round != round {
            return;
        }
        driver.advance_some();
        drop(driver);
        std::thread::sleep(Duration::from_micros(10));
    }
}

/// The generator SplitMix64, which is small and good enough for schedules.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to `most`, inclusive.
    fn up_to(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed >> 32) * (u64::from(most) + 1)) >> 32) as u32
    }
}
