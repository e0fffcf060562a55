//! An author's crate: where it is, and building it with cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use conjure_config::platform::LIBRARY_EXTENSION;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use super::args::shown;
use super::error::CliError;

/// A crate that makes a plugin.
#[derive(Debug, Clone)]
pub(crate) struct PluginCrate {
    dir: PathBuf,
}

/// What a build made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BuiltPlugin {
    pub(crate) library: PathBuf,
    /// What the compiler warned of, as it said it.
    pub(crate) warnings: String,
}

/// A message of cargo's about something that it built.
#[derive(Deserialize)]
struct ArtifactMessage {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    target: ArtifactTarget,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize, Default)]
struct ArtifactTarget {
    #[serde(default)]
    crate_types: Vec<String>,
}

/// Cargo and the compilers that it started, which end together with this.
struct CargoProcess(Child);

impl PluginCrate {
    /// The crate in a directory.
    pub(crate) fn at(dir: &Path) -> Result<Self, CliError> {
        let real = dir.canonicalize().map_err(CliError::usage_from)?;
        if real.join("Cargo.toml").is_file() {
            return Ok(Self { dir: real });
        }
        let message = format!("`{}` is no crate: there is no Cargo.toml", shown(dir));
        Err(CliError::usage(message)
            .hint("name one, or make one with `conjure plugin create skill NAME`"))
    }

    /// Its directory, without links.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Builds it. The inner error is what the compiler says. Dropping the future ends the build.
    pub(crate) async fn build(
        &self,
        release: bool,
    ) -> Result<Result<BuiltPlugin, String>, CliError> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(&cargo);
        command
            .args(["build", "--lib", "--message-format=json-render-diagnostics"])
            .args(release.then_some("--release"))
            .args(["--color", "never"])
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        conjure_config::env::keep_from(command.as_std_mut());
        let child = command.spawn().map_err(|error| {
            CliError::host_from(error)
                .context(format_args!("`{}` cannot be run", cargo.display()))
                .hint("install Rust: https://rustup.rs")
        })?;
        let mut child = CargoProcess(child);
        let (Some(mut stdout), Some(mut stderr)) = (child.0.stdout.take(), child.0.stderr.take())
        else {
            return Err(CliError::host("cargo has no output"));
        };
        let (mut messages, mut said) = (Vec::new(), Vec::new());
        let (read, told) = tokio::join!(
            stdout.read_to_end(&mut messages),
            stderr.read_to_end(&mut said)
        );
        read.and(told).map_err(CliError::host_from)?;
        let status = child.0.wait().await.map_err(CliError::host_from)?;
        let said = diagnostics(&String::from_utf8_lossy(&said));
        if !status.success() {
            return Ok(Err(said));
        }
        let manifest = self.dir.join("Cargo.toml");
        match library(&String::from_utf8_lossy(&messages), &manifest) {
            Some(library) => Ok(Ok(BuiltPlugin {
                library,
                warnings: said,
            })),
            None => Ok(Err(
                "it builds, and no shared library comes of it: write `crate-type = [\"cdylib\"]` \
                 below `[lib]` in its Cargo.toml"
                    .to_owned(),
            )),
        }
    }
}

/// The shared library of a crate, from what cargo says that it built.
fn library(messages: &str, manifest: &Path) -> Option<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<ArtifactMessage>(line).ok());
    let mut built = messages.filter(|message| {
        message.reason == "compiler-artifact"
            && message.manifest_path == manifest
            && message
                .target
                .crate_types
                .iter()
                .any(|kind| kind == "cdylib")
    });
    let is_library = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension == Some(LIBRARY_EXTENSION)
    };
    built.find_map(|message| message.filenames.into_iter().find(is_library))
}

/// What cargo said, without what it does meanwhile.
fn diagnostics(said: &str) -> String {
    const PROGRESS: [&str; 10] = [
        "Adding",
        "Blocking",
        "Checking",
        "Compiling",
        "Downloaded",
        "Downloading",
        "Finished",
        "Locking",
        "Updating",
        "Fresh",
    ];
    let is_progress = |line: &str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        PROGRESS.contains(&first)
    };
    let kept = said.lines().filter(|line| !is_progress(line));
    kept.collect::<Vec<_>>().join("\n").trim().to_owned()
}

impl Drop for CargoProcess {
    fn drop(&mut self) {
        // Where it was waited for, it has no number any more, and its compilers have ended.
        let Some(pid) = self.0.id() else { return };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_of_the_crate_itself() {
        let line = |manifest: &str, kind: &str, file: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"{manifest}\",\
                 \"target\":{{\"crate_types\":[\"{kind}\"]}},\"filenames\":[\"{file}\"]}}\n"
            )
        };
        let file = format!("/a/target/debug/liba.{LIBRARY_EXTENSION}");
        let messages = [
            line("/dep/Cargo.toml", "cdylib", "/dep/libdep.so"),
            line("/a/Cargo.toml", "bin", "/a/target/debug/a"),
            line("/a/Cargo.toml", "cdylib", &file),
            "no message\n".to_owned(),
        ];
        let found = library(&messages.concat(), Path::new("/a/Cargo.toml"));
        assert_eq!(found, Some(PathBuf::from(file)));
    }

    #[test]
    fn what_cargo_does_is_no_diagnosis() {
        let said = "   Compiling a v0.1.0 (/a)\nerror[E0425]: cannot find `x`\n --> src/lib.rs:1:1\n\n\
                    error: could not compile `a` (lib) due to 1 previous error\n";
        assert_eq!(
            diagnostics(said),
            "error[E0425]: cannot find `x`\n --> src/lib.rs:1:1\n\n\
             error: could not compile `a` (lib) due to 1 previous error"
        );
        assert_eq!(diagnostics("    Finished `dev` profile in 1s\n"), "");
    }
}
