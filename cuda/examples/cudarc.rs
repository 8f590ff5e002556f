//! Loads batches to a device, reads their fields with cudarc, and compares them with those of a loader in host memory.
//!
//! Every batch is dropped while copies of its fields to the host are still to be done, so the results are right only
//! if its memory is not refilled too early.
//!
//! ```sh
//! cargo run --release -p slotline-cuda --example cudarc              # on a GPU
//! cargo run --release -p slotline-cuda --example cudarc -- --fake    # without one: on the fake driver
//! ```

use std::array;
use std::process::ExitCode;
use std::sync::Arc;

use slotline::dataset::{Context, Dataset};
use slotline::dtype::Element;
use slotline::sample::{Packed, PaddedToMax};
use slotline::{BoxError, Loader};
use slotline_cuda::cudarc::driver::{CudaContext, CudaStream, CudaView, DeviceRepr, PinnedHostSlice, ValidAsZeroBits};
use slotline_cuda::{Device, DeviceLoader, leaked, probe};
use slotline_cuda_fake::{Fake, Options};

const SAMPLES: usize = 4000;
const BATCH: usize = 64;
const EPOCHS: usize = 3;

/// Samples of an image, some numbers, a label, up to 40 words, and up to 60 tokens.
struct Numbered;

static WORDS: [u16; 40] = [7; 40];
static TOKENS: [i32; 60] = [-3; 60];

impl Dataset for Numbered {
    type Sample<'a> = ([[u8; 64]; 48], [f32; 100], i64, PaddedToMax<'a, u16>, Packed<'a, i32>);

