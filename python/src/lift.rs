//! Pictures whose transforms are supported natively, with results that are bit-identical to
//! torchvision's on a PIL image, and on the tensor that is made of it.
//!
//! torchvision's own Python code draws the random numbers and records the operations ([`Steps`]). A
//! [`Picture`] with its operations is a placeholder for their result, until the tensor is written
//! directly into its place in the batch.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use slotline_image::{
    Affine, ExactPlan, ExactSource, ImageError, Interpolation, Operation, PaddingMode, Resampling, Resizer,
};
use slotline_python_shielded::shielded;

use crate::NotLifted;
use crate::detached::detached;
use crate::dlpack::DType;

/// A lookup table from bytes to numbers, for each channel of a picture.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct ByteTable {
    dtype: DType,
    channels: usize,
    numbers: Vec<u8>,
}

#[shielded]
#[pymethods]
impl ByteTable {
    /// Takes the DLPack code and bits of the number type, and 256 numbers for each channel: three
    /// channels, or one for grey pictures.
    #[new]
    fn new(code: u8, bits: u8, channels: usize, numbers: Vec<u8>) -> PyResult<Self> {
        let dtype = DType { code, bits, lanes: 1 };
        if !matches!(channels, 1 | 3) || dtype.bytes().is_none_or(|size| numbers.len() != 256 * channels * size) {
            return Err(PyValueError::new_err("a table has 256 numbers for each of one or three channels"));
        }
        Ok(Self { dtype, channels, numbers })
    }
}

#[derive(Debug)]
enum Source {
    File(Vec<u8>),
    Pixels { bytes: Vec<u8>, size: [usize; 2], channels: usize },
}

impl Source {
    fn exact(&self) -> ExactSource<'_> {
        match self {
            Self::File(bytes) => ExactSource::File(bytes),
            Self::Pixels { bytes, size, channels } => ExactSource::Pixels { bytes, size: *size, channels: *channels },
        }
    }
}

/// A picture, and the operations to apply to it.
#[pyclass(module = "slotline._slotline")]
pub(crate) struct Steps {
    source: Arc<Source>,
    plan: ExactPlan,
}

