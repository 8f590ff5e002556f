//! A network of two layers in plain Rust, trained by gradient descent with momentum.
//!
//! One thread computes every sum in a fixed order, so that the same batches give the same weights, bit for bit.

use slotline::rng::Generator;
use slotline::tensor::TensorView;

use crate::digits::PIXELS;

/// The number of units in the hidden layer.
const HIDDEN: usize = 128;
/// The number of classes: the digits.
const CLASSES: usize = 10;

const MOMENTUM: f32 = 0.9;

/// A layer: the weights from each input to all outputs, and the biases. The inner loops run along the outputs, whose sums
/// are independent, so they can be vectorized without changing any result.
#[derive(Clone, Debug)]
struct Layer<const IN: usize, const OUT: usize> {
    weights: Box<[[f32; OUT]; IN]>,
    biases: [f32; OUT],
}

impl<const IN: usize, const OUT: usize> Layer<IN, OUT> {
    fn zeros() -> Self {
        Self { weights: Box::new([[0.0; OUT]; IN]), biases: [0.0; OUT] }
    }

    /// Draws uniform weights around 0, scaled so that signals keep their size through a layer of
    /// rectified linear units.
    fn random(generator: &mut Generator) -> Self {
        let mut layer = Self::zeros();
        let bound = (6.0 / IN as f64).sqrt();
        for weight in layer.weights.as_flattened_mut() {
            *weight = ((2.0 * generator.rand_f64() - 1.0) * bound) as f32;
        }
        layer
    }

    fn forward(&self, input: &[f32; IN]) -> [f32; OUT] {
        let mut output = self.biases;
        for (&value, weights) in input.iter().zip(&*self.weights) {
            output.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
        }
        output
    }

    /// Adds the gradient of one sample, given the input and the gradient of the output.
    fn add_gradient(&mut self, input: &[f32; IN], output: &[f32; OUT]) {
        for (&value, weights) in input.iter().zip(&mut *self.weights) {
            weights.iter_mut().zip(output).for_each(|(sum, gradient)| *sum += value * gradient);
        }
        self.biases.iter_mut().zip(output).for_each(|(sum, gradient)| *sum += gradient);
    }

    /// Returns the gradient of the input, given the gradient of the output.
    fn backward(&self, output: &[f32; OUT]) -> [f32; IN] {
        let dot = |i: usize| self.weights[i].iter().zip(output).map(|(weight, gradient)| weight * gradient).sum();
        std::array::from_fn(dot)
    }

    fn values(&self) -> impl Iterator<Item = &f32> {
        self.weights.as_flattened().iter().chain(&self.biases)
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.weights.as_flattened_mut().iter_mut().chain(&mut self.biases)
    }

    /// Updates the velocity by `gradient`, then moves the values by the velocity.
    fn descend(&mut self, velocity: &mut Self, gradient: &Self, rate: f32) {
        for ((value, speed), slope) in self.values_mut().zip(velocity.values_mut()).zip(gradient.values()) {
            *speed = MOMENTUM * *speed - rate * slope;
            *value += *speed;
        }
    }
}

/// The network's score on some samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Score {
    loss: f64,
    correct: usize,
    samples: usize,
}

impl Score {
    /// Returns the mean cross-entropy.
    pub(crate) fn loss(&self) -> f64 {
        self.loss / self.samples.max(1) as f64
    }

    /// Returns the fraction of samples that were classified correctly, 0 to 1.
    pub(crate) fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }

    /// Adds the samples of another score.
    pub(crate) fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.samples += other.samples;
    }
}

/// The network: pixels, a hidden layer of rectified linear units, and one output for each digit.
#[derive(Debug)]
pub(crate) struct Net {
    hidden: Layer<PIXELS, HIDDEN>,
    output: Layer<HIDDEN, CLASSES>,
    velocity: (Layer<PIXELS, HIDDEN>, Layer<HIDDEN, CLASSES>),
}

impl Net {
    /// Creates a network with random weights.
    pub(crate) fn new(seed: u64) -> Self {
        let mut generator = Generator::from_seed(seed);
        let (hidden, output) = (Layer::random(&mut generator), Layer::random(&mut generator));
        Self { hidden, output, velocity: (Layer::zeros(), Layer::zeros()) }
    }

