//! Runs every function that takes a loader concurrently with every other such function, and with
//! `slotline_loader_free`.
//!
//! `proof/sanitizers delays` runs these tests with AddressSanitizer and `--cfg delays`. A hook in
//! the library holds a call at the point where it has entered the loader, or where it is about to
//! leave it. Random delays before each atomic operation vary the rest of the timing.
#![cfg(delays)]

mod support;

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use slotline_core::sync::delays;
use slotline_ffi::*;
use support::datasets::{Drops, dropped, field, map};
use support::{bytes, call, options};

/// Serialises tests that use the delays and the fake CUDA driver, which are global to the process.
fn serialized() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status of a call; `None` for calls that cannot fail.
type Gave = Option<slotline_status>;

/// A function that takes a loader, wrapped so that all of them have the same signature.
struct Row {
    name: &'static str,
    /// Whether the library rejects the function while another exclusive function uses the loader.
    exclusive: bool,
    call: fn(*mut slotline_loader, &[u8]) -> Gave,
}

/// A function that creates a loader, on the host or for a device.
type Make = fn(*mut slotline_dataset, &slotline_options) -> *mut slotline_loader;

/// Returns the status of a call, and frees its error.
fn status(body: impl FnOnce(*mut *mut slotline_error) -> slotline_status) -> slotline_status {
    call(body).unwrap_or_else(|(status, _)| status)
}

fn on_host(dataset: *mut slotline_dataset, options: &slotline_options) -> *mut slotline_loader {
    let mut loader = null_mut();
    // SAFETY: all pointers are valid.
    call(|error| unsafe { slotline_loader_new(dataset, options, &mut loader, error) }).unwrap();
    loader
}

fn begin(loader: *mut slotline_loader) -> slotline_status {
    // SAFETY: the loader is not freed before the call is inside it; `error` is writable.
    status(|error| unsafe { slotline_loader_epoch(loader, error) })
}

/// Returns the status of `slotline_loader_next`, and frees the batch.
fn next_batch(loader: *mut slotline_loader) -> slotline_status {
    let mut batch = null_mut();
    // SAFETY: as above; `out` is writable, too, and a batch is freed once.
    unsafe {
        let status = status(|error| slotline_loader_next(loader, &mut batch, error));
        slotline_batch_free(batch);
        status
    }
}

fn stop(loader: *mut slotline_loader) {
    // SAFETY: as above.
    unsafe { slotline_loader_stop(loader) };
}

fn free(loader: *mut slotline_loader) {
    // SAFETY: the loader is freed once; the calls in it have begun.
    unsafe { slotline_loader_free(loader) };
}

fn saved(loader: *mut slotline_loader) -> Result<Vec<u8>, (slotline_status, String)> {
    // SAFETY: as above; `out` and `error` are writable.
    bytes(|out, error| unsafe { slotline_loader_state(loader, out, error) })
}

