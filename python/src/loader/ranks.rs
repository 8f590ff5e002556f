//! The ranks of a distributed run: finding this process's rank, and merging the states of all
//! ranks.

use pyo3::prelude::*;
use slotline::Ranks;
use slotline::loader::State;
use slotline_python_shielded::shielded;

use super::failure;

/// Rank, world size, local rank, local world size, and the launcher's name.
type Found = (usize, usize, Option<usize>, Option<usize>, String);

/// Returns the rank that the launcher of this process has put into its environment.
#[shielded]
#[pyfunction]
pub(crate) fn ranks_from_env(py: Python<'_>) -> PyResult<Option<Found>> {
    let ranks = Ranks::from_env().map_err(|error| failure::option(py, error.to_string()))?;
    Ok(ranks.map(|ranks| {
        let local = (ranks.local_rank(), ranks.local_world_size());
        (ranks.rank(), ranks.world_size(), local.0, local.1, ranks.launcher().unwrap_or_default().to_owned())
    }))
}

/// Merges the states of all ranks into one, as JSON.
#[shielded]
#[pyfunction]
pub(crate) fn merge_states(py: Python<'_>, states: Vec<String>) -> PyResult<String> {
    let states: Result<Vec<State>, _> = states.iter().map(|state| serde_json::from_str(state)).collect();
    let states = states.map_err(|error| failure::no_state(py, &error))?;
    let merged = State::merge(&states).map_err(|error| failure::state(py, &error))?;
    serde_json::to_string(&merged).map_err(|error| failure::no_state(py, &error))
}
