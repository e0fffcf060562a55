//! Errors as clients get them: problem details (RFC 9457), for everything that goes wrong.
//!
//! The kind of a problem is its `type`, which clients match; its `detail` says what failed, why,
//! and what to do.

use std::io::ErrorKind;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::page_parts::ShownProblem;
use super::versions::CHANGED_KIND;
use conjure_providers::ProviderError;
use conjure_providers::auths::{AuthError, KeyError};
use conjure_runtime::manager::{ManagerError, RemoteErrorKind};
use conjure_runtime::mcp_status::StatusError;
use conjure_runtime::session::{CompactError, SessionError, UnfoldError};
use conjure_store::StoreError;

/// The media type of problems.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";
/// Before the kind of a problem.
const TYPE_PREFIX: &str = "urn:conjure:problem:";
/// When a client may try again what failed because something is busy, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// An error (RFC 9457).
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub(super) struct Described {
    /// What kind of error it is, such as `urn:conjure:problem:name-taken`.
    r#type: String,
    /// The kind in words.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What failed, why, and what to do.
    detail: String,
    /// What the kind has beside these, such as `sessions` of `in-use`.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// Why a request is not done.
#[derive(Debug)]
pub(super) struct Problem(Box<ProblemParts>);

#[derive(Debug)]
struct ProblemParts {
    status: StatusCode,
    kind: &'static str,
    detail: String,
    extensions: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemParts {
            status,
            kind,
            detail: detail.into(),
            extensions: Map::new(),
            headers: Vec::new(),
        }))
    }

    /// The request cannot be read at all.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// The request was read, and what it says cannot be right.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    /// The thing that the request names is not there.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// The request stands against what is there.
    pub(super) fn conflict(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, kind, detail)
    }

    /// The request may work in a moment.
    pub(super) fn unavailable(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, detail)
            .header(header::RETRY_AFTER, RETRY_AFTER_SECONDS.clone())
    }

    /// Something of the host's own failed.
    pub(super) fn host(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "host", detail)
    }

    /// A file of the host's own cannot be read or written: a full disk, or a quota that is used up, is
    /// no fault of the host.
    pub(super) fn of_disk(error: &std::io::Error, detail: impl Into<String>) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "no-space",
                format!(
                    "{}; make space on the server's disk, then try again",
                    detail.into()
                ),
            ),
            _ => Self::host(detail),
        }
    }

    /// Whether it is of a kind.
    pub(super) fn is_kind(&self, kind: &str) -> bool {
        self.0.kind == kind
    }

    /// Adds a member to the problem.
    pub(super) fn with_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// Says which member of what was sent is wrong: a form shows the problem at the field of that name.
    pub(super) fn at(self, field: &str) -> Self {
        self.with_member("field", field)
    }

    /// Adds a header to the answer.
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    fn title(&self) -> String {
        let mut words = self.0.kind.replace('-', " ");
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        words
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.title();
        let problem = *self.0;
        if problem.status.is_server_error() {
            tracing::warn!(kind = problem.kind, "{}", problem.detail);
        }
        let shown = ShownProblem {
            status: problem.status,
            kind: problem.kind,
            title: title.clone(),
            detail: problem.detail.clone(),
        };
        let described = Described {
            r#type: format!("{TYPE_PREFIX}{}", problem.kind),
            title,
            status: problem.status.as_u16(),
            detail: problem.detail,
            more: problem.extensions,
        };
        let body = serde_json::to_vec(&described).unwrap_or_default();
        let content = [(header::CONTENT_TYPE, MEDIA_TYPE)];
        let mut response = (problem.status, content, body).into_response();
        response.headers_mut().extend(problem.headers);
        response.extensions_mut().insert(shown);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let said = error.to_string();
        match error {
            StoreError::NoThread { thread } => {
                Self::not_found(format!("there is no thread {thread}"))
            }
            StoreError::NotFound { .. } | StoreError::NoEntry { .. } => Self::not_found(said),
            StoreError::BadId { .. } => Self::invalid(said),
            StoreError::BadName { .. } => Self::invalid(said).at("name"),
            StoreError::Damaged { .. } | StoreError::Gap { .. } => Self::invalid(said),
            StoreError::NameTaken { .. } => Self::conflict("name-taken", said).at("name"),
            StoreError::ThreadExists { .. } => Self::conflict("thread-exists", said),
            StoreError::InUse { sessions, .. } => {
                Self::conflict("in-use", said).with_member("sessions", sessions)
            }
            StoreError::Busy { .. } | StoreError::Lost { .. } | StoreError::SessionBusy { .. } => {
                Self::conflict("busy", said)
            }
            StoreError::Changed { .. } => Self::conflict(CHANGED_KIND, said),
            StoreError::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", said)
            }
            StoreError::Full { .. } | StoreError::Quota { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no-space", said)
            }
            StoreError::Locked { .. }
            | StoreError::Behind { .. }
            | StoreError::Unreachable { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::Closed => Self::unavailable("database", said),
            StoreError::Io { source, .. } => Self::of_disk(&source, said),
            _ => Self::host(said),
        }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        let said = error.to_string();
        match error {
            AuthError::Store(error) => error.into(),
            AuthError::Taken { .. } => Self::conflict("name-taken", said).at("name"),
            AuthError::BadName { .. } => Self::invalid(said).at("name"),
            AuthError::BadProvider { .. } => Self::invalid(said).at("provider"),
            AuthError::BadAddress { .. } => Self::invalid(said).at("base_url"),
            AuthError::Vault(KeyError::BadSecret { .. }) => Self::invalid(said).at("secret"),
            AuthError::Vault(KeyError::NoSuchKind { .. }) => Self::invalid(said).at("kind"),
            AuthError::Unknown { .. } => Self::not_found(said),
            AuthError::Ambiguous { .. }
            | AuthError::OtherProvider { .. }
            | AuthError::OtherKind { .. }
            | AuthError::OtherAddress { .. } => Self::invalid(said),
            AuthError::Token(_) => Self::invalid(said),
            AuthError::Sealed { .. } | AuthError::LeftOut { .. } | AuthError::Expired { .. } => {
                Self::conflict("credential-unreadable", said)
            }
            AuthError::Locked { .. } => Self::unavailable("busy", said),
            _ => Self::host(said),
        }
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        let said = error.to_string();
        match error {
            SessionError::Store(error) => error.into(),
            SessionError::Spec(_)
            | SessionError::Provider { .. }
            | SessionError::Directory { .. } => Self::invalid(said),
            SessionError::Unfold(UnfoldError::NoFold { .. }) => Self::invalid(said),
            SessionError::Compact(CompactError::Failed { .. }) => {
                Self::new(StatusCode::BAD_GATEWAY, "provider", said)
            }
            SessionError::Unfold(_) | SessionError::Compact(_) => Self::conflict("conflict", said),
            SessionError::Tools(_) => Self::conflict("tools", said),
        }
    }
}

