//! What a package says of itself: `package.json`.

use std::collections::HashSet;

use conjure_config::shown_name::hidden_character;
use conjure_plugins::{FILE_LIMIT, Sha256};
use conjure_skill_sdk::protocol::{Manifest, Permissions};
use serde::{Deserialize, Serialize};

use crate::SignerKey;

/// The number of the form.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The kind of a skill folder.
pub const SKILL_FOLDER: &str = "skill-folder";

/// The most bytes of all files of a package: 2 GiB.
const CONTENTS_LIMIT: u64 = 2 * 1024 * 1024 * 1024;

/// The most characters of a version: those of a tag in a registry.
const MAX_VERSION_BYTES: usize = 128;

/// The description of a package. The signature covers it, and it covers all the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackageDescription {
    /// Version of the form; this one is 1.
    pub package: u32,
    /// The plugin's name.
    pub name: String,
    /// The plugin's version.
    pub version: String,
    /// The licence, an SPDX expression, as far as the author said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// What the plugin says of itself: its kind, what it asks to be allowed, its tools with their
    /// schemas.
    pub manifest: Manifest,
    /// The plugin's libraries, one for each machine, or the bundles of a program.
    #[serde(default)]
    pub libraries: Vec<PackagedLibrary>,
    /// The archive of a skill folder, where it is one. Then the manifest says of it what its
    /// `SKILL.md` says, under the kind [`SKILL_FOLDER`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<PackagedFile>,
    /// Other files: the licence's text, the SBOM.
    #[serde(default)]
    pub files: Vec<PackagedFile>,
    /// Key that signed the package; `None` where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<SignerKey>,
}

/// A library in a package, or the bundle of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackagedLibrary {
    /// The machine that it is for, as Rust names it: `x86_64-unknown-linux-gnu`. Of a program that is
    /// for no machine in particular `any`.
    pub target: String,
    /// The compiler that built a library.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// The file.
    #[serde(flatten)]
    pub file: PackagedFile,
}

/// A file in a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackagedFile {
    /// Path of the file in the package.
    pub path: String,
    /// The digest of its bytes.
    pub sha256: Sha256,
    /// Size of the file in bytes.
    pub size: u64,
}

impl PackageDescription {
    /// Every file that it names.
    pub fn all_files(&self) -> impl Iterator<Item = &PackagedFile> {
        let libraries = self.libraries.iter().map(|library| &library.file);
        libraries.chain(&self.skill).chain(&self.files)
    }

    /// Name and version, as plugins are called.
    pub fn id(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.package != FORMAT_VERSION {
            return Some(format!(
                "its form is number {}, and this program reads number {FORMAT_VERSION}",
                self.package
            ));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(is_name) {
            return Some("its name is none that a plugin can have".to_owned());
        }
        if self.version.len() > MAX_VERSION_BYTES {
            return Some(format!(
                "its version has more than {MAX_VERSION_BYTES} characters"
            ));
        }
        if semver::Version::parse(&self.version).is_err() {
            return Some("its version is not a semantic version".to_owned());
        }
        let manifest = &self.manifest;
        if (&manifest.name, &manifest.version) != (&self.name, &self.version) {
            return Some(format!(
                "it is called {}, and its manifest says {} {}",
                self.id(),
                manifest.name,
                manifest.version
            ));
        }
        if let Some(value) = unprintable(&manifest.permissions) {
            return Some(format!(
                "it asks for {value:?}, which has characters that nobody sees"
            ));
        }
        match (self.libraries.is_empty(), &self.skill) {
            (true, None) => return Some("it has no library".to_owned()),
            (false, Some(_)) => {
                return Some("it has a skill folder beside its libraries".to_owned());
            }
            (true, Some(_)) | (false, None) => {}
        }
        if self.skill.is_some() != (manifest.kind == SKILL_FOLDER) {
            return Some(format!(
                "its kind is {}, which is not what it holds",
                manifest.kind
            ));
        }
        let mut targets = HashSet::new();
        if let Some(twice) = self
            .libraries
            .iter()
            .find(|one| !targets.insert(&one.target))
        {
            return Some(format!("it has two libraries for {}", twice.target));
        }
        let mut paths = HashSet::new();
        for file in self.all_files() {
            let path = file.path.as_str();
            if !is_plain(path) {
                return Some(format!("it names a file {path:?}, which leads elsewhere"));
            }
            // On some systems names that differ in case only are one file.
            if !paths.insert(path.to_ascii_lowercase()) {
                return Some(format!("it names {path} twice"));
            }
            if file.size > FILE_LIMIT {
                return Some(format!("{path} has more than {FILE_LIMIT} bytes"));
            }
        }
        let sizes = self.all_files().map(|file| file.size);
        if sizes.fold(0, u64::saturating_add) > CONTENTS_LIMIT {
            return Some(format!(
                "its files have more than {CONTENTS_LIMIT} bytes together"
            ));
        }
        None
    }
}

/// A value of what a plugin asks to be allowed that has a line end, another control character or one that
/// nobody sees: it is shown to whoever allows it, in one line with others.
fn unprintable(permissions: &Permissions) -> Option<&str> {
    let Permissions {
        secrets,
        http,
        sample: _,
        read,
        write,
        network: _,
        commands: _,
    } = permissions;
    let mut values = [secrets, http, read, write].into_iter().flatten();
    let found =
        values.find(|value| value.contains(char::is_control) || hidden_character(value).is_some());
    found.map(String::as_str)
}

/// Whether a name stays inside the package, however it is read.
fn is_plain(path: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    path.len() <= 256
        && path.split('/').count() <= 4
        && path.split('/').all(is_part)
        && !path.to_ascii_lowercase().starts_with("package.json")
}

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::protocol::Permissions;
    use serde_json::json;

