//! The network, using cudarc's safe layer.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use slotline::rng::Generator;
use slotline_cuda::{Device, DeviceBatch, Stream};

/// Compiled from `digits.cu` by `ptx.py`, two folders up.
const KERNELS: &str = include_str!("digits.ptx");

// These constants must match `digits.cu`.
pub(crate) const PIXELS: usize = 64;
pub(crate) const HIDDEN: usize = 128;
pub(crate) const DIGITS: usize = 10;
/// The number of floats in a `Net` and in a `Trace`.
const WEIGHTS: usize = (PIXELS + 1) * HIDDEN + (HIDDEN + 1) * DIGITS;
const TRACE: usize = PIXELS + 2 * HIDDEN + DIGITS;

/// The weights and the other state of a training step, on the device.
pub(crate) struct Net {
    device: Device,
    stream: Arc<CudaStream>,
    run: CudaFunction,
    descend: CudaFunction,
    weights: CudaSlice<f32>,
    velocity: CudaSlice<f32>,
    traces: CudaSlice<f32>,
    /// The sum of the losses, as f32, and the number of correct digits.
    score: CudaSlice<u32>,
    samples: usize,
}

impl Net {
    /// Creates a network with random weights, for batches of at most `most` digits.
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

    /// Returns the stream that the network runs on.
    ///
    /// # Safety
    ///
    /// The network must outlive the returned stream, and every batch that is made ready on it.
    pub(crate) unsafe fn stream(&self) -> Stream {
        // SAFETY: the stream belongs to the device's primary context. It is destroyed with the network, which the
        // caller keeps longer.
        unsafe { Stream::from_raw(&self.device, self.stream.cu_stream().cast()) }
    }

    /// Runs one training step on a batch of images u8 `[B, 8, 8]` and labels i64 `[B]` below 10.
    ///
    /// # Safety
    ///
    /// The batch must be made ready on the [stream](Self::stream), have these fields, and have at most as many
    /// samples as the network was created for.
    pub(crate) unsafe fn train(&mut self, batch: &DeviceBatch, rate: f32) -> Result<(), DriverError> {
        // SAFETY: the caller upholds the contract of this function, which is the same for `test`.
        unsafe { self.test(batch)? };
        let samples = batch.len() as i32;
        let mut step = self.stream.launch_builder(&self.descend);
        step.arg(&mut self.weights).arg(&mut self.velocity).arg(&self.traces).arg(&samples).arg(&rate);
        // SAFETY: the parameters are those of `descend`, with traces of `samples` samples.
        unsafe { step.launch(LaunchConfig::for_num_elems(WEIGHTS as u32)) }?;
        Ok(())
    }

    /// Runs the network on a batch, only for the score.
    ///
    /// # Safety
    ///
    /// The requirements of [`train`](Self::train) apply.
    pub(crate) unsafe fn test(&mut self, batch: &DeviceBatch) -> Result<(), DriverError> {
        let [images, labels] = [0, 1].map(|i| batch.field(i).expect("images and labels").ptr());
        let mut run = self.stream.launch_builder(&self.run);
        run.arg(&images).arg(&labels).arg(&self.weights).arg(&mut self.traces).arg(&mut self.score);
        let (grid_dim, block_dim) = ((batch.len() as u32, 1, 1), (HIDDEN as u32, 1, 1));
        // SAFETY: the parameters are those of `run`; the caller upholds the requirements on the batch.
        unsafe { run.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 }) }?;
        self.samples += batch.len();
        Ok(())
    }

    /// Returns the score since the last call. Waits for the device.
    pub(crate) fn score(&mut self) -> Result<Score, DriverError> {
        let sums = self.stream.clone_dtoh(&self.score)?;
        self.stream.synchronize()?;
        self.stream.memset_zeros(&mut self.score)?;
        let samples = std::mem::take(&mut self.samples) as f32;
        Ok(Score { loss: f32::from_bits(sums[0]) / samples, accuracy: sums[1] as f32 / samples })
    }
}

/// The mean loss and the accuracy over some digits.
pub(crate) struct Score {
    loss: f32,
    accuracy: f32,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {:.4}, accuracy {:.2} %", self.loss, 100.0 * self.accuracy)
    }
}

/// Returns weights uniformly distributed around 0, so that signals keep their size through a layer of rectifiers;
/// biases are 0.
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
