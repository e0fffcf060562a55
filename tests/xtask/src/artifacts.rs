//! Builds packages and finds what came out, from what cargo itself reports.
//!
//! File names of libraries differ between systems and target directories can be moved, so no
//! path is guessed.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::{linker, repo};

/// What a build made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Built {
    /// Programs: (name of the target, file).
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// Shared libraries: (name of the package, file).
    pub(crate) libraries: Vec<(String, PathBuf)>,
}

impl Built {
    /// Builds these packages as tests do, progress going to the terminal.
    ///
    /// # Errors
    /// When cargo cannot be started or the build fails.
    pub(crate) fn dev(packages: &[&str]) -> Result<Self> {
        Self::with("build", packages, &[])
    }

    /// Builds these packages with a command of cargo that builds, and with these options.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn with(verb: &str, packages: &[&str], options: &[&str]) -> Result<Self> {
        let mut command = repo::cargo([verb, "--message-format=json-render-diagnostics"]);
        command.args(options);
        for package in packages {
            command.args(["--package", package]);
        }
        // For another system, or an older one, something else links.
        if verb == "build" && options.contains(&"--release") && !options.contains(&"--target") {
            linker::lay_out(&mut command)?;
        }
        repo::announce(&command);
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
        if let Some(file) = message.get("executable").and_then(Value::as_str) {
            self.programs.push((target.to_owned(), file.into()));
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
    fn finds_programs_and_shared_libraries_in_cargos_messages() {
        let library = format!("/t/release/libjump.{}", std::env::consts::DLL_EXTENSION);
        let mut built = Built::default();
        for message in [
            serde_json::json!({"reason": "compiler-artifact", "package_id": "path+file:///r/plugins/jump#conjure-jump@0.1.0",
                "target": {"name": "conjure_jump", "kind": ["cdylib"]}, "filenames": [library, "/t/release/libjump.d"], "executable": null}),
            serde_json::json!({"reason": "compiler-artifact", "package_id": "path+file:///r/conjure-host#0.1.0",
                "target": {"name": "conjure", "kind": ["bin"]}, "filenames": ["/t/release/conjure"], "executable": "/t/release/conjure"}),
            serde_json::json!({"reason": "build-finished", "success": true}),
        ] {
            built.take_message(&message.to_string());
        }
        built.take_message("not json");
        let expected = Built {
            programs: vec![("conjure".to_owned(), "/t/release/conjure".into())],
            libraries: vec![("conjure-jump".to_owned(), library.into())],
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
