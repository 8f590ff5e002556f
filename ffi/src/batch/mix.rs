//! MixUp and CutMix of finished batches.
//!
//! This function exists in libraries built with the feature `image`, like pipelines.

use slotline::rng::SampleRng;
use slotline_image::{CutMix, ImageError, MixUp};

use crate::abi::{Failure, Versioned, chain, check, done, slotline_error, slotline_status, versioned};
use crate::batch::handle::{Made, slotline_batch};

/// How `slotline_batch_mix` mixes a batch. Zeros are the defaults, except for `alpha` and
/// `num_classes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_mix {
    /// `sizeof(slotline_mix)`.
    pub struct_size: usize,
    /// The parameter of the distribution Beta(alpha, alpha) of the weight of a picture, above 0. 1 is
    /// torchvision's default.
    pub alpha: f64,
    /// The seed. Ranks should have different ones. The numbers depend only on it, and on the epoch and
    /// the number of the batch.
    pub seed: u64,
    /// The number of classes.
    pub num_classes: usize,
    /// Whether a rectangle of each picture is replaced (`CutMix`), and pictures are not blended
    /// (`MixUp`).
    pub cut: u8,
    /// Whether the channels of the pictures are their last dimension and not the first.
    pub channels_last: u8,
    /// Zeros; reserved for later versions.
    pub reserved: [u8; 6],
}

// SAFETY: it contains only numbers, and its first field is its size.
unsafe impl Versioned for slotline_mix {
    const END: usize = versioned::end!(reserved);

    fn is_known(&self) -> bool {
        self.reserved == [0; 6]
    }
}

/// Mixes the pictures of a batch in place, each with the one before it, as torchvision's `MixUp` and
/// `CutMix` do, so that the batch should be shuffled. `pictures` is the field with the pictures, and
/// `labels` that with their classes, `SLOTLINE_I64` and one number for each sample. `out` receives the
/// mixed labels, `num_classes` weights for each sample; `len` is its number of elements. Only one thread
/// may use the batch during this call.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, an `alpha` that is not above 0
/// and finite, a class that is not below `num_classes`, a `len` that is not that of the mixed labels, a
/// field that does not exist, pictures that are not three-dimensional or not of a type that a pipeline
/// writes, or a batch that is on a device, that a collate callback made, that was read alone, or of
/// which a DLPack tensor exists. The pictures are then unchanged.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed, and that nothing else uses during this call; `mix` must be NULL or valid;
/// `out` must be writable for `len` numbers; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_mix(
    batch: *mut slotline_batch,
    pictures: usize,
    labels: usize,
    mix: *const slotline_mix,
    out: *mut f32,
    len: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that the pointers are NULL or valid, and that nothing else uses the batch.
    unsafe {
        done(error, || {
            check::pointer(batch, "batch")?;
            let mix = versioned::read(mix, "mix", |_| ())?.0;
            check::pointer(out, "out")?;
            let mixed = mixed(&mut *batch, pictures, labels, &mix, len)?;
            out.copy_from_nonoverlapping(mixed.as_ptr(), len);
            Ok(())
        })
    }
}

/// Mixes the pictures, and returns the mixed labels, of which there are `len`.
fn mixed(
    batch: &mut slotline_batch,
    pictures: usize,
    labels: usize,
    options: &slotline_mix,
    len: usize,
) -> Result<Vec<f32>, Failure> {
    let invalid = |error: ImageError| Failure::invalid(chain(&error));
    let channels_last = check::flag(options.channels_last, "mix->channels_last")?;
    let cut = check::flag(options.cut, "mix->cut")?;
    let Some(Made::Stacked(batch)) = batch.made_mut() else {
        return Err(Failure::invalid(
            "the batch is on a device, was made by a collate callback, is a single sample, or has tensors that were exported; \
             mix a batch of the loader on the host, before tensors are exported from it",
        ));
    };
    let columns = batch.columns();
    let no_field = |i| Failure::invalid(format!("field is {i}, but the batch has {} fields", columns.len()));
    let (view, classes) = (columns.get(pictures).ok_or_else(|| no_field(pictures))?, columns.get(labels));
    let classes = classes.ok_or_else(|| no_field(labels))?;
    let classes = classes.typed::<i64>().filter(|classes| classes.shape().len() == 1);
    let classes = classes.ok_or_else(|| {
        Failure::invalid(format!("labels is {labels}, a field that does not have one i64 for each sample"))
    })?;
    let dtype = view.dtype();
    let shape: [usize; 4] = view.shape().try_into().map_err(|_| {
        Failure::invalid(format!(
            "pictures is {pictures}, a field whose shape {:?} is not that of pictures",
            view.shape()
        ))
    })?;
    let size = if channels_last { [shape[1], shape[2]] } else { [shape[2], shape[3]] };
    let wanted = shape[0].checked_mul(options.num_classes);
    if wanted != Some(len) {
        let (rows, classes) = (shape[0], options.num_classes);
        return Err(Failure::invalid(format!(
            "len is {len}; it must be the {rows} samples of the batch times {classes} classes"
        )));
    }
    let mut rng = SampleRng::new(options.seed, batch.epoch(), batch.batch_index() as u64);
    let mix = match cut {
        true => CutMix { alpha: options.alpha }.draw(&mut rng, size[0], size[1]),
        false => MixUp { alpha: options.alpha }.draw(&mut rng),
    };
    let (mix, mut all) = (mix.map_err(invalid)?, Vec::new());
    mix.labels(classes.as_slice(), size, options.num_classes, &mut all).map_err(invalid)?;
    let Some((_, memory)) = columns.raw(pictures) else { return Err(no_field(pictures)) };
    // SAFETY: the batch has the only reference to its memory, which is borrowed exclusively, and no view of this field is used
    // any more. Its bytes are initialised.
    let memory = unsafe { &mut *memory.as_ptr() };
    mix.any_pictures(dtype, memory, shape, channels_last).map_err(invalid)?;
    Ok(all)
}
