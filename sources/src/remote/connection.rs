//! Connections to buckets and servers, and the URLs that name them.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme, RetryConfig};
use slotline::fork::Process;
use tokio::runtime::{Builder, Handle};
use url::{Position, Url};

use super::failure::{NETWORK, failed, remote};
use super::limit::Limit;
use super::service::Connector;
use crate::Error;

/// The state that a process needs to make requests.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) process: Process,
    pub(super) runtime: Handle,
    /// The parts of URLs that identify the buckets and servers.
    pub(super) places: Vec<String>,
    pub(super) stores: Vec<Arc<dyn ObjectStore>>,
    pub(super) limit: Arc<Limit>,
}

impl Connection {
    /// Connects to buckets and servers, with as many requests at a time as the limit allows.
    pub(super) fn new(places: Vec<String>, limit: Arc<Limit>) -> Result<Self, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = |place: &String| store(&parse(place)?, &limit).map_err(|source| failed(place, None, source));
        let stores = places.iter().map(made).collect::<Result<_, Error>>()?;
        Ok(Self { process: Process::this(), runtime: runtime()?, places, stores, limit })
    }

    /// Connects to the server of a URL. Also returns the path on the server.
    pub(super) fn to(url: &str) -> Result<(Self, Path), Error> {
        let parsed = parse(url)?;
        Ok((Self::new(vec![place(&parsed)], super::limit()?)?, path_of(url)?))
    }

    /// Lists a folder on a server, and waits for the answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        folder: &str,
        request: impl Future<Output = Result<T, object_store::Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let url = folder.to_owned();
        wait(&self.runtime, folder, async move { request.await.map_err(|source| failed(&url, None, source)) })
    }
}

/// Creates the client for a bucket or a server, with the options from the environment.
fn store(url: &Url, limit: &Arc<Limit>) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    /// Creates a client with the builder of its kind, which ignores the options of other kinds.
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    macro_rules! built {
        ($builder:ty) => {{
            let options = std::env::vars_os().filter_map(|(name, value)| {
                let name = name.into_string().ok()?.to_ascii_lowercase();
                let is_option = ["aws_", "google_", "azure_"].iter().any(|prefix| name.starts_with(prefix));
                is_option.then_some((name, value.into_string().ok()?))
            });
            let http = matches!(url.scheme(), "http" | "https").then(|| ("allow_http".to_owned(), "true".to_owned()));
            let builder = <$builder>::new().with_url(url.as_str()).with_http_connector(Connector(limit.clone()));
            let retry_timeout = limit.options.timeout;
            let builder = builder.with_retry(RetryConfig { retry_timeout, ..RetryConfig::default() });
            let builder = options.chain(http).fold(builder, |builder, (name, value)| match name.parse() {
                Ok(name) => builder.with_config(name, value),
                Err(_) => builder,
            });
            Arc::new(builder.build()?) as Arc<dyn ObjectStore>
        }};
    }
    Ok(match scheme(url).map_err(|error| object_store::Error::Generic { store: "URL", source: error.into() })? {
        #[cfg(feature = "s3")]
        ObjectStoreScheme::AmazonS3 => built!(object_store::aws::AmazonS3Builder),
        #[cfg(feature = "gcs")]
        ObjectStoreScheme::GoogleCloudStorage => built!(object_store::gcp::GoogleCloudStorageBuilder),
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => built!(object_store::azure::MicrosoftAzureBuilder),
        #[cfg(feature = "http")]
        ObjectStoreScheme::Http => built!(object_store::http::HttpBuilder),
        other => {
            let source = format!("feature for {other:?} not enabled").into();
            return Err(object_store::Error::Generic { store: "parse_url", source });
        }
    })
}

/// Returns the kind of server. A URL with a query, such as a signed URL, is read as a file of a web
/// server.
fn scheme(url: &Url) -> Result<ObjectStoreScheme, String> {
    if url.query().is_some() {
        return Ok(ObjectStoreScheme::Http);
    }
    ObjectStoreScheme::parse(url).map(|(scheme, _)| scheme).map_err(|error| error.to_string())
}

