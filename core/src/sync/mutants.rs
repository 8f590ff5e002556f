//! Mutants of the rings, for models that must notice them: one operation with a weaker ordering, or left out.
//!
//! The harness (`tests/models/mutants.rs`) runs a model in a process of its own, whose environment says what is wanted:
//!
//! - `SLOTLINE_MUTANT="FILE:LINE:COLUMN|OPERATION|WEAKER"`: that operation is done with the ordering `WEAKER`
//!   (`Relaxed`, `Acquire`, `Release`, `AcqRel`), or, if that is `nothing`, left out.
//! - `SLOTLINE_SITES=FILE`: each operation that the model comes by is written to that file, with its ordering.

use core::panic::Location;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex};

use super::watched::Ordering;

/// The mutant in force.
struct Mutant {
    file: String,
    line: u32,
    column: u32,
    operation: String,
    /// `None`: left out.
    weaker: Option<Ordering>,
}

impl Mutant {
    /// Panics if there is no sense in `text`: a check by a mutant that isn't there would be worth nothing.
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
        parse().unwrap_or_else(|| panic!("SLOTLINE_MUTANT is no mutant: {text}"))
    }

    fn is_at(&self, operation: &str, place: &Location<'_>) -> bool {
        (self.line, self.column) == (place.line(), place.column())
            && self.operation == operation
            && self.file == place.file()
    }
}

static MUTANT: LazyLock<Option<Mutant>> =
    LazyLock::new(|| std::env::var("SLOTLINE_MUTANT").ok().map(|text| Mutant::parse(&text)));

/// The sites that were come by.
struct Sites {
    file: File,
    known: HashSet<String>,
}

static SITES: LazyLock<Option<Mutex<Sites>>> = LazyLock::new(|| {
    let path = std::env::var_os("SLOTLINE_SITES")?;
    let file = File::create(path).expect("SLOTLINE_SITES is a file that can be written");
    Some(Mutex::new(Sites { file, known: HashSet::new() }))
});

fn note(operation: &str, order: Option<Ordering>, place: &Location<'_>) {
    if let Some(sites) = &*SITES {
        let order = order.map_or_else(String::new, |order| format!("{order:?}"));
        let site = format!("{place}|{operation}|{order}");
        let mut sites = sites.lock().expect("nobody panics with the sites");
        if !sites.known.contains(&site) {
            writeln!(sites.file, "{site}").expect("SLOTLINE_SITES is a file that can be written");
            sites.known.insert(site);
        }
    }
}

fn mutant_at(operation: &str, place: &Location<'_>) -> Option<&'static Mutant> {
    MUTANT.as_ref().filter(|mutant| mutant.is_at(operation, place))
}

/// The ordering to use for an operation that asks for `order`.
pub fn weaken(operation: &str, order: Ordering, place: &Location<'_>) -> Ordering {
    note(operation, Some(order), place);
    mutant_at(operation, place).and_then(|mutant| mutant.weaker).unwrap_or(order)
}

/// Whether a step of the protocol, which has no ordering of its own, is to be left out.
pub fn leaves_out(operation: &str, place: &Location<'_>) -> bool {
    note(operation, None, place);
    mutant_at(operation, place).is_some()
}
