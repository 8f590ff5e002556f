//! A safe interface to the parts of libjpeg-turbo that this crate uses, with checks of all sizes.
//!
//! The crate `turbojpeg` is not used because it has no cropping, and does not distinguish warnings
//! from errors.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use turbojpeg_sys as sys;

use super::shared::most_scans;

/// The prefixes of libjpeg's warning messages. libjpeg-turbo reports an error that follows a
/// warning as a warning, too, but with the error's message; a part of the output is then not
/// written.
const WARNINGS: [&str; 6] = [
    "Corrupt JPEG data",
    "Premature end of JPEG file",
    "Inconsistent progression sequence",
    "Invalid SOS parameters for sequential JPEG",
    "Unknown Adobe color transform code",
    "Warning:",
];

/// A decompressor for one picture. It is not reused, because it would apply the tables of the last
/// picture to pictures without tables.
#[derive(Debug)]
pub(super) struct Turbo<'a> {
    handle: NonNull<c_void>,
    bytes: &'a [u8],
    header: Header,
    denominator: usize,
    crop: Option<Region>,
    stop: bool,
    /// Whether libjpeg warned about something.
    pub(super) warned: bool,
}

/// The contents of a JPEG's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) colours: Colours,
    pub(super) lossless: bool,
    pub(super) progressive: bool,
    /// The number of pixels per sample of the colour differences, across and down. `None` if the
    /// sampling is unusual.
    pub(super) per: Option<[usize; 2]>,
    subsampling: c_int,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    Rgb,
    YCbCr,
    Grey,
    /// CMYK or YCCK.
    Inks,
}

/// A part of a picture, in pixels of the reduced size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The message of an error.
pub(super) type Fault = String;

impl Drop for Turbo<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and not used afterwards.
        unsafe { sys::tj3Destroy(self.handle.as_ptr()) };
    }
}

