//! Target for loaders whose worker processes overwrite all memory that they share with the loader.

use std::sync::Once;
use std::time::{Duration, Instant};

use slotline::Loader;
use slotline::dataset::{Context, from_fn};
use slotline::loader::{Batch, Error};
use slotline::sample::{Packed, Sample, Text};

use crate::choices::Choices;

const SAMPLES: usize = 24;
const ROWS: usize = 3;
const WORKERS: usize = 2;
/// A number that is larger than the number of results of any pass, including errors and timeouts.
const MANY: usize = 40;
/// A run that takes longer than this counts as hanging.
const LONG: Duration = Duration::from_secs(30);

/// A change that a worker makes to a word when it reads a sample.
#[derive(Clone, Copy, Debug)]
struct Write {
    index: usize,
    mapping: usize,
    word: usize,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Set(u64),
    Flip(u32),
    /// Adds this number to the word.
    Add(u64),
    Die,
}

impl Write {
    fn choose(choices: &mut Choices<'_>) -> Self {
        // Usually choose a word in the first pages of a mapping: the shared control data of the
        // loader begins there, and the batches are small.
        let word = choices.of(&[64, 512, 4096, usize::MAX]);
        let word = choices.word() as usize % word;
        let how = match choices.below(9) {
            0 => How::Set(choices.word()),
            1 => How::Set(u64::MAX),
            2 => How::Set(0),
            3 => How::Set(choices.below(16) as u64),
            // A number like the state of a part (consecutive rows of a batch): a ticket, the worker
            // that owns the part, and a status.
            4 => How::Set((choices.below(16) << 16 | choices.below(4) << 4 | choices.below(6)) as u64),
            5 | 6 => How::Flip(choices.below(64) as u32),
            7 => How::Add(choices.of(&[1, 1 << 16, u64::MAX])),
            _ => How::Die,
        };
        Self { index: choices.below(SAMPLES), mapping: choices.below(4), word, how }
    }

    /// Makes the change, in a worker process.
    fn execute(self) {
        let mappings = shared_mappings();
        let Some(&(start, len)) = mappings.get(self.mapping % mappings.len().max(1)) else { return };
        let at = (start + self.word % (len / 8) * 8) as *mut u64;
        // SAFETY: the word is in a readable and writable mapping. The effect on the loader is what
        // the target tests.
        unsafe {
            let now = at.read_volatile();
            at.write_volatile(match self.how {
                How::Set(to) => to,
                How::Flip(bit) => now ^ 1 << bit,
                How::Add(number) => now.wrapping_add(number),
                How::Die => {
                    libc::raise(libc::SIGKILL);
                    now
                }
            });
        }
    }
}

/// Restores the default actions of signals, so that worker processes end silently. They are forks
/// of this process, and would otherwise have the signal handlers of libFuzzer.
fn be_mortal() {
    for signal in [libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGTRAP] {
        // SAFETY: restores the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn panic_silently_in_workers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (hook, this) = (std::panic::take_hook(), std::process::id());
        std::panic::set_hook(Box::new(move |info| {
            if std::process::id() == this {
                hook(info);
            }
        }));
    });
}

/// Runs a loader whose workers overwrite shared words. The bytes encode which words, with which
/// values, while reading which samples. The loader must return readable batches or errors, and must
/// end.
pub fn corrupted_memory(data: &[u8]) {
    panic_silently_in_workers();
    let mut choices = Choices::new(data);
    if choices.one_in(3) {
        const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];
        run(&mut choices, |i| (Packed::new(&NUMBERS[..i % 5], 5), i.is_multiple_of(2), Text::new("ab", 9)));
    } else {
        run(&mut choices, |index| (index as i64, [index as u8; 5]));
    }
}

fn run<S: Sample + 'static>(choices: &mut Choices<'_>, sample: fn(usize) -> S) {
    let (in_order, deals, has_init) = (!choices.one_in(3), choices.one_in(4), !choices.one_in(3));
    let timeout = choices.of(&[Duration::ZERO, Duration::ZERO, Duration::from_millis(50)]);
    let restarts = choices.of(&[100, 3, 0]);
    let mut writes = Vec::new();
    while !choices.is_over() && writes.len() < 100 {
        writes.push(Write::choose(choices));
    }
    let (parent, is_sane) = (std::process::id(), writes.is_empty() && timeout.is_zero());
    let dataset = from_fn(SAMPLES, move |index, _: &mut Context| {
        if std::process::id() != parent {
            be_mortal();
            writes.iter().filter(|write| write.index == index).for_each(|write| write.execute());
        }
        Ok(sample(index))
    });
    let builder = Loader::builder(dataset).batch_size(ROWS).num_workers(WORKERS).in_order(in_order).timeout(timeout);
    let builder = builder.round_robin(deals).memory_limit(16 << 20);
    let init = |_| {
        be_mortal();
        Ok(())
    };
    let builder = if has_init { builder.worker_init(init) } else { builder };
    let mut loader = builder.processes().restart_workers(restarts).build().expect("the options are valid");
    let begun = Instant::now();
    for _ in 0..2 {
        let Ok(pass) = loader.epoch() else { break };
        let mut whole = 0;
        for batch in pass.take(MANY) {
            whole += usize::from(read(batch));
        }
        assert!(!is_sane || whole == SAMPLES / ROWS, "{whole} batches");
        let _ = (loader.stats(), loader.is_ready());
    }
    drop(loader);
    assert!(begun.elapsed() < LONG, "the loader took {:?}", begun.elapsed());
}

/// Reads every byte of a batch. Returns whether the result is a batch.
fn read<S>(batch: Result<Batch<S>, Error>) -> bool {
    let Ok(batch) = batch else { return false };
    let text = format!("{:?} {batch:?}", batch.indices());
    let tensors = (0..batch.columns().len()).filter_map(|at| batch.columns().get(at));
    let tensors: usize = tensors.map(|tensor| format!("{tensor:?}").len()).sum();
    assert!(!text.is_empty() && tensors > 0);
    true
}

/// Returns address and size of the shared mappings of this process.
fn shared_mappings() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    let shared = maps.lines().filter(|line| line.contains(" rw-s "));
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).ok());
        Some((start?, end? - start?))
    };
    shared.filter_map(range).collect()
}
