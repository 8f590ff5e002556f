//! What a loader counts and times: its work, and its waiting.

pub(crate) mod activity;
pub(crate) mod bad_samples;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod reader;
pub(crate) mod stats;
pub(crate) mod stuck;
pub(crate) mod verdict;