/// Returns every function except `free`.
fn rows() -> Vec<Row> {
    fn one(name: &'static str, call: fn(*mut slotline_loader, &[u8]) -> Gave) -> Row {
        Row { name, exclusive: true, call }
    }
    /// Rows for functions that return a string or a number, and that any thread may call at any
    /// time.
    macro_rules! any {
        ($name:ident) => {
            Row {
                name: stringify!($name),
                exclusive: false,
                call: |l, _| {
                    // SAFETY: the loader is not freed before the call is inside it.
                    assert!(unsafe { $name(l) } != 0, stringify!($name));
                    None
                },
            }
        };
        (text $name:ident) => {
            Row {
                name: stringify!($name),
                exclusive: false,
                call: |l, _| {
                    // SAFETY: as above; `out` and `error` are writable.
                    assert!(!bytes(|out, error| unsafe { $name(l, out, error) }).unwrap().is_empty());
                    None
                },
            }
        };
    }
    vec![
        one("slotline_loader_epoch", |l, _| Some(begin(l))),
        one("slotline_loader_next", |l, _| Some(next_batch(l))),
        one("slotline_loader_state", |l, _| Some(saved(l).map_or_else(|e| e.0, |_| SLOTLINE_OK))),
        one("slotline_loader_load_state", |l, state| {
            // SAFETY: as above; the state has the length that is passed.
            Some(status(|error| unsafe { slotline_loader_load_state(l, state.as_ptr(), state.len(), error) }))
        }),
        one("slotline_loader_warnings", |l, _| {
            // SAFETY: as above; `out` and `error` are writable.
            let text = bytes(|out, error| unsafe { slotline_loader_warnings(l, out, error) });
            Some(text.map_or_else(|e| e.0, |_| SLOTLINE_OK))
        }),
        one("slotline_loader_next_epoch", |l, _| {
            // SAFETY: as above.
            let _ = unsafe { slotline_loader_next_epoch(l) };
            None
        }),
        Row {
            name: "slotline_loader_stats",
            exclusive: false,
            call: |l, _| {
                let mut out = slotline_stats { struct_size: size_of::<slotline_stats>(), ..Default::default() };
                // SAFETY: as above; `out` has the size that it says.
                call(|error| unsafe { slotline_loader_stats(l, &mut out, error) }).unwrap();
                None
            },
        },
        Row {
            name: "slotline_loader_stop",
            exclusive: false,
            call: |l, _| {
                stop(l);
                None
            },
        },
        any!(text slotline_loader_stats_json),
        any!(text slotline_loader_verdict),
        any!(slotline_loader_len),
        any!(slotline_loader_batch_size),
        any!(slotline_loader_depth),
        any!(slotline_loader_memory_ceiling),
    ]
}

/// The number of samples in a dataset.
const LEN: usize = 40;

/// Writes the index as the sample.
unsafe extern "C" fn read(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is valid during this callback.
    unsafe { i32::from(slotline_sample_write(sample, 0, (&raw const index).cast(), 1) != SLOTLINE_OK) }
}

/// Opens a cursor, which is the number of samples left.
unsafe extern "C" fn open(
    _: *mut c_void,
    _: *const slotline_worker,
    cursor: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    // SAFETY: the out pointer is writable.
    unsafe { *cursor = Box::into_raw(Box::new(LEN)).cast() };
    0
}

unsafe extern "C" fn next(user: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32 {
    // SAFETY: `open` created the cursor, and only one thread at a time uses it.
    let left = unsafe { &mut *cursor.cast::<usize>() };
    if *left == 0 {
        return 1;
    }
    *left -= 1;
    // SAFETY: the sample is valid during this callback.
    unsafe { read(user, *left, sample) }
}

unsafe extern "C" fn close(_: *mut c_void, cursor: *mut c_void) {
    // SAFETY: `open` created the cursor, and it is closed once.
    drop(unsafe { Box::from_raw(cursor.cast::<usize>()) });
}

fn number() -> [slotline_field; 1] {
    [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])]
}

/// Creates a map-style dataset or a stream. `drops` counts how often it is dropped.
fn dataset(stream: bool, drops: &Drops) -> *mut slotline_dataset {
    let (fields, mut dataset) = (number(), null_mut());
    let callbacks = slotline_stream_dataset {
        struct_size: size_of::<slotline_stream_dataset>(),
        user: null_mut(),
        len: LEN as i64,
        fields: fields.as_ptr(),
        num_fields: 1,
        open: Some(open),
        next: Some(next),
        close: Some(close),
        save: None,
        resume: None,
        drop: Some(dropped),
    };
    // SAFETY: the structs are valid.
    call(|error| unsafe {
        match stream {
            true => {
                let callbacks = slotline_stream_dataset { user: drops.user(), ..callbacks };
                slotline_dataset_from_stream(&callbacks, &mut dataset, error)
            }
            false => slotline_dataset_from_callbacks(&map(LEN, &fields, Some(read), drops), &mut dataset, error),
        }
    })
    .unwrap();
    dataset
}

/// Creates a loader, starts a pass and takes its first batch. The dataset's handle is freed.
fn loader(make: Make, stream: bool, workers: usize, drops: &Drops) -> *mut slotline_loader {
    let dataset = dataset(stream, drops);
    let options = options(|options| (options.batch_size, options.num_workers) = (2, workers));
    let loader = make(dataset, &options);
    // SAFETY: the dataset is freed once.
    unsafe { slotline_dataset_free(dataset) };
    assert_eq!((begin(loader), next_batch(loader)), (SLOTLINE_OK, SLOTLINE_OK));
    loader
}

