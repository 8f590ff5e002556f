use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::sampler::order_of;

/// Returns the source of each sample, and the sample's index in that source.
fn located(lens: &[usize], indices: &[usize]) -> Vec<(usize, usize)> {
    let locate = |&index: &usize| {
        let (mut source, mut index) = (0, index);
        while index >= lens[source] {
            (source, index) = (source + 1, index - lens[source]);
        }
        (source, index)
    };
    indices.iter().map(locate).collect()
}

fn counts(sources: usize, samples: &[(usize, usize)]) -> Vec<usize> {
    let mut counts = vec![0; sources];
    samples.iter().for_each(|&(source, _)| counts[source] += 1);
    counts
}

fn draw(sampler: MixtureSampler, seed: u64) -> Vec<usize> {
    order_of(&mut { sampler }, &mut Generator::from_seed(seed))
}

fn num_samples(samples: u64) -> Stop {
    Stop::NumSamples(NonZero::new(samples).unwrap())
}

/// The expected orders are those of `interleave_datasets` (datasets 5.2.0) without probabilities.
/// With `all_exhausted`, that function returns one more index, since it completes its last round.
#[test]
fn equal_weights_are_those_of_interleave_datasets() {
    let lens = [3, 5, 2];
    let even =
        |stop| draw(MixtureSampler::new(lens, [1.0; 3]).unwrap().stop(stop).unwrap().even(true).shuffle(false), 0);
    assert_eq!(even(Stop::FirstExhausted), [0, 3, 8, 1, 4, 9]);
    assert_eq!(even(Stop::AllExhausted), [0, 3, 8, 1, 4, 9, 2, 5, 8, 0, 6, 9, 1, 7]);
    assert_eq!(even(Stop::AllExhaustedWithoutReplacement), [0, 3, 8, 1, 4, 9, 2, 5, 6, 7]);
}

#[test]
fn weights_that_are_numbers_of_samples_are_met_exactly() {
    let (lens, choose) = ([10, 1000, 7], [35, 400, 7]);
    for even in [false, true] {
        let mixture = MixtureSampler::new(lens, choose.map(|count| count as f64)).unwrap().even(even);
        let samples = located(&lens, &draw(mixture.stop(num_samples(442)).unwrap(), 3));
        assert_eq!(counts(3, &samples), choose);
    }
}

#[test]
fn a_dataset_of_weight_0_is_left_out() {
    let mixture = MixtureSampler::new([5, 0, 9, 4], [1.0, 0.0, 0.0, 1.0]).unwrap();
    let samples = located(&[5, 0, 9, 4], &draw(mixture.stop(Stop::AllExhausted).unwrap(), 1));
    let counts = counts(4, &samples);
    assert_eq!((counts[1], counts[2], samples.len()), (0, 0, 9));
}

#[test]
fn each_pass_and_each_round_is_shuffled_anew() {
    let mixture = MixtureSampler::new([100, 100], [1.0, 3.0]).unwrap().stop(num_samples(800)).unwrap();
    let (mut sampler, mut default) = (mixture.clone(), Generator::from_seed(5));
    let passes = [order_of(&mut sampler, &mut default), order_of(&mut sampler, &mut default)];
    assert_eq!(default.drawn(), 4, "a pass draws one number of two words");
    assert_ne!(passes[0], passes[1]);
    let of = |source| located(&[100, 100], &passes[0]).into_iter().filter(move |sample| sample.0 == source);
    let [first, second] = [0, 1].map(|source| of(source).map(|(_, index)| index).collect::<Vec<_>>());
    assert_eq!((first.len(), second.len()), (200, 600));
    let mut rounds: Vec<&[usize]> = first.chunks(100).chain(second.chunks(100)).collect();
    rounds.sort_unstable();
    rounds.dedup();
    assert_eq!(rounds.len(), 8, "all orders differ, even of equal datasets");

    let given = SharedGenerator::from(Generator::from_seed(5));
    let mut with = mixture.generator(given.clone());
    assert_eq!(order_of(&mut with, &mut Generator::from_seed(77)), passes[0]);
    assert_eq!(given.lock().drawn(), 2);
}

/// Checks the chi-square of pairs of sources at adjacent positions, with 3 degrees of freedom: it
/// is above 16.3 in one of 1000 cases. A block of 256 has an exact number of samples of each
/// source, so the pair at the border of two blocks deviates a little.
#[test]
fn sources_come_in_random_order() {
    let mixture = MixtureSampler::new([1 << 40, 1 << 40], [1.0, 1.0]).unwrap().stop(num_samples(1 << 16)).unwrap();
    let sources: Vec<_> = draw(mixture, 1).into_iter().map(|index| index >> 40).collect();
    let mut pairs = [0.0_f64; 4];
    sources.chunks(2).for_each(|pair| pairs[pair[0] * 2 + pair[1]] += 1.0);
    let expected = sources.len() as f64 / 8.0;
    let chi: f64 = pairs.iter().map(|count| (count - expected).powi(2) / expected).sum();
    assert!(chi < 16.3, "{pairs:?}");
}

