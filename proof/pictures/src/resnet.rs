//! A small residual network.

use candle_core::{Result, Tensor};
use candle_nn::{
    BatchNorm, Conv2d, Conv2dConfig, Linear, Module, ModuleT, VarBuilder, batch_norm, conv2d_no_bias, linear,
};

/// The channels of the stages. All but the first one halve the width and the height.
const CHANNELS: [usize; 3] = [16, 32, 64];

pub struct ResNet {
    stem: Conv2d,
    norm: BatchNorm,
    blocks: Vec<Block>,
    head: Linear,
}

/// A residual block: two convolutions, and the shortcut to which their result is added.
struct Block {
    convolutions: [Conv2d; 2],
    norms: [BatchNorm; 2],
    /// The convolution of the shortcut, if the block changes the shape; `None` otherwise.
    shortcut: Option<Conv2d>,
}

fn convolution(from: usize, to: usize, kernel: usize, stride: usize, vb: VarBuilder<'_>) -> Result<Conv2d> {
    conv2d_no_bias(from, to, kernel, Conv2dConfig { padding: kernel / 2, stride, ..Default::default() }, vb)
}

impl ResNet {
    pub fn new(classes: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let mut from = CHANNELS[0];
        let (stem, norm) = (convolution(3, from, 3, 2, vb.pp("stem"))?, batch_norm(from, 1e-5, vb.pp("norm"))?);
        let mut blocks = Vec::new();
        for (i, to) in CHANNELS.into_iter().enumerate() {
            blocks.push(Block::new(from, to, &vb.pp(format!("block{i}")))?);
            from = to;
        }
        Ok(Self { stem, norm, blocks, head: linear(from, classes, vb.pp("head"))? })
    }

    /// Returns the logits: [B, classes] of [B, 3, height, width].
    pub fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = self.norm.forward_t(&self.stem.forward(images)?, train)?.relu()?;
        for block in &self.blocks {
            x = block.forward(&x, train)?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

impl Block {
    fn new(from: usize, to: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let stride = if from == to { 1 } else { 2 };
        Ok(Self {
            convolutions: [
                convolution(from, to, 3, stride, vb.pp("first"))?,
                convolution(to, to, 3, 1, vb.pp("second"))?,
            ],
            norms: [batch_norm(to, 1e-5, vb.pp("norm1"))?, batch_norm(to, 1e-5, vb.pp("norm2"))?],
            shortcut: (stride != 1).then(|| convolution(from, to, 1, stride, vb.pp("shortcut"))).transpose()?,
        })
    }

    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let [first, second] = &self.convolutions;
        let y = self.norms[0].forward_t(&first.forward(x)?, train)?.relu()?;
        let y = self.norms[1].forward_t(&second.forward(&y)?, train)?;
        let x = self.shortcut.as_ref().map_or_else(|| Ok(x.clone()), |shortcut| shortcut.forward(x))?;
        (x + y)?.relu()
    }
}