    fn len(&self) -> usize {
        SAMPLES
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let image = array::from_fn(|y| array::from_fn(|x| (index + 3 * y + 5 * x) as u8));
        let numbers = array::from_fn(|i| (index * 100 + i) as f32);
        let (words, tokens) = (PaddedToMax::new(&WORDS[..index % 41], 40), Packed::new(&TOKENS[..index % 61], 60));
        Ok((image, numbers, index as i64, words, tokens))
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), BoxError> {
    let fake = std::env::args().any(|argument| argument == "--fake").then(|| {
        let fake = Fake::load();
        fake.reset(Options::default());
        fake
    });
    probe()?; // cudarc would panic if there is no driver
    let context = CudaContext::new(0)?;
    let device = Device::from_context(&context)?;
    // The second stream reads what was made ready on the first: cudarc's events order them.
    let streams = [context.new_stream()?, context.new_stream()?];
    println!("{device:?}, compute capability {:?}", device.info().compute_capability);

    // What the streams do before they copy a batch, so that they are late.
    let bytes = if fake.is_some() { 1 << 10 } else { 512 << 20 };
    let mut work = [streams[0].alloc_zeros::<u8>(bytes)?, streams[1].alloc_zeros::<u8>(bytes)?];

    let loader = || Loader::builder(Numbered).batch_size(BATCH).shuffle(true).seed(42).num_workers(2);
    let mut expected = loader().build()?;
    let mut loader = DeviceLoader::new(loader().hold(3).memory(device.pinned()).build()?, &device)?;
    let mut images = Copies::<u8>::new(&context, SAMPLES * 48 * 64)?;
    let mut numbers = Copies::<f32>::new(&context, SAMPLES * 100)?;
    let mut labels = Copies::<i64>::new(&context, SAMPLES)?;
    let mut words = Copies::<u16>::new(&context, SAMPLES * 40)?;
    let mut lengths = Copies::<i64>::new(&context, SAMPLES)?;
    let mut tokens = Copies::<i32>::new(&context, SAMPLES * 60)?;
    let mut offsets = Copies::<i64>::new(&context, SAMPLES + SAMPLES.div_ceil(BATCH))?;
    for epoch in 0..EPOCHS {
        let mut order = Vec::new();
        for batch in loader.epoch()? {
            let batch = batch?;
            let views = batch.views(&streams[0])?;
            let reader = batch.batch_index() % 2;
            let (stream, work) = (&streams[reader], &mut work[reader]);
            stream.memset_zeros(work)?;
            images.copy(stream, &views.get(0)?)?;
            numbers.copy(stream, &views.by_name("1")?)?;
            labels.copy(stream, &views.get(2)?)?;
            words.copy(stream, &views.get(3)?)?;
            lengths.copy(stream, &views.ends(3)?.ok_or("a padded field has lengths")?)?;
            tokens.copy(stream, &views.get(4)?)?;
            offsets.copy(stream, &views.ends(4)?.ok_or("a packed field has offsets")?)?;
            order.extend_from_slice(batch.indices());
        } // dropped: the copies are still to be done
        for stream in &streams {
            stream.synchronize()?;
        }

        let mut sums = [0.0; 7];
        for batch in expected.epoch()? {
            let batch = batch?;
            let columns = batch.columns();
            let column = |i: usize| columns.get(i).ok_or("a column for each field");
            let parts = [
                images.sum(column(0)?.typed().ok_or("u8")?.as_slice())?,
                numbers.sum(column(1)?.typed().ok_or("f32")?.as_slice())?,
                labels.sum(column(2)?.typed().ok_or("i64")?.as_slice())?,
                words.sum(column(3)?.typed().ok_or("u16")?.as_slice())?,
                lengths.sum(columns.lengths(3).ok_or("lengths")?)?,
                tokens.sum(column(4)?.typed().ok_or("i32")?.as_slice())?,
                offsets.sum(columns.offsets(4).ok_or("offsets")?)?,
            ];
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            if order.drain(..batch.len()).ne(batch.indices().iter().copied()) {
                return Err(format!("batch {} of epoch {epoch} has other samples", batch.batch_index()).into());
            }
        }
        println!("epoch {epoch}: sums {sums:?}");
    }
    drop((images, numbers, labels, words, lengths, tokens, offsets, work));
    drop((loader, streams));
    device.synchronize()?;
    if let Some(violation) = fake.and_then(|fake| fake.violations().into_iter().next()) {
        return Err(violation.into());
    }
    if leaked() != Default::default() {
        return Err(format!("{:?}", leaked()).into());
    }
    Ok(())
}

/// A field of all batches of an epoch, in page-locked memory.
struct Copies<T> {
    elements: PinnedHostSlice<T>,
    copied: usize,
    compared: usize,
}

impl<T: DeviceRepr + Element + ValidAsZeroBits + PartialEq + Number> Copies<T> {
    fn new(context: &Arc<CudaContext>, most: usize) -> Result<Self, BoxError> {
        // SAFETY: elements are read only after they were copied.
        let elements = unsafe { context.alloc_pinned_with_flags(most, 0)? };
        Ok(Self { elements, copied: 0, compared: 0 })
    }

    /// Starts a copy of a batch's field, which is done when the stream is synchronized.
    fn copy(&mut self, stream: &Arc<CudaStream>, view: &CudaView<'_, T>) -> Result<(), BoxError> {
        let to = &mut self.elements.as_mut_slice()?[self.copied..][..view.len()];
        self.copied += view.len();
        Ok(stream.memcpy_dtoh(view, to)?)
    }

    /// Compares the elements of the next batch with those of the host's loader, and returns their sum.
    fn sum(&mut self, expected: &[T]) -> Result<f64, BoxError> {
        let copied = &self.elements.as_slice()?[self.compared..self.copied];
        let Some(copied) = copied.get(..expected.len()) else {
            return Err(format!("{} elements instead of {}", copied.len(), expected.len()).into());
        };
        if let Some(i) = copied.iter().zip(expected).position(|(a, b)| a != b) {
            return Err(format!("element {i} of a batch is {:?} instead of {:?}", copied[i], expected[i]).into());
        }
        self.compared += expected.len();
        if self.compared == self.copied {
            (self.compared, self.copied) = (0, 0); // the next epoch's
        }
        Ok(copied.iter().map(Number::to_f64).sum())
    }
}

trait Number {
    fn to_f64(&self) -> f64;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn to_f64(&self) -> f64 {
                *self as f64
            }
        }
    )*};
}
number!(u8, u16, i32, i64, f32);
