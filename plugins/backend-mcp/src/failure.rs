//! Why something did not work, in words that tell a model how to go on.

use std::time::Duration;

use conjure_skill_sdk::protocol::ToolResult;
use serde_json::{Map, Value, json};

use crate::secrets::Secrets;

/// Why a request has no result. The text begins with the name of the kind, which programs find in
/// the result's `meta.error` too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no connection within the time that the call has.
    #[error(
        "NotReady: the MCP server `{server}` has no connection ({why}). Nothing was sent; try \
         again later, or go on without it"
    )]
    NotReady { server: String, why: String },
    /// The connection that the earlier stateful calls of the session ran on is gone.
    #[error(
        "SessionLost: the connection to the MCP server `{server}` that earlier calls ran on is \
         gone ({why}). What they made on the server (handles, open pages, logins) may be gone too. \
         {sent} Make it again, then go on"
    )]
    SessionLost {
        server: String,
        why: String,
        sent: &'static str,
    },
    /// A stateful call to a peer that keeps nothing.
    #[error(
        "ModeMismatch: `{tool}` is a stateful tool, and the MCP server `{server}` declares that it \
         keeps nothing between calls. The call was not sent. The tool's `mode` is set in the \
         session's configuration"
    )]
    ModeMismatch { server: String, tool: String },
    /// The connection went while a stateless call ran.
    #[error(
        "ConnectionLost: the connection to the MCP server `{server}` went while the call ran \
         ({why}). It is not known whether it took effect, and it was not repeated; see what \
         happened before you try again"
    )]
    ConnectionLost { server: String, why: String },
    /// No answer and no progress, or not done in the total time.
    #[error(
        "TimedOut: the MCP server `{server}` {what} within {limit:?}. It was told to cancel; it is \
         not known whether the call took effect"
    )]
    TimedOut {
        server: String,
        what: &'static str,
        limit: Duration,
    },
    /// The call was cancelled by the person or the host.
    #[error("Cancelled: the call was cancelled, and the MCP server `{server}` was told so")]
    Cancelled { server: String },
    /// The server answered with an error of the protocol.
    #[error("the MCP server `{server}` refused the request: {message} (code {code})")]
    Refused {
        server: String,
        code: i32,
        message: String,
        /// Data of the error.
        data: Option<Box<Value>>,
    },
    /// The server's answer cannot be used.
    #[error(
        "BadAnswer: the answer of the MCP server `{server}` cannot be used: {why}. The call may \
         have taken effect"
    )]
    BadAnswer { server: String, why: String },
    /// The server wants a login.
    #[error(
        "NeedsAuth: the MCP server `{server}` refuses without valid credentials ({why}). Nothing \
         was done. The person logs in with `conjure mcp login {server}`, or sets a token in the \
         session's configuration (`headers`, with a secret)"
    )]
    NeedsAuth { server: String, why: String },
    /// There are credentials, and they do not give the rights that this wants.
    #[error(
        "MissingScope: the MCP server `{server}` wants {} for this, which its credentials do not \
         give ({why}). Nothing was done. The person adds it to `oauth.scopes` of the server and \
         logs in again with `conjure mcp login {server}`, or sets another token in the session's \
         configuration (`headers`, with a secret)",
        rights(scope.as_deref())
    )]
    MissingScope {
        server: String,
        /// Scopes, with spaces between them, as far as the server says which.
        scope: Option<String>,
        why: String,
    },
    /// The call does not fit.
    #[error("{0}")]
    Invalid(String),
}

/// A server's refusal to do anything without other credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthDemand {
    pub(crate) reason: String,
    /// Whether there are good credentials, which only do not give a right (a scope) that it wants.
    pub(crate) lacks_scope: bool,
}

/// Scopes for people.
pub(crate) fn rights(scope: Option<&str>) -> String {
    match scope {
        Some(scope) if scope.contains(' ') => format!("the rights (scopes) `{scope}`"),
        Some(scope) => format!("the right (scope) `{scope}`"),
        None => "a right (a scope)".to_owned(),
    }
}

