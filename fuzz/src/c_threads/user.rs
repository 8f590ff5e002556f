//! Datasets whose callbacks use the loader that calls them.

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline_ffi::*;

use super::World;
use super::gate::Kind;
use crate::c_abi::{User, checked};
use crate::choices::Choices;

/// What a callback does with the loader that calls it.
#[derive(Clone, Copy)]
enum Does {
    Nothing,
    Stop,
    Ask,
    Use,
    Free,
}

/// Returns the user data for a dataset of numbers whose callback uses the loader in one of its
/// reads.
pub(super) fn user(world: &Arc<World>, choices: &mut Choices<'_>) -> User {
    let does = choices.of(&[Does::Nothing, Does::Nothing, Does::Stop, Does::Ask, Does::Use, Does::Free]);
    let (len, at) = (choices.within(1, 30), choices.below(40));
    let (ledger, world, read) = (world.ledger.clone(), world.clone(), AtomicUsize::new(0));
    let act = move |sample: *mut slotline_sample| {
        world.gate.inside();
        if read.fetch_add(1, Ordering::SeqCst) == at {
            // SAFETY: the sample is valid during the callback.
            world.act(does, unsafe { slotline_sample_worker(sample) });
        }
    };
    User { ledger, way: 1, fields: vec![(SLOTLINE_I64, 8, 1)], len, act: Some(Box::new(act)) }
}

/// Creates a map-style dataset or a stream.
pub(super) fn dataset(user: User, stream: bool) -> *mut slotline_dataset {
    let field = slotline_field {
        struct_size: size_of::<slotline_field>(),
        name: null(),
        dtype: SLOTLINE_I64,
        kind: SLOTLINE_FIXED,
        ndim: 0,
        shape: null(),
        padding: null(),
        multiple_of: 0,
    };
    let mut dataset = null_mut();
    // SAFETY: the structs are valid, and outlive the call.
    let status = checked(|error| unsafe {
        if stream {
            slotline_dataset_from_stream(&user.stream_dataset(&field, 1), &mut dataset, error)
        } else {
            slotline_dataset_from_callbacks(&user.map_dataset(&field, 1), &mut dataset, error)
        }
    });
    assert_eq!(status.0, SLOTLINE_OK);
    dataset
}

impl World {
    /// Uses the loader from a callback. `worker` is the index of the worker that runs the callback,
    /// or negative if the consumer's thread runs it.
    fn act(&self, does: Does, worker: i64) {
        match does {
            Does::Nothing => {}
            Does::Stop => self.stop(),
            Does::Ask => {
                if let Some(inside) = self.gate.begin(Kind::Ask) {
                    // SAFETY: a valid loader.
                    unsafe { slotline_loader_depth(inside.loader()) };
                }
            }
            Does::Use => {
                if let Some(inside) = self.gate.begin(Kind::Use) {
                    // SAFETY: a valid loader, and a place for the batch.
                    unsafe {
                        slotline_loader_next_epoch(inside.loader());
                        // In the consumer's thread, a call to `next` is already running, so this
                        // one is rejected. A worker would wait for itself.
                        if worker < 0 {
                            let status = slotline_loader_next(inside.loader(), &mut null_mut(), null_mut());
                            assert_eq!(status, SLOTLINE_ERROR_INVALID);
                        }
                    }
                }
            }
            // A worker that freed its own loader would wait 5 s for itself.
            Does::Free if worker < 0 => self.free(),
            Does::Free => {}
        }
    }
}
