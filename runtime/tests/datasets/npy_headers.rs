//! Tests of headers of `.npy` files as other programs may write them.

use crate::files::npy_header;
use proptest::collection::vec;
use proptest::prelude::*;
use slotline::dtype::DType;
use slotline::source::NpyHeader;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

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
}
