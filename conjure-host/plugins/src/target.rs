//! Which machine a library is for.

use conjure_abi::HeaderFields;

use crate::elf;

/// What a library says of itself, for whichever machine it is.
#[derive(Debug)]
pub struct LibraryTarget {
    /// The machine, as Rust names it: `x86_64-unknown-linux-gnu`.
    pub target: String,
    /// Its header.
    pub header: HeaderFields,
}

impl LibraryTarget {
    /// Reads it from the bytes of a library. Nothing where they are none, or none with the header of
    /// a plugin. Whether a host can load it is for [`PluginFile`](crate::PluginFile) to say.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (target, section) = elf::any_machine::library(bytes)?;
        let header = HeaderFields::read(section).ok()?;
        Some(Self { target, header })
    }

    /// The machine of this host.
    pub fn here() -> String {
        let machine = match std::env::consts::ARCH {
            "x86" => "i686",
            "arm" => "armv7",
            "riscv64" => "riscv64gc",
            machine => machine,
        };
        let system = if cfg!(target_os = "macos") {
            "apple-darwin"
        } else if cfg!(target_env = "musl") {
            "unknown-linux-musl"
        } else {
            "unknown-linux-gnu"
        };
        format!("{machine}-{system}")
    }
}
