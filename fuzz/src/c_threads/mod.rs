//! Target for the C interface with several threads. Each thread makes calls to one loader, its
//! batches and their tensors, in any order that the contract allows, and one of them frees the
//! loader while other calls are running.

mod gate;
mod user;

use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slotline_ffi::*;

use self::gate::{Gate, Kind};
use crate::c_abi::{Export, Handle, Ledger, checked, default_options, made, text};
use crate::choices::Choices;

/// Makes the calls that `data` encodes from several threads. Checks that each call returns a result
/// that the calls of the other threads allow, that batches and tensors contain the numbers of their
/// samples, and that every user pointer was dropped exactly once at the end.
pub fn c_threads(data: &[u8]) {
    let mut choices = Choices::new(data);
    let world = Arc::new(World::default());
    let (user, options) = (user::user(&world, &mut choices), options(&mut choices));
    let dataset = user::dataset(user, choices.one_in(2));
    let mut loader = null_mut();
    // SAFETY: all pointers are valid, and the dataset is freed once.
    unsafe {
        let (status, message) = checked(|error| slotline_loader_new(dataset, &options, &mut loader, error));
        slotline_dataset_free(dataset);
        if status != SLOTLINE_OK {
            // Some options exclude each other.
            assert_eq!(status, SLOTLINE_ERROR_BUILD, "{message}");
            return world.all_dropped();
        }
    }
    world.gate.open(loader);
    let scripts: Vec<&[u8]> = (0..choices.within(2, 4)).map(|_| choices.bytes(24)).collect();
    std::thread::scope(|scope| {
        let run = |script| {
            let world = &world;
            scope.spawn(move || {
                let mut choices = Choices::new(script);
                while !choices.is_over() {
                    world.step(&mut choices);
                }
            })
        };
        let threads: Vec<_> = scripts.into_iter().map(run).collect();
        // Joins the threads, since the scope does not wait for their thread-locals, which may keep
        // batches alive; a leak check follows.
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    let after = choices.one_in(2);
    if !after {
        world.drop_all();
    }
    world.free();
    world.drop_all();
    world.all_dropped();
}

/// Returns options for a loader.
fn options(choices: &mut Choices<'_>) -> slotline_options {
    let mut options = default_options();
    options.batch_size = choices.of(&[2, 1, 3, 7]);
    options.num_workers = choices.below(4);
    options.hold = choices.within(1, 3);
    (options.has_seed, options.seed) = (1, 7);
    options.in_order = u8::from(!choices.one_in(4));
    options.round_robin = u8::from(choices.one_in(3));
    options.persistent_workers = u8::from(choices.one_in(4));
    if options.num_workers > 0 {
        options.prefetch_factor = choices.below(4);
        options.help = choices.of(&[SLOTLINE_HELP_AUTO, 0, 1]);
        options.timeout_ms = choices.of(&[0, 0, 60_000]);
    }
    options
}

/// The state that the threads share.
#[derive(Default)]
struct World {
    gate: Gate,
    /// Whether a call of `slotline_loader_stop` has returned.
    stopped: AtomicBool,
    batches: Mutex<Vec<Arc<Batch>>>,
    tensors: Mutex<Vec<Export>>,
    states: Mutex<Vec<Vec<u8>>>,
    ledger: Ledger,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Checks that all user pointers were dropped once. The callbacks also hold references to this
    /// `World`.
    fn all_dropped(self: &Arc<Self>) {
        let left = (Arc::strong_count(self), self.ledger.load(Ordering::SeqCst));
        assert_eq!(left, (1, 0), "a user's pointer was not dropped, or dropped twice");
    }

    fn step(&self, choices: &mut Choices<'_>) {
        match choices.below(20) {
            0 | 1 => self.used(|loader, error| {
                // SAFETY: a valid loader, and a place for the error.
                unsafe { slotline_loader_epoch(loader, error) }
            }),
            2..7 => self.next(),
            7 => self.stop(),
            8 => self.ask(choices),
            9 => self.state(),
            10 => self.load_state(choices),
            11 => self.report(choices),
            12 | 13 => self.look(choices),
            14 | 15 => self.export(choices),
            16 => drop(take(&self.batches, choices)),
            17 => drop(take(&self.tensors, choices)),
            18 if choices.one_in(3) => self.free(),
            _ => std::thread::yield_now(),
        }
    }

    /// Makes a call that uses the loader. It may be rejected if another call uses it.
    fn used(&self, body: impl FnOnce(*mut slotline_loader, *mut *mut slotline_error) -> slotline_status) {
        let Some(inside) = self.gate.begin(Kind::Use) else { return };
        let was_stopped = self.stopped.load(Ordering::SeqCst);
        let (status, message) = checked(|error| body(inside.loader(), error));
        if status == SLOTLINE_ERROR_STOPPED {
            self.gate.report_stop();
        }
        let refused = status == SLOTLINE_ERROR_INVALID && message.contains("in use");
        assert!(!refused || inside.met(), "rejected, although no other call used the loader");
        let allowed = match status {
            SLOTLINE_OK | SLOTLINE_END => true,
            SLOTLINE_ERROR_STOPPED => self.gate.is_stopping(),
            SLOTLINE_ERROR_INVALID => refused || message.contains("no pass"),
            // The state does not fit, or too many batches are held.
            SLOTLINE_ERROR_STATE | SLOTLINE_ERROR_HELD => true,
            _ => false,
        };
        assert!(allowed, "status {status:?}: {message} ({was_stopped})");
    }

    fn next(&self) {
        let was_stopped = self.stopped.load(Ordering::SeqCst);
        self.used(|loader, error| {
            // SAFETY: a valid loader, and places for the results.
            let (status, batch) = made(slotline_batch_free, |out| unsafe { slotline_loader_next(loader, out, error) });
            if let Some(batch) = batch {
                assert!(!was_stopped, "a batch after the stop");
                let batch = Arc::new(Batch(batch));
                batch.check();
                lock(&self.batches).push(batch);
            }
            status
        });
    }

    fn stop(&self) {
        let Some(inside) = self.gate.begin(Kind::Stop) else { return };
        // SAFETY: a valid loader.
        unsafe { slotline_loader_stop(inside.loader()) };
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Reads a property that never changes.
    fn ask(&self, choices: &mut Choices<'_>) {
        let Some(inside) = self.gate.begin(Kind::Ask) else { return };
        let loader = inside.loader();
        // SAFETY: a valid loader.
        unsafe {
            match choices.below(4) {
                0 => assert!(slotline_loader_len(loader) >= -1),
                1 => assert!((1..8).contains(&slotline_loader_batch_size(loader))),
                2 => assert!(slotline_loader_depth(loader) > 0),
                _ => assert!(slotline_loader_memory_ceiling(loader) > 0),
            }
        }
    }

    fn state(&self) {
        self.used(|loader, error| {
            // SAFETY: a valid loader, and places for the results.
            let (status, state) = made(slotline_bytes_free, |out| unsafe { slotline_loader_state(loader, out, error) });
            lock(&self.states).extend(state.map(|state| text(&state)));
            status
        });
    }

    fn load_state(&self, choices: &mut Choices<'_>) {
        let state = {
            let states = lock(&self.states);
            if states.is_empty() { b"none".to_vec() } else { states[choices.below(states.len())].clone() }
        };
        self.used(|loader, error| {
            // SAFETY: a valid loader, `state.len()` bytes, and a place for the error.
            unsafe { slotline_loader_load_state(loader, state.as_ptr(), state.len(), error) }
        });
    }

    fn report(&self, choices: &mut Choices<'_>) {
        let which = choices.below(5);
        if which == 4 {
            // This call has no status: it returns 0 if the loader is in use.
            if let Some(inside) = self.gate.begin(Kind::Use) {
                // SAFETY: a valid loader.
                unsafe { slotline_loader_next_epoch(inside.loader()) };
            }
            return;
        }
        self.used(|loader, error| {
            let mut figures = slotline_stats { struct_size: size_of::<slotline_stats>(), ..Default::default() };
            let call = match which {
                // SAFETY: a valid loader, and places for the results.
                0 => return unsafe { slotline_loader_stats(loader, &mut figures, error) },
                1 => slotline_loader_stats_json,
                2 => slotline_loader_verdict,
                _ => slotline_loader_warnings,
            };
            // SAFETY: as above.
            let (status, bytes) = made(slotline_bytes_free, |out| unsafe { call(loader, out, error) });
            bytes.map(|bytes| text(&bytes));
            status
        });
    }

    /// Reads a batch that other threads may read and hold at the same time.
    fn look(&self, choices: &mut Choices<'_>) {
        let batch = one(&lock(&self.batches), choices);
        batch.inspect(|batch| batch.check());
    }

    /// Exports a tensor that any thread may delete.
    fn export(&self, choices: &mut Choices<'_>) {
        let Some(batch) = one(&lock(&self.batches), choices) else { return };
        // Without further choices, the call is valid.
        let tensor = Export::new(batch.0.pointer, 0, choices.one_in(2), &mut Choices::new(&[])).expect("a tensor");
        let (elements, numbers) = (tensor.tensor(), batch.numbers());
        // SAFETY: the tensor and its elements are valid until it is deleted.
        unsafe {
            assert_eq!((elements.ndim, *elements.shape), (1, numbers.len() as i64));
            assert_eq!(slice::from_raw_parts(elements.data.cast::<i64>(), numbers.len()), numbers);
        }
        lock(&self.tensors).push(tensor);
    }

    /// Frees the loader as soon as the contract allows it, at most once.
    fn free(&self) {
        if let Some(loader) = self.gate.close() {
            // SAFETY: `close` returns the loader once, after all calls that are still running have entered it.
            unsafe { slotline_loader_free(loader) };
        }
    }

    /// Drops all batches and tensors.
    fn drop_all(&self) {
        lock(&self.batches).clear();
        lock(&self.tensors).clear();
    }
}

/// Returns a clone of one of the elements.
fn one<T: Clone>(of: &[T], choices: &mut Choices<'_>) -> Option<T> {
    (!of.is_empty()).then(|| of[choices.below(of.len())].clone())
}

/// Removes one of the elements, so that it can be dropped without holding the lock.
fn take<T>(of: &Mutex<Vec<T>>, choices: &mut Choices<'_>) -> Option<T> {
    let mut of = lock(of);
    let which = if of.is_empty() { return None } else { choices.below(of.len()) };
    Some(of.swap_remove(which))
}

/// A batch that is freed by the last thread that holds it.
struct Batch(Handle<slotline_batch>);

// SAFETY: any thread may read or free a batch, and several threads may read it at once.
unsafe impl Send for Batch {}
// SAFETY: as above.
unsafe impl Sync for Batch {}

impl Batch {
    /// Returns the numbers of the batch's samples. Each byte of a number is the lowest byte of the
    /// sample's index.
    fn numbers(&self) -> Vec<i64> {
        let batch = self.0.pointer;
        // SAFETY: a valid batch, whose indices are as many as its length.
        let indices = unsafe { slice::from_raw_parts(slotline_batch_indices(batch), slotline_batch_len(batch)) };
        indices.iter().map(|&index| i64::from_ne_bytes([index as u8; 8])).collect()
    }

    fn check(&self) {
        let mut field = crate::c_abi::tensor();
        // SAFETY: a valid batch, and places for the results; the field's data pointer and size are valid.
        let numbers = unsafe {
            assert_eq!(checked(|error| slotline_batch_field(self.0.pointer, 0, &mut field, error)).0, SLOTLINE_OK);
            slice::from_raw_parts(field.data.cast::<i64>(), field.bytes / 8)
        };
        assert_eq!(numbers, self.numbers());
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.check();
    }
}
