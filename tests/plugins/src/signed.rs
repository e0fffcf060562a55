//! People of a story about packages: who publishes them, and a team that installs them.

use std::path::{Path, PathBuf};

use conjure_host::plugin::LibraryTarget;
use conjure_kit::{Output, Workspace, cli};
use conjure_packages::{Package, PackageBuilder, SigningKey};
use conjure_skill_sdk::protocol::Manifest;
use serde_json::json;
use tempfile::TempDir;

use crate::versioned;

/// An author with a key.
pub struct Publisher {
    dir: TempDir,
    key: SigningKey,
}

impl Publisher {
    /// With a new key.
    pub fn new() -> Self {
        let (key, _) = SigningKey::create(None).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self { dir, key }
    }

    /// The public key.
    pub fn key(&self) -> String {
        self.key.public().unwrap().to_string()
    }

    /// A folder of the author's.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The path of a file of the author's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A package of the plugin `toucher` in this version, with what its manifest says, signed.
    pub fn package(&self, version: &str) -> PathBuf {
        self.signed(&unsigned(version, &manifest(version)))
    }

    /// A package whose manifest says what it likes, signed.
    pub fn with_manifest(&self, version: &str, said: impl FnOnce(&mut Manifest)) -> PathBuf {
        let mut manifest = manifest(version);
        said(&mut manifest);
        self.signed(&unsigned(version, &manifest))
    }

    /// Signs a package, and writes it.
    pub fn signed(&self, package: &[u8]) -> PathBuf {
        let package = Package::read("a package", package.to_vec()).unwrap();
        let signed = package.signed(&self.key).unwrap();
        self.write(&package.file_name(), &signed)
    }

    /// A package that nobody signed.
    pub fn unsigned(&self, version: &str) -> PathBuf {
        let package = unsigned(version, &manifest(version));
        self.write("unsigned.conjure-plugin", &package)
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}

fn unsigned(version: &str, manifest: &Manifest) -> Vec<u8> {
    let mut package = PackageBuilder::new(manifest.clone());
    let library = versioned("toucher", version);
    let target = package.library("the library", library).unwrap().to_owned();
    assert_eq!(target, LibraryTarget::here());
    package.license("MIT");
    package.build().unwrap()
}

/// What the plugin `toucher` says of itself.
fn manifest(version: &str) -> Manifest {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libtoucher.so");
    std::fs::write(&path, versioned("toucher", version)).unwrap();
    let shown = cli([
        "plugin",
        "show",
        "--load",
        "--json",
        &path.display().to_string(),
    ]);
    let shown: serde_json::Value = serde_json::from_str(&shown.run().unwrap().stdout).unwrap();
    serde_json::from_value(shown["manifest"].clone()).unwrap_or_else(|_| panic!("{}", json!(shown)))
}

/// A team that installs plugins.
pub struct Team {
    /// Workspace of the team.
    pub workspace: Workspace,
}

impl Team {
    /// With nothing installed.
    pub fn new() -> Self {
        Self {
            workspace: Workspace::new().unwrap(),
        }
    }

    /// Says that the publisher's plugins run inside the host, where what their constructors do can be
    /// seen.
    pub fn trusts(self, publisher: &Publisher) -> Self {
        let key = publisher.key();
        let trusted = self.run(["trust", "--signer", &key, "--name", "the author"]);
        assert_eq!(trusted.code, Some(0), "{}", trusted.snapshot());
        self
    }

    /// Runs `conjure plugin …`, also where it is refused.
    pub fn run<const N: usize>(&self, args: [&str; N]) -> Output {
        cli([&["plugin"][..], &args].concat())
            .workspace(&self.workspace)
            .env("CONJURE_TOUCH", self.mark())
            .run()
            .unwrap()
    }

    /// Runs `conjure plugin …` and gives what it said, on both ways.
    pub fn run_to_success<const N: usize>(&self, args: [&str; N]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "{args:?}: {}", output.snapshot());
        output.stdout + &output.stderr
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.workspace.home().join(".local/share/conjure")
    }

    /// The file that a constructor of `toucher` makes.
    pub fn mark(&self) -> PathBuf {
        self.workspace.root().join("touched")
    }

    /// Whether code of the plugin has run since this was asked last.
    pub fn take_touched(&self) -> bool {
        std::fs::remove_file(self.mark()).is_ok()
    }

    /// The version that is installed, and whether a host takes it.
    pub fn loaded_version(&self) -> Option<String> {
        let output = self.run(["list", "--json"]);
        let list: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let plugins = list["plugins"].as_array().unwrap();
        let found = plugins.iter().find(|plugin| plugin["name"] == "toucher")?;
        Some(found["version"].as_str().unwrap().to_owned())
    }

    /// The library that is installed.
    pub fn library(&self) -> PathBuf {
        self.data_dir().join("plugins/libtoucher.so")
    }

    /// The lock of what is installed.
    pub fn lock(&self) -> PathBuf {
        self.data_dir().join("conjure.lock")
    }
}

impl Default for Team {
    fn default() -> Self {
        Self::new()
    }
}
