//! The fuzz targets: one function each, which takes a fuzzer's bytes and panics if slotline misbehaves. The README explains
//! how to run them with libFuzzer or as ordinary tests.

mod c_abi;
mod c_threads;
mod came;
mod choices;
mod files;
mod iterable;
#[cfg(feature = "jpeg")]
mod jpeg;
mod lies;
mod loader;
#[cfg(target_os = "linux")]
mod mad_workers;
#[cfg(target_os = "linux")]
#[path = "../../runtime/tests/support/mappings.rs"]
mod mappings;
mod ordered;
#[cfg(feature = "jpeg")]
mod pictures;
#[cfg(feature = "jpeg")]
mod pipelines;
#[path = "../../runtime/tests/support/plain.rs"]
mod plain;
mod sources;
mod spsc;
mod state;
mod values;

pub use self::c_abi::c_abi;
pub use self::c_threads::c_threads;
pub use self::files::{idx, npy};
pub use self::iterable::iterable;
#[cfg(feature = "jpeg")]
pub use self::jpeg::jpeg;
pub use self::lies::{lies, lying_rings};
pub use self::loader::loader;
#[cfg(target_os = "linux")]
pub use self::mad_workers::mad_workers;
pub use self::ordered::ordered;
#[cfg(feature = "jpeg")]
pub use self::pictures::pictures;
#[cfg(feature = "jpeg")]
pub use self::pipelines::pipelines;
pub use self::sources::sources;
pub use self::spsc::spsc;
pub use self::state::state;
pub use self::values::values;
