//! The orientation that cameras store in the metadata of a picture.

/// The way in which a stored picture must be turned to be upright (EXIF tag 0x0112).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orientation {
    /// Whether stored rows are columns of the upright picture.
    pub(crate) transposed: bool,
    /// Whether the upright picture reads the stored rows from the last to the first.
    pub(crate) rows_reversed: bool,
    /// Whether the upright picture reads the stored columns from the last to the first.
    pub(crate) columns_reversed: bool,
}

impl Orientation {
    /// Reads the orientation from EXIF data (a TIFF structure), or else from XMP data, as PIL's
    /// `exif_transpose` does. The picture counts as upright if neither has an orientation, or if
    /// the data is damaged.
    pub(crate) fn of(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Self {
        let number = exif.and_then(number).or_else(|| xmp.and_then(number_in_xmp));
        let (transposed, rows_reversed, columns_reversed) = match number {
            Some(2) => (false, false, true),
            Some(3) => (false, true, true),
            Some(4) => (false, true, false),
            Some(5) => (true, false, false),
            Some(6) => (true, true, false),
            Some(7) => (true, true, true),
            Some(8) => (true, false, true),
            _ => (false, false, false),
        };
        Self { transposed, rows_reversed, columns_reversed }
    }

    /// Reads the orientation of a JPEG from the segments before the image data. EXIF data may be
    /// split over several segments; of several XMP segments the last one counts.
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(crate) fn of_jpeg(bytes: &[u8]) -> Self {
        let (mut exif, mut xmp) = (None, None);
        for (_, data) in Segments::new(bytes).filter(|(marker, _)| *marker == 0xe1) {
            if let Some(part) = data.strip_prefix(EXIF) {
                exif.get_or_insert_with(Vec::new).extend_from_slice(part);
            } else if let Some(data) = data.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0") {
                xmp = Some(data);
            }
        }
        Self::of(exif.as_deref(), xmp)
    }
}

/// The prefix that may precede the TIFF structure.
const EXIF: &[u8] = b"Exif\0\0";

/// An iterator over the segments of a JPEG before its image data: markers and their contents.
pub(super) struct Segments<'a> {
    /// The bytes after the segments that were read; at the end, the image data.
    pub(super) rest: &'a [u8],
    /// Whether invalid bytes between segments were skipped.
    #[cfg_attr(any(not(feature = "jpeg"), feature = "turbo"), allow(dead_code))]
    pub(super) skipped: bool,
}

impl<'a> Segments<'a> {
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(super) fn new(jpeg: &'a [u8]) -> Self {
        Self { rest: jpeg.get(2..).unwrap_or_default(), skipped: false }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let [first, marker, after @ ..] = self.rest {
            match marker {
                // Bytes that belong to no segment. libjpeg and PIL skip them, also escaped ones.
                _ if *first != 0xff => (self.rest, self.skipped) = (&self.rest[1..], true),
                0 => (self.rest, self.skipped) = (after, true),
                // Fill bytes before a marker are allowed.
                0xff => self.rest = &self.rest[1..],
                // The image begins or ends, or another file begins.
                0xd8..=0xda => return None,
                // Markers that have no segment.
                0x01 | 0xd0..=0xd7 => self.rest = after,
                _ => {
                    let len = u16::from_be_bytes(*after.first_chunk()?);
                    let (segment, rest) = after.split_at_checked(len.into())?;
                    // `None` if the length is less than that of its own two bytes.
                    let data = segment.get(2..)?;
                    self.rest = rest;
                    return Some((*marker, data));
                }
            }
        }
        None
    }
}

/// Returns the value of the orientation tag in the first directory. It may have any numeric type.
fn number(exif: &[u8]) -> Option<u64> {
    let tiff = exif.strip_prefix(EXIF).unwrap_or(exif);
    let tiff = tiff.strip_prefix(EXIF).unwrap_or(tiff);
    let big = match tiff.get(..4)? {
        b"MM\0*" | b"MM*\0" => true,
        b"II*\0" | b"II\0*" => false,
        _ => return None,
    };
    let at = |at: usize, len: usize| {
        let bytes = tiff.get(at..at.checked_add(len)?)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    };
    let directory = at(4, 4)? as usize;
    for i in 0..at(directory, 2)? as usize {
        let entry = directory.checked_add(2 + 12 * i)?;
        let (tag, kind, count) = (at(entry, 2)?, at(entry + 2, 2)?, at(entry + 4, 4)?);
        let len = match kind {
            // Byte and string types are not accepted as an orientation.
            1 | 2 | 7 => 0,
            6 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16 => 8,
            _ => continue,
        };
        if tag == 0x0112 && count > 0 {
            let place = at(entry + 8, 4)? as usize;
            let value = if count * len > 4 { place } else { entry + 8 };
            // PIL reads all values of the tag, and uses the first.
            tiff.get(value..value.checked_add((count * len) as usize)?)?;
            return match kind {
                5 | 10 => at(value, 4)?.checked_div(at(value + 4, 4)?),
                11 => Some(f32::from_bits(at(value, 4)? as u32) as u64),
                12 => Some(f64::from_bits(at(value, 8)?) as u64),
                _ => at(value, len as usize),
            };
        }
    }
    None
}

