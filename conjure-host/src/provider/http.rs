//! HTTP for providers: one pooled client, time-outs, and retries before any output.
//!
//! Knows nothing of any wire. After the first piece of an answer nothing is ever tried again: a
//! person has seen it, and the provider has charged for it.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{ProviderError, ReplySink};

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

    /// The client for these options. It keeps connections open for the next request, goes through
    /// the proxies that the environment names (`HTTPS_PROXY`, `NO_PROXY` and so on), and follows
    /// no redirect: a provider's address is what the person said, and a key goes nowhere else.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn client(&self) -> reqwest::Result<reqwest::Client> {
        reqwest::Client::builder()
            .connect_timeout(self.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
            .build()
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

/// The clients of a host: one for all providers, and one more for each other time-out of a
/// connection.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    made: Mutex<Vec<(Duration, reqwest::Client)>>,
}

impl Clients {
    /// The client for these options, made at first use.
    pub(crate) fn client(&self, options: &HttpOptions) -> reqwest::Result<reqwest::Client> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = options.connect_timeout;
        if let Some((_, client)) = made.iter().find(|(known, _)| *known == timeout) {
            return Ok(client.clone());
        }
        let client = options.client()?;
        made.push((timeout, client.clone()));
        Ok(client)
    }
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// What failed.
    pub(crate) error: ProviderError,
    /// Whether another attempt may do better.
    pub(crate) again: bool,
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
    F: Future<Output = Result<T, Attempt>>,
{
    let mut number = 1;
    loop {
        let failed = match attempt().await {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        let wait = failed.retry_after.unwrap_or_else(|| backoff(retry, number));
        if !failed.again || sink.has_begun() || number >= retry.attempts {
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
        sink.notice(format!(
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

/// The wait that a `retry-after` header asks for, in seconds or as a date.
pub(crate) fn retry_after(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0)
            .then(|| Duration::from_secs_f64(seconds.min(86_400.0)));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?;
    let left = at.timestamp().duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}
