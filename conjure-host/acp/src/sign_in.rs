//! Whether a client is signed in: with an auth that was saved before, until it signs out.
//!
//! Signing out is the connection's affair. Saved auths stay: the terminal and the page have them too.

use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    AgentAuthCapabilities, AuthMethod, AuthMethodAgent, AuthenticateRequest, AuthenticateResponse,
    LogoutCapabilities, LogoutResponse,
};
use conjure_runtime::manager::Manager;

use super::error::{invalid, needs_auth};
use super::settings;

/// The one way to have a credential: it was saved before.
const SAVED_AUTH: &str = "saved-auth";

/// The sign-in of a connection. There is nothing to do for it but to have saved an auth.
#[derive(Debug, Default)]
pub(crate) struct SignIn {
    /// Whether the client signed out, and not in again.
    is_signed_out: AtomicBool,
}

impl SignIn {
    /// The ways to sign in.
    pub(crate) fn methods() -> Vec<AuthMethod> {
        let auth = AuthMethodAgent::new(SAVED_AUTH, "A saved auth of Conjure").description(
            "`conjure auth create NAME --provider PROVIDER` saves a key, in a terminal".to_owned(),
        );
        vec![AuthMethod::Agent(auth)]
    }

    /// Abilities for signing in and out, as a client is told.
    pub(crate) fn capabilities() -> AgentAuthCapabilities {
        AgentAuthCapabilities::new().logout(LogoutCapabilities::new())
    }

    pub(crate) async fn authenticate(
        &self,
        manager: &Manager,
        request: &AuthenticateRequest,
    ) -> Result<AuthenticateResponse, Error> {
        if &*request.method_id.0 != SAVED_AUTH {
            return Err(invalid(format!(
                "there is no way to authenticate named `{}`; there is `{SAVED_AUTH}`",
                request.method_id
            )));
        }
        if settings::auths(manager).await?.is_empty() {
            return Err(needs_auth(
                "nothing is saved yet; run `conjure auth create NAME --provider PROVIDER` in a \
                 terminal",
            ));
        }
        self.is_signed_out.store(false, Ordering::SeqCst);
        Ok(AuthenticateResponse::new())
    }

    /// Signs out: no session is opened until the client has signed in again. What is open goes on.
    pub(crate) fn logout(&self) -> LogoutResponse {
        self.is_signed_out.store(true, Ordering::SeqCst);
        LogoutResponse::new()
    }

    /// Refuses to open a session for a client that is not signed in.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_signed_out.load(Ordering::SeqCst) {
            return Err(needs_auth(format!(
                "this connection was signed out with `logout`; `authenticate` with `{SAVED_AUTH}` \
                 signs in again"
            )));
        }
        Ok(())
    }
}
