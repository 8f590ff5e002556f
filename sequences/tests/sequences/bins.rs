//! Loaders over bins.

use slotline::dataset::{Context, Dataset};
use slotline::loader::BatchOf;
use slotline::rng::rand_core::Rng;
use slotline::sample::PaddedToMax;
use slotline::sampler::DistributedSampler;
use slotline::{BoxError, Error, Loader};
use slotline_sequences::packing::{PackedDataset, Packing, PackingError, PackingOptions};

use crate::support::{Workers, worker_kinds};

const CAPACITY: usize = 16;

/// Documents of tokens that encode their place, and of random labels.
#[derive(Clone)]
struct Documents(Vec<usize>);

impl Documents {
    fn new() -> Self {
        Self((0..60).map(|i| [0, 1, 16, 17, 40, 5, 3, 8, 2][i % 9]).collect())
    }

    fn tokens(document: usize, length: usize) -> Vec<u32> {
        (0..length).map(|place| (document * 100 + place) as u32).collect()
    }
}

impl Dataset for Documents {
    type Sample<'a> = (Vec<u32>, PaddedToMax<'a, i64>);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        if self.0[index] == 8 && index > 50 {
            return Err("eight".into());
        }
        let length = self.0[index];
        let word = (cx.rng().next_u64() >> 32) as i64;
        let labels = cx.buffer::<i64>(length);
        labels.iter_mut().zip(0..).for_each(|(label, place)| *label = word + place);
        Ok((Documents::tokens(index, length), PaddedToMax::new(labels, 100)))
    }
}

type Rows = Vec<(Vec<u32>, Vec<i64>, Vec<i32>)>;

/// Checks the batches of one pass against the plan, and returns the rows by bin.
fn pass(loader: &mut Loader<BatchOf<PackedDataset<Documents>>>, packing: &Packing, from: usize) -> Vec<(i64, Rows)> {
    let mut batches = Vec::new();
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let bins = batch.tensors();
        let mut rows = Rows::new();
        let mut flat = Vec::new();
        let longest = bins.flat_cu_seqlens(&mut flat);
        let mut want_flat = vec![0];
        for (row, &index) in batch.indices().iter().enumerate() {
            let pieces: Vec<_> = packing.bin(index as usize).unwrap().collect();
            let mut want = (Vec::new(), Vec::new(), Vec::new(), vec![0]);
            for (piece, id) in pieces.iter().zip(1..) {
                let tokens = Documents::tokens(piece.document, 100);
                want.0.extend_from_slice(&tokens[piece.tokens.clone()]);
                want.1.extend(0..piece.tokens.len() as i32);
                want.2.extend(piece.tokens.clone().map(|_| id));
                want.3.push(want.0.len() as i32);
                want_flat.push((row * CAPACITY + want.0.len()) as i32);
            }
            let end = want.0.len();
            want.0.resize(CAPACITY, 7);
            want.1.resize(CAPACITY, 0);
            want.2.resize(CAPACITY, 0);
            want_flat.push(((row + 1) * CAPACITY) as i32);
            assert_eq!(bins.tokens.0.row(row).as_slice(), want.0);
            assert_eq!(bins.position_ids.row(row).as_slice(), want.1);
            assert_eq!(bins.document_ids.row(row).as_slice(), want.2);
            assert_eq!(bins.cu_seqlens.row(row), want.3);
            let labels = bins.tokens.1.row(row);
            assert!(labels.as_slice()[end..].iter().all(|&label| label == -100));
            rows.push((want.0, labels.as_slice().to_vec(), want.3));
        }
        want_flat.dedup();
        assert_eq!((&flat, longest), (&want_flat, want_flat.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap()));
        batches.push((batch.batch_index() as i64, rows));
    }
    assert!(from > 0 || !batches.is_empty());
    batches
}

fn packed(packing: &Packing) -> PackedDataset<Documents> {
    PackedDataset::new(Documents(Documents::new().0[..50].to_vec()), packing.clone()).unwrap().padding([7, -100])
}

