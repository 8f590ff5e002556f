//! Samplers: which samples a pass visits, in which order, and which of them form a batch.

mod batch_sampler;
mod generator;
mod order;
mod sampler;

pub use self::batch_sampler::*;
pub use self::generator::*;
pub use self::order::*;
pub use self::sampler::*;

pub(crate) use self::generator::with_generator;
