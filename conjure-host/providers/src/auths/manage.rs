//! Adding, finding, renaming and removing saved auths.

use async_recursion::async_recursion as boxed;
use conjure_core::wire::Wire;
use conjure_vault::{AuthKind, Credential};

use super::lock::lock;
use super::{AuthError, Auths, expiry, secrets};
use crate::{BUILT_IN_PROVIDERS, KNOWN_PROVIDERS, KnownProvider, check_base_url};
use conjure_config::AuthRef;
use conjure_config::{BadAuthName, is_auth_name, is_provider_name};
use conjure_store::{SavedAuth, StoreError};

/// A saved auth that is to be.
pub struct NewAuth {
    /// Name of the auth: 3 to 50 of `A-Z a-z 0-9 _ -`.
    pub name: String,
    /// Provider that the credential is shown to.
    pub provider: String,
    /// Base URL of the provider, when not its usual one. Never secret: it is stored and shown as it is.
    pub base_url: Option<String>,
}

impl NewAuth {
    /// Finds what cannot be, before anybody is asked for a secret.
    ///
    /// # Errors
    /// [`AuthError`] says what is wrong.
    pub fn check(&self, kind: AuthKind) -> Result<(), AuthError> {
        if !is_auth_name(&self.name) {
            return Err(BadAuthName {
                text: self.name.clone(),
            }
            .into());
        }
        let provider = |reason: String| AuthError::BadProvider {
            provider: self.provider.clone(),
            reason,
        };
        if !is_provider_name(&self.provider) {
            return Err(provider(
                "a provider's name has letters, digits, `_`, `-` and `.` only".to_owned(),
            ));
        }
        if self.provider == secrets::MCP {
            return secrets::check(&self.name, kind, self.base_url.is_some()).map_err(provider);
        }
        if BUILT_IN_PROVIDERS.contains(&self.provider.as_str()) {
            return match kind {
                AuthKind::BaseUrl if self.base_url.is_none() => Ok(()),
                _ => Err(provider(
                    "it asks nobody over HTTP: its auth holds neither a secret nor an address, and \
                     is of the kind base-url"
                        .to_owned(),
                )),
            };
        }
        let known = KnownProvider::named(&self.provider);
        if let Some(base_url) = &self.base_url {
            let wire = known.map_or(Wire::OpenaiChat, |known| known.wire);
            return check_base_url(base_url, wire)
                .map_err(|reason| AuthError::BadAddress { reason });
        }
        // A server of one's own may ask for nothing, and is at its usual place.
        let needs_nothing = known.is_some_and(|known| !known.needs_key && known.base_url.is_some());
        if kind == AuthKind::BaseUrl && !needs_nothing {
            return Err(AuthError::BadAddress {
                reason: "none is given, and the kind base_url is nothing else".to_owned(),
            });
        }
        if known.is_none_or(|known| known.base_url.is_none()) {
            let known = KNOWN_PROVIDERS
                .iter()
                .filter(|known| known.base_url.is_some());
            let known: Vec<&str> = known.map(|known| known.name).collect();
            return Err(provider(format!(
                "nobody says where it is. Give its base URL, or name one of: {}",
                known.join(", ")
            )));
        }
        Ok(())
    }
}

impl Auths {
    /// Seals a credential and saves it.
    ///
    /// # Errors
    /// [`AuthError`]: what cannot be, a name that is taken, no key to seal with.
    #[boxed]
    pub async fn add(&self, new: NewAuth, credential: Credential) -> Result<SavedAuth, AuthError> {
        let kind = credential.kind();
        new.check(kind)?;
        expiry::check_new(&credential)?;
        let mut auth = SavedAuth::new(new.provider, kind.as_str(), new.name, Vec::new());
        auth.base_url = new.base_url;
        let id = auth.id.clone();
        let _alone = lock(self.data_dir()).await?;
        auth.sealed = self
            .with_vault(move |vault| vault.seal(&id, &credential))
            .await?;
        let name = auth.full_name();
        match self.store().await?.create_auth(auth).await {
            Err(StoreError::NameTaken { .. }) => Err(AuthError::Taken { auth: name }),
            done => Ok(done?),
        }
    }

    /// Looks whether there is one of the name already, before a secret is asked for.
    ///
    /// # Errors
    /// [`AuthError::Taken`], and what the database says.
    #[boxed]
    pub async fn check_free(&self, new: &NewAuth, kind: AuthKind) -> Result<(), AuthError> {
        let is_it = |saved: &&SavedAuth| {
            saved.provider == new.provider && saved.kind == kind.as_str() && saved.name == new.name
        };
        match self.list().await?.iter().find(is_it) {
            Some(saved) => Err(AuthError::Taken {
                auth: saved.full_name(),
            }),
            None => Ok(()),
        }
    }

