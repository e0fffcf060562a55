//! The name of an auth in a session file: a text here, because what it is bound to needs the vault.

use serde::{Deserialize, Serialize};

/// The name of an auth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuthRef(String);