impl From<ManagerError> for Problem {
    fn from(error: ManagerError) -> Self {
        let said = error.to_string();
        match error {
            ManagerError::NotFound { .. } => Self::not_found(said),
            ManagerError::Invalid { field, .. } => {
                let problem = Self::invalid(said);
                match field {
                    Some(field) => problem.at(field),
                    None => problem,
                }
            }
            ManagerError::Conflict { .. } => Self::conflict("conflict", said),
            ManagerError::Full { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", said)
                    .header(header::RETRY_AFTER, RETRY_AFTER_SECONDS.clone())
            }
            ManagerError::Elsewhere { address, .. } => {
                Self::conflict("elsewhere", said).with_member("owner", address)
            }
            ManagerError::Remote(error) => match error.kind {
                RemoteErrorKind::NotFound => Self::not_found(said),
                RemoteErrorKind::Invalid => Self::invalid(said),
                RemoteErrorKind::Conflict | RemoteErrorKind::NotSupported => {
                    Self::conflict("conflict", said)
                }
                RemoteErrorKind::Changed => Self::conflict(CHANGED_KIND, said),
                RemoteErrorKind::Moved => Self::conflict("busy", said),
                RemoteErrorKind::Full => {
                    Self::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", said)
                        .header(header::RETRY_AFTER, RETRY_AFTER_SECONDS.clone())
                }
                RemoteErrorKind::Closing => Self::unavailable("ending", said),
                RemoteErrorKind::Host => Self::host(said),
            },
            ManagerError::Closing => Self::unavailable("ending", said),
            ManagerError::Session(error) => error.into(),
            ManagerError::Auth(error) => error.into(),
            ManagerError::Store(error) => error.into(),
        }
    }
}

impl From<StatusError> for Problem {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Session(error) => error.into(),
            error @ StatusError::Call(_) => Self::host(error.to_string()),
        }
    }
}

impl From<ProviderError> for Problem {
    fn from(error: ProviderError) -> Self {
        let said = error.to_string();
        Self::new(StatusCode::BAD_GATEWAY, "provider", said)
            .with_member("provider", json!(error.provider))
            .with_member("kind", json!(error.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_kind_in_two_ways() {
        let error = StoreError::InUse {
            name: "work".to_owned(),
            sessions: vec!["s1".to_owned()],
            names: vec!["`site`".to_owned()],
        };
        let problem = Problem::from(error);
        assert_eq!(
            (problem.0.status.as_u16(), problem.0.kind, problem.title()),
            (409, "in-use", "In use".to_owned())
        );
        assert_eq!(problem.0.extensions["sessions"], json!(["s1"]));
    }

    #[test]
    fn a_problem_with_a_member_of_what_was_sent_has_it_as_data() {
        let field = |problem: Problem| problem.0.extensions.get("field").cloned();
        let taken = StoreError::NameTaken {
            kind: "persona",
            name: "keeper".to_owned(),
        };
        assert_eq!(field(taken.into()), Some(json!("name")));
        let address = AuthError::BadAddress {
            reason: "it is none".to_owned(),
        };
        assert_eq!(field(address.into()), Some(json!("base_url")));
        assert_eq!(field(Problem::invalid("nothing of the kind")), None);
    }

    #[test]
    fn a_disk_that_is_full_is_no_fault_of_the_host() {
        let of = |kind: ErrorKind| {
            let error = std::io::Error::new(kind, "cannot write it");
            let problem = Problem::of_disk(&error, error.to_string());
            (problem.0.status.as_u16(), problem.0.kind)
        };
        assert_eq!(of(ErrorKind::StorageFull), (507, "no-space"));
        assert_eq!(of(ErrorKind::QuotaExceeded), (507, "no-space"));
        assert_eq!(of(ErrorKind::PermissionDenied), (500, "host"));
        let error = StoreError::Io {
            what: "write",
            path: "/data/backups".into(),
            source: std::sync::Arc::new(ErrorKind::StorageFull.into()),
        };
        assert!(Problem::from(error).is_kind("no-space"));
    }
}
