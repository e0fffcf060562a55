//! Target of a plugin: the machine that it is for.

use std::path::Path;

use conjure_abi::HeaderFields;

use crate::{PluginError, elf, program};

/// The target of a program that is for no machine in particular.
pub const ANY_TARGET: &str = "any";

/// What a library or a bundle says of itself, for whichever machine it is.
#[derive(Debug)]
pub struct LibraryTarget {
    /// The machine, as Rust names it: `x86_64-unknown-linux-gnu`.
    pub target: String,
    /// Header of the library, or what says the same of a program.
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

    /// Reads it from the bundle of a program. It is for the machine that the executables and libraries
    /// among its files are for, and for any where there are none, or some for several machines. What a
    /// header says of a library its description says, but for the compiler.
    ///
    /// # Errors
    /// What is wrong with the bundle.
    pub fn of_program(bytes: &[u8]) -> Result<Self, PluginError> {
        let (description, files) = program::open_bundle(Path::new("the bundle"), bytes)?;
        let mut targets: Vec<String> = files
            .iter()
            .filter_map(|(_, bytes)| elf::any_machine::target_of(bytes))
            .collect();
        targets.sort();
        targets.dedup();
        let target = match targets.as_slice() {
            [one] => one.clone(),
            _ => ANY_TARGET.to_owned(),
        };
        Ok(Self {
            target,
            header: description.header(),
        })
    }

    /// Whether these bytes are those of a program's bundle, as far as their beginning says it.
    pub fn is_program(bytes: &[u8]) -> bool {
        program::is_bundle(bytes)
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
