//! HTTP for providers: one pooled client, time-outs, and retries before any output.
//!
//! Knows nothing of any wire. After the first piece of an answer nothing is ever tried again: a
//! person has seen it, and the provider has charged for it.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{ProviderError, ReplySink};
use conjure_config::{HttpSpec, env};

/// How requests travel.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where the provider is, without a slash at the end. A version, such as `/v1`, may be left
    /// out.
    pub base_url: String,
    /// Headers beside those that the wire needs.
    pub headers: Vec<(String, String)>,
    /// Time for a connection; 10 s by default.
    pub connect_timeout: Duration,
    /// Time for the first byte of the reply; 120 s by default.
    pub first_byte_timeout: Duration,
    /// Time between two pieces of the reply; 60 s by default.
    pub idle_timeout: Duration,
    /// Time for the whole reply; 1 h by default. A server that says a little for ever is given up.
    pub reply_timeout: Duration,
    /// The most bytes of a reply; 64 MiB by default.
    pub max_reply_bytes: usize,
    /// What is tried again.
    pub retry: Retry,
}

impl HttpOptions {
    /// Defaults for a provider at `base_url`.
    pub fn new(base_url: impl Into<String>) -> Self {
        let base_url: String = base_url.into();
        Self {
            base_url: base_url.trim_end_matches('/').to_owned(),
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(60),
            reply_timeout: Duration::from_secs(3600),
            max_reply_bytes: 64 * 1024 * 1024,
            retry: Retry::default(),
        }
    }

    /// Takes what a session says of how requests travel.
    pub fn apply_spec(&mut self, spec: &HttpSpec) {
        let set = |time: &mut Duration, ms: Option<u64>| {
            if let Some(ms) = ms {
                *time = Duration::from_millis(ms);
            }
        };
        set(&mut self.connect_timeout, spec.connect_timeout_ms);
        set(&mut self.first_byte_timeout, spec.first_byte_timeout_ms);
        set(&mut self.idle_timeout, spec.idle_timeout_ms);
        set(&mut self.reply_timeout, spec.reply_timeout_ms);
        set(&mut self.retry.longest_wait, spec.longest_wait_ms);
        self.max_reply_bytes = spec.max_reply_bytes.unwrap_or(self.max_reply_bytes);
        self.retry.attempts = spec.attempts.unwrap_or(self.retry.attempts);
    }

    /// The client for these options. It keeps connections open for the next request, goes through
    /// the proxies that the environment names (`HTTPS_PROXY`, `NO_PROXY` and so on), and follows
    /// no redirect: a provider's address is what the person said, and a key goes nowhere else.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn client(&self) -> reqwest::Result<reqwest::Client> {
        let client = reqwest::Client::builder()
            .connect_timeout(self.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")));
        if self.is_plain() {
            // Reading the system's certificates takes as long as the rest of a start.
            return client.tls_certs_only([]).build();
        }
        client.build()
    }

    /// Whether nobody shows a certificate on the way: the address is a plain one, and no proxy is
    /// before it.
    fn is_plain(&self) -> bool {
        let scheme = self.base_url.get(..7).unwrap_or_default();
        let proxied = || {
            let mut vars = env::PLAIN_HTTP_PROXIES.into_iter();
            vars.any(|var| env::var(var).is_some())
        };
        scheme.eq_ignore_ascii_case("http://") && !proxied()
    }
}

/// What is tried again, and when: what passes by itself (no connection, a
/// connection that broke, 408, 409, 429, 5xx, an overload told in the stream) before any output.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Attempts in all; 4 by default.
    pub attempts: u32,
    /// The first wait, doubled each time; 500 ms by default.
    pub first_wait: Duration,
    /// The longest wait, also for `retry-after`; 30 s by default. A provider that wants more
    /// fails the request and says how long.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 4,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
        }
    }
}

/// The clients of a host: one for all providers, one for those without TLS, and more for each other
/// time-out of a connection.
#[derive(Debug, Default)]
pub struct HttpClients {
    cached: Mutex<Vec<((Duration, bool), reqwest::Client)>>,
}

