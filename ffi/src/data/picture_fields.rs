//! Which fields of files have pictures, masks and boxes.
//!
//! These declarations exist in libraries built with the feature `image`, like pipelines.

use std::ffi::c_char;

use slotline::dtype::DType;

use crate::abi::{Failure, Versioned, check, versioned};
use crate::fields::dtype::{self, slotline_dtype};

/// What the four numbers of a box in a file are, in pixels.
pub type slotline_box_format = u32;

/// Left, top, right and bottom.
pub const SLOTLINE_BOXES_XYXY: slotline_box_format = 0;
/// Left, top, width and height, as in COCO.
pub const SLOTLINE_BOXES_XYWH: slotline_box_format = 1;
/// The centre, width and height.
pub const SLOTLINE_BOXES_CXCYWH: slotline_box_format = 2;

/// Which fields of files `slotline_dataset_decode` decodes. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_picture_fields {
    /// `sizeof(slotline_picture_fields)`.
    pub struct_size: usize,
    /// The field with the encoded pictures. NULL: the only field of bytes without masks; if there are
    /// several, the one whose bytes in the first sample are a picture.
    pub field: *const c_char,
    /// The field with segmentation masks, which are PNGs that are grey or have a palette, of the size
    /// of their pictures; NULL: none. Each mask has the crop, the flips and the padding of its picture,
    /// and is resized with the nearest pixel. The masks of a folder (the option `mask_folder` of
    /// `slotline_dataset_open_with`) are the field "mask".
    pub mask_field: *const c_char,
    /// The class of a mask's padding.
    pub mask_fill: i64,
    /// The type of a mask's elements: `SLOTLINE_U8` (also for 0) or `SLOTLINE_I64`.
    pub mask_dtype: slotline_dtype,
    /// What the four numbers of a box in a file are.
    pub boxes_format: slotline_box_format,
    /// The field with bounding boxes, in pixels of the whole picture; NULL: none. It has lists of
    /// numbers, four for each box, the bytes of `.npy` files, or text with JSON. In the last case,
    /// "json.objects.bbox" are the boxes in `{"objects": {"bbox": ...}}` and in
    /// `{"objects": [{"bbox": ...}, ...]}` of the field "json", and become an additional field of this
    /// name.
    pub boxes_field: *const c_char,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_picture_fields {
    const END: usize = versioned::end!(boxes_field);
}

/// The fields that are decoded, with valid strings.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "sources"), expect(dead_code, reason = "no files are opened"))]
pub(crate) struct PictureFields<'a> {
    pub(crate) field: Option<&'a str>,
    /// The name of the field with masks, the type of their elements, and the class of padding.
    pub(crate) mask: Option<(&'a str, DType, i64)>,
    pub(crate) boxes: Option<(&'a str, slotline_box_format)>,
}

impl<'a> PictureFields<'a> {
    /// Reads the fields from C; NULL for the defaults.
    ///
    /// # Safety
    ///
    /// `fields` must be NULL or valid as documented at `slotline_picture_fields`, and its strings must not be written during
    /// `'a`.
    pub(crate) unsafe fn read(fields: *const slotline_picture_fields) -> Result<Self, Failure> {
        if fields.is_null() {
            return Ok(Self::default());
        }
        // SAFETY: the caller guarantees that `fields` and its strings are valid.
        unsafe {
            let fields = versioned::read(fields, "fields", |_| ())?.0;
            let name = |name: *const c_char, of| {
                if name.is_null() { Ok(None) } else { check::text(name, &format!("fields->{of}")).map(Some) }
            };
            if fields.boxes_format > SLOTLINE_BOXES_CXCYWH {
                return Err(Failure::invalid(format!(
                    "fields->boxes_format is {}, which is not a slotline_box_format",
                    fields.boxes_format
                )));
            }
            let dtype = match fields.mask_dtype {
                0 => DType::U8,
                number => dtype::dtype(number, "fields->mask_dtype")?,
            };
            Ok(Self {
                field: name(fields.field, "field")?,
                mask: name(fields.mask_field, "mask_field")?.map(|name| (name, dtype, fields.mask_fill)),
                boxes: name(fields.boxes_field, "boxes_field")?.map(|name| (name, fields.boxes_format)),
            })
        }
    }
}
