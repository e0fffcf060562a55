//! Secrets of MCP servers: saved as auths are, sealed and under the name that settings have for
//! them, and given to the plugin that asks for them.

use async_recursion::async_recursion as boxed;
use conjure_vault::{AuthKind, Credential};
use secrecy::SecretString;
use serde_json::Value;

use super::lock::lock;
use super::{AuthError, Auths};
use conjure_config::is_auth_name;
use conjure_import::typed_secrets;
use conjure_store::{SavedAuth, StoreError};

/// The provider under which they are saved.
pub const MCP: &str = conjure_store::MCP_SECRETS;
/// How their names begin: what the plugin for MCP servers may ask for.
pub const MCP_SECRET: &str = "MCP_";
/// Names that are tried until one is free.
const ATTEMPTS: u32 = 1_000;

/// What cannot be the name of a secret of MCP servers.
pub(super) fn check(name: &str, kind: AuthKind, has_address: bool) -> Result<(), String> {
    if !name.starts_with(MCP_SECRET) {
        return Err(format!(
            "a secret of MCP servers is called `{MCP_SECRET}…`, as their settings name it"
        ));
    }
    if kind != AuthKind::ApiKey || has_address {
        return Err("a secret of MCP servers is an api_key without an address".to_owned());
    }
    Ok(())
}

impl Auths {
    /// Seals a secret of MCP servers and saves it under this name, or with the first number from 2
    /// on where another one has it, here or in the environment, which would win.
    ///
    /// # Errors
    /// [`AuthError`]: no key to seal with, and what the database says.
    #[boxed]
    pub async fn add_secret(
        &self,
        name: &str,
        secret: SecretString,
    ) -> Result<SavedAuth, AuthError> {
        let credential = Credential::ApiKey(secret);
        let mut auth = SavedAuth::new(MCP, AuthKind::ApiKey.as_str(), name, Vec::new());
        let id = auth.id.clone();
        let _alone = lock(self.data_dir()).await?;
        auth.sealed = self
            .with_vault(move |vault| vault.seal(&id, &credential))
            .await?;
        let store = self.store().await?;
        for number in 2..ATTEMPTS {
            if !conjure_config::env::has_secret(&auth.name) {
                match store.create_auth(auth.clone()).await {
                    Err(StoreError::NameTaken { .. }) => {}
                    saved => return Ok(saved?),
                }
            }
            auth.name = format!("{name}_{number}");
        }
        Ok(store.create_auth(auth).await?)
    }

    /// Saves the secrets that somebody typed into the settings of an MCP server, and names them
    /// there. What stands in plain in `before`, at the same place, stays. Gives back the ids of what
    /// was saved, for [`Auths::forget_secrets`] where nothing comes of the settings.
    ///
    /// # Errors
    /// As [`Auths::add_secret`]; nothing is saved then.
    #[boxed]
    pub async fn seal_typed(
        &self,
        server: &str,
        settings: &mut Value,
        before: &[&Value],
    ) -> Result<Vec<String>, AuthError> {
        let mut saved = Vec::new();
        for typed in typed_secrets(server, settings, before) {
            match self.add_secret(&typed.name, typed.secret.clone()).await {
                Ok(auth) => {
                    typed.insert_reference(settings, &auth.name);
                    saved.push(auth.id);
                }
                Err(error) => {
                    self.forget_secrets(&saved).await;
                    return Err(error);
                }
            }
        }
        Ok(saved)
    }

    /// Takes back what was saved for settings that were refused. After any other failure they may
    /// have been saved all the same, and name it.
    #[boxed]
    pub async fn forget_unless_saved(&self, ids: &[String], error: &StoreError) {
        if matches!(
            error,
            StoreError::NameTaken { .. }
                | StoreError::BadName { .. }
                | StoreError::NotFound { .. }
                | StoreError::Changed { .. }
        ) {
            self.forget_secrets(ids).await;
        }
    }

    /// Takes back what was saved for settings that came to nothing.
    #[boxed]
    pub async fn forget_secrets(&self, ids: &[String]) {
        for id in ids {
            let removed = match self.store().await {
                Ok(store) => store.delete_auth(id).await.map_err(AuthError::from),
                Err(error) => Err(error),
            };
            if let Err(error) = removed {
                tracing::warn!("a secret that nothing names stays saved: {error}");
            }
        }
    }

    /// A secret of MCP servers by its name; nothing where none is saved.
    ///
    /// # Errors
    /// [`AuthError::Sealed`] when it cannot be read, and what the database says.
    #[boxed]
    pub async fn secret(&self, name: &str) -> Result<Option<SecretString>, AuthError> {
        if !name.starts_with(MCP_SECRET) || !is_auth_name(name) {
            return Ok(None);
        }
        let all = self.list().await?;
        let found = all
            .into_iter()
            .find(|saved| saved.provider == MCP && saved.name == name);
        let Some(found) = found else { return Ok(None) };
        match self.open_one(found).await?.credential {
            Credential::ApiKey(secret) => Ok(Some(secret)),
            Credential::BearerToken(_) | Credential::CustomHeaders(_) | Credential::BaseUrl => {
                Ok(None)
            }
        }
    }
}
