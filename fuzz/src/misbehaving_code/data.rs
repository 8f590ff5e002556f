//! Samples that differ from their declaration, and the map-style datasets and streams that return
//! them.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::dataset::{Context, Dataset, IterableDataset, LengthMismatch, Rows};
use slotline::dtype::DType;
use slotline::sample::{Columns, Fields, Row, Sample, Schema};
use slotline::tensor::TensorView;
use slotline::{BoxError, WorkerInfo};

use super::{Script, Site, Tracked};
use crate::loader::{MAX_TEXT, pixels, text};

/// Declares the fields of a correct sample. `room` is the capacity of the packed fields, if there are any.
fn declare(fields: &mut Fields, room: Option<usize>) {
    fields.fixed(DType::I64, &[]);
    fields.fixed(DType::U8, &[2, 3]);
    fields.fixed(DType::Bool, &[3]);
    fields.padded_to_max(DType::U8, MAX_TEXT);
    if let Some(room) = room {
        fields.packed(DType::U16, &[], room);
        fields.packed(DType::F64, &[2], room);
    }
}

/// The fields of a correct sample.
pub(super) fn fields(room: Option<usize>) -> Fields {
    let mut fields = Fields::new();
    declare(&mut fields, room);
    fields
}

pub(super) fn flags(id: i64) -> [bool; 3] {
    std::array::from_fn(|i| id >> i & 1 == 1)
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
    /// The expected entry of [`Batch::indices`](slotline::loader::Batch::indices) for the sample's
    /// row: the requested index, or the position in a stream.
    place: i64,
    room: Option<usize>,
    tracked: Tracked,
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
            3 => row.write_padded_to_max(text(self.id))?,
            4 => row.write_packed(&items(self.id), &[])?,
            _ => row.write_packed(&pairs(self.id), &[2])?,
        }
        Ok(())
    }

    fn write_correctly(&self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let fields = if self.room.is_some() { 6 } else { 4 };
        (0..fields).try_for_each(|field| self.field(row, field))
    }

    /// Replaces the content of both packed fields with `count` elements each.
    fn pack(row: &mut Row<'_>, count: usize) -> Result<(), BoxError> {
        row.go_to(4);
        row.write_packed(&vec![7_u16; count], &[])?;
        Ok(row.write_packed(&vec![7.0; 2 * count], &[2])?)
    }

    /// Writes the sample, correctly or not.
    fn attempt(&self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let way = self.script().ask(Site::Write, 17);
        if way > 0 {
            self.script().dirty().extend([self.id, self.place]);
        }
        // Most misbehaviours happen before or after a correct write.
        if !matches!(way, 0 | 1 | 2 | 5 | 6 | 7 | 17) {
            self.write_correctly(row)?;
        }
        let end = if self.room.is_some() { 6 } else { 4 };
        match way {
            1 | 3 => self.script().panic(),
            2 | 4 => return Err(self.script().error()),
            5 => {
                row.go_to(usize::MAX);
                row.write_one(self.id)?;
            }
            // Skips the remaining fields.
            6 => row.go_to(end),
            7 => {
                for field in (0..end).rev() {
                    row.go_to(field);
                    self.field(row, field)?;
                }
                row.go_to(end);
            }
            8 => {
                row.go_to(0);
                self.write_correctly(row)?;
            }
            9 => row.write_one(self.id)?,
            // Ignores the errors about wrong types and shapes.
            10 => {
                let data = [1_u8, 0, 1, 0, 1, 1];
                for field in 0..end {
                    row.go_to(field);
                    let _ =
                        (row.write(&data, &[6]), row.write(&data[..3], &[2, 3]), row.write_padded_to_max(&[0_u8; 99]));
                    let _ = (row.fill::<u64>(&[]).is_ok(), row.write_packed(&[0_u16; 5], &[2]), row.write_one(true));
                    let _ = row.write_elements(&TensorView::new(&data, &[3, 2])?.into());
                    let _ = row.write_any(&TensorView::new(&data[..3], &[3])?.into());
                    let _ = row.write_elements(&TensorView::new(&[self.id], &[1])?.into());
                }
                row.go_to(end);
            }
            11 => {
                row.go_to(3);
                row.write_padded_to_max(&[b'x'; 99])?;
            }
            12 if self.room.is_some() => Self::pack(row, 3000)?,
            // Writes only one of the two packed fields.
            13 if self.room.is_some() => {
                row.go_to(4);
                row.write_packed(&[9_u16; 30], &[])?;
                row.go_to(end);
            }
            14 if self.room.is_some() => [40, 0, 1, 7].into_iter().try_for_each(|count| Self::pack(row, count))?,
            15 => {
                // Only gets the pointers: writing through them would be unsafe, and is not
                // required.
                for field in 0..end {
                    row.go_to(field);
                    let _ = row.fill_raw();
                }
                row.go_to(end);
            }
            16 => assert!(!format!("{row:?}").is_empty()),
            17 => {}
            0 => self.write_correctly(row)?,
            _ => {}
        }
        Ok(())
    }
}

