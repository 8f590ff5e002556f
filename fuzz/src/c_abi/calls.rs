//! The calls to the C interface. Each step makes one call, and checks its result as far as
//! possible.

use std::ptr::{null, null_mut};
use std::slice;

use slotline_ffi::*;

use super::data::{Content, Struct};
use super::user::{self, User, content, dropped, tensor};
use super::{Export, Handle, World, any, call, make, text};
use crate::choices::Choices;

impl World {
    pub(super) fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(20) {
            _ if self.datasets.is_empty() => self.make_dataset(choices),
            0 => self.make_dataset(choices),
            1 => self.make_sampler(choices),
            2 => self.make_batch_sampler(choices),
            _ if self.loaders.is_empty() => self.make_loader(choices),
            3 | 4 => self.make_loader(choices),
            5 | 6 => {
                let loader = any(&self.loaders, choices);
                // SAFETY: a valid loader or NULL, and a valid place for the error or NULL.
                call(choices, |error| unsafe { slotline_loader_epoch(loader, error) });
            }
            7..12 => self.next(choices),
            12 => self.look_at_batch(choices),
            13 if choices.one_in(2) => self.read_sample(choices),
            13 => self.export(choices),
            14 => self.free_one(choices),
            15 => self.state(choices),
            16 => self.load_state(choices),
            17 => self.report(choices),
            18 => self.query_null(),
            _ if choices.one_in(4) => {
                let loader = any(&self.loaders, choices);
                // SAFETY: a valid loader or NULL.
                unsafe { slotline_loader_stop(loader) };
            }
            _ => {}
        }
    }

    fn make_loader(&mut self, choices: &mut Choices<'_>) {
        let which = choices.below(self.datasets.len());
        let Handle { pointer, content, .. } = &self.datasets[which];
        let (content, dataset) = (content.clone(), if choices.one_in(24) { null_mut() } else { *pointer });
        let options = self.options(choices);
        let sized = Struct::new(&options, choices);
        // SAFETY: a valid dataset or NULL, options of the size that they state, and out-pointers that are valid or
        // NULL.
        let loader = make(choices, slotline_loader_free, |out, error| unsafe {
            slotline_loader_new(dataset, sized.pointer(), out, error)
        });
        if !sized.whole {
            assert!(loader.is_none());
            for user in [options.worker_init_user, options.collate_user].into_iter().filter(|user| !user.is_null()) {
                // SAFETY: the library has not taken ownership of it.
                unsafe { dropped(user) };
            }
        }
        let Some(mut loader) = loader else { return };
        if self.loaders.len() == 4 {
            self.loaders.remove(0);
        }
        loader.content = content;
        let pointer = loader.pointer;
        self.loaders.push(loader);
        // SAFETY: a valid loader.
        unsafe {
            assert!(slotline_loader_len(pointer) >= -1 && slotline_loader_depth(pointer) > 0);
            let limit = options.memory_limit;
            assert!(limit == 0 || slotline_loader_memory_ceiling(pointer) <= limit);
            // Usually begin with the first pass.
            if !choices.one_in(8) {
                call(choices, |error| slotline_loader_epoch(pointer, error));
            }
        }
    }

    fn make_sampler(&mut self, choices: &mut Choices<'_>) {
        let numbers: Vec<usize> = (0..choices.below(6)).map(|_| choices.below(12)).collect();
        let weights: Vec<f64> =
            numbers.iter().map(|&number| choices.of(&[number as f64, 0.5, -1.0, f64::NAN])).collect();
        let (n, word) = (numbers.len(), choices.below(9));
        let indices = if n == 0 { null() } else { numbers.as_ptr() };
        let (yes, kind) = (u8::from(choices.one_in(2)), choices.below(7));
        let user = User::hand_over(&self.ledger, word, Vec::new());
        let callback =
            slotline_order_callback { struct_size: 0, user, len: n, order: Some(user::order), drop: Some(dropped) };
        let callback = Struct::new(&callback, choices);
        // SAFETY: lists of the stated lengths, a struct of the size that it states, and out-pointers that are valid or
        // NULL.
        let sampler = make(choices, slotline_sampler_free, |out, error| unsafe {
            match kind {
                0 => slotline_sampler_random(yes, word, out, error),
                1 => slotline_sampler_subset_random(indices, n, out, error),
                2 => {
                    slotline_sampler_weighted(if n == 0 { null() } else { weights.as_ptr() }, n, word, yes, out, error)
                }
                3 => slotline_sampler_distributed(word, n, yes, 3, yes, out, error),
                4 => slotline_sampler_feistel(out, error),
                5 => slotline_sampler_indices(indices, n, out, error),
                _ => slotline_sampler_from_callback(callback.pointer(), out, error),
            }
        });
        if kind < 6 || !callback.whole {
            // SAFETY: the library has not taken ownership of it.
            unsafe { dropped(user) };
        }
        if let Some(sampler) = sampler {
            if choices.one_in(2) {
                // SAFETY: a valid sampler.
                unsafe { slotline_sampler_seed(sampler.pointer, 7) };
            }
            self.samplers.push(sampler);
        }
        let sampler = any(&self.samplers, choices);
        // SAFETY: a valid sampler or NULL.
        unsafe { slotline_sampler_set_epoch(sampler, 3) };
    }

    fn make_batch_sampler(&mut self, choices: &mut Choices<'_>) {
        let sampler = any(&self.samplers, choices);
        let (size, kind) = (choices.below(5), choices.below(3));
        let numbers: Vec<usize> = (0..6).map(|_| choices.below(12)).collect();
        let mut offsets: Vec<usize> = (0..4).map(|_| choices.below(7)).collect();
        if !choices.one_in(8) {
            offsets[0] = 0;
            offsets.sort_unstable();
        }
        let n = if choices.one_in(24) { usize::MAX } else { choices.below(4) };
        let user = User::hand_over(&self.ledger, choices.below(8), Vec::new());
        let callback = slotline_batches_callback {
            struct_size: 0,
            user,
            max_batch_size: size,
            batches: Some(user::batches),
            drop: Some(dropped),
        };
        let callback = Struct::new(&callback, choices);
        // SAFETY: a valid sampler or NULL; lists that are long enough, or whose stated length is rejected as too large; places
        // or NULL.
        let made = make(choices, slotline_batch_sampler_free, |out, error| unsafe {
            match kind {
                0 => slotline_batch_sampler_of(sampler, size, 0, out, error),
                1 => slotline_batch_sampler_lists(numbers.as_ptr(), offsets.as_ptr(), n, out, error),
                _ => slotline_batch_sampler_from_callback(callback.pointer(), out, error),
            }
        });
        if kind < 2 || !callback.whole {
            // SAFETY: the library has not taken ownership of it.
            unsafe { dropped(user) };
        }
        self.batch_samplers.extend(made);
    }

    fn next(&mut self, choices: &mut Choices<'_>) {
        let which = choices.below(self.loaders.len());
        let Handle { pointer, content, .. } = &self.loaders[which];
        // SAFETY: a valid loader, and out-pointers that are valid or NULL.
        let batch =
            make(choices, slotline_batch_free, |out, error| unsafe { slotline_loader_next(*pointer, out, error) });
        let Some(mut batch) = batch else { return };
        batch.content = content.clone();
        check(&batch);
        self.batches.push(batch);
        while self.batches.len() > choices.of(&[1, 0, 2, 8]) {
            check(&self.batches.swap_remove(choices.below(self.batches.len())));
        }
    }

    fn look_at_batch(&mut self, choices: &mut Choices<'_>) {
        let batch = any(&self.batches, choices);
        let (i, name) = (choices.of(&[0, 1, 2, usize::MAX]), choices.of(&[c"0".as_ptr(), c"a".as_ptr(), null()]));
        let sized = Struct::new(&tensor(), choices);
        // SAFETY: a valid batch or NULL, a struct of the size that it states, and a place or NULL.
        call(choices, |error| unsafe { slotline_batch_field(batch, i, sized.pointer(), error) });
        // SAFETY: as above; the name is a valid text or NULL.
        call(choices, |error| unsafe { slotline_batch_field_by_name(batch, name, sized.pointer(), error) });
    }

    fn export(&mut self, choices: &mut Choices<'_>) {
        let batch = any(&self.batches, choices);
        let i = choices.of(&[0, 0, 1, usize::MAX]);
        let is_versioned = choices.one_in(2);
        self.exports.extend(Export::new(batch, i, is_versioned, choices));
        if self.exports.len() > choices.below(4) {
            drop(self.exports.swap_remove(choices.below(self.exports.len())));
        }
    }

    fn free_one(&mut self, choices: &mut Choices<'_>) {
        match choices.below(4) {
            0 if self.datasets.len() > 1 => drop(self.datasets.remove(0)),
            1 if self.loaders.len() > 1 => drop(self.loaders.swap_remove(choices.below(self.loaders.len()))),
            2 if !self.samplers.is_empty() => drop(self.samplers.swap_remove(choices.below(self.samplers.len()))),
            3 if !self.batch_samplers.is_empty() => drop(self.batch_samplers.remove(0)),
            _ => {}
        }
    }

    fn state(&mut self, choices: &mut Choices<'_>) {
        let loader = any(&self.loaders, choices);
        // SAFETY: a valid loader or NULL, and out-pointers that are valid or NULL.
        self.states.extend(bytes(choices, |out, error| unsafe { slotline_loader_state(loader, out, error) }));
    }

    /// Loads the state of any loader, a part of a state, or arbitrary bytes into any loader.
    fn load_state(&mut self, choices: &mut Choices<'_>) {
        let loader = any(&self.loaders, choices);
        let state = match choices.below(self.states.len() + 2) {
            0 => choices.bytes(12),
            1 => self.states.last().map_or(&[][..], |state| &state[..choices.below(state.len())]),
            i => &self.states[i - 2],
        };
        // SAFETY: a valid loader or NULL, `state.len()` bytes, and a place or NULL.
        call(choices, |error| unsafe { slotline_loader_load_state(loader, state.as_ptr(), state.len(), error) });
    }

    fn report(&mut self, choices: &mut Choices<'_>) {
        let loader = any(&self.loaders, choices);
        let which = choices.below(3);
        // SAFETY: a valid loader or NULL, and out-pointers that are valid or NULL.
        bytes(choices, |out, error| unsafe {
            match which {
                0 => slotline_loader_stats_json(loader, out, error),
                1 => slotline_loader_verdict(loader, out, error),
                _ => slotline_loader_warnings(loader, out, error),
            }
        });
        let sized = Struct::list(
            &[[0_u8; size_of::<slotline_stats>()]],
            choices.of(&[size_of::<slotline_stats>(), 8, 64, 240]),
            false,
        );
        // SAFETY: a valid loader or NULL, a struct of the size that it states, and a place or NULL.
        call(choices, |error| unsafe { slotline_loader_stats(loader, sized.pointer(), error) });
    }

    /// Calls the functions that accept NULL.
    fn query_null(&self) {
        // SAFETY: all these functions accept NULL.
        unsafe {
            assert_eq!((slotline_batch_len(null()), slotline_batch_index(null())), (0, 0));
            assert_eq!((slotline_batch_num_fields(null()), slotline_batch_epoch(null())), (0, 0));
            assert!(slotline_batch_indices(null()).is_null() && slotline_batch_user(null()).is_null());
            assert_eq!((slotline_loader_len(null()), slotline_dataset_len(null())), (-1, -1));
            assert!(slotline_bytes_data(null()).is_null());
            slotline_batch_free(null_mut());
            slotline_loader_free(null_mut());
            slotline_loader_stop(null());
            slotline_dataset_free(null_mut());
            slotline_sampler_free(null_mut());
            slotline_sampler_seed(null_mut(), 1);
            slotline_batch_sampler_free(null_mut());
            slotline_bytes_free(null_mut());
        }
    }
}

