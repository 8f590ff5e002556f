//! Targets for file formats: any bytes result in an error or in the array that they describe.

use slotline::array::AnyArray;
use slotline::dtype::{DType, Kind};
use slotline::shape::MAX_DIMS;
use slotline::source::{parse_idx, parse_npy};

use crate::choices::Choices;

/// Reads `data` as an IDX file, and compares the result with a second, simple parser of the format.
pub fn idx(data: &[u8]) {
    let parsed = parse_idx(data);
    let expected = idx_array(data);
    assert_eq!(parsed.is_ok(), expected.is_some(), "{parsed:?}");
    match (parsed, expected) {
        (Ok(array), Some((dtype, shape, elements))) => check(&array, dtype, &shape, &elements),
        (outcome, _) => assert!(outcome.is_err_and(|error| error.to_string().len() < 500)),
    }
}

/// Parses an IDX file. Returns its dtype, its shape, and its elements in native byte order, or
/// `None` for any other data.
fn idx_array(data: &[u8]) -> Option<(DType, Vec<usize>, Vec<u8>)> {
    let (&[zero, second_zero, code, ndim], mut rest) = data.split_first_chunk()?;
    let dtype = match (zero, second_zero, code) {
        (0, 0, 8) => DType::U8,
        (0, 0, 9) => DType::I8,
        (0, 0, 11) => DType::I16,
        (0, 0, 12) => DType::I32,
        (0, 0, 13) => DType::F32,
        (0, 0, 14) => DType::F64,
        _ => return None,
    };
    let mut shape = Vec::new();
    for _ in 0..ndim {
        let (length, after) = rest.split_first_chunk()?;
        shape.push(u32::from_be_bytes(*length) as usize);
        rest = after;
    }
    let fits = ndim as usize <= MAX_DIMS && fits(dtype, &shape, rest.len());
    fits.then(|| (dtype, shape, byte_swapped(rest, dtype, cfg!(target_endian = "little"))))
}

/// Returns whether `len` is the size of all elements of this shape, and the product of its nonzero
/// dimensions does not overflow.
fn fits(dtype: DType, shape: &[usize], len: usize) -> bool {
    let elements = shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim.max(1)));
    let elements = elements.filter(|&elements| elements <= isize::MAX as usize);
    let elements = if shape.contains(&0) { elements.map(|_| 0) } else { elements };
    elements.and_then(|elements| elements.checked_mul(dtype.size())) == Some(len)
}

/// Returns `bytes`, with the bytes of each number reversed if `turn` is set. A complex element
/// consists of two numbers, which are reversed separately.
fn byte_swapped(bytes: &[u8], dtype: DType, turn: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if turn {
        let numbers = if dtype.kind() == Kind::Complex { 2 } else { 1 };
        bytes.chunks_mut(dtype.size() / numbers).for_each(<[u8]>::reverse);
    }
    bytes
}

fn check(array: &AnyArray, dtype: DType, shape: &[usize], elements: &[u8]) {
    assert_eq!((array.dtype(), array.shape()), (dtype, shape));
    assert_eq!(array.bytes(), elements);
    read_rows(array);
}

/// Reads every row that contains bytes.
fn read_rows(array: &AnyArray) {
    assert_eq!(array.bytes().as_ptr().align_offset(array.dtype().align()), 0);
    if array.row_size() > 0 {
        let sum: usize = (0..array.len()).map(|i| array.row_bytes(i).len()).sum();
        assert_eq!(sum, array.bytes().len());
    }
    array.prefetch_row(0);
}

/// Reads `data` as a .npy file, and checks the resulting array against the header's text. Then writes a file as NumPy
/// would, with content chosen by `data`, and checks that it is read back.
pub fn npy(data: &[u8]) {
    match parse_npy(data) {
        Ok(array) => {
            check_npy(&array, data);
            read_rows(&array);
        }
        Err(error) => assert!(error.to_string().len() < 500, "{error}"),
    }
    let mut choices = Choices::new(data);
    let (dtype, big) = (choices.of(&NUMPY), choices.one_in(2));
    let shape: Vec<usize> = (0..choices.below(MAX_DIMS + 2)).map(|_| choices.below(4)).collect();
    let version = choices.within(1, 3) as u8;
    let mut elements = vec![0; shape.iter().product::<usize>() * dtype.size()];
    elements.iter_mut().for_each(|byte| *byte = choices.byte());
    if dtype == DType::Bool {
        elements.iter_mut().for_each(|byte| *byte &= 1);
    }
    let fortran = choices.one_in(8);
    let file = npy_file(dtype, big, fortran, &shape, version, &elements);
    let (file, cut) = (&file[..], choices.one_in(3));
    match parse_npy(file) {
        Ok(array) => {
            assert!(!fortran || shape.len() < 2, "an array in Fortran order was accepted");
            let turn = big != cfg!(target_endian = "big");
            check(&array, dtype, &shape, &byte_swapped(&elements, dtype, turn));
            check_npy(&array, file);
        }
        Err(error) => assert!((fortran && shape.len() > 1) || shape.len() > MAX_DIMS, "{error}"),
    }
    if cut {
        assert!(parse_npy(&file[..choices.below(file.len())]).is_err());
    }
}

/// The dtypes that NumPy has, too.
const NUMPY: [DType; 14] = {
    use DType::*;
    [Bool, U8, I8, U16, I16, U32, I32, U64, I64, F32, F64, F16, Complex64, Complex128]
};

/// Returns a file as NumPy writes it.
fn npy_file(dtype: DType, big: bool, fortran: bool, shape: &[usize], version: u8, elements: &[u8]) -> Vec<u8> {
    let letter = char::from(dtype.name().as_bytes()[0]);
    let order = match (dtype.size(), big) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let dims = if shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let (size, fortran) = (dtype.size(), if fortran { "True" } else { "False" });
    let text = format!("{{'descr': '{order}{letter}{size}', 'fortran_order': {fortran}, 'shape': ({dims}), }}\n");
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    match version {
        1 => file.extend((text.len() as u16).to_le_bytes()),
        _ => file.extend((text.len() as u32).to_le_bytes()),
    }
    file.extend(text.bytes());
    file.extend(elements);
    file
}

/// Checks that the header contains the shape in brackets and C order, and that the elements are the rest of the file.
fn check_npy(array: &AnyArray, file: &[u8]) {
    let (text, at) = match file[6] {
        1 => (usize::from(u16::from_le_bytes([file[8], file[9]])), 10),
        _ => (u32::from_le_bytes([file[8], file[9], file[10], file[11]]) as usize, 12),
    };
    let (text, elements) = file[at..].split_at(text);
    let in_brackets = text.split(|&byte| byte == b'(' || byte == b'[').skip(1);
    let mut shapes = in_brackets.filter_map(|rest| {
        let inside = rest.split(|&byte| byte == b')' || byte == b']').next()?;
        let numbers = inside.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty());
        Some(numbers.filter_map(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok()).collect::<Vec<_>>())
    });
    let header = String::from_utf8_lossy(text);
    assert!(shapes.any(|shape| shape == array.shape()), "{:?} of {header}", array.shape());
    assert!(header.contains("False") || array.shape().len() < 2, "the array is in Fortran order: {header}");
    let same = [false, true].into_iter().any(|turn| byte_swapped(elements, array.dtype(), turn) == array.bytes());
    assert!(same, "the elements differ from the file: {header}");
    if array.dtype() == DType::Bool {
        assert!(elements.iter().all(|&byte| byte <= 1));
    }
}
