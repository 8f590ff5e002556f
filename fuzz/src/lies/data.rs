//! Samples that differ from their declaration, and map-style datasets that return them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, LengthMismatch, Rows};
use slotline::dtype::DType;
use slotline::sample::{Columns, Fields, Row, Sample, Schema};
use slotline::tensor::TensorView;

use super::{Script, Site, Tracked};
use crate::choices::Choices;

/// The maximum length of a text.
pub(super) const MAX_TEXT: usize = 5;

/// The fields of a correct sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) packed: bool,
    /// The capacity of the packed fields.
    pub(super) room: usize,
    pub(super) empty: bool,
}

impl Shape {
    pub(super) fn choose(choices: &mut Choices<'_>) -> Self {
        Self { packed: choices.one_in(2), room: choices.of(&[4, 0, 1, 4]), empty: choices.one_in(4) }
    }

    /// Declares the fields of a correct sample.
    pub(super) fn declare(&self, fields: &mut Fields) {
        fields.fixed(DType::I64, &[]);
        fields.fixed(DType::U8, &[2, 3]);
        fields.fixed(DType::Bool, &[3]);
        fields.ragged(DType::U8, MAX_TEXT);
        if self.packed {
            fields.packed(DType::U16, &[], self.room);
            fields.packed(DType::F64, &[2], self.room);
        }
        if self.empty {
            fields.fixed(DType::F32, &[3, 0, 5]);
        }
    }

    pub(super) fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        self.declare(&mut fields);
        fields
    }
}

pub(super) fn pixels(id: i64) -> [u8; 6] {
    std::array::from_fn(|i| (id.wrapping_mul(31).wrapping_add(i as i64 * 7) >> (i % 3)) as u8)
}

pub(super) fn flags(id: i64) -> [bool; 3] {
    std::array::from_fn(|i| id >> i & 1 == 1)
}

pub(super) fn text(id: i64) -> &'static [u8] {
    &b"abcde"[..id.rem_euclid(MAX_TEXT as i64 + 1) as usize]
}

pub(super) fn items(id: i64) -> Vec<u16> {
    (0..id.rem_euclid(4)).map(|i| id.wrapping_mul(5).wrapping_add(i) as u16).collect()
}

pub(super) fn pairs(id: i64) -> Vec<f64> {
    (0..id.rem_euclid(3) * 2).map(|i| id.wrapping_mul(3).wrapping_add(i) as f64).collect()
}

/// A sample that may misbehave.
pub(super) struct FaultySample {
    pub(super) id: i64,
    /// The entry of [`Batch::indices`](slotline::loader::Batch::indices) for its row: the requested index, or the place in a
    /// stream.
    pub(super) place: i64,
    pub(super) shape: Shape,
    pub(super) tracked: Tracked,
}

impl FaultySample {
    fn script(&self) -> &Arc<Script> {
        &self.tracked.script
    }

    /// Writes one field as declared.
    fn field(&self, row: &mut Row<'_>, field: usize) -> Result<(), BoxError> {
        match field {
            0 => row.write_one(self.id)?,
            1 => row.write(&pixels(self.id), &[2, 3])?,
            2 => row.fill::<bool>(&[3])?.copy_from_slice(&flags(self.id)),
            3 => row.write_ragged(text(self.id))?,
            4 if self.shape.packed => row.write_packed(&items(self.id), &[])?,
            5 if self.shape.packed => row.write_packed(&pairs(self.id), &[2])?,
            _ => row.write::<f32>(&[], &[3, 0, 5])?,
        }
        Ok(())
    }

    fn fields(&self) -> usize {
        4 + 2 * usize::from(self.shape.packed) + usize::from(self.shape.empty)
    }

    fn write_correctly(&self, row: &mut Row<'_>) -> Result<(), BoxError> {
        (0..self.fields()).try_for_each(|field| self.field(row, field))
    }

