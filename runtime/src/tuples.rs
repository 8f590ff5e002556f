//! A macro for implementing traits for tuples.

/// Calls the macro `$each` once for every tuple size from one to eight, with a type parameter and
/// an index for each element.
#[doc(hidden)]
#[macro_export]
macro_rules! up_to_eight {
    ($each:ident) => {
        $each! {
            A 0;
            A 0, B 1;
            A 0, B 1, C 2;
            A 0, B 1, C 2, D 3;
            A 0, B 1, C 2, D 3, E 4;
            A 0, B 1, C 2, D 3, E 4, F 5;
            A 0, B 1, C 2, D 3, E 4, F 5, G 6;
            A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
        }
    };
}

pub(crate) use crate::up_to_eight;
