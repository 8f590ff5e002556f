//! Objects in buckets and on web servers, read by range.
//!
//! Requests run on one thread of their own, whatever the number of workers. A range that was asked for ahead is fetched
//! into memory, and taken from there when it is read; any other range is fetched when it is read. The process that opened
//! the objects has the fetched ranges: a forked worker makes its own connections, and fetches what it reads.
//!
//! An object must stay as it was when it was opened: each request demands the version that was found then, and the version
//! of each answer is compared with it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;
use url::Url;

use crate::Error;

/// How many requests are under way at a time.
const REQUESTS: usize = 128;

/// Objects that were found.
pub(crate) struct Remote {
    objects: Vec<Object>,
    connection: Connection,
    /// The connection of a process that was forked from the one that opened the objects.
    forked: OnceLock<Connection>,
    fetched: Arc<Fetched>,
}

/// One object.
#[derive(Clone, Debug)]
struct Object {
    url: String,
    /// Its bucket or server, as a number.
    store: usize,
    path: Path,
    len: u64,
    version: Option<String>,
}

/// What a process needs to make requests.
struct Connection {
    process: u32,
    runtime: Handle,
    stores: Vec<Arc<dyn ObjectStore>>,
    permits: Arc<Semaphore>,
}

/// A range of an object: its number, its first byte, and its length.
type Key = (usize, u64, u64);

/// Ranges that were asked for.
#[derive(Default)]
struct Fetched {
    ranges: Mutex<Ranges>,
    arrived: Condvar,
}

#[derive(Default)]
struct Ranges {
    /// The number of the pass: what was asked for in an earlier one is not kept.
    pass: u64,
    by_key: HashMap<Key, Range>,
}

struct Range {
    /// How often it was asked for, and not read yet.
    wanted: usize,
    /// `None` until it arrives.
    bytes: Option<Result<bytes::Bytes, Arc<Error>>>,
}

impl Remote {
    /// Looks up the objects at these URLs.
    pub(crate) fn open(urls: Vec<String>) -> Result<Self, Error> {
        let mut places: Vec<String> = Vec::new();
        let mut found = Vec::with_capacity(urls.len());
        for url in urls {
            let parsed = parse(&url)?;
            let place = parsed[..url::Position::BeforePath].to_owned();
            let store = places.iter().position(|known| *known == place).unwrap_or_else(|| {
                places.push(place);
                places.len() - 1
            });
            found.push((url, store));
        }
        let connection = Connection::new(&places)?;
        let stores = connection.stores.clone();
        let heads = found.into_iter().map(move |(url, store)| {
            let of = stores[store].clone();
            async move {
                let path = path_of(&url)?;
                let meta = of.head(&path).await.map_err(|source| failed(&url, None, source))?;
                Ok(Object { url, store, path, len: meta.size, version: meta.e_tag })
            }
        });
        let heads = stream::iter(heads).buffered(REQUESTS).collect::<Vec<_>>();
        let objects = wait(&connection.runtime, heads).into_iter().collect::<Result<_, Error>>()?;
        Ok(Self { objects, connection, forked: OnceLock::new(), fetched: Arc::default() })
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

    /// Begins a pass: what was asked for before is let go.
    pub(crate) fn begin(&self) {
        let mut ranges = self.fetched.lock();
        ranges.pass += 1;
        ranges.by_key.clear();
        drop(ranges);
        // Whoever waits for one of them fetches it.
        self.fetched.arrived.notify_all();
    }

    /// Begins to fetch bytes that will be read. Returns whether this was not asked for already.
    pub(crate) fn will_need(&self, object: usize, start: u64, len: u64) -> bool {
        if len == 0 || self.connection.process != std::process::id() {
            return false;
        }
        let key = (object, start, len);
        let pass = {
            let mut ranges = self.fetched.lock();
            let pass = ranges.pass;
            match ranges.by_key.entry(key) {
                Entry::Occupied(mut known) => {
                    known.get_mut().wanted += 1;
                    return false;
                }
                Entry::Vacant(new) => new.insert(Range { wanted: 1, bytes: None }),
            };
            pass
        };
        let request = self.request(&self.connection, key);
        let coming = Coming { fetched: self.fetched.clone(), key, pass };
        self.connection.runtime.spawn(async move {
            let bytes = request.await.map_err(Arc::new);
            coming.settle(Some(bytes));
        });
        true
    }

    /// Reads bytes: those that were fetched, or are being fetched, or else by a request of their own.
    pub(crate) fn read(&self, object: usize, start: u64, into: &mut [u8]) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        let key = (object, start, into.len() as u64);
        let process = std::process::id();
        let bytes = if self.connection.process == process { self.fetched.take(key) } else { None };
        let bytes = match bytes {
            // A request that failed long ago may succeed now.
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) | None => {
                let connection = if self.connection.process == process { &self.connection } else { self.forked()? };
                wait(&connection.runtime, self.request(connection, key))?
            }
        };
        into.copy_from_slice(&bytes);
        Ok(())
    }

    /// Returns the connection of a forked process.
    fn forked(&self) -> Result<&Connection, Error> {
        if self.forked.get().is_none() {
            let mut places = vec![String::new(); self.connection.stores.len()];
            for object in &self.objects {
                places[object.store] = parse(&object.url)?[..url::Position::BeforePath].to_owned();
            }
            let _ = self.forked.set(Connection::new(&places)?);
        }
        Ok(self.forked.get().expect("it was just set"))
    }

    /// Returns a request for a range.
    fn request(
        &self,
        connection: &Connection,
        (object, start, len): Key,
    ) -> impl Future<Output = Result<bytes::Bytes, Error>> + Send + 'static {
        let object = self.objects[object].clone();
        let (store, permits) = (connection.stores[object.store].clone(), connection.permits.clone());
        async move {
            let range = start..start + len;
            let _permit = permits.acquire().await;
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                if_match: object.version.clone(),
                ..GetOptions::default()
            };
            let failed = |source| failed(&object.url, Some(range.clone()), source);
            let answer = store.get_opts(&object.path, options).await.map_err(failed)?;
            let version = answer.meta.e_tag.clone();
            if version.is_some() && version != object.version {
                return Err(changed(&object.url));
            }
            let bytes = answer.bytes().await.map_err(failed)?;
            if bytes.len() as u64 != len {
                let problem = format!("{len} bytes were asked for, and {} came", bytes.len());
                return Err(Error::format(&object.url, start, problem, "check the server, or whatever is in between"));
            }
            Ok(bytes)
        }
    }
}