impl Failure {
    /// The name of the kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::NotReady { .. } => "NotReady",
            Self::SessionLost { .. } => "SessionLost",
            Self::ModeMismatch { .. } => "ModeMismatch",
            Self::ConnectionLost { .. } => "ConnectionLost",
            Self::TimedOut { .. } => "TimedOut",
            Self::Cancelled { .. } => "Cancelled",
            Self::Refused { .. } => "Refused",
            Self::BadAnswer { .. } => "BadAnswer",
            Self::NeedsAuth { .. } => "NeedsAuth",
            Self::MissingScope { .. } => "MissingScope",
            Self::Invalid(_) => "Invalid",
        }
    }

    /// What keeps the server from doing anything, if it is that other credentials are wanted.
    pub(crate) fn auth_demand(&self) -> Option<AuthDemand> {
        match self {
            Self::NeedsAuth { why, .. } => Some(AuthDemand {
                reason: why.clone(),
                lacks_scope: false,
            }),
            Self::MissingScope { scope, why, .. } => {
                let rights = rights(scope.as_deref());
                Some(AuthDemand {
                    reason: format!("its login does not give {rights}: {why}"),
                    lacks_scope: true,
                })
            }
            _ => None,
        }
    }

    /// Replaces the reason of a refusal for want of credentials by why nothing could be done about it.
    #[must_use]
    pub(crate) fn with_reason(mut self, reason: String) -> Self {
        match &mut self {
            Self::NeedsAuth { why, .. } => *why = reason,
            Self::MissingScope { why, .. } => *why = format!("{why}; {reason}"),
            _ => {}
        }
        self
    }

    /// Hides secrets in the server's own words.
    pub(crate) fn redacted(mut self, secrets: &Secrets) -> Self {
        match &mut self {
            Self::NotReady { why, .. }
            | Self::SessionLost { why, .. }
            | Self::ConnectionLost { why, .. }
            | Self::BadAnswer { why, .. }
            | Self::NeedsAuth { why, .. }
            | Self::Invalid(why) => *why = secrets.redact(std::mem::take(why)),
            Self::MissingScope { why, scope, .. } => {
                *why = secrets.redact(std::mem::take(why));
                *scope = scope.take().map(|scope| secrets.redact(scope));
            }
            Self::Refused { message, data, .. } => {
                *message = secrets.redact(std::mem::take(message));
                *data = data.take().and_then(|data| {
                    let text = secrets.redact(data.to_string());
                    serde_json::from_str(&text).ok()
                });
            }
            Self::ModeMismatch { .. } | Self::TimedOut { .. } | Self::Cancelled { .. } => {}
        }
        self
    }

    /// Whether the text says all that there is to say of what to do.
    fn has_remedy(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Invalid(_))
    }

    /// The failure as the result of a call. `meta.mcp_error` is what the server said of it, and
    /// `meta.has_remedy` tells the host to add nothing about what to do.
    pub(crate) fn into_result(self) -> ToolResult {
        let mut meta = Map::new();
        meta.insert("error".to_owned(), Value::from(self.kind()));
        if self.has_remedy() {
            meta.insert("has_remedy".to_owned(), Value::Bool(true));
        }
        if let Self::Refused {
            code,
            message,
            data,
            ..
        } = &self
        {
            let mut error = json!({ "code": code, "message": message });
            if let (Some(data), Some(fields)) = (data, error.as_object_mut()) {
                fields.insert("data".to_owned(), (**data).clone());
            }
            meta.insert("mcp_error".to_owned(), error);
        }
        ToolResult {
            meta: Some(meta),
            ..ToolResult::error(self.to_string())
        }
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    // The SDK says each cause behind the error.
    conjure_skill_sdk::Error::from(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_itself_what_to_do_is_marked_and_a_refusal_is_not() {
        let marked = |failure: Failure| {
            let meta = failure.into_result().meta.unwrap_or_default();
            meta.get("has_remedy") == Some(&Value::Bool(true))
        };
        let server = || "pages".to_owned();
        assert!(marked(Failure::SessionLost {
            server: server(),
            why: "it ended".to_owned(),
            sent: "Nothing was sent.",
        }));
        assert!(!marked(Failure::Refused {
            server: server(),
            code: -32602,
            message: "no such page".to_owned(),
            data: None,
        }));
        assert!(!marked(Failure::Invalid("no such tool".to_owned())));
    }
}
