//! Functions by which samples declare their fields.

use std::collections::HashSet;
use std::fmt;

use super::Sample;
use super::layout::{Fields, LayoutError};

impl Fields {
    /// Returns the fields that `sample` declares.
    pub fn of(sample: &impl Sample) -> Self {
        let mut fields = Self::new();
        sample.declare(&mut fields);
        fields
    }

    /// Adds the fields of a part of the sample. Their names begin with `name`.
    pub fn named(&mut self, name: impl fmt::Display, part: &impl Sample) {
        self.named_by(name, |fields| part.declare(fields));
    }

    /// Adds the fields of parts whose number is known only at run time, as a
    /// [run](Self::named_run).
    pub(crate) fn run(&mut self, parts: impl Iterator<Item = impl Sample>) {
        let first = self.list.len();
        parts.enumerate().for_each(|(i, part)| self.named(i, &part));
        self.end_run(first);
    }

    /// Adds the fields of a sample whose parts are known only at run time, as a *run*, which is a
    /// group of fields that a batch returns together. See [`Dynamic`](super::Dynamic) for an
    /// example.
    ///
    /// There must be at least one part. Each part must have exactly one field, such as a number or
    /// a tensor, and the names of the parts must differ. When a sample is written,
    /// [`Row::next_part`](super::Row::next_part) returns the name of the next part. If a part is
    /// the whole sample, its name is empty, and its field has the sample's name.
    ///
    /// A sample that declares a run must declare nothing else, since its batch consists of the run.
    /// (A tuple can combine it with other samples.)
    pub fn named_run(&mut self, parts: impl IntoIterator<Item = (String, impl Sample)>) {
        let first = self.list.len();
        for (name, part) in parts {
            let start = self.list.len();
            if name.is_empty() {
                part.declare(self)
            } else {
                self.named(&name, &part)
            }
            match &mut self.list[start..] {
                [field] if field.run == 0 => field.part = Some(name),
                fields => {
                    let error = LayoutError::Part { name, fields: fields.len() };
                    self.fail(error);
                }
            }
        }
        if self.list.len() == first {
            self.fail(LayoutError::NoPlace { found: "a sample without fields".to_owned() });
        }
        let mut names = HashSet::new();
        let mut parts = self.list[first..].iter().filter_map(|field| field.part.as_deref());
        if let Some(field) = parts.find(|name| !names.insert(*name)).map(str::to_owned) {
            self.fail(LayoutError::SameName { field });
        }
        self.end_run(first);
    }
}