impl HttpClients {
    /// The client for these options, made at first use.
    pub(crate) fn client(&self, options: &HttpOptions) -> reqwest::Result<reqwest::Client> {
        let mut made = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = (options.connect_timeout, options.is_plain());
        if let Some((_, client)) = made.iter().find(|(known, _)| *known == kind) {
            return Ok(client.clone());
        }
        let client = options.client()?;
        made.push((kind, client.clone()));
        Ok(client)
    }
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct AttemptError {
    /// What failed.
    pub(crate) error: ProviderError,
    /// Whether another attempt may do better.
    pub(crate) retryable: bool,
    /// What the provider asks for.
    pub(crate) retry_after: Option<Duration>,
}

/// Tries until it works, is hopeless, or has begun.
pub(crate) async fn with_retries<T, F>(
    retry: &Retry,
    sink: &ReplySink,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ProviderError>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    let mut number = 1;
    loop {
        let failed = match attempt().await {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        let wait = failed.retry_after.unwrap_or_else(|| backoff(retry, number));
        if !failed.retryable || sink.has_begun() || number >= retry.attempts {
            return Err(failed.error);
        }
        if wait > retry.longest_wait {
            let mut error = failed.error;
            error.message.push_str(&format!(
                " It asks to wait {} s, which is longer than the {} s that a request waits; try \
                 again then.",
                wait.as_secs(),
                retry.longest_wait.as_secs()
            ));
            return Err(error);
        }
        number += 1;
        sink.notify_retry(format!(
            "{} Attempt {number} of {} in {:.1} s.",
            failed.error.message,
            retry.attempts,
            wait.as_secs_f32()
        ));
        tokio::time::sleep(wait).await;
    }
}

/// Doubles each time, with up to a quarter of jitter so that many hosts do not come back at once.
fn backoff(retry: &Retry, number: u32) -> Duration {
    let doubled = retry
        .first_wait
        .saturating_mul(1u32 << (number - 1).min(16));
    let random = uuid::Uuid::now_v7().as_u128() as u32;
    let jitter = doubled.mul_f32(0.25 * (random as f32 / u32::MAX as f32));
    doubled.min(retry.longest_wait) + jitter.min(retry.longest_wait / 4)
}

/// The wait that a `retry-after` header asks for, in seconds or as a date; `retry-after-ms`, which
/// OpenAI and Azure send beside it, is more exact.
pub(crate) fn retry_after(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let exact = headers
        .get("retry-after-ms")
        .and_then(|ms| ms.to_str().ok());
    if let Some(ms) = exact.and_then(|ms| ms.trim().parse::<u64>().ok()) {
        return Some(Duration::from_millis(ms.min(86_400_000)));
    }
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0)
            .then(|| Duration::from_secs_f64(seconds.min(86_400.0)));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?;
    let left = at.timestamp().duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderName};

    use super::*;

    fn asked(headers: &[(&'static str, &str)]) -> Option<Duration> {
        let headers = headers.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, value.parse().unwrap())
        });
        retry_after(&headers.collect::<HeaderMap>())
    }

    #[test]
    fn a_wait_is_read_in_each_form() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(asked(&[("retry-after", "7")]), seconds(7));
        assert_eq!(asked(&[("retry-after", "1e300")]), seconds(86_400));
        assert_eq!(
            asked(&[("retry-after", "Mon, 01 Jan 2001 00:00:00 GMT")]),
            seconds(0)
        );
        let both = [("retry-after", "7"), ("retry-after-ms", "250")];
        assert_eq!(asked(&both), Some(Duration::from_millis(250)));
        for nonsense in ["soon", "-1", "NaN", ""] {
            assert_eq!(asked(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn waits_double_with_a_quarter_of_chance_up_to_the_longest() {
        let retry = Retry::default();
        for (number, least) in [(1, 500), (2, 1000), (3, 2000), (30, 30_000)] {
            let least = Duration::from_millis(least);
            let wait = backoff(&retry, number);
            assert!(
                wait >= least && wait <= least.mul_f32(1.26),
                "{number}: {wait:?}"
            );
        }
    }

    #[test]
    fn one_client_serves_all_that_connect_alike() {
        let clients = HttpClients::default();
        let mut options = HttpOptions::new("http://a");
        clients.client(&options).unwrap();
        options.base_url = "http://b".to_owned();
        options.idle_timeout = Duration::from_secs(1);
        clients.client(&options).unwrap();
        assert_eq!(clients.cached.lock().unwrap().len(), 1);
        options.connect_timeout = Duration::from_secs(1);
        clients.client(&options).unwrap();
        assert_eq!(clients.cached.lock().unwrap().len(), 2);
        options.base_url = "https://b".to_owned();
        clients.client(&options).unwrap();
        assert_eq!(clients.cached.lock().unwrap().len(), 3);
    }
}
