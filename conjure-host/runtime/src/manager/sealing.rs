//! Secrets that somebody typed into a session's settings of MCP servers: saved apart, and named
//! there, before the settings are saved.

use serde_json::{Map, Value};

use super::remote::{RemoteError, RemoteErrorKind};
use super::{Manager, ManagerError, SessionPatch};
use crate::mcp_status::KIND;
use conjure_providers::auths::Auths;
use conjure_store::{SavedSession as Row, Store};

/// MCP servers that are read at once.
const PAGE: u64 = 200;

/// What is sealed on the way to a session.
pub(super) struct Sealing {
    store: Store,
    /// Without them nothing is sealed: there is no place for it.
    auths: Option<Auths>,
    /// The session as it is.
    row: Option<Row>,
    /// The saved MCP servers, once they were read: copies of their settings say nothing new.
    saved_servers: Option<Vec<(String, Value)>>,
    /// Ids of what was saved.
    saved_ids: Vec<String>,
}

impl Manager {
    /// For a session that is to be, or that there is.
    pub(super) fn sealing(&self, before: Option<Row>) -> Sealing {
        Sealing {
            store: self.inner.store.clone(),
            auths: self.inner.host.shared.auths.clone(),
            row: before,
            saved_servers: None,
            saved_ids: Vec::new(),
        }
    }

    /// Returns a change without the secrets that were typed.
    pub(super) async fn seal_patch(
        &self,
        before: Row,
        mut patch: SessionPatch,
    ) -> Result<(SessionPatch, Sealing), ManagerError> {
        if patch.mcps.is_some() || patch.tools.is_some() {
            // What cannot be saved seals nothing.
            self.inner.apply_patch(&mut before.clone(), &patch).await?;
        }
        let mut sealing = self.sealing(Some(before));
        if let Some(mcps) = &mut patch.mcps {
            sealing.mcps(mcps).await?;
        }
        if let Some(tools) = &mut patch.tools {
            sealing.tools(tools).await?;
        }
        Ok((patch, sealing))
    }
}

impl Sealing {
    /// Seals what is typed into MCP servers by name.
    pub(super) async fn mcps(&mut self, mcps: &mut Map<String, Value>) -> Result<(), ManagerError> {
        for (name, settings) in mcps {
            let before = self.row.as_ref();
            let before = before.and_then(|row| row.mcps.0.get(name)).cloned();
            self.seal_server(name, settings, before.into_iter().collect())
                .await?;
        }
        Ok(())
    }

    /// Seals what is typed into the MCP servers of backends.
    pub(super) async fn tools(
        &mut self,
        tools: &mut Map<String, Value>,
    ) -> Result<(), ManagerError> {
        let backends = tools.get_mut("backend").and_then(Value::as_array_mut);
        for backend in backends.into_iter().flatten() {
            let Some(servers) = servers(backend) else {
                continue;
            };
            for (name, settings) in servers {
                let before = self.settings_in_tools(name);
                self.seal_server(name, settings, before).await?;
            }
        }
        Ok(())
    }

    /// Takes back what was sealed for a session that was refused. After any other failure it may
    /// have been saved all the same.
    pub(super) async fn finish<T, E: Into<ManagerError>>(
        self,
        saved: Result<T, E>,
    ) -> Result<T, ManagerError> {
        let error = match saved {
            Ok(saved) => return Ok(saved),
            Err(error) => error.into(),
        };
        match (&error, &self.auths) {
            (
                ManagerError::NotFound { .. }
                | ManagerError::Invalid { .. }
                | ManagerError::Session(_)
                | ManagerError::Remote(RemoteError {
                    kind: RemoteErrorKind::NotFound | RemoteErrorKind::Invalid,
                    ..
                }),
                _,
            ) => {
                self.forget().await;
            }
            (ManagerError::Store(error), Some(auths)) => {
                auths.forget_unless_saved(&self.saved_ids, error).await;
            }
            _ => {}
        }
        Err(error)
    }

    async fn seal_server(
        &mut self,
        name: &str,
        settings: &mut Value,
        mut before: Vec<Value>,
    ) -> Result<(), ManagerError> {
        let Some(auths) = self.auths.clone() else {
            return Ok(());
        };
        let known = self.saved_servers().await?.iter();
        let known = known.filter(|(known, _)| known == name);
        before.extend(known.map(|(_, settings)| settings.clone()));
        let before: Vec<&Value> = before.iter().collect();
        match auths.seal_typed(name, settings, &before).await {
            Ok(saved) => {
                self.saved_ids.extend(saved);
                Ok(())
            }
            Err(error) => {
                self.forget().await;
                Err(error.into())
            }
        }
    }

    async fn forget(&self) {
        if let Some(auths) = &self.auths {
            auths.forget_secrets(&self.saved_ids).await;
        }
    }

    async fn saved_servers(&mut self) -> Result<&[(String, Value)], ManagerError> {
        if self.saved_servers.is_none() {
            let mut known = Vec::new();
            let mut after: Option<String> = None;
            loop {
                let page = self.store.mcp_servers(after.as_deref(), PAGE).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.id.clone());
                known.extend(page.into_iter().map(|one| (one.name, one.settings.0)));
            }
            self.saved_servers = Some(known);
        }
        Ok(self.saved_servers.as_deref().unwrap_or_default())
    }

    /// What the session's backends say of a server of this name.
    fn settings_in_tools(&self, name: &str) -> Vec<Value> {
        let tools = self.row.as_ref().map(|row| &row.tools.0);
        let backends = tools.and_then(|tools| tools.get("backend")?.as_array());
        let of_name = |backend: &Value| {
            let servers = backend.get("config")?.get("servers")?;
            servers.get(name).cloned()
        };
        backends.into_iter().flatten().filter_map(of_name).collect()
    }
}

/// The MCP servers of a backend, if it has such.
fn servers(backend: &mut Value) -> Option<&mut Map<String, Value>> {
    if backend.get("kind").and_then(Value::as_str) != Some(KIND) {
        return None;
    }
    let config = backend.get_mut("config")?;
    config.get_mut("servers")?.as_object_mut()
}
