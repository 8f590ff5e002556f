//! Datasets that are read as streams: those made of callbacks, and those made of other streams.

use std::sync::Arc;

use slotline::dataset::{ChainCursor, ChainDataset, Context, IterableDataset};
use slotline::sample::{Fields, OwnedSample};
use slotline::{BoxError, WorkerInfo};

use crate::abi::{Failure, chain};
use crate::data::alone::{Shape, Single};
use crate::data::stream::{self, Stream};
use crate::data::transform::Callback;

/// A stream of any kind. A clone refers to the same stream.
#[derive(Clone, Debug)]
pub(crate) enum Streamed {
    Calls(Arc<Stream>),
    Chain(Arc<Chain>),
    Mapped(Arc<Mapped>),
}

/// A worker's position in a stream.
#[derive(Debug)]
pub(crate) enum Cursor {
    Calls(stream::Cursor),
    Chain(Box<ChainCursor<Self>>),
    Mapped(Box<MappedCursor>),
}

/// The error if a cursor is used with a stream of another kind.
const OTHER: &str = "the cursor is of another kind of stream";

impl IterableDataset for Streamed {
    /// The memory of the cursor, from which the row is copied.
    type Sample<'a> = &'a OwnedSample;
    type Cursor = Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        Ok(match self {
            Self::Calls(stream) => Cursor::Calls(stream.iter(worker)?),
            Self::Chain(chain) => Cursor::Chain(Box::new(chain.streams.iter(worker)?)),
            Self::Mapped(mapped) => Cursor::Mapped(Box::new(mapped.cursor(mapped.source.iter(worker)?)?)),
        })
    }

    #[inline]
    fn next<'a>(
        &'a self,
        cursor: &'a mut Cursor,
        context: &'a mut Context,
    ) -> Result<Option<&'a OwnedSample>, BoxError> {
        match (self, cursor) {
            (Self::Calls(stream), Cursor::Calls(cursor)) => stream.next(cursor, context),
            (Self::Chain(chain), Cursor::Chain(cursor)) => chain.streams.next(cursor, context),
            (Self::Mapped(mapped), Cursor::Mapped(cursor)) => mapped.next(cursor, context),
            _ => Err(OTHER.into()),
        }
    }

    fn save(&self, cursor: &Cursor, to: &mut String) -> bool {
        match (self, cursor) {
            (Self::Calls(stream), Cursor::Calls(cursor)) => stream.save(cursor, to),
            (Self::Chain(chain), Cursor::Chain(cursor)) => chain.streams.save(cursor, to),
            (Self::Mapped(mapped), Cursor::Mapped(cursor)) => mapped.source.save(&cursor.source, to),
            _ => false,
        }
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Cursor, BoxError> {
        Ok(match self {
            Self::Calls(stream) => Cursor::Calls(stream.resume(worker, saved)?),
            Self::Chain(chain) => Cursor::Chain(Box::new(chain.streams.resume(worker, saved)?)),
            Self::Mapped(mapped) => Cursor::Mapped(Box::new(mapped.cursor(mapped.source.resume(worker, saved)?)?)),
        })
    }

    fn len(&self) -> Option<usize> {
        match self {
            Self::Calls(stream) => stream.len(),
            Self::Chain(chain) => chain.streams.len(),
            Self::Mapped(mapped) => mapped.source.len(),
        }
    }

    fn fields(&self) -> Option<Fields> {
        match self {
            Self::Calls(stream) => stream.fields(),
            Self::Chain(chain) => chain.streams.fields(),
            Self::Mapped(mapped) => Some(mapped.callback.fields()),
        }
    }
}

/// Streams, one after another.
#[derive(Debug)]
pub(crate) struct Chain {
    streams: ChainDataset<Streamed>,
}

impl Chain {
    pub(crate) fn new(streams: Vec<Streamed>) -> Result<Self, Failure> {
        let streams = ChainDataset::new(streams);
        let fields = streams.fields();
        let fields = fields.ok_or_else(|| Failure::invalid("datasets is empty; pass at least one dataset"))?;
        // The layout is checked here, since it fails if the fields differ.
        OwnedSample::new(fields).map_err(|error| Failure::invalid(chain(&error)))?;
        Ok(Self { streams })
    }
}

/// A stream whose samples a callback makes from those of another stream.
#[derive(Debug)]
pub(crate) struct Mapped {
    source: Streamed,
    shape: Shape,
    callback: Callback,
}

/// A worker's position in the source, with memory for a sample of the source and for the sample
/// made from it.
#[derive(Debug)]
pub(crate) struct MappedCursor {
    source: Cursor,
    single: Single,
    owned: OwnedSample,
}

impl Mapped {
    pub(crate) fn new(source: Streamed, callback: Callback) -> Self {
        Self { shape: Shape::of(source.fields()), source, callback }
    }

    fn cursor(&self, source: Cursor) -> Result<MappedCursor, BoxError> {
        let single = Single::new(&self.shape)?;
        Ok(MappedCursor { source, single, owned: OwnedSample::new(self.callback.fields())? })
    }

    fn next<'a>(
        &self,
        cursor: &'a mut MappedCursor,
        context: &mut Context,
    ) -> Result<Option<&'a OwnedSample>, BoxError> {
        let MappedCursor { source, single, owned } = cursor;
        let [inner, own] = context.parts();
        let Some(sample) = self.source.next(source, inner)? else { return Ok(None) };
        if !single.is_free() {
            *single = Single::new(&self.shape)?;
        }
        single.fill(own.position() as usize, sample)?;
        owned.fill(|row| self.callback.write(single, row, own))?;
        Ok(Some(owned))
    }
}
