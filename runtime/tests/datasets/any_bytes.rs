//! Parsers given arbitrary bytes: they return an array or an error and never panic, and all rows of an array can be read.

use crate::files::{idx, npy, npy_header};
use proptest::collection::vec;
use proptest::prelude::*;
use slotline::array::AnyArray;
use slotline::dtype::DType;
use slotline::source::{FormatError, NpyHeader, parse_idx, parse_npy};

/// Reads every row that has bytes, and checks the invariants of arrays.
fn used(array: Result<AnyArray, FormatError>) {
    match array {
        Ok(array) => {
            assert_eq!(array.bytes().as_ptr().align_offset(array.dtype().align()), 0);
            if array.row_size() > 0 {
                let sum: usize = (0..array.len()).map(|i| array.row_bytes(i).len()).sum();
                assert_eq!(sum, array.bytes().len());
            }
            array.prefetch_row(0);
        }
        Err(error) => assert!(error.to_string().len() < 500, "{error}"),
    }
}

fn both(bytes: &[u8]) {
    used(parse_idx(bytes));
    used(parse_npy(bytes));
}

/// Changes some bytes, then truncates or extends them.
fn mutated(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)], len: prop::sample::Index) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    let most = bytes.len() + 16;
    bytes.resize(len.index(2 * most).min(most).max(1), 0);
    bytes
}

const DESCRS: &[&str] = &["|u1", "<f4", ">i8", "|b1", "<U3", "|O", "<f2", "<c8", ">c16", "<c32", "<m8[s]"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..200)) {
        both(&bytes);
    }

    #[test]
    fn random_idx_headers(code in 7_u8..16, dims in vec(prop_oneof![0_u32..5, any::<u32>()], 0..11),
                          data in vec(any::<u8>(), 0..100)) {
        both(&idx(code, &dims, &data));
    }

    #[test]
    fn mutated_idx_files(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
                         len in any::<prop::sample::Index>()) {
        both(&mutated(idx(0x0c, &[2, 3], &[0; 24]), &changes, len));
    }

    #[test]
    fn random_npy_shapes(descr in prop::sample::select(DESCRS),
                         dims in vec(prop_oneof![0_u64..5, any::<u64>()], 0..11),
                         data in vec(any::<u8>(), 0..100)) {
        let dims: String = dims.iter().map(|dim| format!("{dim}, ")).collect();
        both(&npy(descr, &format!("({dims})"), &data));
    }

    #[test]
    fn mutated_npy_files(descr in prop::sample::select(DESCRS),
                         changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                         len in any::<prop::sample::Index>()) {
        both(&mutated(npy(descr, "(2, 3)", &[0; 24]), &changes, len));
    }

    #[test]
    fn npy_headers_of_any_style_are_read(order in Just([0, 1, 2]).prop_shuffle(), dims in vec(any::<u64>(), 0..5),
                                         spaces in vec("[ \n]{0,2}", 9), list in any::<bool>(), long in any::<bool>(),
                                         quote in prop::sample::select(&["'", "\""][..]), version in 1_u8..=3) {
        let space = |i: usize| &spaces[i];
        let dim = |dim: &u64| format!("{}{dim}{}{},", space(0), if long { "L" } else { "" }, space(1));
        let dims_text: String = dims.iter().map(dim).collect();
        let (open, close) = if list { ("[", "]") } else { ("(", ")") };
        let items = [
            format!("{quote}shape{quote}{}:{}{open}{dims_text}{}{close}", space(2), space(3), space(4)),
            format!("{quote}descr{quote}:{}{quote}>i8{quote}", space(5)),
            format!("{quote}fortran_order{quote}{}:False", space(6)),
        ];
        let text = order.map(|i| items[i].clone()).join(&format!("{},", space(7)));
        let header = NpyHeader::parse(&npy_header(version, &format!("{}{{{text}}}", space(8)), &[])).unwrap();
        prop_assert_eq!((header.dims, header.big_endian, header.dtype), (dims, true, DType::I64));
    }

    /// Texts of the characters that have a meaning in a header.
    #[test]
    fn random_npy_texts(text in r#"[\[\](){}',:"0-9TrueFals_ LxbN\\+.-]{0,60}"#) {
        both(&npy_header(1, &text, &[]));
        both(&npy_header(2, &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {text}}}"), &[0; 4]));
        both(&npy_header(3, &format!("{{'shape': (1,), 'fortran_order': False, 'descr': {text}}}"), &[0; 4]));
    }
}
