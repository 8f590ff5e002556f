//! Measurements of slotline's rings and loader: see `benches/`.

pub mod rings;
