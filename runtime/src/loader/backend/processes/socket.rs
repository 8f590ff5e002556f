//! The socket between a worker process and the loader, for everything that is rare: failures, bad samples, events.
//!
//! It keeps the boundaries of messages, so a process that ends in the middle leaves no part of one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The maximum length of a message's text.
const TEXT: usize = 32 << 10;
/// The numbers of a message.
pub(crate) const NUMBERS: usize = 6;

/// A message. The loader checks what it uses of one that comes from a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u64,
    pub(crate) numbers: [u64; NUMBERS],
    /// Truncated if it is too long.
    pub(crate) text: String,
}

/// One end.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let mut fds = [0; 2];
        // SAFETY: writes two descriptors into the array.
        if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) }
            < 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptors are new, and have no other owner.
        let [one, other] = fds.map(|fd| Self(unsafe { OwnedFd::from_raw_fd(fd) }));
        Ok((one, other))
    }

    /// Sends a message, and waits if the other end has not yet received the ones before it.
    pub(crate) fn send(&self, message: &Message) -> io::Result<()> {
        let Message { kind, numbers, text } = message;
        let text = &text[..text.floor_char_boundary(TEXT)];
        let mut bytes = Vec::with_capacity((1 + NUMBERS) * 8 + text.len());
        [*kind].iter().chain(numbers).for_each(|number| bytes.extend(number.to_ne_bytes()));
        bytes.extend(text.as_bytes());
        loop {
            // SAFETY: sends initialised bytes.
            let sent =
                unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
            let error = io::Error::last_os_error();
            match sent {
                0.. => return Ok(()),
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }

    /// Receives a message if there is one, or with `wait` waits for it. `None` if there is none, or the other end is
    /// gone.
    pub(crate) fn receive(&self, wait: bool) -> Option<Message> {
        let mut bytes = [0_u8; (1 + NUMBERS) * 8 + TEXT];
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let len = loop {
            // SAFETY: receives into the array.
            let len = unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) };
            match usize::try_from(len) {
                Ok(len) => break len,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        };
        let mut words =
            bytes[..len].chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let kind = words.next()?;
        let numbers = std::array::from_fn(|_| words.next().unwrap_or_default());
        let text = bytes.get((1 + NUMBERS) * 8..len).unwrap_or_default();
        Some(Message { kind, numbers, text: String::from_utf8_lossy(text).into_owned() })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_and_in_sequence() {
        let (one, other) = Socket::pair().unwrap();
        assert_eq!(other.receive(false), None);
        let message = |kind, text: &str| Message { kind, numbers: [1, 2, 3, 4, 5, u64::MAX], text: text.to_owned() };
        for (kind, text) in [(1, "one"), (2, ""), (3, "drei: ü")] {
            one.send(&message(kind, text)).unwrap();
        }
        assert_eq!(other.receive(true), Some(message(1, "one")));
        assert_eq!(other.receive(false), Some(message(2, "")));
        assert_eq!(other.receive(true), Some(message(3, "drei: ü")));
        assert_eq!(other.receive(false), None);
        one.send(&message(4, &"ü".repeat(TEXT))).unwrap();
        assert_eq!(other.receive(true), Some(message(4, &"ü".repeat(TEXT / 2))));
        drop(one);
        assert_eq!(other.receive(true), None);
        assert!(other.send(&message(0, "")).is_err());
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        let (one, other) = Socket::pair().unwrap();
        for len in [1_usize, 7, 8, 9, 55, 56, 57, 100] {
            let bytes = vec![0xff_u8; len];
            // SAFETY: sends initialised bytes.
            assert_eq!(unsafe { libc::send(one.0.as_raw_fd(), bytes.as_ptr().cast(), len, 0) }, len as isize);
            let message = other.receive(true);
            assert_eq!(message.is_some(), len >= 8, "{len} bytes");
            assert!(message.is_none_or(|message| message.kind == u64::MAX));
        }
    }
}
