//! Replacing the key that credentials are sealed with.
//!
//! Row by row: whenever this ends, each credential is sealed with one of two keys that are both
//! kept. The old one is forgotten only after a pass that found nothing left to do.

use async_recursion::async_recursion as boxed;
use conjure_vault::{KeyId, KeyLocation, VaultError};
use serde::Serialize;

use super::lock::lock;
use super::{AuthError, Auths};
use conjure_store::{SavedAuth, StoreError};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RotationReport {
    /// The credentials that were sealed anew.
    pub sealed: usize,
    /// The new key's id, which tells nothing of it.
    pub key: String,
    /// Where the new key is.
    #[serde(rename = "place")]
    pub key_location: String,
}

/// What a row's credential is now: nothing where it needs no change.
pub(super) type Resealed = (SavedAuth, Result<Option<Vec<u8>>, VaultError>);

impl Auths {
    /// Seals every credential with a new key, and forgets the old one at the end. May be killed at
    /// any moment and begun again.
    ///
    /// # Errors
    /// [`AuthError::Rotation`] names the credentials that cannot be read; both keys stay then. A key
    /// from a variable has to be replaced there first.
    #[boxed]
    pub async fn rotate(&self) -> Result<RotationReport, AuthError> {
        let _alone = lock(self.data_dir()).await?;
        let mut sealed = 0;
        let mut before = None;
        loop {
            let rows = self.list().await?;
            let (key, rows) = self.reseal(rows).await?;
            let mut problems = Vec::new();
            let mut changed = 0;
            for (auth, resealed) in rows {
                match resealed {
                    Ok(None) => {}
                    Ok(Some(bytes)) => changed += usize::from(self.save(auth, bytes).await?),
                    Err(error) => problems.push((auth.full_name(), error.to_string())),
                }
            }
            sealed += changed;
            if !problems.is_empty() {
                return Err(AuthError::Rotation { problems });
            }
            // A pass that found nothing to do, with the key of the pass before.
            if changed == 0 && before == Some(key) {
                let place = self.finish(key).await?;
                return Ok(RotationReport {
                    sealed,
                    key: key.to_string(),
                    key_location: place,
                });
            }
            before = Some(key);
        }
    }

    pub(super) async fn reseal(
        &self,
        rows: Vec<SavedAuth>,
    ) -> Result<(KeyId, Vec<Resealed>), AuthError> {
        self.with_vault(move |vault| {
            let rotation = vault.rotation()?;
            // What was left out by an export has nothing to seal.
            let rows = rows.into_iter().filter(|auth| !auth.sealed.is_empty());
            let resealed = rows.map(|auth| {
                let bytes = rotation.reseal(&auth.id, &auth.sealed);
                (auth, bytes)
            });
            let resealed = resealed.collect();
            Ok((rotation.key(), resealed))
        })
        .await
    }

    /// Whether it is still there to be saved.
    pub(super) async fn save(&self, auth: SavedAuth, sealed: Vec<u8>) -> Result<bool, AuthError> {
        let auth = SavedAuth { sealed, ..auth };
        match self.store().await?.update_auth(auth).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn finish(&self, key: KeyId) -> Result<String, AuthError> {
        let place = self
            .with_vault(move |vault| {
                let rotation = vault.rotation()?;
                // Under the lock nobody else replaces keys; if somebody did, theirs stays unused.
                if rotation.key() == key {
                    rotation.finish()?;
                }
                Ok(vault.key_location())
            })
            .await?;
        Ok(place.map_or_else(String::new, |(place, _)| describe_location(&place)))
    }
}

fn describe_location(place: &KeyLocation) -> String {
    match place {
        KeyLocation::Variable(name) => (*name).to_owned(),
        KeyLocation::File(path) => path.display().to_string(),
        KeyLocation::Keyring(entry) => format!("the keyring, as {entry}"),
    }
}
