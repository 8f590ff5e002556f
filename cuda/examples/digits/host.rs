//! Implements the kernels of `digits.cu` on the host: on machines without a GPU, the fake driver runs these instead.

use slotline_cuda_fake::{Fake, Launch, Options};

use crate::net::{DIGITS, HIDDEN, PIXELS};

#[repr(C)]
struct Net {
    hidden: [[f32; HIDDEN]; PIXELS],
    hidden_bias: [f32; HIDDEN],
    output: [[f32; DIGITS]; HIDDEN],
    output_bias: [f32; DIGITS],
}

#[repr(C)]
struct Trace {
    pixels: [f32; PIXELS],
    active: [f32; HIDDEN],
    back: [f32; HIDDEN],
    wrong: [f32; DIGITS],
}

#[repr(C)]
struct Score {
    loss: f32,
    correct: u32,
}

/// Loads the fake driver instead of a real one.
pub(crate) fn load_fake_driver() {
    let fake = Fake::load();
    fake.reset(Options::default());
    // SAFETY: the kernels get the parameters of `Net::test` and `Net::train`, in memory that the host can access.
    fake.kernel("run", |launch| unsafe { run(launch) });
    // SAFETY: as above.
    fake.kernel("descend", |launch| unsafe { descend(launch) });
}

/// # Safety
///
/// The parameters must be those of `run`.
unsafe fn run(launch: &Launch<'_>) {
    let samples = launch.grid[0] as usize;
    // SAFETY: the caller passes the parameters of `run`: this many images, labels and traces, to which nothing else
    // has access.
    let (images, labels, net, traces, score) = unsafe {
        (
            std::slice::from_raw_parts(launch.param::<*const [u8; PIXELS]>(0), samples),
            std::slice::from_raw_parts(launch.param::<*const i64>(1), samples),
            &*launch.param::<*const Net>(2),
            std::slice::from_raw_parts_mut(launch.param::<*mut Trace>(3), samples),
            &mut *launch.param::<*mut Score>(4),
        )
    };
    for ((image, &label), trace) in images.iter().zip(labels).zip(traces) {
        let label = label as usize;
        trace.pixels = image.map(|pixel| f32::from(pixel) / 16.0);
        trace.active = forward(&trace.pixels, &net.hidden, &net.hidden_bias).map(|sum| sum.max(0.0));
        let logits = forward(&trace.active, &net.output, &net.output_bias);

        let guess = (0..DIGITS).fold(0, |best, k| if logits[k] > logits[best] { k } else { best });
        let powers = logits.map(|logit| (logit - logits[guess]).exp());
        let sum: f32 = powers.iter().sum();
        trace.wrong = powers.map(|power| power / sum);
        trace.wrong[label] -= 1.0;
        score.loss += sum.ln() - (logits[label] - logits[guess]);
        score.correct += u32::from(guess == label);

        for (unit, weights) in net.output.iter().enumerate() {
            let back: f32 = weights.iter().zip(&trace.wrong).map(|(weight, wrong)| weight * wrong).sum();
            trace.back[unit] = if trace.active[unit] > 0.0 { back } else { 0.0 };
        }
    }
}

/// # Safety
///
/// The parameters must be those of `descend`.
unsafe fn descend(launch: &Launch<'_>) {
    // SAFETY: the caller passes the parameters of `descend`: two networks and this many traces, to which nothing else
    // has access.
    let (net, velocity, traces, rate) = unsafe {
        let samples = launch.param::<i32>(3) as usize;
        let traces = std::slice::from_raw_parts(launch.param::<*const Trace>(2), samples);
        let rate = launch.param::<f32>(4) / samples as f32;
        (&mut *launch.param::<*mut Net>(0), &mut *launch.param::<*mut Net>(1), traces, rate)
    };
    let step = |weight: &mut f32, velocity: &mut f32, gradient: f32| {
        *velocity = 0.9 * *velocity - rate * gradient;
        *weight += *velocity;
    };
    let sum = |of: &dyn Fn(&Trace) -> f32| traces.iter().map(of).sum::<f32>();
    for to in 0..HIDDEN {
        for from in 0..PIXELS {
            let gradient = sum(&|trace| trace.pixels[from] * trace.back[to]);
            step(&mut net.hidden[from][to], &mut velocity.hidden[from][to], gradient);
        }
        step(&mut net.hidden_bias[to], &mut velocity.hidden_bias[to], sum(&|trace| trace.back[to]));
    }
    for to in 0..DIGITS {
        for from in 0..HIDDEN {
            let gradient = sum(&|trace| trace.active[from] * trace.wrong[to]);
            step(&mut net.output[from][to], &mut velocity.output[from][to], gradient);
        }
        step(&mut net.output_bias[to], &mut velocity.output_bias[to], sum(&|trace| trace.wrong[to]));
    }
}

/// Returns the output of a layer, before the rectifier.
fn forward<const IN: usize, const OUT: usize>(
    input: &[f32; IN],
    weights: &[[f32; OUT]; IN],
    biases: &[f32; OUT],
) -> [f32; OUT] {
    let mut output = *biases;
    for (value, weights) in input.iter().zip(weights) {
        output.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
    }
    output
}
