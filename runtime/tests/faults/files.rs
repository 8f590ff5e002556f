//! Files that change while they are mapped.

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

/// A file of so many pages, of which the header takes a whole one (as the format allows), so that rows lie in pages.
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
    // SAFETY: it is changed, with the outcome that is documented: what is read of it then goes to no code that minds.
    let array = unsafe { map_npy(path).unwrap() };
    assert!(array.is_mapped());
    Loader::builder(TensorDataset::new(vec![array]).unwrap()).batch_size(4).num_workers(workers).build().unwrap()
}

/// A pass over the rows, whose bytes must be what `right` says of the row and the place.
fn look(loader: &mut Rows, right: impl Fn(usize, usize, u8) -> bool) {
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

/// Cuts the file short, to so many bytes, between two passes.
pub(crate) fn cut(words: &[&str]) {
    let [workers, left] = [0, 1].map(|i: usize| words[i].parse::<usize>().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    write(&path, row);
    let mut loader = load(&path, workers);
    look(&mut loader, |index, _, byte| byte == row(index));
    File::options().write(true).open(&path).unwrap().set_len(left as u64).unwrap();
    // No need to keep what is left of the process.
    limit(libc::RLIMIT_CORE, 0);
    // The process may end in what follows, and the folder with it.
    drop(folder);
    println!("cut");
    look(&mut loader, |index, at, byte| {
        let place = PAGE + index * ROW + at;
        assert!(place < left.next_multiple_of(PAGE), "there is nothing to be read at {place}");
        byte == if place < left { row(index) } else { 0 }
    });
}

/// Does something to the file in the middle of a pass that is not to be noticed, or not to be more than what was done.
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
            // As another process would that does not cut it first.
            let mut file = File::options().write(true).open(&path).unwrap();
            file.write_all(&bytes(other)).unwrap();
        }
        _ => panic!("{words:?}"),
    }
    drop(pass);
    let overwritten = words[0] == "overwritten";
    look(&mut loader, |index, _, byte| byte == if overwritten { other(index) } else { row(index) });
}

#[test]
fn a_mapped_file_that_is_cut_short_ends_the_process_and_gives_no_wrong_row_before() {
    for workers in [0, 2] {
        // At a page's end, and in a page, of which the rest then reads as zeros.
        for left in [PAGE, 3 * PAGE, 3 * PAGE + 1000, 7 * PAGE] {
            let ended = Process::start(format!("files::cut {workers} {left}")).end();
            assert_eq!(ended.signal(), Some(libc::SIGBUS), "{workers} workers, {left} bytes: {}", ended.text);
            assert!(ended.text.contains("cut") && !ended.text.contains("panicked"), "{}", ended.text);
        }
        child::run(format!("files::cut {workers} {}", PAGES * PAGE - 1000));
    }
}

#[test]
fn a_mapped_file_that_is_removed_or_replaced_stays_what_it_was_and_one_that_is_written_to_does_not() {
    for change in ["removed", "replaced", "overwritten"] {
        for workers in [0, 2] {
            child::run(format!("files::changed {change} {workers}"));
        }
    }
}

#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_an_error_or_was_read_before() {
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
    println!("{whole} were read before, {errors} were errors");
}
