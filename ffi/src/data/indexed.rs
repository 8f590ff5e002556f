//! Datasets that are read by index: those made of arrays and callbacks, and those made of other datasets.

use std::fmt;
use std::mem::take;
use std::sync::Arc;

use slotline::BoxError;
use slotline::dataset::{ConcatDataset, Context, Dataset, Subset, Upcoming};
use slotline::sample::{Fields, OwnedSample, Row, RowsMut, Sample};
#[cfg(all(feature = "sources", feature = "image"))]
use slotline_sources::pictures::{PictureRecord, Pictures};
#[cfg(feature = "sources")]
use slotline_sources::{Format, Record, Records};

use crate::abi::{Failure, chain};
use crate::data::arrays::Arrays;
use crate::data::bulk_read::one_by_one;
use crate::data::map::{Called, Map};
use crate::data::packed::{Bin, Packed};
use crate::data::transform::{Mapped, Transform};
use crate::fields::field::{self, Declared};

/// A dataset of any kind that is read by index. A clone refers to the same dataset.
#[derive(Clone, Debug)]
pub(crate) enum Indexed {
    Arrays(Arc<Arrays>),
    Map(Arc<Map>),
    Subset(Arc<Subset<Arc<Self>>>),
    Concat(Arc<Concat>),
    Stack(Arc<Stack>),
    Transform(Arc<Transform>),
    Packed(Arc<Packed>),
    #[cfg(feature = "sources")]
    Records(Arc<Records<dyn Format>>),
    #[cfg(all(feature = "sources", feature = "image"))]
    Pictures(Arc<Pictures>),
}

/// Evaluates the same expression for a dataset of any kind.
macro_rules! either {
    ($indexed:expr, $dataset:ident => $body:expr) => {
        match $indexed {
            Indexed::Arrays($dataset) => $body,
            Indexed::Map($dataset) => $body,
            Indexed::Subset($dataset) => $body,
            Indexed::Concat($dataset) => $body,
            Indexed::Stack($dataset) => $body,
            Indexed::Transform($dataset) => $body,
            Indexed::Packed($dataset) => $body,
            #[cfg(feature = "sources")]
            Indexed::Records($dataset) => $body,
            #[cfg(all(feature = "sources", feature = "image"))]
            Indexed::Pictures($dataset) => $body,
        }
    };
}

impl Dataset for Indexed {
    type Sample<'a> = Read<'a>;

    fn len(&self) -> usize {
        either!(self, dataset => dataset.len())
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, context: &'a mut Context) -> Result<Read<'a>, BoxError> {
        match self {
            Self::Arrays(arrays) => arrays.get(index, context).map(Read::Row),
            Self::Map(map) => map.get(index, context).map(Read::Called),
            Self::Subset(subset) => subset.get(index, context),
            Self::Concat(concat) => concat.datasets.get(index, context),
            Self::Stack(stack) => Ok(Read::Stacked(Stacked { stack, index, context, ready: None })),
            Self::Transform(transform) => Ok(Read::Mapped(transform.get(index, context))),
            Self::Packed(packed) => packed.get(index, context).map(Read::Bin),
            #[cfg(feature = "sources")]
            Self::Records(records) => records.get(index, context).map(Read::Record),
            #[cfg(all(feature = "sources", feature = "image"))]
            Self::Pictures(pictures) => pictures.get(index, context).map(Read::Picture),
        }
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        either!(self, dataset => dataset.prefetch(index));
    }

    fn reads_ahead(&self) -> bool {
        either!(self, dataset => dataset.reads_ahead())
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        either!(self, dataset => dataset.begin_pass(upcoming));
    }

    fn reads_many(&self) -> bool {
        either!(self, dataset => dataset.reads_many())
    }

    fn get_many(
        &self,
        indices: &[usize],
        context: &mut Context,
        put: &mut dyn for<'a> FnMut(Read<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        match self {
            Self::Map(map) => map.get_many(indices, context, &mut |called| put(Read::Called(called))),
            Self::Subset(subset) => subset.get_many(indices, context, put),
            Self::Concat(concat) => concat.datasets.get_many(indices, context, put),
            Self::Stack(stack) => stack.get_many(indices, context, &mut |stacked| put(Read::Stacked(stacked))),
            Self::Transform(transform) => transform.get_many(indices, context, &mut |mapped| put(Read::Mapped(mapped))),
            _ => one_by_one(self, indices, context, put),
        }
    }

