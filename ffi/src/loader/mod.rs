//! Loaders and their options.
//!
//! - `interface`: creating loaders, starting passes and getting batches; `handle`: the calls that
//!   use a loader;
//! - `running`: a loader of any kind, with its pass; `options`: the options of a loader;
//! - `processes`, `spawned`: worker processes, and those started by a command;
//! - `ranks`, `state`, `stats`, `warning`: distributed runs, saved states, statistics and warnings;
//! - `sync`: the atomics of handles, which tests can delay.

mod handle;
mod interface;
mod options;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
mod processes;
mod ranks;
mod running;
mod spawned;
mod state;
mod stats;
mod sync;
mod warning;

pub use self::handle::*;
pub use self::interface::*;
pub use self::options::*;
pub use self::ranks::*;
pub use self::spawned::*;
pub use self::state::*;
pub use self::stats::*;
#[cfg(delays)]
#[doc(hidden)]
pub use self::sync::{Step, on_step};
pub use self::warning::*;

#[cfg(feature = "cuda")]
pub(crate) use self::{
    handle::Handle,
    interface::{build, take},
    running::AnyLoader,
};
