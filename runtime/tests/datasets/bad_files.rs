//! Tests of invalid files. Each must be an error that names the file, what is wrong, and what to
//! do.

use std::path::Path;
use std::time::Duration;

use crate::files::{Folder, idx, npy, npy_header};
use crate::support::chain;
use slotline::array::AnyArray;
use slotline::source::{FormatErrorKind, SourceError, read_idx, read_npy};

type Reader = fn(&Path) -> Result<AnyArray, SourceError>;

const IDX: Reader = |path| read_idx(path);
// SAFETY: no process changes the file while it is mapped.
const NPY: Reader = |path| unsafe { slotline::source::map_npy(path) };

/// Reads a file that consists of `bytes`, and checks that the error names the path and contains all
/// of `words`.
#[track_caller]
fn refused(read: Reader, bytes: &[u8], kind: FormatErrorKind, words: &[&str]) {
    let folder = Folder::new();
    let path = folder.write("data.bin", bytes);
    let error = read(&path).expect_err("the file is bad");
    let message = error.to_string();
    assert_eq!(error.format_kind(), Some(kind), "{message}");
    for word in [path.to_str().unwrap(), "expected ", "found "].iter().chain(words) {
        assert!(message.contains(word), "{word:?} is missing in: {message}");
    }
    assert!(!message.contains('\n') && message.len() < 500, "too long: {message}");
}

#[test]
fn a_missing_file_is_named_and_keeps_its_source() {
    let folder = Folder::new();
    for read in [IDX, NPY] {
        let path = folder.path("nothing-here");
        let error = read(&path).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("check the path"), "{message}");
        let SourceError::Io { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    }
}

