//! Looks at the settings of MCP servers before a session is saved with them: in its own list, and in
//! its backends.

use conjure_config::json::UnfitJson;
use conjure_config::mcp_settings::check_servers;
use serde_json::{Map, Value};

use super::{ManagerError, SessionPatch};
use crate::mcp_status::KIND;

/// Looks at the servers of a change. What is saved may go back as it is, whatever it is: whoever
/// changes something else has read it there.
///
/// # Errors
/// [`ManagerError::Invalid`] with the place.
pub(super) fn check_changed(
    patch: &SessionPatch,
    tools: &Value,
    mcps: &Value,
) -> Result<(), ManagerError> {
    let changed = |given: Option<&Map<String, Value>>, saved: &Value| {
        given
            .filter(|given| Some(*given) != saved.as_object())
            .cloned()
            .unwrap_or_default()
    };
    check(
        &changed(patch.tools.as_ref(), tools),
        &changed(patch.mcps.as_ref(), mcps),
    )
}

/// Looks at the servers of a session.
///
/// # Errors
/// [`ManagerError::Invalid`] with the place.
pub(super) fn check(
    tools: &Map<String, Value>,
    mcps: &Map<String, Value>,
) -> Result<(), ManagerError> {
    check_servers(mcps).map_err(|unfit| invalid("mcps", &unfit.below("mcps")))?;
    let backends = tools.get("backend").and_then(Value::as_array);
    for (at, backend) in backends.into_iter().flatten().enumerate() {
        let kind = backend.get("kind").and_then(Value::as_str);
        let servers = backend.pointer("/config/servers");
        if let (Some(KIND), Some(Value::Object(servers))) = (kind, servers) {
            let place = format!("tools.backend[{at}].config.servers");
            check_servers(servers).map_err(|unfit| invalid("tools", &unfit.below(&place)))?;
        }
    }
    Ok(())
}

fn invalid(field: &'static str, unfit: &UnfitJson) -> ManagerError {
    ManagerError::Invalid {
        field: Some(field),
        message: unfit.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_were_saved_before_they_were_looked_at_go_back_as_they_are() {
        let servers = json!({ "notes": { "command": 5 } });
        let tools = json!({ "backend": [{ "kind": KIND, "config": { "servers": servers } }] });
        let object = |value: &Value| value.as_object().cloned();
        let mut patch = SessionPatch {
            tools: object(&tools),
            mcps: object(&servers),
            ..SessionPatch::default()
        };
        assert!(check_changed(&patch, &tools, &servers).is_ok());
        let none = json!({});
        let told = |result: Result<(), ManagerError>| result.unwrap_err().to_string();
        let place = told(check_changed(&patch, &none, &servers));
        let wanted = "`tools.backend[0].config.servers.notes.command`";
        assert!(place.starts_with(wanted), "{place}");
        assert!(told(check_changed(&patch, &tools, &none)).starts_with("`mcps.notes.command`"));
        patch.mcps = object(&json!({ "notes": { "command": 6 } }));
        assert!(check_changed(&patch, &tools, &servers).is_err());
    }
}
