//! Plans of bins, compared with those of TRL.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use slotline_sequences::packing::{Long, Packing, PackingError, PackingOptions};

use crate::numbers;

/// Returns the pieces of each bin: the document, its first token there, and how many.
fn pieces(packing: &Packing) -> Vec<Vec<(usize, usize, usize)>> {
    packing
        .bins()
        .map(|bin| bin.map(|piece| (piece.document, piece.tokens.start, piece.tokens.len())).collect())
        .collect()
}

/// Checks that each token of every document is in one place of each epoch, and that no bin is too full or empty.
#[track_caller]
fn check(packing: &Packing, lengths: &[usize], epochs: usize, dropped: usize) {
    let mut seen: Vec<Vec<usize>> = lengths.iter().map(|&length| vec![0; length]).collect();
    for bin in pieces(packing) {
        let filled: usize = bin.iter().map(|piece| piece.2).sum();
        assert!((1..=packing.capacity()).contains(&filled) && bin.len() <= packing.most_pieces());
        for (document, start, len) in bin {
            seen[document][start..start + len].iter_mut().for_each(|times| *times += 1);
        }
    }
    let missing: usize = seen.iter().flatten().map(|&times| epochs.checked_sub(times).expect("at most once")).sum();
    assert_eq!(missing, dropped);
    assert_eq!(packing.tokens() as usize + dropped, epochs * lengths.iter().sum::<usize>());
    assert_eq!((packing.documents(), packing.bin(packing.len()).is_none()), (lengths.len(), true));
}

#[test]
fn best_fit_fills_bins_as_trl_does() {
    for case in crate::vectors()["bins"].as_array().unwrap() {
        let lengths = numbers(&case["lengths"]);
        let packing =
            PackingOptions::new(case["capacity"].as_u64().unwrap() as usize).best_fit(lengths.clone()).unwrap();
        check(&packing, &lengths, 1, 0);
        let theirs = case["best_fit"].as_array().unwrap();
        let piece = |piece: &Value| {
            let [first, len] = numbers(piece)[..] else { panic!("a token and a length") };
            (first / 10_000, first % 10_000, len)
        };
        let theirs: Vec<Vec<_>> =
            theirs.iter().map(|bin| bin.as_array().unwrap().iter().map(piece).collect()).collect();
        // Which of several equal pieces, or of several bins that are equally full, is taken is not defined. All else is.
        let sorted = |bins: &[Vec<(usize, usize, usize)>]| {
            let mut filled: Vec<usize> = bins.iter().map(|bin| bin.iter().map(|piece| piece.2).sum()).collect();
            let mut pieces: Vec<_> = bins.iter().flatten().copied().collect();
            filled.sort_unstable();
            pieces.sort_unstable();
            (filled, pieces)
        };
        assert_eq!(sorted(&pieces(&packing)), sorted(&theirs));
    }
}

#[test]
fn chunks_are_trls() {
    for case in crate::vectors()["bins"].as_array().unwrap() {
        let lengths = numbers(&case["lengths"]);
        let packing = PackingOptions::new(case["capacity"].as_u64().unwrap() as usize).chunks(lengths.clone()).unwrap();
        check(&packing, &lengths, 1, 0);
        let ours: Vec<Vec<usize>> = pieces(&packing)
            .iter()
            .map(|bin| {
                let (first, last) = (bin[0], bin[bin.len() - 1]);
                let end = last.0 * 10_000 + last.1 + last.2 - 1;
                vec![first.0 * 10_000 + first.1, end, bin.iter().map(|piece| piece.2).sum()]
            })
            .collect();
        assert_eq!(ours, case["chunks"].as_array().unwrap().iter().map(numbers).collect::<Vec<_>>());
    }
}

#[test]
fn bad_arguments_are_errors_that_name_them() {
    let message = |packed: Result<Packing, PackingError>| packed.unwrap_err().to_string();
    for capacity in [0, (1 << 28) + 1] {
        let error = message(PackingOptions::new(capacity).chunks([1]));
        assert!(error.contains(&format!("capacity is {capacity}; set it to the number of tokens of a row")), "{error}");
    }
    let error = message(PackingOptions::new(4).epochs(0).best_fit([1]));
    assert!(error.contains("epochs is 0"), "{error}");
    let refuse = PackingOptions::new(4).long(Long::Refuse);
    let error = message(refuse.best_fit([4, 0, 5]));
    assert!(error.contains("document 2 has 5 tokens, but capacity is 4; raise it"), "{error}");
    assert_eq!(refuse.best_fit([4, 0, 3]).unwrap().len(), 2);
    assert_eq!(pieces(&refuse.chunks([5]).unwrap()), [[(0, 0, 4)], [(0, 4, 1)]]);
    #[cfg(target_pointer_width = "64")]
    for packed in [PackingOptions::new(4).best_fit([1, 1 << 32]), PackingOptions::new(4).chunks([usize::MAX])] {
        let error = message(packed);
        assert!(error.contains("tokens of document") && error.contains("too many"), "{error}");
    }
    // More pieces than a plan can have, without memory for them.
    let error = message(PackingOptions::new(1).best_fit([u32::MAX as usize; 2]));
    assert!(error.contains("pieces are too many"), "{error}");
    let error = message(PackingOptions::new(1).chunks([u32::MAX as usize; 2]));
    assert!(error.contains("pieces are too many"), "{error}");
}

