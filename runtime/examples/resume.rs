//! Training that is interrupted and resumes with exactly the next batch.
//!
//! `cargo run --example resume --features serde`

use std::fs;

use slotline::dataset::{TensorDataset, from_fn};
use slotline::loader::State;
use slotline::rng::rand_core::Rng;
use slotline::{Batch, BoxError, Dataset, Loader};

/// A loader of digits, each with a random number to check that augmentation resumes, too.
type Digits = Loader<Batch<(u8, i64, u32)>>;

/// Builds a loader. The dataset, batch size, sampler and seed must be the same each time; the number of workers may differ.
fn loader(num_workers: usize) -> Result<Digits, BoxError> {
    let (images, labels) = slotline::source::digits();
    let digits = TensorDataset::new((images, labels))?;
    let augmented = from_fn(digits.len(), move |index, cx| {
        let (images, labels) = digits.rows();
        let pixels: [u8; 64] = images.row_slice(index).try_into()?;
        Ok((pixels, labels.row_slice(index)[0], cx.rng().next_u32()))
    });
    Ok(Loader::builder(augmented).batch_size(64).shuffle(true).seed(42).num_workers(num_workers).build()?)
}

/// Returns the contents of a batch in a form that can be compared.
fn contents(batch: &Batch<(u8, i64, u32)>) -> (Vec<u8>, Vec<i64>, Vec<u32>) {
    let (images, labels, random) = batch.tensors();
    (images.as_slice().to_vec(), labels.as_slice().to_vec(), random.as_slice().to_vec())
}

fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("loader.json");

    // Training without an interruption, for comparison.
    let mut expected = Vec::new();
    let mut whole = loader(0)?;
    for _epoch in 0..2 {
        for batch in whole.epoch()? {
            expected.push(contents(&batch?));
        }
    }

    // Save the state every five steps, as with a model's checkpoint.
    let (mut found, mut saved) = (Vec::new(), 0);
    {
        let mut loader = loader(2)?;
        let mut pass = loader.epoch()?;
        // A `for` loop would borrow the pass, whose state is needed here.
        while let Some(batch) = pass.next() {
            found.push(contents(&batch?));
            if found.len() % 5 == 0 {
                fs::write(&file, serde_json::to_string(&pass.state())?)?;
                saved = found.len();
            }
            if found.len() == 12 {
                break; // Suppose that the process is killed here.
            }
        }
    }
    // Drop the steps after the saved state, which will be repeated.
    found.truncate(saved);

    // Here a new process would begin.
    let mut loader = loader(1)?;
    let state: State = serde_json::from_str(&fs::read_to_string(&file)?)?;
    loader.load_state(&state)?;
    println!("resuming in epoch {} after {} batches", loader.next_epoch(), state.batches());
    for _epoch in loader.next_epoch()..2 {
        for batch in loader.epoch()? {
            found.push(contents(&batch?));
        }
    }
    assert!(found == expected, "the batches are the same, bit for bit");
    println!(
        "{} batches, the same as without the interruption; the state takes {} bytes",
        found.len(),
        fs::metadata(&file)?.len()
    );
    Ok(())
}