    /// Runs one training step on a batch of images `[B, 64]` and labels `[B]`, with learning rate `rate`. Returns the score
    /// from before the step.
    pub(crate) fn train(&mut self, images: &TensorView<'_, f32>, labels: &TensorView<'_, i64>, rate: f32) -> Score {
        let mut gradient = (Layer::zeros(), Layer::zeros());
        let mut score = Score::default();
        for (pixels, label) in samples(images, labels) {
            let (active, mut wrong) = self.run(pixels, label, &mut score);
            // The gradient of the loss with respect to the logits: the probabilities, minus one for the correct digit.
            wrong[label] -= 1.0;
            gradient.1.add_gradient(&active, &wrong);
            let mut back = self.output.backward(&wrong);
            back.iter_mut().zip(&active).filter(|(_, active)| **active <= 0.0).for_each(|(slope, _)| *slope = 0.0);
            gradient.0.add_gradient(pixels, &back);
        }
        // The gradient is a sum over the batch; the step uses the mean.
        let rate = rate / labels.len().max(1) as f32;
        self.hidden.descend(&mut self.velocity.0, &gradient.0, rate);
        self.output.descend(&mut self.velocity.1, &gradient.1, rate);
        score
    }

    /// Returns the score on a batch in the form that [`train`](Self::train) takes.
    pub(crate) fn test(&self, images: &TensorView<'_, f32>, labels: &TensorView<'_, i64>) -> Score {
        let mut score = Score::default();
        for (pixels, label) in samples(images, labels) {
            self.run(pixels, label, &mut score);
        }
        score
    }

    /// Returns all weights and biases.
    pub(crate) fn weights(&self) -> Vec<f32> {
        self.hidden.values().chain(self.output.values()).copied().collect()
    }

    /// Returns the hidden layer's output for an image and the probability of each digit, and adds to the score.
    fn run(&self, pixels: &[f32; PIXELS], label: usize, score: &mut Score) -> ([f32; HIDDEN], [f32; CLASSES]) {
        let active = self.hidden.forward(pixels).map(|value| value.max(0.0));
        let logits = self.output.forward(&active);
        let probabilities = softmax(&logits);
        score.samples += 1;
        // Among equal probabilities, the first digit is the guess.
        score.correct += usize::from(
            (0..CLASSES).rev().max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b])) == Some(label),
        );
        // A probability that underflows f32 is not exactly zero, so keep it positive.
        score.loss -= f64::from(probabilities[label].max(f32::MIN_POSITIVE)).ln();
        (active, probabilities)
    }
}

fn softmax(logits: &[f32; CLASSES]) -> [f32; CLASSES] {
    // Subtract the maximum, so that no exponential overflows.
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers = logits.map(|logit| (logit - greatest).exp());
    let sum: f32 = powers.iter().sum();
    powers.map(|power| power / sum)
}

/// Iterates over the images of a batch with their labels.
fn samples<'a>(
    images: &TensorView<'a, f32>,
    labels: &TensorView<'a, i64>,
) -> impl Iterator<Item = (&'a [f32; PIXELS], usize)> + use<'a> {
    let (images, _) = images.as_slice().as_chunks();
    images.iter().zip(labels.as_slice().iter().map(|&label| label as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changing a weight slightly must change the loss as the gradient predicts.
    #[test]
    fn gradients_match_finite_differences() {
        let mut generator = Generator::from_seed(3);
        let pixels: Vec<f32> = (0..2 * PIXELS).map(|_| generator.rand_f64() as f32).collect();
        let images = TensorView::new(&pixels, &[2, PIXELS]).unwrap();
        let labels = TensorView::new(&[3, 7], &[2]).unwrap();
        let mut trained = Net::new(5);
        let before = trained.weights();
        let rate = 0.1;
        trained.train(&images, &labels, rate);
        let loss = |layer: usize, at: usize, nudge: f32| {
            let mut net = Net::new(5);
            let value = if layer == 0 { net.hidden.values_mut().nth(at) } else { net.output.values_mut().nth(at) };
            *value.unwrap() += nudge;
            net.test(&images, &labels).loss()
        };
        let hidden = PIXELS * HIDDEN + HIDDEN;
        for (layer, at) in [(0, 0), (0, 777), (0, hidden - 1), (1, 0), (1, 123), (1, HIDDEN * CLASSES + 9)] {
            let place = layer * hidden + at;
            let gradient = f64::from((before[place] - trained.weights()[place]) / rate);
            let slope = (loss(layer, at, 1e-2) - loss(layer, at, -1e-2)) / 2e-2;
            assert!((gradient - slope).abs() < 1e-3, "layer {layer}, value {at}: {gradient} and {slope}");
        }
    }

    #[test]
    fn probabilities_sum_to_one_for_large_logits() {
        let probabilities = softmax(&[1000.0, 0.0, -1000.0, 999.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(probabilities[0] > probabilities[3] && probabilities[3] > 0.2);
    }
}
