//! Mutants of the rings, which the models must detect. In a mutant, one operation has a weaker
//! ordering or is left out.
//!
//! The harness (`tests/models/mutants.rs`) runs a model in a separate process and configures it by
//! environment variables:
//!
//! - `SLOTLINE_MUTANT="FILE:LINE:COLUMN|OPERATION|WEAKER"`: that operation is done with the
//!   ordering `WEAKER` (`Relaxed`, `Acquire`, `Release`, `AcqRel`), or left out if `WEAKER` is
//!   `nothing`.
//! - `SLOTLINE_SITES=FILE`: each operation that the model executes is written to that file, with
//!   its ordering.

use core::panic::Location;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex};

use super::watched::Ordering;

/// The active mutant.
struct Mutant {
    file: String,
    line: u32,
    column: u32,
    operation: String,
    /// The ordering to use, or `None` if the operation is left out.
    weaker: Option<Ordering>,
}

impl Mutant {
    /// Parses the value of `SLOTLINE_MUTANT`. Panics if it is malformed: a check with a mutant that
    /// does not exist would prove nothing.
    fn parse(text: &str) -> Self {
        let parse = || {
            let [place, operation, weaker] = *text.split('|').collect::<Vec<_>>() else { return None };
            let [column, line, file] = *place.rsplitn(3, ':').collect::<Vec<_>>() else { return None };
            let weaker = match weaker {
                "Relaxed" => Some(Ordering::Relaxed),
                "Acquire" => Some(Ordering::Acquire),
                "Release" => Some(Ordering::Release),
                "AcqRel" => Some(Ordering::AcqRel),
                "nothing" => None,
                _ => return None,
            };
            let (line, column) = (line.parse().ok()?, column.parse().ok()?);
            Some(Self { file: file.to_owned(), line, column, operation: operation.to_owned(), weaker })
        };
        parse().unwrap_or_else(|| panic!("SLOTLINE_MUTANT is malformed: {text}"))
    }

    fn is_at(&self, operation: &str, place: &Location<'_>) -> bool {
        (self.line, self.column) == (place.line(), place.column())
            && self.operation == operation
            && self.file == place.file()
    }
}

static MUTANT: LazyLock<Option<Mutant>> =
    LazyLock::new(|| std::env::var("SLOTLINE_MUTANT").ok().map(|text| Mutant::parse(&text)));

/// The operations that the model has executed so far.
struct Sites {
    file: File,
    known: HashSet<String>,
}

static SITES: LazyLock<Option<Mutex<Sites>>> = LazyLock::new(|| {
    let path = std::env::var_os("SLOTLINE_SITES")?;
    let file = File::create(path).expect("SLOTLINE_SITES must be a file that can be written");
    Some(Mutex::new(Sites { file, known: HashSet::new() }))
});

fn note(operation: &str, order: Option<Ordering>, place: &Location<'_>) {
    if let Some(sites) = &*SITES {
        let order = order.map_or_else(String::new, |order| format!("{order:?}"));
        let site = format!("{place}|{operation}|{order}");
        let mut sites = sites.lock().expect("no thread panics while it holds the lock");
        if !sites.known.contains(&site) {
            writeln!(sites.file, "{site}").expect("SLOTLINE_SITES must be a file that can be written");
            sites.known.insert(site);
        }
    }
}

fn mutant_at(operation: &str, place: &Location<'_>) -> Option<&'static Mutant> {
    MUTANT.as_ref().filter(|mutant| mutant.is_at(operation, place))
}

/// Returns the ordering to use for an operation that asks for `order`.
pub fn weaken(operation: &str, order: Ordering, place: &Location<'_>) -> Ordering {
    note(operation, Some(order), place);
    mutant_at(operation, place).and_then(|mutant| mutant.weaker).unwrap_or(order)
}

/// Returns whether the active mutant leaves out this step of the protocol, one that has no
/// ordering.
pub fn leaves_out(operation: &str, place: &Location<'_>) -> bool {
    note(operation, None, place);
    mutant_at(operation, place).is_some()
}
