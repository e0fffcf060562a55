//! What a session gets of the auths that it names: its provider, and credentials to send.

use async_recursion::async_recursion as boxed;

use super::{AuthError, Auths, expiry};
use crate::BUILT_IN_PROVIDERS;
use conjure_config::SessionSpec;
use conjure_config::{AuthRef, OpenAuth};
use conjure_store::SavedAuth;

impl Auths {
    /// Returns the session with the provider that its auth is for. No credential is read.
    ///
    /// # Errors
    /// [`AuthError`]: no such auth, several of the name, or one for another provider or address.
    #[boxed]
    pub async fn resolve_provider(&self, mut spec: SessionSpec) -> Result<SessionSpec, AuthError> {
        let Some(auth) = spec.auth.take() else {
            return Ok(spec);
        };
        let saved = self.find(&auth, spec.provider.as_deref()).await?;
        spec.provider = Some(saved.provider.clone());
        if BUILT_IN_PROVIDERS.contains(&saved.provider.as_str()) {
            return Ok(spec);
        }
        let own = spec.providers.entry(saved.provider.clone()).or_default();
        own.auth = Some(AuthRef::from(saved.full_name()));
        Ok(spec)
    }

    /// Returns the session with the credentials of all auths that it names.
    ///
    /// # Errors
    /// As [`Auths::resolve_provider`], and when a credential cannot be read.
    #[boxed]
    pub async fn open(&self, spec: SessionSpec) -> Result<SessionSpec, AuthError> {
        let spec = self.resolve_provider(spec).await?;
        let mut spec = spec.with_provider_base_url();
        for (provider, own) in &mut spec.providers {
            let Some(auth) = own.auth.as_ref().filter(|auth| auth.opened().is_none()) else {
                continue;
            };
            let saved = self.find(auth, Some(provider)).await?;
            if let (Some(of_auth), Some(of_session)) = (&saved.base_url, &own.base_url)
                && of_auth.trim_end_matches('/') != of_session.trim_end_matches('/')
            {
                return Err(AuthError::OtherAddress {
                    auth: saved.full_name(),
                    of_auth: of_auth.clone(),
                    of_session: crate::redacted_base_url(of_session),
                });
            }
            own.auth = Some(AuthRef::from(self.open_one(saved).await?));
        }
        Ok(spec)
    }

    /// Returns one auth with its credential.
    ///
    /// # Errors
    /// [`AuthError::Sealed`] when it cannot be read.
    #[boxed]
    pub async fn open_one(&self, saved: SavedAuth) -> Result<OpenAuth, AuthError> {
        let name = saved.full_name();
        if saved.sealed.is_empty() {
            return Err(AuthError::LeftOut { auth: name });
        }
        let (id, sealed) = (saved.id, saved.sealed);
        let opened = self
            .with_vault(move |vault| vault.unseal(&id, &sealed))
            .await;
        match opened {
            Ok(credential) => {
                expiry::check_saved(&name, &credential)?;
                Ok(OpenAuth {
                    name,
                    base_url: saved.base_url,
                    credential,
                })
            }
            Err(source) => Err(AuthError::Sealed {
                auth: name,
                source: Box::new(source),
            }),
        }
    }
}
