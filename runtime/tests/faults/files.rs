//! Tests of files that change while they are mapped.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use slotline::Loader;
use slotline::array::AnyArray;
use slotline::dataset::TensorDataset;
use slotline::loader::BatchOf;
use slotline::source::{map_npy, read_npy};

use crate::child::{self, Process};
use crate::system::limit;

const PAGE: usize = 4096;
const PAGES: usize = 8;
const ROW: usize = 512;

/// Returns the contents of a file of [`PAGES`] pages. The header takes a whole page (as the format
/// allows), so that no row crosses a page boundary.
fn bytes(value: impl Fn(usize) -> u8) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}, {ROW}), }}", (PAGES - 1) * PAGE / ROW);
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((PAGE as u16 - 10).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.resize(PAGE - 1, b' ');
    bytes.push(b'\n');
    bytes.extend((0..(PAGES - 1) * PAGE).map(|i| value(i / ROW)));
    bytes
}

fn write(path: &Path, value: impl Fn(usize) -> u8) {
    fs::write(path, bytes(value)).unwrap();
}

fn row(index: usize) -> u8 {
    index as u8 + 1
}

fn other(index: usize) -> u8 {
    !row(index)
}

type Rows = Loader<BatchOf<TensorDataset<Vec<AnyArray>>>>;

fn load(path: &Path, workers: usize) -> Rows {
    // SAFETY: this breaks the contract on purpose: the tests change the file while it is mapped, to
    // check the documented outcomes. The rows are plain bytes that are only copied and compared.
    let array = unsafe { map_npy(path).unwrap() };
    assert!(array.is_mapped());
    Loader::builder(TensorDataset::new(vec![array]).unwrap()).batch_size(4).num_workers(workers).build().unwrap()
}

/// Makes a pass over the rows, and asserts `right(index, at, byte)` for each byte, which is at
/// position `at` of row `index`.
fn check_rows(loader: &mut Rows, right: impl Fn(usize, usize, u8) -> bool) {
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let rows = batch.columns().get(0).unwrap();
        let rows = rows.typed::<u8>().unwrap();
        for (bytes, &index) in rows.as_slice().chunks(ROW).zip(batch.indices()) {
            let wrong = bytes.iter().enumerate().find(|&(at, &byte)| !right(index as usize, at, byte));
            assert_eq!(wrong, None, "row {index}");
        }
    }
}

/// Truncates the file between two passes. Arguments: the number of workers and the new length in
/// bytes.
pub(crate) fn cut(words: &[&str]) {
    let [workers, left] = [0, 1].map(|i: usize| words[i].parse::<usize>().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    write(&path, row);
    let mut loader = load(&path, workers);
    check_rows(&mut loader, |index, _, byte| byte == row(index));
    File::options().write(true).open(&path).unwrap().set_len(left as u64).unwrap();
    // The process is expected to be ended by a signal, and should not write a core dump.
    limit(libc::RLIMIT_CORE, 0);
    // The process may be killed below, and would then not remove the folder.
    drop(folder);
    println!("cut");
    check_rows(&mut loader, |index, at, byte| {
        let place = PAGE + index * ROW + at;
        assert!(place < left.next_multiple_of(PAGE), "byte {place} is beyond the file and was read");
        byte == if place < left { row(index) } else { 0 }
    });
}

/// Changes the file in the middle of a pass. Arguments: how it changes, and the number of workers.
/// Each row must have its old bytes or, only if the file is overwritten in place, its new ones.
pub(crate) fn changed(words: &[&str]) {
    let workers = words[1].parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    write(&path, row);
    let mut loader = load(&path, workers);
    let mut pass = loader.epoch().unwrap();
    assert!(pass.next().unwrap().is_ok());
    match words[0] {
        "removed" => fs::remove_file(&path).unwrap(),
        "replaced" => {
            let next = folder.path().join("next.npy");
            write(&next, other);
            fs::rename(next, &path).unwrap();
        }
        "overwritten" => {
            // Write to the file like another process, without truncating it first.
            let mut file = File::options().write(true).open(&path).unwrap();
            file.write_all(&bytes(other)).unwrap();
        }
        _ => panic!("{words:?}"),
    }
    drop(pass);
    let overwritten = words[0] == "overwritten";
    check_rows(&mut loader, |index, _, byte| byte == if overwritten { other(index) } else { row(index) });
}

#[test]
fn reading_a_truncated_mapped_file_ends_with_sigbus() {
    for workers in [0, 2] {
        // Truncate at the end of a page, or within a page, the rest of which then reads as zeros.
        for left in [PAGE, 3 * PAGE, 3 * PAGE + 1000, 7 * PAGE] {
            let ended = Process::start(format!("files::cut {workers} {left}")).end();
            assert_eq!(ended.signal(), Some(libc::SIGBUS), "{workers} workers, {left} bytes: {}", ended.text);
            assert!(ended.text.contains("cut") && !ended.text.contains("panicked"), "{}", ended.text);
        }
        child::run(format!("files::cut {workers} {}", PAGES * PAGE - 1000));
    }
}

#[test]
fn only_overwriting_a_mapped_file_changes_its_rows() {
    for change in ["removed", "replaced", "overwritten"] {
        for workers in [0, 2] {
            child::run(format!("files::changed {change} {workers}"));
        }
    }
}

#[test]
fn a_file_truncated_while_read_is_whole_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let [mut whole, mut errors] = [0, 0];
    for round in 0..400 {
        write(&path, row);
        let cutter = File::options().write(true).open(&path).unwrap();
        let cutting = std::thread::spawn(move || {
            (0..round * 20).for_each(|_| std::hint::spin_loop());
            cutter.set_len(PAGE as u64 + 10).unwrap();
        });
        match read_npy(&path) {
            Ok(array) => {
                assert!(array.bytes().chunks(ROW).enumerate().all(|(i, bytes)| bytes.iter().all(|&b| b == row(i))));
                whole += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("rows.npy"), "{error}");
                errors += 1;
            }
        }
        cutting.join().unwrap();
    }
    println!("{whole} files were read whole, {errors} were errors");
}
