//! Makes a process that was started by a command a worker.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use core_affinity::CoreId;
use slotline_core::ordered::Delivery;
use slotline_core::robust::Shape;

use crate::BoxError;
use crate::arena::{Memory, Pages};
use crate::dataset::Dataset;
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::letter::{Facts, Letter, STRATEGIES, on_error_of, words};
use crate::loader::backend::processes::mail;
use crate::loader::backend::processes::socket::Socket;
use crate::loader::backend::processes::spawn::{has_socket, loader};
use crate::loader::backend::processes::worker::{Crew, Life, connect};
use crate::loader::collate::allocate::{PayloadAt, fields_of};
use crate::loader::collate::stack::Stack;
use crate::loader::error::guard::{caught, probe};
use crate::loader::order::index_source::Batching;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::Engine;
use crate::sample::Layout;

/// Whether this process has become a worker.
static BORN: AtomicBool = AtomicBool::new(false);

/// Whether this process was started as a worker, or by a worker, and has not become one.
pub(crate) fn was_started_as_worker() -> bool {
    loader().is_some() && !BORN.load(Ordering::Relaxed)
}

/// Becomes a worker, if a loader has started this process as one ([`ProcessBuilder::spawn`]); otherwise returns at once.
///
/// Call this at the start of `main`: what comes before it runs in each worker, and what comes after it does not. A worker
/// makes its dataset with `make` from the bytes that the loader tells it, reads samples until the loader is dropped or its
/// process ends, and then ends its own process, so that this function does not return.
///
/// The dataset must have the length and the fields of the loader's, but may have another type. If it differs, or if `make`
/// fails or panics, the loader says why ([`Error::WorkerDied`]).
///
/// The process takes its standard input for this, which is empty from then on, and ignores SIGINT, since a terminal sends
/// that to all processes of a program. (Before this call it does not; a command in its own
/// [group](std::os::unix::process::CommandExt::process_group) is not sent any.)
///
/// [`ProcessBuilder::spawn`]: crate::loader::ProcessBuilder::spawn
/// [`Error::WorkerDied`]: crate::loader::Error::WorkerDied
pub fn work_if_spawned<D: Dataset>(make: impl FnOnce(&[u8]) -> Result<D, BoxError>) {
    let Some(parent) = loader() else { return };
    let has_socket = has_socket();
    // SAFETY: asks for a number.
    if !has_socket && unsafe { libc::getppid() } != parent {
        // A worker has started this program, which has its environment.
        return;
    }
    if !has_socket {
        eprintln!("slotline: a worker must keep the standard input that the loader has given to its process");
        exit(1);
    }
    BORN.store(true, Ordering::Relaxed);
    // SAFETY: plain system calls. If the parent is gone already, its death is not signalled.
    let is_child = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::getppid() == parent
    };
    exit(caught(|| live(is_child, make)).unwrap_or(101));
}

/// Lives as a worker, and returns the exit code of its process.
fn live<D: Dataset>(is_child: bool, make: impl FnOnce(&[u8]) -> Result<D, BoxError>) -> i32 {
    let Ok(socket) = Socket::from_stdin() else { return 1 };
    let socket = Arc::new(socket);
    let crew = match is_child {
        true => join(&socket, make),
        false => Err("it is not a child of the loader's process; if a script starts it, let that use exec".into()),
    };
    // If the loader is gone, so is everybody who could be told.
    match crew {
        Ok((worker, crew)) => {
            let _ = socket.send(&mail::ready());
            crew.work(worker, socket, false);
            0
        }
        Err(error) => {
            let _ = socket.send(&mail::refused(error));
            1
        }
    }
}

/// Makes what a worker needs, and returns its number.
fn join<D: Dataset>(
    socket: &Socket,
    make: impl FnOnce(&[u8]) -> Result<D, BoxError>,
) -> Result<(usize, Crew<D, Stack>), BoxError> {
    let ([worker, core], [letter, control, batches]) = socket.take()?;
    let pages = Pages::of_file(letter).map_err(|error| format!("the loader's letter cannot be mapped: {error}"))?;
    let Letter { facts, fields: theirs, setup } = Letter::read(&pages)?;
    let Facts { depth, parts, workers, rows, stride, bulk, part_rows, .. } = facts;
    let (dataset, len) = probe(|| {
        let dataset = make(setup)?;
        let len = dataset.len();
        Ok((dataset, len))
    })?;
    if len != facts.len {
        let theirs = facts.len;
        return Err(format!("its dataset has {len} samples, and the loader's has {theirs}; make the same one").into());
    }
    let fields = probe(|| Ok(fields_of(&dataset)?))?;
    let ours = words(&fields);
    if ours != theirs {
        return Err(
            format!("its dataset has the fields ({ours}), and the loader's has ({theirs}); make the same one").into()
        );
    }
    let layout = Arc::new(Layout::new(fields, rows)?);
    let cannot = |error| format!("the loader's memory cannot be mapped: {error}");
    let arena: Arc<dyn Memory> = Arc::new(Pages::of_file(batches).map_err(cannot)?);
    let strategy = STRATEGIES.get(facts.strategy).copied().unwrap_or_default();
    let control = Control::attach(control, Shape::new(depth, parts), workers, rows, strategy).map_err(cannot)?;
    let control = Arc::new(control);
    let batching = Batching { batch_size: stride, drop_last: false, single: facts.is_single != 0 };
    let engine = Engine::new(dataset, Stack, rows, batching, bulk, workers, None);
    let engine = connect(engine.on_error(on_error_of(facts.on_error)), &control);
    let crew = Crew {
        engine: Arc::new(engine),
        control,
        delivery: if facts.in_order != 0 { Delivery::InOrder } else { Delivery::Arrival },
        part_rows,
        payload_at: PayloadAt::new(arena, layout),
        sizer: if facts.is_fixed != 0 { ClaimSizer::fixed(1) } else { ClaimSizer::adaptive(parts) },
        init: None,
        // Only that of this worker is looked up.
        cores: if core > 0 { vec![CoreId { id: core - 1 }; worker + 1] } else { Vec::new() },
    };
    Ok((worker, crew))
}
