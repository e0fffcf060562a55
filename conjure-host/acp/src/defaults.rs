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
    let sessions = listing::newest_first(manager).await;
    let sessions = sessions.map_err(|error| of_manager(&error))?;
    let auth = match &options.auth {
        Some(auth) => auth.clone(),
        None => {
            let used = sessions.first().map(|session| session.auth_id.clone());
            match (used, saved.as_slice()) {
                (Some(used), _) => used,
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
    let uses = |session: &&SessionView| {
        let name = &session.auth;
        session.auth_id == auth || name.name == auth || name.to_string() == auth
    };
    let used = sessions.iter().find(uses).map(|session| &session.model);
    let model = options.model.as_ref().or(used).cloned();
    let model = model.ok_or_else(|| {
        failed(format!(
            "no session has used a model with the auth `{auth}` yet; say one with `conjure acp \
             --auth NAME --model MODEL` (`conjure models` lists them)"
        ))
    })?;
    Ok(SessionDefaults { auth, model })
}