#[shielded]
#[pymethods]
impl Steps {
    /// Reads a file. Returns `None` if it cannot be read, or if PIL might decode it differently.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> Option<Self> {
        detached(py, || Self::of_exact(std::fs::read(path).ok()?))
    }

    /// Takes the contents of a file. Returns `None` if PIL might decode them differently.
    #[staticmethod]
    fn of_file(bytes: Vec<u8>) -> Option<Self> {
        Self::of_exact(bytes)
    }

    /// Takes rows of pixels with three channels or one.
    #[staticmethod]
    fn of_pixels(bytes: Vec<u8>, height: usize, width: usize, channels: usize) -> PyResult<Self> {
        Self::of(Source::Pixels { bytes, size: [height, width], channels }).map_err(not_lifted)
    }

    /// Returns the same picture and operations, to which other operations can be added.
    fn copy(&self) -> Self {
        Self { source: self.source.clone(), plan: self.plan.clone() }
    }

    /// The height and width after the operations so far.
    #[getter]
    fn size(&self) -> (usize, usize) {
        self.plan.size().into()
    }

    fn crop(&mut self, top: usize, left: usize, height: usize, width: usize) -> PyResult<()> {
        self.plan.crop([top, left], [height, width]).map_err(not_lifted)
    }

    /// Resizes as a library does: Pillow, or torch if the picture is a tensor.
    fn resize(&mut self, height: usize, width: usize, filter: &str, library: &str) -> PyResult<()> {
        let filter = match filter {
            "nearest" | "nearest-exact" => Resampling::Nearest,
            "box" => Resampling::Box,
            "bilinear" => Resampling::Bilinear,
            "hamming" => Resampling::Hamming,
            "bicubic" => Resampling::Bicubic,
            "lanczos" => Resampling::Lanczos,
            _ => return Err(unknown(filter)),
        };
        let resizer = match library {
            "Pillow" => Resizer::Pillow,
            "Pillow 12" => Resizer::Pillow12,
            "torch" => Resizer::Torch,
            _ => return Err(unknown(library)),
        };
        self.plan.resize([height, width], filter, resizer).map_err(not_lifted)
    }

    fn flip_horizontally(&mut self) {
        self.plan.flip_horizontally();
    }

    fn flip_vertically(&mut self) {
        self.plan.flip_vertically();
    }

    fn pad(&mut self, sides: [usize; 4], mode: &str, fill: [u8; 3]) -> PyResult<()> {
        let [left, top, right, bottom] = sides;
        let mode = match mode {
            "constant" => PaddingMode::Constant,
            "edge" => PaddingMode::Edge,
            "reflect" => PaddingMode::Reflect,
            "symmetric" => PaddingMode::Symmetric,
            _ => return Err(unknown(mode)),
        };
        self.plan.pad([[top, bottom], [left, right]], mode, fill).map_err(not_lifted)
    }

    /// Changes colours with a function of torchvision, named by `function`, and its parameter if it
    /// has one.
    #[pyo3(signature = (function, value = 0.0))]
    fn change(&mut self, function: &str, value: f64) -> PyResult<()> {
        self.plan
            .operate(match function {
                "adjust_brightness" => Operation::AdjustBrightness(value),
                "adjust_contrast" => Operation::AdjustContrast(value),
                "adjust_saturation" => Operation::AdjustSaturation(value),
                "adjust_hue" => Operation::AdjustHue(value),
                "adjust_sharpness" => Operation::AdjustSharpness(value),
                "grayscale" => Operation::Grayscale,
                "posterize" => Operation::Posterize(value as u8),
                "solarize" => Operation::Solarize(value),
                "invert" => Operation::Invert,
                "autocontrast" => Operation::AutoContrast,
                "equalize" => Operation::Equalize,
                _ => return Err(unknown(function)),
            })
            .map_err(not_lifted)
    }

    /// Applies a geometric operation of torchvision's AutoAugment family, such as a shear, with a
    /// magnitude.
    fn shift(&mut self, operation: &str, magnitude: f64, interpolation: &str, fill: [u8; 3]) -> PyResult<()> {
        let by = match operation {
            "shear_x" => Affine::ShearX(magnitude),
            "shear_y" => Affine::ShearY(magnitude),
            "translate_x" => Affine::TranslateX(magnitude as i32),
            "translate_y" => Affine::TranslateY(magnitude as i32),
            "rotate" => Affine::Rotate(magnitude),
            _ => return Err(unknown(operation)),
        };
        let interpolation = match interpolation {
            "nearest" => Interpolation::Nearest,
            "bilinear" => Interpolation::Bilinear,
            _ => return Err(unknown(interpolation)),
        };
        self.plan.operate(Operation::Affine { by, interpolation, fill }).map_err(not_lifted)
    }

    /// Returns the pixels after all operations, row by row, one byte for each channel.
    fn pixels<'py>(&self, py: Python<'py>, channels: usize) -> PyResult<Bound<'py, PyBytes>> {
        let [height, width] = self.plan.size();
        let area = height * width;
        let made = detached(py, || {
            self.plan.run(self.source.exact(), |planes| {
                let mut pixels = vec![0; area * channels];
                for (plane, c) in planes.chunks_exact(area).zip(0..channels) {
                    pixels[c..].iter_mut().step_by(channels).zip(plane).for_each(|(to, &byte)| *to = byte);
                }
                pixels
            })
        });
        Ok(PyBytes::new(py, &made.map_err(not_lifted)?))
    }

    /// Returns a placeholder for the tensor that the operations make, with numbers from `table`.
    /// Then rectangles are filled: each has a top, left, height and width, and the bytes of a
    /// number for each channel.
    fn picture(&self, table: Py<ByteTable>, erased: Vec<([usize; 4], Vec<u8>)>) -> PyResult<Picture> {
        let drawn = Drawn { source: self.source.clone(), plan: self.plan.clone(), table, erased };
        let [_, height, width] = drawn.shape().map(|dim| dim as usize);
        let ByteTable { channels, numbers, .. } = drawn.table.get();
        let fits = |([top, left, h, w], of): &([usize; 4], Vec<u8>)| {
            top.saturating_add(*h) <= height && left.saturating_add(*w) <= width && 256 * of.len() == numbers.len()
        };
        if !drawn.erased.iter().all(fits) {
            let message = format!("not all rectangles fit {channels} channels of {height} × {width} numbers");
            return Err(PyValueError::new_err(message));
        }
        Ok(Picture(Arc::new(drawn)))
    }
}

