//! Building what a test runs: plugins as shared libraries, and binaries.
//!
//! Asks cargo, once a package and test run, and takes the path from cargo's own messages. Parallel
//! test processes wait for each other on a lock file.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::KitError;

/// The root of the repository from which the tests were built.
#[must_use]
pub fn repo_root() -> PathBuf {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR"));
    kit.ancestors().nth(2).unwrap_or(kit).to_owned()
}

/// Builds a plugin of the workspace and returns its shared library.
///
/// # Errors
/// When cargo fails, with what it said, or the package makes no shared library.
pub fn build_plugin(package: &str) -> Result<PathBuf, KitError> {
    Cargo::workspace().plugin(package)
}

/// Builds a binary of the workspace and returns it.
///
/// # Errors
/// When cargo fails, with what it said, or the package has no such binary.
pub fn build_bin(package: &str, name: &str) -> Result<PathBuf, KitError> {
    Cargo::workspace().bin(package, name)
}

/// Builds an example of a package of the workspace and returns it.
///
/// # Errors
/// When cargo fails, with what it said, or the package has no such example.
pub fn build_example(package: &str, name: &str) -> Result<PathBuf, KitError> {
    Cargo::workspace().find_or_build(package, ArtifactKind::Example(name.to_owned()))
}

/// Builds `conjure` and returns it.
///
/// # Errors
/// As [`build_bin`].
pub fn conjure_bin() -> Result<PathBuf, KitError> {
    build_bin("conjure-cli", "conjure")
}

/// Says that all of the workspace has just been built.
const WORKSPACE_BUILT: &str = "CONJURE_KIT_BUILT";

/// Builds in one directory, with the profile of the running test.
///
/// `CARGO` says which cargo (default: the one on the path) and `CARGO_TARGET_DIR` where things go.
#[derive(Clone, Debug)]
pub struct Cargo {
    root: PathBuf,
    target: PathBuf,
}

/// What was built in this process: by directory, package and artifact.
type ArtifactCache = BTreeMap<(PathBuf, String, ArtifactKind), PathBuf>;

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ArtifactKind {
    Library,
    Binary(String),
    Example(String),
}

