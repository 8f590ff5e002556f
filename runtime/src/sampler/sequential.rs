//! Sequential order.

use std::ops::Range;

use super::saved::{Saved, put};
use super::{Order, Sampler, SamplerError};
use crate::BoxError;
use crate::rng::Generator;

/// Visits 0, 1, 2, … once each (`torch.utils.data.SequentialSampler`). Needs no memory and draws no
/// random numbers.
///
/// ```
/// use slotline::sampler::{Sampler, SequentialSampler};
///
/// assert!(SequentialSampler::new(4).indices()?.eq([0, 1, 2, 3]));
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SequentialSampler {
    len: usize,
}

impl SequentialSampler {
    /// Makes a sampler over a dataset of `dataset_len` samples, which may be 0.
    pub fn new(dataset_len: usize) -> Self {
        Self { len: dataset_len }
    }
}

impl Sampler for SequentialSampler {
    fn len(&self) -> usize {
        self.len
    }

    fn memory(&self) -> usize {
        0
    }

    fn order(&mut self, _default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        *order = Order::Range(self.len);
        Ok(())
    }

    fn name(&self) -> &str {
        "SequentialSampler"
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "dataset_len", self.len);
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        Saved { sampler: "SequentialSampler", text: saved }.check("dataset_len", self.len)
    }
}