/// Whether the server of a URL can list its folders. Web servers cannot.
pub(crate) fn can_list(url: &str) -> Result<bool, Error> {
    Ok(!matches!(scheme(&parse(url)?), Ok(ObjectStoreScheme::Http)))
}

/// Returns the part of a URL that identifies the bucket or server, including the query, which is
/// part of each request.
pub(super) fn place(url: &Url) -> String {
    let server = &url[..Position::BeforePath];
    url.query().map_or(server.to_owned(), |query| format!("{server}/?{query}"))
}

/// Returns the parameters of a query without those of a signature, which differ each time that a
/// URL is signed. The signatures are those of AWS, Google Cloud, CloudFront and Azure.
pub(super) fn unsigned(query: &str) -> String {
    const NAMES: &str = "awsaccesskeyid googleaccessid key-pair-id policy signature expires \
                         sig se sp spr sr srt ss st sv sip skoid sktid skt ske sks";
    let is_signature = |parameter: &&str| {
        let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
        name.starts_with("x-amz-") || name.starts_with("x-goog-") || NAMES.split(' ').any(|other| other == name)
    };
    query.split('&').filter(|parameter| !is_signature(parameter)).collect::<Vec<_>>().join("&")
}

/// Returns the runtime of this process, whose thread makes all requests.
fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<(Process, Handle)>> = Mutex::new(None);
    // In a forked process, the lock may be held by a thread that does not exist there.
    if let Ok(known) = RUNTIME.try_lock()
        && let Some((of, handle)) = &*known
        && of.is_this()
    {
        return Ok(handle.clone());
    }
    let failed = |source| Error::io_named("a thread for requests", "start", source);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let life = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("slotline-requests".to_owned()).spawn(life).map_err(failed)?;
    if let Ok(mut known) = RUNTIME.try_lock() {
        *known = Some((Process::this(), handle.clone()));
    }
    Ok(handle)
}

/// The interval at which a thread that waits for a request checks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a request on the thread that makes all requests, and waits for the result.
pub(super) fn wait<T: Send + 'static>(
    runtime: &Handle,
    url: &str,
    request: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let task = runtime.spawn(async move {
        let _ = send.send(request.await);
    });
    loop {
        let problem = match receive.recv_timeout(LOOK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if !crate::stop::is_set() => continue,
            Err(RecvTimeoutError::Timeout) => "the program has given up waiting",
            Err(RecvTimeoutError::Disconnected) => "the request ended without an outcome",
        };
        task.abort();
        return Err(remote(url, None, NETWORK, problem.to_owned()));
    }
}

pub(super) fn parse(url: &str) -> Result<Url, Error> {
    let parsed =
        Url::parse(url).map_err(|error| Error::format(url, None, format!("not a URL: {error}"), "check it"))?;
    let is_container = matches!(parsed.scheme(), "abfs" | "abfss");
    if parsed.password().is_some() || !parsed.username().is_empty() && !is_container {
        let advice = "leave them out: credentials are options in the environment, or the query of a signed URL";
        return Err(Error::format(url, None, "a user or a password in a URL is not used", advice));
    }
    if parsed.query().is_some() && !matches!(parsed.scheme(), "http" | "https") {
        return Err(Error::format(url, None, "the URL has a `?`", "write `%3F` for this character in a path"));
    }
    if parsed.fragment().is_some() {
        return Err(Error::format(url, None, "the URL has a `#`", "write `%23` for this character in a path"));
    }
    Ok(parsed)
}

pub(super) fn path_of(url: &str) -> Result<Path, Error> {
    let parsed = parse(url)?;
    let found = match parsed.query() {
        Some(_) => Path::from_url_path(parsed.path()).map_err(|error| error.to_string()),
        None => ObjectStoreScheme::parse(&parsed).map(|(_, path)| path).map_err(|error| error.to_string()),
    };
    found.map_err(|error| Error::format(url, None, error, "check the URL"))
}