/// Returns the digit after the first `tiff:Orientation="` or `tiff:Orientation>`.
fn number_in_xmp(xmp: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"tiff:Orientation";
    let behind = |at: usize| {
        let rest = &xmp[at + NAME.len()..];
        let digit = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?.first()?;
        digit.is_ascii_digit().then(|| u64::from(digit - b'0'))
    };
    let names = xmp.windows(NAME.len()).enumerate().filter(|(_, name)| *name == NAME);
    names.map(|(at, _)| at).find_map(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u16) -> Orientation {
        Orientation::of(Some(&tiff(true, 3, number)), None)
    }

    /// Builds a directory with another tag before the orientation, which has the type `kind`.
    fn tiff(big: bool, kind: u16, orientation: u16) -> Vec<u8> {
        let short = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let long = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut out = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        out.extend(long(8));
        out.extend(short(2));
        for (tag, kind, value) in [(0x0100, 3, 7), (0x0112, kind, orientation)] {
            out.extend(short(tag));
            out.extend(short(kind));
            out.extend(long(1));
            if kind == 3 {
                out.extend(short(value));
                out.extend(short(0));
            } else {
                out.extend(long(value.into()));
            }
        }
        out.extend(long(0));
        out
    }

    #[test]
    fn orientations_are_read_in_both_byte_orders() {
        for big in [false, true] {
            for kind in [3, 4, 9, 13] {
                for wanted in 1..=8 {
                    assert_eq!(Orientation::of(Some(&tiff(big, kind, wanted)), None), of(wanted), "{kind}");
                }
            }
        }
        assert_ne!(of(6), of(8));
    }

    /// The expected results are those of PIL 13's `exif_transpose`.
    #[test]
    fn xmp_counts_where_exif_has_no_orientation() {
        let xmp = b"<x:xmpmeta a='tiff:Orientation'><tiff:Orientation>6</tiff:Orientation>";
        let attribute = b"<rdf:Description tiff:Orientation=\"8\"/>";
        let none = [&b"MM\0*\0\0\0\x08\0\x01\x01\0\0\x03\0\0\0\x01\0\x07\0\0"[..], &[0; 4]].concat();
        let text = [&none[..10], b"\x01\x12\0\x02\0\0\0\x026\0\0\0"].concat();
        for (exif, xmp, wanted) in [
            (None, &xmp[..], 6),
            (None, attribute, 8),
            (None, b"tiff:Orientation='6'", 1),
            (None, b"tiff:Orientation=\"9\"", 1),
            (Some(&none), xmp, 6),
            (Some(&tiff(false, 3, 3)), xmp, 3),
            (Some(&tiff(true, 3, 9)), xmp, 1),
            (Some(&tiff(true, 40, 3)), attribute, 8),
            (Some(&text), attribute, 1),
        ] {
            let found = Orientation::of(exif.map(|exif| &exif[..]), Some(xmp));
            assert_eq!(found, of(wanted), "{exif:?}, {}", xmp.escape_ascii());
        }
    }

    #[test]
    fn damaged_data_is_upright() {
        let exif = tiff(true, 3, 6);
        for len in 0..exif.len() - 8 {
            assert_eq!(Orientation::of(Some(&exif[..len]), None), Orientation::default(), "{len}");
        }
        for at in 0..exif.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = exif.clone();
                damaged[at] = byte;
                let _ = Orientation::of(Some(&damaged), None);
            }
        }
    }

    #[test]
    fn a_jpeg_has_its_orientation_in_a_segment() {
        let exif = [b"Exif\0\0".to_vec(), tiff(false, 3, 8)].concat();
        let len = |len: usize| ((len + 2) as u16).to_be_bytes();
        let jpeg = [&b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xe1"[..], &len(exif.len()), &exif, b"\xff\xda\0\x02"].concat();
        assert_eq!(Orientation::of_jpeg(&jpeg), of(8));
        for len in 0..jpeg.len() {
            let _ = Orientation::of_jpeg(&jpeg[..len]);
        }
        assert_eq!(Orientation::of_jpeg(b"\xff\xd8\xff\xe1\0\0"), Orientation::default());
    }
}
