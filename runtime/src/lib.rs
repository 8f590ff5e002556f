//! slotline
