//! Tests that a dataset that reads ahead is told the order of each pass before the pass begins. The
//! call that tells it is an *announcement*.

use std::sync::{Arc, Mutex};

use slotline::dataset::{ConcatDataset, Context, Dataset, StackDataset, Subset, Upcoming, from_fn};
use slotline::sample::{Fields, Packed};
use slotline::{BoxError, Loader};

/// A dataset whose samples are their index plus `first`. It records the announcements in `announcements`.
struct Ahead {
    len: usize,
    first: i64,
    announcements: Arc<Mutex<Vec<Upcoming>>>,
}

impl Ahead {
    fn new(len: usize) -> Self {
        Self { len, first: 0, announcements: Arc::default() }
    }
}

impl Dataset for Ahead {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
        Ok(self.first + index as i64)
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.announcements.lock().unwrap().push(upcoming);
    }
}

/// Returns the samples of an announced pass. The sample at index 0 is `first`.
fn announced(announcements: &Mutex<Vec<Upcoming>>, pass: usize, first: i64) -> Vec<Option<i64>> {
    let upcoming = announcements.lock().unwrap()[pass].clone();
    upcoming.positions().map(|position| upcoming.index(position).map(|index| first + index as i64)).collect()
}

/// Returns the samples of a pass.
fn pass(loader: &mut Loader<slotline::Batch<i64>>) -> Vec<Option<i64>> {
    loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).map(Some).collect()
}

#[test]
fn every_backend_announces_the_order_that_it_delivers() {
    for (workers, round_robin, processes) in [(0, false, false), (2, false, false), (2, true, false), (2, false, true)]
    {
        let dataset = Ahead::new(23);
        let announcements = dataset.announcements.clone();
        let builder = Loader::builder(dataset).batch_size(4).shuffle(true).drop_last(true).num_workers(workers);
        let mut loader = match (round_robin, processes) {
            (_, true) => builder.processes().build(),
            (round_robin, _) => builder.round_robin(round_robin).build(),
        }
        .unwrap();
        for number in 0..3 {
            let got = pass(&mut loader);
            assert_eq!(got.len(), 20);
            assert_eq!(got, announced(&announcements, number, 0), "{workers} {round_robin} {processes}");
        }
        assert_eq!(announcements.lock().unwrap().len(), 3);
    }
}

#[test]
fn datasets_of_others_pass_it_on() {
    let dataset = Ahead::new(10);
    let announcements = dataset.announcements.clone();
    let some = Subset::new(dataset, [9, 4, 4, 0]).unwrap();
    let mapped = some.map(|sample, _| Ok(sample));
    let stacked = StackDataset::new((from_fn(4, |_, _| Ok(())), mapped)).unwrap();
    let only = stacked.map(|(_, sample), _| Ok(sample));
    let mut loader = Loader::builder(Arc::new(only)).shuffle(true).batch_size(3).build().unwrap();
    let got = pass(&mut loader);
    assert_eq!(got, announced(&announcements, 0, 0));

    let (first, second) = (Ahead::new(5), Ahead { first: 5, ..Ahead::new(4) });
    let announcements = [first.announcements.clone(), second.announcements.clone()];
    let check = |loader: &mut Loader<slotline::Batch<i64>>, number| {
        let got = pass(loader);
        let parts = [announced(&announcements[0], number, 0), announced(&announcements[1], number, 5)];
        let both = parts[0].iter().zip(&parts[1]).map(|(a, b)| {
            assert!(a.is_none() || b.is_none());
            a.or(*b)
        });
        assert_eq!(got, both.collect::<Vec<_>>());
    };
    let (first, second) = (Arc::new(first), Arc::new(second));
    let all = ConcatDataset::new(vec![first.clone(), second.clone()]).unwrap();
    check(&mut Loader::builder(all).shuffle(true).batch_size(3).build().unwrap(), 0);
    let all = first.concat(second).unwrap();
    check(&mut Loader::builder(all).shuffle(true).batch_size(3).build().unwrap(), 1);
}

#[test]
fn a_resumed_pass_announces_what_is_left() {
    let build = || {
        let dataset = Ahead::new(11);
        let announcements = dataset.announcements.clone();
        (Loader::builder(dataset).shuffle(true).seed(3).batch_size(2).build().unwrap(), announcements)
    };
    let (mut loader, _) = build();
    let mut begun = loader.epoch().unwrap();
    begun.by_ref().take(2).for_each(|batch| drop(batch.unwrap()));
    let state = begun.state();
    let rest: Vec<_> = begun.flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).map(Some).collect();
    let (mut resumed, announcements) = build();
    resumed.load_state(&state).unwrap();
    assert_eq!(pass(&mut resumed), rest);
    assert_eq!(announced(&announcements, 0, 0), rest);
    assert_eq!(announcements.lock().unwrap()[0].positions(), 4..11);
}

#[test]
fn an_iterator_of_indices_is_not_announced() {
    let dataset = Ahead::new(8);
    let announcements = dataset.announcements.clone();
    let mut loader = Loader::builder(dataset).sampler_iter(|| [7, 1].into_iter()).build().unwrap();
    assert_eq!(pass(&mut loader), [Some(7), Some(1)]);
    assert!(announcements.lock().unwrap().is_empty());
}

/// A dataset of samples of growing length, in batches with room for few items.
struct Growing;

impl Dataset for Growing {
    type Sample<'a> = Packed<'a, u16>;

    fn len(&self) -> usize {
        6
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let data = cx.buffer(10 * index);
        data.fill(index as u16);
        Ok(Packed::new(data, 2))
    }

    fn fields(&self) -> Option<Fields> {
        let mut fields = Fields::of(&Packed::<u16>::new(&[], 2));
        fields.spill();
        Some(fields)
    }
}

#[test]
fn a_dataset_can_let_its_samples_spill() {
    for workers in [0, 2] {
        let mut loader = Loader::builder(Growing).batch_size(3).num_workers(workers).build().unwrap();
        let lengths: Vec<_> =
            loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().lengths().collect::<Vec<_>>()).collect();
        assert_eq!(lengths, [0, 10, 20, 30, 40, 50]);
        assert_eq!(loader.stats().spilled_batches, 2);
    }
    // Worker processes cannot spill, that is, take memory from the heap for a batch that is too
    // long.
    let mut loader = Loader::builder(Growing).batch_size(3).num_workers(1).processes().build().unwrap();
    let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("sample"), "{error}");
}
