//! Measures the bandwidth of the link: copies from page-locked memory, back to back, with no other
//! work. For comparison, it also measures copies from memory that is not page-locked, which the
//! driver first copies to a buffer on the host.

use anyhow::Result;
use cudarc::driver::CudaSlice;
use serde::Serialize;
use slotline::arena::Memory;
use slotline_cuda::{Device, PageSize, Pinned, TimedEvent};

use crate::bench::Bench;
use crate::gpu::Training;
use crate::spread::Spread;

/// The bandwidth of copies of one size.
#[derive(Debug, Serialize)]
pub(crate) struct Copy {
    pub(crate) bytes: usize,
    /// The kind of host memory: see [`KINDS`], or `pageable`.
    pub(crate) memory: &'static str,
    /// The bandwidth, in 10⁹ bytes per second.
    pub(crate) gb_per_s: Spread,
}

/// A function that allocates page-locked memory.
type Lock = fn(&Device, usize) -> Result<Pinned, slotline_cuda::Error>;

/// Each kind of page-locked memory, and the function that allocates it.
pub(super) const KINDS: [(&str, Lock); 3] = [
    ("registered", Pinned::registered),
    ("registered, small pages", |device, bytes| Pinned::registered_on(device, bytes, PageSize::Small)),
    ("allocated", Pinned::allocated),
];

pub(crate) fn run(bench: &Bench) -> Result<Vec<Copy>> {
    let training = bench.gpu.stream()?;
    let scale = &bench.scale;
    let most = scale.copies.iter().copied().max().unwrap_or_default();
    let link = Link::new(bench, &training, most)?;
    let mut locked = Vec::new();
    for (name, lock) in KINDS {
        locked.push((name, lock(&bench.gpu.device, most)?));
    }
    let pageable = vec![7; most];
    let mut sources: Vec<_> = locked.iter().map(|(name, memory)| (*name, bytes_of(memory), Vec::new())).collect();
    sources.push(("pageable", &pageable[..], Vec::new()));
    let mut figures = Vec::new();
    for &bytes in &scale.copies {
        for _ in 0..scale.rounds {
            for (_, source, values) in &mut sources {
                values.push(link.gb_per_s(source, bytes, scale.copied)?);
            }
        }
        for (memory, _, values) in &mut sources {
            let gb_per_s = Spread::of(values.drain(..)).expect("there is at least one round");
            figures.push(Copy { bytes, memory, gb_per_s });
        }
    }
    Ok(figures)
}

/// Returns the bytes of page-locked memory, which nothing may write meanwhile.
pub(super) fn bytes_of(memory: &Pinned) -> &[u8] {
    // SAFETY: the memory is readable and has this length, and the caller does not write it.
    unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), memory.len()) }
}

/// A stream with memory to copy to, and events to measure the time.
#[derive(Debug)]
pub(super) struct Link<'a> {
    training: &'a Training<'a>,
    to: CudaSlice<u8>,
    begin: TimedEvent,
    end: TimedEvent,
}

impl<'a> Link<'a> {
    pub(super) fn new(bench: &Bench, training: &'a Training<'a>, most: usize) -> Result<Self> {
        let device = &bench.gpu.device;
        let (begin, end) = (TimedEvent::new(device)?, TimedEvent::new(device)?);
        Ok(Self { training, to: training.memory(most)?, begin, end })
    }

    /// Returns the bandwidth of copies of `bytes` bytes each, in 10⁹ bytes per second. It makes as
    /// many copies as `total` bytes need, but at most 1000. They go through the memory from slot to
    /// slot, as batches do.
    pub(super) fn gb_per_s(&self, source: &[u8], bytes: usize, total: usize) -> Result<f64> {
        let copies = (total / bytes).clamp(1, 1000);
        let places = source.len() / bytes;
        let queue = || -> Result<()> {
            // One more copy comes first, so that one-time costs are not counted.
            for copy in 0..=copies {
                if copy == 1 {
                    self.begin.record(&self.training.seen)?;
                }
                let from = &source[copy % places * bytes..][..bytes];
                // SAFETY: `from` and `self.to` live until the stream has reached this point, which
                // `synchronize` below waits for.
                unsafe { self.training.copy(from, &self.to) }?;
            }
            Ok(self.end.record(&self.training.seen)?)
        };
        let queued = queue();
        // Waits also if a copy was refused, since earlier copies still read the memory. If waiting
        // fails, nothing runs on the device any more.
        let ended = self.training.synchronize();
        queued.and(ended)?;
        let seconds = self.end.elapsed_since(&self.begin)?.as_secs_f64();
        Ok((bytes * copies) as f64 / seconds.max(1e-9) / 1e9)
    }
}
