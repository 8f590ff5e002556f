//! Converts decimals (integers that are divided by a power of ten) to `f64`.

/// The powers of ten that an `f64` holds exactly.
const EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Returns the f64 that is closest to `digits` divided by ten to the power of `scale`.
pub(crate) fn to_f64(digits: i128, scale: i32) -> f64 {
    let exact = usize::try_from(scale).ok().and_then(|scale| EXACT.get(scale));
    match exact {
        // The digits and the power are exact as `f64`, so the division rounds only once.
        Some(power) if digits.unsigned_abs() <= 1 << 53 => digits as f64 / power,
        // Parsing the decimal number as text rounds only once, too.
        _ => format!("{digits}e{}", -i64::from(scale)).parse().unwrap_or(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_rounded_once() {
        for (digits, scale, want) in [
            (12_345, 2, 123.45),
            (-1, 0, -1.0),
            (7, -3, 7000.0),
            (1, 38, 1e-38),
            (10_i128.pow(38) - 1, 38, 1.0),
            (9_007_199_254_740_993, 1, 900_719_925_474_099.3),
            (3, 400, 0.0),
        ] {
            assert_eq!(to_f64(digits, scale), want);
        }
    }
}
