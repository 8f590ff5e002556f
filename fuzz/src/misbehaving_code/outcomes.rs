//! The results of passes over misbehaving code: batches, of which every byte is read, and errors.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;

use slotline::Error;
use slotline::dtype::DType;
use slotline::loader::Batch;
use slotline::sample::Columns;
use slotline::sample::Schema;

use super::data::{fields, flags, items, pairs};
use super::{Script, Tracked, caught, discard, expected};
use crate::loader::check_row;

/// A batch that a pass returns.
pub(super) trait Outcome {
    /// Reads the whole batch. Returns the ids of the correct samples, and a digest that must not change.
    fn read(&self, script: &Arc<Script>, room: Option<usize>) -> (Vec<i64>, u64);
}

/// The batch that a collate function makes.
pub(super) struct Collated {
    pub(super) ids: Vec<i64>,
    pub(super) tracked: Tracked,
}

impl Outcome for Collated {
    fn read(&self, _: &Arc<Script>, _: Option<usize>) -> (Vec<i64>, u64) {
        self.tracked.check();
        (self.ids.clone(), self.ids.len() as u64)
    }
}

impl<S: Schema> Outcome for Batch<S> {
    fn read(&self, script: &Arc<Script>, room: Option<usize>) -> (Vec<i64>, u64) {
        let columns = self.columns();
        let rows = self.len();
        assert_eq!(self.indices().len(), rows);
        let digest = read_all(&columns, rows);
        expected(|| _ = self.tensors());
        let _ = format!("{columns:?} {self:?}");
        let as_declared = (0..columns.len()).map(|i| columns.field(i)).eq(fields(room).as_slice().iter().map(Some));
        if !as_declared {
            return (Vec::new(), digest);
        }
        let dirty = script.dirty();
        // The start of a row of a packed field depends on the rows before it.
        let ids = columns.get(0).expect("a field").typed::<i64>().expect("ids").as_slice();
        assert_eq!(ids.len(), rows);
        let in_order = !self.indices().iter().chain(ids).any(|id| dirty.contains(id));
        let mut good = Vec::new();
        for (row, &id) in ids.iter().enumerate() {
            // Bytes that a sample does not write still have the data of an earlier batch.
            if dirty.contains(&id) || dirty.contains(&self.indices()[row]) {
                continue;
            }
            check(&columns, row, id, room.is_some() && in_order);
            good.push(id);
        }
        (good, digest)
    }
}

/// Checks a row that was written correctly.
fn check(columns: &Columns<'_>, row: usize, id: i64, packed: bool) {
    check_row(columns, row, id);
    let truths = columns.get(2).expect("a field").typed::<bool>().expect("truths");
    assert_eq!(truths.as_slice()[3 * row..3 * (row + 1)], flags(id));
    if !packed {
        return;
    }
    let of = |field: usize| {
        let offsets = columns.offsets(field).expect("offsets");
        offsets[row] as usize..offsets[row + 1] as usize
    };
    let numbers = columns.get(4).expect("a field").typed::<u16>().expect("numbers");
    assert_eq!(numbers.as_slice()[of(4)], items(id));
    let doubles = columns.get(5).expect("a field").typed::<f64>().expect("pairs");
    assert_eq!(doubles.as_slice()[2 * of(5).start..2 * of(5).end], pairs(id));
}

/// Reads every byte through all accessors. Returns a digest.
fn read_all(columns: &Columns<'_>, rows: usize) -> u64 {
    let mut digest = 0_u64;
    let mut take = |bytes: &[u8]| {
        digest = bytes.iter().fold(digest, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    };
    let all = columns.bytes();
    let _ = all.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    for i in 0..columns.len() {
        let (field, tensor) = (columns.field(i).expect("a field"), columns.get(i).expect("a field"));
        take(tensor.bytes());
        if field.dtype() == DType::Bool {
            assert!(tensor.bytes().iter().all(|&byte| byte < 2), "an invalid bool");
        }
        let place = columns.place(i).expect("a field");
        if !place.spilled && !place.data.is_empty() {
            assert_eq!(all[place.data.clone()].as_ptr(), tensor.bytes().as_ptr());
            assert_eq!(place.data.len(), tensor.bytes().len());
        }
        // The ends of a field follow its elements, and the next field follows the ends.
        let end = place.ends.as_ref().map_or(place.data.end, |ends| ends.end);
        assert!(place.ends.is_none_or(|ends| place.data.end <= ends.start), "a field overlaps its ends");
        assert!(columns.place(i + 1).is_none_or(|next| end <= next.data.start), "a field overlaps the next one");
        for lengths in columns.lengths(i).into_iter().flatten() {
            assert!((0..=field.shape()[0] as i64).contains(lengths), "a length of {lengths}");
        }
        if let Some(offsets) = columns.offsets(i) {
            let total = tensor.bytes().len() / (field.shape()[1..].iter().product::<usize>() * field.dtype().size());
            assert_eq!((offsets[0], offsets[rows.min(offsets.len() - 1)]), (0, total as i64));
        }
        // Padded and packed rows store their own ranges, which may be invalid after a faulty write.
        expected(|| tensor.get(rows.wrapping_sub(1)).map(|row| row.bytes().len()));
    }
    digest
}

/// Holds batches for a while.
pub(super) struct Holder<B> {
    held: VecDeque<(B, u64)>,
    keep: usize,
    room: Option<usize>,
}

impl<B: Outcome> Holder<B> {
    pub(super) fn new(keep: usize, room: Option<usize>) -> Self {
        Self { held: VecDeque::new(), keep, room }
    }

    /// Takes a batch of a pass. Returns the ids of its correct samples.
    pub(super) fn take(&mut self, script: &Arc<Script>, batch: B) -> Vec<i64> {
        let (ids, digest) = batch.read(script, self.room);
        self.held.push_back((batch, digest));
        while self.held.len() > self.keep {
            self.drop_oldest(script);
        }
        ids
    }

    /// Drops the oldest batch, and checks that it has not changed.
    pub(super) fn drop_oldest(&mut self, script: &Arc<Script>) {
        if let Some((batch, digest)) = self.held.pop_front() {
            assert_eq!(batch.read(script, self.room).1, digest, "a batch changed while it was held");
            discard(batch);
        }
    }

    pub(super) fn empty(&mut self, script: &Arc<Script>) {
        while !self.held.is_empty() {
            self.drop_oldest(script);
        }
    }
}

/// Reads an error in every way: its message, its `Debug` output and its sources.
pub(super) fn read_error(error: Error) {
    caught(|| error.to_string());
    caught(|| format!("{error:?}"));
    caught(|| {
        let mut source = error.source();
        for _ in 0..8 {
            let Some(inner) = source else { break };
            let _ = inner.to_string();
            source = inner.source();
        }
    });
    discard(error);
}
