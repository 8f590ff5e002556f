//! Reads the struct that `Sample` is derived for, and checks that it can be a sample.

use proc_macro2::Span;
use quote::format_ident;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitStr, Result};

/// Returns the fields of the struct.
///
/// # Errors
///
/// Returns an error for an enum or a union, and for options on a field.
pub(crate) fn fields(input: &DeriveInput) -> Result<&Fields> {
    let refuse = |span: Span, what: &str| {
        let reason = "every sample of a batch must have the same fields; derive Sample for a struct";
        Err(Error::new(span, format!("{what} cannot be a sample: {reason}")))
    };
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => return refuse(data.enum_token.span, "an enum"),
        Data::Union(data) => return refuse(data.union_token.span, "a union"),
    };
    match fields.iter().flat_map(|field| &field.attrs).find(|attr| is_option(attr)) {
        Some(attr) => Err(Error::new_spanned(attr, "`sample` options belong on the struct, not on a field")),
        None => Ok(fields),
    }
}

/// Returns the name of the batch: the one that the option `batch` gives, or the name of the sample followed by `Batch`.
///
/// # Errors
///
/// Returns an error for any other option, for a second name, and for a name that is not a valid
/// identifier.
pub(crate) fn batch_name(input: &DeriveInput) -> Result<Ident> {
    let mut name = None;
    for attr in input.attrs.iter().filter(|attr| is_option(attr)) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("batch") {
                return Err(meta.error("unknown option; the only one is `batch = \"Name\"`"));
            }
            match name.replace(meta.value()?.parse::<LitStr>()?.parse()?) {
                Some(_) => Err(meta.error("the batch already has a name")),
                None => Ok(()),
            }
        })?;
    }
    Ok(name.unwrap_or_else(|| format_ident!("{}Batch", input.ident)))
}

fn is_option(attr: &Attribute) -> bool {
    attr.path().is_ident("sample")
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    /// Returns the error message for `item`.
    fn refusal(item: DeriveInput) -> String {
        fields(&item).and_then(|_| batch_name(&item)).unwrap_err().to_string()
    }

    #[test]
    fn only_structs_are_accepted() {
        let text = refusal(parse_quote!(
            enum E {
                A(i64),
                B { x: f32 },
            }
        ));
        assert!(text.starts_with("an enum cannot be a sample: every sample of a batch must have the same"), "{text}");
        let text = refusal(parse_quote!(union U { a: i64 }));
        assert!(text.starts_with("a union cannot be a sample"), "{text}");
    }

    #[test]
    fn invalid_options_are_refused() {
        let unknown = parse_quote!(
            #[sample(name = "A")]
            struct S;
        );
        assert_eq!(refusal(unknown), "unknown option; the only one is `batch = \"Name\"`");
        let twice = parse_quote!(
            #[sample(batch = "A")]
            #[sample(batch = "B")]
            struct S;
        );
        assert_eq!(refusal(twice), "the batch already has a name");
        let on_field = parse_quote!(
            struct S(#[sample(batch = "A")] i64);
        );
        assert_eq!(refusal(on_field), "`sample` options belong on the struct, not on a field");
    }

    #[test]
    fn a_batch_name_must_be_an_identifier() {
        for options in
            [r#"(batch = "two words")"#, r#"(batch = "struct")"#, r#"(batch = "")"#, "(batch = 5)", "(batch)", ""]
        {
            let item: DeriveInput = syn::parse_str(&format!("#[sample{options}] struct S;")).unwrap();
            assert!(batch_name(&item).is_err(), "{options}");
        }
    }

    #[test]
    fn a_batch_is_named_after_its_sample_or_by_its_option() {
        assert_eq!(
            batch_name(&parse_quote!(
                struct Digit;
            ))
            .unwrap(),
            "DigitBatch"
        );
        assert_eq!(
            batch_name(&parse_quote!(
                struct r#Try;
            ))
            .unwrap(),
            "TryBatch"
        );
        assert_eq!(
            batch_name(&parse_quote!(
                #[sample(batch = "Digits")]
                struct Digit;
            ))
            .unwrap(),
            "Digits"
        );
    }
}
