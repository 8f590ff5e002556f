//! [`AxisMap`]: which pixel of a picture each row or column of the result comes from, after
//! resizing, crops, flips and padding.

/// The values of pixels outside of a picture, with torchvision's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// The `fill` colour of the transform.
    #[default]
    Constant,
    /// The last row or column, repeated.
    Edge,
    /// The picture mirrored, without repeating the last row or column.
    Reflect,
    /// The picture mirrored, with the last row or column repeated.
    Symmetric,
}

impl PaddingMode {
    /// Returns the index of the pixel, among `len` pixels, that is shown at `place`, which may be
    /// outside of `0..len`. Returns `None` for the fill colour.
    pub(crate) fn within(self, place: i64, len: i64) -> Option<i64> {
        if (0..len).contains(&place) {
            return Some(place);
        }
        match self {
            Self::Constant => None,
            Self::Edge => Some(place.clamp(0, len - 1)),
            Self::Reflect => {
                let period = (2 * (len - 1)).max(1);
                let turned = place.rem_euclid(period);
                Some(turned.min(period - turned).min(len - 1))
            }
            Self::Symmetric => {
                let turned = place.rem_euclid(2 * len);
                Some(turned.min(2 * len - 1 - turned))
            }
        }
    }
}

/// The rows or the columns of a picture that is cropped, resized, cropped again, flipped and
/// padded.
///
/// The picture's pixels `crop[0]..crop[1]` are resized to `size` pixels, which are called the
/// places `0..size`. The result has `out` places from `at` on, in reverse order if `mirrored`.
/// Places outside of `bounds` are padding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AxisMap {
    pub(crate) crop: [usize; 2],
    pub(crate) size: usize,
    pub(crate) at: i64,
    pub(crate) out: usize,
    pub(crate) mirrored: bool,
    pub(crate) bounds: Option<[i64; 2]>,
    pub(crate) padding: PaddingMode,
}

impl AxisMap {
    /// Creates the map that keeps all `len` pixels.
    pub(crate) fn all(len: usize) -> Self {
        Self { crop: [0, len], size: len, out: len, ..Self::default() }
    }

    /// Whether another resize can be combined with this map: nothing was resized or padded yet.
    pub(crate) fn can_resize(&self) -> bool {
        self.size == self.crop[1] - self.crop[0] && self.bounds.is_none()
    }

    /// Resizes the pixels that are left to `size` pixels.
    pub(crate) fn resize(&mut self, size: usize) {
        let from = self.crop[0] + self.at as usize;
        self.crop = [from, from + self.out];
        (self.size, self.at, self.out) = (size, 0, size);
    }

    /// Keeps `len` pixels of the result, from `at` on.
    pub(crate) fn cut(&mut self, at: usize, len: usize) {
        self.at += if self.mirrored { (self.out - at - len) as i64 } else { at as i64 };
        self.out = len;
    }

    pub(crate) fn mirror(&mut self) {
        self.mirrored = !self.mirrored;
    }

    /// Adds padding before and after the result. Returns false if it cannot be combined with
    /// earlier padding.
    pub(crate) fn pad(&mut self, before: usize, behind: usize, padding: PaddingMode) -> bool {
        if before == 0 && behind == 0 {
            return true;
        }
        if self.bounds.is_some() {
            return false;
        }
        (self.bounds, self.padding) = (Some([self.at, self.at + self.out as i64]), padding);
        self.at -= if self.mirrored { behind } else { before } as i64;
        self.out += before + behind;
        true
    }

    /// Returns the map for a picture of `len` pixels whose pixels are stored in reverse order.
    pub(crate) fn reversed(self, len: usize) -> Self {
        let size = self.size as i64;
        Self {
            crop: [len - self.crop[1], len - self.crop[0]],
            at: size - self.at - self.out as i64,
            mirrored: !self.mirrored,
            bounds: self.bounds.map(|[from, to]| [size - to, size - from]),
            ..self
        }
    }

    /// Returns the place (the index of the resized pixel) that pixel `i` of the result shows, or
    /// `None` for the fill colour.
    pub(crate) fn of(&self, i: usize) -> Option<usize> {
        let i = if self.mirrored { self.out - 1 - i } else { i } as i64;
        let place = self.at + i;
        let Some([from, to]) = self.bounds else { return Some(place as usize) };
        Some((from + self.padding.within(place - from, to - from)?) as usize)
    }

