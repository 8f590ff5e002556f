//! Datasets of every kind, valid and invalid, and the expected content of their samples.

use std::alloc::Layout;
use std::ffi::{c_char, c_void};
use std::ptr::null;
use std::sync::Arc;

use slotline_ffi::*;

use super::user::{self, User, dropped};
use super::{Handle, World, make};
use crate::choices::Choices;

/// The expected content of a dataset's samples.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The bytes of each array, and the size of its rows in bytes. Empty for datasets that are not
    /// made of arrays.
    pub(super) arrays: Vec<(Vec<u8>, usize)>,
    /// The fields' dtypes, if a callback writes the samples.
    pub(super) written: Vec<slotline_dtype>,
    /// For a dataset made of others: the dataset and the index that each sample comes from.
    pub(super) samples: Vec<(Arc<Content>, usize)>,
}

impl Content {
    /// Returns the dataset that a sample comes from, and the sample's index there.
    pub(super) fn origin(&self, index: usize) -> (&Self, usize) {
        self.samples.get(index).map_or((self, index), |(content, index)| content.origin(*index))
    }
}

/// A struct in memory of exactly the size that it states, which may be shorter or longer than the
/// struct that the library knows.
pub(super) struct Struct {
    memory: *mut u64,
    layout: Layout,
    /// Whether the struct is at least as long as the one that the library knows.
    pub(super) whole: bool,
}

impl Struct {
    pub(super) fn new<T: Copy>(value: &T, choices: &mut Choices<'_>) -> Self {
        let exact = size_of::<T>();
        let size = if choices.one_in(12) { choices.of(&[0, 8, exact - 8, exact + 8, exact + 16]) } else { exact };
        let junk = choices.one_in(4);
        Self::list(&[*value], size, junk)
    }

    /// Creates an array of structs.
    pub(super) fn list<T: Copy>(values: &[T], size: usize, junk: bool) -> Self {
        let layout = Layout::from_size_align((size * values.len()).max(8), 8).expect("a small size");
        // SAFETY: the size is not 0, and all writes are within the allocation.
        unsafe {
            let memory = std::alloc::alloc_zeroed(layout);
            for (i, value) in values.iter().enumerate() {
                let at = memory.add(i * size);
                at.copy_from_nonoverlapping((&raw const *value).cast(), size.min(size_of::<T>()));
                if size >= 8 || i == 0 {
                    at.cast::<usize>().write(size);
                }
                if junk && size > size_of::<T>() {
                    at.add(size - 1).write(1);
                }
            }
            Self { memory: memory.cast(), layout, whole: size >= size_of::<T>() }
        }
    }

    pub(super) fn pointer<T>(&self) -> *mut T {
        self.memory.cast()
    }
}

impl Drop for Struct {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { std::alloc::dealloc(self.memory.cast(), self.layout) };
    }
}

/// Returns the number of a dtype and its size, or an invalid number.
fn dtype(choices: &mut Choices<'_>) -> (slotline_dtype, usize) {
    const SIZES: [usize; 15] = [1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2, 2, 8, 16];
    let number =
        if choices.one_in(24) { choices.of(&[0, 16, u32::MAX]) } else { choices.within(1, SIZES.len()) as u32 };
    let size = SIZES.get((number as usize).wrapping_sub(1)).map_or(1, |&size| size);
    (number, size)
}

fn name(choices: &mut Choices<'_>) -> *const c_char {
    choices.of(&[null(), null(), c"a".as_ptr(), c"b".as_ptr(), c"".as_ptr(), c"\xff".as_ptr()])
}

/// Returns a shape with few elements, or an invalid shape.
fn shape(choices: &mut Choices<'_>, most: usize) -> Vec<i64> {
    let dims = choices.below(most);
    let mut shape: Vec<i64> = (0..dims).map(|_| choices.of(&[1, 2, 3, 0])).collect();
    if choices.one_in(24) {
        shape.push(choices.of(&[-1, i64::MIN]));
    }
    shape
}

