//! Starts workers by a command, without a copy of the program's memory.
//!
//! A worker's standard input is its socket, and the first message in it contains the file
//! descriptors of everything that the worker needs. So nothing has to be done between the fork and
//! the command, and the system's `posix_spawn` can start it, whose cost does not depend on the
//! program's size.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use crate::arena::Memory;
use crate::loader::backend::processes::child::Child;
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::socket::{GIVEN, Socket};
use crate::loader::backend::processes::spawn_config::{SpawnConfig, SpawnFacts, words};
use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::error::build::BuildError;
use crate::sample::Fields;

/// The environment variable that a worker and the programs that it starts have. Its value is the ID
/// of the loader's process.
pub(crate) const VARIABLE: &str = "SLOTLINE_WORKER";

/// Starts workers by a command.
#[derive(Debug)]
pub(crate) struct Spawn {
    command: Command,
    /// The files that a worker gets: the configuration, the control memory, and the batches.
    files: [OwnedFd; GIVEN],
    /// The core of each worker; empty if workers are not bound to cores.
    cores: Vec<usize>,
}

impl Spawn {
    /// Prepares to start workers by a command, with the user's `setup`, for batches in `memory`.
    pub(crate) fn new(
        (mut command, setup): (Command, Vec<u8>),
        facts: SpawnFacts,
        fields: &Fields,
        lengths: Option<&[u32]>,
        control: &Control,
        memory: Option<&BatchMemory>,
        cores: Vec<usize>,
    ) -> Result<Self, BuildError> {
        command.env(VARIABLE, std::process::id().to_string());
        let memory = memory.map(BatchMemory::memory);
        let bytes = memory.map_or(0, Memory::len);
        let source = "workers that a command starts need memory that is a file, such as Pages::shared";
        let batches = memory.and_then(Memory::file);
        let batches = batches.ok_or_else(|| BuildError::Allocate { bytes, source: source.into() })?;
        let lengths = lengths.map(<[_]>::to_vec);
        let config = SpawnConfig { facts, fields: words(fields).into(), lengths, setup: &setup };
        let files = || {
            let control = control.file().ok_or(io::ErrorKind::Unsupported)?;
            Ok([config.write()?, control.try_clone_to_owned()?, batches.try_clone_to_owned()?])
        };
        let files = files().map_err(|source| BuildError::Map { bytes: setup.len(), source })?;
        Ok(Self { command, files, cores })
    }

    /// Starts a worker. `theirs` is the worker's end of a socket and `ours` the loader's.
    /// `replaces` says whether the worker replaces a process that has ended.
    pub(crate) fn start(&mut self, worker: usize, replaces: bool, ours: &Socket, theirs: Socket) -> io::Result<Child> {
        let core = self.cores.get(worker).map_or(0, |core| core + 1);
        ours.give([worker, core, usize::from(replaces)], self.files.each_ref().map(AsFd::as_fd))?;
        let child = self.command.stdin(OwnedFd::from(theirs)).spawn();
        // Replace the socket, since the command would keep the worker's end of it open.
        self.command.stdin(Stdio::null());
        Child::of(child?.id() as libc::pid_t)
    }
}

/// Returns the error of a worker that could not be started by a command, or by a fork if `spawn` is
/// `None`.
pub(crate) fn not_started(spawn: Option<&Spawn>, worker: usize, source: io::Error) -> BuildError {
    match spawn {
        Some(Spawn { command, .. }) => {
            BuildError::Command { worker, program: command.get_program().to_string_lossy().into_owned(), source }
        }
        None => BuildError::Thread { worker, source },
    }
}

/// Returns the ID of the loader's process, if this process was started as a worker, or by a worker.
pub(crate) fn loader() -> Option<libc::pid_t> {
    std::env::var(VARIABLE).ok()?.parse().ok()
}

/// Whether the standard input is a worker's socket.
pub(crate) fn has_socket() -> bool {
    let (mut kind, mut size) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let input = io::stdin().as_raw_fd();
    // SAFETY: writes the number into a local variable of this size.
    let known = unsafe { libc::getsockopt(input, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut size) };
    known == 0 && kind == libc::SOCK_SEQPACKET
}
