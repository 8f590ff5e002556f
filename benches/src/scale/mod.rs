//! How the cost of a batch goes with the dataset's size and with the number of workers.

pub mod size;
pub mod workers;
