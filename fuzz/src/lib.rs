//! The fuzz targets. Each is a function that takes a fuzzer's bytes, and panics if slotline
//! misbehaves. The README explains how to run them with libFuzzer or as ordinary tests.

mod c_abi;
mod c_threads;
mod choices;
#[cfg(target_os = "linux")]
mod corrupted_memory;
mod files;
mod loader;
mod misbehaving_code;
mod ordered;
mod pictures;
mod pipelines;
#[path = "../../runtime/tests/support/plain.rs"]
mod plain;
mod sources;
mod spsc;
mod state;
mod values;

pub use self::c_abi::c_abi;
pub use self::c_threads::c_threads;
#[cfg(target_os = "linux")]
pub use self::corrupted_memory::corrupted_memory;
pub use self::files::{idx, npy};
pub use self::loader::{iterable, loader};
pub use self::misbehaving_code::{misbehaving_code, misbehaving_waits};
pub use self::ordered::ordered;
pub use self::pictures::pictures;
pub use self::pipelines::pipelines;
pub use self::sources::sources;
pub use self::spsc::spsc;
pub use self::state::state;
pub use self::values::values;
