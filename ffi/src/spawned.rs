//! Worker processes that a command starts.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset};
use slotline::sample::{Fields, Row, Sample};

use crate::arrays::Arrays;
use crate::boundary::guarded;
use crate::callback::{call, slotline_failure};
use crate::dataset::{Data, slotline_dataset};
use crate::map::Map;

/// Makes the dataset of a worker from the `len` bytes of `spawn_setup`, which are lent to the callback. Returns 0 and the
/// dataset in `*out`, which the library then owns, or fails with `slotline_fail`.
pub type slotline_make_dataset = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        setup: *const u8,
        len: usize,
        out: *mut *mut slotline_dataset,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Becomes a worker, if a loader has started this process as one (`spawn` in `slotline_options`); otherwise returns at once.
///
/// Call this at the start of `main`: what comes before it runs in each worker, and what comes after it does not. A worker makes
/// its dataset with `make`, which is called with `user`, reads samples until the loader is freed or its process ends, and then
/// ends its own process with `exit`, so that this function does not return. The dataset's drop functions run before that, unless
/// the worker is killed.
///
/// The dataset must have the length and the fields of the loader's, but may be of another kind. It must not be a stream. If it
/// differs, or if `make` is NULL or fails, `SLOTLINE_WORKER_DIED` of the loader says why.
///
/// The process takes its standard input for this, which is empty from then on, and ignores SIGINT, since a terminal sends that to
/// all processes of a program. Only Linux has such workers; on other systems this function always returns at once.
///
/// # Safety
///
/// `make` must be NULL or a function that can be called with `user`, and no other thread may change the environment during this
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_work_if_spawned(make: slotline_make_dataset, user: *mut c_void) {
    guarded((), || {
        #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
        // SAFETY: the caller guarantees that `make` can be called with `user`.
        slotline::loader::work_if_spawned(|setup| unsafe { made(make, user, setup) });
        let _ = (make, user);
    });
}

/// Makes the dataset of a worker.
///
/// # Safety
///
/// `make` must be NULL or a function that can be called with `user`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
unsafe fn made(make: slotline_make_dataset, user: *mut c_void, setup: &[u8]) -> Result<Indexed, BoxError> {
    let make = make.ok_or("make is NULL in the worker's call of slotline_work_if_spawned")?;
    let mut out: *mut slotline_dataset = null_mut();
    // SAFETY: the caller guarantees that `make` can be called with `user`; the setup is lent to it, and `out` is writable.
    call("make", |failure| unsafe { make(user, setup.as_ptr(), setup.len(), &mut out, failure) })?;
    if out.is_null() {
        return Err("make returned 0, but no dataset in *out".into());
    }
    // SAFETY: the user hands over a dataset, which the library made in a box.
    match unsafe { Box::from_raw(out) }.0 {
        Data::Arrays(arrays) => Ok(Indexed::Arrays(arrays)),
        Data::Map(map) => Ok(Indexed::Map(map)),
        Data::Stream(_) => Err("its dataset is a stream, and the loader's is read by index; make the same one".into()),
    }
}

/// A dataset of either kind that is read by index.
#[derive(Debug)]
enum Indexed {
    Arrays(Arc<Arrays>),
    Map(Arc<Map>),
}

/// A sample of either kind.
#[derive(Debug)]
enum Either<A, M> {
    Arrays(A),
    Map(M),
}

impl Dataset for Indexed {
    type Sample<'a> = Either<<Arrays as Dataset>::Sample<'a>, <Map as Dataset>::Sample<'a>>;

    fn len(&self) -> usize {
        match self {
            Self::Arrays(arrays) => arrays.len(),
            Self::Map(map) => map.len(),
        }
    }

    fn get<'a>(&'a self, index: usize, context: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        match self {
            Self::Arrays(arrays) => arrays.get(index, context).map(Either::Arrays),
            Self::Map(map) => map.get(index, context).map(Either::Map),
        }
    }

    fn prefetch(&self, index: usize) {
        match self {
            Self::Arrays(arrays) => arrays.prefetch(index),
            Self::Map(map) => map.prefetch(index),
        }
    }

    fn fields(&self) -> Option<Fields> {
        match self {
            Self::Arrays(arrays) => arrays.fields(),
            Self::Map(map) => map.fields(),
        }
    }
}

impl<A: Sample, M: Sample> Sample for Either<A, M> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        match self {
            Self::Arrays(sample) => sample.declare(fields),
            Self::Map(sample) => sample.declare(fields),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        match self {
            Self::Arrays(sample) => sample.write(row),
            Self::Map(sample) => sample.write(row),
        }
    }
}
