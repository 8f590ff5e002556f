//! Starts workers by a command, without a copy of the program's memory.
//!
//! A worker's standard input is its socket, and in it wait the descriptors of all that it needs. So nothing must be done
//! between the fork and the command, and the system's `posix_spawn` starts it, whose cost does not depend on the program's
//! size.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use crate::loader::backend::processes::child::Child;
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::socket::{GIVEN, Socket};
use crate::loader::backend::processes::spawn_config::SpawnConfig;
use crate::loader::error::build::BuildError;

/// The variable in the environment of a worker, and of the programs that it starts. Its value is the id of the loader's
/// process.
pub(crate) const VARIABLE: &str = "SLOTLINE_WORKER";

/// Starts workers.
#[derive(Debug)]
pub(crate) struct Spawn {
    command: Command,
    /// The configuration, the control memory, and the batches.
    files: [OwnedFd; GIVEN],
    /// The core of each worker, if workers are bound.
    cores: Vec<usize>,
}

impl Spawn {
    /// Prepares to start workers for batches in a file.
    pub(crate) fn new(
        mut command: Command,
        spawn_config: &SpawnConfig<'_>,
        control: &Control,
        batches: BorrowedFd<'_>,
        cores: Vec<usize>,
    ) -> io::Result<Self> {
        command.env(VARIABLE, std::process::id().to_string());
        let control = control.file().ok_or(io::ErrorKind::Unsupported)?.try_clone_to_owned()?;
        Ok(Self { command, files: [spawn_config.write()?, control, batches.try_clone_to_owned()?], cores })
    }

    /// Starts a worker, which has one end of a socket, while the loader has the other one. `replaces` says whether another
    /// process has ended as this worker.
    pub(crate) fn start(&mut self, worker: usize, replaces: bool, ours: &Socket, theirs: Socket) -> io::Result<Child> {
        let core = self.cores.get(worker).map_or(0, |core| core + 1);
        ours.give([worker, core, usize::from(replaces)], self.files.each_ref().map(AsFd::as_fd))?;
        let child = self.command.stdin(OwnedFd::from(theirs)).spawn();
        // The command keeps what it was given.
        self.command.stdin(Stdio::null());
        Child::of(child?.id() as libc::pid_t)
    }
}

/// Returns the error of a worker that could not be started, by a command or, without one, by a fork.
pub(crate) fn not_started(spawn: Option<&Spawn>, worker: usize, source: io::Error) -> BuildError {
    match spawn {
        Some(Spawn { command, .. }) => {
            BuildError::Command { worker, program: command.get_program().to_string_lossy().into_owned(), source }
        }
        None => BuildError::Thread { worker, source },
    }
}

/// Returns the id of the loader's process, if this one was started as a worker, or by a worker.
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
