//! The socket between a worker process and the loader, for messages that are rare: failures, bad
//! samples and events.
//!
//! It is a packet socket, so a process that ends in the middle of sending leaves no partial
//! message.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::arena::above_stdio;

/// The maximum length of a message's text in bytes.
pub(crate) const TEXT: usize = 32 << 10;
/// The count of numbers in a message.
pub(crate) const NUMBERS: usize = 6;

/// The kind of a message with a piece of the next message's text.
pub(crate) const PIECE: u64 = 7;

/// A message. The loader must check the contents of a message from a worker before it uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u64,
    pub(crate) numbers: [u64; NUMBERS],
    /// The text of the message, truncated if it is too long.
    pub(crate) text: String,
}

/// One end of a connection.
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
        let [one, other] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((Self(above_stdio(one)?), Self(above_stdio(other)?)))
    }

    /// Sends a message. Waits while the other end has too many messages that it has not received.
    pub(crate) fn send(&self, message: &Message) -> io::Result<()> {
        self.send_with(message, 0)
    }

    /// Sends a message, or fails with [`WouldBlock`](io::ErrorKind::WouldBlock) if it would have to
    /// wait.
    pub(crate) fn try_send(&self, message: &Message) -> io::Result<()> {
        self.send_with(message, libc::MSG_DONTWAIT)
    }

    /// Ends the connection, even if another process has a copy of this end.
    pub(crate) fn shut_down(&self) {
        // SAFETY: a plain system call.
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) };
    }

    fn send_with(&self, message: &Message, flags: i32) -> io::Result<()> {
        let Message { kind, numbers, text } = message;
        let text = &text[..text.floor_char_boundary(TEXT)];
        let mut bytes = Vec::with_capacity((1 + NUMBERS) * 8 + text.len());
        [*kind].iter().chain(numbers).for_each(|number| bytes.extend(number.to_ne_bytes()));
        bytes.extend(text.as_bytes());
        loop {
            let flags = flags | libc::MSG_NOSIGNAL;
            // SAFETY: sends initialised bytes.
            let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
            let error = io::Error::last_os_error();
            match sent {
                0.. => return Ok(()),
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }

    /// Passes a message with a text of any length to `send` in pieces. All pieces before the last
    /// one have the kind [`PIECE`].
    pub(crate) fn in_pieces<E>(message: &Message, mut send: impl FnMut(&Message) -> Result<(), E>) -> Result<(), E> {
        let mut text = &*message.text;
        while text.len() > TEXT {
            let (piece, rest) = text.split_at(text.floor_char_boundary(TEXT));
            send(&Message { kind: PIECE, numbers: [0; NUMBERS], text: piece.to_owned() })?;
            text = rest;
        }
        send(&Message { text: text.to_owned(), ..*message })
    }

    /// Whether the other end is closed. Messages that were sent before that can still be received.
    pub(crate) fn is_closed(&self) -> bool {
        let mut polled = libc::pollfd { fd: self.0.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: the descriptor is open, and the length of the array is 1.
        unsafe { libc::poll(&mut polled, 1, 0) == 1 && polled.revents & libc::POLLHUP != 0 }
    }

    /// Receives a message if there is one, or with `wait` waits for one. Returns `None` if there is
    /// none, or if the other end is closed.
    pub(crate) fn receive(&self, wait: bool) -> Option<Message> {
        // Not initialised, since that would take longer than receiving a short message.
        let mut bytes = MaybeUninit::<[u8; (1 + NUMBERS) * 8 + TEXT]>::uninit();
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let len = loop {
            // SAFETY: receives into the array.
            let len = unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), size_of_val(&bytes), flags) };
            match usize::try_from(len) {
                Ok(len) => break len,
                Err(_) => match io::Error::last_os_error().kind() {
                    // A reset is reported once, before the messages that the other end had sent. It
                    // means that the other end closed without having received everything.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset => {}
                    _ => return None,
                },
            }
        };
        // SAFETY: the system has written `len` bytes, which is at most the length of the buffer.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), len) };
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let kind = words.next()?;
        let numbers = std::array::from_fn(|_| words.next().unwrap_or_default());
        let text = bytes.get((1 + NUMBERS) * 8..).unwrap_or_default();
        Some(Message { kind, numbers, text: String::from_utf8_lossy(text).into_owned() })
    }
}

/// The number of file descriptors that a worker receives.
pub(crate) const GIVEN: usize = 3;
/// The numbers that are sent with the descriptors.
type Numbers = [usize; 3];

