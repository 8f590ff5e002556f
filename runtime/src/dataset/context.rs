//! What a dataset gets beside the index: random numbers of the sample's own, and memory to reuse.

use std::any::Any;
use std::fmt;

use crate::dtype::{DType, Element};
use crate::rng::SampleRng;

/// One thread's surroundings while it reads one sample.
///
/// Its random numbers are a function of the loader's seed, the epoch and the sample's position in the pass: the same
/// for any number of workers, whoever reads the sample. Its memory belongs to the thread and is reused from sample to
/// sample.
pub struct Context {
    seed: u64,
    epoch: u32,
    position: u64,
    worker: Option<usize>,
    rng: Option<SampleRng>,
    /// In words, for alignment.
    buffer: Vec<u64>,
    locals: Vec<Box<dyn Any + Send>>,
}

impl Context {
    pub(crate) fn new(worker: Option<usize>) -> Self {
        // No `Default`: a dataset could put a fresh context in place of its own, and so lose its place in the pass.
        Self { seed: 0, epoch: 0, position: 0, worker, rng: None, buffer: Vec::new(), locals: Vec::new() }
    }

    /// Starts a pass.
    pub(crate) fn start_pass(&mut self, seed: u64, epoch: u32) {
        (self.seed, self.epoch) = (seed, epoch);
    }

    /// Starts a sample.
    #[inline]
    pub(crate) fn start_sample(&mut self, position: usize) {
        self.position = position as u64;
        self.rng = None;
    }

    /// This sample's random numbers; asking again goes on with them.
    #[inline]
    pub fn rng(&mut self) -> &mut SampleRng {
        self.rng.get_or_insert_with(|| SampleRng::new(self.seed, self.epoch, self.position))
    }

    /// The sample's place in the pass, from 0.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many passes the loader made before this one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Which worker reads the sample; `None` on the consumer's own thread.
    pub fn worker(&self) -> Option<usize> {
        self.worker
    }

    /// Memory for `len` elements, with some earlier contents: allocated only when longer than ever before.
    pub fn buffer<T: Element>(&mut self, len: usize) -> &mut [T] {
        let words = len.saturating_mul(size_of::<T>()).div_ceil(size_of::<u64>());
        if self.buffer.len() < words {
            self.buffer.resize(words, 0);
        }
        if T::DTYPE == DType::Bool {
            self.buffer[..words].fill(0);
        }
        // SAFETY: the words hold at least `len` elements, are aligned for any element type, initialised, and any bits
        // are a value of every element type but bool, for which they are zero.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), len) }
    }

    /// The thread's own `T`, made on first use and kept: a decoder, a file handle, buffers of other kinds.
    pub fn local<T: Default + Send + 'static>(&mut self) -> &mut T {
        let known = self.locals.iter().position(|local| local.is::<T>());
        let place = known.unwrap_or_else(|| {
            self.locals.push(Box::<T>::default());
            self.locals.len() - 1
        });
        self.locals[place].downcast_mut().expect("was found by its type")
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("epoch", &self.epoch)
            .field("position", &self.position)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::rand_core::Rng;

    #[test]
    fn random_numbers_belong_to_the_sample_and_go_on_within_it() {
        let mut cx = Context::new(None);
        cx.start_pass(7, 1);
        cx.start_sample(3);
        let drawn = [cx.rng().next_u64(), cx.rng().next_u64()];
        assert_ne!(drawn[0], drawn[1]);
        cx.start_sample(4);
        assert_ne!(cx.rng().next_u64(), drawn[0]);
        let mut other = Context::new(Some(5));
        other.start_pass(7, 1);
        other.start_sample(3);
        assert_eq!([other.rng().next_u64(), other.rng().next_u64()], drawn);
    }

    #[test]
    fn memory_is_reused() {
        let mut cx = Context::new(None);
        let place = cx.buffer::<f64>(100).as_ptr() as usize;
        cx.buffer::<u8>(800).fill(255);
        assert_eq!(cx.buffer::<u16>(400).as_ptr() as usize, place);
        assert!(cx.buffer::<bool>(800).iter().all(|&b| !b));
        cx.local::<Vec<String>>().push("kept".into());
        *cx.local::<u32>() += 1;
        assert_eq!((cx.local::<Vec<String>>().len(), *cx.local::<u32>()), (1, 1));
    }
}