/// A pointer that can be sent to another thread.
struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: the functions under test allow any thread to use a handle.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

/// A call that runs in a separate thread.
struct Call {
    inside: bool,
    go: Sender<()>,
    thread: JoinHandle<Gave>,
}

impl Call {
    /// Starts the call, and holds it at `step`, unless it is rejected.
    fn begin(row: &Row, loader: *mut slotline_loader, state: &[u8], step: Step) -> Self {
        let (arrived, at_step): (Sender<()>, Receiver<()>) = channel();
        let (go, may_go) = channel::<()>();
        let (call, loader, state) = (row.call, Shared(loader), state.to_vec());
        let thread = thread::spawn(move || {
            on_step(step, move || {
                arrived.send(()).unwrap();
                may_go.recv().unwrap();
            });
            call(loader.get(), &state)
        });
        // If the call is rejected, its thread ends and drops the hook.
        Self { inside: at_step.recv().is_ok(), go, thread }
    }

    fn end(self) -> Gave {
        let _ = self.go.send(());
        self.thread.join().unwrap()
    }
}

/// Runs each function inside the loader together with each other function. The loader is freed
/// while both are inside, and they leave in either order.
fn cross(make: Make) {
    let (rows, mut round) = (rows(), 0_u64);
    for (first, second) in rows.iter().flat_map(|first| rows.iter().map(move |second| (first, second))) {
        for (step, other) in
            [(Step::In, Step::In), (Step::In, Step::Out), (Step::Out, Step::In), (Step::Out, Step::Out)]
        {
            round += 1;
            delays::shake(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let what = format!("{} {step:?}, {} {other:?}", first.name, second.name);
            let drops = Drops::default();
            let loader = loader(make, round.is_multiple_of(2), round as usize % 3, &drops);
            let state = saved(loader).unwrap();
            let one = Call::begin(first, loader, &state, step);
            let two = Call::begin(second, loader, &state, other);
            let refused = first.exclusive && second.exclusive;
            assert_eq!((one.inside, two.inside), (true, !refused), "{what}");
            free(loader);
            // Only a call that uses the loader exclusively keeps it alive.
            let kept = first.exclusive || second.exclusive;
            assert_eq!(drops.count(), usize::from(!kept), "{what}");
            let gave = if round % 4 < 2 { [one.end(), two.end()] } else { [two.end(), one.end()] };
            let of_second = if round % 4 < 2 { gave[1] } else { gave[0] };
            assert!(!refused || matches!(of_second, Some(SLOTLINE_ERROR_INVALID) | None), "{what}: {gave:?}");
            let invalid = gave.iter().filter(|gave| **gave == Some(SLOTLINE_ERROR_INVALID)).count();
            assert!(invalid <= usize::from(refused), "{what}: {gave:?}");
            assert_eq!(drops.count(), 1, "{what}");
        }
    }
    println!("{round} crossings of {} functions", rows.len());
}

/// The functions of the header whose first parameter is a loader, except `free`.
fn declared() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/slotline.h");
    let header = std::fs::read_to_string(path).unwrap();
    let code: String = header
        .lines()
        .filter(|line| !line.starts_with("//") && !line.starts_with('#'))
        .flat_map(|line| [line, " "])
        .collect();
    let taking = code.split(';').filter_map(|declaration| {
        let (before, parameters) = declaration.split_once('(')?;
        let first = parameters.trim_start().trim_start_matches("const ");
        first.starts_with("slotline_loader *").then(|| before.rsplit([' ', '*']).next().unwrap().to_owned())
    });
    let mut names: BTreeSet<String> = taking.collect();
    assert!(names.remove("slotline_loader_free"), "the header was not parsed correctly: {names:?}");
    names
}

