//! An author's crate: where it is, and building it with cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use conjure_config::platform::LIBRARY_EXTENSION;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::args::display_path;
use super::error::CliError;
use super::plugin_sdk;

/// A crate that makes a plugin.
#[derive(Debug, Clone)]
pub(crate) struct PluginCrate {
    dir: PathBuf,
    target_dir: PathBuf,
}

/// What `cargo metadata` says of a workspace, or of a crate that is in none.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<ArtifactTarget>,
}

/// What cargo said, and how it ended.
struct CargoOutput {
    succeeded: bool,
    stdout: String,
    stderr: String,
}

/// How long the output is read of a cargo that has ended, which a build script may have given to a
/// process that goes on.
const AFTER_END: Duration = Duration::from_secs(1);

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
    /// The crate in a directory; of a workspace, the one among its crates that makes a plugin. An SDK
    /// that it has below the data directory and that is gone is written there again.
    pub(crate) async fn at(dir: &Path, data_dir: &Path) -> Result<Self, CliError> {
        let real = dir.canonicalize().map_err(|error| {
            CliError::usage_from(error)
                .context(format_args!(
                    "the crate `{}` cannot be used",
                    display_path(dir)
                ))
                .hint("name one, or make one with `conjure plugin create skill NAME`")
        })?;
        let manifest = real.join("Cargo.toml");
        if !manifest.is_file() {
            let message = format!(
                "`{}` is neither a crate nor a program: there is no Cargo.toml, and no plugin.toml or \
                 NAME.plugin.toml",
                display_path(dir)
            );
            return Err(CliError::usage(message)
                .hint("name one, or make one with `conjure plugin create skill NAME`"));
        }
        // Without it cargo does not read the crate either.
        plugin_sdk::ensure_sdks(&real, data_dir)?;
        let args = ["metadata", "--no-deps", "--format-version", "1"];
        let told = cargo(&real, &args).await?;
        if !told.succeeded {
            let message = format!(
                "cargo cannot read `{}`: {}",
                display_path(dir),
                told.stderr.trim()
            );
            return Err(CliError::usage(message));
        }
        let metadata = serde_json::from_str::<Metadata>(&told.stdout)
            .map_err(|error| CliError::host_from(error).context("what cargo says of the crate"))?;
        let dir = metadata.crate_at(&manifest).map_err(|plugins| {
            let message = match &plugins[..] {
                [] => format!(
                    "no crate of the workspace `{}` makes a plugin: it takes `crate-type = \
                     [\"cdylib\"]` below `[lib]`",
                    display_path(dir)
                ),
                some => format!(
                    "the workspace `{}` has more than one crate that makes a plugin: {}",
                    display_path(dir),
                    some.join(", ")
                ),
            };
            CliError::usage(message).hint("name the directory of one of them")
        })?;
        let target_dir = metadata.target_directory;
        Ok(Self {
            dir,
            target_dir: conjure_config::fs::real_path(target_dir),
        })
    }

    /// Directory in which cargo builds the crate.
    pub(crate) fn target_dir(&self) -> &Path {
        &self.target_dir
    }

    /// Directory of the crate, without links.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Builds it. The inner error is what the compiler says. Dropping the future ends the build.
    pub(crate) async fn build(
        &self,
        release: bool,
    ) -> Result<Result<BuiltPlugin, String>, CliError> {
        let mut args = vec![
            "build",
            "--lib",
            "--message-format=json-render-diagnostics",
            "--color",
            "never",
        ];
        args.extend(release.then_some("--release"));
        let built = cargo(&self.dir, &args).await?;
        let said = diagnostics(&built.stderr);
        if !built.succeeded {
            return Ok(Err(said));
        }
        let manifest = self.dir.join("Cargo.toml");
        match library(&built.stdout, &manifest) {
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

impl Metadata {
    /// The directory of the crate with this manifest; where that is a workspace alone, of the only one in
    /// it that makes a plugin. Otherwise the names of those that do.
    fn crate_at(&self, manifest: &Path) -> Result<PathBuf, Vec<String>> {
        let dir = |manifest: &Path| manifest.parent().unwrap_or(manifest).to_owned();
        let is_same = |package: &&MetadataPackage| {
            let real = package.manifest_path.canonicalize();
            real.is_ok_and(|real| real == manifest) || package.manifest_path == manifest
        };
        if self.packages.iter().any(|package| is_same(&package)) {
            return Ok(dir(manifest));
        }
        let makes_plugin = |package: &&MetadataPackage| {
            let kinds = package.targets.iter().flat_map(|it| &it.crate_types);
            kinds.into_iter().any(|kind| kind == "cdylib")
        };
        let plugins: Vec<&MetadataPackage> = self.packages.iter().filter(makes_plugin).collect();
        match plugins[..] {
            [one] => {
                let real = one.manifest_path.canonicalize();
                Ok(dir(&real.unwrap_or_else(|_| one.manifest_path.clone())))
            }
            _ => Err(plugins.iter().map(|one| one.name.clone()).collect()),
        }
    }
}

/// Runs cargo in a directory to its end. Dropping the future ends it with all that it started.
async fn cargo(dir: &Path, args: &[&str]) -> Result<CargoOutput, CliError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(&cargo);
    command
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    conjure_config::env::remove_secrets(command.as_std_mut());
    let child = command.spawn().map_err(|error| {
        CliError::host_from(error)
            .context(format_args!("`{}` cannot be run", cargo.display()))
            .hint("install Rust: https://rustup.rs")
    })?;
    let mut child = CargoProcess(child);
    let (Some(stdout), Some(stderr)) = (child.0.stdout.take(), child.0.stderr.take()) else {
        return Err(CliError::host("cargo has no output"));
    };
    let (mut told, mut said) = (Vec::new(), Vec::new());
    let mut reading = Box::pin(async {
        tokio::join!(collect(stdout, &mut told), collect(stderr, &mut said));
    });
    let mut is_read = false;
    let status = loop {
        tokio::select! {
            () = &mut reading, if !is_read => is_read = true,
            status = child.0.wait() => break status.map_err(CliError::host_from)?,
        }
    };
    if !is_read {
        let _ = tokio::time::timeout(AFTER_END, &mut reading).await;
    }
    drop(reading);
    Ok(CargoOutput {
        succeeded: status.success(),
        stdout: String::from_utf8_lossy(&told).into_owned(),
        stderr: String::from_utf8_lossy(&said).into_owned(),
    })
}

/// Reads to the end, or as far as it comes; what was read stays when nobody waits any more.
async fn collect(mut from: impl AsyncRead + Unpin, to: &mut Vec<u8>) {
    while let Ok(1..) = from.read_buf(to).await {}
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
    fn of_a_workspace_it_is_the_only_crate_that_makes_a_plugin() {
        let package = |name: &str, kind: &str| MetadataPackage {
            name: name.to_owned(),
            manifest_path: PathBuf::from(format!("/w/{name}/Cargo.toml")),
            targets: vec![ArtifactTarget {
                crate_types: vec![kind.to_owned()],
            }],
        };
        let mut metadata = Metadata {
            packages: vec![package("a", "cdylib"), package("b", "lib")],
            target_directory: PathBuf::from("/w/target"),
        };
        let at = |metadata: &Metadata, path: &str| metadata.crate_at(Path::new(path));
        let found = at(&metadata, "/w/Cargo.toml");
        assert_eq!(found, Ok(PathBuf::from("/w/a")));
        let found = at(&metadata, "/w/b/Cargo.toml");
        assert_eq!(found, Ok(PathBuf::from("/w/b")));
        metadata.packages.push(package("c", "cdylib"));
        let found = at(&metadata, "/w/Cargo.toml");
        assert_eq!(found, Err(vec!["a".to_owned(), "c".to_owned()]));
        metadata.packages.clear();
        assert_eq!(at(&metadata, "/w/Cargo.toml"), Err(Vec::new()));
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
