//! Objects in buckets and on web servers, read by range.
//!
//! All requests of a process run on one separate thread. A range that was asked for in advance is
//! fetched into memory, and taken from there when it is read. Any other range is fetched when it is
//! read. Only the process that opened the objects fetches ranges in advance: a forked worker makes
//! its own connections, and fetches ranges when it reads them.
//!
//! An object must not change after it was opened. Each request demands the version that was found
//! then, and the version of each answer is compared with it, if the server reports versions.

mod client;
mod connection;
mod failure;
mod limit;
mod ranges;
mod service;

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use slotline::dataset::fetching;
use slotline::fork::Process;
use tokio::sync::mpsc;
use url::Position;

pub(crate) use self::connection::can_list;
use self::connection::{Connection, parse, path_of, place, unsigned, wait};
use self::failure::{NETWORK, changed, failed, remote};
use self::limit::Limit;
use self::ranges::{Coming, Fetched, LONGEST};
use self::service::NO_PATH;
use crate::Error;
use crate::cache::{Cache, Cached, Place};
use crate::error::shortened;
use crate::files::room;

/// The default of [`RequestOptions::max_connections`].
const REQUESTS: usize = 128;

/// The maximum length of an object in bytes. It is above that of any real object, and sums of
/// lengths do not overflow.
const LARGEST: u64 = 1 << 48;

/// The maximum timeout: 34 years. Adding it to a time does not overflow.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(1 << 30);

/// The maximum length of an object's URL, in bytes.
const LONGEST_URL: usize = 16 << 10;

thread_local! {
    /// The options for objects that this thread opens.
    static OPTIONS: RefCell<RequestOptions> = const { RefCell::new(RequestOptions::new()) };

    /// The request limit that objects share which this thread opens, if there is one.
    static SHARED: RefCell<Option<Arc<Limit>>> = const { RefCell::new(None) };
}

/// Options for requests to buckets and servers.
///
/// ```no_run
/// use std::time::Duration;
/// use slotline_sources::{tar::Tar, RequestOptions};
///
/// let options = RequestOptions::new().max_connections(8).timeout(Duration::from_secs(20));
/// let photos = options.within(|| Tar::open(["http://small.example/photos-{000..009}.tar"]))?;
/// # Ok::<(), slotline_sources::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestOptions {
    pub(crate) most: usize,
    pub(crate) timeout: Duration,
    pub(crate) redirects: bool,
}

impl RequestOptions {
    /// Makes the default options.
    pub const fn new() -> Self {
        Self { most: REQUESTS, timeout: Duration::from_secs(180), redirects: false }
    }

    /// Sets the maximum number of concurrent requests for each bucket or server that is opened; 128
    /// by default. The number starts at 16, grows only while that makes reading faster, and shrinks
    /// when connections fail.
    #[must_use]
    pub const fn max_connections(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Sets how long a request may take with all its retries; 180 s by default. A single attempt
    /// that is not answered completely after 30 s is retried.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = if timeout.as_secs() < LONGEST_TIMEOUT.as_secs() { timeout } else { LONGEST_TIMEOUT };
        self
    }

    /// Sets whether redirects to other hosts or schemes are followed, for servers whose files are
    /// stored on another host. By default such redirects are errors, since they may lead to a host
    /// that only this machine can reach. Credentials are not sent to the other host.
    #[must_use]
    pub const fn follow_redirects(mut self, follow: bool) -> Self {
        self.redirects = follow;
        self
    }

    /// Calls `open`, and uses these options for everything that it opens, instead of the options of
    /// an enclosing call of `within`.
    pub fn within<T>(self, open: impl FnOnce() -> T) -> T {
        crate::stop::with(&OPTIONS, self, open)
    }
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the request limit for an object that this thread opens: the shared one, or a new one.
fn limit() -> Result<Arc<Limit>, Error> {
    let options = OPTIONS.with_borrow(|options| *options);
    match SHARED.with_borrow(Clone::clone) {
        Some(shared) => Ok(shared),
        None if options.most == 0 => Err(Error::usage("`max_connections` is 0", "allow at least one")),
        None if options.timeout.is_zero() => Err(Error::usage("`request_timeout` is 0", "allow some time")),
        None => Ok(Arc::new(Limit::new(options))),
    }
}

/// A request limit that is shared by everything that is opened [within](Self::within) it, by any
/// thread. In a forked process, each open creates its own limit.
pub(crate) struct Shared {
    process: Process,
    limit: Arc<Limit>,
}

impl Shared {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { process: Process::this(), limit: limit()? })
    }

    /// Calls `open`. Everything that it opens shares this limit.
    pub(crate) fn within<T>(&self, open: impl FnOnce() -> T) -> T {
        match self.process.is_this() {
            true => crate::stop::with(&SHARED, Some(self.limit.clone()), open),
            false => self.limit.options.within(open),
        }
    }
}

