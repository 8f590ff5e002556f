//! C and C++ programs that are compiled and run: the examples, the README's, the C++ layer's, and installed packages.

#[path = "../native/mod.rs"]
mod native;

#[cfg(not(any(delays, feature = "image")))]
mod address_sanitizer;
mod compose;
#[cfg(unix)]
mod ends;
mod examples;
mod layer;
mod orders;
mod packaging;
#[cfg(feature = "image")]
mod pictures;
mod readme;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(all(target_os = "linux", not(delays)))]
mod spawned;
#[cfg(not(any(delays, feature = "image")))]
mod thread_sanitizer;
