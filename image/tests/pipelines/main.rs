//! Tests of pipelines: decoded pictures and the results of transforms, compared with Pillow,
//! torchvision and straightforward implementations.

#[cfg(feature = "jpeg")]
#[path = "../../../runtime/tests/support/chain.rs"]
mod chain;
#[cfg(feature = "jpeg")]
#[path = "../support/jpegs.rs"]
mod jpegs;

mod augment;
mod bmp;
mod images;
mod limits;
mod masks_and_boxes;
mod mix;
mod pillow;
mod text;
mod torchvision;
