//! The settings of a session that a client can change: its mode, its auth and its model.

use std::collections::BTreeSet;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectGroup,
    SessionConfigSelectOption, SetSessionConfigOptionRequest,
};
use conjure_core::turn::EffectiveFrom;
use conjure_providers::auths::MCP_SECRETS;
use conjure_runtime::manager::{Manager, SessionPatch, SessionView};
use conjure_store::SavedAuth;

use super::error::{failed, invalid, of_manager};
use super::modes::Mode;

/// The option of the mode.
pub(crate) const MODE: &str = "mode";
/// The option of auth and model.
pub(crate) const MODEL: &str = "model";
/// Auths that are read at once.
const PAGE_AUTHS: u64 = 200;

/// The saved auths that a model can be asked with.
pub(crate) async fn auths(manager: &Manager) -> Result<Vec<SavedAuth>, Error> {
    let mut all: Vec<SavedAuth> = Vec::new();
    loop {
        let after = all.last().map(|auth| auth.id.clone());
        let page = manager.store().auths(after.as_deref(), PAGE_AUTHS).await;
        let page = page.map_err(|error| failed(error.to_string()))?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    all.retain(|auth| auth.provider != MCP_SECRETS);
    Ok(all)
}

/// The options of a session, with their values of now.
pub(crate) async fn options(
    manager: &Manager,
    view: &SessionView,
    mode: Mode,
) -> Result<Vec<SessionConfigOption>, Error> {
    let modes = Mode::ALL.map(|mode| {
        SessionConfigSelectOption::new(mode.id(), mode.name())
            .description(mode.description().to_owned())
    });
    let modes = SessionConfigOption::select(MODE, "Mode", mode.id(), modes.to_vec())
        .category(SessionConfigOptionCategory::Mode);
    let saved = auths(manager).await?;
    let groups: Vec<SessionConfigSelectGroup> = saved
        .iter()
        .map(|auth| models(manager, auth, view))
        .collect();
    let current = value(&view.auth_id, &view.model);
    let model = SessionConfigOption::select(MODEL, "Model", current, groups)
        .category(SessionConfigOptionCategory::Model);
    Ok(vec![modes, model])
}

/// The models that are known for an auth, and the one that the session has.
fn models(manager: &Manager, auth: &SavedAuth, view: &SessionView) -> SessionConfigSelectGroup {
    let known = manager.host().models().models(&auth.provider);
    let mut names: BTreeSet<&str> = known.collect();
    if auth.id == view.auth_id {
        names.insert(&view.model);
    }
    let options = names.into_iter().map(|model| {
        SessionConfigSelectOption::new(value(&auth.id, model), model.to_owned())
            .description(format!("{} with the auth `{}`", auth.provider, auth.name))
    });
    SessionConfigSelectGroup::new(auth.id.clone(), auth.name.clone(), options.collect())
}

fn value(auth: &str, model: &str) -> String {
    format!("{auth}/{model}")
}

/// Takes over auth and model. While a turn runs they hold from the next one on.
pub(crate) async fn set_model(
    manager: &Manager,
    session: &str,
    value: &str,
) -> Result<SessionView, Error> {
    let (auth, model) = value
        .split_once('/')
        .ok_or_else(|| invalid(format!("`{value}` is no value of `{MODEL}`")))?;
    let patch = SessionPatch {
        auth: Some(auth.to_owned()),
        model: Some(model.to_owned()),
        ..SessionPatch::default()
    };
    let changed = manager
        .update(session, patch, EffectiveFrom::NextTurn)
        .await;
    changed.map_err(|error| of_manager(&error))
}

/// The mode that is asked for.
pub(crate) fn mode(id: &str) -> Result<Mode, Error> {
    Mode::of(id).ok_or_else(|| {
        let known: Vec<&str> = Mode::ALL.iter().map(|mode| mode.id()).collect();
        invalid(format!(
            "there is no mode `{id}`; there are {}",
            known.join(", ")
        ))
    })
}

/// The value that a request has for an option.
pub(crate) fn option_value(request: &SetSessionConfigOptionRequest) -> Result<&str, Error> {
    let value = request.value.as_value_id();
    let value = value.map(|value| &*value.0);
    value.ok_or_else(|| invalid(format!("`{}` takes a text", request.config_id)))
}
