//! The index of one shard: the positions of its samples.

use std::collections::HashMap;
use std::path::Path;

use super::header::Members;
use super::name::split;
use super::value::Problem;
use super::{field_name, is_reserved, two_files};
use crate::Error;
use crate::files::Files;
use crate::window::{Progress, Window};

/// The samples of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The names of the fields, in the order of their first appearance.
    pub(super) suffixes: Vec<String>,
    /// The keys of all samples, concatenated.
    pub(super) keys: Vec<u8>,
    pub(super) samples: Vec<Ends>,
    pub(super) members: Vec<Member>,
}

/// The ends of what belongs to one sample: of its key in `keys`, and of its members in `members`.
/// Each begins where that of the previous sample ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) key: u64,
    pub(super) members: u64,
}

/// One file of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The index of the field's name in `suffixes`.
    pub(super) suffix: u32,
    /// The position of the data in the shard, in bytes.
    pub(super) start: u64,
    /// The length of the data, in bytes.
    pub(super) len: u64,
}

impl Index {
    /// Builds the index by reading the headers of a shard.
    pub(super) fn build(files: &Files, shard: usize, progress: &Progress, missing_end: bool) -> Result<Self, Error> {
        let path = files.path(shard);
        let mut building = Building::new(&path);
        let mut members = Members::new(&path, Window::new(files, shard, progress), missing_end);
        while let Some(member) = members.next()? {
            if let Some((key, suffix)) = split(&member.name) {
                building.add(key, suffix, member.start, member.len)?;
            }
        }
        members.finish();
        Ok(building.index)
    }

    /// Returns the key of a sample.
    pub(super) fn key(&self, sample: usize) -> &[u8] {
        let start = sample.checked_sub(1).map_or(0, |before| self.samples[before].key);
        &self.keys[start as usize..self.samples[sample].key as usize]
    }

    /// Returns the members of a sample.
    pub(super) fn members(&self, sample: usize) -> &[Member] {
        let start = sample.checked_sub(1).map_or(0, |before| self.samples[before].members);
        &self.members[start as usize..self.samples[sample].members as usize]
    }

    /// Keeps only the samples for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl Fn(&Self, usize) -> bool) {
        let mut kept = Self { suffixes: std::mem::take(&mut self.suffixes), ..Self::default() };
        for sample in (0..self.samples.len()).filter(|&sample| keep(self, sample)) {
            kept.keys.extend_from_slice(self.key(sample));
            kept.members.extend_from_slice(self.members(sample));
            kept.samples.push(Ends { key: kept.keys.len() as u64, members: kept.members.len() as u64 });
        }
        *self = kept;
    }

    /// Whether all positions are within the shard and consistent with each other.
    pub(super) fn is_sound(&self, shard_len: u64) -> bool {
        let mut last = Ends::default();
        let ordered = self.samples.iter().all(|ends| {
            let ordered = last.key <= ends.key && last.members < ends.members;
            last = *ends;
            ordered
        });
        let within = |member: &Member| {
            let end = member.start.checked_add(member.len);
            (member.suffix as usize) < self.suffixes.len() && end.is_some_and(|end| end <= shard_len)
        };
        // Members must not overlap, and the members of a sample must have different fields.
        let apart = self.members.windows(2).all(|pair| pair[0].start.saturating_add(pair[0].len) <= pair[1].start);
        ordered
            && (last.key, last.members) == (self.keys.len() as u64, self.members.len() as u64)
            && self.members.iter().all(within)
            && apart
            && (0..self.samples.len()).all(|sample| distinct(self.members(sample)))
    }
}

/// Whether no two members have the same field.
fn distinct(members: &[Member]) -> bool {
    members.len() < 2 || {
        let mut suffixes: Vec<u32> = members.iter().map(|member| member.suffix).collect();
        suffixes.sort_unstable();
        suffixes.windows(2).all(|pair| pair[0] != pair[1])
    }
}

/// An index that is being built.
pub(super) struct Building<'a> {
    path: &'a Path,
    pub(super) index: Index,
    known: HashMap<String, u32>,
    /// For each field, the number of samples at the time when the field was last seen.
    seen: Vec<usize>,
}

impl<'a> Building<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self { path, index: Index::default(), known: HashMap::new(), seen: Vec::new() }
    }

    /// Adds a member to the last sample if that sample has this key, and otherwise to a new sample.
    pub(super) fn add(&mut self, key: &[u8], suffix: &[u8], start: u64, len: u64) -> Result<(), Error> {
        let index = &mut self.index;
        let error = |Problem(problem, advice)| Error::format(self.path.display(), start, problem, advice);
        let suffix = field_name(suffix).map_err(error)?;
        let is_new = index.samples.is_empty() || index.key(index.samples.len() - 1) != key;
        if is_new {
            index.keys.extend_from_slice(key);
            index.samples.push(Ends { key: index.keys.len() as u64, members: index.members.len() as u64 });
        }
        let samples = index.samples.len();
        let number = match self.known.get(&suffix) {
            Some(&number) => number,
            None => {
                let number = u32::try_from(index.suffixes.len()).map_err(|_| {
                    error(Problem("more than 2^32 fields".to_owned(), "check the names of the members"))
                })?;
                self.known.insert(suffix.clone(), number);
                index.suffixes.push(suffix.clone());
                self.seen.push(0);
                number
            }
        };
        if std::mem::replace(&mut self.seen[number as usize], samples) == samples || is_reserved(&suffix) {
            return Err(error(two_files(&suffix, key)));
        }
        index.members.push(Member { suffix: number, start, len });
        if let Some(ends) = index.samples.last_mut() {
            ends.members = index.members.len() as u64;
        }
        Ok(())
    }
}
