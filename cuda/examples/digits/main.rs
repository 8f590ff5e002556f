//! Trains a small network on the bundled digits, from batches that are on the device. It is the network of `slotline
//! demo`, in two kernels (`digits.cu`).
//!
//! ```sh
//! cargo run --release -p slotline-cuda --example digits              # on a GPU
//! cargo run --release -p slotline-cuda --example digits -- --fake    # without one: on the fake driver
//! ```

mod host;
mod net;

use slotline::dataset::{TensorDataset, random_split};
use slotline::rng::Generator;
use slotline::{BoxError, Loader};
use slotline_cuda::{Device, DeviceLoader, probe};

use crate::net::Net;

const EPOCHS: u32 = 10;
const BATCH: usize = 64;
/// The learning rate of the first epoch; it falls linearly to 0 after the last one.
const LEARNING_RATE: f32 = 0.2;

fn main() -> Result<(), BoxError> {
    if std::env::args().any(|argument| argument == "--fake") {
        host::load_fake_driver();
    }
    if let Err(reason) = probe() {
        eprintln!(
            "{reason}\nWithout a GPU, add `-- --fake` to the end of the command to run this over the fake driver."
        );
        std::process::exit(1);
    }
    let device = Device::new(0)?;
    let mut net = Net::new(&device, BATCH)?;
    // The training loop's stream, wrapped by its raw handle.
    // SAFETY: the loaders and their batches are dropped before the network.
    let stream = unsafe { net.stream() };

    let digits = TensorDataset::new(slotline::source::digits())?; // u8 [8, 8], and i64
    let parts = random_split(digits, &[0.8, 0.2], &mut Generator::from_seed(0))?;
    let [train, test] = <[_; 2]>::try_from(parts).expect("two lengths give two parts");
    let train = Loader::builder(train).batch_size(BATCH).shuffle(true).seed(42).num_workers(2);
    let test = Loader::builder(test).batch_size(BATCH);
    // Up to three batches in transfer to the device, in memory that it reads directly.
    let mut train = DeviceLoader::new(train.hold(3).memory(device.pinned()).build()?, &device)?;
    let mut test = DeviceLoader::new(test.hold(3).memory(device.pinned()).build()?, &device)?;

    println!("training on {}", device.name());
    for epoch in 0..EPOCHS {
        let rate = LEARNING_RATE * (1.0 - epoch as f32 / EPOCHS as f32);
        for batch in train.epoch()? {
            let batch = batch?;
            batch.ready_on(&stream)?; // the stream waits for the copy; this thread does not
            // SAFETY: the batch is ready on the network's stream, holds digits, and is at most `BATCH` samples long.
            unsafe { net.train(&batch, rate)? };
        } // dropped: its memory is refilled once the stream reaches this point
        let training = net.score()?;

        for batch in test.epoch()? {
            let batch = batch?;
            batch.ready_on(&stream)?;
            // SAFETY: as above.
            unsafe { net.test(&batch)? };
        }
        println!("epoch {epoch:>2}: {training} (train), {} (test)", net.score()?);
    }
    Ok(())
}
