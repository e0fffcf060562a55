//! Packages of plugins and of skill folders: what is in one, who signed it, where it comes from.
//!
//! A package is a zip archive. Its first file, `package.json`, describes the plugin and names every
//! other file with its digest; the signature is one of `package.json`. So nothing of a package is used
//! that the signer did not sign, and all of it is judged before any of it is a file of a host's.
//! Begin at `package.rs`.

mod archive_layout;
mod description;
mod docker_auth;
mod error;
mod http;
mod index;
mod oci;
mod pack;
mod package;
mod registry_answer;
mod registry_client;
mod registry_login;
mod sbom;
mod signature;
mod source;

pub use description::{PackageDescription, PackagedFile, PackagedLibrary, SKILL_FOLDER};
pub use error::PackageError;
pub use index::{INDEX_FILE, IndexEntry, PluginIndex};
pub use pack::PackageBuilder;
pub use package::{PACKAGE_EXTENSION, PACKAGE_LIMIT, Package};
pub use sbom::{LICENSE_FILE, SBOM_FILE, sbom};
pub use signature::{SignerKey, SigningKey};
pub use source::{FetchedPackage, NewerPackage, PackageSource, publish, redacted_location};
