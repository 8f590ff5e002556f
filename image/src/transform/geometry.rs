//! Transforms that choose which part of a picture is shown, and at which size.

use std::borrow::Cow;

use super::fill::Fill;
use super::{Apply, ResizeTo, Size, check_p, check_range};
use crate::axis_map::PaddingMode;
use crate::decode::MAX_SIDE;
use crate::draw::{Random, Step};
use crate::error::ImageError;
use crate::exact::Resampling;
use crate::plan::Plan;
use crate::text::{Arguments, Configure, Literal, Value, word_of};

/// A transform that resizes a picture with antialiasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// The new size: `256` for the shorter side, or `[224, 224]` for height and width.
    pub size: ResizeTo,
    /// The filter (default: bilinear). Another one needs [`exact`](crate::PipelineBuilder::exact).
    pub interpolation: Resampling,
    /// The maximum length of the longer side, if `size` is that of the shorter one (default: none).
    /// It must be larger than `size`.
    pub max_size: Option<usize>,
}

impl Resize {
    /// Creates a transform that resizes the shorter side to `256`, or to a height and width of
    /// `[224, 224]`.
    pub fn new(size: impl Into<ResizeTo>) -> Self {
        Self { size: size.into(), interpolation: Resampling::default(), max_size: None }
    }

    fn of(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        let side = match self.size {
            ResizeTo::Exact(size) => return size.array(),
            ResizeTo::Shorter(side) => side,
        };
        let (short, long) = (height.min(width), height.max(width));
        let mut new = [side, side * long / short];
        if let Some(most) = self.max_size.filter(|&most| new[1] > most) {
            new = [most * new[0] / new[1], most];
        }
        // The longer side may be any length: the pass computes only the part of it that a later
        // crop keeps.
        let [short, long] = new.map(|side| side.max(1));
        if height <= width { [short, long] } else { [long, short] }
    }
}

