//! The MCP servers of a session file, as the verbs below `conjure mcp` see them: through the
//! plugin, in a host.

pub(crate) mod unavailable;

use std::path::PathBuf;
use std::time::Duration;

use conjure_config::{BackendSpec, SessionSpec};
use conjure_runtime::Host;
use conjure_runtime::StandaloneBackend;
use conjure_runtime::backend::{Asker, HeldTool};
pub(super) use conjure_runtime::mcp_status::KIND;
use serde_json::{Map, Value, json};

use super::args::{Global, current_dir};
use super::error::CliError;
use super::plugin_args::PluginArgs;

/// Where the servers are configured.
#[derive(clap::Args)]
pub(super) struct ServerSourceArgs {
    /// The session file (TOML) that names the servers
    #[arg(long, short, value_name = "FILE", default_value = "session.toml")]
    config: PathBuf,
    #[command(flatten)]
    plugins: PluginArgs,
}

impl ServerSourceArgs {
    /// The session file.
    pub(super) fn spec(&self) -> Result<SessionSpec, CliError> {
        let file = &self.config;
        if !file.exists() {
            let message = format!("there is no session file {}", file.display());
            return Err(CliError::usage(message).hint("name one with `--config FILE`"));
        }
        Ok(SessionSpec::read(file)?)
    }
}

/// The servers of a session file.
pub(super) struct Servers {
    host: Host,
    working_dir: PathBuf,
    backends: Vec<BackendSpec>,
}

/// A server as it is now.
pub(super) struct ListedServer {
    pub(super) name: String,
    /// The backend that has it.
    pub(super) backend: String,
    /// What the person configured.
    pub(super) config: Value,
    /// What the plugin says of it; nothing of one that is switched off.
    pub(super) status: Option<Value>,
}

impl ListedServer {
    /// A text of the status.
    pub(super) fn text(&self, member: &str) -> &str {
        let status = self.status.as_ref();
        let text = status.and_then(|status| status.get(member)?.as_str());
        text.unwrap_or_default()
    }

    /// Any member of the status.
    pub(super) fn member(&self, member: &str) -> Option<&Value> {
        self.status.as_ref()?.get(member)
    }

    /// State of the server, or that it is switched off.
    pub(super) fn state(&self) -> &str {
        match &self.status {
            Some(_) => self.text("state"),
            None => "off",
        }
    }

    /// State of the server; while it is tried again, the one that the last try ended in.
    pub(super) fn last_state(&self) -> &str {
        match (self.state(), self.text("failed_as")) {
            ("starting", failed) if !failed.is_empty() => failed,
            (state, _) => state,
        }
    }

    /// Tools that were left out, each with the reason.
    pub(super) fn left_out(&self) -> Vec<(&str, &str)> {
        let left_out = self.member("quarantined").and_then(Value::as_array);
        let left_out = left_out.into_iter().flatten();
        left_out
            .map(|item| (of(item, "name"), of(item, "why")))
            .collect()
    }
}

fn of<'a>(value: &'a Value, member: &str) -> &'a str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

impl Servers {
    /// Reads the session file and makes a host whose questions `asker` answers.
    pub(super) async fn open(
        global: &Global,
        source: &ServerSourceArgs,
        asker: impl Asker,
    ) -> Result<Self, CliError> {
        let spec = source.spec()?;
        let file = &source.config;
        let backends: Vec<BackendSpec> = spec
            .backends
            .into_iter()
            .filter(|backend| backend.kind == KIND)
            .collect();
        if backends.is_empty() {
            let message = format!("{} has no backend of the kind `{KIND}`", file.display());
            return Err(CliError::usage(message)
                .hint("`conjure mcp import` makes one of another program's configuration"));
        }
        let host = source.plugins.host(global).asker(asker).build().await;
        Ok(Self {
            host: host?,
            working_dir: match spec.working_dir {
                Some(dir) => dir,
                None => current_dir()?,
            },
            backends,
        })
    }

    /// The backends.
    pub(super) fn backends(&mut self) -> impl Iterator<Item = &mut BackendSpec> {
        self.backends.iter_mut()
    }

    /// Switches off every server but these.
    ///
    /// # Errors
    /// When one of them is not there.
    pub(super) fn retain_only(&mut self, wanted: &[String]) -> Result<(), CliError> {
        let mut known = Vec::new();
        for backend in &mut self.backends {
            let Some(servers) = servers_of(backend) else {
                continue;
            };
            for (name, server) in servers {
                known.push(name.clone());
                if let (false, Some(server)) = (wanted.contains(name), server.as_object_mut()) {
                    server.insert("enabled".to_owned(), json!(false));
                }
            }
        }
        match wanted.iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(CliError::usage(format!("there is no MCP server `{name}`"))
                .hint(format!("there are: {}", known.join(", ")))),
        }
    }

    /// Opens a backend on its own.
    pub(super) async fn open_standalone(
        &self,
        backend: &BackendSpec,
    ) -> Result<StandaloneBackend, CliError> {
        let opened = self
            .host
            .open_backend(backend, Some(self.working_dir.clone()));
        Ok(opened.await?)
    }

    /// The backend that has a server.
    pub(super) fn backend_of(&self, server: &str) -> Option<&BackendSpec> {
        self.backends.iter().find(|backend| {
            let servers = backend
                .config
                .as_ref()
                .and_then(|config| config.get("servers"));
            servers.is_some_and(|servers| servers.get(server).is_some())
        })
    }

    /// The tools of servers that are held until somebody approves them.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn held_tools(&self) -> Result<Vec<HeldTool>, CliError> {
        let mut held = self
            .host
            .approved_tools()
            .held_tools()
            .map_err(CliError::host_from)?;
        held.retain(|tool| tool.backend == KIND);
        Ok(held)
    }

    /// Starts them all and looks how they are, once each has settled or the time is up.
    pub(super) async fn start_and_list(
        &self,
        limit: Duration,
    ) -> Result<Vec<ListedServer>, CliError> {
        let mut seen = Vec::new();
        for backend in &self.backends {
            let dir = Some(self.working_dir.clone());
            let statuses = self.host.mcp_status(backend, dir, limit).await?;
            let config = backend.config.as_ref();
            let servers = config.and_then(|config| config.get("servers")?.as_object());
            for (name, config) in servers.into_iter().flatten() {
                let status = statuses.iter().find(|status| of(status, "server") == name);
                seen.push(ListedServer {
                    name: name.clone(),
                    backend: backend.instance().to_owned(),
                    config: config.clone(),
                    status: status.cloned(),
                });
            }
        }
        Ok(seen)
    }
}

/// The servers of a backend's configuration.
pub(super) fn servers_of(backend: &mut BackendSpec) -> Option<&mut Map<String, Value>> {
    backend.config.as_mut()?.get_mut("servers")?.as_object_mut()
}
