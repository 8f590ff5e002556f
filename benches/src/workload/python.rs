//! P1 to P7: the loaders of Python, as programs of `peers/python/pipelines.py`.

use std::path::Path;

use super::Setup;
use crate::peer::external::{self, Program};
use crate::record::{Absent, Kind, Line, Section, Time, Unit};
use crate::rounds::{Heat, Recorder};

/// A variant of a section: its name, the workload's name in the program, and the numbers of workers.
type Case = (&'static str, &'static str, &'static [usize]);

/// Returns the variants of a section, the unit of its times, and the samples of a pass and of a batch.
fn cases(section: Section) -> (&'static [Case], Unit, (u64, u64)) {
    match section {
        Section::P1 => (&[("", "p1", &[0, 2])], Unit::MicrosPerBatch, (3_000, 1)),
        Section::P2 => (&[("", "p2", &[0, 2])], Unit::MicrosPerBatch, (60_000, 64)),
        Section::P2p => (
            &[("tensors", "p2p-tensor", &[0, 2]), ("NumPy arrays", "p2p-numpy", &[0, 2])],
            Unit::MicrosPerBatch,
            (60_000, 64),
        ),
        Section::P3 => {
            (&[("bytes", "p3-bytes", &[0, 2]), ("floats", "p3-floats", &[0, 2])], Unit::MicrosPerBatch, (2_000, 32))
        }
        Section::P5 => (
            &[("Pillow", "p5-pillow", &[0, 2, 8]), ("torchvision", "p5-torchvision", &[0, 2, 8])],
            Unit::MillisPerBatch,
            (512, 32),
        ),
        Section::P6 => {
            (&[("TensorDataset", "p6-tensors", &[2]), ("Python", "p6-python", &[2])], Unit::MillisPerPass, (32, 32))
        }
        Section::P7 => (&[("", "p7", &[2])], Unit::MillisPerPass, (200, 8)),
        _ => (&[], Unit::MicrosPerBatch, (1, 1)),
    }
}

/// Runs the heats of a section.
pub fn run(section: Section, setup: &Setup, recorder: &mut Recorder) {
    let (cases, unit, (samples, batch)) = cases(section);
    for &(case, name, workers) in cases {
        for &workers in workers {
            let expected = move |_| (samples as f64 / batch as f64, Some(samples));
            let entries = external::entries_of(&setup.python, &setup.data, name, workers, expected);
            recorder.heat(Heat { case: case.into(), workers, unit, entries });
            for program in setup.python.iter().filter(|program| program.has(name)) {
                // Calls without a loader keep no batch.
                if program.kind != Kind::Limit {
                    recorder.push(memory(section, case, name, workers, &setup.data, program));
                }
            }
        }
    }
}

/// Measures the memory of a program.
pub(super) fn memory(section: Section, case: &str, name: &str, workers: usize, data: &Path, program: &Program) -> Line {
    let (case, workers_of) = (case.to_owned(), Some(workers));
    match external::memory(program, data, name, workers) {
        Ok(peak) => Line::Time(Time {
            section,
            case,
            workers: workers_of,
            size: None,
            ranks: None,
            peer: peak.peer,
            version: Some(peak.version),
            kind: program.kind,
            unit: Unit::Bytes,
            values: vec![Unit::Bytes.value(peak.bytes as f64, 0.0)],
        }),
        Err(why) => {
            let (peer, why) = (program.peer.clone(), format!("{why:#}"));
            Line::Absent(Absent { section, case, workers: workers_of, peer, why })
        }
    }
}
