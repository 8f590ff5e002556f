//! The configuration of a worker that was not forked. It is in shared memory, which the worker
//! maps, reads and unmaps.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;

use crate::arena::{Memory, Pages};
use crate::loader::backend::processes::control::SIZES;
use crate::loader::bad_samples::{Budget, OnError};
use crate::sample::Fields;
use crate::wait::WaitStrategy;

/// The number of bytes of the length that precedes each section of the configuration.
const LEN: usize = size_of::<usize>();

/// Everything that a worker must know, except for its number.
#[derive(Debug, PartialEq)]
pub(crate) struct SpawnConfig<'a> {
    pub(crate) facts: SpawnFacts,
    /// The fields of a sample, as text.
    pub(crate) fields: Cow<'a, str>,
    /// The lengths of all samples, if a bad sample must not be replaced by a longer one.
    pub(crate) lengths: Option<Vec<u32>>,
    /// The user's bytes for the workers.
    pub(crate) setup: &'a [u8],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct SpawnFacts {
    /// How workers make batches: [`SHARED`], [`ROUND_ROBIN`] or [`STREAM`].
    pub(crate) kind: usize,
    /// The number of samples of a dataset by index.
    pub(crate) len: usize,
    pub(crate) depth: usize,
    pub(crate) parts: usize,
    pub(crate) workers: usize,
    pub(crate) rows: usize,
    pub(crate) stride: usize,
    pub(crate) is_single: usize,
    pub(crate) bulk: usize,
    pub(crate) in_order: usize,
    pub(crate) part_rows: usize,
    /// Whether the user set `part_size`.
    pub(crate) is_fixed: usize,
    /// The [number](number_of) of the way of handling bad samples.
    pub(crate) on_error: usize,
    /// An index into [`STRATEGIES`].
    pub(crate) strategy: usize,
    pub(crate) drops_last: usize,
    /// Whether there is a collate function; whether there is a `worker_init`; and whether the
    /// `worker_init` runs only once.
    pub(crate) is_collated: usize,
    pub(crate) has_init: usize,
    pub(crate) is_persistent: usize,
}

/// The ways in which workers make batches: all workers make the next batch; workers make batches in
/// turn; or each worker reads a part of an iterable dataset.
pub(crate) const SHARED: usize = 0;
pub(crate) const ROUND_ROBIN: usize = 1;
pub(crate) const STREAM: usize = 2;

/// The wait strategies, indexed by their number in a configuration.
pub(crate) const STRATEGIES: [WaitStrategy; 3] = [WaitStrategy::Park, WaitStrategy::Backoff, WaitStrategy::Spin];

/// Returns the number of a way of handling bad samples. The budget is not included, since only the
/// loader needs it.
pub(crate) fn number_of(on_error: OnError) -> usize {
    match on_error {
        OnError::Raise => 0,
        OnError::Skip(_) => 1,
        OnError::Replace(_) => 2,
    }
}

pub(crate) fn on_error_of(number: usize) -> OnError {
    match number {
        0 => OnError::Raise,
        1 => OnError::Skip(Budget::Samples(0)),
        _ => OnError::Replace(Budget::Samples(0)),
    }
}

