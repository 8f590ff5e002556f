//! Tries sizes for which there is no memory, in a process whose memory is limited.

use std::fmt::Display;

/// The limit of this process's memory, in bytes. It is below the system's available memory, which
/// is all that a loader checks.
const LIMIT: u64 = 1 << 30;
/// The sizes to try. Tables with as many numbers as the first size exceed the limit, and
/// computations with the last sizes overflow.
pub(crate) const SIZES: [usize; 7] =
    [1 << 28, 1 << 33, 1 << 44, 1 << 58, usize::MAX / 16, isize::MAX as usize, usize::MAX];

/// Tries a case with each size. At least one of them must fail, and each error must contain a
/// number.
pub(crate) fn each<T>(name: &str, case: impl Fn(usize) -> Result<T, String>) {
    let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
    // SAFETY: the call only reads `limit`, which outlives it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let errors: Vec<_> = SIZES.into_iter().filter_map(|size| case(size).err()).collect();
    assert!(!errors.is_empty(), "{name}: no size is refused");
    for error in errors {
        assert!(error.contains(|c: char| c.is_ascii_digit()), "{name}: {error}");
    }
}

pub(crate) fn text<T>(result: Result<T, impl Display>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
