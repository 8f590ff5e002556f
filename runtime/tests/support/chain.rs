//! The message of an error together with those of its sources.

/// Joins the messages of an error and of its sources.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
