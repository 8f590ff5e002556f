//! The attribute macro `shielded`, which turns panics of the Python package's functions into
//! exceptions.
//!
//! It works on tokens, so that it needs no other crate.

use std::str::FromStr;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Turns the panics of a `#[pyfunction]`, or of all functions in a block of `#[pymethods]`, into
/// exceptions, by calling `crate::panics::shielded`. A function that does not return a `PyResult`
/// is changed to return one. `__traverse__` is left as it is. Place this attribute before that of
/// PyO3.
#[proc_macro_attribute]
pub fn shielded(_: TokenStream, item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    let is_impl = tokens.iter().any(|token| is(token, "impl"));
    if !is_impl {
        return functions(tokens);
    }
    let block = |token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            let mut inner = Group::new(Delimiter::Brace, functions(group.stream()));
            inner.set_span(group.span());
            inner.into()
        }
        token => token,
    };
    tokens.into_iter().map(block).collect()
}

/// Applies [`function`] to each function in a list of items.
fn functions(items: impl IntoIterator<Item = TokenTree>) -> TokenStream {
    let mut made = TokenStream::new();
    let mut items = items.into_iter();
    while let Some(token) = items.next() {
        let is_function = is(&token, "fn");
        made.extend([token]);
        if !is_function {
            continue;
        }
        let is_body =
            |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        let (mut signature, mut body) = (Vec::new(), None);
        for token in items.by_ref() {
            if is_body(&token) {
                body = Some(token);
                break;
            }
            signature.push(token);
        }
        let body = body.expect("a function has a body");
        made.extend(function(signature, body));
    }
    made
}

/// Wraps the body of a function in `crate::panics::shielded`. `signature` is everything between
/// `fn` and the body.
fn function(mut signature: Vec<TokenTree>, body: TokenTree) -> TokenStream {
    if is(&signature[0], "__traverse__") {
        // The garbage collector calls it, and nothing can be raised then.
        return signature.into_iter().chain([body]).collect();
    }
    let parameters =
        |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
    let end = signature.iter().position(parameters).expect("a function has parameters") + 1;
    // Skip the arrow, which is two tokens.
    let returned: TokenStream = signature.drain(end..).skip(2).collect();
    let (returned, is_result) = match returned.clone().into_iter().next() {
        None => (TokenStream::from_str("()").expect("a type"), false),
        Some(first) => (returned, is(&first, "PyResult")),
    };
    let template = if is_result {
        "-> RETURNED { crate::panics::shielded(move || -> RETURNED BODY) }"
    } else {
        "-> ::pyo3::PyResult<RETURNED> { crate::panics::shielded(move || Ok((move || -> RETURNED BODY)())) }"
    };
    let template = TokenStream::from_str(template).expect("tokens");
    signature.into_iter().chain(fill(template, &returned, &body)).collect()
}

/// Replaces `RETURNED` and `BODY` in a template by the return type and the body of a function.
fn fill(template: TokenStream, returned: &TokenStream, body: &TokenTree) -> TokenStream {
    let filled = |token: TokenTree| match token {
        TokenTree::Group(group) => {
            let inner = fill(group.stream(), returned, body);
            TokenStream::from(TokenTree::from(Group::new(group.delimiter(), inner)))
        }
        token if is(&token, "RETURNED") => returned.clone(),
        token if is(&token, "BODY") => body.clone().into(),
        token => token.into(),
    };
    template.into_iter().flat_map(filled).collect()
}

fn is(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == name)
}
