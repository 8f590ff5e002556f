//! Tests of rows that are written into a cell and read back, without a loader.

use super::*;
use crate::arena::{Memory, Pages};
use crate::array::{AnyArray, Array};
use crate::dtype::{DType, Element};
use crate::tensor::{AnyTensorView, TensorView};

/// The memory of one batch (a cell), for samples with the same fields as a given sample.
pub(super) struct TestCell {
    layout: Layout,
    pages: Pages,
}

impl TestCell {
    pub(super) fn new(like: &impl Sample, rows: usize) -> Self {
        let layout = Layout::new(Fields::of(like), rows).unwrap();
        let pages = Pages::new(layout.size).unwrap();
        Self { layout, pages }
    }

    /// Makes a cell whose packed fields may spill to the heap.
    pub(super) fn spilling(like: &impl Sample, rows: usize) -> Self {
        let layout = Layout::new(Fields::of(like), rows).unwrap().spilling().unwrap();
        let pages = Pages::new(layout.size).unwrap();
        Self { layout, pages }
    }

    pub(super) fn write(&mut self, row: usize, sample: impl Sample) -> Result<(), BoxError> {
        assert!(row < self.layout.rows);
        // SAFETY: the pages are zeroed, aligned and exclusive to this cell, which is mutably borrowed.
        let mut row = unsafe { Row::new(&self.layout, self.pages.start().as_ptr(), row) };
        sample.write(&mut row)?;
        Ok(row.finish()?)
    }

    pub(super) fn leave_empty(&mut self, row: usize) {
        assert!(row < self.layout.rows);
        // SAFETY: see `write`.
        unsafe { Row::new(&self.layout, self.pages.start().as_ptr(), row) }.leave_empty();
    }

    /// Removes the rows `empty`, which were left empty, from the first `rows` rows.
    pub(super) fn compact_rows(&mut self, empty: &[usize], rows: usize) {
        assert!(rows <= self.layout.rows);
        // SAFETY: see `write`, for all rows.
        unsafe { super::compact_rows(&self.layout, self.pages.start().as_ptr(), empty, rows) };
    }

    /// Returns the first `rows` rows as a batch. Unwritten rows are zeros.
    pub(super) fn batch(&self, rows: usize) -> Columns<'_> {
        assert!(rows <= self.layout.rows);
        // SAFETY: no code writes while the cell is borrowed.
        unsafe { Columns::new(&self.layout, self.pages.start().as_ptr(), rows) }
    }

    /// Returns row 0 as an unbatched sample. An unwritten row is zeros.
    fn single(&self) -> Columns<'_> {
        // SAFETY: no code writes while the cell is borrowed.
        unsafe { Columns::single(&self.layout, self.pages.start().as_ptr()) }
    }
}

impl Drop for TestCell {
    fn drop(&mut self) {
        // SAFETY: the cell is being dropped, so no other code uses it.
        unsafe { self.layout.free_spills(self.pages.start().as_ptr()) };
    }
}

/// Writes a sample into a cell of its own, and passes it to `look` as an unbatched sample.
#[track_caller]
fn alone<S: Sample>(sample: S, look: impl FnOnce(TensorsOf<'_, S>, Columns<'_>)) {
    let mut cell = TestCell::new(&sample, 1);
    cell.write(0, sample).unwrap();
    let columns = cell.single();
    look(S::Schema::tensors(&mut { columns }), columns);
}

#[test]
fn an_unbatched_sample_has_its_own_shape() {
    fn check<T: Element + PartialEq>(tensor: &TensorView<'_, T>, shape: &[usize], data: &[T]) {
        assert_eq!((tensor.shape(), tensor.as_slice()), (shape, data));
    }
    alone(7_i64, |number, columns| {
        check(&number, &[], &[7]);
        let any = columns.get(0).unwrap();
        assert_eq!((any.shape(), any.bytes()), (&[][..], &7_i64.to_ne_bytes()[..]));
    });
    alone(([1_u8, 2], [[3_i16], [4], [5]]), |(flat, nested), _| {
        check(&flat, &[2], &[1, 2]);
        check(&nested, &[3, 1], &[3, 4, 5]);
    });
    alone((vec![1.5_f32; 3], TensorView::new(&[6_u64; 4], &[2, 2]).unwrap()), |(vec, tensor), _| {
        check(&vec, &[3], &[1.5; 3]);
        check(&tensor, &[2, 2], &[6; 4]);
    });
    let any = AnyTensorView::from(TensorView::new(&[true, false], &[1, 2]).unwrap());
    alone((any, ()), |(any, ()), _| check(&any.typed::<bool>().unwrap(), &[1, 2], &[true, false]));
    let array = Array::new(vec![1_i16, 2, 3, 4], &[2, 2]).unwrap();
    let any = AnyArray::from(array.clone());
    alone((&array, array.clone(), &any), |(borrowed, owned, any), _| {
        check(&borrowed, &[2, 2], &[1, 2, 3, 4]);
        check(&owned, &[2, 2], &[1, 2, 3, 4]);
        check(&any.typed().unwrap(), &[2, 2], &[1_i16, 2, 3, 4]);
    });
    alone(any, |any, _| check(&any.typed().unwrap(), &[2, 2], &[1_i16, 2, 3, 4]));
    let lazy = Lazy::new([2, 2], |out: &mut [f64]| {
        out.copy_from_slice(&[0.5, 1.5, 2.5, 3.5]);
        Ok(())
    });
    alone((lazy, true), |(lazy, flag), _| {
        check(&lazy, &[2, 2], &[0.5, 1.5, 2.5, 3.5]);
        check(&flag, &[], &[true]);
    });
}

