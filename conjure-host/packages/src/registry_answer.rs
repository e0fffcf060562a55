//! What a registry of container images answers to a request: bounded in bytes and in time, and what it
//! says of a request that it refuses.

use std::time::Duration;

use conjure_config::error_chain::with_causes;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;

use crate::http;

/// How long an answer may take as a whole that is no package.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The most bytes of what a registry says about a request that it refuses, and the most characters that
/// are shown of it.
const REFUSAL_LIMIT: u64 = 64 * 1024;
const MAX_SHOWN_CHARS: usize = 200;

/// Why a registry did not do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// The registry refuses the request.
    #[error("the registry answers {status}{details}")]
    Answer {
        /// What it answers.
        status: StatusCode,
        /// The names of its errors.
        codes: Vec<String>,
        /// What it says of them, behind a colon, if it says anything.
        details: String,
    },
    /// The registry could not be asked, or does not answer as one does.
    #[error("{0}")]
    Failed(String),
}

impl RegistryError {
    /// Whether the registry says that it has no such thing.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Answer { status, codes, .. } => {
                let missing = ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"];
                *status == StatusCode::NOT_FOUND || has_any(codes, &missing)
            }
            Self::Failed(_) => false,
        }
    }

    /// Whether the registry does not take the login that it was asked with, or wants one.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.has_status(StatusCode::UNAUTHORIZED)
    }

    /// Whether something is there that was to be put there as the first.
    pub(crate) fn is_taken(&self) -> bool {
        self.has_status(StatusCode::PRECONDITION_FAILED)
    }

    fn has_status(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Answer { status, .. } if *status == wanted)
    }

    /// Whether the registry does not say what it has.
    pub(crate) fn is_hidden(&self) -> bool {
        match self {
            Self::Answer { status, codes, .. } => {
                matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                    || has_any(codes, &["UNAUTHORIZED", "DENIED"])
            }
            Self::Failed(_) => false,
        }
    }
}

fn has_any(codes: &[String], wanted: &[&str]) -> bool {
    codes.iter().any(|code| wanted.contains(&code.as_str()))
}

#[derive(Default, Deserialize)]
struct RefusalBody {
    #[serde(default)]
    errors: Vec<RefusalItem>,
}

#[derive(Deserialize)]
struct RefusalItem {
    code: Option<String>,
    message: Option<String>,
}

/// What a request is answered, at most so many bytes.
pub(crate) async fn fetch(request: RequestBuilder, limit: u64) -> Result<Vec<u8>, RegistryError> {
    let answer = check_status(send(request).await?).await?;
    let answer = http::read_body(answer, limit).await;
    answer.map_err(RegistryError::Failed)
}

/// Sends a request.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, RegistryError> {
    let sent = request.send().await;
    sent.map_err(|error| RegistryError::Failed(with_causes(&error)))
}

/// An answer, unless it says no.
pub(crate) async fn check_status(answer: Response) -> Result<Response, RegistryError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let said = http::read_body(answer, REFUSAL_LIMIT)
        .await
        .unwrap_or_default();
    Err(refusal(status, &said))
}

fn refusal(status: StatusCode, body: &[u8]) -> RegistryError {
    let refusal = serde_json::from_slice::<RefusalBody>(body).unwrap_or_default();
    let mut said = String::new();
    let mut codes = Vec::new();
    for RefusalItem { code, message } in refusal.errors {
        let code = code.unwrap_or_default().to_uppercase();
        let message: String = message
            .unwrap_or_default()
            .chars()
            .take(MAX_SHOWN_CHARS)
            .collect();
        let words = [code.as_str(), &message].map(str::trim).join(" ");
        if said.chars().count() < MAX_SHOWN_CHARS && !words.trim().is_empty() {
            said = format!("{said}: {}", words.trim());
        }
        codes.push(code);
    }
    RegistryError::Answer {
        status,
        codes,
        details: said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_does_not_have_is_told_from_what_it_does_not_show() {
        let error = |code: &str| {
            let text = format!("{{\"errors\": [{{\"code\": \"{code}\"}}]}}");
            refusal(StatusCode::BAD_REQUEST, text.as_bytes())
        };
        for code in ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"] {
            let error = error(code);
            assert!(error.is_missing() && !error.is_hidden(), "{code}");
        }
        for code in ["UNAUTHORIZED", "DENIED"] {
            let error = error(code);
            assert!(!error.is_missing() && error.is_hidden(), "{code}");
        }
        assert!(!error("TOOMANYREQUESTS").is_missing());
        assert!(refusal(StatusCode::NOT_FOUND, b"what").is_missing());
        assert!(refusal(StatusCode::UNAUTHORIZED, b"").is_hidden());
    }

    #[test]
    fn what_a_registry_says_is_shown_in_short() {
        let long = "x".repeat(10_000);
        let text = format!("{{\"errors\": [{{\"code\": \"DENIED\", \"message\": \"{long}\"}}]}}");
        let said = refusal(StatusCode::FORBIDDEN, text.as_bytes()).to_string();
        assert!(
            said.starts_with("the registry answers 403 Forbidden: DENIED xxx"),
            "{said}"
        );
        assert!(said.len() < 400, "{said}");
    }
}
