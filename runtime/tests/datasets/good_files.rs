//! Tests of valid files of every type, which are written and read back.

use std::path::Path;

use crate::files::{Folder, idx, npy, npy_header, npy_unpadded};
use slotline::Loader;
use slotline::array::AnyArray;
use slotline::dataset::TensorDataset;
use slotline::dtype::{DType, Element, Kind};
use slotline::source::{Source, SourceError, parse_idx, parse_npy, read_idx, read_npy};

fn map_npy(path: impl AsRef<Path>) -> Result<AnyArray, SourceError> {
    // SAFETY: these tests change no file while it is mapped.
    unsafe { slotline::source::map_npy(path) }
}

#[track_caller]
fn holds<T: Element + PartialEq>(array: &AnyArray, shape: &[usize], values: &[T]) {
    assert_eq!((array.dtype(), array.shape()), (T::DTYPE, shape));
    assert_eq!(array.typed::<T>().unwrap().as_slice(), values);
    assert_eq!(array.bytes().as_ptr().align_offset(T::DTYPE.align()), 0);
}

/// Checks an IDX file of shape [3, 2], and .npy files of the same values in both byte orders.
macro_rules! round_trip {
    ($type:ident, $code:expr, $name:literal, $values:expr) => {{
        let values: [$type; 6] = $values;
        let little: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
        let folder = Folder::new();
        if let Some(code) = $code {
            let bytes = idx(code, &[3, 2], &big);
            holds(&read_idx(folder.write("x", &bytes)).unwrap(), &[3, 2], &values);
            holds(&parse_idx(&bytes).unwrap(), &[3, 2], &values);
        }
        let one = size_of::<$type>() == 1;
        for (order, data) in [("<", &little), (">", &big)] {
            let bytes = npy(&format!("{}{}", if one { "|" } else { order }, $name), "(3, 2)", data);
            let path = folder.write("x.npy", &bytes);
            let mapped = map_npy(&path).unwrap();
            assert_eq!(mapped.is_mapped(), one || (order == "<") == cfg!(target_endian = "little"));
            holds(&mapped, &[3, 2], &values);
            let read = read_npy(&path).unwrap();
            assert!(!read.is_mapped());
            holds(&read, &[3, 2], &values);
            holds(&parse_npy(&bytes).unwrap(), &[3, 2], &values);
            assert_eq!(mapped.row(2).typed::<$type>().unwrap().as_slice(), &values[4..]);
            assert_eq!(mapped.into_typed::<$type>().unwrap().row_slice(1), &values[2..4]);
        }
    }};
}

#[test]
fn every_number_type_round_trips() {
    round_trip!(u8, Some(0x08), "u1", [0, 1, 2, 127, 128, 255]);
    round_trip!(i8, Some(0x09), "i1", [0, 1, -1, 127, -128, 5]);
    round_trip!(i16, Some(0x0b), "i2", [0, 1, -1, i16::MAX, i16::MIN, 258]);
    round_trip!(i32, Some(0x0c), "i4", [0, 1, -1, i32::MAX, i32::MIN, 0x0102_0304]);
    round_trip!(f32, Some(0x0d), "f4", [0.0, 1.5, -1.0, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY]);
    round_trip!(f64, Some(0x0e), "f8", [0.0, 1.5, -1.0, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY]);
    round_trip!(u16, None::<u8>, "u2", [0, 1, 2, 3, 258, u16::MAX]);
    round_trip!(u32, None::<u8>, "u4", [0, 1, 2, 3, 0x0102_0304, u32::MAX]);
    round_trip!(u64, None::<u8>, "u8", [0, 1, 2, 3, 0x0102_0304_0506_0708, u64::MAX]);
    round_trip!(i64, None::<u8>, "i8", [0, 1, -1, i64::MAX, i64::MIN, 0x0102_0304_0506_0708]);
}

#[cfg(feature = "half")]
#[test]
fn f16_files_round_trip_as_half_f16() {
    use half::f16;
    round_trip!(f16, None::<u8>, "f2", [0.0, 1.5, -1.0, 65_504.0, 6e-8, f32::INFINITY].map(f16::from_f32));
}

