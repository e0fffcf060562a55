//! The names that the unpacker of packages gives, taken from the host's source.

#[path = "../../../conjure-host/src/artifacts/names.rs"]
mod names;

pub use names::safe_name;
