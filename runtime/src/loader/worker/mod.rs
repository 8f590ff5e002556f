//! The worker threads, and how a thread processes what it has claimed.

pub(crate) mod backoff;
pub(crate) mod cancel;
pub(crate) mod claim_size;
pub(crate) mod claimed;
pub(crate) mod engine;
pub(crate) mod init_barrier;
pub(crate) mod liveness;
pub(crate) mod map_job;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod skip;
pub(crate) mod threads;
pub(crate) mod timing;
pub(crate) mod watchdog;
pub(crate) mod workers;