/// Makes a call that returns a string, and returns that string.
fn bytes(
    choices: &mut Choices<'_>,
    body: impl FnOnce(*mut *mut slotline_bytes, *mut *mut slotline_error) -> slotline_status,
) -> Option<Vec<u8>> {
    make(choices, slotline_bytes_free, body).map(|bytes| text(&bytes))
}

/// Checks that a batch contains the bytes of its samples.
pub(super) fn check(batch: &Handle<slotline_batch>) {
    let Handle { pointer: batch, ref content, .. } = *batch;
    // SAFETY: a valid batch, whose indices and fields have the addresses and sizes that it returns.
    unsafe {
        let rows = slotline_batch_len(batch);
        let indices = if rows == 0 { &[] } else { slice::from_raw_parts(slotline_batch_indices(batch), rows) };
        for i in 0..slotline_batch_num_fields(batch) {
            let mut field = tensor();
            assert_eq!(slotline_batch_field(batch, i, &mut field, null_mut()), SLOTLINE_OK);
            check_field(&field, i, indices, content);
        }
    }
}

/// Checks that a field contains the bytes of its samples.
///
/// # Safety
///
/// The field must belong to a live batch.
unsafe fn check_field(field: &slotline_tensor, i: usize, indices: &[i64], about: &Content) {
    // SAFETY: the caller upholds that the field belongs to a live batch, so its data pointer and size are valid.
    let bytes =
        unsafe { if field.bytes == 0 { &[] } else { slice::from_raw_parts(field.data.cast::<u8>(), field.bytes) } };
    for (row, &index) in indices.iter().enumerate() {
        let (about, index) = about.origin(index as usize);
        if let Some((data, size)) = about.arrays.get(i) {
            assert_eq!(bytes[row * size..][..*size], data[index * size..][..*size]);
        }
        // In a field of fixed shape, all rows have the same size.
        if let (Some(&dtype), 0) = (about.written.get(i), field.kind) {
            let size = field.bytes / indices.len();
            assert!(bytes[row * size..][..size].iter().all(|&byte| byte == content(dtype, index)));
        }
    }
}