/// A range that is being fetched. If that ends without a result, nobody waits for it any longer.
struct Coming {
    fetched: Arc<Fetched>,
    key: Key,
    pass: u64,
}

impl Coming {
    /// Sets what has come, unless a new pass has begun; without it, the range counts as not asked for.
    fn settle(&self, bytes: Option<Result<bytes::Bytes, Arc<Error>>>) {
        let mut ranges = self.fetched.lock();
        if ranges.pass == self.pass
            && let Entry::Occupied(mut range) = ranges.by_key.entry(self.key)
            && range.get().bytes.is_none()
        {
            match bytes {
                Some(bytes) => range.get_mut().bytes = Some(bytes),
                None => drop(range.remove()),
            }
            drop(ranges);
            self.fetched.arrived.notify_all();
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl Fetched {
    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a range that was asked for, and waits until it is there.
    fn take(&self, key: Key) -> Option<Result<bytes::Bytes, Arc<Error>>> {
        let mut ranges = self.lock();
        loop {
            let range = ranges.by_key.get_mut(&key)?;
            if let Some(bytes) = &range.bytes {
                let bytes = bytes.clone();
                range.wanted -= 1;
                if range.wanted == 0 {
                    ranges.by_key.remove(&key);
                }
                return Some(bytes);
            }
            ranges = self.arrived.wait(ranges).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Connection {
    /// Connects to buckets and servers, by the part of their URLs before the path.
    fn new(places: &[String]) -> Result<Self, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let stores = places.iter().map(|place| {
            let url = parse(place)?;
            let options = std::env::vars_os().filter_map(|(name, value)| {
                let name = name.into_string().ok()?.to_ascii_lowercase();
                let is_option = ["aws_", "google_", "azure_"].iter().any(|prefix| name.starts_with(prefix));
                is_option.then_some((name, value.into_string().ok()?))
            });
            let http = matches!(url.scheme(), "http" | "https").then(|| ("allow_http".to_owned(), "true".to_owned()));
            let made = object_store::parse_url_opts(&url, options.chain(http));
            made.map(|(store, _)| Arc::from(store)).map_err(|source| failed(place, None, source))
        });
        let stores = stores.collect::<Result<_, Error>>()?;
        Ok(Self {
            process: std::process::id(),
            runtime: runtime()?,
            stores,
            permits: Arc::new(Semaphore::new(REQUESTS)),
        })
    }
}

/// Returns the runtime of this process, whose thread makes all requests.
fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<(u32, Handle)>> = Mutex::new(None);
    let process = std::process::id();
    // A forked process may find the lock taken by a thread that it does not have.
    if let Ok(known) = RUNTIME.try_lock()
        && let Some((of, handle)) = &*known
        && *of == process
    {
        return Ok(handle.clone());
    }
    let failed = |source| Error::io_named("a thread for requests", "start", source);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let life = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("slotline-requests".to_owned()).spawn(life).map_err(failed)?;
    if let Ok(mut known) = RUNTIME.try_lock() {
        *known = Some((process, handle.clone()));
    }
    Ok(handle)
}

/// Runs a future on the thread for requests, and waits for it.
fn wait<T: Send + 'static>(runtime: &Handle, future: impl Future<Output = T> + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = send.send(future.await);
    });
    receive.recv().expect("a request does not panic, and its thread lives as long as the process")
}

fn parse(url: &str) -> Result<Url, Error> {
    Url::parse(url).map_err(|error| Error::format(url, None, format!("not a URL: {error}"), "check it"))
}

fn path_of(url: &str) -> Result<Path, Error> {
    let parsed = parse(url)?;
    let found = object_store::ObjectStoreScheme::parse(&parsed).map_err(|error| error.to_string());
    found.map(|(_, path)| path).map_err(|error| Error::format(url, None, error, "check the URL"))
}

fn changed(url: &str) -> Error {
    Error::format(url, None, "the object was replaced since it was opened", "build the dataset again")
}

/// Makes the error for a request that failed.
fn failed(url: &str, range: Option<std::ops::Range<u64>>, source: object_store::Error) -> Error {
    use object_store::Error as Cause;
    let advice = match &source {
        Cause::NotFound { .. } => "check the bucket and the path",
        Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => {
            "check the credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they allow"
        }
        Cause::Precondition { .. } => return changed(url),
        Cause::NotSupported { .. } | Cause::NotImplemented { .. } => "use a server that answers requests for ranges",
        _ => "check the network, the server, and the options in the environment",
    };
    Error::Remote { name: url.to_owned(), range, advice, source: Box::new(source) }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}