    /// Writes the sample, correctly or not.
    fn attempt(&self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let way = self.script().ask(Site::Write, 24);
        if way > 0 {
            self.script().dirty().extend([self.id, self.place]);
        }
        let n = self.fields();
        match way {
            1 => self.script().panic(),
            2 => return Err(self.script().error()),
            3 => {
                self.write_correctly(row)?;
                self.script().panic()
            }
            4 => {
                self.write_correctly(row)?;
                return Err(self.script().error());
            }
            5 => row.go_to(n),
            6 => row.go_to(usize::MAX),
            7 => {
                row.go_to(usize::MAX);
                row.write_one(self.id)?;
            }
            8 => (0..n).rev().try_for_each(|field| {
                row.go_to(field);
                self.field(row, field)?;
                row.go_to(n);
                Ok::<_, BoxError>(())
            })?,
            9 => {
                self.write_correctly(row)?;
                row.go_to(0);
                self.write_correctly(row)?;
            }
            10 => {
                self.write_correctly(row)?;
                row.write_one(self.id)?;
            }
            // Ignores errors.
            11 => {
                let _ = row.write(&pixels(self.id), &[6]);
                let _ = row.write(&pixels(self.id)[..3], &[2, 3]);
                let _ = row.write_ragged(&[0_u8; 99]);
                let _ = row.fill::<u64>(&[]);
                let _ = row.write_packed(&[0_u16; 5], &[2]);
                self.write_correctly(row)?;
            }
            12 => {
                row.go_to(3);
                row.write_ragged(&[b'x'; 99])?;
            }
            13 => {
                row.go_to(3);
                row.write_ragged::<u8>(&[])?;
                row.go_to(n);
            }
            // Writes far more than the capacity, after a correct write.
            14 if self.shape.packed => {
                self.write_correctly(row)?;
                row.go_to(4);
                row.write_packed(&[7_u16; 3000], &[])?;
                row.write_packed(&[7.0; 200], &[2])?;
                row.go_to(n);
            }
            15 if self.shape.packed => {
                row.go_to(5);
                row.write_packed(&[7.0; 3], &[2])?;
            }
            16 if self.shape.packed => {
                self.write_correctly(row)?;
                for count in [40, 0, 1, 7] {
                    row.go_to(4);
                    row.write_packed(&vec![3_u16; count], &[])?;
                    row.go_to(5);
                    row.write_packed(&vec![3.0; 2 * count], &[2])?;
                }
                row.go_to(n);
            }
            17 if self.shape.packed => {
                // Writes only one of the two packed fields.
                row.go_to(4);
                row.write_packed(&[9_u16; 30], &[])?;
                row.go_to(n);
            }
            18 => {
                // Only gets the pointers: writing through them is unsafe, and is not required.
                for field in 0..n {
                    row.go_to(field);
                    let _ = row.fill_raw();
                }
                row.go_to(n);
            }
            19 => {
                for field in 0..n {
                    row.go_to(field);
                    let data = [1_u8, 0, 1, 0, 1, 1];
                    let _ = row.write_elements(&TensorView::new(&data[..6], &[3, 2])?.into());
                    let _ = row.write_any(&TensorView::new(&data[..3], &[3])?.into());
                    let _ = row.write_elements(&TensorView::new(&[true, false, true], &[3])?.into());
                    let _ = row.write_elements(&TensorView::new(&[self.id], &[1])?.into());
                }
                row.go_to(n);
            }
            20 => {
                let _ = row.fill::<u8>(&[]);
                self.field(row, 0)?;
                let _ = row.fill::<u8>(&[2, 3])?;
                let _ = row.fill::<bool>(&[3])?;
            }
            21 => {
                self.write_correctly(row)?;
                assert!(!format!("{row:?}").is_empty());
            }
            22 => {}
            23 => {
                let _ = (row.write_one(1_u8), row.write_one(1_i64), row.write_one(true), row.write_one(1.0_f32));
            }
            _ => self.write_correctly(row)?,
        }
        Ok(())
    }
}

const HUGE: usize = 1 << 45;

impl Sample for FaultySample {
    type Schema = Self;

