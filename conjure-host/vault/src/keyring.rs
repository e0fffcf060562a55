//! The keyring of the operating system.

use std::sync::Arc;

use keyring_core::{CredentialStore, Error};
use zeroize::Zeroizing;

/// Service name of this program's entries.
const SERVICE: &str = "conjure";

/// A place for keys that the system keeps for its user. May block.
pub trait Keyring: Send + Sync {
    /// Whether there is one at all. Asks nobody.
    fn is_there(&self) -> bool;

    /// The text of an entry; nothing when there is no such entry.
    ///
    /// # Errors
    /// What the keyring says.
    fn get(&self, entry: &str) -> Result<Option<Zeroizing<String>>, String>;

    /// Sets the text of an entry.
    ///
    /// # Errors
    /// What the keyring says.
    fn set(&self, entry: &str, text: &str) -> Result<(), String>;

    /// Removes an entry.
    ///
    /// # Errors
    /// What the keyring says.
    fn remove(&self, entry: &str) -> Result<(), String>;
}

/// No keyring.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKeyring;

impl Keyring for NoKeyring {
    fn is_there(&self) -> bool {
        false
    }

    fn get(&self, _entry: &str) -> Result<Option<Zeroizing<String>>, String> {
        Ok(None)
    }

    fn set(&self, _entry: &str, _text: &str) -> Result<(), String> {
        Err("there is none".to_owned())
    }

    fn remove(&self, _entry: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The keyring of this system: the Secret Service of a Linux session, the Keychain of macOS.
#[derive(Debug, Clone, Default)]
pub struct SystemKeyring {
    store: Option<Arc<CredentialStore>>,
}

impl SystemKeyring {
    /// The keyring of this session, if it has one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A keyring over a store of one's own.
    #[must_use]
    pub fn over(store: Arc<CredentialStore>) -> Self {
        Self { store: Some(store) }
    }

    fn store(&self) -> Result<Arc<CredentialStore>, Error> {
        match &self.store {
            Some(store) => Ok(Arc::clone(store)),
            None => system(),
        }
    }

    fn entry(&self, entry: &str) -> Result<keyring_core::Entry, Error> {
        self.store()?.build(SERVICE, entry, None)
    }
}

impl Keyring for SystemKeyring {
    fn is_there(&self) -> bool {
        self.store.is_some() || has_session()
    }

    fn get(&self, entry: &str) -> Result<Option<Zeroizing<String>>, String> {
        match self.entry(entry).and_then(|entry| entry.get_password()) {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(reason(&error)),
        }
    }

    fn set(&self, entry: &str, text: &str) -> Result<(), String> {
        let set = self.entry(entry).and_then(|entry| entry.set_password(text));
        set.map_err(|error| reason(&error))
    }

    fn remove(&self, entry: &str) -> Result<(), String> {
        match self
            .entry(entry)
            .and_then(|entry| entry.delete_credential())
        {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(reason(&error)),
        }
    }
}

/// The error in words. One that holds what was read does not show it.
fn reason(error: &Error) -> String {
    match error {
        Error::BadEncoding(_) | Error::BadDataFormat(..) => "the entry is no text".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(target_os = "linux")]
fn system() -> Result<Arc<CredentialStore>, Error> {
    let store = zbus_secret_service_keyring_store::Store::new()?;
    Ok(store)
}

/// Whether somebody is logged in whom a keyring would ask: a server has no session bus.
#[cfg(target_os = "linux")]
fn has_session() -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some()
        || std::path::Path::new(&format!("/run/user/{user}/bus")).exists()
}

#[cfg(target_os = "macos")]
fn system() -> Result<Arc<CredentialStore>, Error> {
    let store = apple_native_keyring_store::keychain::Store::new()?;
    Ok(store)
}

#[cfg(target_os = "macos")]
fn has_session() -> bool {
    true
}
