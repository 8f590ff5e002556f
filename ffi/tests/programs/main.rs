//! C and C++ programs that are compiled and run: the examples, those of the README, the tests of
//! the C++ layer, and users of installed packages.

#[path = "../native/mod.rs"]
mod native;

#[cfg(not(delays))]
mod address_sanitizer;
mod examples;
mod layer;
mod orders;
mod packaging;
#[cfg(feature = "image")]
mod pictures;
mod readme;
#[cfg(not(delays))]
mod thread_sanitizer;
mod written;
