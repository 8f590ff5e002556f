//! The HTTP client that makes requests. It is configured as `object_store` configures it, except
//! that it does not follow redirects: see [`service`](super::service).

use std::hash::{BuildHasher, RandomState};
use std::net::ToSocketAddrs;
use std::time::Duration;

use object_store::{ClientConfigKey as Key, ClientOptions, Error};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::{Certificate, Client, NoProxy, Proxy};

/// Creates a client with the options from the environment. A request takes at most `longest`.
pub(super) fn client(options: &ClientOptions, longest: Duration) -> Result<Client, Error> {
    let text = |key| options.get_config_value(&key);
    let is =
        |key| text(key).is_some_and(|value| matches!(&*value.to_ascii_lowercase(), "1" | "true" | "on" | "yes" | "y"));
    let number = |key| text(key).map(|value| value.parse().map_err(failed)).transpose();
    let time = |key| text(key).map(|value| humantime::parse_duration(&value).map_err(failed)).transpose();
    let agent = text(Key::UserAgent).unwrap_or_else(|| concat!("slotline/", env!("CARGO_PKG_VERSION")).to_owned());
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(agent)
        .https_only(!is(Key::AllowHttp))
        .tls_danger_accept_invalid_certs(is(Key::AllowInvalidCertificates))
        .http2_keep_alive_while_idle(is(Key::Http2KeepAliveWhileIdle))
        .http2_keep_alive_interval(time(Key::Http2KeepAliveInterval)?)
        .http2_max_frame_size(number(Key::Http2MaxFrameSize)?)
        .pool_idle_timeout(time(Key::PoolIdleTimeout)?.unwrap_or(Duration::from_secs(90)))
        .pool_max_idle_per_host(number(Key::PoolMaxIdlePerHost)?.map_or(usize::MAX, |most: u32| most as usize));
    if let Some(url) = text(Key::ProxyUrl) {
        let excludes = text(Key::ProxyExcludes).and_then(|excludes| NoProxy::from_string(&excludes));
        builder = builder.proxy(Proxy::all(url).map_err(failed)?.no_proxy(excludes));
        if let Some(certificate) = text(Key::ProxyCaCertificate) {
            let certificate = Certificate::from_pem(certificate.as_bytes()).map_err(failed)?;
            builder = builder.tls_certs_merge([certificate]);
        }
    }
    if is(Key::NoSystemCertificates) {
        builder = builder.tls_certs_only([]);
    }
    builder = builder.timeout(time(Key::Timeout)?.map_or(longest, |time| time.min(longest)));
    type Set = fn(reqwest::ClientBuilder, Duration) -> reqwest::ClientBuilder;
    let times: [(Key, Set); 3] = [
        (Key::ConnectTimeout, |builder, time| builder.connect_timeout(time)),
        (Key::ReadTimeout, |builder, time| builder.read_timeout(time)),
        (Key::Http2KeepAliveTimeout, |builder, time| builder.http2_keep_alive_timeout(time)),
    ];
    for (key, set) in times {
        builder = match time(key)? {
            Some(time) => set(builder, time),
            None => builder,
        };
    }
    if is(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    if is(Key::RandomizeAddresses) {
        builder = builder.dns_resolver(Shuffled);
    }
    builder.build().map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "HTTP client", source: error.into() }
}

/// A resolver that returns the addresses of a host in random order, so that connections are spread
/// over all of them.
struct Shuffled;

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let find = move || (name.as_str(), 0).to_socket_addrs();
            let mut found: Vec<_> = tokio::task::spawn_blocking(find).await??.collect();
            let random = RandomState::new();
            found.sort_by_cached_key(|address| random.hash_one(address));
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}
