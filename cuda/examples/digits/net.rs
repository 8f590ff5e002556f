//! The network, through cudarc's safe layer.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use slotline::rng::Generator;
use slotline_cuda::{Device, DeviceBatch, Stream};

/// Made of `digits.cu` by `ptx.py`, two folders up.
const KERNELS: &str = include_str!("digits.ptx");

// As in `digits.cu`.
pub(crate) const PIXELS: usize = 64;
pub(crate) const HIDDEN: usize = 128;
pub(crate) const DIGITS: usize = 10;
/// Numbers of a `Net`, and of a `Trace`.
const WEIGHTS: usize = (PIXELS + 1) * HIDDEN + (HIDDEN + 1) * DIGITS;
const TRACE: usize = PIXELS + 2 * HIDDEN + DIGITS;

/// Weights, and what a step needs beside them, on the device.
pub(crate) struct Net {
    device: Device,
    stream: Arc<CudaStream>,
    run: CudaFunction,
    descend: CudaFunction,
    weights: CudaSlice<f32>,
    velocity: CudaSlice<f32>,
    traces: CudaSlice<f32>,
    /// A sum of losses, as f32, and a number of digits.
    score: CudaSlice<u32>,
    samples: usize,
}

impl Net {
    /// A network with random weights, for batches of at most so many digits.
    pub(crate) fn new(device: &Device, most: usize) -> Result<Self, DriverError> {
        let context = CudaContext::new(device.ordinal())?;
        let module = context.load_module(KERNELS.into())?;
        let stream = context.new_stream()?;
        Ok(Self {
            device: device.clone(),
            run: module.load_function("run")?,
            descend: module.load_function("descend")?,
            weights: stream.clone_htod(&weights())?,
            velocity: stream.alloc_zeros(WEIGHTS)?,
            traces: stream.alloc_zeros(most * TRACE)?,
            score: stream.alloc_zeros(2)?,
            samples: 0,
            stream,
        })
    }

    /// The stream that it runs on.
    ///
    /// # Safety
    ///
    /// The network must outlive what this gives, and every batch that is made ready on it.
    pub(crate) unsafe fn stream(&self) -> Stream {
        // SAFETY: a stream of the device's primary context, which is destroyed with the network.
        unsafe { Stream::from_raw(&self.device, self.stream.cu_stream().cast()) }
    }

    /// One step on a batch of images u8 `[B, 8, 8]` and labels i64 `[B]` below 10.
    ///
    /// # Safety
    ///
    /// The batch must be made ready on the [stream](Self::stream), have these fields, and no more samples than the network is for.
    pub(crate) unsafe fn train(&mut self, batch: &DeviceBatch, rate: f32) -> Result<(), DriverError> {
        // SAFETY: the caller's word.
        unsafe { self.test(batch)? };
        let samples = batch.len() as i32;
        let mut step = self.stream.launch_builder(&self.descend);
        step.arg(&mut self.weights).arg(&mut self.velocity).arg(&self.traces).arg(&samples).arg(&rate);
        // SAFETY: the parameters of `descend`, and traces of that many samples.
        unsafe { step.launch(LaunchConfig::for_num_elems(WEIGHTS as u32)) }?;
        Ok(())
    }

    /// Runs on a batch, for the score alone.
    ///
    /// # Safety
    ///
    /// As [`train`](Self::train).
    pub(crate) unsafe fn test(&mut self, batch: &DeviceBatch) -> Result<(), DriverError> {
        let [images, labels] = [0, 1].map(|i| batch.field(i).expect("images and labels").ptr());
        let mut run = self.stream.launch_builder(&self.run);
        run.arg(&images).arg(&labels).arg(&self.weights).arg(&mut self.traces).arg(&mut self.score);
        let (grid_dim, block_dim) = ((batch.len() as u32, 1, 1), (HIDDEN as u32, 1, 1));
        // SAFETY: the parameters of `run`; the batch is the caller's word.
        unsafe { run.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 }) }?;
        self.samples += batch.len();
        Ok(())
    }

    /// How it did since this was asked last. Waits for the device.
    pub(crate) fn score(&mut self) -> Result<Score, DriverError> {
        let sums = self.stream.clone_dtoh(&self.score)?;
        self.stream.synchronize()?;
        self.stream.memset_zeros(&mut self.score)?;
        let samples = std::mem::take(&mut self.samples) as f32;
        Ok(Score { loss: f32::from_bits(sums[0]) / samples, accuracy: sums[1] as f32 / samples })
    }
}

/// Means over some digits.
pub(crate) struct Score {
    loss: f32,
    accuracy: f32,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {:.4}, accuracy {:.2} %", self.loss, 100.0 * self.accuracy)
    }
}

/// Weights spread evenly around 0, so that signals keep their size through a layer of rectifiers; biases of 0.
fn weights() -> Vec<f32> {
    let mut generator = Generator::from_seed(42);
    let mut layer = |inputs: usize, outputs: usize| {
        let bound = (6.0 / inputs as f64).sqrt();
        let mut layer: Vec<_> =
            (0..inputs * outputs).map(|_| ((2.0 * generator.rand_f64() - 1.0) * bound) as f32).collect();
        layer.resize((inputs + 1) * outputs, 0.0);
        layer
    };
    [layer(PIXELS, HIDDEN), layer(HIDDEN, DIGITS)].concat()
}