#[test]
fn an_unbatched_run_of_arrays_has_a_row_of_each() {
    let arrays = [
        AnyArray::from(Array::new(vec![1_i64, 2, 3], &[3]).unwrap()),
        AnyArray::from(Array::new((0..12_u8).collect(), &[3, 2, 2]).unwrap()),
    ];
    alone((AnyRow::new(&arrays, 2), 9_i64), |(run, number), _| {
        assert_eq!((run.len(), run.get(0).unwrap().shape(), run.get(1).unwrap().shape()), (2, &[][..], &[2, 2][..]));
        assert_eq!(run.get(0).unwrap().typed::<i64>().unwrap().as_slice(), [3]);
        assert_eq!(run.get(1).unwrap().bytes(), [8, 9, 10, 11]);
        assert_eq!((number.shape(), number.as_slice()), (&[][..], &[9][..]));
    });
}

#[test]
fn an_unbatched_padded_sample_keeps_its_padding() {
    alone((PaddedToMax::new(&[1_u16, 2, 3], 5), Text::new("å!", 4)), |(padded, text), columns| {
        assert_eq!((padded.padded().shape(), padded.padded().as_slice()), (&[5][..], &[1, 2, 3, 0, 0][..]));
        assert_eq!((padded.lengths(), padded.row(0)), (&[3][..], &[1, 2, 3][..]));
        assert_eq!((text.get(0), text.bytes().lengths()), ("å!", &[3][..]));
        assert_eq!((columns.get(1).unwrap().shape(), columns.lengths(1)), (&[4][..], Some(&[3][..])));
        assert_eq!(columns.field(0).unwrap().dtype(), DType::U16);
        let beyond = std::panic::catch_unwind(|| padded.row(1).len());
        assert!(beyond.is_err(), "there is no second row");
    });
}

#[test]
fn an_unbatched_packed_sample_has_two_offsets() {
    let boxes = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    alone((Packed::new(&[1_u16, 2, 3], 5), Packed::with_shape(&boxes, &[2], 3)), |(flat, boxes), columns| {
        assert_eq!((flat.values().shape(), flat.row(0).as_slice()), (&[3][..], &[1, 2, 3][..]));
        assert_eq!((flat.offsets(), flat.lengths().collect::<Vec<_>>()), (&[0, 3][..], vec![3]));
        assert_eq!((boxes.values().shape(), boxes.row(0).shape()), (&[3, 2][..], &[3, 2][..]));
        assert_eq!((columns.get(1).unwrap().shape(), columns.offsets(1)), (&[3, 2][..], Some(&[0, 3][..])));
    });
    alone(PackedText::new("å!", 9), |texts, columns| {
        assert_eq!((texts.get(0), columns.get(0).unwrap().shape()), ("å!", &[3][..]));
        assert!(std::panic::catch_unwind(|| texts.get(1)).is_err(), "there is no second row");
    });
}

