//! The source of the plugin SDK, so that a plugin can be built where there is `conjure` and Rust and
//! no checkout.
//!
//! What is here is a package that the build script makes of `skill-sdk`; whoever asks gets its files.
//! It writes none of them and depends on no other crate of the host. Begin at [`files`].

use std::io::{Cursor, Read as _};

/// The package, compressed.
static PACKAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sdk.zip"));

/// The version of the crate `conjure-skill-sdk` in it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Tells this source from another one of the same version: eight hexadecimal digits.
pub const DIGEST: &str = env!("CONJURE_SDK_DIGEST");

/// Bytes that the SDK takes in the program, compressed.
pub const COMPRESSED_SIZE: usize = PACKAGE.len();

/// A file of the SDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path of the file below the SDK's directory, with `/` between the parts.
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

/// Where the schemas of the protocol are among [`files`], each as `NAME.json`.
pub const SCHEMAS: &str = "abi/protocol/1/";

/// All files of the SDK; `Cargo.toml` of `conjure-skill-sdk` is at the top.
///
/// # Errors
/// When the package is damaged.
pub fn files() -> Result<Vec<SourceFile>, DamagedError> {
    let mut package = zip::ZipArchive::new(Cursor::new(PACKAGE))?;
    let mut stream = Vec::new();
    package
        .by_index(0)?
        .read_to_end(&mut stream)
        .map_err(zip::result::ZipError::from)?;
    let mut files = Vec::new();
    let mut rest = stream.as_slice();
    while !rest.is_empty() {
        let (file, behind) = next_file(rest).ok_or_else(|| {
            let broken = std::io::Error::other("a file in it has no name or no end");
            zip::result::ZipError::from(broken)
        })?;
        files.push(file);
        rest = behind;
    }
    Ok(files)
}

/// The first file of a stream, and what is behind it: a line with length and path, and so many bytes.
fn next_file(stream: &[u8]) -> Option<(SourceFile, &[u8])> {
    let end = stream.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = stream.split_at_checked(end)?;
    let (length, path) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let (_, rest) = rest.split_first()?;
    let (bytes, behind) = rest.split_at_checked(length.parse().ok()?)?;
    let file = SourceFile {
        path: path.to_owned(),
        bytes: bytes.to_owned(),
    };
    Some((file, behind))
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
        // What its examples need is a feature there, and none of its tests' dependencies.
        let examples = sdk["example"].as_array().unwrap();
        let notes = examples
            .iter()
            .find(|it| it["name"].as_str() == Some("notes"));
        let features = notes.unwrap()["required-features"].as_array().unwrap();
        assert_eq!(features[0].as_str(), Some("testkit"));
        assert!(sdk["features"].as_table().unwrap().contains_key("testkit"));
        let tokio = &sdk["dependencies"]["tokio"];
        assert_eq!(tokio["optional"].as_bool(), Some(true));
        assert_eq!(tokio["default-features"].as_bool(), Some(false));
    }

    #[test]
    fn the_page_states_what_it_takes_in_the_program() {
        let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = repository.join("../docs/plugins.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, stated) = page.split_once("comes with the program (about ").unwrap();
        let (stated, _) = stated.split_once(" KB, compressed").unwrap();
        let stated: usize = stated.parse().unwrap();
        let found = COMPRESSED_SIZE / 1000;
        assert!(
            stated.abs_diff(found) <= found / 10,
            "the page says {stated} KB, and it has {found} KB"
        );
    }

    #[test]
    fn what_the_crates_read_while_they_are_built_is_there() {
        let paths: Vec<String> = files().unwrap().into_iter().map(|file| file.path).collect();
        for path in [
            "LICENSE",
            "abi/protocol/1/manifest.json",
            "abi/protocol/1/skill.tool.request.json",
            "abi/protocol/frames.json",
            "abi/src/lib.rs",
            "build.rs",
            "docs/README.md",
            "docs/attribute.md",
            "docs/mcp.md",
            "docs/any-language.md",
            "docs/writing-a-skill.md",
            "examples/notes.rs",
            "macros/src/lib.rs",
            "src/lib.rs",
        ] {
            assert!(paths.iter().any(|there| there == path), "{path}");
        }
        assert!(!paths.iter().any(|path| path.contains("tests/")));
        let odd = |path: &String| path.starts_with('/') || path.contains("..");
        assert!(!paths.iter().any(odd));
    }

    #[test]
    fn each_file_is_as_it_was_and_a_stream_that_ends_early_is_none() {
        let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skill-sdk");
        for path in [PYTHON, "abi/protocol/1/manifest.json", "src/lib.rs"] {
            let files = files().unwrap();
            let file = files.iter().find(|file| file.path == path).unwrap();
            assert_eq!(
                file.bytes,
                std::fs::read(repository.join(path)).unwrap(),
                "{path}"
            );
        }
        let two = b"3 a\nb\nc0 d/e\n";
        let (file, rest) = next_file(two).unwrap();
        assert_eq!(
            (file.path.as_str(), file.bytes.as_slice()),
            ("a", b"b\nc".as_slice())
        );
        let (file, rest) = next_file(rest).unwrap();
        assert_eq!(
            (file.path.as_str(), file.bytes.len(), rest.len()),
            ("d/e", 0, 0)
        );
        for broken in [b"4 a\nb\nc".as_slice(), b"3 a", b"a\n", b"x a\n"] {
            assert_eq!(next_file(broken), None);
        }
    }
}
