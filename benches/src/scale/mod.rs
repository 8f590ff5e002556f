//! The cost of a batch, depending on the dataset's size, and on the numbers of workers and ranks.

pub mod ranks;
pub mod size;
pub mod workers;
