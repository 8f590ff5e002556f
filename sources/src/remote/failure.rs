//! Errors of failed requests, with advice.

use crate::Error;
use crate::error::{sanitized, shortened};

/// The maximum number of characters of an error's text that are quoted.
const MAX: usize = 600;

/// The beginning of the message about a redirect that is not followed.
pub(super) const LEADS_AWAY: &str = "the server redirects to";

/// Creates the error for an object that has changed since it was opened.
pub(super) fn changed(url: &str) -> Error {
    Error::format(url, None, "the object was replaced since it was opened", "build the dataset again")
}

/// The advice for failures that have no advice of their own.
pub(super) const NETWORK: &str = "check the network, the server, and the options in the environment";

/// Returns the advice for an error that `object_store` does not classify, chosen by the error's
/// text.
fn generic_advice(store: &str, problem: &str) -> &'static str {
    match store {
        "URL" => "check the start of the URL: it may be s3, gs, az, abfs, http or https",
        "parse_url" if problem.contains("not enabled") => {
            "build slotline-sources with the cargo feature for it: s3, gcs, azure or http"
        }
        _ if problem.contains(LEADS_AWAY) => "if you trust where it leads, set `follow_redirects`",
        // The address at which cloud machines ask for the credentials of their role.
        _ if problem.contains("169.254.169.254") => {
            "there are no credentials in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             AWS_SKIP_SIGNATURE=true for a public bucket"
        }
        _ if problem.contains("NoSuchBucket") => "check the name of the bucket",
        _ if problem.contains("http://") && problem.contains("builder error") => {
            "the server is addressed without TLS: set AWS_ALLOW_HTTP=true if that is what you want"
        }
        _ => NETWORK,
    }
}

/// Creates the error for a failed request.
pub(super) fn failed(url: &str, range: Option<std::ops::Range<u64>>, source: object_store::Error) -> Error {
    use object_store::Error as Cause;
    let advice = match &source {
        Cause::NotFound { .. } => "check the bucket and the path",
        Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => {
            "check the credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they allow"
        }
        Cause::Precondition { .. } => return changed(url),
        Cause::NotSupported { .. } | Cause::NotImplemented { .. } => "use a server that answers requests for ranges",
        Cause::Generic { store, source } => generic_advice(store, &source.to_string()),
        _ => NETWORK,
    };
    remote(url, range, advice, with_causes(&source))
}

/// Creates the error for a request. The message may contain text from a server.
pub(super) fn remote(url: &str, range: Option<std::ops::Range<u64>>, advice: &'static str, text: String) -> Error {
    Error::Remote { name: sanitized(url), range, advice, source: shortened(&sanitized(&text), MAX).into() }
}

/// Returns the message of an error and of its causes. `object_store` may repeat a cause in the
/// message of the error above it, or leave it out. An XML answer is reduced to its code and
/// message.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the request failed: {0}")]
        struct Repeats(#[source] std::io::Error);
        #[derive(Debug, thiserror::Error)]
        #[error("the request failed")]
        struct Hides(#[source] std::io::Error);

        let refused = || std::io::Error::other("refused");
        assert_eq!(super::with_causes(&Repeats(refused())), "the request failed: refused");
        assert_eq!(super::with_causes(&Hides(refused())), "the request failed: refused");
    }

    #[test]
    fn advice_names_what_is_missing() {
        for (store, problem, words) in [
            ("S3", "PUT http://169.254.169.254/latest/api/token: timed out", "AWS_ACCESS_KEY_ID"),
            ("S3", "GET http://127.0.0.1:9000/b: HTTP error: builder error", "AWS_ALLOW_HTTP"),
            ("S3", "404 Not Found: <Code>NoSuchBucket</Code>", "name of the bucket"),
            ("parse_url", "feature for GoogleCloudStorage not enabled", "cargo feature"),
            ("URL", "Unable to recognise URL \"s4://b\"", "start of the URL"),
            ("HTTP", "HTTP error: the server redirects to http://host", "follow_redirects"),
            ("S3", "connection refused", "network"),
        ] {
            assert!(super::generic_advice(store, problem).contains(words), "{problem}");
        }
    }
}
