//! Copies, which are done piece by piece, the last piece first, in order to expose code that relies
//! on the order or time of copying.

use std::fmt;

use super::code::{INVALID_VALUE, Outcome};
use super::host::{Host, is_addressable};
use super::memory::{hash, read, write};
use super::stream::{Access, Place, Work};
use super::{Driver, Handle};

pub(super) struct Copy {
    to_device: bool,
    device: usize,
    host: Side,
    bytes: usize,
    piece: usize,
    /// The number of pieces that are still to be copied.
    left: usize,
    /// The hash of each piece of the host's bytes at the time when the copy was enqueued.
    hashes: Vec<u64>,
    shut: bool,
    changed: bool,
}

enum Side {
    Locked(usize),
    /// The contents of pageable memory, which were read when the copy was enqueued.
    Staged(Vec<u8>),
    /// Other memory of the device, in place of host memory.
    Device(usize),
}

pub(super) struct Fill {
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) value: u8,
}

impl Fill {
    pub(super) fn write(&self) -> bool {
        write(self.start, &vec![self.value; self.bytes]);
        true
    }
}

impl Copy {
    /// Returns whether the copy is from the host to the device.
    pub(super) fn is_to_device(&self) -> bool {
        self.to_device && !matches!(self.host, Side::Device(_))
    }

    pub(super) fn accesses(&self) -> Vec<Access> {
        let device = Access { start: self.device, bytes: self.bytes, writes: self.to_device };
        match self.host {
            Side::Locked(start) | Side::Device(start) => {
                vec![device, Access { start, bytes: self.bytes, writes: !self.to_device }]
            }
            Side::Staged(_) => vec![device],
        }
    }

    /// Returns the offset and length of a piece.
    fn piece(&self, i: usize) -> (usize, usize) {
        (i * self.piece, self.piece.min(self.bytes - i * self.piece))
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.host {
            Side::Device(_) => "within",
            _ if self.to_device => "to",
            _ => "from",
        };
        write!(f, "copy of {} bytes {way} the device", self.bytes)
    }
}

impl Driver {
    pub(super) fn copy_to_device(&mut self, device: usize, host: usize, bytes: usize, stream: Handle) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let side = match self.copy_kind(device, host, bytes, stream)? {
            Host::PageLocked => Side::Locked(host),
            Host::Pageable => Side::Staged(read(host, bytes)),
        };
        self.enqueue_copy(true, device, side, bytes, stream);
        Ok(())
    }

    pub(super) fn copy_to_host(&mut self, host: usize, device: usize, bytes: usize, stream: Handle) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let kind = self.copy_kind(device, host, bytes, stream)?;
        self.enqueue_copy(false, device, Side::Locked(host), bytes, stream);
        match kind {
            Host::PageLocked => Ok(()),
            Host::Pageable => self.finish_stream(stream),
        }
    }

    pub(super) fn copy_within_device(&mut self, to: usize, from: usize, bytes: usize, stream: Handle) -> Outcome {
        let stream = self.find_stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        self.check_for(stream, to, bytes)?;
        self.check_for(stream, from, bytes)?;
        self.enqueue_copy(true, to, Side::Device(from), bytes, stream);
        Ok(())
    }

    pub(super) fn fill(&mut self, start: usize, value: u8, bytes: usize, stream: Handle) -> Outcome {
        let stream = self.find_stream(stream)?;
        self.check_for(stream, start, bytes)?;
        self.enqueue(stream, Work::Fill(Fill { start, bytes, value }));
        Ok(())
    }

    /// Checks that the range is allocated on the stream's device. Page-locked host memory is
    /// accepted, as a real driver treats it as device memory, but it is recorded as a violation.
    fn check_for(&mut self, stream: Handle, start: usize, bytes: usize) -> Outcome {
        let own = self.streams[&stream].device();
        let problem = match self.check_range(start, bytes) {
            Ok(device) if device == own => return Ok(()),
            Ok(device) => format!("a stream of device {own} uses memory of device {device}"),
            Err(problem) => problem,
        };
        self.violation(problem);
        let is_locked =
            is_addressable(start, bytes) && matches!(self.host.kind(start, bytes, own), Ok(Host::PageLocked));
        if is_locked { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn copy_kind(&mut self, device: usize, host: usize, bytes: usize, stream: Handle) -> Outcome<Host> {
        self.check_for(stream, device, bytes)?;
        if host == 0 || !is_addressable(host, bytes) {
            return Err(INVALID_VALUE);
        }
        match self.host.kind(host, bytes, self.streams[&stream].device()) {
            Ok(kind) => {
                self.pageable_copies += u64::from(matches!(kind, Host::Pageable));
                Ok(kind)
            }
            Err(problem) => {
                self.violation(problem);
                Err(INVALID_VALUE)
            }
        }
    }

    fn enqueue_copy(&mut self, to_device: bool, device: usize, host: Side, bytes: usize, stream: Handle) {
        let piece = self.options.piece_bytes.max(1);
        let left = bytes.div_ceil(piece);
        let mut copy =
            Copy { to_device, device, host, bytes, piece, left, hashes: Vec::new(), shut: false, changed: false };
        if let (true, Side::Locked(start)) = (to_device, &copy.host) {
            let start = *start;
            copy.hashes = (0..left).map(|i| copy.piece(i)).map(|(at, len)| hash(&read(start + at, len))).collect();
            if self.options.read_only_sources {
                self.host.shut(start, bytes);
                copy.shut = true;
            }
        }
        self.enqueue(stream, Work::Copy(copy));
    }

    pub(super) fn copy_piece(&mut self, copy: &mut Copy, place: Place<'_>) -> bool {
        copy.left -= 1;
        let (at, len) = copy.piece(copy.left);
        let device = copy.device + at;
        match (&copy.host, copy.to_device) {
            (Side::Locked(host), true) => {
                let bytes = read(host + at, len);
                write(device, &bytes);
                self.compare(copy, copy.left, hash(&bytes), place);
            }
            (Side::Locked(host), false) => write(host + at, &read(device, len)),
            (Side::Device(from), _) => write(device, &read(from + at, len)),
            (Side::Staged(bytes), _) => write(device, &bytes[at..at + len]),
        }
        if copy.left > 0 {
            return false;
        }
        // A real device may read any piece last, so no piece may change before the copy ends.
        if let (Side::Locked(host), true) = (&copy.host, copy.to_device) {
            let host = *host;
            for i in 0..copy.hashes.len() {
                let (at, len) = copy.piece(i);
                self.compare(copy, i, hash(&read(host + at, len)), place);
            }
            if copy.shut {
                self.host.open(host, copy.bytes);
            }
        }
        true
    }

    /// Records a violation if the piece has changed since the copy was enqueued. At most one is
    /// recorded for each copy.
    fn compare(&mut self, copy: &mut Copy, i: usize, now: u64, place: Place<'_>) {
        if now != copy.hashes[i] && !std::mem::replace(&mut copy.changed, true) {
            let (at, len) = copy.piece(i);
            self.violation(format!("host bytes {at}..{} were written while in flight: {copy} ({place})", at + len));
        }
    }
}
