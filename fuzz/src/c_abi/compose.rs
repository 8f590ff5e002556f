//! Datasets made of other datasets, valid and invalid.

use std::array;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use slotline_ffi::*;

use super::calls::check;
use super::data::{Content, Struct};
use super::user::{self, User, dropped};
use super::{Handle, World, any, call, make};
use crate::choices::Choices;

type Dataset = (*mut slotline_dataset, Arc<Content>);

impl World {
    pub(super) fn compose(&mut self, choices: &mut Choices<'_>) {
        match choices.below(8) {
            0 => self.subset(choices),
            1 => self.split(choices),
            2..5 => self.map(choices),
            kind => self.join(choices, kind),
        }
    }

    /// Returns one of the datasets with its content, or NULL without content.
    fn one(&self, choices: &mut Choices<'_>) -> Dataset {
        let Handle { pointer, content, .. } = &self.datasets[choices.below(self.datasets.len())];
        if choices.one_in(24) { (null_mut(), Arc::default()) } else { (*pointer, content.clone()) }
    }

    fn subset(&mut self, choices: &mut Choices<'_>) {
        let (dataset, content) = self.one(choices);
        let indices: Vec<usize> = (0..choices.below(6)).map(|_| choices.below(9)).collect();
        let start = if choices.one_in(24) { null() } else { indices.as_ptr() };
        // SAFETY: a valid dataset or NULL, indices of the stated length or NULL, and out-pointers that are valid or
        // NULL.
        let made = make(choices, slotline_dataset_free, |out, error| unsafe {
            slotline_dataset_subset(dataset, start, indices.len(), out, error)
        });
        let samples = indices.into_iter().map(|index| (content.clone(), index)).collect();
        self.keep(made, Content { samples, ..Content::default() });
    }

    /// Splits a dataset at random into three parts, and keeps one of them. Its content is not
    /// checked, since the order of its samples is unknown.
    fn split(&mut self, choices: &mut Choices<'_>) {
        let (dataset, _) = self.one(choices);
        // SAFETY: a valid dataset or NULL.
        let len = usize::try_from(unsafe { slotline_dataset_len(dataset) }).unwrap_or(0);
        let some = choices.below(len + 1);
        let lengths = if choices.one_in(8) { [1, usize::MAX, 2] } else { [some, 0, len - some] };
        let fractions = choices.of(&[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.5, 0.6, 0.0], [f64::NAN, 0.0, 1.0]]);
        let by_lengths = choices.one_in(2);
        let mut parts: [*mut slotline_dataset; 3] = array::from_fn(|_| std::ptr::dangling_mut());
        let out = if choices.one_in(24) { null_mut() } else { parts.as_mut_ptr() };
        // SAFETY: a valid dataset or NULL, lists of the stated length, no generator, and out-pointers that are valid or
        // NULL.
        let status = call(choices, |error| unsafe {
            if by_lengths {
                slotline_dataset_random_split(dataset, lengths.as_ptr(), 3, null(), out, error)
            } else {
                slotline_dataset_random_split_fractions(dataset, fractions.as_ptr(), 3, null(), out, error)
            }
        });
        if out.is_null() {
            return assert_ne!(status, SLOTLINE_OK);
        }
        assert!(parts.iter().all(|part| part.is_null() == (status != SLOTLINE_OK)), "status {status:?}");
        if status == SLOTLINE_OK {
            let [first, ..] =
                parts.map(|pointer| Handle { pointer, free: slotline_dataset_free, content: Arc::default() });
            self.keep(Some(first), Content::default());
        }
    }

    fn map(&mut self, choices: &mut Choices<'_>) {
        let (dataset, _) = self.one(choices);
        let declared = self.fields(choices);
        let user = User::hand_over(&self.ledger, choices.below(64), declared.known.clone());
        let transform = slotline_transform {
            struct_size: 0,
            user,
            fields: declared.list.pointer(),
            num_fields: declared.count,
            map: if choices.one_in(24) { None } else { Some(user::map) },
            drop: Some(dropped),
        };
        let sized = Struct::new(&transform, choices);
        // SAFETY: a valid dataset or NULL, a struct of the size that it states, and out-pointers that are valid or
        // NULL.
        let made = make(choices, slotline_dataset_free, |out, error| unsafe {
            slotline_dataset_map(dataset, sized.pointer(), out, error)
        });
        self.keep_called(made, &sized, user, declared.content());
    }

    /// Combines up to three datasets, which may not fit together.
    fn join(&mut self, choices: &mut Choices<'_>, kind: usize) {
        let same = choices.one_in(2).then(|| self.one(choices));
        let parts: Vec<Dataset> =
            (0..choices.of(&[2, 1, 3, 0])).map(|_| same.clone().unwrap_or_else(|| self.one(choices))).collect();
        let list: Vec<_> = parts.iter().map(|(part, _)| part.cast_const()).collect();
        let start = if choices.one_in(24) { null() } else { list.as_ptr() };
        // SAFETY: valid datasets or NULL, in a list of the stated length or NULL, and out-pointers that are valid or
        // NULL.
        let made = make(choices, slotline_dataset_free, |out, error| unsafe {
            match kind {
                5 => slotline_dataset_concat(start, list.len(), out, error),
                6 => slotline_dataset_stack(start, list.len(), out, error),
                _ => slotline_dataset_chain(start, list.len(), out, error),
            }
        });
        let mut content = Content::default();
        if kind == 5 && made.is_some() {
            for (part, of) in parts {
                // SAFETY: a valid dataset.
                let len = unsafe { slotline_dataset_len(part) };
                content.samples.extend((0..len as usize).map(|index| (of.clone(), index)));
            }
        }
        self.keep(made, content);
    }

    /// Reads a sample of a dataset without a loader, through another handle.
    pub(super) fn read_sample(&mut self, choices: &mut Choices<'_>) {
        let which = choices.below(self.datasets.len());
        let Handle { pointer, free, ref content } = self.datasets[which];
        // SAFETY: a valid dataset.
        let clone = Handle { pointer: unsafe { slotline_dataset_clone(pointer) }, free, content: content.clone() };
        let dataset = any(std::slice::from_ref(&clone), choices);
        let index = choices.of(&[0, 1, 2, 5, usize::MAX]);
        // SAFETY: a valid dataset or NULL, and out-pointers that are valid or NULL.
        let sample = make(choices, slotline_batch_free, |out, error| unsafe {
            slotline_dataset_read(dataset, index, out, error)
        });
        if let Some(mut sample) = sample {
            sample.content = clone.content.clone();
            drop(clone);
            check(&sample);
        }
    }
}