/// The number of ranges of an object that are fetched at the same time, if the whole object is
/// fetched.
const AT_A_TIME: usize = 4;

/// The objects of a dataset, which were looked up on their servers.
pub(crate) struct Remote {
    objects: Arc<Vec<Object>>,
    connection: Connection,
    /// The connection that a process uses if it was forked from the one that opened the objects.
    forked: OnceLock<Connection>,
    fetched: Arc<Fetched>,
    cache: OnceLock<Arc<Cached>>,
}

/// One object.
#[derive(Clone, Debug)]
struct Object {
    url: String,
    /// The index of its bucket or server.
    store: usize,
    path: Path,
    len: u64,
    version: Option<String>,
    /// The time of the last modification, in seconds.
    modified: i64,
}

/// An object in the listing of a folder.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// The path of the object below the folder.
    pub(crate) name: String,
    object: Object,
}

/// Lists all objects below a folder, sorted by path. An object whose key is not a path can't be
/// requested. It is left out, or is an error if `wanted` accepts its name.
pub(crate) fn list(folder: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<Listed>, Error> {
    let (connection, path) = Connection::to(folder)?;
    let (store, prefix) = (connection.stores[0].clone(), path.clone());
    let metas = async move { store.list(Some(&prefix)).try_collect::<Vec<_>>().await };
    let mut listed = Vec::new();
    for meta in connection.ask(folder, metas)? {
        // The folder itself may be an object without bytes.
        let Some(name) = relative(&path, &meta.location) else { continue };
        if meta.location.as_ref().contains(NO_PATH) {
            let name = name.replace(NO_PATH, "");
            if wanted(&name) {
                let problem = format!("its key has a part that is empty, `.` or `..`, and is no path: {name}");
                return Err(Error::format(folder, None, problem, "rename the object, or leave it out"));
            }
            continue;
        }
        let (url, modified) = (below(folder, &name), meta.last_modified.timestamp());
        let (path, len, version) = (meta.location, meta.size, meta.e_tag);
        listed.push(Listed { name, object: Object { url, store: 0, path, len, version, modified } });
    }
    listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// Returns the names of the objects and folders that are directly in a folder, sorted. Names of
/// folders end with a slash.
pub(crate) fn names_in(folder: &str) -> Result<Vec<String>, Error> {
    let (connection, path) = Connection::to(folder)?;
    let (store, prefix) = (connection.stores[0].clone(), path.clone());
    let found = connection.ask(folder, async move { store.list_with_delimiter(Some(&prefix)).await })?;
    let files = found.objects.iter().filter_map(|meta| relative(&path, &meta.location));
    let folders = found.common_prefixes.iter().filter_map(|found| Some(relative(&path, found)? + "/"));
    let mut names: Vec<String> = files.chain(folders).filter(|name| !name.contains(NO_PATH)).collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the URL of an object, given the URL of a folder above it, and the path between them.
pub(crate) fn below(folder: &str, name: &str) -> String {
    let mut url = folder.trim_end_matches('/').to_owned();
    url.push('/');
    for part in name.chars() {
        // Escapes characters that a URL parser would drop, or not treat as part of a name.
        match part {
            '%' | '?' | '#' | '\\' | '\0'..=' ' | '\x7f' => url.push_str(&format!("%{:02X}", u32::from(part))),
            part => url.push(part),
        }
    }
    url
}

/// Returns the path relative to a folder, if it is below that folder.
fn relative(folder: &Path, path: &Path) -> Option<String> {
    let parts: Vec<_> = path.prefix_match(folder)?.collect();
    let name = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("/");
    (!name.is_empty()).then_some(name)
}

impl Remote {
    /// Looks up the objects at these URLs.
    pub(crate) fn open(urls: Vec<String>) -> Result<Self, Error> {
        let mut places: Vec<String> = Vec::new();
        let mut stores = Vec::with_capacity(urls.len());
        for url in &urls {
            let place = place(&parse(url)?);
            stores.push(places.iter().position(|known| *known == place).unwrap_or_else(|| {
                places.push(place);
                places.len() - 1
            }));
        }
        let connection = Connection::new(places, limit()?)?;
        let found = urls.into_iter().zip(stores).map(|(url, store)| {
            let (path, parsed) = (path_of(&url)?, parse(&url)?);
            let is_signed = parsed.query().is_some();
            // The query may be a secret, so it is not shown in messages.
            let url = if is_signed { parsed[..Position::AfterPath].to_owned() } else { url };
            Ok((Object { url, store, path, len: 0, version: None, modified: 0 }, is_signed))
        });
        let found = found.collect::<Result<Vec<_>, Error>>()?;
        let first = found.first().map_or(String::new(), |(object, _)| object.url.clone());
        let heads = found.into_iter().map({
            let connection = connection.clone();
            move |(object, is_signed)| look_up(connection.clone(), object, is_signed)
        });
        let heads = stream::iter(heads).buffered(REQUESTS).try_collect::<Vec<_>>();
        let objects = wait(&connection.runtime, &first, heads)?;
        Self::of(objects, connection)
    }

    /// Creates the state for objects that were listed below `folder`.
    pub(crate) fn listed(folder: &str, listed: Vec<Listed>) -> Result<Self, Error> {
        let (connection, _) = Connection::to(folder)?;
        Self::of(listed.into_iter().map(|listed| listed.object).collect(), connection)
    }

    fn of(objects: Vec<Object>, connection: Connection) -> Result<Self, Error> {
        for Object { url, len, .. } in &objects {
            if *len > LARGEST || url.len() > LONGEST_URL {
                let what = format!("{len} bytes and a URL of {} characters", url.len());
                let problem = format!("the server says that there is an object with {what}");
                return Err(Error::format(shortened(url, 200), None, problem, "check the server"));
            }
        }
        let (forked, cache) = (OnceLock::new(), OnceLock::new());
        Ok(Self { objects: Arc::new(objects), connection, forked, fetched: Arc::default(), cache })
    }

    /// Sets the cache, unless there is one already.
    pub(crate) fn cache(&self, cache: Cache) {
        let objects = self.objects.iter().enumerate();
        let objects = objects.map(|(i, object)| (self.whole_url(i), object.len, object.version.as_deref()));
        let _ = self.cache.set(Arc::new(Cached::new(cache, objects)));
    }

    /// Returns the cached objects, if there is a cache.
    pub(crate) fn cached(&self) -> Option<&Arc<Cached>> {
        self.cache.get()
    }

    /// Fetches an object into the cache, on a separate thread.
    pub(crate) fn fetch_whole(&self, object: usize, cached: &Arc<Cached>) {
        let (connection, objects, to) = (self.connection.clone(), self.objects.clone(), cached.clone());
        let fetch = move || {
            to.fetch(object, |add| {
                // A range that has arrived waits until the ranges before it are written to the
                // disk.
                let (send, mut receive) = mpsc::channel(1);
                let parts = (0..objects[object].len).step_by(LONGEST as usize);
                let requests = parts.map({
                    let (connection, objects) = (connection.clone(), objects.clone());
                    move |start| {
                        let len = LONGEST.min(objects[object].len - start);
                        request(&connection, objects[object].clone(), start, len)
                    }
                });
                connection.runtime.spawn(async move {
                    let mut parts = stream::iter(requests).buffered(AT_A_TIME);
                    while let Some(part) = parts.next().await {
                        if send.send(part).await.is_err() {
                            return;
                        }
                    }
                });
                while let Some(part) = receive.blocking_recv() {
                    add(&part.map_err(std::io::Error::other)?)?;
                }
                Ok(())
            });
        };
        if std::thread::Builder::new().name("slotline-fetch".to_owned()).spawn(fetch).is_err() {
            cached.set(object, Place::Refused);
        }
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the URL of an object.
    pub(crate) fn url(&self, object: usize) -> &str {
        &self.objects[object].url
    }

    /// Returns the length of an object, in bytes.
    pub(crate) fn object_len(&self, object: usize) -> Option<u64> {
        self.objects.get(object).map(|object| object.len)
    }

    /// Returns a message if connections failed, which says what was done about it.
    pub(crate) fn warning(&self) -> Option<String> {
        let url = self.objects.first().map_or("", |object| &object.url);
        let path = url.match_indices('/').nth(2).map_or(url.len(), |(at, _)| at);
        self.connection.limit.warning(&url[..path])
    }

    /// Returns the tag of an object, if its server has sent one.
    pub(crate) fn version(&self, object: usize) -> Option<&str> {
        self.objects.get(object)?.version.as_deref()
    }

    /// Returns the URL of an object with its query, without the parameters of a signature. It may
    /// contain secrets.
    pub(crate) fn whole_url(&self, object: usize) -> String {
        let Object { url, store, .. } = &self.objects[object];
        match self.connection.places[*store].split_once("/?").map(|(_, query)| unsigned(query)) {
            Some(query) if !query.is_empty() => format!("{url}?{query}"),
            _ => url.clone(),
        }
    }

    /// Whether this is the process that opened the objects. In a forked process, locks may be held
    /// by threads that do not exist there.
    pub(crate) fn is_here(&self) -> bool {
        self.connection.process.is_this()
    }

    /// Begins a pass in which about `budget` bytes are asked for in advance. Ranges that were asked
    /// for earlier are dropped.
    pub(crate) fn begin(&self, budget: u64) {
        if !self.is_here() {
            return;
        }
        // The limit is twice the budget, as the sizes of samples vary, and ranges that are needed
        // soon must not be dropped.
        self.fetched.begin(budget.saturating_mul(2));
    }

    /// Records a range that will be read. It is fetched after the next [`send`](Self::send).
    pub(crate) fn will_need(&self, object: usize, start: u64, len: u64) {
        if len == 0 || !self.is_here() {
            return;
        }
        if self.cached().is_some_and(|cached| cached.has(object)) {
            return;
        }
        // If several samples are read from the same range, the first of them takes the range out of
        // the fetched ones. The other samples share the bytes in memory, or make a request.
        self.fetched.add((object, start, len));
    }

    /// Starts to fetch the ranges that were recorded. Neighbouring ranges are fetched by one
    /// request.
    pub(crate) fn send(&self) {
        let (pass, groups) = self.fetched.to_send();
        for (whole, keys) in groups {
            let request = request(&self.connection, self.objects[whole.0].clone(), whole.1, whole.2);
            let coming = Coming::new(&self.fetched, keys, whole.1, pass);
            self.connection.runtime.spawn(async move {
                let bytes = request.await.map_err(Arc::new);
                coming.set_result(Some(bytes));
            });
        }
    }

    /// Reads a range into the start of `memory`, and returns it. If the range was not asked for in
    /// advance, it is fetched by a request of its own.
    pub(crate) fn read<'a>(
        &self,
        object: usize,
        start: u64,
        len: usize,
        memory: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Error> {
        if len == 0 {
            return Ok(&[]);
        }
        let key = (object, start, len as u64);
        if self.cached().is_some_and(|cached| fetching(|| cached.read(object, start, len, memory))) {
            if self.is_here() {
                self.fetched.forget(key);
            }
            return Ok(&memory[..len]);
        }
        let bytes = if self.is_here() { self.fetched.take(key, || self.send()) } else { None };
        let bytes = match bytes {
            // If the request has failed, it is repeated, since the failure may have been long ago.
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) | None => {
                let connection = if self.is_here() { &self.connection } else { self.forked()? };
                let request = request(connection, self.objects[object].clone(), start, key.2);
                wait(&connection.runtime, self.url(object), request)?
            }
        };
        // Memory is allocated after the bytes have arrived, since a server may announce any length.
        let into = room(memory, len).map_err(|source| Error::io_named(self.url(object), "read", source))?;
        into.copy_from_slice(&bytes);
        Ok(into)
    }

    /// Returns the connection that a forked process uses.
    fn forked(&self) -> Result<&Connection, Error> {
        if self.forked.get().is_none() {
            let Connection { places, limit, .. } = &self.connection;
            let _ = self.forked.set(Connection::new(places.clone(), Arc::new(Limit::new(limit.options)))?);
        }
        Ok(self.forked.get().expect("it was just set"))
    }
}

/// Returns a request for a range of an object.
fn request(
    connection: &Connection,
    object: Object,
    start: u64,
    len: u64,
) -> impl Future<Output = Result<bytes::Bytes, Error>> + Send + use<> {
    let (store, limit) = (connection.stores[object.store].clone(), connection.limit.clone());
    async move {
        let permit = limit.permit().await;
        let timeout = limit.options.timeout;
        let bytes = within(timeout, &object.url, Some(start..start + len), fetch(&*store, &object, start, len)).await;
        if bytes.is_ok() {
            permit.answered(len);
        }
        bytes
    }
}

/// Determines the length, the version and the modification time of an object. A signed URL allows
/// only read requests, so a read is used for it.
async fn look_up(connection: Connection, object: Object, is_signed: bool) -> Result<Object, Error> {
    let Object { url, store, path, .. } = &object;
    if path.is_root() && !url.starts_with("http") {
        let problem = "the URL names a bucket, and no object in it";
        return Err(Error::format(url, None, problem, "add a path, or a pattern such as `/*.parquet`"));
    }
    let range = is_signed.then_some(GetRange::Bounded(0..1));
    let permit = connection.limit.permit().await;
    let options = GetOptions { range, head: !is_signed, ..GetOptions::default() };
    let answer = async { connection.stores[*store].get_opts(path, options).await };
    let answer = async { answer.await.map_err(|source| failed(url, None, source)) };
    let meta = within(connection.limit.options.timeout, url, None, answer).await?.meta;
    permit.answered(0);
    let modified = meta.last_modified.timestamp();
    Ok(Object { len: meta.size, version: meta.e_tag, modified, ..object })
}

/// Runs a request, and ends it with an error if it takes too long.
async fn within<T>(
    limit: Duration,
    url: &str,
    range: Option<std::ops::Range<u64>>,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| {
        let text = format!("the server has not answered completely within {limit:?} (`request_timeout`)");
        Err(remote(url, range, NETWORK, text))
    })
}

/// Fetches a range of an object.
async fn fetch(store: &dyn ObjectStore, object: &Object, start: u64, len: u64) -> Result<bytes::Bytes, Error> {
    let range = start..start + len;
    let options = GetOptions {
        range: Some(GetRange::Bounded(range.clone())),
        // A weak tag never matches in a conditional request.
        if_match: object.version.clone().filter(|version| !version.starts_with("W/")),
        ..GetOptions::default()
    };
    let failed = |source| failed(&object.url, Some(range.clone()), source);
    let answer = store.get_opts(&object.path, options).await.map_err(failed)?;
    let is_same = match (&answer.meta.e_tag, &object.version) {
        (Some(found), Some(version)) => found == version,
        _ => answer.meta.last_modified.timestamp() == object.modified,
    };
    if !is_same || answer.meta.size != object.len {
        return Err(changed(&object.url));
    }
    let mut parts = answer.into_stream();
    let mut bytes = parts.try_next().await.map_err(failed)?.unwrap_or_default();
    let mut all = Vec::new();
    // No more than `len` bytes are kept in memory, whatever the server sends.
    while (bytes.len() + all.len()) as u64 <= len
        && let Some(part) = parts.try_next().await.map_err(failed)?
    {
        all.extend_from_slice(&std::mem::take(&mut bytes));
        all.extend_from_slice(&part);
    }
    if !all.is_empty() {
        bytes = all.into();
    }
    if bytes.len() as u64 != len {
        let found = if bytes.len() as u64 > len { "more" } else { "fewer" };
        let problem = format!("{len} bytes were asked for, and {found} came");
        return Err(Error::format(&object.url, start, problem, "check the server, or whatever is in between"));
    }
    Ok(bytes)
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.fetched.bytes();
        f.debug_struct("Remote").field("objects", &self.objects.len()).field("held", &held).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn a_request_that_is_never_answered_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let never = super::within::<()>(Duration::from_millis(5), "s3://b/a", Some(0..9), std::future::pending());
        let error = runtime.block_on(never).unwrap_err();
        assert!(error.to_string().starts_with("cannot read s3://b/a, bytes 0 to 9; check the network"), "{error}");
        let now = super::within(Duration::from_secs(9), "s3://b/a", None, std::future::ready(Ok(7)));
        assert_eq!(runtime.block_on(now).unwrap(), 7);
    }
}
