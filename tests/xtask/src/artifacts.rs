//! Builds packages and finds what came out, from what cargo itself reports: file names of libraries
//! differ between systems, and target directories can be moved.
//!
//! Where the workspace has just been built, programs and libraries are looked for under the names that
//! cargo gives them; one that is not there is an error.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::{linker, repo};

/// Says that all of the workspace has just been built, as it does to the tests.
const WORKSPACE_BUILT: &str = "CONJURE_KIT_BUILT";

/// What a build made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildOutput {
    /// Programs: (name of the target, file).
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// Shared libraries: (name of the package, file).
    pub(crate) libraries: Vec<(String, PathBuf)>,
    /// Programs that run tests.
    pub(crate) tests: Vec<PathBuf>,
}

impl BuildOutput {
    /// Builds these packages as tests do, progress going to the terminal.
    ///
    /// # Errors
    /// When cargo cannot be started or the build fails.
    pub(crate) fn dev(packages: &[&str]) -> Result<Self> {
        Self::with("build", packages, &[])
    }

    /// Like [`Self::dev`]. Where the environment says that all of the workspace has just been built,
    /// that is taken: alone the packages would have other features, and be built anew with most of what
    /// they depend on.
    ///
    /// # Errors
    /// Those of [`Self::dev`], and when something of a build that is said to be there is not.
    pub(crate) fn dev_or_before(packages: &[&str]) -> Result<Self> {
        match std::env::var_os(WORKSPACE_BUILT).is_some_and(|value| value == "1") {
            true => Self::prebuilt(packages),
            false => Self::dev(packages),
        }
    }

    /// What a build of the workspace made of these packages.
    fn prebuilt(packages: &[&str]) -> Result<Self> {
        let metadata = repo::metadata()?;
        let built = Self::in_folder(&metadata, packages, &repo::target().join("debug"));
        let files = built.programs.iter().chain(&built.libraries);
        for (name, file) in files {
            if !file.is_file() {
                bail!(
                    "{WORKSPACE_BUILT} says that all is built, and there is no `{}` of {name}; take it out \
                     of the environment",
                    file.display()
                );
            }
        }
        Ok(built)
    }

    /// The programs and libraries of packages, in the folder that cargo puts them into.
    fn in_folder(metadata: &Value, packages: &[&str], folder: &Path) -> Self {
        use std::env::consts::{DLL_PREFIX, DLL_SUFFIX, EXE_SUFFIX};
        let list = |of: &Value, name: &str| {
            let list = of.get(name).and_then(Value::as_array);
            list.cloned().unwrap_or_default()
        };
        let text = |of: &Value| of.get("name").and_then(Value::as_str).map(str::to_owned);
        let mut built = Self::default();
        for package in list(metadata, "packages") {
            let Some(owner) = text(&package).filter(|it| packages.contains(&it.as_str())) else {
                continue;
            };
            for target in list(&package, "targets") {
                let kinds = list(&target, "kind");
                let name = text(&target).unwrap_or_default();
                if kinds.iter().any(|kind| kind == "bin") {
                    let file = folder.join(format!("{name}{EXE_SUFFIX}"));
                    built.programs.push((name, file));
                } else if kinds.iter().any(|kind| kind == "cdylib") {
                    let file = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", name.replace('-', "_"));
                    built.libraries.push((owner.clone(), folder.join(file)));
                }
            }
        }
        built
    }