#[test]
fn f16_files_are_read_with_or_without_half() {
    let bits = [0x0000_u16, 0x3e00, 0xbc00, 0x7bff];
    let folder = Folder::new();
    for (order, bytes) in [("<", bits.map(u16::to_le_bytes)), (">", bits.map(u16::to_be_bytes))] {
        let array = map_npy(folder.write("x.npy", &npy(&format!("{order}f2"), "(2, 2)", &bytes.concat()))).unwrap();
        assert_eq!((array.dtype(), array.shape(), array.dtype().kind()), (DType::F16, &[2, 2][..], Kind::Float));
        assert_eq!(array.is_mapped(), (order == "<") == cfg!(target_endian = "little"));
        assert_eq!(array.row_bytes(1), bits[2..].iter().flat_map(|bits| bits.to_ne_bytes()).collect::<Vec<_>>());
        assert!(array.typed::<u16>().is_none());
        let dataset = TensorDataset::new(vec![array]).unwrap();
        let mut loader = Loader::builder(dataset).batch_size(2).build().unwrap();
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        let column = batch.tensors().get(0).unwrap();
        assert_eq!((column.dtype(), column.bytes()), (DType::F16, &*bits.map(u16::to_ne_bytes).concat()));
    }
}

#[test]
fn complex_files_are_read_with_or_without_num_complex() {
    let parts = [1.5_f64, -0.25, 3.0, f64::MIN_POSITIVE, f64::INFINITY, -7.0, 0.0, 9.0];
    let narrow = parts.map(|part| part as f32);
    let folder = Folder::new();
    let check = |dtype: DType, descr: &str, bytes: &[u8], native: &[u8]| {
        let is_native = descr.starts_with('<') == cfg!(target_endian = "little");
        let bytes = npy(descr, "(2, 2)", bytes);
        let path = folder.write("x.npy", &bytes);
        let mapped = map_npy(&path).unwrap();
        assert_eq!(mapped.is_mapped(), is_native);
        for array in [mapped, read_npy(&path).unwrap(), parse_npy(&bytes).unwrap()] {
            assert_eq!((array.dtype(), array.shape(), array.bytes()), (dtype, &[2, 2][..], native), "{descr}");
            let dataset = TensorDataset::new(vec![array]).unwrap();
            let mut loader = Loader::builder(dataset).batch_size(2).build().unwrap();
            let batch = loader.epoch().unwrap().next().unwrap().unwrap();
            let column = batch.tensors().get(0).unwrap();
            assert_eq!((column.dtype(), column.shape(), column.bytes()), (dtype, &[2, 2][..], native));
            #[cfg(feature = "num-complex")]
            if dtype == DType::Complex64 {
                let row = column.typed::<num_complex::Complex<f32>>().unwrap().row(1);
                assert_eq!(row[[1]], num_complex::Complex::new(0.0, 9.0));
            }
        }
    };
    let (native, wide) = (narrow.map(f32::to_ne_bytes).concat(), parts.map(f64::to_ne_bytes).concat());
    check(DType::Complex64, "<c8", &narrow.map(f32::to_le_bytes).concat(), &native);
    check(DType::Complex64, ">c8", &narrow.map(f32::to_be_bytes).concat(), &native);
    check(DType::Complex128, "<c16", &parts.map(f64::to_le_bytes).concat(), &wide);
    check(DType::Complex128, ">c16", &parts.map(f64::to_be_bytes).concat(), &wide);
}

#[test]
fn bool_files_are_checked_and_copied() {
    let folder = Folder::new();
    let array = map_npy(folder.write("x.npy", &npy("|b1", "(3,)", &[1, 0, 1]))).unwrap();
    assert!(!array.is_mapped());
    holds(&array, &[3], &[true, false, true]);
}

#[test]
fn all_versions_of_npy_are_read() {
    let text = "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }";
    let folder = Folder::new();
    for version in 1..=3 {
        let array = map_npy(folder.write("x.npy", &npy_header(version, text, &7_i32.to_le_bytes()))).unwrap();
        holds(&array, &[1], &[7_i32]);
    }
}

/// The files in `npy_headers` have headers of other programs.
#[test]
fn one_dimension_has_the_same_order_in_fortran() {
    let line = "{'descr': '<i4', 'fortran_order': True, 'shape': (2,), }";
    holds(&parse_npy(&npy_header(1, line, &[7, 0, 0, 0, 8, 0, 0, 0])).unwrap(), &[2], &[7_i32, 8]);
}

