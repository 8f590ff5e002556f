//! A small network learns to read the bundled digits, from batches that are on the device: the network of `slotline demo`,
//! in two kernels (`digits.cu`).
//!
//! ```sh
//! cargo run --release -p slotline-cuda --example digits              # on a GPU
//! cargo run --release -p slotline-cuda --example digits -- --fake    # without one: over a driver that only pretends
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
/// That of the first epoch; it falls evenly to nothing after the last one.
const LEARNING_RATE: f32 = 0.2;

fn main() -> Result<(), BoxError> {
    if std::env::args().any(|argument| argument == "--fake") {
        host::load_fake_driver();
    }
    if let Err(reason) = probe() {
        eprintln!(
            "{reason}\nWithout a GPU, `-- --fake` at the end of the command runs this over a driver that only pretends."
        );
        std::process::exit(1);
    }
    let device = Device::new(0)?;
    let mut net = Net::new(&device, BATCH)?;
    // The training loop's own stream, by its handle.
    // SAFETY: the loaders and their batches are dropped before the network.
    let stream = unsafe { net.stream() };

    let digits = TensorDataset::new(slotline::source::digits())?; // u8 [8, 8], and i64
    let parts = random_split(digits, &[0.8, 0.2], &mut Generator::from_seed(0))?;
    let [train, test] = <[_; 2]>::try_from(parts).expect("two lengths give two parts");
    let train = Loader::builder(train).batch_size(BATCH).shuffle(true).seed(42).num_workers(2);
    let test = Loader::builder(test).batch_size(BATCH);
    // Three batches on their way to the device, in memory that it reads by itself.
    let mut train = DeviceLoader::new(train.hold(3).memory(device.pinned()).build()?, &device)?;
    let mut test = DeviceLoader::new(test.hold(3).memory(device.pinned()).build()?, &device)?;

    println!("training on {}", device.name());
    for epoch in 0..EPOCHS {
        let rate = LEARNING_RATE * (1.0 - epoch as f32 / EPOCHS as f32);
        for batch in train.epoch()? {
            let batch = batch?;
            batch.ready_on(&stream)?; // the stream waits for the copy; this thread does not
            // SAFETY: ready on the network's stream, digits, and at most as many as it was made for.
            unsafe { net.train(&batch, rate)? };
        } // dropped: its memory is filled again when the stream has come this far
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