#[test]
fn a_directory_is_an_error() {
    let folder = Folder::new();
    for read in [IDX, NPY] {
        let message = chain(&read(&folder.path("")).unwrap_err());
        assert!(message.contains("is a directory") && message.contains("pass the path of a file in it"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn a_device_is_an_error() {
    let message = read_idx("/dev/zero").unwrap_err().to_string();
    assert!(message.contains("/dev/zero") && message.contains("isn't a regular file"), "{message}");
}

#[test]
fn the_error_for_an_empty_file_says_that_it_is_empty() {
    refused(IDX, b"", FormatErrorKind::Magic, &["an IDX file", "an empty file"]);
    refused(NPY, b"", FormatErrorKind::Magic, &["a NumPy .npy file", "an empty file"]);
}

#[test]
fn other_kinds_of_files_are_recognized() {
    for read in [IDX, NPY] {
        refused(read, b"\x1f\x8b\x08\0\0\0\0\0", FormatErrorKind::Magic, &["a gzip file", "unpack it first"]);
        refused(read, b"PK\x03\x04\x14\0\0\0", FormatErrorKind::Magic, &["an .npz or other zip archive", "unpack"]);
        refused(read, b"<!DOCTYPE html>", FormatErrorKind::Magic, &["a web page", "download the file again"]);
        refused(read, b"\x01\x02\x03", FormatErrorKind::Magic, &["starts with the bytes [01, 02, 03]"]);
    }
    refused(
        IDX,
        &npy("<f4", "(1,)", &[0; 4]),
        FormatErrorKind::Magic,
        &["a NumPy .npy file", "read it as a .npy file"],
    );
    refused(NPY, &idx(8, &[1], &[0]), FormatErrorKind::Magic, &["an IDX file", "read it as an IDX file"]);
}

#[test]
fn the_error_for_a_truncated_file_names_both_sizes() {
    refused(IDX, &idx(8, &[2, 3], &[0; 5]), FormatErrorKind::Truncated, &["18 bytes for u8 [2, 3]", "only 17"]);
    refused(IDX, &[0, 0, 8, 3, 0, 0], FormatErrorKind::Truncated, &["16 bytes for 3 dimensions", "only 6"]);
    let whole = npy("<f4", "(2, 3)", &[0; 24]);
    let len = whole.len();
    let words = [&*format!("{len} bytes for f32 [2, 3]"), &*format!("only {}", len - 1)];
    refused(NPY, &whole[..len - 1], FormatErrorKind::Truncated, &words);
    refused(NPY, &whole[..60], FormatErrorKind::Truncated, &["header", "only 60"]);
    refused(NPY, &whole[..7], FormatErrorKind::Truncated, &["header", "only 7"]);
    refused(NPY, &whole[..9], FormatErrorKind::Truncated, &["header", "only 9"]);
}

#[test]
fn bytes_after_the_data_are_an_error() {
    refused(IDX, &idx(8, &[2, 3], &[0; 7]), FormatErrorKind::TooLong, &["18 bytes for u8 [2, 3]", "found 19"]);
    refused(NPY, &npy("<f4", "(2, 3)", &[0; 25]), FormatErrorKind::TooLong, &["f32 [2, 3]", "doesn't belong"]);
    refused(IDX, &idx(8, &[0, 3], &[0]), FormatErrorKind::TooLong, &["u8 [0, 3]"]);
}

#[test]
fn shapes_too_large_for_memory_are_errors() {
    let huge = u32::MAX;
    refused(IDX, &idx(14, &[huge; 8], &[]), FormatErrorKind::Shape, &["4294967295", "fits in memory"]);
    refused(IDX, &idx(14, &[huge; 9], &[]), FormatErrorKind::Shape, &["at most 8 dimensions", "found 9"]);
    refused(IDX, &idx(14, &[huge, huge, huge, 0], &[]), FormatErrorKind::Shape, &["fits in memory"]);
    refused(IDX, &idx(8, &[huge], &[]), FormatErrorKind::Truncated, &["4294967303 bytes", "only 8"]);
    for shape in [
        "(18446744073709551615,)",
        "(18446744073709551616,)",
        "(4294967296, 4294967296, 4294967296)",
        "(0, 4294967296, 4294967296)",
        "(9223372036854775807,)",
        "(2305843009213693952,)",
    ] {
        refused(NPY, &npy("<f8", shape, &[]), FormatErrorKind::Shape, &["fits in memory"]);
    }
    refused(NPY, &npy("<f8", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", &[0; 8]), FormatErrorKind::Shape, &["at most 8", "9"]);
    refused(NPY, &npy("<f8", "(1000000000000,)", &[0; 8]), FormatErrorKind::Truncated, &["8000000000128 bytes"]);
}

#[test]
fn an_unknown_idx_type_is_named() {
    refused(IDX, &idx(0x0a, &[1], &[0]), FormatErrorKind::Header, &["an IDX type code", "0a"]);
}

#[test]
fn fortran_order_is_an_error_with_a_workaround() {
    let bytes = npy_header(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", &[0; 8]);
    refused(NPY, &bytes, FormatErrorKind::Unsupported, &["Fortran order", "np.ascontiguousarray"]);
}

#[test]
fn unsupported_dtypes_are_errors_with_a_workaround() {
    for (descr, words) in [
        ("'<f16'", ["extended float", "astype('float64')"]),
        ("'<c32'", ["extended complex number", "astype('complex128')"]),
        ("'<M8[ns]'", ["dates or times", "view('int64')"]),
        ("'<m8[s]'", ["dates or times", "view('int64')"]),
        ("'|S10'", ["text", "numbers"]),
        ("'<U999'", ["text", "numbers"]),
        ("'|O'", ["Python objects", "numeric dtype"]),
        ("'|V4'", ["raw data", "view('uint8')"]),
        ("[('x', '<f4'), ('y', '<i8', (2, 3))]", ["structured", "each field"]),
    ] {
        let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}");
        refused(NPY, &npy_header(1, &text, &[0; 8]), FormatErrorKind::Unsupported, &words);
    }
}

#[test]
fn broken_headers_are_errors() {
    let long = format!("{{'descr': '{}'}}", "x".repeat(9_500));
    for (text, words) in [
        ("", ""),
        ("not a dictionary", "`not`"),
        ("{}", "descr, fortran_order and shape"),
        ("{'descr': '<f4'}", "one without some of them"),
        ("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "True or False for fortran_order, found `0`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "a list or tuple for shape, found `1`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "`-1`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", "`1.5`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (3LL,)}", "`3LL`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (0xff,)}", "`0xff`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': ('a',)}", "whole numbers for shape, found `'a'`"),
        ("{'descr': '<q4', 'fortran_order': False, 'shape': (1,)}", "type string"),
        ("{'descr': '<é", "an unterminated one"),
        ("{'descr': '\\'', 'fortran_order': False", "backslash"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': ((((1,),),),)}", "whole numbers for shape, found `(`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2]}", "expected `)`, found `]`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "whole numbers for shape, found `,`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} 2", "nothing after the dictionary, found `2`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "expected `}`, found the end"),
        ("{'descr': '<f4', 'order': 'C', 'fortran_order': False, 'shape': (1,)}", "the key `order`"),
        ("{{'a': 1}: 2}", "a text in quotes, found `{`"),
        (&long, "a type string"),
    ] {
        refused(NPY, &npy_header(1, text, &[]), FormatErrorKind::Header, &[words, "np.save"]);
    }
}

#[test]
fn long_headers_and_unknown_versions_are_errors() {
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}}{}", " ".repeat(20_000));
    refused(NPY, &npy_header(2, &text, &[0; 4]), FormatErrorKind::Header, &["at most 10000 bytes of header"]);
    refused(NPY, b"\x93NUMPY\x02\0\xff\xff\xff\xff{}", FormatErrorKind::Header, &["4294967295"]);
    refused(NPY, b"\x93NUMPY\x04\0\x02\0{}", FormatErrorKind::Header, &["1.0, 2.0 or 3.0", "4.0"]);
}

/// Returns the CPU time that this thread has used. Other programs on the machine do not affect it.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes to `time`, which outlives it.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn the_slowest_header_is_parsed_within_5_seconds() {
    for open in ["{[([", "((((", "[[[[", "{(((", "{"] {
        for item in ["1,", "'a',"] {
            let text = format!("{open}{}", item.repeat((9_900 - open.len()) / item.len()));
            let start = cpu_time();
            assert!(slotline::source::parse_npy(&npy_header(1, &text, &[])).is_err());
            let took = cpu_time() - start;
            assert!(took.as_secs() < 5, "{took:?} for {open}{item}…");
        }
    }
}

#[test]
fn a_bool_must_be_0_or_1() {
    let words = ["0 or 1", "2 as element 1", "uint8"];
    refused(NPY, &npy("|b1", "(3,)", &[1, 2, 0]), FormatErrorKind::Value, &words);
    refused(|path| read_npy(path), &npy("|b1", "(3,)", &[1, 2, 0]), FormatErrorKind::Value, &words);
}
