//! Saved auths: named credentials that sessions use, sealed in the database.
//!
//! Joins the store, which keeps rows and knows no secret, and the vault, which knows keys and no
//! rows. A credential is readable only in [`OpenAuth`], which nothing prints. Who changes auths
//! holds a lock on the directory of data, so that no credential is sealed with a key that
//! [`Auths::rotate`] is about to forget.

mod error;
mod expiry;
mod lock;
mod manage;
mod resolve;
mod rotation;
mod secrets;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_config::env;
use conjure_vault::{Vault, VaultError, VaultOptions};
use secrecy::SecretString;
use tokio::sync::OnceCell;

pub use conjure_config::{AuthName, AuthRef, BadAuthName, OpenAuth};
pub use conjure_vault::{
    AuthKind, Credential, KeyLocation, Keyring, NoKeyring, SystemKeyring, VaultError as KeyError,
};
pub use error::AuthError;
pub use manage::NewAuth;
pub use rotation::RotationReport;
pub use secrets::{MCP as MCP_SECRETS, MCP_SECRET};

use conjure_store::{SavedAuth, Store};

/// The auths that are read at once.
const PAGE: u64 = 200;

/// The saved auths of a host. Cloning it is cheap.
#[derive(Clone)]
pub struct Auths {
    inner: Arc<AuthsState>,
}

struct AuthsState {
    keys: KeySources,
    store: OnceCell<Store>,
}

/// The places where keys are looked for: the data directory and the environment.
pub struct KeySources {
    /// The directory of the data.
    pub data_dir: PathBuf,
    /// The key itself.
    pub key: Option<SecretString>,
    /// The key before; only reads.
    pub old_key: Option<SecretString>,
    /// The key file, instead of the one in the directory of the data and the keyring.
    pub key_file: Option<PathBuf>,
    /// The keyring.
    pub keyring: Arc<dyn Keyring>,
}

impl KeySources {
    /// The keyring of the system, else a file in the directory of the data; the environment is not
    /// looked at. [`KeySources::from_env`] does.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            key: None,
            old_key: None,
            key_file: None,
            keyring: Arc::new(SystemKeyring::new()),
        }
    }

    /// Like [`KeySources::new`], with the keys and the key file that the environment names.
    pub fn from_env(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            key: env::var(env::KEY).map(Into::into),
            old_key: env::var(env::OLD_KEY).map(Into::into),
            key_file: env::var(env::KEY_FILE).map(PathBuf::from),
            ..Self::new(data_dir)
        }
    }

    fn options(&self) -> VaultOptions {
        VaultOptions {
            data_dir: self.data_dir.clone(),
            key: self.key.clone(),
            old_key: self.old_key.clone(),
            key_file: self.key_file.clone(),
            keyring: Arc::clone(&self.keyring),
        }
    }
}

impl Auths {
    /// The auths in a database.
    pub fn over(store: Store, keys: KeySources) -> Self {
        Self {
            inner: Arc::new(AuthsState {
                keys,
                store: OnceCell::new_with(Some(store)),
            }),
        }
    }

    /// The auths in the database of this directory of data, which is opened when it is needed.
    pub fn at(keys: KeySources) -> Self {
        Self {
            inner: Arc::new(AuthsState {
                keys,
                store: OnceCell::new(),
            }),
        }
    }

    /// All of them, the oldest first.
    ///
    /// # Errors
    /// [`AuthError::Store`].
    #[boxed]
    pub async fn list(&self) -> Result<Vec<SavedAuth>, AuthError> {
        let store = self.store().await?;
        let mut all: Vec<SavedAuth> = Vec::new();
        loop {
            let page = store.auths(all.last().map(|auth| auth.id.as_str()), PAGE);
            let page = page.await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// One of them, by its id.
    ///
    /// # Errors
    /// [`AuthError::Store`] when there is none of this id.
    #[boxed]
    pub async fn get(&self, id: &str) -> Result<SavedAuth, AuthError> {
        Ok(self.store().await?.auth(id).await?)
    }

    async fn store(&self) -> Result<&Store, AuthError> {
        let opened = self
            .inner
            .store
            .get_or_try_init(|| conjure_store::open(self.data_dir()));
        Ok(opened.await?)
    }

    fn data_dir(&self) -> &Path {
        &self.inner.keys.data_dir
    }

    /// Does something with the vault on a thread that may block. The vault is opened each time:
    /// another process may have replaced the key since.
    async fn with_vault<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Vault) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, AuthError> {
        let options = self.inner.keys.options();
        let done = tokio::task::spawn_blocking(move || work(&Vault::open(options)?));
        match done.await {
            Ok(done) => Ok(done?),
            Err(error) => Err(AuthError::Ended {
                reason: error.to_string(),
            }),
        }
    }
}
