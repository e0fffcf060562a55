//! Why the code of a plugin runs where it does, for whoever looks at a list of plugins.

/// Why the code of a plugin runs where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationReason {
    /// In the host: it is linked into the program.
    Linked,
    /// In the host: it lies where the program's own plugins are.
    Shipped,
    /// In the host: its owner listed the very bytes.
    TrustedFile,
    /// In the host: its owner listed whoever signed its package.
    TrustedSigner,
    /// In the host: its owner lets all run there.
    Setting,
    /// In the host, which has no workers.
    NoWorkers,
    /// In a worker: nobody listed its bytes or its signer.
    NotTrusted,
    /// In a worker, whatever is set for others: it came in a package, and nobody listed its bytes or its
    /// signer.
    PackageNotTrusted,
    /// In a worker: it is a program.
    Program,
    /// In a worker: it was built with `panic = "abort"`.
    PanicAbort,
    /// In a worker: the host's process has opened as many libraries as it can.
    LibraryLimit,
}

impl IsolationReason {
    /// The reason in a few words, as lists have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linked => "part of the program",
            Self::Shipped => "comes with the program",
            Self::TrustedFile => "trusted file",
            Self::TrustedSigner => "trusted signer",
            Self::Setting => "set for all",
            Self::NoWorkers => "no workers here",
            Self::NotTrusted => "not trusted",
            Self::PackageNotTrusted => "package, not trusted",
            Self::Program => "a program",
            Self::PanicAbort => "panic = \"abort\"",
            Self::LibraryLimit => "too many libraries",
        }
    }

    /// Whether it would run in the host if its owner trusted it.
    pub fn is_about_trust(self) -> bool {
        matches!(self, Self::NotTrusted | Self::PackageNotTrusted)
    }
}