fn packing(best: bool) -> Packing {
    let lengths = Documents::new().0[..50].to_vec();
    let options = PackingOptions::new(CAPACITY).seed(3);
    if best { options.best_fit(lengths) } else { options.epochs(2).chunks(lengths) }.unwrap()
}

#[test]
fn bins_are_the_same_for_any_workers() {
    for best in [true, false] {
        let packing = packing(best);
        let build = |kind: Workers| {
            let builder = Loader::builder(packed(&packing)).batch_size(3).shuffle(true).seed(9);
            kind.build(builder).unwrap()
        };
        let mut alone = build(Workers { workers: 0, processes: false });
        let want: Vec<_> = (0..2).map(|_| pass(&mut alone, &packing, 0)).collect();
        assert_ne!(want[0], want[1]);
        for kind in worker_kinds([1, 3]) {
            let mut loader = build(kind);
            for want in &want {
                assert!(pass(&mut loader, &packing, 0) == *want, "{kind:?}");
            }
        }
    }
}

#[test]
fn ranks_share_the_bins_and_their_random_numbers() {
    let packing = packing(true);
    let share = |ranks, rank| {
        let sampler = DistributedSampler::new(packing.len(), ranks, rank).unwrap().seed(1);
        let mut loader = Loader::builder(packed(&packing)).batch_size(1).sampler(sampler).seed(4).build().unwrap();
        pass(&mut loader, &packing, 0).into_iter().map(|(_, mut rows)| rows.remove(0)).collect::<Vec<_>>()
    };
    let whole = share(1, 0);
    let shares: Vec<_> = (0..3).map(|rank| share(3, rank)).collect();
    assert!(shares.iter().all(|share| share.len() == whole.len().div_ceil(3)));
    for (place, bin) in whole.iter().enumerate() {
        assert_eq!(shares[place % 3][place / 3], *bin);
    }
}

#[test]
fn a_resumed_pass_has_the_bins_of_a_whole_one() {
    let packing = packing(false);
    let build = || Loader::builder(packed(&packing)).batch_size(2).shuffle(true).seed(9).build().unwrap();
    let want = pass(&mut build(), &packing, 0);
    for cut in [0, 1, 5, want.len() - 1] {
        let mut first = build();
        let mut begun = first.epoch().unwrap();
        for _ in 0..cut {
            begun.next().unwrap().unwrap();
        }
        let state = serde_json::to_string(&begun.state()).unwrap();
        drop(begun);
        let mut second = build();
        second.load_state(&serde_json::from_str(&state).unwrap()).unwrap();
        assert!(pass(&mut second, &packing, cut) == want[cut..]);
    }
}

#[test]
fn what_does_not_match_the_plan_is_an_error() {
    let lengths = Documents::new().0;
    let plan = |lengths: &[usize]| PackingOptions::new(CAPACITY).best_fit(lengths.iter().copied()).unwrap();
    let error = PackedDataset::new(Documents(lengths.clone()), plan(&lengths[1..])).unwrap_err();
    assert!(matches!(error, PackingError::Documents { packed: 59, samples: 60 }), "{error}");
    let first_error = |dataset: PackedDataset<Documents>| {
        let mut loader = Loader::builder(dataset).batch_size(4).build().unwrap();
        let error = loader.epoch().unwrap().find_map(Result::err).expect("an error");
        let Error::Sample { source, .. } = &error else { panic!("{error}") };
        source.to_string()
    };
    // A document that is longer or shorter than it was.
    for length in [9, 7] {
        let mut other = lengths.clone();
        other[7] = length;
        let error = first_error(PackedDataset::new(Documents(other), plan(&lengths)).unwrap());
        let want = format!("document 7 of the bin can't be packed: it has {length} tokens, but 8 were packed");
        assert!(error.starts_with(&want), "{error}");
    }
    let error = first_error(PackedDataset::new(Documents(lengths.clone()), plan(&lengths)).unwrap());
    assert_eq!(error, "document 52 of the bin can't be packed: eight");
    let error = first_error(packed(&packing(true)).padding([-1]));
    assert!(error.starts_with("the padding of sequence 0 is no u32; set `padding`"), "{error}");
}
