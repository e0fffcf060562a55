//! Waiting for a time that need not be there.

use tokio::time::Instant;

/// Resolves at a time; never where there is none.
pub(crate) async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
