//! Files at addresses.

use std::time::Duration;

use reqwest::Url;

use crate::PackageError;

/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// What is at an address, at most so many bytes.
pub(crate) async fn get(url: &Url, limit: u64) -> Result<Vec<u8>, PackageError> {
    let failed = |reason: String| PackageError::Fetch {
        place: url.to_string(),
        reason,
    };
    let client = reqwest::Client::builder()
        .connect_timeout(SILENCE)
        .read_timeout(SILENCE)
        .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let sent = client.get(url.clone()).send().await;
    let mut response = sent.map_err(|error| failed(whole(&error)))?;
    let status = response.status();
    if !status.is_success() {
        return Err(failed(format!(
            "the server answers {status}. Check the address"
        )));
    }
    let mut bytes = Vec::new();
    loop {
        let piece = response.chunk().await;
        let Some(piece) = piece.map_err(|error| failed(whole(&error)))? else {
            return Ok(bytes);
        };
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > limit {
            return Err(failed(format!("it has more than {limit} bytes")));
        }
    }
}

/// An error with what is behind it.
pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}