impl Cargo {
    /// The workspace of this repository.
    #[must_use]
    pub fn workspace() -> Self {
        let root = repo_root();
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, target }
    }

    /// A crate or workspace elsewhere, with a target directory of its own.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            target: target.into(),
        }
    }

    /// Builds a package and returns its shared library.
    ///
    /// # Errors
    /// When cargo fails, with what it said, or the package makes no shared library.
    pub fn plugin(&self, package: &str) -> Result<PathBuf, KitError> {
        self.find_or_build(package, ArtifactKind::Library)
    }

    /// Builds a binary of a package and returns it.
    ///
    /// # Errors
    /// When cargo fails, with what it said, or the package has no such binary.
    pub fn bin(&self, package: &str, name: &str) -> Result<PathBuf, KitError> {
        self.find_or_build(package, ArtifactKind::Binary(name.to_owned()))
    }

    fn find_or_build(&self, package: &str, wanted: ArtifactKind) -> Result<PathBuf, KitError> {
        static BUILT: OnceLock<Mutex<ArtifactCache>> = OnceLock::new();
        let mut built = BUILT
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = (self.root.clone(), package.to_owned(), wanted);
        if let Some(path) = built.get(&key) {
            return Ok(path.clone());
        }
        if let Some(path) = self.prebuilt(package, &key.2) {
            return Ok(path);
        }
        let path = self.build_once_per_run(package, &key.2)?;
        built.insert(key, path.clone());
        Ok(path)
    }

    /// What whoever runs the tests has just built, all of the workspace at once, where it says so:
    /// building one package alone would resolve other features, and build its dependencies anew.
    fn prebuilt(&self, package: &str, wanted: &ArtifactKind) -> Option<PathBuf> {
        env::var_os(WORKSPACE_BUILT)?;
        if self.root != repo_root() {
            return None;
        }
        let name = match wanted {
            ArtifactKind::Library => format!(
                "{}{}{}",
                env::consts::DLL_PREFIX,
                package.replace('-', "_"),
                env::consts::DLL_SUFFIX
            ),
            ArtifactKind::Binary(name) => name.clone(),
            ArtifactKind::Example(name) => format!("examples/{name}"),
        };
        let profile = profile();
        let dir = if profile == "dev" { "debug" } else { &profile };
        let path = self.target.join(dir).join(name);
        path.is_file().then_some(path)
    }

    /// One process of a run builds, the others read from a note where it is.
    fn build_once_per_run(
        &self,
        package: &str,
        wanted: &ArtifactKind,
    ) -> Result<PathBuf, KitError> {
        let folder = self.target.join("conjure-kit");
        fs::create_dir_all(&folder).map_err(KitError::file(&folder))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).map_err(KitError::file(&lock_path))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| KitError::file(&lock_path)(error.into()))?;
        // Only nextest, which runs a process a test, names its runs.
        let Ok(run) = env::var("NEXTEST_RUN_ID") else {
            return self.build(package, wanted);
        };
        let artifact = match wanted {
            ArtifactKind::Library => "lib",
            ArtifactKind::Binary(name) | ArtifactKind::Example(name) => name,
        };
        let note = folder.join(format!("{package}.{artifact}.{}", profile()));
        let noted = fs::read_to_string(&note).unwrap_or_default();
        if let Some((noted_run, path)) = noted.split_once('\n')
            && noted_run == run
            && Path::new(path).exists()
        {
            return Ok(PathBuf::from(path));
        }
        let path = self.build(package, wanted)?;
        fs::write(&note, format!("{run}\n{}", path.display())).map_err(KitError::file(&note))?;
        Ok(path)
    }

    fn build(&self, package: &str, wanted: &ArtifactKind) -> Result<PathBuf, KitError> {
        let program = PathBuf::from(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let mut command = Command::new(&program);
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .args([
                "build",
                "--message-format=json-render-diagnostics",
                "--package",
                package,
            ])
            .args(["--profile", &profile()]);
        match wanted {
            ArtifactKind::Library => command.arg("--lib"),
            ArtifactKind::Binary(name) => command.args(["--bin", name]),
            ArtifactKind::Example(name) => command.args(["--example", name]),
        };
        // What cargo set for the test itself is not for another package's build.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"]
                .iter()
                .any(|start| text.starts_with(start))
            {
                command.env_remove(&name);
            }
        }
        let output = command
            .output()
            .map_err(|source| KitError::Start { program, source })?;
        if !output.status.success() {
            return Err(KitError::Build {
                package: package.to_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|message| artifact(&message, package, wanted))
            .ok_or_else(|| KitError::NoArtifact {
                package: package.to_owned(),
                wanted: match wanted {
                    ArtifactKind::Library => "shared library (crate-type cdylib)".to_owned(),
                    ArtifactKind::Binary(name) => format!("binary {name}"),
                    ArtifactKind::Example(name) => format!("example {name}"),
                },
            })
    }
}

/// The path in a message of cargo's, if it is about the wanted artifact.
fn artifact(message: &Value, package: &str, wanted: &ArtifactKind) -> Option<PathBuf> {
    if message.get("reason")?.as_str()? != "compiler-artifact"
        || package_name(message.get("package_id")?.as_str()?) != package
    {
        return None;
    }
    let target = message.get("target")?;
    let path = match wanted {
        ArtifactKind::Binary(name) | ArtifactKind::Example(name)
            if target.get("name")?.as_str()? == name =>
        {
            message.get("executable")?.as_str()?
        }
        ArtifactKind::Binary(_) | ArtifactKind::Example(_) => return None,
        ArtifactKind::Library => message
            .get("filenames")?
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .find(|name| {
                Path::new(name)
                    .extension()
                    .is_some_and(|it| it == env::consts::DLL_EXTENSION)
            })?,
    };
    Some(PathBuf::from(path))
}

/// `path+file:///a/b#name@0.1.0`, or `path+file:///a/name#0.1.0` when the folder has the name.
fn package_name(id: &str) -> &str {
    let (place, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

/// The profile that the running test was built with, from its place `<target>/<profile>/deps/<test>`.
fn profile() -> String {
    let test = env::current_exe().unwrap_or_default();
    let folder = test
        .ancestors()
        .find(|path| path.ends_with("deps"))
        .and_then(Path::parent)
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    match folder.as_deref() {
        None | Some("debug") => "dev".to_owned(),
        Some(other) => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;

    fn small_crate(workspace: &Workspace, kind: &str) -> Cargo {
        let manifest = format!(
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
             [lib]\ncrate-type = [\"{kind}\"]\n[workspace]\n"
        );
        workspace.write("crate/Cargo.toml", manifest).unwrap();
        workspace.write("crate/src/lib.rs", "").unwrap();
        workspace
            .write("crate/src/main.rs", "fn main() {}")
            .unwrap();
        Cargo::at(
            workspace.work().join("crate"),
            workspace.root().join("target"),
        )
    }

    #[test]
    fn a_plugin_is_built_once_and_found() {
        let workspace = Workspace::new().unwrap();
        let cargo = small_crate(&workspace, "cdylib");
        let library = cargo.plugin("small").unwrap();
        assert!(
            library.starts_with(workspace.root().join("target")),
            "{}",
            library.display()
        );
        assert_eq!(library.extension().unwrap(), env::consts::DLL_EXTENSION);
        workspace
            .write("crate/src/lib.rs", "this does not compile")
            .unwrap();
        assert_eq!(
            cargo.plugin("small").unwrap(),
            library,
            "a second call does not build again"
        );
    }

    #[test]
    fn a_binary_is_built_and_found() {
        let workspace = Workspace::new().unwrap();
        let binary = small_crate(&workspace, "rlib")
            .bin("small", "small")
            .unwrap();
        assert!(Command::new(binary).status().unwrap().success());
    }

    #[test]
    fn a_package_without_a_shared_library_is_an_error() {
        let workspace = Workspace::new().unwrap();
        let error = small_crate(&workspace, "rlib").plugin("small").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cargo built small, but no shared library (crate-type cdylib) came of it; check its Cargo.toml"
        );
    }

    #[test]
    fn what_the_compiler_said_is_in_the_error() {
        let workspace = Workspace::new().unwrap();
        let cargo = small_crate(&workspace, "cdylib");
        workspace
            .write("crate/src/lib.rs", "fn broken( {}")
            .unwrap();
        let error = cargo.plugin("small").unwrap_err().to_string();
        assert!(error.contains("src/lib.rs"), "{error}");
    }

    #[test]
    fn the_root_is_where_the_workspace_is() {
        assert!(repo_root().join("tests/kit/Cargo.toml").is_file());
    }

    #[test]
    fn names_come_from_both_forms_of_a_package_id() {
        let names = ["path+file:///a/b#name@0.1.0", "path+file:///a/name#0.1.0"].map(package_name);
        assert_eq!(names, ["name", "name"]);
    }
}
