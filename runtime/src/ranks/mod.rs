//! The processes that load a dataset together in distributed training.
//!
//! In distributed training each process (rank) has its own loader, and each pass is distributed
//! among the ranks. A loader that receives its [`Ranks`] distributes its passes itself
//! ([`Builder::ranks`](crate::loader::Builder::ranks)). Alternatively, use a
//! [`DistributedSampler`](crate::sampler::DistributedSampler). [`Ranks::from_env`] reads the rank
//! that the launcher of the process has put into its environment.
//!
//! If ranks may have different numbers of batches, as with streams that end at different times, the
//! loop must ask the other ranks before each step, or it would wait for them forever.
//! [`while_all`], [`while_any`] and [`repeat_while_any`] do so.

mod env;
mod steps;

pub use self::steps::{RepeatWhileAny, WhileAll, WhileAny, repeat_while_any, while_all, while_any};

use std::ffi::CStr;
use std::fmt;
use std::iter::StepBy;
use std::ops::Range;

use crate::dataset::WorkerInfo;

/// The rank of one of the processes that load a dataset together, and the number of these processes
/// (the world size).
///
/// ```
/// use slotline::Ranks;
///
/// let ranks = Ranks::new(2, 8)?;
/// assert_eq!((ranks.rank(), ranks.world_size()), (2, 8));
/// assert_eq!(ranks.to_string(), "rank 2 of 8");
/// # Ok::<(), slotline::ranks::RanksError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    rank: usize,
    world_size: usize,
    local_rank: Option<usize>,
    local_world_size: Option<usize>,
    found: Option<Found>,
}

/// The variables in which [`Ranks::from_env`] found the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    launcher: &'static CStr,
    rank: &'static str,
    world_size: &'static str,
}

impl Ranks {
    /// Makes the `Ranks` of process `rank` (from 0) among `world_size` processes.
    ///
    /// # Errors
    ///
    /// [`RanksError::Rank`] if `rank` is not below `world_size`.
    pub const fn new(rank: usize, world_size: usize) -> Result<Self, RanksError> {
        if rank < world_size {
            Ok(Self { rank, world_size, local_rank: None, local_world_size: None, found: None })
        } else {
            Err(RanksError::Rank { rank, world_size })
        }
    }

    /// The `Ranks` of a single process that loads everything: rank 0 of 1. This is the default.
    pub const ALONE: Self = Self { rank: 0, world_size: 1, local_rank: None, local_world_size: None, found: None };

    /// Reads the values that the launcher of this process has put into its environment. Returns
    /// `None` if there is no launcher.
    ///
    /// The first of these launchers whose variables are set is used:
    ///
    /// | launcher | variables |
    /// |---|---|
    /// | torchrun | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
    /// | PMI (MPICH, Intel MPI, `srun --mpi=pmi2`) | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
    /// | Open MPI | `OMPI_COMM_WORLD_RANK`, `…_SIZE`, `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | MVAPICH | `MV2_COMM_WORLD_RANK`, `…_SIZE`, `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | Slurm's `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_LOCALID` |
    ///
    /// Slurm's variables are ignored in a batch script outside of `srun`. In a shell that
    /// `srun --pty` has started with several tasks, a program that is started without `srun` is treated
    /// as one of these tasks. torchrun may number the processes differently than the launcher that
    /// starts it on each machine.
    ///
    /// The environment has no effect by itself: pass the ranks to
    /// [`Builder::ranks`](crate::loader::Builder::ranks). Log them as well, since their text says
    /// where they were found:
    ///
    /// ```
    /// let ranks = slotline::Ranks::from_env()?.unwrap_or_default();
    /// println!("{ranks}"); // rank 3 of 8 (RANK and WORLD_SIZE of torchrun)
    /// # Ok::<(), slotline::ranks::RanksError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If only one of rank and world size is set, if a value is not a number or not possible, or if
    /// two launchers contradict each other.
    pub fn from_env() -> Result<Option<Self>, RanksError> {
        Self::from_vars(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Works like [`from_env`](Self::from_env), with a function that returns the value of a
    /// variable, instead of the environment.
    ///
    /// # Errors
    ///
    /// Those of [`from_env`](Self::from_env).
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, RanksError> {
        env::find(&get)
    }

    /// Returns the number of this process, from 0.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of processes, at least 1.
    pub const fn world_size(&self) -> usize {
        self.world_size
    }

    /// Returns the indices of the items that a worker of this rank reads, out of `len` items; if
    /// `worker` is `None`, those that the rank reads without workers. They are every (world size ×
    /// workers)-th index, so all ranks and their workers together read each item once. Use this in
    /// an iterable dataset, which a loader does not distribute among the ranks:
    ///
    /// ```
    /// use slotline::{Ranks, worker_info};
    ///
    /// let files = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"];
    /// let ranks = Ranks::new(1, 2)?;
    /// let mine = ranks.share(files.len(), worker_info()).map(|i| files[i]); // as a dataset's `iter` does it
    /// assert!(mine.eq(["b.txt", "d.txt"]));
    /// # Ok::<(), slotline::ranks::RanksError>(())
    /// ```
    ///
    /// With fewer items than ranks × workers, some workers have nothing to read.
    pub fn share(&self, len: usize, worker: Option<WorkerInfo>) -> StepBy<Range<usize>> {
        let (id, workers) = worker.map_or((0, 1), |worker| (worker.id(), worker.num_workers()));
        let first = self.rank.saturating_add(id.saturating_mul(self.world_size));
        (first.min(len)..len).step_by(self.world_size.saturating_mul(workers))
    }

    /// Returns the number of this process among those on its machine, if the launcher provides it.
    pub const fn local_rank(&self) -> Option<usize> {
        self.local_rank
    }

    /// Returns the number of processes on this machine, if the launcher provides it.
    pub const fn local_world_size(&self) -> Option<usize> {
        self.local_world_size
    }

    /// Returns the launcher whose variables were found in the environment.
    pub fn launcher(&self) -> Option<&'static str> {
        self.launcher_c_str().and_then(|launcher| launcher.to_str().ok())
    }

    /// Returns the launcher like [`launcher`](Self::launcher), for the C interface.
    #[doc(hidden)]
    pub fn launcher_c_str(&self) -> Option<&'static CStr> {
        self.found.map(|found| found.launcher)
    }
}