#[test]
fn packed_rows_out_of_order_stay_in_the_field() {
    type Item<'a> = (Packed<'a, u8>, [u8; 4]);
    let sample = |byte: u8, n: usize| -> (Vec<u8>, [u8; 4]) { (vec![byte; n], [byte; 4]) };
    let like: Item<'_> = (Packed::new(&[], 3), [0; 4]);
    let mut cell = TestCell::new(&like, 4);
    let write = |cell: &mut TestCell, row, byte, n| {
        let (data, fixed) = sample(byte, n);
        cell.write(row, (Packed::new(&data, 3), fixed)).map_err(|error| error.to_string())
    };
    // An earlier batch, whose offsets 0, 3, 6, 9 and 12 remain.
    (0..4).for_each(|row| write(&mut cell, row, 1, 3).unwrap());
    assert_eq!(cell.batch(4).offsets(0), Some(&[0, 3, 6, 9, 12][..]));
    // Write from the last row to the first, each as long as the whole field.
    for row in (1..4).rev() {
        let error = write(&mut cell, row, 2, 12).unwrap_err();
        assert!(
            error.contains(&format!("the {row} samples before this one in the batch have {} items", 3 * row)),
            "{error}"
        );
    }
    write(&mut cell, 0, 3, 12).unwrap();
    // Row 1 now begins at the field's end: there is no room, not even for one item.
    assert!(write(&mut cell, 1, 4, 1).is_err());
    write(&mut cell, 1, 5, 0).unwrap();
    let columns = cell.batch(2);
    assert_eq!(columns.get(0).unwrap().bytes(), [3; 12]);
    // Check the memory after the field: its offsets, and the next field.
    assert_eq!(columns.offsets(0), Some(&[0, 12, 12][..]));
    assert_eq!(cell.batch(4).get(1).unwrap().bytes(), [[3; 4], [5; 4], [1; 4], [1; 4]].as_flattened());
}

#[test]
fn packed_rows_spill_in_any_order() {
    let like = (Packed::<u16>::new(&[], 2), Packed::<u64>::new(&[], 1));
    let mut cell = TestCell::spilling(&like, 4);
    let write = |cell: &mut TestCell, row, n: usize| {
        let (few, many) = (vec![row as u16 + 1; n], vec![row as u64 + 1; 2 * n]);
        cell.write(row, (Packed::new(&few, 2), Packed::new(&many, 1))).unwrap();
    };
    let offsets =
        |cell: &TestCell| (cell.batch(4).offsets(0).unwrap().to_vec(), cell.batch(4).offsets(1).unwrap().to_vec());
    let spilled = |cell: &TestCell| {
        cell.batch(4).spilled().map(|(field, items)| (field.name().to_owned(), items)).collect::<Vec<_>>()
    };
    // The second field spills when its second row is written, the first field with its last row.
    (0..4).for_each(|row| write(&mut cell, row, if row < 3 { 2 } else { 300 }));
    assert_eq!(offsets(&cell), (vec![0, 2, 4, 6, 306], vec![0, 4, 8, 12, 612]));
    assert_eq!(spilled(&cell), [("0".to_owned(), 306), ("1".to_owned(), 612)]);
    let columns = cell.batch(4);
    let numbers = columns.get(0).unwrap();
    assert_eq!(numbers.typed::<u16>().unwrap().as_slice(), [vec![1, 1, 2, 2, 3, 3], vec![4; 300]].concat());
    let numbers = columns.get(1).unwrap();
    let expected = [vec![1_u64; 4], vec![2; 4], vec![3; 4], vec![4; 600]].concat();
    assert_eq!(numbers.typed::<u64>().unwrap().as_slice(), expected);
    // Write row 2 again with more items. The offsets after it remain those of the earlier rows.
    write(&mut cell, 2, 1_000);
    assert_eq!(offsets(&cell), (vec![0, 2, 4, 1_004, 306], vec![0, 4, 8, 2_008, 612]));
    assert_eq!(cell.batch(3).get(0).unwrap().typed::<u16>().unwrap().as_slice()[4..], [3; 1_000]);
    assert_eq!(cell.batch(4).get(1).unwrap().typed::<u64>().unwrap().len(), 612);
    // Start another batch: the heap memory is freed, and no offset points beyond the fields.
    write(&mut cell, 0, 1);
    assert_eq!(offsets(&cell), (vec![0, 1, 0, 0, 0], vec![0, 2, 0, 0, 0]));
    assert_eq!(spilled(&cell), []);
    write(&mut cell, 3, 5);
    assert_eq!((offsets(&cell).0, spilled(&cell)), (vec![0, 1, 0, 0, 5], vec![("1".to_owned(), 10)]));
}

#[test]
fn long_rows_written_past_the_caches_are_those_written_through_them() {
    const LEN: usize = crate::streaming::MIN + 77;
    let rows: Vec<Vec<u8>> = (0..3).map(|row| (0..LEN).map(|i| (row * 13 + i * 7 % 251) as u8).collect()).collect();
    let mut cell = TestCell::new(&(rows[0].as_slice(), 0_i64), rows.len());
    cell.layout.streaming = true;
    // Write the rows from last to first, so that writing beyond the end of a row would change a row
    // that is already written.
    for (i, row) in rows.iter().enumerate().rev() {
        cell.write(i, (row.as_slice(), i as i64)).unwrap();
    }
    let batch = cell.batch(rows.len());
    let (pixels, labels) = (batch.get(0).unwrap(), batch.get(1).unwrap());
    assert!(pixels.bytes() == rows.concat());
    assert_eq!(labels.typed::<i64>().unwrap().as_slice(), [0, 1, 2]);
}
