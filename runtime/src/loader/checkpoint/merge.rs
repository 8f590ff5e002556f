//! Merges the states of all ranks into one.

use crate::loader::checkpoint::state::{DatasetKind, PassOrigin, State};

/// The reason why states cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There are no states.
    #[error("there are no states to merge")]
    None,
    /// The states are of different steps: their passes or their numbers of delivered batches
    /// differ.
    #[error(
        "state {number} is of pass {} after {} batches, but the first one of pass {} after {}; save the states of all ranks after the same step",
        is.0, is.1, first.0, first.1
    )]
    Step {
        /// The position of the state among the given ones, from 0.
        number: usize,
        /// The state's pass, and the number of batches that were delivered in that pass.
        is: (u32, usize),
        /// The pass and number of batches of the first state.
        first: (u32, usize),
    },
    /// The states are of loaders with different options.
    #[error("state {number} has {field}={is}, but the first one {field}={first}; they are not of ranks of one run")]
    Differs {
        /// The position of the state among the given ones, from 0.
        number: usize,
        /// The name of the field that differs.
        field: &'static str,
        /// The field's value in this state.
        is: String,
        /// The field's value in the first state.
        first: String,
    },
    /// A state is valid for its own rank only.
    #[error("state {number} is of {what}, which belongs to its rank alone; keep one state for each rank")]
    OwnRank {
        /// The position of the state among the given ones, from 0.
        number: usize,
        /// What the state is of, for example an iterable dataset.
        what: &'static str,
    },
}

impl State {
    /// Merges the states of all ranks of a training run into one, which any number of ranks can
    /// load. Their loaders must divide the passes by
    /// [`Builder::ranks`](crate::loader::Builder::ranks), by `DistributedSampler`, or by another
    /// sampler that selects one replica's share.
    ///
    /// The states of the ranks differ only in the number of bad samples, so one of them is enough
    /// to resume. This method also checks that all states are of one training run and of the same
    /// step.
    ///
    /// ```
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::State;
    /// use slotline::{Loader, Ranks};
    ///
    /// let loader = |rank, world_size| {
    ///     let dataset = from_fn(1000, |index, _| Ok(index as i64));
    ///     let ranks = Ranks::new(rank, world_size)?;
    ///     Ok::<_, slotline::BoxError>(Loader::builder(dataset).batch_size(10).shuffle(true).ranks(ranks).build()?)
    /// };
    /// let states: Result<Vec<State>, slotline::BoxError> = (0..8).map(|rank| Ok(loader(rank, 8)?.state())).collect();
    /// let state = State::merge(&states?)?;
    /// for rank in 0..6 {
    ///     loader(rank, 6)?.load_state(&state)?;
    /// }
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    ///
    /// The merged state has the number of bad samples of the rank that met most of them.
    ///
    /// # Errors
    ///
    /// Fails if there is no state, or if the states are of different training runs or steps. Also
    /// fails for states that describe one rank only: those of iterable datasets, and those in which
    /// a batch was delivered before an earlier one.
    pub fn merge<'a>(states: impl IntoIterator<Item = &'a Self>) -> Result<Self, MergeError> {
        let mut states = states.into_iter().enumerate().peekable();
        let Some(&(_, first)) = states.peek() else { return Err(MergeError::None) };
        let mut merged = first.clone();
        for (number, state) in states {
            let own = |what| Err(MergeError::OwnRank { number, what });
            if state.kind == DatasetKind::Iterable {
                return own("a stream");
            }
            if !state.missing.is_empty() {
                return own("a pass out of order");
            }
            if let Some((field, is, first)) = first.difference(state) {
                return Err(MergeError::Differs { number, field, is, first });
            }
            let [is, first] = [state, first].map(|state| (state.epoch, state.batches));
            // Ignore the default generator: each process has its own, and nothing that ranks share
            // is drawn from it.
            let default_generator = merged.start.default_generator;
            if is != first || (PassOrigin { default_generator, ..state.start.clone() }) != merged.start {
                return Err(MergeError::Step { number, is, first });
            }
            merged.bad_samples = merged.bad_samples.max(state.bad_samples);
        }
        Ok(merged)
    }

    /// Returns the first option in which the loaders of the two states differ, with its value in
    /// `self` and in `other`.
    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let sampler = |state: &Self| state.start.sampler.as_ref().map(|sampler| sampler.name.clone());
        let values = |state: &Self| {
            [
                ("version", format!("{:?}", state.version)),
                ("kind", format!("{:?}", state.kind)),
                ("dataset_len", format!("{:?}", state.dataset_len)),
                ("batch_size", format!("{:?}", state.batch_size)),
                ("drop_last", format!("{:?}", state.drop_last)),
                ("seed", format!("{:?}", state.seed())),
                ("sampler", format!("{:?}", sampler(state))),
            ]
        };
        let pairs = values(other).into_iter().zip(values(self));
        pairs.map(|((field, is), (_, first))| (field, is, first)).find(|(_, is, first)| is != first)
    }
}
