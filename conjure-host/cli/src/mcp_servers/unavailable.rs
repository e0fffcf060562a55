//! The MCP servers of a session that give it no tools now, told beside the tools that there are.
//!
//! A session says in notices which of its servers do not start. A verb that only looks at the tools,
//! or calls one, hears none of them: it asks how the servers are.

use std::fmt::{self, Display};

use conjure_config::SessionSpec;
use conjure_runtime::session::BackendServers;
use serde::Serialize;
use serde_json::Value;

use super::super::error::CliError;
use super::super::mcp_check::remedy;
use super::super::output::{clean, print_note};
use super::ListedServer;

/// A server that gives a session no tools now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnavailableServer {
    /// The backend that has it.
    backend: String,
    /// Name of the server.
    server: String,
    /// Such as `needs_auth` or `backoff`.
    state: String,
    /// Reason why it gives none.
    reason: String,
    /// What a person can do, where that is known.
    remedy: Option<String>,
}

/// The servers of a session that give it no tools now. A server that is started by its first call
/// is none of them.
pub(crate) fn unavailable(states: &[BackendServers], spec: &SessionSpec) -> Vec<UnavailableServer> {
    let mut found = Vec::new();
    for BackendServers { backend, servers } in states {
        let mut specs = spec.backends.iter();
        let known = specs.find(|spec| spec.instance() == backend);
        let configs = known.and_then(|spec| spec.config.as_ref()?.get("servers"));
        found.extend(servers.iter().filter_map(|status| {
            let name = status.get("server")?.as_str()?.to_owned();
            let config = configs.and_then(|configs| configs.get(&name)).cloned();
            UnavailableServer::of(&ListedServer {
                name,
                backend: backend.clone(),
                config: config.unwrap_or(Value::Null),
                status: Some(status.clone()),
            })
        }));
    }
    found
}

/// Tells a person of them.
pub(crate) fn print_unavailable(unavailable: &[UnavailableServer]) {
    for server in unavailable {
        print_note(clean(&server.to_string()));
    }
}

/// An error that they may be the cause of, with a hint for each.
pub(crate) fn hinted(error: CliError, unavailable: &[UnavailableServer]) -> CliError {
    let hints = unavailable.iter().map(UnavailableServer::to_string);
    hints.fold(error, CliError::hint)
}

impl UnavailableServer {
    /// What is told of a server; nothing of one that is well, switched off, not wanted yet, or that
    /// starts while its tools are known from an earlier time.
    fn of(server: &ListedServer) -> Option<Self> {
        let state = server.state();
        let reason = match state {
            "off" | "idle" => return None,
            "starting" if gives_tools(server) => return None,
            "ready" => Some(server.text("list_error")).filter(|error| !error.is_empty())?,
            _ => server.text("why"),
        };
        Some(Self {
            backend: server.backend.clone(),
            server: server.name.clone(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy(server),
        })
    }
}

/// Whether tools of a server that starts for the first time are offered all the same: calls of them
/// wait for it.
fn gives_tools(server: &ListedServer) -> bool {
    let is_listed = server.member("tools").is_some_and(Value::is_number);
    is_listed && server.last_state() == "starting"
}

impl Display for UnavailableServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            backend,
            server,
            state,
            reason,
            ..
        } = self;
        write!(formatter, "MCP server `{server}` of backend `{backend}` ")?;
        match state.as_str() {
            "ready" => write!(formatter, "does not list its tools: {reason}"),
            _ => write!(formatter, "is not connected ({state}): {reason}"),
        }?;
        match &self.remedy {
            Some(remedy) => write!(formatter, "; what to do: {remedy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(config: Value, status: Option<Value>) -> ListedServer {
        ListedServer {
            name: "s".to_owned(),
            backend: "mcp".to_owned(),
            config,
            status,
        }
    }

    #[test]
    fn servers_that_give_no_tools_are_told_with_the_reason_and_the_remedy() {
        let web = json!({ "url": "http://127.0.0.1:1/mcp" });
        let login = json!({ "state": "needs_auth", "why": "HTTP 401", "auth": "logged_out" });
        let told = UnavailableServer::of(&listed(web.clone(), Some(login))).unwrap();
        assert_eq!(
            told.to_string(),
            "MCP server `s` of backend `mcp` is not connected (needs_auth): HTTP 401; what to do: \
             conjure mcp login s"
        );
        let mute = json!({ "state": "ready", "list_error": "it is tired" });
        let told = UnavailableServer::of(&listed(web.clone(), Some(mute))).unwrap();
        assert!(
            told.to_string()
                .contains("does not list its tools: it is tired")
        );
        let well = [
            json!({ "state": "ready" }),
            json!({ "state": "idle", "why": "not yet" }),
            json!({ "state": "starting", "why": "it is still starting", "tools": 3 }),
        ];
        for status in well.into_iter().map(Some).chain([None]) {
            assert_eq!(UnavailableServer::of(&listed(web.clone(), status)), None);
        }
        for status in [
            json!({ "state": "starting", "why": "it is still starting" }),
            json!({ "state": "starting", "failed_as": "backoff", "why": "it ended", "tools": 3 }),
        ] {
            assert!(UnavailableServer::of(&listed(web.clone(), Some(status))).is_some());
        }
        let hinted = hinted(CliError::usage("there is no tool"), &[told]);
        assert_eq!(hinted.hints().len(), 1);
    }
}
