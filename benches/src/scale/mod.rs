//! The cost of a batch, depending on the dataset's size, and on the numbers of cores and ranks.

pub mod cores;
pub mod ranks;
pub mod size;
