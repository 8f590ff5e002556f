//! Streams that misbehave in where they start, which samples they return, and which length and position they report.

use std::ops::Range;
use std::sync::Arc;

use slotline::dataset::{Context, IterableDataset};
use slotline::sample::Fields;
use slotline::{BoxError, WorkerInfo};

use super::data::{FaultySample, Shape};
use super::{Script, Site, Tracked};

pub(super) struct Stream {
    pub(super) len: usize,
    pub(super) shape: Shape,
    pub(super) declares_fields: bool,
    pub(super) saves: bool,
    pub(super) tracked: Tracked,
}

pub(super) struct Cursor {
    left: Range<usize>,
    tracked: Tracked,
}

impl Stream {
    fn script(&self) -> &Arc<Script> {
        &self.tracked.script
    }

    fn cursor(&self, left: Range<usize>) -> Cursor {
        Cursor { left, tracked: self.script().tracked() }
    }
}

impl IterableDataset for Stream {
    type Sample<'a> = FaultySample;
    type Cursor = Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        super::listener::listen(self.script());
        match self.script().ask(Site::Iter, 4) {
            1 => self.script().panic(),
            2 => Err(self.script().error()),
            3 => Ok(self.cursor(0..self.len)),
            4 => Ok(self.cursor(0..0)),
            _ => Ok(self.cursor(worker.map_or(0..self.len, |worker| worker.share(self.len)))),
        }
    }

    fn next<'a>(&'a self, cursor: &'a mut Cursor, cx: &'a mut Context) -> Result<Option<FaultySample>, BoxError> {
        let (mut id, place) = (None, cx.position() as i64);
        cursor.tracked.check();
        match self.script().ask(Site::Next, 7) {
            1 => self.script().panic(),
            2 => return Err(self.script().error()),
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
        let Some(id) = id.or_else(|| cursor.left.next()) else { return Ok(None) };
        let tracked = self.script().tracked();
        Ok(Some(FaultySample { id: id as i64, place, shape: self.shape, tracked }))
    }

    fn save(&self, cursor: &Cursor, to: &mut String) -> bool {
        match self.script().ask(Site::Save, 5) {
            1 => self.script().panic(),
            2 => !self.saves,
            3 => {
                to.push_str(&"\0\u{1f980}".repeat(500));
                true
            }
            4 => {
                to.push('7');
                self.script().panic()
            }
            5 => {
                to.push_str("3..9999999");
                false
            }
            _ => {
                to.push_str(&format!("{}..{}", cursor.left.start, cursor.left.end));
                self.saves
            }
        }
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Cursor, BoxError> {
        match self.script().ask(Site::Resume, 3) {
            1 => self.script().panic(),
            2 => return Err(self.script().error()),
            3 => return self.iter(worker),
            _ => {}
        }
        let (start, end) = saved.split_once("..").ok_or("not a range")?;
        let left: Range<usize> = start.parse()?..end.parse()?;
        if left.end > self.len { Err("beyond the end".into()) } else { Ok(self.cursor(left)) }
    }

    fn len(&self) -> Option<usize> {
        match self.script().ask(Site::Len, 5) {
            1 => self.script().panic(),
            2 => None,
            3 => Some(0),
            4 => Some(usize::MAX),
            5 => Some(3),
            _ => Some(self.len),
        }
    }

    fn fields(&self) -> Option<Fields> {
        match self.script().ask(Site::Fields, 4) {
            1 => self.script().panic(),
            2 => None,
            3 => Some(Fields::new()),
            4 => Some(Fields::of(&(1_u8, [2_i64; 3]))),
            _ => self.declares_fields.then(|| self.shape.fields()),
        }
    }
}
