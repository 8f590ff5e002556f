//! Loaders and their options.
//!
//! - `interface`: loaders are made, and deliver passes and batches; `handle`: the calls in a loader;
//! - `running`: a loader of any kind, with its pass; `options`: how data is loaded;
//! - `processes`, `spawned`: workers that are processes, and those that a command starts;
//! - `ranks`, `state`, `stats`, `warning`: several processes, positions, statistics and warnings;
//! - `sync`: the atomics of handles, which tests can slow down.

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
