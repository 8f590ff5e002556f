//! The limits of the machine, measured by plain loops without a loader, which write into memory
//! that is reused.

use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::ensure;
use slotline::dataset::prefetch;

use super::order;
use crate::rounds::{Entry, Pass};
use crate::workload::Source;
use crate::workload::images::Images;
use crate::workload::tokens::{CROP, Crops};
#[cfg(feature = "jpeg")]
use crate::workload::{by_hand, pictures::Pictures};

/// Runs loops on `threads` threads. Each has its own part of an order, and its own memory.
fn loops<M: Send + 'static>(
    name: &str,
    samples: usize,
    batch_size: usize,
    threads: usize,
    shuffle: bool,
    memory: impl Fn() -> M,
    body: impl Fn(&mut M, &[usize]) + Sync + 'static,
) -> Entry {
    let mut rng = fastrand::Rng::with_seed(42);
    let mut memories: Vec<M> = (0..threads).map(|_| memory()).collect();
    Entry::limit(name, move || {
        let order = order(samples, shuffle, &mut rng);
        let gate = Barrier::new(threads);
        let run = |memory: &mut M, part: &[usize]| {
            gate.wait();
            let start = Instant::now();
            body(memory, part);
            (start, Instant::now())
        };
        let spans: Vec<_> = std::thread::scope(|scope| {
            let work = memories.iter_mut().zip(order.chunks(samples.div_ceil(threads)));
            let handles: Vec<_> = work.map(|(memory, part)| scope.spawn(|| run(memory, part))).collect();
            handles.into_iter().map(|handle| handle.join().expect("the loop does not panic")).collect()
        });
        let start = spans.iter().map(|span| span.0).min().expect("a thread");
        let end = spans.iter().map(|span| span.1).max().expect("a thread");
        Ok(Pass { batches: samples as f64 / batch_size as f64, seconds: (end - start).as_secs_f64() })
    })
}

/// Copies images and labels into the memory of one batch. If `ahead` is set, prefetches the row
/// that comes `ahead` rows later.
pub fn gather(images: Images, batch_size: usize, threads: usize, ahead: Option<usize>, name: &str) -> Entry {
    let row = images.row_len();
    let memory = move || (vec![1_u8; batch_size * row], vec![1_i64; batch_size]);
    let body = move |(pixels, labels): &mut (Vec<u8>, Vec<i64>), part: &[usize]| {
        for (i, &index) in part.iter().enumerate() {
            if let Some(&next) = ahead.and_then(|ahead| part.get(i + ahead)) {
                prefetch(images.row(next));
            }
            let place = i % batch_size;
            pixels[place * row..][..row].copy_from_slice(images.row(index));
            labels[place] = images.label(index);
            black_box((&mut *pixels, &mut *labels));
        }
    };
    loops(name, images.len(), batch_size, threads, true, memory, body)
}

/// Converts crops of tokens to i64, into the memory of one batch.
pub fn widen(crops: Crops, batch_size: usize, threads: usize, name: &str) -> Entry {
    let memory = move || [vec![1_i64; batch_size * CROP], vec![1_i64; batch_size * CROP]];
    let body = move |wide: &mut [Vec<i64>; 2], part: &[usize]| {
        for (i, &index) in part.iter().enumerate() {
            let (crop, place) = (crops.crop(index), i % batch_size * CROP);
            for (to, from) in wide.iter_mut().zip([&crop[..CROP], &crop[1..]]) {
                to[place..][..CROP].iter_mut().zip(from).for_each(|(to, &token)| *to = i64::from(token));
            }
            black_box(&mut *wide);
        }
    };
    loops(name, Source::len(&crops), batch_size, threads, false, memory, body)
}

/// Decodes whole pictures, and resizes and normalises them into the memory of one batch.
#[cfg(feature = "jpeg")]
pub fn decode(pictures: Pictures, batch_size: usize, threads: usize, name: &str) -> Entry {
    let samples = pictures.len();
    let memory = move || vec![1_f32; batch_size * by_hand::ELEMENTS];
    let body = move |batch: &mut Vec<f32>, part: &[usize]| {
        for (i, &index) in part.iter().enumerate() {
            let out = &mut batch[i % batch_size * by_hand::ELEMENTS..][..by_hand::ELEMENTS];
            by_hand::normalise(&pictures.get(index).0, false, out);
            black_box(&mut *batch);
        }
    };
    loops(name, samples, batch_size, threads, false, memory, body)
}

/// Kills a process that holds the same memory as this one, and waits until it has ended.
pub fn death(name: &str) -> Entry {
    Entry::limit(name, || {
        // SAFETY: the child only waits for a signal.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: the call waits for a signal.
                unsafe { libc::pause() };
            }
        }
        ensure!(child > 0, "cannot fork: {}", io::Error::last_os_error());
        let start = Instant::now();
        // SAFETY: the child was not waited for, so its id has not been reused.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        Ok(Pass::since(start, 1.0))
    })
}
