//! Checks that MixUp and CutMix give torchvision's pixels and labels for the same parameters.
//! `torchvision/make.py` wrote the expected results.

use slotline::dataset::from_fn;
use slotline::rng::SampleRng;
use slotline::{BoxError, Loader};
use slotline_image::{CutMix, Mix, MixUp};

#[test]
fn pixels_and_labels_are_torchvisions() {
    let bytes = include_bytes!("../torchvision/mixed.f32");
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let (start, mut rest) = numbers.split_at(4 * 3 * 120);
    for mix in [Mix::MixUp { lambda: 0.3 }, Mix::CutMix { rows: [0, 7], columns: [3, 9] }] {
        let (pictures, after) = rest.split_at(start.len());
        let (labels, after) = after.split_at(4 * 5);
        rest = after;
        let mut ours = start.to_vec();
        mix.pictures(&mut ours, [4, 3, 10, 12], false).unwrap();
        assert!(ours.iter().zip(pictures).all(|(ours, theirs)| (ours - theirs).abs() < 1e-6), "{mix:?}");
        let turned = |from: &[f32]| -> Vec<f32> {
            (0..start.len()).map(|i| from[i / 360 * 360 + i % 3 * 120 + i % 360 / 3]).collect()
        };
        let mut last = turned(start);
        mix.pictures(&mut last, [4, 10, 12, 3], true).unwrap();
        assert!(last == turned(&ours), "{mix:?} with channels last");
        let mut soft = Vec::new();
        mix.labels(&[2, 0, 0, 4], [10, 12], 5, &mut soft).unwrap();
        assert!(soft.iter().zip(labels).all(|(ours, theirs)| (ours - theirs).abs() < 1e-6), "{soft:?} {labels:?}");
    }
    assert!(rest.is_empty());
}

/// Mixes the batches of a pass. If `skip` is not 0, the pass is resumed after that many batches.
fn mixed(workers: usize, skip: usize) -> Result<Vec<Vec<f32>>, BoxError> {
    let build = || {
        let pictures = from_fn(22, |i, _| Ok(([i as f32; 72], i as i64 % 3)));
        Loader::builder(pictures).batch_size(4).shuffle(true).seed(9).num_workers(workers).build()
    };
    let mut loader = build()?;
    if skip > 0 {
        let mut pass = loader.epoch()?;
        for _ in 0..skip {
            pass.next().expect("a batch")?;
        }
        let state = pass.state();
        drop(pass);
        loader = build()?;
        loader.load_state(&state)?;
    }
    let mut all = Vec::new();
    for batch in loader.epoch()? {
        let mut batch = batch?;
        let mut rng = SampleRng::new(5, batch.epoch(), batch.batch_index() as u64);
        let mix = if batch.batch_index() % 2 == 0 {
            MixUp::default().draw(&mut rng)?
        } else {
            CutMix::default().draw(&mut rng, 4, 6)?
        };
        let (rows, mut labels) = (batch.len(), Vec::new());
        mix.labels(batch.tensors().1.as_slice(), [4, 6], 3, &mut labels)?;
        assert!(labels.chunks(3).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6));
        let pictures = batch.field_mut(0).expect("f32");
        mix.pictures(pictures, [rows, 3, 4, 6], false)?;
        all.push([&*pictures, &labels].concat());
    }
    Ok(all)
}

#[test]
fn mixed_batches_are_the_same_for_any_number_of_workers_and_after_resuming() {
    let alone = mixed(0, 0).unwrap();
    assert_eq!(alone.len(), 6);
    assert!(mixed(1, 0).unwrap() == alone && mixed(3, 0).unwrap() == alone);
    assert!(mixed(2, 3).unwrap() == alone[3..]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut pictures = [0.0_f32; 24];
    let outside = Mix::CutMix { rows: [0, 3], columns: [0, 1] };
    for (mix, shape) in [(outside, [2, 3, 2, 2]), (Mix::MixUp { lambda: 1.5 }, [2, 3, 2, 2]), (Mix::None, [2, 3, 2, 3])]
    {
        assert!(mix.pictures(&mut pictures, shape, false).is_err(), "{mix:?}");
    }
    let error = Mix::None.labels(&[0, 7], [2, 2], 3, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("has 7 at 1; classes are 0 to 2"), "{error}");
}

#[test]
fn pictures_of_bytes_are_mixed_too() {
    let mut pictures = [[10_u8; 6], [20; 6], [31; 6]].concat();
    Mix::MixUp { lambda: 0.75 }.pictures(&mut pictures, [3, 1, 2, 3], false).unwrap();
    // Each picture is mixed with the one before it: 10 and 31, 20 and 10, 31 and 20.
    assert_eq!(pictures, [[15; 6], [18; 6], [28; 6]].concat());
    let mut pictures = [[1_u8; 6], [2; 6]].concat();
    Mix::CutMix { rows: [0, 1], columns: [1, 3] }.pictures(&mut pictures, [2, 1, 2, 3], false).unwrap();
    assert_eq!(pictures, [1, 2, 2, 1, 1, 1, 2, 1, 1, 2, 2, 2]);
}

#[test]
fn sizes_that_do_not_fit_are_errors_or_do_nothing() {
    let mix = Mix::CutMix { rows: [5, 2], columns: [0, usize::MAX] };
    assert_eq!(mix.lambda([4, 4]), 1.0);
    assert_eq!(Mix::CutMix { rows: [0; 2], columns: [0; 2] }.lambda([0, 0]), 1.0);
    assert!(mix.pictures(&mut [0.0_f32; 16], [1, 1, 4, 4], false).is_err());
    let mix = Mix::MixUp { lambda: 0.5 };
    mix.pictures::<f32>(&mut [], [0, usize::MAX, usize::MAX, 2], false).unwrap();
    let error = mix.labels(&[0, 1], [4, 4], usize::MAX, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no memory"), "{error}");
}

/// `test_image.py` of the Python package checks the same numbers.
#[test]
fn a_key_gives_these_bits_also_in_python() {
    let pictures: Vec<f32> = (0..180).map(|i| i as f32 / 7.0).collect();
    for (cut, soft, sum) in [
        (false, [1_053_634_620, 1_058_629_602], 197_063_524_973),
        (true, [1_063_675_494, 1_036_831_949], 195_505_946_626),
    ] {
        let mut rng = SampleRng::new(3, 1, 1);
        let mix = match cut {
            true => CutMix { alpha: 0.7 }.draw(&mut rng, 5, 4),
            false => MixUp { alpha: 0.7 }.draw(&mut rng),
        };
        let (mix, mut mixed, mut labels) = (mix.unwrap(), pictures.clone(), Vec::new());
        mix.pictures(&mut mixed, [3, 3, 5, 4], false).unwrap();
        mix.labels(&[0, 1, 1], [5, 4], 2, &mut labels).unwrap();
        let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&labels[..2]), soft);
        assert_eq!(bits(&mixed).into_iter().map(u64::from).sum::<u64>(), sum);
    }
}
