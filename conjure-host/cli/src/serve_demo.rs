//! What `conjure serve --demo` has ready: a session in which a script plays the model.
//!
//! Made once and then left as it is, in a directory of its own below that of data. Needs no key, asks
//! nobody over the network, and works in that directory.

use std::path::Path;

use conjure_config::fs;
use conjure_plugins::DEMO_WORK_DIR;
use conjure_providers::auths::{AuthError, Auths, Credential, NewAuth};
use conjure_runtime::manager::{Manager, NewSession};
use serde_json::{Value, json};

use super::error::CliError;

/// The session and its saved auth.
pub(crate) const NAME: &str = "demo";
/// Provider that plays the model.
const PROVIDER: &str = "scripted";
const SCRIPT: &str = include_str!("../demo/script.json");
const NOTES: &str = include_str!("../demo/notes.md");

/// Makes what is not there yet.
pub(crate) async fn prepare(
    manager: &Manager,
    auths: &Auths,
    data_dir: &Path,
) -> Result<(), CliError> {
    let dir = data_dir.join("demo");
    let (script, work) = (dir.join("script.json"), data_dir.join(DEMO_WORK_DIR));
    fs::create_dir_all(&work).map_err(CliError::usage_from)?;
    fs::write(&script, SCRIPT).map_err(CliError::usage_from)?;
    let notes = work.join("notes.md");
    if !notes.exists() {
        fs::write(&notes, NOTES).map_err(CliError::usage_from)?;
    }
    match manager.get(NAME).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(CliError::host_from(error)),
    }
    let auth = NewAuth {
        name: NAME.to_owned(),
        provider: PROVIDER.to_owned(),
        base_url: None,
    };
    match auths.add(auth, Credential::BaseUrl).await {
        Ok(_) | Err(AuthError::Taken { .. }) => {}
        Err(error) => return Err(CliError::host_from(error)),
    }
    let tools = json!({
        "script": script,
        "policy": { "allow": ["local_bash_tool", "local_view"] },
    });
    let mut session = NewSession::new(format!("{PROVIDER}/base_url/{NAME}"), NAME, work);
    session.name = Some(NAME.to_owned());
    if let Value::Object(tools) = tools {
        session.tools = tools;
    }
    manager.create(session).await.map_err(CliError::host_from)?;
    Ok(())
}