    /// The one that is meant; among several of the name, the one for `provider`.
    ///
    /// # Errors
    /// [`AuthError::Unknown`], [`AuthError::Ambiguous`], [`AuthError::OtherProvider`], and what the
    /// database says.
    #[boxed]
    pub async fn find(
        &self,
        auth: &AuthRef,
        provider: Option<&str>,
    ) -> Result<SavedAuth, AuthError> {
        let all = self.list().await?;
        let mut found: Vec<&SavedAuth> = all
            .iter()
            .filter(|saved| auth.matches(&saved.full_name()))
            .collect();
        if let Some(provider) = provider {
            let of_another = found.first().map(|saved| saved.full_name());
            found.retain(|saved| saved.provider == provider);
            if let (true, Some(auth)) = (found.is_empty(), of_another) {
                return Err(AuthError::OtherProvider {
                    auth,
                    provider: provider.to_owned(),
                });
            }
        }
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(AuthError::Unknown {
                name: auth.as_str().to_owned(),
                there: list_saved(&all),
            }),
            several => Err(AuthError::Ambiguous {
                name: auth.as_str().to_owned(),
                among: several.iter().map(|saved| saved.full_name()).collect(),
            }),
        }
    }

    /// Gives one another name. Sessions keep it.
    ///
    /// # Errors
    /// As [`Auths::find`], and a name that is taken or cannot be.
    #[boxed]
    pub async fn rename(&self, auth: &AuthRef, name: &str) -> Result<SavedAuth, AuthError> {
        let _alone = lock(self.data_dir()).await?;
        let auth = self.find(auth, None).await?;
        let renamed = SavedAuth {
            name: name.to_owned(),
            ..auth
        };
        Ok(self.store().await?.update_auth(renamed).await?)
    }

    /// Seals another credential of the same kind in its place.
    ///
    /// # Errors
    /// As [`Auths::find`]; [`AuthError::OtherKind`] where the credential is of another kind, and no
    /// key to seal with.
    #[boxed]
    pub async fn replace(
        &self,
        auth: &AuthRef,
        credential: Credential,
    ) -> Result<SavedAuth, AuthError> {
        let _alone = lock(self.data_dir()).await?;
        let auth = self.find(auth, None).await?;
        if credential.kind().as_str() != auth.kind {
            return Err(AuthError::OtherKind {
                auth: auth.full_name(),
                kind: credential.kind(),
            });
        }
        expiry::check_new(&credential)?;
        let id = auth.id.clone();
        let sealed = self
            .with_vault(move |vault| vault.seal(&id, &credential))
            .await?;
        let replaced = SavedAuth { sealed, ..auth };
        Ok(self.store().await?.update_auth(replaced).await?)
    }

    /// Looks whether [`Auths::remove`] would remove one, before somebody is asked about it.
    ///
    /// # Errors
    /// What [`Auths::remove`] says.
    #[boxed]
    pub async fn check_unused(&self, auth: &SavedAuth) -> Result<(), AuthError> {
        Ok(self.store().await?.check_auth_unused(&auth.id).await?)
    }

    /// Removes one for good.
    ///
    /// # Errors
    /// As [`Auths::find`]; [`StoreError::InUse`] names the
    /// sessions that use it.
    #[boxed]
    pub async fn remove(&self, auth: &AuthRef) -> Result<SavedAuth, AuthError> {
        let _alone = lock(self.data_dir()).await?;
        let auth = self.find(auth, None).await?;
        self.store().await?.delete_auth(&auth.id).await?;
        Ok(auth)
    }
}

/// List of the saved auths, for somebody who named none of them. Secrets of MCP servers are no auths of
/// a provider.
fn list_saved(all: &[SavedAuth]) -> String {
    const SHOWN: usize = 20;
    let mut all: Vec<&SavedAuth> = all.iter().collect();
    all.retain(|auth| auth.provider != secrets::MCP);
    if all.is_empty() {
        return "there is none yet: `conjure auth create NAME --provider PROVIDER` saves one"
            .to_owned();
    }
    // Where several have a name, it alone names none of them.
    let is_shared = |name: &str| all.iter().filter(|auth| auth.name == name).count() > 1;
    let named = all.iter().map(|auth| match is_shared(&auth.name) {
        true => auth.full_name().to_string(),
        false => auth.name.clone(),
    });
    let shown: Vec<String> = named.take(SHOWN).collect();
    let more = if all.len() > SHOWN { ", …" } else { "" };
    format!("there are: {}{more}", shown.join(", "))
}
