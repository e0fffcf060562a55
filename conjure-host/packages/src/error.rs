//! Why a package is not taken, not made or not found.

/// Why a package is not taken, not made or not found. Each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The package does not have the form of one, or contradicts itself.
    #[error("{location} is not a package that can be used: {reason}. Nothing of it was used")]
    Form {
        /// The file or the address.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// An index does not have the form of one, or leads where it may not.
    #[error(
        "{location} is not an index of packages that can be used: {reason}. Tell whoever keeps it"
    )]
    Index {
        /// The file or the address.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// Nobody signed the package.
    #[error(
        "{location} is not signed, so nobody says that it is what its author made. `conjure plugin \
         sign` signs a package of your own; `--unsigned` takes it as it is"
    )]
    Unsigned {
        /// The file or the address.
        location: String,
    },
    /// The signature is not one of this description and this key.
    #[error(
        "the signature of {location} is not valid: {reason}. It was altered, or signed with another \
         key; nothing of it was used"
    )]
    Signature {
        /// The file or the address.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// The package is signed, but not with the key that is wanted.
    #[error("{location} is signed by {found}, and {why}")]
    Signer {
        /// The file or the address.
        location: String,
        /// The key that signed it.
        found: String,
        /// The key that is wanted, and what to do.
        why: String,
    },
    /// A key that cannot be used.
    #[error("the key cannot be used: {0}")]
    Key(String),
    /// The package has no library for this machine.
    #[error(
        "{location} has no library for this machine ({here}); it has some for {there}. Its author can \
         add one with `conjure plugin pack`"
    )]
    Target {
        /// The file or the address.
        location: String,
        /// Target of the machine that the host runs on.
        here: String,
        /// Targets that the package has libraries for.
        there: String,
    },
    /// The package or the index cannot be fetched.
    #[error("{location} cannot be had: {reason}")]
    Fetch {
        /// The file or the address.
        location: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// The package is not what was asked for.
    #[error("{location} is {found}, and {wanted} was asked for; nothing of it was used")]
    Mismatch {
        /// The file or the address.
        location: String,
        /// What came.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// No index names the plugin.
    #[error("no index names {wanted}: {looked}")]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The indexes that were read, and why others could not be.
        looked: String,
    },
    /// The package cannot be published there.
    #[error("{location} does not take the package: {reason}")]
    Publish {
        /// The folder or the registry that was to take the package.
        location: String,
        /// The reason, and what to do.
        reason: String,
    },
}

impl PackageError {
    /// Whether an index cannot be read or is none: others may be looked at all the same.
    pub fn is_of_index(&self) -> bool {
        matches!(self, Self::Fetch { .. } | Self::Index { .. })
    }
}