#[test]
fn data_that_is_not_aligned_is_copied() {
    let folder = Folder::new();
    for padding in 0..8 {
        let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }}{}\n", " ".repeat(padding));
        let path = folder.write("x.npy", &npy_unpadded(1, &text, &0.5_f64.to_le_bytes()));
        let array = map_npy(path).unwrap();
        assert_eq!(array.is_mapped(), (10 + text.len()) % align_of::<f64>() == 0 && cfg!(target_endian = "little"));
        holds(&array, &[1], &[0.5]);
    }
}

#[test]
fn arrays_can_have_no_rows_or_no_dimensions() {
    let folder = Folder::new();
    let empty = map_npy(folder.write("x.npy", &npy("<f4", "(0, 28, 28)", &[]))).unwrap();
    assert!(empty.is_empty());
    holds::<f32>(&empty, &[0, 28, 28], &[]);
    let hollow = map_npy(folder.write("y.npy", &npy("<f4", "(5, 0)", &[]))).unwrap();
    assert_eq!((hollow.len(), hollow.row_bytes(4)), (5, &[][..]));
    let wide = map_npy(folder.write("w.npy", &npy("<f8", "(0, 4611686018427387904)", &[]))).unwrap();
    assert_eq!(wide.len(), 0);
    let one = map_npy(folder.write("z.npy", &npy("<f4", "()", &1.0_f32.to_le_bytes()))).unwrap();
    assert_eq!((one.len(), one.row(0).typed::<f32>().unwrap().as_slice()), (1, &[1.0][..]));
    holds::<u8>(&read_idx(folder.write("x", &idx(8, &[0, 28], &[]))).unwrap(), &[0, 28], &[]);
    holds(&read_idx(folder.write("y", &idx(8, &[], &[9]))).unwrap(), &[], &[9_u8]);
}

#[test]
fn a_loaded_array_does_not_change_with_its_file() {
    let folder = Folder::new();
    let path = folder.write("x.npy", &npy("|u1", "(4, 1)", &[1, 2, 3, 4]));
    let source: Source = format!("npy:{}", path.display()).parse().unwrap();
    let loaded = source.load().unwrap();
    folder.write("x.npy", &npy("|u1", "(4, 1)", &[9; 4]));
    let [array] = &loaded.rows()[..] else { panic!("one file") };
    assert!(!array.is_mapped());
    holds(array, &[4, 1], &[1_u8, 2, 3, 4]);
    // SAFETY: no code changes the file from here on.
    let mapped = unsafe { source.map() }.unwrap();
    assert!(mapped.rows()[0].is_mapped());
    holds(&mapped.rows()[0], &[4, 1], &[9_u8; 4]);
}

#[test]
fn a_mapped_array_survives_a_rename_and_crosses_threads() {
    let folder = Folder::new();
    let path = folder.write("x.npy", &npy("<i4", "(2,)", &[1, 0, 0, 0, 2, 0, 0, 0]));
    let array = map_npy(&path).unwrap();
    // The file is replaced, not written to, so the mapping keeps the old contents.
    std::fs::rename(folder.write("new.npy", &npy("<i4", "(1,)", &[9, 0, 0, 0])), &path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| holds(&array, &[2], &[1_i32, 2]));
        }
    });
    std::thread::spawn(move || holds(&array, &[2], &[1_i32, 2])).join().unwrap();
}

#[test]
fn into_typed_with_another_type_returns_the_array() {
    let array = parse_idx(&idx(0x0c, &[2], &[0, 0, 0, 1, 0, 0, 0, 2])).unwrap();
    assert!(array.typed::<u32>().is_none() && array.typed::<f32>().is_none());
    let array = array.into_typed::<u32>().unwrap_err();
    assert_eq!(array.dtype(), DType::I32);
    let before = array.bytes().as_ptr();
    let typed = array.into_typed::<i32>().unwrap();
    assert_eq!(typed.as_slice(), [1, 2]);
    assert_eq!(typed.as_slice().as_ptr().cast(), before, "the memory is moved, not copied");
}

#[test]
fn the_bundled_images_can_be_read_as_a_file() {
    let array = read_idx(concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits/images.idx3-ubyte")).unwrap();
    assert_eq!((array.len(), array.row_size()), (1797, 64));
    for i in [0, 1796, 1797, usize::MAX] {
        array.prefetch_row(i);
    }
}

#[test]
#[should_panic(expected = "row 1797 is out of range: there are 1797 rows")]
fn a_row_out_of_range_panics() {
    AnyArray::from(slotline::source::digits().0).row_bytes(1797);
}
