//! Seals the credentials that people save, and finds the key that they are sealed with.
//!
//! A credential is encrypted and authenticated (XChaCha20-Poly1305) together with the id of the row
//! that it stands in, so that a row's secret can be put into no other. The key is 32 bytes from the
//! environment, from a file that only its owner may read, or from the keyring of the operating
//! system, in this order. What is sealed names its key, so a key may move from one place to another,
//! and be replaced by [`Vault::rotation`].
//!
//! Nothing in here implements `Debug`, `Display` or `Serialize` with a secret in it. Begin at
//! `vault.rs`.

mod credential;
mod error;
mod file;
mod key;
#[cfg(target_os = "macos")]
mod keychain;
mod keyring;
mod sealed;
#[cfg(target_os = "linux")]
mod secret_service;
mod vault;

pub use credential::{AuthKind, Credential};
pub use error::VaultError;
pub use key::KeyId;
#[cfg(target_os = "macos")]
pub use keychain::Keychain as SystemKeyring;
pub use keyring::{Keyring, NoKeyring};
#[cfg(target_os = "linux")]
pub use secret_service::SessionKeyring as SystemKeyring;
pub use vault::{KeyLocation, Rotation, Vault, VaultOptions};
