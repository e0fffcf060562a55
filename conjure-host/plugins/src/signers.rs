//! The signers that a host's owner trusts: what they signed is installed without asking whose it is,
//! and runs inside the host where plugins of others have a process of their own.

use std::io;
use std::path::PathBuf;

use conjure_config::fs;
use serde::Serialize;

/// The owner's list of signers.
#[derive(Debug, Clone, Default)]
pub struct TrustedSigners {
    list: Option<PathBuf>,
}

/// A signer that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrustedSigner {
    /// The public key, as minisign writes it.
    pub key: String,
    /// What the owner calls it.
    pub name: String,
}

impl TrustedSigners {
    /// The list is in this file; each line has a key and behind it a name.
    pub fn listed_in(list: impl Into<PathBuf>) -> Self {
        Self {
            list: Some(list.into()),
        }
    }

    /// Whether a key is listed. A list that cannot be read lists nobody.
    pub fn holds(&self, key: &str) -> bool {
        let listed = self.listed().unwrap_or_else(|error| {
            tracing::warn!("the list of trusted signers cannot be read: {error}");
            Vec::new()
        });
        listed.iter().any(|signer| signer.key == key)
    }

    /// Who is listed.
    ///
    /// # Errors
    /// The system's.
    pub fn listed(&self) -> io::Result<Vec<TrustedSigner>> {
        let Some(list) = &self.list else {
            return Ok(Vec::new());
        };
        match fs::read_to_string(list) {
            Ok(text) => Ok(text.lines().filter_map(read_line).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Lists a signer; whether it was not listed before.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&self, signer: TrustedSigner) -> io::Result<bool> {
        self.change(|listed| {
            let is_new = listed.iter().all(|other| other.key != signer.key);
            listed.extend(is_new.then_some(signer));
            is_new
        })
    }

    /// Lists a signer no more; whether it was listed.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, key: &str) -> io::Result<bool> {
        self.change(|listed| {
            let before = listed.len();
            listed.retain(|other| other.key != key);
            listed.len() < before
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<TrustedSigner>) -> bool) -> io::Result<bool> {
        let list = self.list.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if let Some(dir) = list.parent() {
            fs::create_private_dir(dir)?;
        }
        let _lock = fs::lock(list.with_extension("lock"))?;
        let mut listed = self.listed()?;
        if !change(&mut listed) {
            return Ok(false);
        }
        let lines = listed.iter().map(|signer| {
            let name: String = signer.name.chars().filter(|c| !c.is_control()).collect();
            format!("{}  {name}\n", signer.key)
        });
        fs::write_atomic(list, lines.collect::<String>().as_bytes())?;
        Ok(true)
    }
}

fn read_line(line: &str) -> Option<TrustedSigner> {
    let (key, name) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    // Every key of this kind begins so and has this length.
    (key.starts_with("RW") && key.len() == 56).then(|| TrustedSigner {
        key: key.to_owned(),
        name: name.trim().to_owned(),
    })
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
        assert!(!signers.holds(&key));
        assert!(signers.add(one.clone()).unwrap());
        assert!(!signers.add(one).unwrap());
        assert!(signers.holds(&key));
        assert_eq!(signers.listed().unwrap()[0].name, "the tools team");
        assert!(signers.remove(&key).unwrap());
        assert!(!signers.remove(&key).unwrap());
        assert!(!signers.holds(&key));
        assert_eq!(read_line("# a comment"), None);
    }
}
