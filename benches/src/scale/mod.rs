//! The cost of a batch, depending on the dataset's size and on the number of workers.

pub mod size;
pub mod workers;