impl Steps {
    fn of_exact(bytes: Vec<u8>) -> Option<Self> {
        if is_exact(&bytes) { Self::of(Source::File(bytes)).ok() } else { None }
    }

    fn of(source: Source) -> Result<Self, ImageError> {
        let [height, width] = source.exact().size()?;
        Ok(Self { plan: ExactPlan::new(height, width)?, source: Arc::new(source) })
    }
}

/// A placeholder for a picture's tensor in a list of samples that is collated.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct Picture(pub(crate) Arc<Drawn>);

/// A picture whose operations have not been executed yet.
#[derive(Debug)]
pub(crate) struct Drawn {
    source: Arc<Source>,
    plan: ExactPlan,
    table: Py<ByteTable>,
    erased: Vec<([usize; 4], Vec<u8>)>,
}

impl Drawn {
    pub(crate) fn dtype(&self) -> DType {
        self.table.get().dtype
    }

    pub(crate) fn shape(&self) -> [i64; 3] {
        let [height, width] = self.plan.size();
        [self.table.get().channels, height, width].map(|dim| dim as i64)
    }

    /// Returns whether the tensor of `other` has the same shape and type.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.dtype() == other.dtype()
    }

    /// Executes the operations, and writes the tensor.
    pub(crate) fn write(&self, to: &mut [u8]) -> Result<(), ImageError> {
        self.plan.run(self.source.exact(), |planes| match self.dtype().bytes() {
            Some(1) => self.look_up::<1>(planes, to),
            Some(2) => self.look_up::<2>(planes, to),
            Some(4) => self.look_up::<4>(planes, to),
            _ => self.look_up::<8>(planes, to),
        })
    }

    /// Writes numbers of `N` bytes.
    fn look_up<const N: usize>(&self, planes: &[u8], to: &mut [u8]) {
        let ByteTable { channels, numbers, .. } = self.table.get();
        let [height, width] = self.plan.size();
        let numbers = numbers.as_chunks::<N>().0.as_chunks::<256>().0;
        let to = to.as_chunks_mut::<N>().0.chunks_exact_mut(height * width);
        for (c, ((plane, numbers), to)) in
            planes.chunks_exact(height * width).zip(numbers).zip(to).take(*channels).enumerate()
        {
            plane.iter().zip(&mut *to).for_each(|(&byte, to)| *to = numbers[usize::from(byte)]);
            for ([top, left, h, w], erased) in &self.erased {
                let rows = to.chunks_exact_mut(width).skip(*top).take(*h);
                rows.for_each(|row| row[*left..left + w].fill(erased.as_chunks().0[c]));
            }
        }
    }
}

fn not_lifted(error: ImageError) -> PyErr {
    NotLifted::new_err(error.to_string())
}

fn unknown(name: &str) -> PyErr {
    NotLifted::new_err(format!("{name:?} is not known"))
}

/// Returns whether a file decodes to the same pixels as in PIL: JPEGs of 8 bits, grey or in colour,
/// and PNGs of up to 8 bits.
fn is_exact(bytes: &[u8]) -> bool {
    match bytes {
        [0xFF, 0xD8, ..] => cfg!(feature = "turbo") && is_exact_jpeg(bytes),
        // PIL warns of palettes with transparency, so leave them to it.
        [0x89, b'P', b'N', b'G', ..] => match (bytes.get(24), bytes.get(25)) {
            (Some(..=8), Some(3)) => !bytes.windows(4).take_while(|name| name != b"IDAT").any(|name| name == b"tRNS"),
            (Some(depth), _) => *depth <= 8,
            _ => false,
        },
        _ => false,
    }
}

fn is_exact_jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some([0xFF, marker, high, low]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        match marker {
            // Baseline, extended and progressive JPEG.
            0xC0..=0xC2 => return bytes.get(at + 4) == Some(&8) && matches!(bytes.get(at + 9), Some(1 | 3)),
            0xC3..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => return false,
            0xFF => at += 1,
            0x01 | 0xD0..=0xDA => return false,
            _ => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    false
}
