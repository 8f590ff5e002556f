//! Deriving `Sample` for structs.

#[cfg(doc)]
use super::Text;

/// Derives [`Sample`](trait@super::Sample) for a struct, and generates a struct for batches of it.
///
/// The batch struct has the sample's name with the suffix `Batch`, the same visibility and the same
/// fields. The type of each field is that of a batch of the sample's field, as listed in the
/// [table](super). If the sample borrows, the batch borrows only from its own memory.
///
/// [`Batch::tensors`](crate::Batch::tensors) returns the batch struct. The type of the batch
/// contains the type of the sample, with `'static` for its lifetimes: `Batch<Face<'static>>`.
///
/// ```
/// use slotline::dataset::{Context, Dataset};
/// use slotline::sample::Text;
/// use slotline::{Batch, BoxError, Loader, Sample};
///
/// #[derive(Sample)]
/// #[sample(batch = "Faces")] // instead of FaceBatch
/// struct Face<'a> {
///     pixels: &'a [u8],
///     name: Text<'a>,
///     place: Place,
/// }
///
/// /// A sample can be part of another one.
/// #[derive(Clone, Copy, Sample)]
/// struct Place(f32, f32);
///
/// struct Album(Vec<(Vec<u8>, String, Place)>);
///
/// impl Dataset for Album {
///     type Sample<'a> = Face<'a>;
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Face<'a>, BoxError> {
///         let (pixels, name, place) = &self.0[index];
///         Ok(Face { pixels, name: Text::new(name, 20), place: *place })
///     }
/// }
///
/// let ada = (vec![7; 64], "Ada".to_owned(), Place(51.5, -0.1));
/// let alan = (vec![8; 64], "Alan".to_owned(), Place(52.0, -0.7));
/// let album = Album(vec![ada, alan]);
/// let mut loader = Loader::builder(album).batch_size(2).build()?;
/// for batch in loader.epoch()? {
///     step(&batch?);
/// }
///
/// fn step(batch: &Batch<Face<'static>>) {
///     let faces: Faces<'_> = batch.tensors();
///     assert_eq!(faces.pixels.shape(), [2, 64]);
///     assert_eq!((faces.name.get(1), faces.place.1[[1]]), ("Alan", -0.7));
///     assert_eq!(batch.columns().field(3).unwrap().name(), "place.1");
/// }
/// # Ok::<(), BoxError>(())
/// ```
///
/// The batch struct of a tuple struct is a tuple struct. It has the type parameters of the sample,
/// which must be `'static`, and the struct must declare the bounds that make its fields samples.
/// Batch structs are `Debug` if all their fields are. The crate `slotline` must not be renamed.
///
/// # What does not compile
///
/// An enum, since every sample of a batch must have the same fields:
///
/// ```compile_fail
/// #[derive(slotline::Sample)]
/// enum Either {
///     Left(i64),
///     Right(f32),
/// }
/// ```
///
/// A union, for the same reason:
///
/// ```compile_fail
/// #[derive(slotline::Sample)]
/// union Bits {
///     float: f32,
///     bits: u32,
/// }
/// ```
///
/// A field that is not a sample (a [`Text`] would be one):
///
/// ```compile_fail,E0277
/// #[derive(slotline::Sample)]
/// struct Named {
///     name: String,
/// }
/// ```
///
/// A type parameter that is not bounded by `Sample` (`P: Sample` would work):
///
/// ```compile_fail,E0277
/// #[derive(slotline::Sample)]
/// struct Pair<P> {
///     first: P,
///     second: P,
/// }
/// ```
///
/// An unknown option (only `batch` exists):
///
/// ```compile_fail
/// #[derive(slotline::Sample)]
/// #[sample(name = "Digits")]
/// struct Digit {
///     label: i64,
/// }
/// ```
///
/// An option on a field, which has no options:
///
/// ```compile_fail
/// #[derive(slotline::Sample)]
/// struct Digit {
///     #[sample(batch = "labels")]
///     label: i64,
/// }
/// ```
#[doc(inline)]
pub use slotline_derive::Sample;
