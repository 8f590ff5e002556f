//! slotline
fn main() {}
