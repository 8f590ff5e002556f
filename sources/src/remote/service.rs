//! A layer between `object_store` and the HTTP client that sees all requests and answers. It counts
//! failed connections, and handles redirects, errors, and lists of names.
//!
//! A server is not trusted. A redirect to another host or scheme is not followed by default, since
//! only this machine may be able to reach that host. If it is allowed, headers that identify the
//! user are not sent there. Only a few words of an error are quoted, without secrets that the
//! server has received in the request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, Result};
use url::Url;

use super::client::client;
use super::failure::LEADS_AWAY;
use super::limit::Limit;
use crate::error::{sanitized, shortened};

/// A mark that is inserted in a list before a component of a key that can't be part of a path: an
/// empty one, `.` or `..`.
pub(super) const NO_PATH: char = '\u{fffc}';

/// The client's timeout is longer by this time than that of the threads that wait for the request,
/// as their error message is better.
const LATER: Duration = Duration::from_secs(1);

/// The maximum number of redirects of a request.
const MAX_REDIRECTS: usize = 10;

/// The headers of a request that are also sent to another host after a redirect.
const HARMLESS: [&str; 4] = ["accept", "if-match", "range", "user-agent"];

/// The maximum number of bytes of an error.
const MAX_ERROR: usize = 16 << 10;
/// The maximum number of bytes of a list.
const MAX_LIST: usize = 64 << 20;
/// The maximum number of characters of an error that are quoted.
const QUOTED: usize = 200;

/// A factory of clients that count failed connections.
#[derive(Debug)]
pub(super) struct Connector(pub(super) Arc<Limit>);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = HttpClient::new(client(options, self.0.options.timeout + LATER)?);
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
            let secrets = secrets(&request);
            let answer = self.follow(request).await?;
            // The statuses for too many requests, and for "slow down".
            if matches!(answer.status().as_u16(), 429 | 503) {
                self.limit.failed();
            }
            if is_list || !answer.status().is_success() {
                let (head, body) = answer.into_parts();
                let is_list = head.status.is_success();
                let most = if is_list { MAX_LIST } else { MAX_ERROR };
                let text = start(body, most).await?;
                let text = if is_list { parted(&text) } else { quoted(text, &secrets) };
                return Ok(HttpResponse::from_parts(head, text.into()));
            }
            check(&answer)?;
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

impl Service {
    /// Makes a request and follows redirects.
    async fn follow(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        for _ in 0..MAX_REDIRECTS {
            let mut next = request.clone();
            let answer = self.client.execute(request).await.inspect_err(|error| note(&self.limit, error))?;
            let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let reads = matches!(next.method().as_str(), "GET" | "HEAD");
            let Some(location) = answer.headers().get("location").filter(|_| is_redirect && reads) else {
                return Ok(answer);
            };
            let wrong = || refused("the server redirects to what is no URL".to_owned());
            let from = Url::parse(&next.uri().to_string()).map_err(|_| wrong())?;
            let to = from.join(location.to_str().map_err(|_| wrong())?).map_err(|_| wrong())?;
            if to.origin() != from.origin() {
                if !self.limit.options.redirects || !matches!(to.scheme(), "http" | "https") {
                    return Err(refused(format!("{LEADS_AWAY} {}", to.origin().ascii_serialization())));
                }
                let names: Vec<_> = next.headers().keys().cloned().collect();
                for name in names.into_iter().filter(|name| !HARMLESS.contains(&name.as_str())) {
                    next.headers_mut().remove(name);
                }
            }
            *next.uri_mut() = to.as_str().parse().map_err(|_| wrong())?;
            request = next;
        }
        Err(refused(format!("the server redirects more than {MAX_REDIRECTS} times")))
    }
}

/// Creates an error for which the request is not retried.
fn refused(problem: String) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(problem))
}

/// Checks the numbers in an answer that `object_store` trusts.
fn check(answer: &HttpResponse) -> Result<(), HttpError> {
    let range = answer.headers().get("content-range").and_then(|range| range.to_str().ok()).unwrap_or_default();
    let mut numbers = range.split(|char: char| !char.is_ascii_digit()).filter(|number| !number.is_empty());
    match numbers.all(|number| number.parse::<i64>().is_ok()) {
        true => Ok(()),
        false => Err(refused(format!("the server says that these are {}", shortened(&sanitized(range), QUOTED)))),
    }
}

/// Returns the parts of a request that must not be in a message: words in headers, such as tokens,
/// and values in the query.
fn secrets(request: &HttpRequest) -> Vec<String> {
    let headers = request.headers().iter().filter(|(name, _)| !HARMLESS.contains(&name.as_str()));
    let headers = headers.filter_map(|(_, value)| value.to_str().ok());
    let headers = headers.flat_map(|value| value.split([' ', ',', '=']));
    let query = request.uri().query().unwrap_or_default().split('&').filter_map(|part| Some(part.split_once('=')?.1));
    headers.chain(query).filter(|part| part.len() >= 8).map(str::to_owned).collect()
}

/// Returns the first `most` bytes of an answer as a string.
async fn start(mut body: HttpResponseBody, most: usize) -> Result<String, HttpError> {
    let mut bytes = Vec::new();
    while bytes.len() <= most
        && let Some(frame) = body.frame().await
    {
        if let Ok(part) = frame?.into_data() {
            bytes.extend_from_slice(&part);
        }
    }
    bytes.truncate(most);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the quotation of an error's text. For XML it is the code and the message.
fn quoted(text: String, secrets: &[String]) -> String {
    let text = secrets.iter().fold(text, |text, secret| text.replace(secret, "…"));
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let told = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}, {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text.trim().to_owned(),
    };
    if told.is_empty() { told } else { format!("“{}”", shortened(&sanitized(&told), QUOTED)) }
}

/// Counts a connection that failed.
fn note(limit: &Limit, error: &HttpError) {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    if matches!(error.kind(), Connect | Interrupted | Request | Timeout) {
        limit.failed();
    }
}

/// Marks the keys in a list that are not paths, since `object_store` would reject the whole list
/// for one of them.
fn parted(xml: &str) -> String {
    let is_key = |text: &str| ["Key>", "Name>", "Prefix>"].iter().any(|tag| text.starts_with(tag));
    let key = |text: &str| {
        let (tag, key) = text.split_once('>').unwrap_or((text, ""));
        let last = key.split('/').count() - 1;
        let part = |(place, part): (usize, &str)| match part {
            "." | ".." => format!("{NO_PATH}{part}"),
            // In the name of a folder, the last component is empty.
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
    fn an_error_is_quoted_without_secrets_and_shortened() {
        let quoted = |text: &str| super::quoted(text.to_owned(), &["TOKENVALUE".to_owned()]);
        let xml = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>No.</Message></Error>";
        assert_eq!(quoted(xml), "“AccessDenied, No.”");
        assert_eq!(quoted("{'token': 'TOKENVALUE'}\x1b[2J"), r"“{'token': '…'}\u{1b}[2J”");
        assert_eq!(quoted(&"ä".repeat(300)).chars().count(), 203);
        assert_eq!(quoted(" "), "");
    }

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
