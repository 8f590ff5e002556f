//! Batches by a budget of tokens whose samples share their room.

use slotline::Loader;
use slotline::dataset::{Context, from_fn};
use slotline::rng::Generator;
use slotline::sample::PaddedToLongest;
use slotline_sequences::sampler::LengthBatchSampler;

#[test]
fn a_budget_of_tokens_bounds_the_memory() {
    let (budget, length) = (160, |index: usize| index * 17 % 41);
    let sampler = LengthBatchSampler::token_budget((0..200).map(length), budget).unwrap().limit(20).unwrap();
    let sampler = sampler.generator(Generator::from_seed(1));
    let most = sampler.max_batch_size();
    assert_eq!(most, 20);
    // With room for 40 tokens each, 20 samples would take five times as much.
    let room = budget.div_ceil(most);
    let texts =
        from_fn(200, move |index, _: &mut Context| Ok(PaddedToLongest::owned(vec![index as u32; length(index)], room)));
    let mut loader = Loader::builder(texts).batch_sampler(sampler).num_workers(1).build().unwrap();
    let mut samples = 0;
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let texts = batch.tensors();
        for (row, &index) in batch.indices().iter().enumerate() {
            assert_eq!(texts.row(row), vec![index as u32; length(index as usize)]);
        }
        assert!(texts.padded().as_slice().len() <= budget);
        samples += batch.len();
    }
    assert_eq!(samples, 200);
}
