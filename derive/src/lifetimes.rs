//! Removes the lifetimes of a struct from its types.
//!
//! A batch borrows from the loader's memory for it, and not from what its samples borrowed. So its
//! type must not mention the lifetimes of the sample, although it is derived from the types of the
//! sample's fields, which do. Therefore `'static` replaces the lifetimes in these types; the type
//! of a batch does not depend on what a field borrows.

use proc_macro2::{Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{
    DeriveInput, GenericParam, Generics, Lifetime, LifetimeParam, Result, Token, TypeParamBound, WherePredicate,
};

/// The lifetimes of a struct, and its name.
pub(crate) struct Lifetimes {
    own: Vec<Ident>,
    name: Ident,
}

impl Lifetimes {
    pub(crate) fn of(input: &DeriveInput) -> Self {
        let own = input.generics.lifetimes().map(|param| param.lifetime.ident.clone()).collect();
        Self { own, name: input.ident.clone() }
    }

    /// Returns these tokens with `'static` in place of each of the lifetimes, and with the struct's
    /// name in place of `Self`, which would mean the batch where the tokens are used.
    ///
    /// This works on tokens rather than types, so that it also reaches into macros that are used as types.
    pub(crate) fn replace(&self, tokens: impl ToTokens) -> TokenStream {
        let mut quoted = false;
        let replace = |token| {
            let after_quote = std::mem::take(&mut quoted);
            match token {
                TokenTree::Group(group) => {
                    let mut replaced = Group::new(group.delimiter(), self.replace(group.stream()));
                    replaced.set_span(group.span());
                    replaced.into()
                }
                TokenTree::Ident(name) if after_quote && self.own.contains(&name) => {
                    Ident::new("static", name.span()).into()
                }
                TokenTree::Ident(name) if name == "Self" => self.name.clone().into(),
                TokenTree::Punct(punct) => {
                    quoted = punct.as_char() == '\'' && punct.spacing() == Spacing::Joint;
                    punct.into()
                }
                token => token,
            }
        };
        tokens.into_token_stream().into_iter().map(replace).collect()
    }

    /// Returns the struct's generics without its lifetimes, and with `lifetime`, if given, as the
    /// first parameter.
    pub(crate) fn without(&self, generics: &Generics, lifetime: Option<&Lifetime>) -> Result<Generics> {
        let mut left = Generics::default();
        left.params.extend(lifetime.map(|lifetime| GenericParam::Lifetime(LifetimeParam::new(lifetime.clone()))));
        for mut param in generics.params.iter().filter(|param| !matches!(param, GenericParam::Lifetime(_))).cloned() {
            if let GenericParam::Type(of) = &mut param {
                self.without_own(&mut of.bounds);
            }
            left.params.push(syn::parse2(self.replace(param))?);
        }
        for mut predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates).cloned() {
            match &mut predicate {
                WherePredicate::Lifetime(_) => continue,
                WherePredicate::Type(of) => self.without_own(&mut of.bounds),
                _ => {}
            }
            left.make_where_clause().predicates.push(syn::parse2(self.replace(predicate))?);
        }
        Ok(left)
    }

    /// Removes the bounds by which something must outlive what the samples borrow. A batch borrows
    /// nothing from there, and a bound of `'static` instead would be too strict.
    fn without_own(&self, bounds: &mut Punctuated<TypeParamBound, Token![+]>) {
        let own =
            |bound: &TypeParamBound| matches!(bound, TypeParamBound::Lifetime(at) if self.own.contains(&at.ident));
        *bounds = std::mem::take(bounds).into_iter().filter(|bound| !own(bound)).collect();
    }
}

/// Returns a lifetime that does not occur in these tokens: `'b` if possible.
pub(crate) fn unused(tokens: &TokenStream) -> Lifetime {
    let (tokens, mut name) = (tokens.to_string(), "'b".to_owned());
    while tokens.contains(&name) {
        name.push('_');
    }
    Lifetime::new(&name, Span::call_site())
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn only_the_structs_own_lifetimes_become_static() {
        let item: DeriveInput = syn::parse_quote!(
            struct S<'a, 'long>(&'a &'long u8);
        );
        let lifetimes = Lifetimes::of(&item);
        let replaced =
            lifetimes.replace(quote!((&'a [u8], Foo<'long, 'b>, for<'c> fn(&'c a) -> long, shape!['a; Self::N])));
        let expected = quote!((&'static [u8], Foo<'static, 'b>, for<'c> fn(&'c a) -> long, shape!['static; S::N]));
        assert_eq!(replaced.to_string(), expected.to_string());
    }

    #[test]
    fn generics_lose_their_lifetimes_and_lifetime_bounds() {
        let item: DeriveInput = syn::parse_quote! {
            struct S<'a, 'b: 'a, T: Copy + 'a = u8, const N: usize = 2>(&'a T) where 'a: 'a, Foo<'b>: Fn(T);
        };
        let without = |lifetime: Option<&Lifetime>| {
            let generics = Lifetimes::of(&item).without(&item.generics, lifetime).unwrap();
            let clause = &generics.where_clause;
            quote!(#generics #clause).to_string()
        };
        let expected = quote!(<T: Copy = u8, const N: usize = 2> where Foo<'static>: Fn(T));
        assert_eq!(without(None), expected.to_string());
        let name = unused(&quote!(#item));
        let expected = quote!(<'b_, T: Copy = u8, const N: usize = 2> where Foo<'static>: Fn(T));
        assert_eq!(without(Some(&name)), expected.to_string());
        assert_eq!(unused(&quote!(&'a b)).to_string(), "'b");
    }
}
