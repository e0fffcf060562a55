//! A client of a server that runs on this machine.
//!
//! What only the process that runs the sessions can do, such as beginning a turn, is asked of the
//! server; what is only read comes from the store.
//!
//! A server holds a lock in its directory of data for as long as it lives, and says beside it where
//! it is. Touches loopback and two files of that directory. Begin at `announced.rs`, which finds the
//! server.

mod announced;
mod events;
mod prompts;
mod turn_ends;

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::EventId;
use conjure_core::turn::EffectiveFrom;
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use conjure_runtime::manager::{ChatRetention, SessionPatch, TurnTerms};
use conjure_store::ThreadId;

pub use announced::ServerAnnouncement;
pub use events::ServerEvents;
pub use turn_ends::EndedTurn;

/// How long a request may take; turns run on without their client.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to say that it is there.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server may take to be reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running server, reached over its HTTP API.
#[derive(Clone)]
pub struct RemoteServer {
    url: String,
    /// Id of the server's process, where it is known.
    pid: Option<u32>,
    /// What lets this user in, or why that is not to be had.
    token: Result<SecretString, Arc<str>>,
    http: reqwest::Client,
}

/// Errors of a request to a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server cannot be reached.
    #[error("the server at {url} cannot be reached: {reason}")]
    Unreachable {
        /// URL of the server.
        url: String,
        /// Error of the network.
        reason: String,
    },
    /// The server is there, and does not answer.
    #[error("the server at {url}{} does not answer", process(*pid))]
    Silent {
        /// URL of the server.
        url: String,
        /// Id of its process, where it is known.
        pid: Option<u32>,
    },
    /// The server is there, and is not asked: what would let this user in is not to be had.
    #[error(
        "a server runs at {url} for this data directory, and it cannot be asked: {reason}. \
         Start it again then, or end it"
    )]
    NoToken {
        /// URL of the server.
        url: String,
        /// Reason why its token is not used.
        reason: Arc<str>,
    },
    /// The server refused the request.
    #[error("{detail}")]
    Refused {
        /// The status.
        status: u16,
        /// Detail that the server gave.
        detail: String,
    },
    /// The answer of the server is not understood.
    #[error("the server at {url} gave an answer that is not understood: {reason}")]
    Unexpected {
        /// URL of the server.
        url: String,
        /// Fault of the answer.
        reason: String,
    },
}

/// A turn that a server began, or that waits there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BegunTurn {
    /// Id of the turn.
    #[serde(rename = "turn")]
    pub id: String,
    /// The thread that it is in.
    pub thread: ThreadId,
}

/// Members of `application/problem+json`.
#[derive(Deserialize)]
struct ProblemBody {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

impl RemoteServer {
    fn new(url: String, token: Result<SecretString, Arc<str>>) -> Option<Self> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()
            .ok()?;
        Some(Self {
            url,
            pid: None,
            token,
            http,
        })
    }

    /// Asks the server for a sign of life, for a second at most.
    ///
    /// # Errors
    /// [`ServerError::Silent`] when it gives none, as where its process is stopped, and
    /// [`ServerError::Unreachable`] when it is gone.
    #[boxed]
    pub async fn probe(&self) -> Result<(), ServerError> {
        let request = self.http.get(format!("{}/healthz", self.url));
        match request.timeout(PROBE_TIMEOUT).send().await {
            Ok(_) => Ok(()),
            Err(error) if error.is_timeout() => Err(ServerError::Silent {
                url: self.url.clone(),
                pid: self.pid,
            }),
            Err(error) => Err(self.unreachable(&error)),
        }
    }

