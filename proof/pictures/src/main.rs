//! Trains a small ResNet on a folder of pictures, and checks that the batches are the same for any number of workers, processes
//! and ranks. `run` prepares the folder.

mod folder;
mod resnet;
mod sameness;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap, loss};
use clap::Parser;
use slotline::Loader;
use slotline::loader::BatchOf;

use self::folder::{Folder, SIDE, Shuffled, WorkerKind};
use self::resnet::ResNet;

const BATCH: usize = 32;
/// The share of the held-out pictures that must be recognised.
const ENOUGH: f64 = 0.7;

#[derive(Debug, Parser)]
struct Arguments {
    /// The folder that `prepare.py` has made
    folder: PathBuf,
    #[arg(long, default_value_t = 8)]
    epochs: usize,
}

/// Returns a batch as tensors of candle.
fn tensors(batch: &BatchOf<Folder>) -> Result<(Tensor, Tensor)> {
    let (images, classes) = batch.tensors();
    let shape = (classes.len(), 3, SIDE, SIDE);
    Ok((
        Tensor::from_slice(images.as_slice(), shape, &Device::Cpu)?,
        Tensor::from_slice(classes.as_slice(), classes.len(), &Device::Cpu)?,
    ))
}

/// Returns the share of the pictures that the model recognises.
fn accuracy(model: &ResNet, test: &Folder) -> Result<f64> {
    let mut loader = Loader::builder(test.clone()).batch_size(BATCH).num_workers(1).build()?;
    let (mut right, mut all) = (0.0, 0);
    for batch in loader.epoch()? {
        let (images, classes) = tensors(&batch?)?;
        let found = model.forward(&images, false)?.argmax(D::Minus1)?.to_dtype(DType::I64)?;
        right += f64::from(found.eq(&classes)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?);
        all += classes.elem_count();
    }
    Ok(right / all as f64)
}

fn main() -> Result<()> {
    let Arguments { folder, epochs } = Arguments::parse();
    let (train, test) = (Folder::train(&folder.join("train"))?, Folder::test(&folder.join("held-out"))?);
    sameness::check(&train, BATCH)?;

    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let model = ResNet::new(train.classes, &builder)?;
    let mut optimizer = AdamW::new(variables.all_vars(), ParamsAdamW { lr: 3e-3, ..Default::default() })?;
    let mut loader = Shuffled::new(&train, BATCH, WorkerKind::Threads(1), [0, 1])?;
    let begun = Instant::now();
    for epoch in 0..epochs {
        // The learning rate falls from its full value to almost 0 along a cosine.
        let rate = 3e-3 * 0.5 * (1.0 + (std::f64::consts::PI * epoch as f64 / epochs as f64).cos());
        optimizer.set_learning_rate(rate);
        let (mut total, mut batches) = (0.0, 0);
        for batch in loader.pass()? {
            let (images, classes) = tensors(&batch?)?;
            let loss = loss::cross_entropy(&model.forward(&images, true)?, &classes)?;
            optimizer.backward_step(&loss)?;
            total += loss.to_scalar::<f32>()?;
            batches += 1;
        }
        println!("epoch {epoch}: loss {:.3} after {:.0} s", total / batches as f32, begun.elapsed().as_secs_f64());
    }
    let stats = loader.loader.stats();
    println!("{}", stats.verdict());

    let (share, chance) = (accuracy(&model, &test)?, 1.0 / train.classes as f64);
    println!(
        "{:.1} % of the held-out pictures are recognised; by chance it would be {:.1} %",
        100.0 * share,
        100.0 * chance
    );
    ensure!(share >= ENOUGH, "at least {:.0} % should be", 100.0 * ENOUGH);
    Ok(())
}
