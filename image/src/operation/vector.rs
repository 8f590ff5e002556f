//! Loops over pixels that are written so that the compiler vectorises them.

/// Replaces each pixel by a function of it. It works on blocks of a constant length, which the
/// compiler vectorises.
#[inline(always)]
pub(super) fn replace([red, green, blue]: [&mut [u8]; 3], pixel: impl Fn([u8; 3]) -> [u8; 3]) {
    const BLOCK: usize = 32;

    let (reds, red) = red.as_chunks_mut::<BLOCK>();
    let (greens, green) = green.as_chunks_mut::<BLOCK>();
    let (blues, blue) = blue.as_chunks_mut::<BLOCK>();
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let (r, g, b) = (*red, *green, *blue);
        for i in 0..BLOCK {
            [red[i], green[i], blue[i]] = pixel([r[i], g[i], b[i]]);
        }
    }
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        [*red, *green, *blue] = pixel([*red, *green, *blue]);
    }
}

/// Returns the sum of a number, up to 255, that is computed for each pixel.
#[inline(always)]
pub(super) fn total([red, green, blue]: [&mut [u8]; 3], number: impl Fn(u8, u8, u8) -> u8) -> u64 {
    let mut sum = 0_u64;
    // Sums of 32 bits are faster, and for blocks of this size they cannot overflow.
    for ((red, green), blue) in red.chunks(1 << 16).zip(green.chunks(1 << 16)).zip(blue.chunks(1 << 16)) {
        sum += u64::from(red.iter().zip(green).zip(blue).map(|((&r, &g), &b)| u32::from(number(r, g, b))).sum::<u32>());
    }
    sum
}

/// Rounds down a number that is at least 0 and below 256. (`as` would check the range of each
/// number.)
#[inline(always)]
pub(super) fn byte(number: f32) -> u8 {
    // In floats from 2²³ on, the lowest bits are an integer.
    (number.floor() + 8_388_608.0).to_bits() as u8
}

/// Returns `a * b + c`, rounded once, as torch's fused operation does. It uses the CPU's
/// instruction if `FMA`. Without it, the result is the same if `a` or `b` is an integer up to 255,
/// because then no 64-bit step is rounded.
#[inline(always)]
pub(super) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { (f64::from(a) * f64::from(b) + f64::from(c)) as f32 }
}

/// Defines a function that is compiled twice, for any CPU and for CPUs with AVX2 and FMA. One of the
/// two is chosen at run time. The constant `FMA` is true in the second one. Both give the same
/// results, since the compiler neither reorders nor contracts floating-point operations.
macro_rules! vectorized {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)? $body:block) => {
        $(#[$attribute])*
        pub(super) fn $name($($argument: $type),*) $(-> $output)? {
            #[inline(always)]
            #[allow(clippy::extra_unused_type_parameters)] // Not all of these functions use `FMA`.
            fn here<const FMA: bool>($($argument: $type),*) $(-> $output)? $body

            #[cfg(target_arch = "x86_64")]
            if crate::lanes::has_avx2() && is_x86_feature_detected!("fma") {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($argument: $type),*) $(-> $output)? {
                    here::<true>($($argument),*)
                }
                // SAFETY: the CPU supports AVX2 and FMA, as checked above.
                return unsafe { avx2($($argument),*) };
            }
            here::<false>($($argument),*)
        }
    };
}
pub(super) use vectorized;