    /// URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Says something in a session, in a turn for which this holds, with files that were handed
    /// over to the host ([`conjure_runtime::Host::upload`]), by their ids.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn say(
        &self,
        session: &str,
        text: &str,
        attachments: &[&str],
        terms: &TurnTerms,
    ) -> Result<BegunTurn, ServerError> {
        let path = format!("sessions/{session}/turns");
        let mut body = json!({ "text": text, "attachments": attachments });
        if *terms != TurnTerms::default() {
            let held = serde_json::to_value(terms).unwrap_or_default();
            if let (Some(body), Value::Object(held)) = (body.as_object_mut(), held) {
                body.extend(held);
            }
        }
        let said = self.ask(Method::POST, &path, Some(body));
        self.read(&said.await?)
    }

    /// Ends the turn that runs in a session.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn cancel(&self, session: &str, drop_queued: bool) -> Result<(), ServerError> {
        let path = format!("sessions/{session}/cancel");
        let body = json!({ "drop_queued": drop_queued });
        self.ask(Method::POST, &path, Some(body)).await.map(drop)
    }

    /// Ends a turn of a session, whether it runs or waits.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn cancel_turn(&self, session: &str, turn_id: &str) -> Result<(), ServerError> {
        let path = format!("sessions/{session}/cancel");
        let body = json!({ "turn": turn_id });
        self.ask(Method::POST, &path, Some(body)).await.map(drop)
    }

    /// Changes a session.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn update(
        &self,
        session: &str,
        patch: &SessionPatch,
        when: EffectiveFrom,
    ) -> Result<(), ServerError> {
        let apply = match when {
            EffectiveFrom::Now => "now",
            EffectiveFrom::NextTurn => "next_turn",
        };
        let mut body = serde_json::to_value(patch).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        let path = format!("sessions/{session}?apply={apply}");
        self.ask(Method::PATCH, &path, Some(body)).await.map(drop)
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn delete(&self, session: &str, chat: ChatRetention) -> Result<(), ServerError> {
        let chat = match chat {
            ChatRetention::Keep => "keep",
            ChatRetention::Delete => "delete",
        };
        let path = format!("sessions/{session}?chat={chat}");
        self.ask(Method::DELETE, &path, None).await.map(drop)
    }

    /// Deletes what a thread holds for good.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn clear_thread(&self, thread: &ThreadId) -> Result<(), ServerError> {
        let path = format!("threads/{thread}/entries");
        self.ask(Method::DELETE, &path, None).await.map(drop)
    }

    /// Follows a thread's events behind `after`, or from its beginning. Who is `attended` by a
    /// person is waited for where something asks.
    pub fn events(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
        attended: bool,
    ) -> ServerEvents {
        ServerEvents::new(self.clone(), thread.clone(), after, attended)
    }

    /// A link that lets a browser in, once.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn browser_link(&self) -> Result<String, ServerError> {
        #[derive(Deserialize)]
        struct BrowserLinkBody {
            url: String,
        }
        let made = self.ask(Method::POST, "browser-links", None).await?;
        Ok(self.read::<BrowserLinkBody>(&made)?.url)
    }

    fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, ServerError> {
        let token = self.token.as_ref().map_err(|reason| ServerError::NoToken {
            url: self.url.clone(),
            reason: Arc::clone(reason),
        })?;
        let request = self
            .http
            .request(method, format!("{}/api/v1/{path}", self.url));
        Ok(request.bearer_auth(token.expose_secret()))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Vec<u8>, ServerError> {
        let mut request = self.request(method, path)?.timeout(REQUEST_TIMEOUT);
        if let Some(body) = body {
            request = request
                .header(reqwest::header::CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        let answer = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let bytes = answer
            .bytes()
            .await
            .map_err(|error| self.unreachable(&error))?;
        if status.is_success() {
            return Ok(bytes.to_vec());
        }
        Err(refusal_error(status.as_u16(), &bytes))
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, bytes: &[u8]) -> Result<T, ServerError> {
        serde_json::from_slice(bytes).map_err(|error| ServerError::Unexpected {
            url: self.url.clone(),
            reason: error.to_string(),
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> ServerError {
        let source = std::error::Error::source(error).map(ToString::to_string);
        ServerError::Unreachable {
            url: self.url.clone(),
            reason: source.unwrap_or_else(|| error.to_string()),
        }
    }
}

/// The process of a server, behind its URL.
fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

fn refusal_error(status: u16, body: &[u8]) -> ServerError {
    let detail = match serde_json::from_slice::<ProblemBody>(body) {
        Ok(problem) if !problem.detail.is_empty() => problem.detail,
        Ok(problem) if !problem.title.is_empty() => problem.title,
        _ => format!("the server answered with {status}"),
    };
    ServerError::Refused { status, detail }
}

/// A part of a path, whatever is in it.
fn encode_segment(part: &str) -> String {
    let mut out = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_is_one_part_whatever_is_in_it() {
        assert_eq!(encode_segment("toolu_1.a-b~"), "toolu_1.a-b~");
        assert_eq!(encode_segment("../a b?é"), "..%2Fa%20b%3F%C3%A9");
    }

    #[test]
    fn a_refusal_says_what_the_problem_says() {
        let said = |body: &str| refusal_error(404, body.as_bytes()).to_string();
        assert_eq!(
            said(r#"{"title":"t","detail":"there is no such thing"}"#),
            "there is no such thing"
        );
        assert_eq!(said(r#"{"title":"Not Found"}"#), "Not Found");
        assert_eq!(said("<html>"), "the server answered with 404");
    }
}
