//! What can be wrong with keys and what they seal.

use std::path::PathBuf;

use crate::{AuthKind, KeyId};

/// Errors of sealing and reading credentials.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// A secret cannot be one of its kind.
    #[error("that is no {kind}: {reason}")]
    BadSecret {
        /// The kind.
        kind: AuthKind,
        /// Reason, without the secret.
        reason: String,
    },
    /// The kind is not known.
    #[error(
        "there is no kind `{kind}`; there are: api_key, bearer_token, custom_headers, base_url"
    )]
    NoSuchKind {
        /// Text that was given.
        kind: String,
    },
    /// A key is not 32 bytes in base64 or hex.
    #[error(
        "{location} holds no key: it has to be 32 bytes in base64 or hex, such as `openssl rand -base64 \
         32` prints"
    )]
    BadKey {
        /// Place of the key.
        location: String,
    },
    /// The key file can be accessed by others.
    #[error(
        "the key file `{}` may be read or written by others ({mode:o}); `chmod 600` it, and make \
         new keys (`conjure auth rotate`) if somebody may have seen it",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The key file is not what it should be.
    #[error("the key file `{}` cannot be used: {reason}", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// Description of what the file is instead.
        reason: &'static str,
    },
    /// The file system says no.
    #[error("cannot {what} the key file `{}`: {source}", path.display())]
    File {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The keyring says no.
    #[error(
        "the keyring of the system cannot {what} the key: {reason}. Unlock it, or use a key file \
         ({variable}) or {key_variable} instead"
    )]
    Keyring {
        /// Operation that failed.
        what: &'static str,
        /// Reason given by the keyring.
        reason: String,
        /// The variable that names a key file.
        variable: &'static str,
        /// The variable that holds a key.
        key_variable: &'static str,
    },
    /// The key is not there.
    #[error(
        "the credential was sealed with the key {key}, which is not here. Looked in: {places}. \
         Bring that key back, or save the credential again"
    )]
    NoKey {
        /// The key.
        key: KeyId,
        /// Places that were searched, with what was found.
        places: String,
    },
    /// The sealed bytes were changed, or stand in another row.
    #[error("the sealed credential is damaged, or stands in another's place; save it again")]
    Damaged,
    /// A newer program sealed it.
    #[error("the credential was sealed by a newer version of this program (form {form})")]
    Newer {
        /// The form.
        form: u8,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {reason}")]
    NoRandomness {
        /// Reason given by the system.
        reason: String,
    },
    /// A key of the environment cannot be replaced from here.
    #[error(
        "the key comes from {variable}, which this program cannot change. Put a new one there, the \
         old one into {old_variable}, and rotate again"
    )]
    KeyInEnvironment {
        /// The variable.
        variable: &'static str,
        /// The variable for the key before.
        old_variable: &'static str,
    },
}
