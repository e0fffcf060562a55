//! Keys and where they are: what seals, what is tried to read, and how a key is replaced.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::key::MasterKey;
use crate::{Credential, KeyId, Keyring, SystemKeyring, VaultError, file, sealed};

/// Where a vault looks for its keys.
pub struct VaultOptions {
    /// The directory of the data: the key file is in it, unless another is named, and the keyring's
    /// entry is named after it.
    pub data_dir: PathBuf,
    /// The key itself, from [`Vault::VARIABLE`].
    pub key: Option<SecretString>,
    /// The key before, from [`Vault::OLD_VARIABLE`]; only reads.
    pub old_key: Option<SecretString>,
    /// The key file, from [`Vault::FILE_VARIABLE`]. Where one is named the keyring is given no
    /// new key.
    pub key_file: Option<PathBuf>,
    /// The keyring.
    pub keyring: Arc<dyn Keyring>,
}

impl VaultOptions {
    /// The system's keyring, else a file in the directory of the data.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            key: None,
            old_key: None,
            key_file: None,
            keyring: Arc::new(SystemKeyring::new()),
        }
    }
}

/// Place of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLocation {
    /// A variable of the environment.
    Variable(&'static str),
    /// A file.
    File(PathBuf),
    /// An entry of the keyring.
    Keyring(String),
}

struct LocatedKey {
    location: KeyLocation,
    key: MasterKey,
}

/// Seals credentials, and reads what was sealed. Calls may block: the keyring may ask its user.
pub struct Vault {
    options: VaultOptions,
    file: PathBuf,
    entry: String,
    /// Keys of the environment and of files, the one that seals first.
    local_keys: Mutex<Vec<LocatedKey>>,
    /// The keys of the keyring, once somebody asked for them.
    keyring_keys: OnceLock<Vec<LocatedKey>>,
}

impl Vault {
    /// The variable of the environment that holds a key.
    pub const VARIABLE: &'static str = "CONJURE_KEY";
    /// The variable that holds the key before, while it is replaced.
    pub const OLD_VARIABLE: &'static str = "CONJURE_OLD_KEY";
    /// The variable that names the key file.
    pub const FILE_VARIABLE: &'static str = "CONJURE_KEY_FILE";

    /// Looks at the environment and the key file. The keyring is asked when it is needed.
    ///
    /// # Errors
    /// A key that is none, and a key file that others may read.
    pub fn open(options: VaultOptions) -> Result<Self, VaultError> {
        let file = options
            .key_file
            .clone()
            .unwrap_or_else(|| options.data_dir.join("vault.key"));
        let mut held = Vec::new();
        let variables = [
            (Self::VARIABLE, &options.key),
            (Self::OLD_VARIABLE, &options.old_key),
        ];
        for (variable, text) in variables {
            if let Some(text) = text {
                let key = MasterKey::parse(text.expose_secret());
                let key = key.ok_or_else(|| VaultError::BadKey {
                    location: variable.to_owned(),
                })?;
                let place = KeyLocation::Variable(variable);
                held.push(LocatedKey {
                    location: place,
                    key,
                });
            }
        }
        for path in [file.clone(), file::next_path(&file)] {
            if let Some(key) = file::read(&path)? {
                let place = KeyLocation::File(path);
                held.push(LocatedKey {
                    location: place,
                    key,
                });
            }
        }
        Ok(Self {
            entry: entry(&options.data_dir),
            options,
            file,
            local_keys: Mutex::new(held),
            keyring_keys: OnceLock::new(),
        })
    }

    /// Seals a credential for the row with this id. The first time a key is made: in the keyring
    /// where there is one, else in the key file.
    ///
    /// # Errors
    /// When there is no key and none can be made.
    pub fn seal(&self, id: &str, credential: &Credential) -> Result<Vec<u8>, VaultError> {
        let (_, key) = self.current()?;
        sealed::seal(&key, id, &credential.to_bytes()?)
    }

    /// Reads the credential of the row with this id.
    ///
    /// # Errors
    /// [`VaultError::NoKey`] where its key is nowhere, [`VaultError::Damaged`], and what the
    /// keyring says.
    pub fn unseal(&self, id: &str, bytes: &[u8]) -> Result<Credential, VaultError> {
        let key = self.key(sealed::key_of(bytes)?)?;
        Credential::from_bytes(&sealed::open(&key, id, bytes)?)
    }

    /// Place and id of the key that seals; nothing while there is none.
    #[must_use]
    pub fn key_location(&self) -> Option<(KeyLocation, KeyId)> {
        self.sealing_key().map(|(place, key)| (place, key.id()))
    }

