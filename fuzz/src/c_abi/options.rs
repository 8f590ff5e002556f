//! The options of a loader, most of which are compatible.

use std::ptr::null;

use slotline_ffi::*;

use super::user::{self, User, dropped};
use super::{World, any, default_options};
use crate::choices::Choices;

/// The number of a core that exists, and of one that does not.
static CORES: [usize; 2] = [0, 100_000];

impl World {
    /// Returns options. The caller still owns their callbacks' user pointers.
    pub(super) fn options(&mut self, choices: &mut Choices<'_>) -> slotline_options {
        let mut options = default_options();
        options.batch_size = choices.of(&[3, 1, 2, 5, 100, SLOTLINE_NO_BATCHES]);
        options.num_workers = choices.of(&[0, 0, 0, 0, 1, 2]);
        options.shuffle = u8::from(choices.one_in(3));
        (options.has_seed, options.seed) = (1, choices.word());
        options.drop_last = u8::from(choices.one_in(4));
        options.in_order = u8::from(!choices.one_in(4));
        options.hold = choices.within(1, 3);
        options.on_error = choices.of(&[0, SLOTLINE_ON_ERROR_SKIP, SLOTLINE_ON_ERROR_REPLACE]);
        options.on_overflow = choices.below(2) as u32;
        options.on_held = choices.of(&[SLOTLINE_ON_HELD_GROW, SLOTLINE_ON_HELD_FAIL]);
        options.round_robin = u8::from(choices.one_in(4));
        if options.num_workers > 0 {
            options.prefetch_factor = choices.below(4);
            options.timeout_ms = choices.of(&[0, 0, 60_000]);
        }
        for _ in 0..choices.of(&[0, 0, 1, 2, 4]) {
            self.set_one(&mut options, choices);
        }
        options
    }

    /// Sets one of the options to an unusual or invalid value.
    fn set_one(&mut self, options: &mut slotline_options, choices: &mut Choices<'_>) {
        match choices.below(22) {
            0 => options.batch_size = choices.of(&[0, -2, i64::MIN]),
            1 => options.num_workers = choices.of(&[usize::MAX, 5000]),
            2 => options.prefetch_factor = choices.of(&[usize::MAX, 1 << 30]),
            3 => options.hold = choices.of(&[0, usize::MAX]),
            4 => options.part_size = choices.of(&[1, 2, usize::MAX]),
            5 => options.memory_limit = choices.of(&[1, 5000, 100_000, usize::MAX]),
            6 => options.bad_samples = choices.below(5),
            7 => options.bad_share = choices.of(&[0.5, 2.0, f64::NAN, -7.0]),
            8 => options.has_seed = 0,
            9 => options.pin_memory = 1,
            10 => options.persistent_workers = 255,
            11 => options.help = choices.of(&[0, 1, 2, i32::MIN]),
            12 => options.wait_strategy = choices.of(&[SLOTLINE_WAIT_BACKOFF, 3, u32::MAX]),
            13 => options.affinity = choices.of(&[SLOTLINE_AFFINITY_SPREAD, SLOTLINE_AFFINITY_CORES, 3]),
            14 => {
                options.cores = choices.of(&[null(), CORES.as_ptr()]);
                options.num_cores = choices.below(3);
            }
            15 => options.on_error = 3,
            16 => (options.on_overflow, options.on_held) = choices.of(&[(9, 0), (0, 9)]),
            17 | 18 => options.sampler = any(&self.samplers, choices),
            19 => options.batch_sampler = any(&self.batch_samplers, choices),
            20 if options.worker_init.is_none() => {
                options.worker_init = Some(user::init);
                options.worker_init_user = User::hand_over(&self.ledger, choices.below(3), Vec::new());
                options.worker_init_drop = Some(dropped);
            }
            _ if options.collate.is_none() => {
                options.collate = Some(user::collate);
                options.collate_user = User::hand_over(&self.ledger, choices.below(72), Vec::new());
                options.collate_drop = Some(dropped);
                options.collate_drop_batch = Some(dropped);
            }
            _ => options.watchdog_ms = 60_000,
        }
    }
}
