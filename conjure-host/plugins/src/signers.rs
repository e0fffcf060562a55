//! The signers that a host's owner trusts: what they signed is installed without asking whose it is,
//! and runs inside the host where plugins of others have a process of their own.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::owners_list::{ListEntry, OwnersList};

/// The owner's list of signers.
#[derive(Debug, Clone, Default)]
pub struct TrustedSigners {
    list: OwnersList<TrustedSigner>,
}

/// A signer that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrustedSigner {
    /// The public key, as minisign writes it.
    pub key: String,
    /// What the owner calls it.
    pub name: String,
}

impl ListEntry for TrustedSigner {
    type Key = String;

    fn read(key: &str, name: &str) -> Option<Self> {
        // Every key of this kind begins so and has this length.
        (key.starts_with("RW") && key.len() == 56).then(|| Self {
            key: key.to_owned(),
            name: name.to_owned(),
        })
    }

    fn key(&self) -> &String {
        &self.key
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl TrustedSigners {
    /// The list is in this file; each line has a key and behind it a name.
    pub fn listed_in(list: impl Into<PathBuf>) -> Self {
        Self {
            list: OwnersList::in_file(list),
        }
    }

    /// Whether a key is listed. A list that cannot be read lists nobody.
    pub fn contains(&self, key: &str) -> bool {
        let listed = self.entries().unwrap_or_else(|error| {
            tracing::warn!("the list of trusted signers cannot be read: {error}");
            Vec::new()
        });
        listed.iter().any(|signer| signer.key == key)
    }

    /// Signers on the list.
    ///
    /// # Errors
    /// The system's.
    pub fn entries(&self) -> io::Result<Vec<TrustedSigner>> {
        self.list.entries()
    }

    /// Lists a signer; whether it was not listed before.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&self, signer: TrustedSigner) -> io::Result<bool> {
        self.list.add(signer)
    }

    /// Lists a signer no more; whether it was listed.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, key: &str) -> io::Result<bool> {
        self.list.remove(&key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_is_trusted_from_its_listing_to_its_removal() {
        let dir = tempfile::tempdir().unwrap();
        let signers = TrustedSigners::listed_in(dir.path().join("trusted-signers"));
        let key = format!("RW{}", "Q".repeat(54));
        let one = TrustedSigner {
            key: key.clone(),
            name: "the\n tools team".to_owned(),
        };
        assert!(!signers.contains(&key));
        assert!(signers.add(one.clone()).unwrap());
        assert!(!signers.add(one).unwrap());
        assert!(signers.contains(&key));
        assert_eq!(signers.entries().unwrap()[0].name, "the tools team");
        assert!(signers.remove(&key).unwrap());
        assert!(!signers.remove(&key).unwrap());
        assert!(!signers.contains(&key));
        assert_eq!(TrustedSigner::read("#", "a comment"), None);
    }
}