/// One thread stops the loader, while another takes batches until it sees the stop, and then frees
/// the loader.
fn stop_and_free(make: Make, rounds: u64) {
    for round in 0..rounds {
        delays::shake(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let drops = Drops::default();
        let workers = [0, 1, 3, 16][round as usize % 4];
        let loader = loader(make, !round.is_multiple_of(5), workers, &drops);
        let shared = Shared(loader);
        let stopping = thread::spawn(move || stop(shared.get()));
        loop {
            match next_batch(loader) {
                SLOTLINE_OK => {}
                SLOTLINE_END => assert!(matches!(begin(loader), SLOTLINE_OK | SLOTLINE_ERROR_STOPPED)),
                SLOTLINE_ERROR_STOPPED => break,
                status => panic!("status {status:?}"),
            }
        }
        free(loader);
        stopping.join().unwrap();
        assert_eq!(drops.count(), 1);
    }
}

#[test]
fn every_loader_function_is_tested() {
    let rows: BTreeSet<String> = rows().iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(rows, declared(), "the rows of this test (left) differ from the functions of slotline.h (right)");
}

#[test]
fn a_loader_outlives_every_pair_of_calls_in_it() {
    let _guard = serialized();
    cross(on_host);
}

#[test]
fn a_thread_that_sees_stopped_can_free_the_loader() {
    let _guard = serialized();
    stop_and_free(on_host, 300);
}

/// The loader that the callbacks of the next test stop; below it, the number of samples that they
/// have read.
static STOPPED: AtomicPtr<slotline_loader> = AtomicPtr::new(null_mut());
static READ: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn read_and_stop(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the loader exists: it is created before it is stored here, and freeing it waits for
    // the callbacks in workers.
    unsafe {
        let loader = STOPPED.load(Ordering::SeqCst);
        if READ.fetch_add(1, Ordering::SeqCst) >= 7 && !loader.is_null() {
            slotline_loader_stop(loader);
        }
        read(user, index, sample)
    }
}

#[test]
fn a_loader_stopped_by_its_callback_can_be_freed() {
    let _guard = serialized();
    for round in 0..100_u64 {
        delays::shake(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (drops, fields, mut dataset) = (Drops::default(), number(), null_mut());
        let callbacks = map(LEN, &fields, Some(read_and_stop), &drops);
        STOPPED.store(null_mut(), Ordering::SeqCst);
        READ.store(0, Ordering::SeqCst);
        // SAFETY: the dataset is valid, and freed once.
        call(|error| unsafe { slotline_dataset_from_callbacks(&callbacks, &mut dataset, error) }).unwrap();
        // With workers, only workers make batches, so no callback stops a loader that was already
        // freed.
        let options = options(|options| {
            (options.batch_size, options.num_workers, options.round_robin) = (2, round as usize % 3, 1);
        });
        let loader = on_host(dataset, &options);
        // SAFETY: as above.
        unsafe { slotline_dataset_free(dataset) };
        STOPPED.store(loader, Ordering::SeqCst);
        assert_eq!(begin(loader), SLOTLINE_OK);
        while next_batch(loader) == SLOTLINE_OK {}
        STOPPED.store(null_mut(), Ordering::SeqCst);
        free(loader);
        assert_eq!(drops.count(), 1);
    }
}

#[cfg(feature = "cuda")]
mod device {
    use slotline_cuda_fake::{Fake, Options};

    use super::*;

    fn on_device(dataset: *mut slotline_dataset, options: &slotline_options) -> *mut slotline_loader {
        let struct_size = size_of::<slotline_device_options>();
        let device = slotline_device_options {
            struct_size,
            ordinal: 0,
            slots: 2,
            timeout_ms: 0,
            resumable: 1,
            reserved: [0; 7],
        };
        let mut loader = null_mut();
        // SAFETY: all pointers are valid.
        call(|error| unsafe { slotline_loader_new_on_device(dataset, options, &device, &mut loader, error) }).unwrap();
        loader
    }

    #[test]
    fn a_device_loader_outlives_every_pair_of_calls_in_it() {
        let _guard = serialized();
        let fake = Fake::load().session(Options::default());
        cross(on_device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }

    #[test]
    fn a_thread_that_sees_stopped_can_free_the_device_loader() {
        let _guard = serialized();
        let fake = Fake::load().session(Options::default());
        stop_and_free(on_device, 100);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}