/// Returns the header of a message of numbers, with room for descriptors. The arguments must
/// outlive it.
fn header(part: &mut libc::iovec, numbers: *mut Numbers, room: &mut [u64; 8]) -> libc::msghdr {
    *part = libc::iovec { iov_base: numbers.cast(), iov_len: size_of::<Numbers>() };
    // SAFETY: zeros are a valid header, of an empty message.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (part, 1);
    header.msg_control = room.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    header
}

/// The size of the descriptors with their header.
// SAFETY: this only computes.
const CONTROL: u32 = unsafe { libc::CMSG_SPACE(size_of::<[RawFd; GIVEN]>() as u32) };

/// Functions for workers that are started by a command.
impl Socket {
    /// Sends numbers and descriptors. This must be the first message.
    pub(crate) fn give(&self, mut numbers: Numbers, fds: [BorrowedFd<'_>; GIVEN]) -> io::Result<()> {
        let fds = fds.map(|fd| fd.as_raw_fd());
        // SAFETY: zeros are valid.
        let (mut part, mut room) = (unsafe { std::mem::zeroed() }, [0; 8]);
        let header = header(&mut part, &raw mut numbers, &mut room);
        // SAFETY: the room is aligned and large enough for the descriptors and their header, and
        // outlives the call.
        let sent = unsafe {
            let control = libc::CMSG_FIRSTHDR(&header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(size_of_val(&fds) as u32) as _;
            libc::CMSG_DATA(control).cast::<[RawFd; GIVEN]>().write_unaligned(fds);
            libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the standard input, which is a socket, and replaces it by `/dev/null`.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        let (stdin, null) = (io::stdin(), std::fs::File::open("/dev/null")?);
        let socket = stdin.as_fd().try_clone_to_owned()?;
        // SAFETY: atomically replaces one open file by another one.
        match unsafe { libc::dup2(null.as_raw_fd(), stdin.as_raw_fd()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(Self(socket)),
        }
    }

    /// Waits for the numbers and descriptors that the other end has [given](Self::give).
    pub(crate) fn take(&self) -> io::Result<(Numbers, [OwnedFd; GIVEN])> {
        // SAFETY: zeros are valid.
        let (mut part, mut room, mut numbers) = (unsafe { std::mem::zeroed() }, [0; 8], [0; 3]);
        let mut header = header(&mut part, &raw mut numbers, &mut room);
        let received = loop {
            // SAFETY: everything that the header refers to outlives the call.
            let received = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
            let error = io::Error::last_os_error();
            match received {
                0.. => break received,
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        };
        // SAFETY: the system has filled in the header.
        let control = unsafe { libc::CMSG_FIRSTHDR(&header) };
        // SAFETY: the system has filled in the header, and the pointer is not null.
        let whole = !control.is_null()
            && unsafe {
                (*control).cmsg_type == libc::SCM_RIGHTS
                    && (*control).cmsg_len as u32 == libc::CMSG_LEN(size_of::<[RawFd; GIVEN]>() as u32)
            };
        if received as usize != size_of::<Numbers>() || !whole {
            return Err(io::Error::other("the loader is gone, or the worker has no descriptors left"));
        }
        // SAFETY: there are `GIVEN` descriptors, which are new and have no other owner.
        let fds = unsafe { libc::CMSG_DATA(control).cast::<[RawFd; GIVEN]>().read_unaligned() };
        // SAFETY: the descriptors are new and have no other owner.
        Ok((numbers, fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })))
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
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
    fn a_message_comes_though_the_other_end_read_none() {
        let (one, other) = Socket::pair().unwrap();
        let message = |kind| Message { kind, ..Message::default() };
        one.send(&message(1)).unwrap();
        other.send(&message(2)).unwrap();
        drop(one);
        assert_eq!(other.receive(false), Some(message(1)));
        assert_eq!(other.receive(false), None);
    }

    #[test]
    fn descriptors_are_given_with_numbers() {
        let (one, other) = Socket::pair().unwrap();
        let files = [1, 2, 3].map(|len| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(len).unwrap();
            file
        });
        one.give([7, usize::MAX, 8], files.each_ref().map(|file| file.as_fd())).unwrap();
        let (numbers, taken) = other.take().unwrap();
        assert_eq!(numbers, [7, usize::MAX, 8]);
        assert_eq!(taken.map(|file| std::fs::File::from(file).metadata().unwrap().len()), [1, 2, 3]);
        one.send(&Message::default()).unwrap();
        assert!(other.take().is_err());
        drop(one);
        assert!(other.take().is_err());
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
