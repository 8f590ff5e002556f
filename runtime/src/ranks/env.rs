//! The environment variables with which launchers tell processes their ranks.
//!
//! Launchers can be nested: `srun` can start torchrun or MPI's daemon on each machine, which then
//! starts the processes. The variables of the inner launcher are used, since it numbers the
//! processes; inner launchers come first in the list below. The outer launcher numbers only the
//! tasks in which it started the inner one. Only one thing can be checked: the inner launcher must
//! have at least as many processes as the outer one has tasks. If it has fewer, each task of the
//! outer launcher runs an inner launcher that assumes that it is the only one.

use std::ffi::CStr;

use super::{Found, Ranks, RanksError};

struct Launcher {
    name: &'static CStr,
    /// Whether the launcher numbers the processes of an MPI job. A launcher of MPI jobs cannot run
    /// inside another one.
    is_mpi: bool,
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static str,
    local_world_size: Option<&'static str>,
}

const SLURM: &CStr = c"Slurm";

const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        name: c"torchrun",
        is_mpi: false,
        rank: "RANK",
        world_size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_world_size: Some("LOCAL_WORLD_SIZE"),
    },
    Launcher {
        name: c"PMI",
        is_mpi: true,
        rank: "PMI_RANK",
        world_size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_world_size: Some("MPI_LOCALNRANKS"),
    },
    Launcher {
        name: c"Open MPI",
        is_mpi: true,
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    Launcher {
        name: c"MVAPICH",
        is_mpi: true,
        rank: "MV2_COMM_WORLD_RANK",
        world_size: "MV2_COMM_WORLD_SIZE",
        local_rank: "MV2_COMM_WORLD_LOCAL_RANK",
        local_world_size: Some("MV2_COMM_WORLD_LOCAL_SIZE"),
    },
    Launcher {
        name: SLURM,
        is_mpi: false,
        rank: "SLURM_PROCID",
        world_size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_world_size: None, // Slurm only has a variable that lists those of all machines.
    },
];

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

fn number(get: Get<'_>, variable: &'static str) -> Result<Option<usize>, RanksError> {
    let Some(value) = get(variable).filter(|value| !value.trim().is_empty()) else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| RanksError::NotANumber { variable, value })
}

impl Launcher {
    /// Returns whether the launcher's variables, although set, do not describe this process. This
    /// concerns Slurm, which also sets some variables in a batch script outside of `srun`. The name
    /// of the job cannot decide: it is `bash` for `srun bash train.sh`, where the process is a task,
    /// and also in an interactive shell from which `srun` may start a program.
    fn is_absent(&self, get: Get<'_>) -> bool {
        self.name == SLURM && get(self.world_size).is_none()
    }

    fn ranks(&self, get: Get<'_>) -> Result<Option<Ranks>, RanksError> {
        if self.is_absent(get) {
            return Ok(None);
        }
        let incomplete = |set, missing| Err(RanksError::Incomplete { set, missing });
        let (rank, world_size) = match (number(get, self.rank)?, number(get, self.world_size)?) {
            (None, None) => return Ok(None),
            (Some(_), None) => return incomplete(self.rank, self.world_size),
            (None, Some(_)) => return incomplete(self.world_size, self.rank),
            (Some(rank), Some(world_size)) => (rank, world_size),
        };
        let (local_rank, local_world_size) =
            (number(get, self.local_rank)?, self.local_world_size.map_or(Ok(None), |name| number(get, name))?);
        let impossible =
            |rank, value, world_size, count| Err(RanksError::Impossible { rank, value, world_size, count });
        if rank >= world_size {
            return impossible(self.rank, rank, self.world_size, world_size);
        }
        let (of, count) = self.local_world_size.zip(local_world_size).unwrap_or((self.world_size, world_size));
        if let Some(local) = local_rank.filter(|&local| local >= count) {
            return impossible(self.local_rank, local, of, count);
        }
        let found = Found { launcher: self.name, rank: self.rank, world_size: self.world_size };
        Ok(Some(Ranks { rank, world_size, local_rank, local_world_size, found: Some(found) }))
    }
}

