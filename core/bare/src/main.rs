//! The rings where there is no operating system, no heap and no thread: an interrupt is the other side.
//!
//! Run by `proof/no-std` on QEMU's mps2-an385 (a Cortex-M3: 32-bit pointers), which counts instructions, so that a run
//! is the same each time and an interrupt can be put between any two instructions of the main loop.
//!
//! - [`tick`]: the interrupt; [`sleep`]: waiting for it; [`sweep`]: having it between any two instructions.
//! - [`single`]: the SPSC ring. [`ordered`], [`points`]: the ordered ring. [`narrow`]: what 32 bits change.
//! - [`naive`]: what is not sound, to show that this program would see it.
//!
//! Its argument is a number that the lengths of gaps between interrupts follow from, or `must-fail`, with which it fails.
#![no_std]
#![no_main]

mod naive;
mod narrow;
mod ordered;
mod points;
mod row;
mod shared;
mod single;
mod sleep;
mod sweep;
mod tick;

use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::debug::{self, ExitStatus};
use cortex_m_semihosting::{hprintln, nr, syscall};

#[entry]
fn main() -> ! {
    let mut line = [0; 128];
    let argument = argument(&mut line);
    tick::init(cortex_m::Peripherals::take().expect("taken once").SYST, argument.parse().unwrap_or(1));
    let (wrong, rounds) = naive::counts();
    hprintln!("an interrupt spoils a careless count at {} of {} moments", wrong, rounds);
    assert!(wrong > 0, "no interrupt comes between a load and a store");
    assert!(argument != "must-fail", "a careless count is as wrong as it must be");
    single::check();
    ordered::check();
    points::check();
    narrow::check();
    hprintln!("all is well after {} interrupts", tick::count());
    debug::exit(ExitStatus::Ok(()));
    unreachable!("the emulator has ended")
}

/// The last word of the emulator's command line.
fn argument(line: &mut [u8]) -> &str {
    let mut block = [line.as_mut_ptr() as usize, line.len()];
    // SAFETY: the host writes at most so many bytes there, and their number into the block.
    let refused = unsafe { syscall(nr::GET_CMDLINE, &mut block) };
    let line = if refused == 0 { &line[..block[1]] } else { &[] };
    str::from_utf8(line).unwrap_or_default().rsplit(' ').next().unwrap_or_default()
}

#[panic_handler]
fn failed(info: &PanicInfo<'_>) -> ! {
    cortex_m::interrupt::disable();
    hprintln!("FAILED: {}", info);
    loop {
        debug::exit(ExitStatus::Err(()));
    }
}