impl<'a> Turbo<'a> {
    /// Reads the header. With `stop`, the first warning ends decoding with an error.
    pub(super) fn open(bytes: &'a [u8], stop: bool) -> Result<Self, Fault> {
        // SAFETY: any number may be passed; the result is checked.
        let handle = unsafe { sys::tj3Init(sys::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let handle = NonNull::new(handle).ok_or("libjpeg-turbo is out of memory")?;
        let nothing = Header {
            width: 0,
            height: 0,
            colours: Colours::Rgb,
            lossless: false,
            progressive: false,
            per: None,
            subsampling: -1,
        };
        let mut turbo = Self { handle, bytes, header: nothing, denominator: 1, crop: None, stop, warned: false };
        turbo.set(sys::TJPARAM_TJPARAM_STOPONWARNING, c_int::from(stop))?;
        // SAFETY: the handle is valid, and the pointer and the length are those of a slice.
        let code = unsafe { sys::tj3DecompressHeader(turbo.pointer(), bytes.as_ptr(), bytes.len() as _) };
        turbo.check(code)?;
        // In a file with tables but no picture, the sizes are -1.
        let side = |which| usize::try_from(turbo.get(which)).ok().filter(|&side| side > 0);
        let sides = side(sys::TJPARAM_TJPARAM_JPEGWIDTH).zip(side(sys::TJPARAM_TJPARAM_JPEGHEIGHT));
        let (width, height) = sides.ok_or("it contains no image")?;
        turbo.set(sys::TJPARAM_TJPARAM_SCANLIMIT, most_scans(width.saturating_mul(height)) as c_int)?;
        let bits = turbo.get(sys::TJPARAM_TJPARAM_PRECISION);
        if bits != 8 {
            return Err(format!("its colours have {bits} bits, not 8"));
        }
        let colours = match turbo.get(sys::TJPARAM_TJPARAM_COLORSPACE) as sys::TJCS {
            sys::TJCS_TJCS_YCbCr => Colours::YCbCr,
            sys::TJCS_TJCS_GRAY => Colours::Grey,
            sys::TJCS_TJCS_RGB => Colours::Rgb,
            _ => Colours::Inks,
        };
        let subsampling = turbo.get(sys::TJPARAM_TJPARAM_SUBSAMP);
        let per = match subsampling {
            sys::TJSAMP_TJSAMP_444 | sys::TJSAMP_TJSAMP_GRAY => Some([1, 1]),
            sys::TJSAMP_TJSAMP_422 => Some([2, 1]),
            sys::TJSAMP_TJSAMP_420 => Some([2, 2]),
            sys::TJSAMP_TJSAMP_440 => Some([1, 2]),
            sys::TJSAMP_TJSAMP_411 => Some([4, 1]),
            sys::TJSAMP_TJSAMP_441 => Some([1, 4]),
            _ => None,
        };
        let lossless = turbo.get(sys::TJPARAM_TJPARAM_LOSSLESS) != 0;
        let progressive = turbo.get(sys::TJPARAM_TJPARAM_PROGRESSIVE) != 0;
        turbo.header = Header { width, height, colours, lossless, progressive, per, subsampling };
        Ok(turbo)
    }

    pub(super) fn header(&self) -> Header {
        self.header
    }

    /// Sets the reduction: pictures are decoded at one `denominator`-th of their size, where
    /// `denominator` is 1, 2, 4 or 8.
    pub(super) fn reduce(&mut self, denominator: usize) -> Result<(), Fault> {
        let factor = sys::tjscalingfactor { num: 1, denom: denominator as c_int };
        // SAFETY: the handle is valid.
        self.check(unsafe { sys::tj3SetScalingFactor(self.pointer(), factor) })?;
        self.denominator = denominator;
        Ok(())
    }

    /// Returns the width and height at the reduced size.
    pub(super) fn reduced(&self) -> [usize; 2] {
        [self.header.width, self.header.height].map(|side| side.div_ceil(self.denominator))
    }

    /// Makes [`packed`](Self::packed) decode only this region.
    pub(super) fn crop(&mut self, region: Region) -> Result<(), Fault> {
        let Region { x, y, width, height } = region;
        let [x, y, w, h] = [x, y, width, height].map(|number| number as c_int);
        // SAFETY: the handle is valid. The library checks the numbers.
        self.check(unsafe { sys::tj3SetCroppingRegion(self.pointer(), sys::tjregion { x, y, w, h }) })?;
        self.crop = Some(region);
        Ok(())
    }

    /// Decodes to RGB, grey or CMYK pixels, in rows without gaps.
    pub(super) fn packed(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        let (format, size) = match self.header.colours {
            Colours::Inks => (sys::TJPF_TJPF_CMYK, 4),
            Colours::Grey => (sys::TJPF_TJPF_GRAY, 1),
            Colours::YCbCr | Colours::Rgb => (sys::TJPF_TJPF_RGB, 3),
        };
        let [width, height] = match self.crop {
            Some(Region { width, height, .. }) => [width, height],
            None => self.reduced(),
        };
        assert!(width * height * size <= out.len(), "{width} × {height} pixels of {size} bytes");
        let (pitch, bytes) = ((width * size) as c_int, self.bytes);
        // SAFETY: the handle is valid, the input is a slice, and the output has room for every row,
        // as checked above.
        let code = unsafe {
            let out = out.as_mut_ptr();
            sys::tj3Decompress8(self.pointer(), bytes.as_ptr(), bytes.len() as _, out, pitch, format)
        };
        self.check(code)
    }

    /// Returns the width and height of the planes at the reduced size: of brightness, and of the
    /// colour differences.
    pub(super) fn plane_sizes(&self) -> [[usize; 2]; 2] {
        let [width, height] = self.reduced().map(|side| side as c_int);
        [0, 1].map(|plane| {
            // SAFETY: these functions only compute with numbers, and return 0 for invalid ones.
            let size = unsafe {
                [
                    sys::tj3YUVPlaneWidth(plane, width, self.header.subsampling),
                    sys::tj3YUVPlaneHeight(plane, height, self.header.subsampling),
                ]
            };
            size.map(|side| usize::try_from(side).unwrap_or(0))
        })
    }

    /// Decodes to planes without gaps: brightness and, unless the picture is grey, two colour
    /// differences.
    pub(super) fn planes(&mut self, mut out: &mut [u8]) -> Result<(), Fault> {
        let [first, others] = self.plane_sizes();
        let sizes = if self.header.colours == Colours::Grey { vec3(first, [0; 2]) } else { vec3(first, others) };
        let mut pointers = [std::ptr::null_mut(); 3];
        let mut strides = [0; 3];
        for ((pointer, stride), [width, height]) in pointers.iter_mut().zip(&mut strides).zip(sizes) {
            let plane = out.split_off_mut(..width * height).expect("`out` has room for the planes");
            (*pointer, *stride) = (plane.as_mut_ptr(), width as c_int);
        }
        let bytes = self.bytes;
        // SAFETY: the handle is valid, the input is a slice, and each plane has room for as many
        // rows and columns as the library says that it writes. For a grey picture, only the first
        // plane is written.
        let code = unsafe {
            let planes = pointers.as_mut_ptr();
            sys::tj3DecompressToYUVPlanes8(
                self.pointer(),
                bytes.as_ptr(),
                bytes.len() as _,
                planes,
                strides.as_mut_ptr(),
            )
        };
        self.check(code)
    }

    fn pointer(&self) -> *mut c_void {
        self.handle.as_ptr()
    }

    fn set(&mut self, which: sys::TJPARAM, value: c_int) -> Result<(), Fault> {
        // SAFETY: the handle is valid.
        self.check(unsafe { sys::tj3Set(self.pointer(), which as c_int, value) })
    }

    fn get(&self, which: sys::TJPARAM) -> c_int {
        // SAFETY: the handle is valid.
        unsafe { sys::tj3Get(self.pointer(), which as c_int) }
    }

    fn check(&mut self, code: c_int) -> Result<(), Fault> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the handle is valid, and its message is a NUL-terminated string that lives until
        // the next call.
        let (message, code) = unsafe {
            let message = CStr::from_ptr(sys::tj3GetErrorStr(self.pointer())).to_string_lossy().into_owned();
            (message, sys::tj3GetErrorCode(self.pointer()))
        };
        let message = message.replace('\n', " ");
        let warning = code == sys::TJERR_TJERR_WARNING as c_int;
        let warning = warning && WARNINGS.iter().any(|start| message.starts_with(start));
        self.warned |= warning;
        if warning && !self.stop { Ok(()) } else { Err(message) }
    }
}

/// Returns the sizes of three planes, of which the last two are equal.
fn vec3(first: [usize; 2], others: [usize; 2]) -> [[usize; 2]; 3] {
    [first, others, others]
}
