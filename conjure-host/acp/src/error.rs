//! What goes wrong, and as which error of the protocol a client is told.

use agent_client_protocol::Error;
use conjure_runtime::manager::ManagerError;

/// Why a connection ended that nobody closed.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the editor ended: {reason}")]
pub struct AcpError {
    pub(crate) reason: String,
}

/// The request is invalid.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    with_message(Error::invalid_params(), message)
}

/// The request was not done, and that is not the client's fault.
pub(crate) fn failed(message: impl Into<String>) -> Error {
    with_message(Error::internal_error(), message)
}

/// Nobody has saved a credential yet.
pub(crate) fn needs_auth(message: impl Into<String>) -> Error {
    with_message(Error::auth_required(), message)
}

/// The session is not open on this connection.
pub(crate) fn no_session(id: &str) -> Error {
    let mut error: Error =
        agent_client_protocol::v1::schema::Error::session_not_found(id.to_owned()).into();
    error.message = format!(
        "no session `{id}` is open on this connection; `session/new`, `session/load` or \
         `session/resume` opens one"
    );
    error
}

/// The protocol's error for an error of the manager.
pub(crate) fn of_manager(error: &ManagerError) -> Error {
    let words = error.to_string();
    match error {
        ManagerError::NotFound { .. }
        | ManagerError::Invalid { .. }
        | ManagerError::Conflict { .. }
        | ManagerError::Full { .. } => invalid(words),
        _ => failed(words),
    }
}

fn with_message(mut error: Error, message: impl Into<String>) -> Error {
    error.message = message.into();
    error
}
