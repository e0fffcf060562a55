//! What can be wrong with saved auths.

use conjure_vault::{AuthKind, VaultError};

use crate::TokenError;

use conjure_config::{AuthName, BadAuthName};
use conjure_store::StoreError;

/// Why a saved auth cannot be saved, found or used. Never holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The credential or its key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The credential of a saved auth cannot be read.
    #[error("the saved auth `{auth}` cannot be used: {source}")]
    Sealed {
        /// The name of the auth.
        auth: AuthName,
        /// What is wrong with its credential.
        source: Box<AuthError>,
    },
    /// The text is no name of a saved auth.
    #[error(transparent)]
    BadName(#[from] BadAuthName),
    /// A saved auth of that name exists already.
    #[error(
        "there is a saved auth `{auth}` already: `conjure auth replace {auth}` saves another \
         credential in its place, such as one without a typing error, and `conjure auth delete \
         {auth}` takes it away"
    )]
    Taken {
        /// The name of the auth.
        auth: AuthName,
    },
    /// A token that is to be saved is not good for long.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token of a saved auth has ended.
    #[error(
        "the token of the saved auth `{auth}` ended at {end}, and nothing here renews it: `conjure \
         auth replace {auth}` saves a new one in its place, and an auth of the kind `api-key` does \
         not end"
    )]
    Expired {
        /// The name of the auth.
        auth: AuthName,
        /// The moment from which it was not valid any more.
        end: jiff::Timestamp,
    },
    /// A provider cannot have a saved auth.
    #[error("`{provider}` cannot have a saved auth: {reason}")]
    BadProvider {
        /// The name of the provider.
        provider: String,
        /// What rules it out.
        reason: String,
    },
    /// No saved auth has the name.
    #[error("there is no saved auth `{name}`; {there}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The saved auths that exist, in words.
        there: String,
    },
    /// Several saved auths have the name.
    #[error(
        "`{name}` is the name of several saved auths; name one in full: {}",
        join_names(among)
    )]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// Full names of the auths that have it.
        among: Vec<AuthName>,
    },
    /// The auth is for another provider than the session's.
    #[error(
        "the saved auth `{auth}` is for the provider `{}`, and the session is to use `{provider}`; \
         leave the provider out, or name another auth",
        auth.provider
    )]
    OtherProvider {
        /// The name of the auth.
        auth: AuthName,
        /// The name of the session's provider.
        provider: String,
    },
    /// The auth is for another address than the session's.
    #[error(
        "the saved auth `{auth}` is for {of_auth}, and the session is to use {of_session}; leave \
         the base URL out, or name another auth"
    )]
    OtherAddress {
        /// The name of the auth.
        auth: AuthName,
        /// The address that the auth is for.
        of_auth: String,
        /// The address that the session asks.
        of_session: String,
    },
    /// A credential is of another kind than the auth that it is for.
    #[error("the saved auth `{auth}` takes no credential of the kind {kind}; add another auth")]
    OtherKind {
        /// The name of the auth.
        auth: AuthName,
        /// The kind of the credential.
        kind: AuthKind,
    },
    /// An address that cannot be used.
    #[error("the saved auth cannot be for this address: {reason}")]
    BadAddress {
        /// What is wrong with the address.
        reason: String,
    },
    /// The credential was left out, as an export does.
    #[error(
        "the saved auth `{auth}` came without its credential, as every import does; remove it and \
         add it again"
    )]
    LeftOut {
        /// The name of the auth.
        auth: AuthName,
    },
    /// Credentials that could not be sealed with the new key.
    #[error(
        "the key is not replaced yet, since these cannot be read: {}. Bring back what is missing, \
         or remove them, then rotate again; the others are sealed with the new key, and both keys \
         are kept until then",
        join_problems(problems)
    )]
    Rotation {
        /// The auths whose credentials cannot be read, each with the reason.
        problems: Vec<(AuthName, String)>,
    },
    /// Somebody else changes auths all the time.
    #[error(
        "another program changes saved auths ({}); try again when it is done", path.display()
    )]
    Locked {
        /// The lock.
        path: std::path::PathBuf,
    },
    /// The lock cannot be used.
    #[error("saved auths cannot be changed: {0}")]
    Lock(std::io::Error),
    /// The work ended early.
    #[error("the work with the key ended early: {reason}; this is a bug of Conjure")]
    Ended {
        /// What the runtime said.
        reason: String,
    },
}

fn join_names(names: &[AuthName]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn join_problems(problems: &[(AuthName, String)]) -> String {
    let said: Vec<String> = problems
        .iter()
        .map(|(auth, problem)| format!("`{auth}` ({problem})"))
        .collect();
    said.join(", ")
}
