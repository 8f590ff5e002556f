//! Why a part of a batch failed, as bytes in memory that processes share.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use crate::BoxError;
use crate::loader::error::failure::{Cause, Failure};
use crate::loader::error::run::By;

/// The maximum length of the text.
const TEXT: usize = 1024 - 5 * 8;

/// A failure. Every value of every byte is valid: the loader checks what it reads.
#[repr(C)]
pub(crate) struct Message {
    /// The ticket that it is for, plus 1.
    ticket: u64,
    position: u64,
    index: u64,
    /// 0: an error; otherwise a panic.
    kind: u64,
    len: u64,
    text: [u8; TEXT],
}

/// An error of a worker process, with the text of its sources.
#[derive(Debug)]
struct RemoteError(String);

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RemoteError {}

impl Message {
    /// Writes a failure of a ticket.
    ///
    /// # Safety
    ///
    /// The message must be valid for writes, and belong to the caller's claim.
    pub(crate) unsafe fn write(to: NonNull<Self>, ticket: u64, failure: &Failure) {
        let (kind, text) = match &failure.cause {
            Cause::Panic(message) => (1, message.clone()),
            cause => (0, cause.with_sources()),
        };
        let text = &text[..text.floor_char_boundary(TEXT)];
        let mut message = Self {
            // Written last: a worker that ends in the middle leaves a message without one.
            ticket: 0,
            position: failure.position as u64,
            index: failure.index as u64,
            kind,
            len: text.len() as u64,
            text: [0; TEXT],
        };
        message.text[..text.len()].copy_from_slice(text.as_bytes());
        // SAFETY: the caller's claim makes this the only access.
        unsafe {
            to.write_volatile(message);
            fence(Ordering::Release);
            (&raw mut (*to.as_ptr()).ticket).write_volatile(ticket + 1);
        }
    }

    /// Reads the failure of a ticket, if there is one.
    ///
    /// # Safety
    ///
    /// The message must be valid for reads.
    pub(crate) unsafe fn read(from: NonNull<Self>, ticket: u64, by: By) -> Option<Failure> {
        // SAFETY: any bytes are a message. A process that writes here at this time has gone mad; the read is volatile,
        // so that only its values are affected.
        let message = unsafe { from.read_volatile() };
        if message.ticket != ticket.wrapping_add(1) {
            return None;
        }
        let len = usize::try_from(message.len).map_or(TEXT, |len| len.min(TEXT));
        let text = String::from_utf8_lossy(&message.text[..len]).into_owned();
        let cause = match message.kind {
            0 => Cause::Error(BoxError::from(RemoteError(text))),
            _ => Cause::Panic(text),
        };
        Some(Failure { position: message.position as usize, index: message.index as usize, by, cause })
    }
}