impl Default for Ranks {
    fn default() -> Self {
        Self::ALONE
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.world_size)?;
        match &self.found {
            Some(Found { launcher, rank, world_size }) => {
                write!(f, " ({rank} and {world_size} of {})", launcher.to_string_lossy())
            }
            None => Ok(()),
        }
    }
}

/// The error for impossible or contradictory ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The rank is not below the world size.
    #[error("rank {rank} is not one of {world_size}; ranks count from 0 to world_size - 1")]
    Rank {
        /// The rank.
        rank: usize,
        /// The world size.
        world_size: usize,
    },
    /// A variable of the environment is not a number.
    #[error(
        "the environment has {variable}={value}, which is not a number of processes; unset it, or pass the ranks explicitly"
    )]
    NotANumber {
        /// The variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
    },
    /// Only one of a pair of variables is set.
    #[error("the environment has {set} but not {missing}; set both or neither, or pass the ranks explicitly")]
    Incomplete {
        /// The variable that is set.
        set: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// A launcher's rank is not below its number of ranks.
    #[error("the environment has {rank}={value}, but {world_size}={count}; ranks count from 0 to {world_size} - 1")]
    Impossible {
        /// The variable with the rank.
        rank: &'static str,
        /// The rank.
        value: usize,
        /// The variable with the number of ranks.
        world_size: &'static str,
        /// The number of ranks.
        count: usize,
    },
    /// Two launchers contradict each other.
    #[error("{first} and {second} contradict each other{why}; unset one's variables, or pass the ranks explicitly")]
    Contradiction {
        /// The values of the first launcher.
        first: String,
        /// The values of the second launcher.
        second: String,
        /// The consequence of the contradiction, if it is not obvious; otherwise empty.
        why: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_workers_read_each_item_once() {
        for (len, world_size, workers) in [(0, 3, 2), (5, 3, 2), (6, 3, 2), (100, 3, 2), (100, 1, 4), (100, 7, 1)] {
            let mut seen = vec![0; len];
            for rank in 0..world_size {
                for id in 0..workers {
                    let worker = Some(WorkerInfo::new(id, workers, 0));
                    let share = Ranks::new(rank, world_size).unwrap().share(len, worker);
                    assert!(share.len().abs_diff(len / (world_size * workers)) <= 1, "shares differ by one at most");
                    share.for_each(|item| seen[item] += 1);
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{seen:?}");
        }
        assert!(Ranks::ALONE.share(3, None).eq(0..3));
        let last = Ranks::new(usize::MAX - 1, usize::MAX).unwrap();
        assert_eq!(last.share(9, Some(WorkerInfo::new(7, 8, 0))).count(), 0);
    }
}
