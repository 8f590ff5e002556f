//! The ranks of a distributed run.

use std::ffi::{CStr, c_char};
use std::ptr::null;

use slotline::Ranks;
use slotline::loader::State;
use slotline::ranks::RanksError;

use crate::abi::{
    Failure, SLOTLINE_ERROR_INVALID, SLOTLINE_ERROR_STATE, Versioned, check, done, made, slotline_bytes,
    slotline_error, slotline_status, versioned,
};
use crate::loader::state::{from_bytes, to_bytes};

/// The place of this process in a distributed run. Set `struct_size` before calling
/// `slotline_ranks_from_env`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct slotline_ranks {
    /// `sizeof(slotline_ranks)`.
    pub struct_size: usize,
    /// The index of this process, from 0.
    pub rank: usize,
    /// The number of processes, at least 1.
    pub world_size: usize,
    /// The index of this process among those on its machine; -1 if the launcher does not report it.
    pub local_rank: i64,
    /// The number of processes on this machine; -1 if the launcher does not report it.
    pub local_world_size: i64,
    /// The launcher whose variables were found, such as "torchrun"; NULL if there is none. Never
    /// freed.
    pub launcher: *const c_char,
}

// SAFETY: it contains only numbers and a pointer, and its first field is its size.
unsafe impl Versioned for slotline_ranks {
    const END: usize = versioned::end!(launcher);

    fn defaults() -> Self {
        let alone = Ranks::ALONE;
        Self {
            struct_size: size_of::<Self>(),
            rank: alone.rank(),
            world_size: alone.world_size(),
            local_rank: -1,
            local_world_size: -1,
            launcher: null(),
        }
    }
}

impl From<RanksError> for Failure {
    #[cold]
    fn from(error: RanksError) -> Self {
        Self::of(SLOTLINE_ERROR_INVALID, &error)
    }
}

/// Reads the rank of this process from the environment. The first pair that is set is used: `RANK`
/// and `WORLD_SIZE` (torchrun), `PMI_RANK` and `PMI_SIZE` (MPICH, Intel MPI),
/// `OMPI_COMM_WORLD_RANK` and `…_SIZE` (Open MPI), `MV2_COMM_WORLD_RANK` and `…_SIZE` (MVAPICH),
/// `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS` (`srun`, unless the job is a shell). If none is set,
/// the result is rank 0 of 1, and `launcher` is NULL. To divide passes among ranks, set `rank` and
/// `world_size` in the options of a loader. Can be called from any thread, but not while another
/// thread changes the environment.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer; only one variable of a pair is set, or one is not a
/// number; two launchers contradict each other.
///
/// # Safety
///
/// `out` must be NULL or writable for `out->struct_size` bytes; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_ranks_from_env(
    out: *mut slotline_ranks,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        done(error, || {
            versioned::fill(out, "out", |out| {
                let Some(ranks) = Ranks::from_env()? else { return Ok(()) };
                let local = |number: Option<usize>| number.and_then(|number| i64::try_from(number).ok()).unwrap_or(-1);
                (out.rank, out.world_size) = (ranks.rank(), ranks.world_size());
                (out.local_rank, out.local_world_size) = (local(ranks.local_rank()), local(ranks.local_world_size()));
                out.launcher = ranks.launcher_c_str().map_or(null(), CStr::as_ptr);
                Ok(())
            })
        })
    }
}

/// Merges the states of all ranks (`slotline_loader_state`) into one state, which any number of
/// ranks can load. The states must be from the same run and the same step. `states` are `count`
/// pointers to their bytes, and `lens` their lengths. The caller owns the bytes in `*out`, which is
/// NULL on failure.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer. `SLOTLINE_ERROR_STATE`: there is no state, some bytes
/// are not a state, or the states are from different runs or steps, of streams, or of loaders that
/// deliver batches out of order.
///
/// # Safety
///
/// `states` and `lens` must be NULL or point to `count` values, and each state must have the number
/// of bytes in its length; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_state_merge(
    states: *const *const u8,
    lens: *const usize,
    count: usize,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            let (states, lens) = (check::slice(states, count, "states")?, check::slice(lens, count, "lens")?);
            let each = states.iter().zip(lens).map(|(&state, &len)| from_bytes(check::slice(state, len, "states")?));
            let states: Vec<State> = each.collect::<Result<_, Failure>>()?;
            let merged = State::merge(&states).map_err(|error| Failure::of(SLOTLINE_ERROR_STATE, &error))?;
            to_bytes(&merged)
        })
    }
}
