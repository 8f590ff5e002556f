//! The derive macro for slotline's samples. `slotline::sample` re-exports and documents it.

mod expand;
mod input;
mod lifetimes;

use syn::{DeriveInput, parse_macro_input};

/// The macro is exported through `slotline`; do not use this crate directly.
#[proc_macro_derive(Sample, attributes(sample))]
pub fn derive_sample(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    expand::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}