    /// Builds these packages with a command of cargo that builds, and with these options.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn with(verb: &str, packages: &[&str], options: &[&str]) -> Result<Self> {
        let mut command = repo::cargo([verb]);
        command.args(options);
        for package in packages {
            command.args(["--package", package]);
        }
        // For another system, or an older one, something else links.
        if verb == "build" && options.contains(&"--release") && !options.contains(&"--target") {
            linker::use_linker(&mut command)?;
        }
        Self::by(&mut command)
    }

    /// Builds by a command of cargo that builds.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn by(command: &mut Command) -> Result<Self> {
        command.arg("--message-format=json-render-diagnostics");
        repo::announce(command);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .context("cargo could not be started")?;
        let mut built = Self::default();
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                built.take_message(&line.context("cargo's messages could not be read")?);
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("the build failed ({status}); the compiler's message is above");
        }
        Ok(built)
    }

    /// The program of that name.
    ///
    /// # Errors
    /// When the build made none.
    pub(crate) fn program(&self, name: &str) -> Result<&PathBuf> {
        let found = self.programs.iter().find(|(target, _)| target == name);
        found.map(|(_, file)| file).ok_or_else(|| {
            anyhow!("the build made no program `{name}`; is there a [[bin]] of that name?")
        })
    }

    /// The shared library of that package.
    ///
    /// # Errors
    /// When the build made none.
    pub(crate) fn library(&self, package: &str) -> Result<&PathBuf> {
        let found = self.libraries.iter().find(|(owner, _)| owner == package);
        found.map(|(_, file)| file).ok_or_else(|| {
            anyhow!("`{package}` made no shared library; its [lib] needs crate-type = [\"cdylib\"]")
        })
    }

    fn take_message(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let text = |at: &str| {
            message
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let list = |at: &str| {
            message
                .pointer(at)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        if text("/reason") != "compiler-artifact" {
            return;
        }
        let target = text("/target/name");
        let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
        match message.get("executable").and_then(Value::as_str) {
            Some(file) if is_test => self.tests.push(file.into()),
            Some(file) => self.programs.push((target.to_owned(), file.into())),
            None => {}
        }
        if list("/target/kind").any(|kind| kind == "cdylib") {
            let package = package_name(text("/package_id"), target);
            let files = list("/filenames");
            for file in files.filter_map(Value::as_str).map(PathBuf::from) {
                if file
                    .extension()
                    .is_some_and(|end| end == std::env::consts::DLL_EXTENSION)
                {
                    self.libraries.push((package.clone(), file));
                }
            }
        }
    }
}

/// The package's name out of its id: `…/dir#name@1.0.0`, or `…/name#1.0.0` where the
/// directory has the package's name.
fn package_name(id: &str, target: &str) -> String {
    let (place, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(target).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_workspace_made_is_found_without_a_build() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "conjure-cli", "targets": [
                { "name": "conjure", "kind": ["bin"] }, { "name": "cli", "kind": ["test"] } ] },
            { "name": "conjure-jump", "targets": [{ "name": "conjure_jump", "kind": ["cdylib", "rlib"] }] },
            { "name": "another", "targets": [{ "name": "another", "kind": ["bin"] }] },
        ] });
        let built =
            BuildOutput::in_folder(&metadata, &["conjure-cli", "conjure-jump"], Path::new("/t"));
        let program = format!("/t/conjure{}", std::env::consts::EXE_SUFFIX);
        assert_eq!(built.programs, [("conjure".to_owned(), program.into())]);
        let library = built.library("conjure-jump").unwrap();
        assert!(library.starts_with("/t"), "{}", library.display());
        assert_eq!(
            library.extension().unwrap(),
            std::env::consts::DLL_EXTENSION
        );
        assert!(built.program("another").is_err());
    }

    #[test]
    fn finds_programs_and_shared_libraries_in_cargos_messages() {
        let library = format!("/t/release/libjump.{}", std::env::consts::DLL_EXTENSION);
        let mut built = BuildOutput::default();
        for message in [
            serde_json::json!({"reason": "compiler-artifact", "package_id": "path+file:///r/plugins/jump#conjure-jump@0.1.0",
                "target": {"name": "conjure_jump", "kind": ["cdylib"]}, "filenames": [library, "/t/release/libjump.d"], "executable": null}),
            serde_json::json!({"reason": "compiler-artifact", "package_id": "path+file:///r/conjure-host#0.1.0",
                "target": {"name": "conjure", "kind": ["bin"]}, "filenames": ["/t/release/conjure"], "executable": "/t/release/conjure"}),
            serde_json::json!({"reason": "compiler-artifact", "package_id": "path+file:///r/conjure-host#0.1.0", "profile": {"test": true},
                "target": {"name": "conjure", "kind": ["bin"]}, "filenames": ["/t/release/deps/conjure-1"], "executable": "/t/release/deps/conjure-1"}),
            serde_json::json!({"reason": "build-finished", "success": true}),
        ] {
            built.take_message(&message.to_string());
        }
        built.take_message("not json");
        let expected = BuildOutput {
            programs: vec![("conjure".to_owned(), "/t/release/conjure".into())],
            libraries: vec![("conjure-jump".to_owned(), library.into())],
            tests: vec!["/t/release/deps/conjure-1".into()],
        };
        assert_eq!(built, expected);
        assert!(
            built
                .library("conjure-host")
                .unwrap_err()
                .to_string()
                .contains("cdylib")
        );
    }
}