    /// Begins to replace the key, or goes on with what was begun. Seal everything again
    /// with [`Rotation::reseal`], save it, and only then [`Rotation::finish`]: until then
    /// both keys are kept, so that nothing is lost whenever this ends.
    ///
    /// # Errors
    /// [`VaultError::KeyInEnvironment`] where the key is a variable and the one before is not given.
    pub fn rotation(&self) -> Result<Rotation<'_>, VaultError> {
        let (place, key) = match self.current()? {
            (KeyLocation::Variable(variable), key) => {
                if self.options.old_key.is_none() {
                    return Err(VaultError::KeyInEnvironment {
                        variable,
                        old_variable: Self::OLD_VARIABLE,
                    });
                }
                (KeyLocation::Variable(variable), key)
            }
            (KeyLocation::File(path), _) => {
                let _alone = file::lock(&path)?;
                let next = file::next_path(&path);
                let key = match file::read(&next)? {
                    Some(key) => key,
                    None => file::create(&next, &MasterKey::fresh()?)?,
                };
                (KeyLocation::File(path), key)
            }
            (KeyLocation::Keyring(entry), _) => {
                let next = next_entry(&entry);
                let key = match self.read_keyring(&next)? {
                    Some(key) => key,
                    None => {
                        let key = MasterKey::fresh()?;
                        self.write_keyring(&next, &key)?;
                        key
                    }
                };
                (KeyLocation::Keyring(entry), key)
            }
        };
        Ok(Rotation {
            vault: self,
            new_location: place,
            key,
        })
    }

    /// The key that seals, made where there is none.
    fn current(&self) -> Result<(KeyLocation, MasterKey), VaultError> {
        match self.sealing_key() {
            Some(current) => Ok(current),
            None => self.create_key(),
        }
    }

    fn sealing_key(&self) -> Option<(KeyLocation, MasterKey)> {
        let seals = |held: &LocatedKey| match &held.location {
            KeyLocation::Variable(name) => *name == Self::VARIABLE,
            KeyLocation::File(path) => *path == self.file,
            KeyLocation::Keyring(entry) => *entry == self.entry,
        };
        let both = |held: &LocatedKey| (held.location.clone(), held.key.clone());
        if let Some(found) = self.lock().iter().find(|held| seals(held)).map(both) {
            return Some(found);
        }
        if self.options.key_file.is_some() {
            return None;
        }
        // A keyring that does not answer seals nothing; what it sealed before says so when it is
        // read.
        let held = self.load_keyring_keys().unwrap_or_default();
        held.iter().find(|held| seals(held)).map(both)
    }

    fn create_key(&self) -> Result<(KeyLocation, MasterKey), VaultError> {
        let key = MasterKey::fresh()?;
        let _alone = file::lock(&self.file)?;
        if self.options.key_file.is_none() && self.options.keyring.is_there() {
            let made = self.make_in_keyring(&key);
            if let Ok(key) = made {
                // What was not there when it was asked for is held here from now on.
                let place = KeyLocation::Keyring(self.entry.clone());
                self.add_key(place.clone(), key.clone());
                return Ok((place, key));
            }
        }
        let key = file::create(&self.file, &key)?;
        let place = KeyLocation::File(self.file.clone());
        self.add_key(place.clone(), key.clone());
        Ok((place, key))
    }

    /// The key of the keyring: this one, unless another process was quicker.
    fn make_in_keyring(&self, key: &MasterKey) -> Result<MasterKey, VaultError> {
        if let Some(key) = self.read_keyring(&self.entry)? {
            return Ok(key);
        }
        self.write_keyring(&self.entry, key)?;
        Ok(key.clone())
    }

    fn add_key(&self, location: KeyLocation, key: MasterKey) {
        let mut held = self.lock();
        held.retain(|held| held.location != location);
        held.push(LocatedKey { location, key });
    }

    /// The key of this name, wherever it is.
    fn key(&self, id: KeyId) -> Result<MasterKey, VaultError> {
        let with_id = |held: &&LocatedKey| held.key.id() == id;
        if let Some(held) = self.lock().iter().find(with_id) {
            return Ok(held.key.clone());
        }
        // Another process may have made or replaced the file since.
        for path in [self.file.clone(), file::next_path(&self.file)] {
            if let Some(key) = file::read(&path)?.filter(|key| key.id() == id) {
                self.add_key(KeyLocation::File(path), key.clone());
                return Ok(key);
            }
        }
        let asked = self.load_keyring_keys();
        if let Some(held) = asked
            .as_ref()
            .ok()
            .and_then(|held| held.iter().find(with_id))
        {
            return Ok(held.key.clone());
        }
        Err(VaultError::NoKey {
            key: id,
            places: self.describe_searched_keys(asked.err()),
        })
    }

    /// Places that were searched for keys, with what was found.
    fn describe_searched_keys(&self, keyring: Option<VaultError>) -> String {
        let held = self.lock();
        let found = |place: &KeyLocation| {
            let held = held
                .iter()
                .chain(self.keyring_keys.get().into_iter().flatten());
            let mut held = held.filter(|held| held.location == *place);
            match held.next() {
                Some(held) => format!("has key {}", held.key.id()),
                None => "has none".to_owned(),
            }
        };
        let variable = found(&KeyLocation::Variable(Self::VARIABLE));
        let file = found(&KeyLocation::File(self.file.clone()));
        let keyring = match keyring {
            Some(error) => error.to_string(),
            None => format!(
                "the keyring ({})",
                found(&KeyLocation::Keyring(self.entry.clone()))
            ),
        };
        format!(
            "{} ({variable}), `{}` ({file}), {keyring}",
            Self::VARIABLE,
            self.file.display(),
        )
    }

    fn load_keyring_keys(&self) -> Result<&[LocatedKey], VaultError> {
        if let Some(held) = self.keyring_keys.get() {
            return Ok(held);
        }
        let mut found = Vec::new();
        if self.options.keyring.is_there() {
            for entry in [self.entry.clone(), next_entry(&self.entry)] {
                if let Some(key) = self.read_keyring(&entry)? {
                    let place = KeyLocation::Keyring(entry);
                    found.push(LocatedKey {
                        location: place,
                        key,
                    });
                }
            }
        }
        Ok(self.keyring_keys.get_or_init(|| found))
    }

    fn read_keyring(&self, entry: &str) -> Result<Option<MasterKey>, VaultError> {
        let text = self.options.keyring.get(entry);
        let Some(text) = text.map_err(keyring_error("read"))? else {
            return Ok(None);
        };
        let key = MasterKey::parse(&text).ok_or_else(|| VaultError::BadKey {
            location: format!("the entry `{entry}` of the keyring"),
        })?;
        Ok(Some(key))
    }

    fn write_keyring(&self, entry: &str, key: &MasterKey) -> Result<(), VaultError> {
        let set = self.options.keyring.set(entry, &key.to_text());
        set.map_err(keyring_error("keep"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<LocatedKey>> {
        self.local_keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is being replaced.
pub struct Rotation<'a> {
    vault: &'a Vault,
    new_location: KeyLocation,
    key: MasterKey,
}

impl Rotation<'_> {
    /// The new key.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.key.id()
    }

    /// Seals with the new key what the old one sealed; nothing where that is done already.
    ///
    /// # Errors
    /// As [`Vault::unseal`].
    pub fn reseal(&self, id: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, VaultError> {
        let before = sealed::key_of(bytes)?;
        if before == self.key.id() {
            return Ok(None);
        }
        let plain = sealed::open(&self.vault.key(before)?, id, bytes)?;
        sealed::seal(&self.key, id, &plain).map(Some)
    }

    /// Forgets the old key. Only when everything that it sealed is saved anew.
    ///
    /// # Errors
    /// What the file system or the keyring says; the new key is kept all the same.
    pub fn finish(self) -> Result<(), VaultError> {
        match &self.new_location {
            KeyLocation::Variable(_) => return Ok(()),
            KeyLocation::File(path) => file::replace(path)?,
            KeyLocation::Keyring(entry) => {
                self.vault.write_keyring(entry, &self.key)?;
                let removed = self.vault.options.keyring.remove(&next_entry(entry));
                removed.map_err(keyring_error("tidy up"))?;
            }
        }
        self.vault.add_key(self.new_location, self.key);
        Ok(())
    }
}

/// The keyring's entry for a directory of data.
fn entry(data_dir: &std::path::Path) -> String {
    let hash = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
    let short: String = hash
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("vault-{short}")
}

fn next_entry(entry: &str) -> String {
    format!("{entry}-next")
}

fn keyring_error(what: &'static str) -> impl FnOnce(String) -> VaultError {
    move |reason| VaultError::Keyring {
        what,
        reason,
        variable: Vault::FILE_VARIABLE,
        key_variable: Vault::VARIABLE,
    }
}

#[cfg(test)]
mod tests;
