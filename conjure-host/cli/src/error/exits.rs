//! With which code each error of the crates below ends the program.

use std::fmt::Display;
use std::path::Path;

use conjure_client::ServerError;
use conjure_config::SpecError;
use conjure_http::ApiError;
use conjure_mcp::ServeError;
use conjure_providers::ProviderError;
use conjure_providers::auths::{AuthError, KeyError};
use conjure_runtime::HostError;
use conjure_runtime::manager::{ManagerError, RemoteErrorKind};
use conjure_runtime::mcp_status::StatusError;
use conjure_runtime::session::{ChatError, CompactError, SessionError};
use conjure_store::StoreError;

use crate::diagnosis::remedy_of;

use super::super::exit::Exit;
use super::{CliError, is_about_path};

impl From<SpecError> for CliError {
    fn from(error: SpecError) -> Self {
        Self::usage_from(error)
    }
}

impl From<HostError> for CliError {
    fn from(error: HostError) -> Self {
        Self::host_from(error)
    }
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> Self {
        let exit = match &error {
            SessionError::Spec(_)
            | SessionError::Provider { .. }
            | SessionError::Tools(_)
            | SessionError::Unfold(_)
            | SessionError::Compact(CompactError::Busy | CompactError::Nothing)
            | SessionError::Store(
                StoreError::NoThread { .. }
                | StoreError::BadId { .. }
                | StoreError::BadLocation { .. }
                | StoreError::ThreadExists { .. }
                | StoreError::NoEntry { .. }
                | StoreError::NotFound { .. }
                | StoreError::NameTaken { .. }
                | StoreError::BadName { .. }
                | StoreError::InUse { .. },
            ) => Exit::Usage,
            SessionError::Compact(CompactError::Failed { .. }) => Exit::Provider,
            SessionError::Compact(CompactError::Ended) => Exit::Host,
            // The directories that the person names were looked at before.
            SessionError::Store(_) | SessionError::Directory { .. } => Exit::Host,
        };
        match &error {
            SessionError::Store(StoreError::NotFound { kind, .. }) => {
                let listed = listed_by(kind);
                Self::from_source(exit, error).with_optional_hint(listed)
            }
            SessionError::Store(store) => {
                Self::with_remedy(exit, store.failure_and_remedy(), error)
            }
            _ => Self::from_source(exit, error),
        }
    }
}

impl CliError {
    /// An error of the store about a file that the person named: wrong usage where the file is what
    /// is wrong.
    pub(crate) fn of_named_file(named: &Path, error: StoreError) -> Self {
        let (is_usage, kind) = match &error {
            StoreError::Io { path, source, .. } if path == named => {
                (is_about_path(source.kind()), Some(source.kind()))
            }
            StoreError::Damaged { path, .. } | StoreError::NoRecords { path } => {
                (path == named, None)
            }
            _ => (false, None),
        };
        let mut error = Self::from(error);
        if is_usage {
            error.exit = Exit::Usage;
        }
        match kind {
            Some(kind) => error.hint_if_exists(kind),
            None => error,
        }
    }

    /// The data directory's database cannot be opened.
    pub(crate) fn unopened(error: StoreError) -> Self {
        let remedy = match &error {
            StoreError::Io { .. } => remedy_of(&error),
            // It says itself what to do.
            _ => None,
        };
        Self::from(error).with_optional_hint(remedy)
    }
}

/// Hint at the verb that lists the things of a kind, for somebody who named none of them.
fn listed_by(kind: &str) -> Option<&'static str> {
    match kind {
        "session" => Some("`conjure session list` lists them"),
        "persona" => Some("`conjure persona list` lists them"),
        _ => None,
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        SessionError::from(error).into()
    }
}

impl From<ChatError> for CliError {
    fn from(error: ChatError) -> Self {
        let exit = match &error {
            ChatError::Limit { .. } => Exit::Limit,
            ChatError::Provider { .. } => Exit::Provider,
            ChatError::Cancelled => Exit::Interrupted,
            ChatError::Ended { .. } => Exit::Host,
        };
        Self::from_source(exit, error)
    }
}

impl From<ProviderError> for CliError {
    fn from(error: ProviderError) -> Self {
        Self::from_source(Exit::Provider, error)
    }
}

