//! The host's reader of a plugin's file, taken from its source: built with the whole host, an
//! instrumented target takes many minutes.

#[path = "../../../conjure-host/src/plugin/elf/mod.rs"]
mod elf;
#[path = "../../../conjure-host/src/plugin/error.rs"]
mod error;
#[path = "../../../conjure-host/src/plugin/file.rs"]
mod file;
#[path = "../../../conjure-host/src/plugin/hash.rs"]
mod hash;

pub use error::PluginError;
pub use file::PluginFile;
pub use hash::Sha256;
