//! Medians and quartiles.

use serde::Serialize;

/// The median and the quartiles of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Returns the quartiles of `values`, interpolated between neighbours, or `None` if there are
    /// no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { low: at(0.25), median: at(0.5), high: at(0.75) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0, 5.0, 4.0]), Some(Spread { low: 2.0, median: 3.0, high: 4.0 }));
        assert_eq!(Spread::of([4.0, 2.0]), Some(Spread { low: 2.5, median: 3.0, high: 3.5 }));
        assert_eq!(Spread::of([]), None);
    }
}
