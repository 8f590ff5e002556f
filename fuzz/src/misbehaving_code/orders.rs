//! Misbehaving samplers, and misbehaving iterators of indices and of batches.

use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;
use slotline::sampler::{Cipher, Order, Sampler, SamplerError};

use super::{Script, Site, Tracked};

/// A sampler of all indices in reverse order, which may misbehave.
pub(super) struct Backwards {
    pub(super) len: usize,
    pub(super) tracked: Tracked,
}

impl Backwards {
    fn script(&self) -> &Arc<Script> {
        &self.tracked.script
    }
}

impl Sampler for Backwards {
    fn len(&self) -> usize {
        self.script().pick(Site::SamplerLen, self.len, &[0, usize::MAX, self.len + 9, self.len / 2, 1])
    }

    fn memory(&self) -> usize {
        self.script().pick(Site::SamplerLen, 4 * self.len, &[usize::MAX, 0])
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        match self.script().panics(Site::SamplerOrder, 12) {
            2 => {
                order.u64_table().extend([usize::MAX as u64; 9]);
                self.script().panic()
            }
            3 => {
                order.u32_table().extend([0; 7]);
                return Err(SamplerError::NoSamples { sampler: "Backwards" });
            }
            4 => *order = Order::Range(usize::MAX),
            5 => *order = Cipher::new(usize::MAX, default.next_u64(), 3).into(),
            6 => *order = Cipher::new(2 * self.len, 1, 2).into(),
            7 => order.u64_table().extend((0..30).map(|i| u64::MAX - i)),
            8 => order.u32_table().extend([0; 500]),
            9 => _ = order.u32_table(),
            // Leaves the order of the previous pass unchanged.
            10 => {}
            11 => {
                *default = Generator::from_seed(1);
                let _ = default.next_u64();
                order.u64_table().extend(0..self.len as u64);
            }
            12 => *order = Order::U64(Vec::new()),
            _ => order.u32_table().extend((0..self.len as u32).rev()),
        }
        Ok(())
    }

    fn name(&self) -> &str {
        self.script().pick(Site::SamplerSave, "Backwards", &[""])
    }

    fn save(&self, to: &mut String) -> bool {
        let way = self.script().panics(Site::SamplerSave, 5);
        match way {
            2 => {}
            3 => to.push_str("not this state"),
            4 => to.push_str(&"\0\u{1f980}".repeat(500)),
            5 => {
                to.push('!');
                self.script().panic()
            }
            _ => to.push_str("here"),
        }
        way != 3
    }

    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        match self.script().fault(Site::SamplerRestore, 4)? {
            3 => Ok(()),
            4 => Err(format!("{seen:?} is not of this sampler").into()),
            _ if saved == "here" => Ok(()),
            _ => Err("not of this sampler".into()),
        }
    }
}

/// An iterator of consecutive indices.
pub(super) struct Indices {
    next: usize,
    len: usize,
    tracked: Tracked,
}

impl Indices {
    pub(super) fn new(script: &Arc<Script>, len: usize) -> Self {
        script.panics(Site::Indices, 8);
        Self { next: 0, len, tracked: script.tracked() }
    }
}

impl Iterator for Indices {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        match self.tracked.script.panics(Site::Indices, 7) {
            2 => return None,
            3 => return Some(usize::MAX),
            4 => return Some(self.len),
            5 => self.len = (self.len + 9).min(300),
            6 => self.next = 0,
            _ => {}
        }
        self.next += 1;
        (self.next <= self.len).then(|| self.next - 1)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The first two hints are wrong. The last one is correct, so that this fault does nothing.
        let wrong = [(usize::MAX, None), (usize::MAX, Some(0)), (0, None)];
        self.tracked.script.pick(Site::Indices, (0, None), &wrong)
    }
}

/// The declared maximum length of a batch.
pub(super) const MAX_IN_LIST: usize = 4;

/// An iterator of batches of indices.
pub(super) struct Lists(pub(super) Indices);

impl Iterator for Lists {
    type Item = List;

    fn next(&mut self) -> Option<List> {
        let script = self.0.tracked.script.clone();
        let list = match script.panics(Site::Lists, 4) {
            2 => vec![0; 9],
            3 => return Some(List(Vec::new(), script.tracked())),
            4 => vec![usize::MAX; 4],
            _ => (0..3).map_while(|_| self.0.next()).collect(),
        };
        (!list.is_empty()).then(|| List(list, script.tracked()))
    }
}

pub(super) struct List(Vec<usize>, Tracked);

impl AsRef<[usize]> for List {
    fn as_ref(&self) -> &[usize] {
        self.1.script.pick(Site::Lists, self.0.as_slice(), &[&[], &[3; 100]])
    }
}