    fn declare(&self, fields: &mut Fields) {
        match self.script().ask(Site::Declare, 16) {
            1 => self.script().panic(),
            2 => {}
            3 => fields.fixed(DType::I64, &[]),
            4 => fields.fixed(DType::U8, &[HUGE, HUGE]),
            5 => fields.fixed(DType::F64, &[1; 9]),
            6 => fields.packed(DType::U8, &[0], 3),
            7 => fields.packed(DType::F64, &[HUGE, HUGE], 0),
            8 => fields.packed(DType::F64, &[usize::MAX, usize::MAX, 2], 0),
            9 => fields.ragged(DType::U16, usize::MAX),
            10 => fields.packed(DType::U8, &[1 << 32, 1 << 32], 1),
            11 => {
                self.shape.declare(fields);
                self.shape.declare(fields);
            }
            12 => {
                fields.named("a", &Half(DType::Bool));
                fields.named("a", &Half(DType::U64));
            }
            13 => fields.packed(DType::Bool, &[3], HUGE),
            14 => (0..100).for_each(|_| fields.fixed(DType::U8, &[])),
            15 => {
                // Declares fields as packed that are usually not, and the other way round.
                fields.packed(DType::I64, &[], 0);
                fields.packed(DType::U8, &[2, 3], 1);
                fields.ragged(DType::Bool, 3);
                fields.fixed(DType::U8, &[MAX_TEXT]);
            }
            16 => {
                fields.ragged(DType::I64, 0);
                fields.fixed(DType::U8, &[usize::MAX, 0, 3]);
            }
            _ => self.shape.declare(fields),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let outcome = self.attempt(row);
        // Dropped here, since rustc leaks the return value if a drop panics on return (rust-lang/rust#47949).
        drop(self);
        outcome
    }
}

impl Schema for FaultySample {
    type Tensors<'b> = Columns<'b>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> Columns<'b> {
        let mut other = *columns;
        // Also takes fields that were not declared, which is documented to panic.
        let _ = (other.take::<i64>(), other.take_any());
        let _ = (other.take::<bool>(), other.take_ragged::<u8>());
        if columns.len() > 5 {
            let _ = (other.take_packed::<u16>(), other.take_packed::<f64>(), other.take_any());
        }
        *columns
    }
}

struct Half(DType);

impl Sample for Half {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(self.0, &[1]);
        fields.ragged(self.0, 1);
    }

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A map-style dataset that may return other samples than requested.
pub(super) struct Items {
    pub(super) len: usize,
    pub(super) shape: Shape,
    pub(super) declares_fields: bool,
    pub(super) reads_many: bool,
    /// The length that it reported last.
    pub(super) reported: Arc<AtomicUsize>,
    /// The reported length of the dataset before it, which is the index of its first sample.
    pub(super) before: Arc<AtomicUsize>,
    pub(super) tracked: Tracked,
}

thread_local! {
    /// A user's value that is dropped with its thread.
    static KEPT: std::cell::RefCell<Option<Kept>> = const { std::cell::RefCell::new(None) };
}