/// Returns the number of elements of a shape, or `None` if the shape is invalid.
fn elements(shape: &[i64]) -> Option<usize> {
    shape.iter().map(|&dim| usize::try_from(dim).ok()).product()
}

impl World {
    pub(super) fn make_dataset(&mut self, choices: &mut Choices<'_>) {
        match choices.below(12) {
            8.. if !self.datasets.is_empty() => self.compose(choices),
            0 => self.open(choices),
            1..4 => self.arrays(choices),
            4..6 => self.callbacks(choices),
            _ => self.stream(choices),
        }
    }

    pub(super) fn keep(&mut self, dataset: Option<Handle<slotline_dataset>>, content: Content) {
        let Some(mut dataset) = dataset else { return };
        if self.datasets.len() == 6 {
            self.datasets.remove(0);
        }
        dataset.content = Arc::new(content);
        self.datasets.push(dataset);
    }

    fn open(&mut self, choices: &mut Choices<'_>) {
        let texts =
            [c"digits".as_ptr(), c"idx:/none".as_ptr(), c"npy:".as_ptr(), c"".as_ptr(), c"\xff".as_ptr(), null()];
        let text = choices.of(&texts);
        // SAFETY: a valid text or NULL, and out-pointers that are valid or NULL.
        let dataset =
            make(choices, slotline_dataset_free, |out, error| unsafe { slotline_dataset_open(text, out, error) });
        self.keep(dataset, Content::default());
    }