    use super::{PackageDescription, is_plain, unprintable};

    #[test]
    fn names_that_differ_in_case_only_are_one_name() {
        let fault = |other: &str| {
            let file = |path: &str| json!({ "path": path, "sha256": "0".repeat(64), "size": 1 });
            let description: PackageDescription = serde_json::from_value(json!({
                "package": 1, "name": "x", "version": "1.0.0",
                "manifest": {
                    "manifest": 1, "kind": "skill", "name": "x", "version": "1.0.0",
                    "description": "", "capabilities": [],
                },
                "libraries": [{
                    "target": "any", "path": "lib/any/x.plugin", "sha256": "0".repeat(64), "size": 1,
                }],
                "files": [file("LICENSE"), file(other)],
            }))
            .unwrap();
            description.fault()
        };
        assert_eq!(fault("NOTICE"), None);
        assert_eq!(fault("License").unwrap(), "it names License twice");
        assert_eq!(
            fault("Lib/any/X.plugin").unwrap(),
            "it names Lib/any/X.plugin twice"
        );
    }

    #[test]
    fn a_version_is_no_text_without_end() {
        let fault = |version: &str| {
            let description: PackageDescription = serde_json::from_value(json!({
                "package": 1, "name": "x", "version": version,
                "manifest": {
                    "manifest": 1, "kind": "skill", "name": "x", "version": version,
                    "description": "", "capabilities": [],
                },
                "libraries": [{
                    "target": "any", "path": "lib/any/x.plugin", "sha256": "0".repeat(64), "size": 1,
                }],
            }))
            .unwrap();
            description.fault()
        };
        assert_eq!(fault(&format!("1.0.0-{}", "a".repeat(122))), None);
        let fault = fault(&format!("1.0.0-{}", "a".repeat(123))).unwrap();
        assert_eq!(fault, "its version has more than 128 characters");
    }

    #[test]
    fn what_is_asked_for_is_in_one_line() {
        let asks = |host: &str| Permissions {
            http: vec!["a.example".to_owned(), host.to_owned()],
            ..Permissions::default()
        };
        assert_eq!(unprintable(&asks("*.example")), None);
        for host in [
            "b.example\n  signed by  you",
            "b\u{1b}[8m",
            "b\r",
            "b\tc",
            "b\u{202e}elpmaxe",
            "b\u{200b}.example",
        ] {
            assert_eq!(unprintable(&asks(host)), Some(host));
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_found() {
        for plain in [
            "LICENSE",
            "lib/x86_64-unknown-linux-gnu/libx.so",
            "sbom.cdx.json",
        ] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            ".ssh/x",
            "a\\b",
            "C:x",
            "a b",
            "ä",
            "package.json",
            "Package.JSON",
            "package.json.minisig",
            "a/b/c/d/e",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }
}
