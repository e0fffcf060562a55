//! A place of the operating system for keys. The one of Linux is in `secret_service.rs`, the one of
//! macOS in `keychain.rs`.

use zeroize::Zeroizing;

/// Service name of this program's entries.
pub(crate) const SERVICE: &str = "conjure";

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
