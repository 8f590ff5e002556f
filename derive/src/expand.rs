//! The generated code: the implementations, and the struct for batches.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Fields, Generics, Ident, Lifetime, Member, Result};

use crate::input;
use crate::lifetimes::{Lifetimes, unused};

/// Generates the code for `input`.
///
/// # Errors
///
/// Returns an error if `input` cannot be a sample.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let shape = input::fields(input)?;
    let (generics, types) = (&input.generics, shape.iter().map(|field| &field.ty));
    let lifetime = unused(&quote!(#generics #(#types)*));
    let lifetimes = Lifetimes::of(input);
    let batch = Batch {
        name: input::batch_name(input)?,
        // A struct without fields cannot use a lifetime, and the compiler rejects an unused one.
        generics: lifetimes.without(generics, (!shape.is_empty()).then_some(&lifetime))?,
        lifetime,
    };
    let fields: Vec<Field<'_>> =
        shape.iter().zip(shape.members()).map(|(field, member)| Field::new(field, member, &lifetimes)).collect();
    let schema = Schema {
        arguments: lifetimes.replace(input.generics.split_for_impl().1),
        generics: outlive_static(input, lifetimes.without(generics, None)?),
    };
    let parts = [
        batch.define(input, shape, &fields),
        batch.debug(&fields),
        sample(input, &fields, &schema),
        schema.implement(input, &fields, &batch),
    ];
    Ok(parts.into_iter().collect())
}

/// Returns the generics of a struct. If the struct has lifetimes, its type parameters get the bound
/// `'static`: the lifetimes are `'static` in the schema, and a type parameter may have to outlive
/// them.
fn outlive_static(input: &DeriveInput, mut generics: Generics) -> Generics {
    if input.generics.lifetimes().next().is_some() {
        for parameter in input.generics.type_params() {
            let name = &parameter.ident;
            generics.make_where_clause().predicates.push(syn::parse_quote!(#name: 'static));
        }
    }
    generics
}

/// A field of the sample.
struct Field<'a> {
    field: &'a syn::Field,
    member: Member,
    /// The name of the field in the batch.
    name: String,
    /// The tokens `<S as Schema>`, where `S` is the field's schema without the lifetimes of the
    /// sample.
    schema: TokenStream,
    /// The position of the type in the source, where errors about it are reported.
    span: Span,
}

impl<'a> Field<'a> {
    fn new(field: &'a syn::Field, member: Member, lifetimes: &Lifetimes) -> Self {
        let name = match &member {
            Member::Named(name) => name.unraw().to_string(),
            Member::Unnamed(place) => place.index.to_string(),
        };
        let (span, ty) = (field.ty.span().resolved_at(Span::call_site()), lifetimes.replace(&field.ty));
        let schema = quote_spanned!(span=> <#ty as ::slotline::sample::Sample>::Schema);
        let schema = quote_spanned!(span=> <#schema as ::slotline::sample::Schema>);
        Self { field, member, name, schema, span }
    }

    /// Returns the type that this field has in a batch.
    fn tensors(&self, lifetime: &Lifetime) -> TokenStream {
        let (schema, mut lifetime) = (&self.schema, lifetime.clone());
        lifetime.set_span(self.span);
        quote_spanned!(self.span=> #schema::Tensors<#lifetime>)
    }
}

/// The generated struct for batches.
struct Batch {
    name: Ident,
    lifetime: Lifetime,
    generics: Generics,
}

impl Batch {
    /// Generates the definition of the struct, with the same shape (named fields, tuple or unit) as
    /// the sample.
    fn define(&self, input: &DeriveInput, shape: &Fields, fields: &[Field<'_>]) -> TokenStream {
        let (Self { name, lifetime, generics }, vis) = (self, &input.vis);
        let where_clause = &generics.where_clause;
        let fields = fields.iter().map(|each @ Field { field, name, .. }| {
            let (doc, vis, tensors) = (format!("`{name}` of each sample."), &field.vis, each.tensors(lifetime));
            let more = field.attrs.iter().filter(|attr| attr.path().is_ident("doc"));
            let name = field.ident.as_ref().map(|name| quote!(#name:));
            quote!(#[doc = #doc] #[doc = ""] #(#more)* #vis #name #tensors)
        });
        let body = match shape {
            Fields::Named(_) => quote!(#where_clause { #(#fields,)* }),
            Fields::Unnamed(_) => quote!((#(#fields,)*) #where_clause;),
            Fields::Unit => quote!(#where_clause;),
        };
        let doc = format!("A batch of [`{}`] samples.", input.ident.unraw());
        quote! {
            #[doc = #doc]
            #[allow(dead_code)] // Not every program reads every field.
            #vis struct #name #generics #body
        }
    }

    /// Generates the implementation of `Debug`, for batches whose fields all implement it.
    fn debug(&self, fields: &[Field<'_>]) -> TokenStream {
        let (name, lifetime) = (&self.name, &self.lifetime);
        let mut generics = self.generics.clone();
        let bounds = fields.iter().map(|field| {
            let (tensors, span) = (field.tensors(lifetime), field.span);
            syn::parse_quote_spanned!(span=> #tensors: ::core::fmt::Debug)
        });
        generics.make_where_clause().predicates.extend::<Vec<syn::WherePredicate>>(bounds.collect());
        let (impl_generics, args, where_clause) = generics.split_for_impl();
        let each = fields.iter().map(|Field { field, member, name, .. }| match field.ident {
            Some(_) => quote!(.field(#name, &self.#member)),
            None => quote!(.field(&self.#member)),
        });
        let (text, start) = (
            name.unraw().to_string(),
            match fields {
                [Field { field: syn::Field { ident: None, .. }, .. }, ..] => quote!(debug_tuple),
                _ => quote!(debug_struct),
            },
        );
        quote! {
            #[automatically_derived]
            impl #impl_generics ::core::fmt::Debug for #name #args #where_clause {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.#start(#text)#(#each)*.finish()
                }
            }
        }
    }
}

/// The struct as a schema, with `'static` in place of its lifetimes.
struct Schema {
    /// The generic arguments of the schema.
    arguments: TokenStream,
    generics: Generics,
}

impl Schema {
    /// Generates the implementation of `Schema`.
    fn implement(&self, input: &DeriveInput, fields: &[Field<'_>], batch: &Batch) -> TokenStream {
        let (name, arguments) = (&input.ident, &self.arguments);
        let Batch { name: batch, lifetime, generics } = batch;
        let (_, batch_args, _) = generics.split_for_impl();
        let (impl_generics, _, where_clause) = self.generics.split_for_impl();
        let tensors = fields
            .iter()
            .map(|Field { member, schema, span, .. }| quote_spanned!(*span=> #member: #schema::tensors(columns)));
        quote! {
            #[automatically_derived]
            impl #impl_generics ::slotline::sample::Schema for #name #arguments #where_clause {
                type Tensors<#lifetime> = #batch #batch_args;

                #[inline]
                #[allow(unused_variables)]
                fn tensors<#lifetime>(
                    columns: &mut ::slotline::sample::Columns<#lifetime>,
                ) -> Self::Tensors<#lifetime> {
                    #batch { #(#tensors),* }
                }
            }
        }
    }
}

/// Generates the implementation of `Sample`.
fn sample(input: &DeriveInput, fields: &[Field<'_>], schema: &Schema) -> TokenStream {
    let generics = outlive_static(input, input.generics.clone());
    let (impl_generics, args, where_clause) = generics.split_for_impl();
    let (name, schema) = (&input.ident, &schema.arguments);
    let declare = fields
        .iter()
        .map(|Field { member, name, span, .. }| quote_spanned!(*span=> fields.named(#name, &self.#member);));
    let write = fields.iter().map(
        |Field { member, span, .. }| quote_spanned!(*span=> ::slotline::sample::Sample::write(self.#member, row)?;),
    );
    quote! {
        #[automatically_derived]
        impl #impl_generics ::slotline::sample::Sample for #name #args #where_clause {
            type Schema = #name #schema;

            #[allow(unused_variables)]
            fn declare(&self, fields: &mut ::slotline::sample::Fields) {
                #(#declare)*
            }

            #[inline]
            #[allow(unused_variables)]
            fn write(
                self,
                row: &mut ::slotline::sample::Row<'_>,
            ) -> ::core::result::Result<(), ::slotline::BoxError> {
                #(#write)*
                ::core::result::Result::Ok(())
            }
        }
    }
}
