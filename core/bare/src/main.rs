//! Runs the rings without an operating system, a heap or threads: an interrupt takes the other side of a ring.
//!
//! `proof/no-std` runs this on QEMU's mps2-an385 (a Cortex-M3, with 32-bit pointers). It counts instructions, so that
//! every run is the same and an interrupt can be placed between any two instructions of the main loop.
//!
//! - [`tick`]: the interrupt; [`sleep`]: waiting for it; [`sweep`]: placing it between any two instructions.
//! - [`single`]: the SPSC ring. [`ordered`], [`points`]: the ordered ring. [`narrow`]: what is different with 32 bits.
//! - [`naive`]: a counter that is not sound, to show that this program would detect a fault.
//!
//! The argument is a number that determines the lengths of the gaps between interrupts, or `must-fail`, which makes the
//! program fail.
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
    tick::init(cortex_m::Peripherals::take().expect("taken only once").SYST, argument.parse().unwrap_or(1));
    let (wrong, rounds) = naive::counts();
    hprintln!("an interrupt spoils a careless count at {} of {} moments", wrong, rounds);
    assert!(wrong > 0, "no interrupt comes between a load and a store");
    assert!(argument != "must-fail", "the careless count was wrong, as expected; failing because of must-fail");
    single::check();
    ordered::check();
    points::check();
    narrow::check();
    hprintln!("all is well after {} interrupts", tick::count());
    debug::exit(ExitStatus::Ok(()));
    unreachable!("the emulator has ended")
}

/// Returns the last word of the emulator's command line.
fn argument(line: &mut [u8]) -> &str {
    let mut block = [line.as_mut_ptr() as usize, line.len()];
    // SAFETY: the host writes at most as many bytes to the buffer as the block says, and stores their number in the
    // block.
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