impl Apply for Resize {
    fn check(&self) -> Result<(), ImageError> {
        match (self.size, self.max_size) {
            (ResizeTo::Exact(size), None) => size.check("Resize"),
            (ResizeTo::Exact(_), Some(_)) => {
                Err(ImageError::parameter("Resize", "max_size", "is only for a size of the shorter side"))
            }
            (ResizeTo::Shorter(side), most) => {
                Size::from(side).check("Resize")?;
                match most.filter(|&most| most <= side || most > MAX_SIDE) {
                    Some(most) => {
                        let message = format!("is {most}; it must be above the size, {side}, and at most {MAX_SIDE}");
                        Err(ImageError::parameter("Resize", "max_size", message))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    fn size(&self, size: Option<[usize; 2]>) -> Option<[usize; 2]> {
        match self.size {
            ResizeTo::Exact(size) => Some(size.array()),
            ResizeTo::Shorter(_) => size.map(|size| self.of(size)),
        }
    }

    fn is_random(&self) -> bool {
        false
    }

    fn draw(&self, _: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
        Ok(Step::Fixed)
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        step.expect_fixed("Resize")?;
        plan.resize(self.of(plan.size()), self.interpolation);
        Ok(())
    }
}

impl Configure for Resize {
    fn blank() -> Self {
        Self::new(0)
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.required("size", &mut self.size)?;
        arguments.optional("interpolation", &mut self.interpolation)?;
        arguments.optional("max_size", &mut self.max_size)
    }
}

/// A transform that crops the centre of a picture. Smaller pictures are padded with black.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CenterCrop {
    /// The size of the crop.
    pub size: Size,
}

impl CenterCrop {
    /// Creates a crop of a square with sides of `224`, or with a height and a width of
    /// `[224, 160]`.
    pub fn new(size: impl Into<Size>) -> Self {
        Self { size: size.into() }
    }
}

impl Apply for CenterCrop {
    fn check(&self) -> Result<(), ImageError> {
        self.size.check("CenterCrop")
    }

    fn size(&self, _: Option<[usize; 2]>) -> Option<[usize; 2]> {
        Some(self.size.array())
    }

    fn is_random(&self) -> bool {
        false
    }

    fn draw(&self, _: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
        Ok(Step::Fixed)
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        step.expect_fixed("CenterCrop")?;
        let (size, wanted) = (plan.size(), self.size.array());
        let missing = [0, 1].map(|i| wanted[i].saturating_sub(size[i]));
        plan.pad(missing.map(|missing| [missing / 2, missing.div_ceil(2)]), PaddingMode::Constant, [0; 3]);
        let size = plan.size();
        // Rounds half to even, as Python does.
        let at = [0, 1].map(|i| ((size[i] - wanted[i]) as f64 / 2.0).round_ties_even() as usize);
        plan.crop(at, wanted);
        Ok(())
    }
}

impl Configure for CenterCrop {
    fn blank() -> Self {
        Self::new(0)
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.required("size", &mut self.size)
    }
}

/// A transform that crops a picture at a random position, after padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomCrop {
    /// The size of the crop.
    pub size: Size,
    /// The number of pixels that are added at the left, top, right and bottom (default: none).
    pub padding: [usize; 4],
    /// Whether pictures that are too small are padded until the crop fits (default: false).
    /// Otherwise such pictures are errors.
    pub pad_if_needed: bool,
    /// The colour of constant padding (default: black).
    pub fill: [u8; 3],
    /// What padding is set to (default: the colour `fill`).
    pub padding_mode: PaddingMode,
}

impl RandomCrop {
    /// Creates a crop of a square with sides of `32`, or with a height and a width of `[32, 48]`.
    pub fn new(size: impl Into<Size>) -> Self {
        let padding_mode = PaddingMode::Constant;
        Self { size: size.into(), padding: [0; 4], pad_if_needed: false, fill: [0; 3], padding_mode }
    }

    /// Sets the padding of all four sides to this number of pixels.
    pub fn padding(self, pixels: usize) -> Self {
        Self { padding: [pixels; 4], ..self }
    }

    /// Returns the padding before and after, for rows and for columns.
    fn padding_of(&self, size: [usize; 2]) -> [[usize; 2]; 2] {
        let [left, top, right, bottom] = self.padding;
        let wanted = self.size.array();
        let mut sides = [[top, bottom], [left, right]];
        if self.pad_if_needed {
            for i in 0..2 {
                let missing = wanted[i].saturating_sub(size[i] + sides[i][0] + sides[i][1]);
                sides[i] = sides[i].map(|side| side + missing);
            }
        }
        sides
    }

    fn padded(&self, size: [usize; 2]) -> Result<[usize; 2], ImageError> {
        let sides = self.padding_of(size);
        let too_small = |advice| {
            let [height, width] = size;
            Err(ImageError::TooSmall { transform: "RandomCrop", width, height, advice })
        };
        for i in 0..2 {
            let most = match self.padding_mode {
                PaddingMode::Reflect => size[i] - 1,
                PaddingMode::Symmetric => size[i],
                _ => usize::MAX,
            };
            if sides[i].iter().any(|&side| side > most) {
                return too_small("mirrored padding cannot be larger than the picture: use edge or constant");
            }
        }
        let padded = [0, 1].map(|i| size[i] + sides[i][0] + sides[i][1]);
        let wanted = self.size.array();
        if padded[0] < wanted[0] || padded[1] < wanted[1] {
            return too_small("set `pad_if_needed` or `padding`, or resize first");
        }
        Ok(padded)
    }
}

impl Apply for RandomCrop {
    fn check(&self) -> Result<(), ImageError> {
        self.size.check("RandomCrop")?;
        match self.padding.iter().find(|&&side| side > MAX_SIDE) {
            Some(side) => Err(ImageError::parameter(
                "RandomCrop",
                "padding",
                format!("is {side}; at most {MAX_SIDE} is possible"),
            )),
            None => Ok(()),
        }
    }

    fn size(&self, _: Option<[usize; 2]>) -> Option<[usize; 2]> {
        Some(self.size.array())
    }

    fn is_random(&self) -> bool {
        true
    }

    fn draw(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<Step, ImageError> {
        let (padded, Size { height, width }) = (self.padded(size)?, self.size);
        let top = random.below(padded[0] - height + 1);
        let left = random.below(padded[1] - width + 1);
        Ok(Step::Crop { top, left, height, width })
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        let size = plan.size();
        let padded = self.padded(size)?;
        let (at, crop) = step.expect_crop("RandomCrop", padded)?;
        if crop != self.size.array() {
            return Err(ImageError::draw("the crop of RandomCrop has another size"));
        }
        plan.pad(self.padding_of(size), self.padding_mode, self.fill);
        plan.crop(at, crop);
        Ok(())
    }
}

impl Configure for RandomCrop {
    fn blank() -> Self {
        Self::new(0)
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        let (mut padding, mut fill) = (Padding(self.padding), Fill(self.fill));
        arguments.required("size", &mut self.size)?;
        arguments.optional("padding", &mut padding)?;
        arguments.optional("pad_if_needed", &mut self.pad_if_needed)?;
        arguments.optional("fill", &mut fill)?;
        arguments.optional("padding_mode", &mut self.padding_mode)?;
        (self.padding, self.fill) = (padding.0, fill.0);
        Ok(())
    }
}

/// The argument for the padding at the left, top, right and bottom.
struct Padding([usize; 4]);

impl Value for Padding {
    fn expected() -> Cow<'static, str> {
        "a whole number, [left and right, top and bottom], or [left, top, right, bottom]".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        let all = || usize::read(literal).map(|all| [all; 4]);
        let pairs = || <[usize; 2]>::read(literal).map(|[x, y]| [x, y, x, y]);
        all().or_else(pairs).or_else(|| Value::read(literal)).map(Self)
    }

    fn write(&self) -> String {
        if self.0 == [self.0[0]; 4] { self.0[0].write() } else { self.0.write() }
    }
}

impl Value for PaddingMode {
    fn expected() -> Cow<'static, str> {
        "constant, edge, reflect or symmetric".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        let words = [
            ("constant", Self::Constant),
            ("edge", Self::Edge),
            ("reflect", Self::Reflect),
            ("symmetric", Self::Symmetric),
        ];
        word_of(literal, &words)
    }

    fn write(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl Value for Resampling {
    fn expected() -> Cow<'static, str> {
        Self::ALL.map(|(name, _)| name).join(", ").into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        word_of(literal, &Self::ALL).or_else(|| word_of(literal, &[("nearest_exact", Self::Nearest)]))
    }

    fn write(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A transform that crops a part of random size, proportion and position, and resizes it: the usual
/// augmentation for ImageNet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomResizedCrop {
    /// The size of the result.
    pub size: Size,
    /// The smallest and the largest fraction of the picture's area (default: 0.08 to 1).
    pub scale: [f64; 2],
    /// The smallest and the largest width divided by the height (default: 3/4 to 4/3).
    pub ratio: [f64; 2],
    /// The filter (default: bilinear). Another one needs [`exact`](crate::PipelineBuilder::exact).
    pub interpolation: Resampling,
}

impl RandomResizedCrop {
    /// Creates a transform to a square with sides of `224`, or to a height and a width of
    /// `[224, 160]`.
    pub fn new(size: impl Into<Size>) -> Self {
        let (scale, ratio) = ([0.08, 1.0], [3.0 / 4.0, 4.0 / 3.0]);
        Self { size: size.into(), scale, ratio, interpolation: Resampling::default() }
    }
}

impl Apply for RandomResizedCrop {
    fn check(&self) -> Result<(), ImageError> {
        self.size.check("RandomResizedCrop")?;
        check_range("RandomResizedCrop", "scale", self.scale, [f64::MIN_POSITIVE, f64::MAX])?;
        check_range("RandomResizedCrop", "ratio", self.ratio, [f64::MIN_POSITIVE, f64::MAX])
    }

    fn size(&self, _: Option<[usize; 2]>) -> Option<[usize; 2]> {
        Some(self.size.array())
    }

    fn is_random(&self) -> bool {
        true
    }

    fn draw(&self, random: &mut Random<'_>, [rows, columns]: [usize; 2]) -> Result<Step, ImageError> {
        let area = (rows * columns) as f64;
        let [narrow, wide] = self.ratio;
        for _ in 0..10 {
            let [width, height] = random.sides(area, self.scale, self.ratio);
            if (1..=columns).contains(&width) && (1..=rows).contains(&height) {
                let top = random.below(rows - height + 1);
                let left = random.below(columns - width + 1);
                return Ok(Step::Crop { top, left, height, width });
            }
        }
        // The largest crop around the centre whose proportion is allowed.
        let (mut height, mut width) = (rows, columns);
        let ratio = columns as f64 / rows as f64;
        if ratio < narrow {
            height = (columns as f64 / narrow).round_ties_even() as usize;
        } else if ratio > wide {
            width = (rows as f64 * wide).round_ties_even() as usize;
        }
        let (height, width) = (height.clamp(1, rows), width.clamp(1, columns));
        Ok(Step::Crop { top: (rows - height) / 2, left: (columns - width) / 2, height, width })
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        let (at, crop) = step.expect_crop("RandomResizedCrop", plan.size())?;
        plan.crop(at, crop);
        plan.resize(self.size.array(), self.interpolation);
        Ok(())
    }
}

impl Configure for RandomResizedCrop {
    fn blank() -> Self {
        Self::new(0)
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.required("size", &mut self.size)?;
        arguments.optional("scale", &mut self.scale)?;
        arguments.optional("ratio", &mut self.ratio)?;
        arguments.optional("interpolation", &mut self.interpolation)
    }
}

macro_rules! flip {
    ($name:ident, $text:literal, $short:literal, $direction:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            /// The probability of mirroring (torchvision's default: 0.5).
            pub p: f64,
        }

        impl $name {
            /// Creates a transform that mirrors with this probability.
            pub fn new(p: f64) -> Self {
                Self { p }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0.5)
            }
        }

        impl Apply for $name {
            fn check(&self) -> Result<(), ImageError> {
                check_p($text, self.p)
            }

            fn is_random(&self) -> bool {
                self.p > 0.0 && self.p < 1.0
            }

            fn draw(&self, random: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
                Ok(Step::Apply(random.chance(self.p)))
            }

            fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
                if step.expect_apply($text)? {
                    plan.mirror($direction);
                }
                Ok(())
            }
        }

        impl Configure for $name {
            const SHORT: &'static [&'static str] = &[$short];

            fn blank() -> Self {
                Self::default()
            }

            fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
                arguments.optional("p", &mut self.p)
            }
        }
    };
}

flip!(RandomHorizontalFlip, "RandomHorizontalFlip", "hflip", 1, "Mirrors left and right, with a probability.");
flip!(RandomVerticalFlip, "RandomVerticalFlip", "vflip", 0, "Mirrors top and bottom, with a probability.");