/// Returns fields as text.
pub(crate) fn words(fields: &Fields) -> String {
    fields.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns a text with the version of slotline, and the sizes of the types that processes share.
fn version() -> String {
    format!("slotline {} with sizes {SIZES:?} and {}", env!("CARGO_PKG_VERSION"), size_of::<SpawnFacts>())
}

impl<'a> SpawnConfig<'a> {
    /// Writes the configuration into shared memory, and returns the file of that memory.
    pub(crate) fn write(&self) -> io::Result<OwnedFd> {
        let (facts, size) = ((&raw const self.facts).cast(), size_of::<SpawnFacts>());
        // SAFETY: `SpawnFacts` consists of numbers without gaps between them.
        let facts: &[u8] = unsafe { std::slice::from_raw_parts(facts, size) };
        let version = version();
        let lengths: Vec<u8> = self.lengths.iter().flatten().flat_map(|length| length.to_ne_bytes()).collect();
        let parts = [version.as_bytes(), facts, self.fields.as_bytes(), &lengths, self.setup];
        let pages = Pages::shared(parts.map(|part| LEN + part.len()).into_iter().sum())?;
        let mut end = pages.start();
        for part in parts {
            // SAFETY: the pages are new, and have this size at least.
            unsafe {
                end.cast().write_unaligned(part.len().to_ne_bytes());
                std::ptr::copy_nonoverlapping(part.as_ptr(), end.add(LEN).as_ptr(), part.len());
                end = end.add(LEN + part.len());
            }
        }
        pages.file().ok_or(io::ErrorKind::Unsupported)?.try_clone_to_owned()
    }

    /// Reads a configuration from memory. Fails with the reason if it cannot be understood.
    pub(crate) fn read(pages: &'a Pages) -> Result<Self, String> {
        // SAFETY: the loader wrote the configuration before it sent the file, and nothing writes it
        // again, unless another worker is corrupted.
        Self::parse(unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), pages.len()) })
    }

    fn parse(mut bytes: &'a [u8]) -> Result<Self, String> {
        let mut next = || {
            let (len, rest) = bytes.split_first_chunk::<LEN>()?;
            let (part, rest) = rest.split_at_checked(usize::from_ne_bytes(*len))?;
            bytes = rest;
            Some(part)
        };
        let (ours, theirs) = (version(), next().map(String::from_utf8_lossy).unwrap_or_default());
        if ours != theirs {
            return Err(format!(
                "the worker was built with {ours}, and the loader with {theirs}; build both from the same version"
            ));
        }
        let mut parts = || {
            let (facts, fields, lengths, setup) = (next()?, next()?, next()?, next()?);
            let facts = Some(facts).filter(|facts| facts.len() == size_of::<SpawnFacts>())?;
            // SAFETY: the length was checked to be that of `SpawnFacts`, and any bytes are valid
            // numbers.
            let facts = unsafe { facts.as_ptr().cast::<SpawnFacts>().read_unaligned() };
            let lengths = lengths.as_chunks().0.iter().map(|&length| u32::from_ne_bytes(length)).collect();
            let lengths = Some(lengths).filter(|lengths: &Vec<u32>| !lengths.is_empty());
            Some(Self { facts, fields: String::from_utf8_lossy(fields), lengths, setup })
        };
        parts().ok_or_else(|| "what the loader wrote for it cannot be read".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawn_config(setup: &[u8]) -> SpawnConfig<'_> {
        let facts =
            SpawnFacts { kind: 1, len: 2, rows: 3, strategy: usize::MAX, is_persistent: 4, ..SpawnFacts::default() };
        let lengths = setup.first().map(|&byte| vec![u32::from(byte), u32::MAX]);
        SpawnConfig { facts, fields: "0: i64 []".into(), lengths, setup }
    }

    #[test]
    fn a_configuration_is_read_as_it_was_written() {
        for len in [0, 1, 100_000] {
            let setup: Vec<u8> = (0..=255).cycle().take(len).collect();
            let pages = Pages::of_file(spawn_config(&setup).write().unwrap()).unwrap();
            assert_eq!(SpawnConfig::read(&pages), Ok(spawn_config(&setup)));
        }
    }

    #[test]
    fn configurations_of_others_are_refused() {
        let pages = Pages::of_file(spawn_config(&[7; 40_000]).write().unwrap()).unwrap();
        // SAFETY: only this test uses the pages.
        let bytes = unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), pages.len()) };
        assert!(SpawnConfig::parse(bytes).is_ok());
        for len in (0..2000).chain([30_000]) {
            assert!(SpawnConfig::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        let mut other = bytes.to_vec();
        let digit = other[LEN..].iter().position(u8::is_ascii_digit).unwrap();
        other[LEN + digit] = b'?';
        let error = SpawnConfig::parse(&other).unwrap_err();
        assert!(error.contains("build both from the same version") && error.contains("slotline ?"), "{error}");
    }
}
