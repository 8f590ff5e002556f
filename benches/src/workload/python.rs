//! the loaders of Python, as programs of `peers/python/pipelines.py`.

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
        Section::PythonEmptyItems => (&[("", "python-empty-items", &[0, 2])], Unit::MicrosPerBatch, (3_000, 1)),
        Section::PythonSmallImages => (&[("", "python-small-images", &[0, 2])], Unit::MicrosPerBatch, (60_000, 64)),
        Section::PythonIndexedImages => (
            &[
                ("tensors", "python-indexed-images-tensor", &[0, 2]),
                ("NumPy arrays", "python-indexed-images-numpy", &[0, 2]),
            ],
            Unit::MicrosPerBatch,
            (60_000, 64),
        ),
        Section::PythonLargeImages => (
            &[("bytes", "python-large-images-bytes", &[0, 2]), ("floats", "python-large-images-floats", &[0, 2])],
            Unit::MicrosPerBatch,
            (2_000, 32),
        ),
        Section::PythonJpegs => (
            &[("Pillow", "python-jpegs-pillow", &[0, 2, 8]), ("torchvision", "python-jpegs-torchvision", &[0, 2, 8])],
            Unit::MillisPerBatch,
            (512, 32),
        ),
        Section::PythonFirstBatch => (
            &[("TensorDataset", "python-first-batch-tensors", &[2]), ("Python", "python-first-batch-python", &[2])],
            Unit::MillisPerPass,
            (32, 32),
        ),
        Section::PythonSlowSamples => (&[("", "python-slow-samples", &[2])], Unit::MillisPerPass, (200, 8)),
        _ => (&[], Unit::MicrosPerBatch, (1, 1)),
    }
}

/// Runs the heats of a section.
pub fn run(section: Section, setup: &Setup, recorder: &mut Recorder) {
    let (cases, unit, (samples, batch)) = cases(section);
    for &(case, name, workers) in cases {
        for &workers in workers {
            let expected = move |_| (samples as f64 / batch as f64, Some(samples));
            let entries = external::entries(setup, name, workers, expected);
            recorder.heat(Heat { case: case.into(), workers, unit, entries });
            for program in setup.programs.iter().filter(|program| program.has(name)) {
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
        Ok(peak) => {
            let bytes = Unit::Bytes.value(peak.bytes as f64, 0.0);
            let time = Time::new(section, &case, peak.peer, program.kind, Unit::Bytes, vec![bytes]);
            Line::Time(Time { workers: workers_of, version: Some(peak.version), ..time })
        }
        Err(why) => {
            let (peer, why) = (program.peer.clone(), format!("{why:#}"));
            Line::Absent(Absent { section, case, workers: workers_of, peer, why })
        }
    }
}
