//! Builds a loader from its options.

pub(crate) mod per_worker;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
pub(crate) mod processes;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
pub(crate) mod processes_separate;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
pub(crate) mod share;
pub(crate) mod shared;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
pub(crate) mod spawned;
