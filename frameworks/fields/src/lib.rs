//! Conversion of the fields of a batch to tensors of another library. [`convert`] calls a function
//! for each field, and [`Tensors`] holds the results.

use slotline::BoxError;
use slotline::dtype::DType;
use slotline::sample::{Columns, Field};

/// The tensors of a batch, by name and in the order of the fields.
///
/// The names are those of the fields: the name in a derived sample, or the index in a tuple. After
/// the tensor of a field whose samples differ in length, there is a second one of `i64`:
/// `NAME.lengths` if the field is padded, or `NAME.offsets` if it is packed.
#[derive(Clone, Debug)]
pub struct Tensors<T>(Vec<(String, T)>);

impl<T> Tensors<T> {
    /// Returns the tensor with this name, or `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find(|(other, _)| *other == name).map(|(_, tensor)| tensor)
    }

    /// Iterates over the names and tensors.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Returns the tensors in order: `let [images, labels] = tensors.into_array()?`.
    ///
    /// # Errors
    ///
    /// [`Error::Count`] if there are more or fewer than `N`.
    pub fn into_array<const N: usize>(self) -> Result<[T; N], Error> {
        let (names, tensors): (Vec<String>, Vec<T>) = self.0.into_iter().unzip();
        tensors.try_into().map_err(|_| Error::Count { names, expected: N })
    }
}

/// Collects tensors and their names, in the order of the fields.
impl<T> FromIterator<(String, T)> for Tensors<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

impl<T> IntoIterator for Tensors<T> {
    type Item = (String, T);
    type IntoIter = std::vec::IntoIter<(String, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The reason why a batch could not be converted to tensors of another library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library has no such element type.
    #[error("field {field} has elements of type {dtype}, which {library} does not have; convert them in the dataset")]
    DType {
        /// The field's name.
        field: String,
        /// The type of its elements.
        dtype: DType,
        /// The library, or its device.
        library: String,
    },
    /// The number of tensors is not the requested one.
    #[error("{expected} tensors were asked for, but the batch has {}: {}", names.len(), names.join(", "))]
    Count {
        /// The names of the tensors.
        names: Vec<String>,
        /// The number of tensors that were requested.
        expected: usize,
    },
    /// The library could not create the tensor.
    #[error("field {field} cannot be made a tensor")]
    Tensor {
        /// The field's name.
        field: String,
        /// The library's error.
        source: BoxError,
    },
}

impl Error {
    /// Returns a function for `map_err` that creates the [error](Error::Tensor) for a field.
    pub fn of<E: Into<BoxError>>(field: &Field) -> impl FnOnce(E) -> Self {
        let field = field.name().to_owned();
        |source| Self::Tensor { field, source: source.into() }
    }
}

/// Converts a batch to tensors. `make` is called with the number and the declaration of each field.
/// For the tensor of the field's elements, its last argument is `None`. If the field has lengths or
/// offsets, `make` is called again with them.
///
/// # Errors
///
/// The first error of `make`.
pub fn convert<'a, T>(
    columns: &Columns<'a>,
    mut make: impl FnMut(usize, &'a Field, Option<&'a [i64]>) -> Result<T, Error>,
) -> Result<Tensors<T>, Error> {
    let mut tensors = Vec::with_capacity(columns.len());
    for (i, field) in (0..columns.len()).filter_map(|i| Some((i, columns.field(i)?))) {
        let name = field.name();
        tensors.push((name.to_owned(), make(i, field, None)?));
        if let Some(lengths) = columns.lengths(i) {
            tensors.push((format!("{name}.lengths"), make(i, field, Some(lengths))?));
        } else if let Some(offsets) = columns.offsets(i) {
            tensors.push((format!("{name}.offsets"), make(i, field, Some(offsets))?));
        }
    }
    Ok(Tensors(tensors))
}
