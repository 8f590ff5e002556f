//! Turns a process that was started by a command into a worker.

use std::os::fd::OwnedFd;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use core_affinity::CoreId;
use slotline_core::robust::Shape;

use crate::BoxError;
use crate::arena::Pages;
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::socket::Socket;
use crate::loader::backend::processes::spawn::{has_socket, loader};
use crate::loader::backend::processes::spawn_config::{STRATEGIES, STREAM, SpawnConfig, SpawnFacts, words};
use crate::loader::backend::processes::worker::WorkerMain;
use crate::loader::backend::processes::worker_messages;
use crate::loader::collate::allocate::PayloadAt;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::batch_buffer::slot_size;
use crate::loader::error::guard::caught;
use crate::sample::{Fields, Layout};
use crate::streaming;

/// Whether this process has become a worker.
static IS_WORKER: AtomicBool = AtomicBool::new(false);

/// Whether this process was started as a worker, or by a worker, and has not become one.
pub(crate) fn was_started_as_worker() -> bool {
    loader().is_some() && !IS_WORKER.load(Ordering::Relaxed)
}

/// Becomes a worker, if a loader has started this process as one; otherwise returns at once. `join`
/// makes what the worker runs, from what the loader sends and from the bytes of the user's `setup`.
pub(crate) fn become_worker(join: impl FnOnce(Given, &[u8]) -> Result<Joined, BoxError>) {
    let Some(parent) = loader() else { return };
    let has_socket = has_socket();
    // SAFETY: `getppid` has no preconditions.
    if !has_socket && unsafe { libc::getppid() } != parent {
        // This program was started by a worker, and has inherited the worker's environment.
        return;
    }
    if !has_socket {
        eprintln!("slotline: a worker must keep the standard input that the loader has given to its process");
        exit(1);
    }
    IS_WORKER.store(true, Ordering::Relaxed);
    // SAFETY: plain system calls. If the parent has already ended, there is no signal about it.
    let is_child = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::getppid() == parent
    };
    exit(caught(|| run(is_child, join)).unwrap_or(101));
}

/// Runs as a worker, and returns the exit code of its process.
fn run(is_child: bool, join: impl FnOnce(Given, &[u8]) -> Result<Joined, BoxError>) -> i32 {
    let Ok(socket) = Socket::from_stdin() else { return 1 };
    let (socket, process) = (Arc::new(socket), std::process::id());
    let joined = match is_child {
        true => receive_config(&socket, join),
        false => Err("it is not a child of the loader's process; if a script starts it, let that use exec".into()),
    };
    if std::process::id() != process {
        // The user's code has forked a copy of the worker, of which the loader knows nothing.
        // SAFETY: ends the copy without running any code of the worker.
        unsafe { libc::_exit(1) }
    }
    // If this fails, the loader has ended, and nobody needs the message.
    match joined {
        Ok((worker, replaces, Joined(main))) => {
            let _ = socket.send(&worker_messages::ready());
            main.work(worker, socket, replaces);
            0
        }
        Err(error) => {
            let _ = socket.send(&worker_messages::refused(error));
            1
        }
    }
}

/// Receives what the loader sends. Returns the worker's number, whether it replaces another
/// process, and what it runs.
fn receive_config(
    socket: &Socket,
    join: impl FnOnce(Given, &[u8]) -> Result<Joined, BoxError>,
) -> Result<(usize, bool, Joined), BoxError> {
    let ([worker, core, replaces], [spawn_config, control, batches]) = socket.take()?;
    let pages =
        Pages::of_file(spawn_config).map_err(|error| format!("the loader's spawn_config cannot be mapped: {error}"))?;
    let SpawnConfig { facts, fields, lengths, setup } = SpawnConfig::read(&pages)?;
    // Only this worker's core is looked up.
    let cores = if core > 0 { vec![CoreId { id: core - 1 }; worker + 1] } else { Vec::new() };
    let lengths = lengths.map(Arc::from);
    let given = Given { facts, fields: fields.into_owned(), lengths, control, batches, cores };
    Ok((worker, replaces != 0, join(given, setup)?))
}

/// What the loader sends to a worker, except for the user's `setup`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Given {
    pub(crate) facts: SpawnFacts,
    /// The fields of the loader's samples, as text.
    fields: String,
    pub(crate) lengths: Option<Arc<[u32]>>,
    control: OwnedFd,
    batches: OwnedFd,
    /// The core of each worker; empty if workers are not bound to cores.
    pub(crate) cores: Vec<CoreId>,
}

/// The function that a worker process runs after it has connected to the loader.
#[doc(hidden)]
pub struct Joined(pub(crate) Box<dyn WorkerMain>);

impl std::fmt::Debug for Joined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Joined")
    }
}

impl Given {
    /// Checks that the worker has the same kind of dataset, collate function and `worker_init` as
    /// the loader.
    pub(crate) fn check_kind(&self, is_stream: bool, is_collated: bool, has_init: bool) -> Result<(), BoxError> {
        let kind = |is_stream| if is_stream { "an iterable dataset" } else { "a dataset by index" };
        let (ours, theirs) = (kind(is_stream), kind(self.facts.kind == STREAM));
        if ours != theirs {
            return Err(format!("it has {ours}, and the loader has {theirs}; make the same one").into());
        }
        for (ours, theirs, what) in [
            (is_collated, self.facts.is_collated != 0, "collate function"),
            (has_init, self.facts.has_init != 0, "worker_init"),
        ] {
            let [ours, theirs] = [ours, theirs].map(|has| if has { "a" } else { "no" });
            if ours != theirs {
                return Err(format!(
                    "its builder has {ours} {what}, and the loader's has {theirs} {what}; make the same one"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Checks that a dataset by index has as many samples as the loader's dataset.
    pub(crate) fn check_len(&self, len: usize) -> Result<(), BoxError> {
        let theirs = self.facts.len;
        match len == theirs {
            true => Ok(()),
            false => {
                Err(format!("its dataset has {len} samples, and the loader's has {theirs}; make the same one").into())
            }
        }
    }

    /// Maps the memory that the loader shares, for batches of samples with these fields.
    ///
    /// # Errors
    ///
    /// Fails if the loader's samples have other fields, or if the system refuses to map the memory.
    pub(crate) fn map(self, fields: Fields) -> Result<(Arc<Control>, PayloadAt<BatchBuffer>), BoxError> {
        let Self { facts, fields: theirs, control, batches, .. } = self;
        let ours = words(&fields);
        if ours != theirs {
            return Err(format!(
                "its dataset has the fields ({ours}), and the loader's has ({theirs}); make the same one"
            )
            .into());
        }
        let SpawnFacts { depth, parts, workers, rows, .. } = facts;
        let mut layout = Layout::new(fields, if facts.is_collated != 0 { 1 } else { rows })?;
        layout.streaming = streaming::pays(slot_size(layout.size).saturating_mul(depth));
        let layout = Arc::new(layout);
        let cannot = |error| format!("the loader's memory cannot be mapped: {error}");
        let arena = Arc::new(Pages::of_file(batches).map_err(cannot)?);
        let strategy = STRATEGIES.get(facts.strategy).copied().unwrap_or_default();
        // For an iterable dataset the loader sends positions in the stream instead of indices.
        let (shape, indices) = (Shape::new(depth, parts), if facts.kind == STREAM { 0 } else { rows });
        let control = Control::attach(control, shape, workers, indices, strategy).map_err(cannot)?;
        Ok((Arc::new(control), PayloadAt::new(arena, layout)))
    }
}