pub(super) fn find(get: Get<'_>) -> Result<Option<Ranks>, RanksError> {
    let mut first: Option<(&Launcher, Ranks)> = None;
    for launcher in &LAUNCHERS {
        let Some(ranks) = launcher.ranks(get)? else { continue };
        let Some((inner, found)) = &first else {
            first = Some((launcher, ranks));
            continue;
        };
        let differs = (found.rank, found.world_size) != (ranks.rank, ranks.world_size);
        let why = if inner.is_mpi && launcher.is_mpi && differs {
            ""
        } else if found.world_size < ranks.world_size {
            ": each of the second one's tasks would load the whole dataset"
        } else {
            continue;
        };
        return Err(RanksError::Contradiction { first: found.to_string(), second: ranks.to_string(), why });
    }
    Ok(first.map(|(_, ranks)| ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Ranks>, String> {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Ranks::from_vars(get).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn says(variables: &[(&str, &str)], want: &str) {
        assert_eq!(found(variables).unwrap().unwrap().to_string(), want);
    }

    #[track_caller]
    fn fails(variables: &[(&str, &str)], want: &str) {
        let error = found(variables).unwrap_err();
        assert!(error.contains(want), "{error}");
    }

    const TORCHRUN: [(&str, &str); 4] =
        [("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];

    #[test]
    fn each_launcher_is_found() {
        assert_eq!(found(&[]), Ok(None));
        says(&TORCHRUN, "rank 3 of 8 (RANK and WORLD_SIZE of torchrun)");
        let ranks = found(&TORCHRUN).unwrap().unwrap();
        assert_eq!(
            (ranks.local_rank(), ranks.local_world_size(), ranks.launcher()),
            (Some(1), Some(2), Some("torchrun"))
        );
        says(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], "rank 0 of 2 (PMI_RANK and PMI_SIZE of PMI)");
        let ompi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
        says(&ompi, "rank 1 of 2 (OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE of Open MPI)");
        says(
            &[("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "2")],
            "rank 1 of 2 (MV2_COMM_WORLD_RANK and MV2_COMM_WORLD_SIZE of MVAPICH)",
        );
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_LOCALID", "1")];
        says(&slurm, "rank 1 of 4 (SLURM_PROCID and SLURM_STEP_NUM_TASKS of Slurm)");
    }

    #[test]
    fn only_tasks_of_slurm_are_ranks() {
        // A batch script outside of srun.
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Ok(None));
        // srun -n 4 bash train.sh
        let script = [("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_JOB_NAME", "bash")];
        says(&script, "rank 2 of 4 (SLURM_PROCID and SLURM_STEP_NUM_TASKS of Slurm)");
        // The shell that `salloc` starts has the job's number of tasks, but is a single process.
        let shell = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "4")];
        says(&shell, "rank 0 of 1 (SLURM_PROCID and SLURM_STEP_NUM_TASKS of Slurm)");
    }

    #[test]
    fn inner_launchers_count() {
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
        says(&[&TORCHRUN[..], &slurm].concat(), "rank 3 of 8 (RANK and WORLD_SIZE of torchrun)");
        let mpi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        says(&mpi, "rank 1 of 2 (PMI_RANK and PMI_SIZE of PMI)");
    }

    #[test]
    fn contradictions_are_errors() {
        let alone = [("RANK", "0"), ("WORLD_SIZE", "1"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
        fails(&alone, "each of the second one's tasks would load the whole dataset");
        let mpi = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        fails(&mpi, "contradict each other; unset");
        fails(&[("RANK", "0")], "the environment has RANK but not WORLD_SIZE; set both or neither");
        fails(&[("WORLD_SIZE", "2")], "the environment has WORLD_SIZE but not RANK");
        fails(&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK=2, but WORLD_SIZE=2; ranks count from 0");
        fails(&[("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK=-1, which is not a number");
        fails(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "2")], "LOCAL_RANK=2, but WORLD_SIZE=2");
    }
}