    fn arrays(&mut self, choices: &mut Choices<'_>) {
        let rows = choices.below(10) as i64;
        let count = choices.of(&[1, 1, 2, 3, 0]);
        let (mut arrays, mut shapes, mut content) = (Vec::new(), Vec::new(), Content::default());
        for _ in 0..count {
            let (dtype, size) = dtype(choices);
            let mut shape = shape(choices, 4);
            shape.insert(0, if choices.one_in(24) { 5 } else { rows });
            let bytes = elements(&shape).unwrap_or(0) * size;
            let user = User::hand_over(&self.ledger, 0, Vec::new());
            let mask = if dtype == SLOTLINE_BOOL && !choices.one_in(8) { 1 } else { 0xff };
            let data: Vec<u8> = (0..bytes).map(|_| choices.byte() & mask).collect();
            // Stored as words for the alignment. The words exist as long as this `World`, and so
            // longer than any loader.
            let mut words = vec![0_u64; bytes.div_ceil(8)];
            // SAFETY: `words` has at least `bytes` bytes.
            unsafe { words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), bytes) };
            let start = words.as_ptr().cast::<c_void>();
            self.memory.push(words);
            let start = if choices.one_in(24) { null() } else { start };
            content.arrays.push((data, bytes.checked_div(shape[0] as usize).unwrap_or(0)));
            shapes.push(shape);
            let name = name(choices);
            arrays.push(slotline_array {
                struct_size: 0,
                name,
                dtype,
                ndim: 0,
                shape: null(),
                data: start,
                user,
                drop: Some(dropped),
            });
        }
        for (array, shape) in arrays.iter_mut().zip(&shapes) {
            array.ndim = if choices.one_in(48) { 9 } else { shape.len() as u32 };
            array.shape = if choices.one_in(48) { null() } else { shape.as_ptr() };
        }
        let exact = size_of::<slotline_array>();
        let size = if choices.one_in(12) { choices.of(&[8, exact - 8, exact + 8, exact + 16]) } else { exact };
        let list = Struct::list(&arrays, size, choices.one_in(2));
        // SAFETY: the list has the stated length and struct size; out-pointers are valid or NULL.
        let dataset = make(choices, slotline_dataset_free, |out, error| unsafe {
            slotline_dataset_from_arrays(list.pointer(), arrays.len(), out, error)
        });
        if !list.whole {
            // The library rejected the list and did not take ownership.
            assert!(dataset.is_none() || arrays.is_empty());
            // SAFETY: the library has not taken ownership of the users' pointers.
            arrays.iter().for_each(|array| unsafe { dropped(array.user) });
        }
        self.keep(dataset, content);
    }

    /// Returns fields, their shapes, and what a callback must know about them.
    pub(super) fn fields(&mut self, choices: &mut Choices<'_>) -> Declared {
        let (mut fields, mut shapes, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..choices.of(&[1, 2, 3, 0]) {
            let (dtype, size) = dtype(choices);
            let kind = choices.of(&[0, 0, 0, 1, 2, 7]);
            let shape = match kind {
                1 => vec![choices.below(6) as i64],
                2 => vec![choices.within(1, 4) as i64],
                _ => shape(choices, 3),
            };
            known.push((dtype, size, elements(&shape).unwrap_or(0)));
            let name = name(choices);
            let ndim = shape.len() as u32;
            let (shape_of, padding, multiple_of) = (null(), null(), 0);
            fields.push(slotline_field {
                struct_size: 0,
                name,
                dtype,
                kind,
                ndim,
                shape: shape_of,
                padding,
                multiple_of,
            });
            shapes.push(shape);
        }
        fields.iter_mut().zip(&shapes).for_each(|(field, shape)| field.shape = shape.as_ptr());
        let list = Struct::list(&fields, size_of::<slotline_field>(), false);
        Declared { list, count: fields.len(), known, _shapes: shapes }
    }

    fn callbacks(&mut self, choices: &mut Choices<'_>) {
        let declared = self.fields(choices);
        let (way, len) = (choices.below(64), choices.below(12));
        let user = User { ledger: self.ledger.clone(), way, fields: declared.known.clone(), len, act: None };
        let mut dataset = user.map_dataset(declared.list.pointer(), declared.count);
        if choices.one_in(24) {
            dataset.read = None;
        }
        let sized = Struct::new(&dataset, choices);
        // SAFETY: the struct has the size that it states; out-pointers are valid or NULL.
        let made = make(choices, slotline_dataset_free, |out, error| unsafe {
            slotline_dataset_from_callbacks(sized.pointer(), out, error)
        });
        self.keep_called(made, &sized, dataset.user, declared.content());
    }

    fn stream(&mut self, choices: &mut Choices<'_>) {
        let declared = self.fields(choices);
        let way = choices.below(64);
        let (ledger, fields) = (self.ledger.clone(), declared.known.clone());
        let user = User { ledger, way, fields, len: user::STREAMED, act: None };
        let mut dataset = user.stream_dataset(declared.list.pointer(), declared.count);
        if choices.one_in(2) {
            dataset.save = Some(user::save);
            dataset.resume = Some(user::resume);
        }
        dataset.len = choices.of(&[-1, user::STREAMED as i64, 0, i64::MIN]);
        if choices.one_in(24) {
            dataset.open = None;
        }
        let sized = Struct::new(&dataset, choices);
        // SAFETY: the struct has the size that it states; out-pointers are valid or NULL.
        let made = make(choices, slotline_dataset_free, |out, error| unsafe {
            slotline_dataset_from_stream(sized.pointer(), out, error)
        });
        self.keep_called(made, &sized, dataset.user, declared.content());
    }

    pub(super) fn keep_called(
        &mut self,
        made: Option<Handle<slotline_dataset>>,
        sized: &Struct,
        user: *mut c_void,
        content: Content,
    ) {
        if !sized.whole {
            assert!(made.is_none());
            // SAFETY: the library has not taken ownership of it.
            unsafe { dropped(user) };
        }
        self.keep(made, content);
    }
}

pub(super) struct Declared {
    pub(super) list: Struct,
    pub(super) count: usize,
    pub(super) known: Vec<(slotline_dtype, usize, usize)>,
    /// The shapes that the fields point to.
    _shapes: Vec<Vec<i64>>,
}

impl Declared {
    /// Returns the content of the samples that a callback writes.
    pub(super) fn content(&self) -> Content {
        Content { written: self.known.iter().map(|&(dtype, ..)| dtype).collect(), ..Content::default() }
    }
}
