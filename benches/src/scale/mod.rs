//! How the cost of a batch depends on the dataset's size, and on the numbers of cores and ranks.

pub mod cores;
pub mod ranks;
pub mod size;