    fn write_many(&self, indices: &[usize], context: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        match self {
            Self::Subset(subset) => subset.write_many(indices, context, rows),
            Self::Concat(concat) => concat.datasets.write_many(indices, context, rows),
            #[cfg(feature = "sources")]
            Self::Records(records) => records.write_many(indices, context, rows),
            #[cfg(all(feature = "sources", feature = "image"))]
            Self::Pictures(pictures) => pictures.write_many(indices, context, rows),
            _ => self.get_many(indices, context, &mut |sample| rows.push(sample)),
        }
    }

    fn fields(&self) -> Option<Fields> {
        either!(self, dataset => dataset.fields())
    }
}

/// A sample of any dataset. It is read when it is written to its row.
#[derive(Debug)]
pub(crate) enum Read<'a> {
    Row(<Arrays as Dataset>::Sample<'a>),
    Called(Called<'a>),
    Stacked(Stacked<'a>),
    Mapped(Mapped<'a>),
    Bin(Bin<'a>),
    #[cfg(feature = "sources")]
    Record(Record<'a>),
    #[cfg(all(feature = "sources", feature = "image"))]
    Picture(PictureRecord<'a>),
}

impl Sample for Read<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        match self {
            Self::Row(row) => row.declare(fields),
            Self::Called(called) => called.declare(fields),
            Self::Stacked(stacked) => stacked.stack.parts.iter().for_each(|part| declare(fields, part.fields())),
            Self::Mapped(mapped) => declare(fields, mapped.transform.fields()),
            Self::Bin(bin) => bin.declare(fields),
            #[cfg(feature = "sources")]
            Self::Record(record) => record.declare(fields),
            #[cfg(all(feature = "sources", feature = "image"))]
            Self::Picture(picture) => picture.declare(fields),
        }
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        match self {
            Self::Row(sample) => sample.write(row),
            Self::Called(called) => called.write(row),
            Self::Stacked(stacked) => stacked.write(row),
            Self::Mapped(mapped) => mapped.write(row),
            Self::Bin(bin) => bin.write(row),
            #[cfg(feature = "sources")]
            Self::Record(record) => record.write(row),
            #[cfg(all(feature = "sources", feature = "image"))]
            Self::Picture(picture) => picture.write(row),
        }
    }
}

pub(crate) fn declare(to: &mut Fields, fields: Option<Fields>) {
    for field in fields.unwrap_or_default().as_slice() {
        to.named(field.name(), &&Declared::from(field));
    }
}

/// Datasets one after another.
#[derive(Debug)]
pub(crate) struct Concat {
    datasets: ConcatDataset<Indexed>,
    fields: Fields,
}

impl Concat {
    pub(crate) fn new(datasets: Vec<Indexed>) -> Result<Self, Failure> {
        let first = datasets.first().and_then(Dataset::fields);
        let datasets = ConcatDataset::new(datasets).map_err(|error| Failure::invalid(error.to_string()))?;
        let fields = datasets.fields().or(first).unwrap_or_default();
        // The layout is checked here, since it fails if the fields differ.
        OwnedSample::new(fields.clone()).map_err(|error| Failure::invalid(chain(&error)))?;
        Ok(Self { datasets, fields })
    }

    fn len(&self) -> usize {
        self.datasets.len()
    }

    fn prefetch(&self, index: usize) {
        self.datasets.prefetch(index);
    }

    fn reads_ahead(&self) -> bool {
        self.datasets.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.datasets.begin_pass(upcoming);
    }

    fn reads_many(&self) -> bool {
        self.datasets.reads_many()
    }

    #[expect(clippy::unnecessary_wraps, reason = "the same signature as `Dataset::fields`")]
    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}

/// Datasets of equal length, with the fields of all of them in one sample.
#[derive(Debug)]
pub(crate) struct Stack {
    parts: Box<[Indexed]>,
    len: usize,
    /// The part whose bulk reads are used: the first one that supports them. (Only one can be used,
    /// since each bulk read stores the samples itself.)
    many: usize,
    fields: Fields,
}

impl Stack {
    pub(crate) fn new(parts: Vec<Indexed>) -> Result<Self, Failure> {
        let len = parts.first().ok_or_else(|| Failure::invalid("datasets is empty; pass at least one dataset"))?.len();
        if let Some((place, other)) = parts.iter().enumerate().find(|(_, part)| part.len() != len) {
            let other = other.len();
            return Err(Failure::invalid(format!("datasets[{place}] has {other} samples, but datasets[0] has {len}")));
        }
        let mut declared = Vec::new();
        for part in &parts {
            for (place, field) in part.fields().unwrap_or_default().as_slice().iter().enumerate() {
                let mut field = Declared::from(field);
                // A name that is only the position in the part becomes the position in the stack.
                if field.name == place.to_string() {
                    field.name = declared.len().to_string();
                }
                declared.push(field);
            }
        }
        let many = parts.iter().position(Dataset::reads_many).unwrap_or_default();
        Ok(Self { fields: field::fields(&declared)?, parts: parts.into(), len, many })
    }

    fn len(&self) -> usize {
        self.len
    }

    fn prefetch(&self, index: usize) {
        self.parts.iter().for_each(|part| part.prefetch(index));
    }

    fn reads_ahead(&self) -> bool {
        self.parts.iter().any(Dataset::reads_ahead)
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        for part in self.parts.iter().filter(|part| part.reads_ahead()) {
            part.begin_pass(upcoming.clone());
        }
    }

    fn reads_many(&self) -> bool {
        self.parts[self.many].reads_many()
    }

    /// Reads the samples of one part with a bulk read, and those of the other parts one at a time.
    fn get_many(
        &self,
        indices: &[usize],
        context: &mut Context,
        put: &mut dyn for<'a> FnMut(Stacked<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let mut taken = PartContext::of(context, self.many);
        let PartContext { whole: context, inner, .. } = &mut taken;
        let mut places = 0..;
        self.parts[self.many].get_many(indices, inner, &mut |sample| {
            let place = places.next().unwrap_or_default();
            context.go_to(place);
            let mut sample = Some(sample);
            let mut write = |row: &mut Row<'_>| sample.take().map_or(Ok(()), |sample| sample.write(row));
            // If the bulk read stores more samples than there are indices, `put` reports the error.
            let index = indices.get(place).copied().unwrap_or_default();
            put(Stacked { stack: self, index, context, ready: Some(&mut write) })
        })
    }

    #[expect(clippy::unnecessary_wraps, reason = "the same signature as `Dataset::fields`")]
    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}

/// A function that writes a sample which was already read.
type Write<'a> = dyn FnMut(&mut Row<'_>) -> Result<(), BoxError> + 'a;

/// The samples of several datasets at one index.
pub(crate) struct Stacked<'a> {
    stack: &'a Stack,
    index: usize,
    context: &'a mut Context,
    /// Writes the sample of part `many`, during a bulk read of that part.
    ready: Option<&'a mut Write<'a>>,
}

impl Stacked<'_> {
    fn write(mut self, row: &mut Row<'_>) -> Result<(), BoxError> {
        for (i, part) in self.stack.parts.iter().enumerate() {
            match &mut self.ready {
                Some(write) if self.stack.many == i => write(row)?,
                _ => part.get(self.index, self.context.part(i))?.write(row)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Stacked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stacked").field("stack", self.stack).field("index", &self.index).finish_non_exhaustive()
    }
}

/// The context of a part, taken out of the whole sample's context until this value is dropped.
struct PartContext<'a> {
    whole: &'a mut Context,
    part: usize,
    inner: Context,
}

impl<'a> PartContext<'a> {
    fn of(whole: &'a mut Context, part: usize) -> Self {
        let inner = take(whole.part(part));
        Self { whole, part, inner }
    }
}

impl Drop for PartContext<'_> {
    fn drop(&mut self) {
        *self.whole.part(self.part) = take(&mut self.inner);
    }
}
