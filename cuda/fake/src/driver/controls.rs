//! The functions that the client calls in the library.

use std::ffi::c_void;

use super::kernel::{HostFunction, Watch};
use super::{Fail, lock};
use crate::control::{Controls, HostKernel, Lines, Live, Number, Options, Sink, VERSION};

static CONTROLS: Controls =
    Controls { version: VERSION, reset, live, number, count, lines, fail, skip, hold, advance, kernel, watch, read_on };

#[unsafe(no_mangle)]
extern "C" fn slotline_fake_controls() -> *const Controls {
    &raw const CONTROLS
}

extern "C" fn reset(options: *const Options) -> Live {
    // SAFETY: the client passes a pointer to valid options.
    let options = unsafe { (*options).clone() };
    lock().reset(options)
}

extern "C" fn live() -> Live {
    lock().live()
}

extern "C" fn number(which: Number) -> u64 {
    let driver = lock();
    match which {
        Number::Calls => driver.calls,
        Number::PageableCopies => driver.pageable_copies,
        Number::Pending => driver.pending() as u64,
    }
}

extern "C" fn count(name: *const u8, len: usize) -> u64 {
    lock().counts.get(text(name, len).as_str()).copied().unwrap_or(0)
}

extern "C" fn lines(which: Lines, sink: Sink, to: *mut c_void) {
    let driver = lock();
    let lines = match which {
        Lines::Violations => &driver.violations,
        Lines::Trace => &driver.trace,
    };
    for line in lines {
        sink(to, line.as_ptr(), line.len());
    }
}

extern "C" fn fail(calls_left: u64, code: u32, sticky: bool) {
    lock().fail = (code != 0).then_some(Fail { calls_left, code, sticky });
}

extern "C" fn skip(gates: u32) {
    lock().skipped = gates;
}

extern "C" fn hold(held: bool) {
    lock().held = held;
}

extern "C" fn advance(steps: u64) -> u64 {
    lock().advance(steps)
}

extern "C" fn kernel(name: *const u8, len: usize, run: HostKernel, user: *mut c_void) {
    lock().kernels.insert(text(name, len), HostFunction { run, user: user as usize });
}

extern "C" fn watch(name: *const u8, len: usize, pointer: usize, count: usize, unit: usize) {
    lock().watches.entry(text(name, len)).or_default().push(Watch { pointer, count, unit });
}

extern "C" fn read_on(stream: *mut c_void, from: u64, bytes: usize) -> u32 {
    lock().read_on(stream as usize, from as usize, bytes).err().unwrap_or(0)
}

fn text(text: *const u8, len: usize) -> String {
    // SAFETY: the client passes the address and length of a string.
    let bytes = unsafe { std::slice::from_raw_parts(text, len) };
    String::from_utf8_lossy(bytes).into_owned()
}
