//! TLS for all connections to servers, set up once.
//!
//! A client of reqwest reads and parses all certificates of the system when it is made: some
//! milliseconds and some megabytes, twice for each server of each session that is opened.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt as _;

/// How long certificates hold that were read: a host runs for weeks, and a company's own
/// certificate may be added meanwhile.
const CERTIFICATES_LIFETIME: Duration = Duration::from_secs(60 * 60);

static CACHE: Mutex<Option<TlsCache>> = Mutex::new(None);

/// The last TLS configuration and when it was read.
struct TlsCache {
    config: ClientConfig,
    read: Instant,
}

/// The set-up that all connections share. Those that were read before go on holding where the
/// system's certificates cannot be read again.
///
/// # Errors
/// When there are no certificates that can be read, and were none before.
pub(super) fn config() -> Result<ClientConfig, rustls::Error> {
    let mut shared = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = shared
        .as_ref()
        .filter(|it| it.read.elapsed() < CERTIFICATES_LIFETIME)
    {
        return Ok(known.config.clone());
    }
    let config = match read() {
        Ok(config) => config,
        Err(error) => match shared.take() {
            Some(known) => known.config,
            None => return Err(error),
        },
    };
    *shared = Some(TlsCache {
        config: config.clone(),
        read: Instant::now(),
    });
    Ok(config)
}

fn read() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    // What reqwest offers by itself.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_read_once_for_all_connections() {
        let provider = |config: &ClientConfig| Arc::as_ptr(config.crypto_provider());
        let (one, other) = (config().unwrap(), config().unwrap());
        assert_eq!(provider(&one), provider(&other));
        assert_ne!(provider(&one), provider(&read().unwrap()));
        assert_eq!(one.alpn_protocols, ["h2".as_bytes(), "http/1.1".as_bytes()]);
    }
}
