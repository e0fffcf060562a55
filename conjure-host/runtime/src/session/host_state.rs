//! What a host's sessions share: its plugins, its providers, its store.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use conjure_core::repair::RepairTarget;
use conjure_core::wire::Endpoint;

use super::error::SessionError;
use super::gather_window::GatherWindow;
use crate::artifacts::WriteTracker;
use crate::backend::Asker;
use crate::backend::instances::Instances;
use conjure_config::{SessionSpec, SyncBox};
use conjure_providers::auths::{AuthError, Auths};
use conjure_providers::{
    BUILT_IN_PROVIDERS, HttpClients, HttpProvider, ModelBook, Provider, Script, Scripted, ToolWalk,
    target,
};
use conjure_store::Log;

/// What a host's sessions share.
pub(crate) struct HostState(SyncBox<HostParts>);

/// What [`HostState`] consists of.
pub(crate) struct HostParts {
    pub(crate) instances: Arc<Instances>,
    pub(crate) log: Arc<dyn Log>,
    /// Window in which pieces of replies gather.
    pub(crate) window: Arc<GatherWindow>,
    /// Calls that run and may write.
    pub(crate) write_tracker: Arc<WriteTracker>,
    pub(crate) asker: Arc<dyn Asker>,
    pub(crate) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(crate) models: ModelBook,
    pub(crate) clients: HttpClients,
    pub(crate) auths: Option<Auths>,
}

impl Deref for HostState {
    type Target = HostParts;

    fn deref(&self) -> &HostParts {
        &self.0
    }
}

impl HostState {
    pub(crate) fn new(parts: HostParts) -> Self {
        Self(SyncBox::new(parts))
    }

    /// A session with the provider that its saved auth is for; with `open`, with the credentials
    /// of all auths that it names.
    pub(crate) async fn with_auths(
        &self,
        spec: SessionSpec,
        open: bool,
    ) -> Result<SessionSpec, SessionError> {
        let mut named = spec.providers.values().filter_map(|own| own.auth.as_ref());
        let needed = spec.auth.is_some() || (open && named.any(|auth| auth.opened().is_none()));
        let Some(auths) = self.auths.as_ref().filter(|_| needed) else {
            return match &spec.auth {
                Some(auth) if open => Err(provider_error(
                    conjure_providers::unopened_auth_message(auth),
                )),
                // Tools need no provider; whoever does is told.
                _ => Ok(spec),
            };
        };
        // Boxed: few sessions name an auth, and every opening would be as large as this.
        let done = if open {
            Box::pin(auths.open(spec)).await
        } else {
            Box::pin(auths.resolve_provider(spec)).await
        };
        let spec = done.map_err(|error| match error {
            AuthError::Store(error) => SessionError::Store(error),
            error => provider_error(error.to_string()),
        })?;
        for (name, own) in &spec.providers {
            if own.auth.is_some() && self.is_local_provider(name) {
                return Err(provider_error(format!(
                    "the provider `{name}` takes no saved auth: it is this program's own"
                )));
            }
        }
        Ok(spec)
    }

    fn is_local_provider(&self, provider: &str) -> bool {
        self.providers.contains_key(provider) || BUILT_IN_PROVIDERS.contains(&provider)
    }

    /// The provider of a session.
    pub(crate) fn provider(&self, spec: &SessionSpec) -> Result<Arc<dyn Provider>, SessionError> {
        let name = spec.provider.as_deref().unwrap_or_default();
        if let Some(provider) = self.providers.get(name) {
            return Ok(Arc::clone(provider));
        }
        match name {
            "scripted" => {
                let Some(path) = &spec.script else {
                    return Err(provider_error(
                        "the provider `scripted` needs a script: `script = \"FILE\"` in the \
                         session file, or `--script FILE`"
                            .to_owned(),
                    ));
                };
                let script =
                    Script::read(path).map_err(|error| provider_error(error.to_string()))?;
                Ok(Arc::new(Scripted::new(script, spec.vars.clone())))
            }
            "tool-walk" => Ok(Arc::new(ToolWalk)),
            name => match HttpProvider::find(name, spec, &self.clients)? {
                Some(provider) => Ok(Arc::new(provider)),
                None => Err(provider_error(self.describe_missing_provider(name, spec))),
            },
        }
    }

    /// Target of a session's requests, and the endpoint that it is spoken to at. Needs no key.
    pub(crate) fn recipient(
        &self,
        spec: &SessionSpec,
    ) -> Result<(RepairTarget, Endpoint), SessionError> {
        let name = spec.provider.as_deref().unwrap_or_default();
        let model = spec.model.as_deref().unwrap_or_default();
        if !self.providers.contains_key(name)
            && let Some((wire, endpoint)) = conjure_providers::wire_and_endpoint(name, spec)
        {
            let endpoint = endpoint.with_model(model);
            let target = self.models.narrowed(target(wire, &endpoint, model));
            return Ok((target, endpoint));
        }
        let provider = self.provider(spec)?;
        let target = self.models.target(name, provider.as_ref(), model);
        Ok((target, provider.endpoint(model)))
    }

    fn describe_missing_provider(&self, name: &str, spec: &SessionSpec) -> String {
        if let (true, Some(auth)) = (name.is_empty(), &spec.auth) {
            return conjure_providers::unopened_auth_message(auth);
        }
        let mut known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        known.extend(spec.providers.keys().map(String::as_str));
        known.extend(
            conjure_providers::KNOWN_PROVIDERS
                .iter()
                .map(|known| known.name),
        );
        known.extend(BUILT_IN_PROVIDERS);
        let known = known.join(", ");
        if name.is_empty() {
            format!(
                "no provider is named: `--provider NAME`, or `provider = \"NAME\"` in the session \
                 file; there are: {known}"
            )
        } else {
            format!("there is no provider `{name}`; there are: {known}")
        }
    }
}

fn provider_error(message: String) -> SessionError {
    SessionError::Provider { message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_without_saved_auths_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let host = crate::Host::builder()
            .data_dir(dir.path())
            .build()
            .await
            .unwrap();
        let spec = SessionSpec::from_toml("auth = \"mine\"\nmodel = \"m\"").unwrap();
        let error = host.session(spec.clone()).await.err().unwrap().to_string();
        assert!(error.contains("HostBuilder::auths"), "{error}");
        // Tools alone need none.
        host.calls(spec).await.unwrap().close().await;
    }
}
