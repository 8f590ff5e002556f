//! What sees all requests and answers: failures that tell of too many connections, and lists of names.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, Result};

use super::limit::Limit;

/// Stands in a list before a part of a key that can't be part of a path: an empty one, `.` or `..`.
pub(super) const NO_PATH: char = '\u{fffc}';

/// Makes clients whose failures are counted.
#[derive(Debug)]
pub(super) struct Connector(pub(super) Arc<Limit>);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service { client, limit: self.0.clone() }))
    }
}

struct Service {
    client: HttpClient,
    limit: Arc<Limit>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl HttpService for Service {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let query = request.uri().query().unwrap_or_default();
            let is_list = query.contains("list-type=2") || query.contains("comp=list");
            let answer = self.client.execute(request).await.inspect_err(|error| note(&self.limit, error))?;
            // Too many requests, and "slow down".
            if matches!(answer.status().as_u16(), 429 | 503) {
                self.limit.failed();
            }
            if is_list && answer.status().is_success() {
                let (head, body) = answer.into_parts();
                return Ok(HttpResponse::from_parts(
                    head,
                    parted(&String::from_utf8_lossy(&body.bytes().await?)).into(),
                ));
            }
            let limit = self.limit.clone();
            Ok(answer.map(|body| {
                HttpResponseBody::new(body.map_err(move |error| {
                    note(&limit, &error);
                    error
                }))
            }))
        })
    }
}

/// Counts a connection that failed.
fn note(limit: &Limit, error: &HttpError) {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    if matches!(error.kind(), Connect | Interrupted | Request | Timeout) {
        limit.failed();
    }
}

/// Returns a list with keys that are paths: one that is not makes the whole list an error in `object_store`.
fn parted(xml: &str) -> String {
    let is_key = |text: &str| ["Key>", "Name>", "Prefix>"].iter().any(|tag| text.starts_with(tag));
    let key = |text: &str| {
        let (tag, key) = text.split_once('>').unwrap_or((text, ""));
        let last = key.split('/').count() - 1;
        let part = |(place, part): (usize, &str)| match part {
            "." | ".." => format!("{NO_PATH}{part}"),
            // The last one is empty in the name of a folder.
            "" if place < last => NO_PATH.to_string(),
            part => part.to_owned(),
        };
        format!("{tag}>{}", key.split('/').enumerate().map(part).collect::<Vec<_>>().join("/"))
    };
    let texts = xml.split('<').map(|text| if is_key(text) { key(text) } else { text.to_owned() });
    texts.collect::<Vec<_>>().join("<")
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_that_are_no_paths_are_marked_in_a_list() {
        let list = |keys: [&str; 4]| {
            let keys = keys.map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>"));
            format!(
                "<?xml version=\"1.0\"?><List xmlns=\"http://s3/doc//x\"><Prefix>d/</Prefix>{}</List>",
                keys.concat()
            )
        };
        let found = super::parted(&list(["d/a.tar", "d//b.tar", "d/./c/../", "/d///e"]));
        assert_eq!(found, list(["d/a.tar", "d/￼/b.tar", "d/￼./c/￼../", "￼/d/￼/￼/e"]));
    }
}