#[test]
fn a_huge_mixture_takes_no_table() {
    let lens = [1 << 40, 3, 1 << 50];
    let mut mixture = MixtureSampler::new(lens, [0.3, 1e-9, 0.7]).unwrap().stop(Stop::AllExhausted).unwrap();
    assert!(mixture.memory() < 1000, "{}", mixture.memory());
    let mut order = Order::default();
    mixture.order(&mut Generator::new(), &mut order).unwrap();
    assert_eq!((order.len(), order.memory()), (mixture.len(), mixture.memory()));
    assert!(order.len() > 1 << 50);
    assert!(order.index(order.len() - 1) < lens.iter().sum());
}

#[test]
fn bad_arguments_are_errors() {
    let message = |lens: &[usize], weights: &[f64]| {
        let made = MixtureSampler::new(lens.iter().copied(), weights.iter().copied());
        made.unwrap_err().to_string()
    };
    for (lens, weights, want) in [
        (&[1, 2][..], &[1.0][..], "MixtureSampler: 1 weights for 2 datasets; give one weight for each"),
        (&[1, 2], &[1.0, -1.0], "MixtureSampler: weight 1 is -1; weights must be finite and not negative"),
        (&[1, 2], &[f64::NAN, 1.0], "weight 0 is NaN"),
        (&[1, 2], &[1.0, f64::INFINITY], "weight 1 is inf"),
        (&[1, 2], &[0.0, 0.0], "the weights add up to 0; at least one must be positive"),
        (&[1, 2], &[1e308, 1e308], "the weights add up to inf"),
        (&[], &[], "the weights add up to 0"),
        (&[1, 0], &[1.0, 0.5], "dataset 1 is empty, but has weight 0.5; set its weight to 0, or leave it out"),
        (&[usize::MAX, 1], &[1.0, 0.0], "a pass would have more than 2^62 samples"),
    ] {
        let got = message(lens, weights);
        assert!(got.contains(want), "{got}");
    }
    let tiny = MixtureSampler::new([1 << 40, 1], [1e-12, 1.0]).unwrap();
    assert!(matches!(tiny.clone().stop(Stop::AllExhausted), Err(SequenceError::TooLong { .. })));
    assert!(matches!(tiny.stop(num_samples((1 << 62) + 1)), Err(SequenceError::TooLong { .. })));
    assert!(MixtureSampler::by_size([]).is_err());
}

fn sources() -> impl Strategy<Value = (Vec<usize>, Vec<f64>)> {
    vec((1_usize..60, prop_oneof![0.01..1.0, 1.0..20.0]), 1..6).prop_map(|sources| sources.into_iter().unzip())
}

proptest! {
    #[test]
    fn a_pass_is_as_the_weights_demand_and_repeats_nothing_early(
        (lens, weights) in sources(), stop in 0..4, even: bool, shuffle: bool, seed: u64,
    ) {
        let stop = match stop {
            0 => Stop::FirstExhausted,
            1 => Stop::AllExhausted,
            2 => Stop::AllExhaustedWithoutReplacement,
            _ => num_samples(seed % 900 + 1),
        };
        let mixture = MixtureSampler::new(lens.clone(), weights.clone()).unwrap().stop(stop).unwrap();
        let samples = located(&lens, &draw(mixture.even(even).shuffle(shuffle), seed));
        // Counts the passes over each source.
        for (source, &len) in lens.iter().enumerate() {
            let visited: Vec<_> = samples.iter().filter(|sample| sample.0 == source).map(|sample| sample.1).collect();
            for round in visited.chunks(len) {
                let mut seen = vec![false; len];
                prop_assert!(round.iter().all(|&index| !std::mem::replace(&mut seen[index], true)));
                prop_assert!(shuffle || round.iter().copied().eq(0..round.len()));
            }
        }
        let totals = counts(lens.len(), &samples);
        let whole = totals.iter().zip(&lens).filter(|(total, len)| total >= len).count();
        let too_much = totals.iter().zip(&lens).filter(|(total, len)| total > len).count();
        match stop {
            Stop::FirstExhausted => prop_assert!(whole == 1 && too_much == 0, "{totals:?}"),
            Stop::AllExhausted => prop_assert_eq!(whole, lens.len()),
            Stop::AllExhaustedWithoutReplacement => prop_assert_eq!(&totals, &lens),
            Stop::NumSamples(samples) => prop_assert_eq!(totals.iter().sum::<usize>() as u64, samples.get()),
        }
        // Checks every position of the pass, or of the first phase without replacement.
        if stop != Stop::AllExhaustedWithoutReplacement {
            let sum: f64 = weights.iter().sum();
            for p in (0..=samples.len()).filter(|p| even || p % 256 == 0) {
                for (count, weight) in counts(lens.len(), &samples[..p]).into_iter().zip(&weights) {
                    let share = weight / sum;
                    let most = 0.5 + share * (1.0 + lens.len() as f64 / 2.0) + 1e-6;
                    prop_assert!((count as f64 - p as f64 * share).abs() <= most, "{count} at {p}");
                }
            }
        }
    }

    #[test]
    fn an_arrangement_has_the_totals_of_even_turns((lens, weights) in sources(), samples in 1_u64..900, seed: u64) {
        let mixture = MixtureSampler::new(lens.clone(), weights).unwrap().stop(num_samples(samples)).unwrap();
        let [random, even] = [mixture.clone(), mixture.even(true)].map(|mixture| located(&lens, &draw(mixture, seed)));
        for p in (0..=samples as usize).filter(|p| p % 256 == 0 || *p == samples as usize) {
            prop_assert_eq!(counts(lens.len(), &random[..p]), counts(lens.len(), &even[..p]));
        }
    }
}
