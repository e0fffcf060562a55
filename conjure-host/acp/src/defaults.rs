//! The auth and the model of a session that a client opens: as the host was told, else as the
//! person used last.

use agent_client_protocol::Error;
use conjure_runtime::manager::{Manager, SessionView};

use super::AcpOptions;
use super::error::{failed, needs_auth, of_manager};
use super::listing;
use super::settings::auths;

/// A saved auth's id or name, and a model.
pub(crate) struct SessionDefaults {
    pub(crate) auth: String,
    pub(crate) model: String,
}

/// Default settings of a new session.
pub(crate) async fn of(manager: &Manager, options: &AcpOptions) -> Result<SessionDefaults, Error> {
    let saved = auths(manager).await?;
    if saved.is_empty() {
        return Err(needs_auth(
            "no credential for a model is saved; `conjure auth create NAME --provider PROVIDER` \
             saves one",
        ));
    }
    let auth = match &options.auth {
        Some(auth) => auth.clone(),
        None => {
            let used = listing::newest(manager, |_| true).await;
            match (used.map_err(|error| of_manager(&error))?, saved.as_slice()) {
                (Some(used), _) => used.auth_id,
                (None, [only]) => only.id.clone(),
                (None, _) => {
                    return Err(failed(
                        "several auths are saved and no session uses one yet; say which with \
                         `conjure acp --auth NAME --model MODEL`",
                    ));
                }
            }
        }
    };
    let uses = |session: &SessionView| {
        let name = &session.auth;
        session.auth_id == auth || name.name == auth || name.to_string() == auth
    };
    let model = match &options.model {
        Some(model) => Some(model.clone()),
        None => {
            let used = listing::newest(manager, uses).await;
            let used = used.map_err(|error| of_manager(&error))?;
            used.map(|session| session.model)
        }
    };
    let model = model.ok_or_else(|| {
        failed(format!(
            "no session has used a model with the auth `{auth}` yet; say one with `conjure acp \
             --auth NAME --model MODEL` (`conjure models` lists them)"
        ))
    })?;
    Ok(SessionDefaults { auth, model })
}