impl From<AuthError> for CliError {
    fn from(error: AuthError) -> Self {
        let exit = match error {
            AuthError::Store(error) => return error.into(),
            AuthError::Vault(KeyError::BadSecret { .. } | KeyError::NoSuchKind { .. })
            | AuthError::BadName { .. }
            | AuthError::Taken { .. }
            | AuthError::Token(_)
            | AuthError::Expired { .. }
            | AuthError::BadProvider { .. }
            | AuthError::BadAddress { .. }
            | AuthError::Unknown { .. }
            | AuthError::Ambiguous { .. }
            | AuthError::OtherProvider { .. }
            | AuthError::OtherAddress { .. }
            | AuthError::OtherKind { .. }
            | AuthError::LeftOut { .. } => Exit::Usage,
            AuthError::Vault(_)
            | AuthError::Sealed { .. }
            | AuthError::Rotation { .. }
            | AuthError::Locked { .. }
            | AuthError::Lock(_)
            | AuthError::Ended { .. } => Exit::Host,
        };
        match &error {
            AuthError::Unknown { name, there } => {
                let failure = format!("there is no saved auth `{name}`");
                Self::with_remedy(exit, (failure, Some(there.clone())), error)
            }
            _ => Self::from_source(exit, error),
        }
    }
}

impl From<ManagerError> for CliError {
    fn from(error: ManagerError) -> Self {
        let exit = match error {
            ManagerError::Session(error) => return error.into(),
            ManagerError::Store(error) => return error.into(),
            ManagerError::Auth(AuthError::Store(error)) => return error.into(),
            ManagerError::NotFound { .. }
            | ManagerError::Invalid { .. }
            | ManagerError::Conflict { .. }
            | ManagerError::Auth(_) => Exit::Usage,
            ManagerError::Remote(ref error) => match error.kind {
                RemoteErrorKind::Full => Exit::Limit,
                RemoteErrorKind::Closing
                | RemoteErrorKind::Moved
                | RemoteErrorKind::Host
                | RemoteErrorKind::NotSupported => Exit::Host,
                RemoteErrorKind::NotFound
                | RemoteErrorKind::Invalid
                | RemoteErrorKind::Conflict
                | RemoteErrorKind::Changed => Exit::Usage,
            },
            ManagerError::Full { .. } => Exit::Limit,
            ManagerError::Closing | ManagerError::Elsewhere { .. } => Exit::Host,
        };
        let listed = match &error {
            ManagerError::NotFound { kind, .. } => listed_by(kind),
            _ => None,
        };
        let pid = match &error {
            ManagerError::Elsewhere {
                pid,
                is_silent: true,
                ..
            } => Some(*pid),
            _ => None,
        };
        let told = Self::from_source(exit, error).with_optional_hint(listed);
        match pid {
            Some(pid) => told.hint(how_to_end(pid, " on its machine")),
            None => told,
        }
    }
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> Self {
        let exit = match &error {
            ServerError::Refused { status: 429, .. } => Exit::Limit,
            ServerError::Refused { status, .. } if *status < 500 => Exit::Usage,
            _ => Exit::Host,
        };
        let pid = match &error {
            ServerError::Silent { pid, .. } => *pid,
            _ => None,
        };
        let told = Self::from_source(exit, error);
        match pid {
            Some(pid) => told.hint(how_to_end(pid, "")),
            None => told,
        }
    }
}

/// How a process is ended that hangs, which may be on another machine.
fn how_to_end(pid: impl Display, place: &str) -> String {
    format!("where it hangs, `kill -9 {pid}`{place} ends it; then do this again")
}

impl From<StatusError> for CliError {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Session(error) => error.into(),
            error @ StatusError::Call(_) => Self::host_from(error),
        }
    }
}

impl From<ApiError> for CliError {
    fn from(error: ApiError) -> Self {
        match &error {
            ApiError::NeedsToken | ApiError::Listen { .. } => Self::usage_from(error),
        }
    }
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        match &error {
            ServeError::Spec(_) | ServeError::NeedsToken | ServeError::Listen { .. } => {
                Self::usage_from(error)
            }
            ServeError::Stream { .. } => Self::host_from(error),
        }
    }
}
