//! The source of the plugin SDK, so that a plugin can be built where there is `conjure` and Rust and
//! no checkout.
//!
//! What is here is a package that the build script makes of `skill-sdk`; whoever asks gets its files.
//! It writes none of them and depends on no other crate of the host.

use std::io::{Cursor, Read as _};

/// The package, compressed.
static PACKAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sdk.zip"));

/// The version of the crate `conjure-skill-sdk` in it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Tells this source from another one of the same version: eight hexadecimal digits.
pub const DIGEST: &str = env!("CONJURE_SDK_DIGEST");

/// How many bytes it takes in the program.
pub const COMPRESSED_SIZE: usize = PACKAGE.len();

/// A file of the SDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path below the SDK's directory, with `/` between the parts.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Where the SDK for Python is among [`files`].
pub const PYTHON: &str = "python/conjure_plugin.py";

/// The package in the program is broken.
#[derive(Debug, thiserror::Error)]
#[error("the SDK that this program carries cannot be read: {0}; it is damaged, install it again")]
pub struct DamagedError(#[from] zip::result::ZipError);

/// All files of the SDK; `Cargo.toml` of `conjure-skill-sdk` is at the top.
///
/// # Errors
/// When the package is damaged.
pub fn files() -> Result<Vec<SourceFile>, DamagedError> {
    let mut package = zip::ZipArchive::new(Cursor::new(PACKAGE))?;
    let mut files = Vec::with_capacity(package.len());
    for index in 0..package.len() {
        let mut file = package.by_index(index)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(zip::result::ZipError::from)?;
        let path = file.name()?.into_owned();
        files.push(SourceFile { path, bytes });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_stand_alone_and_name_the_version_that_is_told() {
        let files = files().unwrap();
        let manifest = |path: &str| -> toml::Table {
            let file = files.iter().find(|file| file.path == path).unwrap();
            toml::from_str(std::str::from_utf8(&file.bytes).unwrap()).unwrap()
        };
        let (sdk, abi) = (manifest("Cargo.toml"), manifest("abi/Cargo.toml"));
        assert_eq!(sdk["package"]["version"].as_str(), Some(VERSION));
        assert_eq!(
            sdk["dependencies"]["conjure-abi"]["path"].as_str(),
            Some("abi")
        );
        assert_eq!(
            sdk["dependencies"]["conjure-abi"]["version"],
            abi["package"]["version"]
        );
        let macros = manifest("macros/Cargo.toml");
        let dependency = &sdk["dependencies"]["conjure-skill-macros"];
        assert_eq!(dependency["path"].as_str(), Some("macros"));
        assert_eq!(dependency["version"], macros["package"]["version"]);
        assert_eq!(dependency["optional"].as_bool(), Some(true));
        for manifest in [&sdk, &abi, &macros] {
            assert!(!toml::to_string(manifest).unwrap().contains("workspace"));
        }
        let tokio = &sdk["dependencies"]["tokio"];
        assert_eq!(tokio["optional"].as_bool(), Some(true));
        assert_eq!(tokio["default-features"].as_bool(), Some(false));
    }

    #[test]
    fn what_the_crates_read_while_they_are_built_is_there() {
        let paths: Vec<String> = files().unwrap().into_iter().map(|file| file.path).collect();
        for path in [
            "LICENSE",
            "abi/src/lib.rs",
            "build.rs",
            "docs/attribute.md",
            "docs/mcp.md",
            "docs/writing-a-skill.md",
            "macros/src/lib.rs",
            "src/lib.rs",
        ] {
            assert!(paths.iter().any(|there| there == path), "{path}");
        }
        assert!(!paths.iter().any(|path| path.contains("tests/")));
        let odd = |path: &String| path.starts_with('/') || path.contains("..");
        assert!(!paths.iter().any(odd));
    }
}