    /// Returns the range of the result's pixels that are not filled with a colour.
    pub(crate) fn content(&self) -> [usize; 2] {
        match self.bounds {
            Some(bounds) if self.padding == PaddingMode::Constant => {
                let [from, to] = bounds.map(|bound| (bound - self.at).clamp(0, self.out as i64) as usize);
                if self.mirrored { [self.out - to, self.out - from] } else { [from, to] }
            }
            _ => [0, self.out],
        }
    }

    /// Returns the first and the last of the `size` places (resized pixels) that the result shows,
    /// or `None` if all of the result is padding.
    pub(crate) fn used(&self) -> Option<[usize; 2]> {
        let (from, to) = (self.at, self.at + self.out as i64 - 1);
        let Some([low, high]) = self.bounds else { return Some([from as usize, to as usize]) };
        let inside = [from.max(low), to.min(high - 1)];
        match self.padding {
            PaddingMode::Constant if inside[0] > inside[1] => None,
            PaddingMode::Constant => Some(inside.map(|place| place as usize)),
            // With mirrored padding, any of the resized pixels may be shown.
            _ => Some([low as usize, high as usize - 1]),
        }
    }

    /// Returns the range of the picture's pixels that have a weight in the result, with a filter of
    /// this support.
    pub(crate) fn window(&self, support: f64) -> [usize; 2] {
        let Some([first, last]) = self.used() else { return [self.crop[0], self.crop[0] + 1] };
        let scale = (self.crop[1] - self.crop[0]) as f64 / self.size as f64;
        let width = support * scale.max(1.0);
        let centre = |place: usize| self.crop[0] as f64 + (place as f64 + 0.5) * scale;
        let from = (centre(first) - width).floor().max(self.crop[0] as f64) as usize;
        let to = (centre(last) + width).ceil().min(self.crop[1] as f64) as usize;
        [from.min(self.crop[1] - 1), to.max(from + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(places: &AxisMap) -> Vec<Option<usize>> {
        (0..places.out).map(|i| places.of(i)).collect()
    }

    /// Compares the map with the same operations on a list.
    #[test]
    fn combined_operations_equal_separate_ones() {
        let some = |list: &[usize]| list.iter().map(|&place| Some(place)).collect::<Vec<_>>();
        let mut places = AxisMap::all(10);
        places.mirror();
        places.cut(1, 6); // 8 to 3
        assert_eq!(list(&places), some(&[8, 7, 6, 5, 4, 3]));
        let mut padded = places;
        assert!(padded.pad(2, 1, PaddingMode::Constant));
        assert_eq!(list(&padded)[..3], [None, None, Some(8)]);
        assert_eq!((padded.content(), padded.used()), ([2, 8], Some([3, 8])));
        padded.mirror();
        padded.cut(0, 8);
        assert_eq!(list(&padded), [None, Some(3), Some(4), Some(5), Some(6), Some(7), Some(8), None]);
        assert_eq!(padded.content(), [1, 7]);
        assert!(!padded.pad(1, 0, PaddingMode::Edge), "a second padding");

        let mut padded = places;
        padded.pad(2, 3, PaddingMode::Edge);
        assert_eq!(list(&padded), some(&[8, 8, 8, 7, 6, 5, 4, 3, 3, 3, 3]));
        let mut padded = places;
        padded.pad(2, 3, PaddingMode::Reflect);
        assert_eq!(list(&padded), some(&[6, 7, 8, 7, 6, 5, 4, 3, 4, 5, 6]));
        let mut padded = places;
        padded.pad(2, 3, PaddingMode::Symmetric);
        assert_eq!(list(&padded), some(&[7, 8, 8, 7, 6, 5, 4, 3, 3, 4, 5]));
        let turned = padded.reversed(10);
        let backwards: Vec<_> = list(&padded).into_iter().map(|place| place.map(|place| 9 - place)).collect();
        assert_eq!(list(&turned), backwards);
    }

    #[test]
    fn a_crop_is_resized_inside_its_window() {
        let mut places = AxisMap::all(100);
        places.cut(20, 50);
        assert!(places.can_resize());
        places.resize(10);
        assert!(!places.can_resize());
        assert_eq!((places.crop, places.window(1.0)), ([20, 70], [20, 70]));
        places.cut(4, 2);
        assert_eq!((places.window(1.0), places.window(3.0)), ([37, 53], [27, 63]));
        let turned = places.reversed(100);
        assert_eq!(turned.window(1.0), [47, 63]);
    }
}