struct Kept(#[allow(dead_code)] Tracked);

impl Drop for Kept {
    fn drop(&mut self) {
        // Must work while the thread-locals of the thread are being destroyed.
        let _ = slotline::worker_info();
    }
}

impl Items {
    fn script(&self) -> &Arc<Script> {
        &self.tracked.script
    }

    fn sample(&self, id: usize, index: usize) -> FaultySample {
        let tracked = self.script().tracked();
        FaultySample { id: id as i64, place: self.place(index), shape: self.shape, tracked }
    }

    fn place(&self, index: usize) -> i64 {
        self.before.load(Ordering::Relaxed).wrapping_add(index) as i64
    }

    fn length(&self) -> usize {
        let len = match self.script().ask(Site::Len, 7) {
            1 => self.script().panic(),
            2 => 0,
            3 => usize::MAX,
            4 => 1 << 62,
            5 => self.len + 3,
            6 => self.len / 2,
            7 => 1,
            _ => self.len,
        };
        self.reported.store(len, Ordering::Relaxed);
        len
    }

    fn read(&self, index: usize, cx: &mut Context) -> Result<FaultySample, BoxError> {
        super::listener::listen(self.script());
        if cx.worker().is_some() {
            // Only in a worker, since the fuzzer's thread does not end.
            KEPT.with_borrow_mut(|kept| _ = kept.get_or_insert_with(|| Kept(self.script().quiet())));
        }
        match self.script().ask(Site::Get, 6) {
            1 => self.script().panic(),
            2 => return Err(self.script().error()),
            3 => return Ok(self.sample(usize::MAX - index, index)),
            4 => {
                let word = slotline::rng::rand_core::Rng::next_u64(cx.rng());
                cx.buffer::<bool>(13).fill(word & 1 == 1);
                assert!(cx.buffer::<u8>(40).len() == 40 && !cx.buffer::<bool>(13)[0]);
            }
            5 => {
                cx.go_to(usize::MAX);
                cx.local::<Vec<u64>>().push(7);
                let [one, other] = cx.parts();
                one.go_to(3);
                other.local::<String>().push('x');
            }
            _ => {}
        }
        if index >= self.len {
            return Err("beyond the end".into());
        }
        Ok(self.sample(index, index))
    }

    fn hint(&self) {
        if self.script().ask(Site::Prefetch, 2) == 1 {
            self.script().panic();
        }
    }
}

impl Dataset for Items {
    type Sample<'a> = FaultySample;

    fn len(&self) -> usize {
        self.length()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<FaultySample, BoxError> {
        self.read(index, cx)
    }

    fn prefetch(&self, _: usize) {
        self.hint();
    }

    fn reads_many(&self) -> bool {
        match self.script().ask(Site::Fields, 3) {
            1 => self.script().panic(),
            2 => !self.reads_many,
            _ => self.reads_many,
        }
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(FaultySample) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let way = self.script().ask(Site::GetMany, 9);
        if way > 0 {
            // Samples may be written to wrong rows.
            self.script().dirty().extend(indices.iter().map(|&index| self.place(index)));
        }
        let mut one = |place: usize, index: usize, cx: &mut Context| {
            cx.go_to(place);
            put(self.read(index, cx)?)
        };
        let mut all =
            |cx: &mut Context| indices.iter().enumerate().try_for_each(|(place, &index)| one(place, index, cx));
        match way {
            1 => self.script().panic(),
            2 => Err(self.script().error()),
            3 => Ok(()),
            4 => {
                all(cx)?;
                all(cx)
            }
            5 => {
                // Ignores errors.
                let _ = (all(cx), all(cx));
                Ok(())
            }
            6 => indices.iter().rev().try_for_each(|&index| put(self.read(index, cx)?)),
            7 => {
                all(cx)?;
                self.script().panic()
            }
            8 => {
                all(cx)?;
                Err(self.script().error())
            }
            9 => indices.iter().skip(1).try_for_each(|&index| put(self.read(index, cx)?)),
            _ => all(cx),
        }
    }

    fn fields(&self) -> Option<Fields> {
        match self.script().ask(Site::Fields, 5) {
            1 => self.script().panic(),
            2 => None,
            3 => Some(Fields::new()),
            4 => Some(Fields::of(&self.sample(0, 0))),
            5 => Some(Fields::of(&(1_u8, [2_i64; 3]))),
            _ => self.declares_fields.then(|| self.shape.fields()),
        }
    }
}

impl Rows for Items {
    type Row<'a> = FaultySample;

    fn rows(&self) -> Result<usize, LengthMismatch> {
        match self.script().ask(Site::Fields, 2) {
            1 => Err(LengthMismatch { first: 1, place: 0, other: usize::MAX }),
            _ => Ok(self.length()),
        }
    }

    fn row(&self, index: usize) -> FaultySample {
        if index >= self.len || self.script().ask(Site::Get, 2) == 1 {
            self.script().panic();
        }
        self.sample(index, index)
    }

    fn prefetch(&self, _: usize) {
        self.hint();
    }
}
