//! The keyring of macOS: the Keychain.

use std::sync::Arc;

use keyring_core::{CredentialStore, Entry, Error};
use zeroize::Zeroizing;

use crate::Keyring;
use crate::keyring::SERVICE;

/// The Keychain.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keychain;

impl Keychain {
    /// The Keychain of the user.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Keyring for Keychain {
    fn is_there(&self) -> bool {
        true
    }

    fn get(&self, entry: &str) -> Result<Option<Zeroizing<String>>, String> {
        match open(entry).and_then(|entry| entry.get_password()) {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(reason(&error)),
        }
    }

    fn set(&self, entry: &str, text: &str) -> Result<(), String> {
        let set = open(entry).and_then(|entry| entry.set_password(text));
        set.map_err(|error| reason(&error))
    }

    fn remove(&self, entry: &str) -> Result<(), String> {
        match open(entry).and_then(|entry| entry.delete_credential()) {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(reason(&error)),
        }
    }
}

fn open(entry: &str) -> Result<Entry, Error> {
    let store: Arc<CredentialStore> = apple_native_keyring_store::keychain::Store::new()?;
    store.build(SERVICE, entry, None)
}

/// The error in words. One that holds what was read does not show it.
fn reason(error: &Error) -> String {
    match error {
        Error::BadEncoding(_) | Error::BadDataFormat(..) => "the entry is no text".to_owned(),
        error => error.to_string(),
    }
}
