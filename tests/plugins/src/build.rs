//! Builds a plugin crate with cargo.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A plugin crate to build.
#[derive(Debug, Clone)]
pub struct Plugin<'a> {
    /// Name of the package, and with `lib` in front that of the file. One a source text.
    pub package: &'a str,
    /// Version of the package.
    pub version: &'a str,
    /// `src/lib.rs`.
    pub source: &'a str,
    /// Features of the SDK.
    pub features: &'a [&'a str],
    /// Lines of `[profile.dev]`.
    pub profile: &'a str,
    /// The compiler; the usual one when there is none.
    pub rustc: Option<PathBuf>,
    /// The SDK; the workspace's when there is none.
    pub sdk: Option<PathBuf>,
    /// Where the crate is written; below the target directory when there is none.
    pub dir: Option<PathBuf>,
    /// Dependencies that have other versions than the workspace's: names and versions.
    pub pins: &'a [(&'a str, &'a str)],
}

impl<'a> Plugin<'a> {
    /// A plugin with the usual settings.
    pub fn new(package: &'a str, source: &'a str) -> Self {
        Self {
            package,
            version: "1.0.0",
            source,
            features: &[],
            profile: "debug = false\nstrip = true\nincremental = false\n",
            rustc: None,
            sdk: None,
            dir: None,
            pins: &[],
        }
    }

    /// Where the crate is written.
    pub fn dir(&self) -> PathBuf {
        self.dir
            .clone()
            .unwrap_or_else(|| target().join("crates").join(self.package))
    }

    /// Builds it and gives the library's path.
    pub fn build(&self) -> PathBuf {
        let dir = self.dir();
        std::fs::create_dir_all(dir.join("src")).unwrap();
        let sdk = self
            .sdk
            .clone()
            .unwrap_or_else(|| workspace().join("skill-sdk"));
        let features = self
            .features
            .iter()
            .map(|feature| format!("\"{feature}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let manifest = format!(
            "[package]\nname = \"{}\"\nversion = \"{}\"\nedition = \"2021\"\npublish = false\n\n\
             [workspace]\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\n\
             conjure-skill-sdk = {{ path = \"{}\", default-features = false, features = [{features}] }}\n\
             serde = {{ version = \"1\", features = [\"derive\"] }}\nserde_json = \"1\"\n\n[profile.dev]\n{}\n",
            self.package,
            self.version,
            sdk.display(),
            self.profile,
        );
        write_if_changed(&dir.join("Cargo.toml"), &manifest);
        write_if_changed(&dir.join("src/lib.rs"), self.source);
        if !dir.join("Cargo.lock").exists() {
            // A beginning that needs no network; cargo makes its own lock file out of it.
            std::fs::copy(workspace().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        }
        let target = match &self.rustc {
            None => target().join("build"),
            Some(rustc) => target().join(format!("build-{}", file_name(rustc))),
        };
        for (name, version) in self.pins {
            if locked(&dir, name) != [*version] {
                let pin = ["update", "--quiet", "-p", name, "--precise", version];
                self.cargo(&dir, &target, &pin);
                // Without the network, what is not on this machine would be resolved anew.
                self.cargo(&dir, &target, &["fetch", "--quiet"]);
            }
        }
        self.cargo(&dir, &target, &["build", "--quiet"]);
        let name = self.package.replace('-', "_");
        target.join("debug").join(format!(
            "lib{name}.{}",
            conjure_host::platform::LIBRARY_EXTENSION
        ))
    }

    /// Runs cargo with what is on this machine, and with the network only if that fails.
    fn cargo(&self, dir: &Path, target: &Path, args: &[&str]) {
        let run = |more: &[&str]| {
            let mut command =
                Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            command
                .args(args)
                .args(more)
                .current_dir(dir)
                .env("CARGO_TARGET_DIR", target)
                .env_remove("RUSTFLAGS")
                .env_remove("CARGO_ENCODED_RUSTFLAGS")
                .env_remove("RUSTC_WRAPPER")
                .env_remove("RUSTC");
            if let Some(rustc) = &self.rustc {
                command.env("RUSTC", rustc);
                // Old compilers come without the tool of this one.
                command.env("RUSTDOC", "false");
            }
            command.output().expect("cargo can be run")
        };
        if run(&["--offline"]).status.success() {
            return;
        }
        let online = run(&[]);
        assert!(
            online.status.success(),
            "cargo {args:?} failed for {}:\n{}",
            self.package,
            String::from_utf8_lossy(&online.stderr)
        );
    }
}

/// The versions of a package in the lock file of a directory.
pub fn locked(dir: &Path, package: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("Cargo.lock")).unwrap();
    let name = format!("name = \"{package}\"");
    text.split("[[package]]")
        .filter(|entry| entry.lines().any(|line| line == name))
        .filter_map(|entry| {
            let version = entry.lines().find_map(|l| l.strip_prefix("version = "))?;
            Some(version.trim_matches('"').to_owned())
        })
        .collect()
}

/// The root of this workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A copy of the SDK with changes: for each a file below `skill-sdk`, a text and what takes its
/// place. The copy is a workspace of its own.
pub fn sdk_copy(name: &str, changes: &[(&str, &str, &str)]) -> PathBuf {
    let root = target().join("sdk").join(name);
    let from = workspace().join("skill-sdk");
    let to = root.join("skill-sdk");
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = manifest.find("members = [").unwrap();
    let end = members + manifest[members..].find(']').unwrap() + 1;
    let manifest = format!(
        "{}members = [\"skill-sdk\", \"skill-sdk/abi\", \"skill-sdk/macros\"]{}",
        &manifest[..members],
        &manifest[end..]
    );
    std::fs::create_dir_all(&root).unwrap();
    write_if_changed(&root.join("Cargo.toml"), &manifest);
    let mut used = vec![false; changes.len()];
    copy(&from, &to, &mut |path, text| {
        let relative = path
            .strip_prefix(&from)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let mut text = text;
        for ((file, old, new), used) in changes.iter().zip(&mut used) {
            if *file == relative {
                assert!(text.contains(old), "{file} does not contain {old:?}");
                text = text.replace(old, new);
                *used = true;
            }
        }
        text
    });
    assert!(
        used.iter().all(|used| *used),
        "a change was not applied: {changes:?}"
    );
    to
}

/// Says that a case was left out. In CI that is a failure.
pub fn report_left_out(case: &str, why: &str) {
    // Not `println`, which the test harness hides when the test passes.
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {case}: {why}");
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{case} may not be left out in CI: {why}"
    );
}

fn copy(from: &Path, to: &Path, change: &mut impl FnMut(&Path, String) -> String) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        let name = file_name(&path);
        if path.is_dir() {
            if name != "tests" && name != "docs" && name != "target" {
                copy(&path, &target, change);
            }
        } else if name.ends_with(".rs") || name.ends_with(".toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            write_if_changed(&target, &change(&path, text));
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn write_if_changed(path: &Path, text: &str) {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return;
    }
    conjure_host::fs::write_atomic(path, text.as_bytes()).unwrap();
}

/// Below the target directory of the workspace, so that what was built is built once.
pub(crate) fn target() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let target = exe
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists())
        .expect("the tests run from a target directory of cargo's");
    target.join("plugin-tests")
}