const HUGE: usize = 1 << 45;

impl Sample for FaultySample {
    type Schema = Self;

    fn declare(&self, fields: &mut Fields) {
        match self.script().panics(Site::Declare, 13) {
            2 => {}
            3 => fields.fixed(DType::I64, &[]),
            4 => fields.fixed(DType::U8, &[HUGE, HUGE]),
            5 => fields.fixed(DType::F64, &[1; 9]),
            6 => fields.packed(DType::U8, &[0], 3),
            7 => fields.packed(DType::F64, &[HUGE, HUGE], 0),
            8 => fields.packed(DType::F64, &[usize::MAX, usize::MAX, 2], HUGE),
            9 => fields.padded_to_max(DType::U16, usize::MAX),
            10 => (0..20).for_each(|_| declare(fields, self.room)),
            11 => (0..2).for_each(|_| fields.named("a", &0_i64)),
            12 => {
                // Declares fields as packed that usually are not, and vice versa.
                fields.packed(DType::I64, &[], 0);
                fields.packed(DType::U8, &[2, 3], 1);
                fields.padded_to_max(DType::Bool, 3);
                fields.fixed(DType::U8, &[MAX_TEXT]);
            }
            13 => {
                fields.padded_to_max(DType::I64, 0);
                fields.fixed(DType::U8, &[usize::MAX, 0, 3]);
            }
            _ => declare(fields, self.room),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let outcome = self.attempt(row);
        // Dropped here, since rustc leaks the return value if a drop panics on return
        // (rust-lang/rust#47949).
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
        let _ = (other.take::<bool>(), other.take_padded::<u8>());
        if columns.len() > 5 {
            let _ = (other.take_packed::<u16>(), other.take_packed::<f64>(), other.take_any());
        }
        *columns
    }
}

/// A map-style dataset or a stream that may return other samples than the requested ones.
pub(super) struct Faulty {
    pub(super) len: usize,
    /// The capacity of the packed fields, if it has any.
    pub(super) room: Option<usize>,
    pub(super) declares_fields: bool,
    /// Whether a map-style dataset supports bulk reads, and whether a stream saves its position.
    pub(super) more: bool,
    /// The length that the dataset reported last.
    pub(super) reported: Arc<AtomicUsize>,
    /// The reported length of the dataset before this one in a concatenation, which is the index of
    /// this dataset's first sample.
    pub(super) before: Arc<AtomicUsize>,
    pub(super) tracked: Tracked,
}

/// A user's value in a thread-local, which is dropped when its thread ends.
struct Kept(#[allow(dead_code)] Tracked);

thread_local! {
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

impl Drop for Kept {
    fn drop(&mut self) {
        // This call must work even while the thread's thread-locals are being destroyed.
        let _ = slotline::worker_info();
    }
}

impl Faulty {
    fn script(&self) -> &Arc<Script> {
        &self.tracked.script
    }

    fn sample(&self, id: usize, place: i64) -> FaultySample {
        FaultySample { id: id as i64, place, room: self.room, tracked: self.script().tracked() }
    }

    fn place(&self, index: usize) -> i64 {
        self.before.load(Ordering::Relaxed).wrapping_add(index) as i64
    }

    fn length(&self) -> usize {
        let wrong = [0, usize::MAX, 1 << 62, self.len + 3, self.len / 2, 1];
        let len = self.script().pick(Site::Len, self.len, &wrong);
        self.reported.store(len, Ordering::Relaxed);
        len
    }

    fn declared(&self) -> Option<Fields> {
        match self.script().panics(Site::Fields, 5) {
            2 => None,
            3 => Some(Fields::new()),
            4 => Some(Fields::of(&self.sample(0, 0))),
            5 => Some(Fields::of(&(1_u8, [2_i64; 3]))),
            _ => self.declares_fields.then(|| fields(self.room)),
        }
    }

    fn read(&self, index: usize, cx: &mut Context) -> Result<FaultySample, BoxError> {
        if cx.worker().is_some() {
            // Workers only: the fuzzer's own thread does not end, so it would never drop the value.
            KEPT.with_borrow_mut(|kept| _ = kept.get_or_insert_with(|| Kept(self.script().quiet())));
        }
        match self.script().fault(Site::Get, 5)? {
            3 => return Ok(self.sample(usize::MAX - index, self.place(index))),
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
        Ok(self.sample(index, self.place(index)))
    }
}

impl Dataset for Faulty {
    type Sample<'a> = FaultySample;

    fn len(&self) -> usize {
        self.length()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<FaultySample, BoxError> {
        self.read(index, cx)
    }

    fn prefetch(&self, _: usize) {
        self.script().panics(Site::Prefetch, 2);
    }

    fn reads_many(&self) -> bool {
        (self.script().panics(Site::Fields, 3) == 2) ^ self.more
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(FaultySample) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let way = self.script().ask(Site::GetMany, 9);
        if way > 0 {
            // Samples may be written to the wrong rows.
            self.script().dirty().extend(indices.iter().map(|&index| self.place(index)));
        }
        let mut all = |cx: &mut Context| {
            indices.iter().enumerate().try_for_each(|(place, &index)| {
                cx.go_to(place);
                put(self.read(index, cx)?)
            })
        };
        match way {
            0 => return all(cx),
            // Ignores errors.
            1 => _ = (all(cx), all(cx)),
            2 => (0..2).try_for_each(|_| all(cx))?,
            3 => return indices.iter().rev().try_for_each(|&index| put(self.read(index, cx)?)),
            4 => return indices.iter().skip(1).try_for_each(|&index| put(self.read(index, cx)?)),
            5 | 6 => all(cx)?,
            _ => {}
        }
        match way {
            5 | 7 => self.script().panic(),
            6 | 8 => Err(self.script().error()),
            _ => Ok(()),
        }
    }

    fn fields(&self) -> Option<Fields> {
        self.declared()
    }
}

impl Rows for Faulty {
    type Row<'a> = FaultySample;

    fn rows(&self) -> Result<usize, LengthMismatch> {
        match self.script().ask(Site::Fields, 2) {
            1 => Err(LengthMismatch { first: 1, tensor: 0, other: usize::MAX }),
            _ => Ok(self.length()),
        }
    }

    fn row(&self, index: usize) -> FaultySample {
        if index >= self.len || self.script().ask(Site::Get, 2) == 1 {
            self.script().panic();
        }
        self.sample(index, self.place(index))
    }
}

pub(super) struct Cursor {
    left: Range<usize>,
    tracked: Tracked,
}

impl Faulty {
    fn cursor(&self, left: Range<usize>) -> Cursor {
        Cursor { left, tracked: self.script().tracked() }
    }
}

impl IterableDataset for Faulty {
    type Sample<'a> = FaultySample;
    type Cursor = Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        Ok(match self.script().fault(Site::Iter, 4)? {
            3 => self.cursor(0..self.len),
            4 => self.cursor(0..0),
            _ => self.cursor(worker.map_or(0..self.len, |worker| worker.share(self.len))),
        })
    }

    fn next<'a>(&'a self, cursor: &'a mut Cursor, cx: &'a mut Context) -> Result<Option<FaultySample>, BoxError> {
        let (mut id, place) = (None, cx.position() as i64);
        cursor.tracked.check();
        match self.script().fault(Site::Next, 7)? {
            3 => return Ok(None),
            4 => id = Some(usize::MAX),
            5 => cursor.left = 0..(self.len + 20).min(100),
            6 => {
                cx.go_to(usize::MAX);
                cx.buffer::<u8>(99).fill(255);
            }
            7 => *cursor = self.cursor(0..3),
            _ => {}
        }
        Ok(id.or_else(|| cursor.left.next()).map(|id| self.sample(id, place)))
    }

    fn save(&self, cursor: &Cursor, to: &mut String) -> bool {
        match self.script().panics(Site::Save, 4) {
            2 => to.push_str(&"\0\u{1f980}".repeat(500)),
            3 => {
                to.push('7');
                self.script().panic()
            }
            4 => {
                to.push_str("3..9999999");
                return !self.more;
            }
            _ => to.push_str(&format!("{}..{}", cursor.left.start, cursor.left.end)),
        }
        self.more
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Cursor, BoxError> {
        if self.script().fault(Site::Resume, 3)? == 3 {
            return self.iter(worker);
        }
        let (start, end) = saved.split_once("..").ok_or("not a range")?;
        let left: Range<usize> = start.parse()?..end.parse()?;
        if left.end > self.len { Err("beyond the end".into()) } else { Ok(self.cursor(left)) }
    }

    fn len(&self) -> Option<usize> {
        self.script().pick(Site::Len, Some(self.len), &[None, Some(0), Some(usize::MAX), Some(3)])
    }

    fn fields(&self) -> Option<Fields> {
        self.declared()
    }
}