#[test]
fn no_tokens_make_no_bins() {
    for lengths in [&[][..], &[0, 0]] {
        for seed in [None, Some(3)] {
            let options = seed.map_or(PackingOptions::new(8), |seed| PackingOptions::new(8).seed(seed));
            for packing in
                [options.best_fit(lengths.iter().copied()), options.epochs(2).chunks(lengths.iter().copied())]
            {
                let packing = packing.unwrap();
                assert!(packing.is_empty() && packing.tokens() == 0 && packing.most_pieces() == 0);
                assert_eq!((packing.efficiency(), packing.documents()), (1.0, lengths.len()));
            }
        }
    }
}

#[test]
fn a_seed_gives_each_epoch_other_bins() {
    let lengths: Vec<usize> = (0..200).map(|i| 1 + i * 7 % 20).collect();
    let of = |seed, epochs| PackingOptions::new(32).seed(seed).epochs(epochs);
    for packing in [of(5, 3).best_fit(lengths.clone()).unwrap(), of(5, 3).chunks(lengths.clone()).unwrap()] {
        check(&packing, &lengths, 3, 0);
        let bins = pieces(&packing);
        let epochs: Vec<_> = bins.chunks(bins.len() / 3).collect();
        assert!(bins.len().is_multiple_of(3) && epochs[0] != epochs[1] && epochs[1] != epochs[2]);
    }
    let [whole, later] = [of(5, 3), of(6, 1)].map(|options| pieces(&options.chunks(lengths.clone()).unwrap()));
    assert_eq!(whole[later.len()..2 * later.len()], later, "epoch 1 of seed 5 is epoch 0 of seed 6");
    let digest = |seed| of(seed, 1).best_fit(lengths.clone()).unwrap().digest();
    assert!(digest(1) == digest(1) && digest(1) != digest(2));
}

fn lengths() -> impl Strategy<Value = (usize, Vec<usize>)> {
    let capacity = prop_oneof![1_usize..6, 30_usize..70, Just(1000)];
    capacity.prop_flat_map(|capacity| {
        let edges = [0, 1, capacity - 1, capacity, capacity + 1, 2 * capacity, 3 * capacity + 1];
        let length = prop_oneof![0..capacity + 1, proptest::sample::select(edges.to_vec()), 0..5 * capacity];
        (Just(capacity), vec(length, 0..60))
    })
}

proptest! {
    #[test]
    fn every_token_is_in_one_place(
        (capacity, lengths) in lengths(), seed: Option<u64>, epochs in 1_usize..4, drop_last: bool,
    ) {
        let mut options = PackingOptions::new(capacity).epochs(epochs).drop_last(drop_last);
        if let Some(seed) = seed {
            options = options.seed(seed);
        }
        let best = options.best_fit(lengths.clone()).unwrap();
        check(&best, &lengths, epochs, 0);
        let (tokens, cut) = (lengths.iter().sum::<usize>(), lengths.iter().map(|length| length.div_ceil(capacity)).sum::<usize>());
        // Nothing is cut that need not be, and no two bins could be one.
        prop_assert_eq!(best.bins().map(|bin| bin.len()).sum::<usize>(), epochs * cut);
        for bin in best.bins() {
            prop_assert!(bin.collect::<Vec<_>>().is_sorted_by_key(|piece| std::cmp::Reverse(piece.tokens.len())));
        }
        prop_assert!(best.len() <= epochs * (1 + 2 * tokens / capacity));
        let chunks = options.chunks(lengths.clone()).unwrap();
        let dropped = if drop_last { tokens % capacity } else { 0 };
        check(&chunks, &lengths, epochs, epochs * dropped);
        prop_assert_eq!(chunks.len(), epochs * (tokens - dropped).div_ceil(capacity));
    }
}

#[test]
fn an_error_tells_its_cause_once() {
    let source = Vec::<u8>::new().try_reserve(usize::MAX).unwrap_err();
    let error = PackingError::Memory { bytes: 1, source };
    let told = slotline::with_causes(&error);
    assert_eq!(told, error.to_string());
    assert_eq!(told.matches("memory allocation failed").count(), 1, "{told}");
}
