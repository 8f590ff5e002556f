//! The orientation that cameras note beside a picture.

/// How a picture must be turned to be upright, as EXIF's tag 0x0112 has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orientation {
    /// Rows are columns of the upright picture.
    pub(crate) transposed: bool,
    /// The upright picture reads the stored rows from the last to the first.
    pub(crate) rows_reversed: bool,
    /// The upright picture reads the stored columns from the last to the first.
    pub(crate) columns_reversed: bool,
}

impl Orientation {
    /// Reads the orientation from a TIFF structure, as EXIF data is; upright if it has none or is damaged, as in PIL.
    pub(crate) fn of_exif(exif: &[u8]) -> Self {
        Self::of_number(number(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif)).unwrap_or(1))
    }

    fn of_number(number: u16) -> Self {
        let (transposed, rows_reversed, columns_reversed) = match number {
            2 => (false, false, true),
            3 => (false, true, true),
            4 => (false, true, false),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Self { transposed, rows_reversed, columns_reversed }
    }

    /// Reads the orientation of a JPEG, from the first EXIF segment in front of the image.
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(crate) fn of_jpeg(bytes: &[u8]) -> Self {
        let exif = Segments::new(bytes).find(|(marker, data)| *marker == 0xe1 && data.starts_with(b"Exif\0\0"));
        exif.map(|(_, data)| Self::of_exif(data)).unwrap_or_default()
    }
}

/// The segments of a JPEG in front of its image: markers, and their data.
pub(super) struct Segments<'a> {
    /// After the last segment, the image.
    pub(super) rest: &'a [u8],
}

impl<'a> Segments<'a> {
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(super) fn new(jpeg: &'a [u8]) -> Self {
        Self { rest: jpeg.get(2..).unwrap_or_default() }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let [0xff, marker, after @ ..] = self.rest {
            match marker {
                // Fill bytes before a marker are allowed.
                0xff => self.rest = &self.rest[1..],
                // The image begins, or ends.
                0xda | 0xd9 => return None,
                // Markers without a segment.
                0x01 | 0xd0..=0xd8 => self.rest = after,
                _ => {
                    let len = u16::from_be_bytes(*after.first_chunk()?);
                    let (segment, rest) = after.split_at_checked(len.into())?;
                    // None if the length does not count its own two bytes.
                    let data = segment.get(2..)?;
                    self.rest = rest;
                    return Some((*marker, data));
                }
            }
        }
        None
    }
}

/// Returns the number of the tag in the first directory.
fn number(tiff: &[u8]) -> Option<u16> {
    let big = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes: [u8; 4] = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) } as usize)
    };
    let directory = long(4)?;
    (0..usize::from(short(directory)?))
        .map(|i| directory.saturating_add(2 + 12 * i))
        .find(|&entry| short(entry) == Some(0x0112))
        .and_then(|entry| short(entry.saturating_add(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with one other tag in front of the orientation.
    fn tiff(big: bool, orientation: u16) -> Vec<u8> {
        let short = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let long = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut out = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        out.extend(long(8));
        out.extend(short(2));
        for (tag, value) in [(0x0100, 7), (0x0112, orientation)] {
            out.extend(short(tag));
            out.extend(short(3));
            out.extend(long(1));
            out.extend(short(value));
            out.extend(short(0));
        }
        out.extend(long(0));
        out
    }

    #[test]
    fn orientations_are_read_in_both_byte_orders() {
        for big in [false, true] {
            for wanted in 1..=8 {
                assert_eq!(Orientation::of_exif(&tiff(big, wanted)), Orientation::of_number(wanted));
            }
        }
        assert_ne!(Orientation::of_number(6), Orientation::of_number(8));
    }

    #[test]
    fn damaged_data_is_upright() {
        let exif = tiff(true, 6);
        for len in 0..exif.len() - 6 {
            assert_eq!(Orientation::of_exif(&exif[..len]), Orientation::default(), "{len}");
        }
        for at in 0..exif.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = exif.clone();
                damaged[at] = byte;
                let _ = Orientation::of_exif(&damaged);
            }
        }
    }

    #[test]
    fn a_jpeg_has_its_orientation_in_a_segment() {
        let exif = [b"Exif\0\0".to_vec(), tiff(false, 8)].concat();
        let len = |len: usize| ((len + 2) as u16).to_be_bytes();
        let jpeg = [&b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xe1"[..], &len(exif.len()), &exif, b"\xff\xda\0\x02"].concat();
        assert_eq!(Orientation::of_jpeg(&jpeg), Orientation::of_number(8));
        for len in 0..jpeg.len() {
            let _ = Orientation::of_jpeg(&jpeg[..len]);
        }
        assert_eq!(Orientation::of_jpeg(b"\xff\xd8\xff\xe1\0\0"), Orientation::default());
    }
}
