//! Where the repository is, and how its commands start programs.
//!
//! Every program is started from here, so that each is printed before it runs and each
//! failure names its command line.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The directory of the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for what it runs; the constant serves a binary started by hand.
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.ancestors()
        .nth(2)
        .map_or_else(|| own.clone(), Path::to_path_buf)
}

/// Where cargo builds: it says so itself, as its configuration may name a directory.
pub(crate) fn target() -> PathBuf {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    TARGET
        .get_or_init(|| configured_target().unwrap_or_else(|| root().join("target")))
        .clone()
}

fn configured_target() -> Option<PathBuf> {
    let metadata = metadata().ok()?;
    metadata
        .get("target_directory")?
        .as_str()
        .map(PathBuf::from)
}

/// What cargo says of the workspace, without what it depends on.
///
/// # Errors
/// When cargo cannot be asked.
pub(crate) fn metadata() -> Result<Value> {
    let mut command = cargo(["metadata", "--no-deps", "--format-version=1"]);
    serde_json::from_str(&text_of(&mut command)?).context("`cargo metadata` said no JSON")
}

/// Whether this is a run of CI, where nothing may be left out in silence.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// How cargo is told whether it keeps what shortens the next build of a crate.
pub(crate) const INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// `cargo`, the one that runs this program, in the root of the repository. Unless the environment says
/// otherwise it keeps nothing that only shortens the build after the next edit: that would make the
/// build of our crates a fifth longer, and take 1.8 GB.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // What `cargo run` sets for this package is not for the commands that it starts: a build
    // script that watches such a variable would run again each time.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "OUT_DIR"] {
        command.env_remove(name);
    }
    if std::env::var_os(INCREMENTAL).is_none() {
        command.env(INCREMENTAL, "0");
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command
}

/// Gives a command the lowest priority for processor time.
pub(crate) fn low_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program());
    nice.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// Prints the command line and runs it to its end, with this program's terminal.
///
/// # Errors
/// Says which command line could not be started or did not succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command
        .status()
        .with_context(|| format!("`{}` could not be started", line(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// What the command prints.
///
/// # Errors
/// As for [`run`], with what it said instead.
pub(crate) fn text_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{}` could not be started", line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}", line(command), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the command starts and succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Prints the command line that is about to run.
pub(crate) fn announce(command: &Command) {
    eprintln!("$ {}", line(command));
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let mut words = vec![name.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| {
        let word = word.to_string_lossy();
        if word.contains([' ', '"', '\'', '(', ')', '&']) {
            format!("'{word}'")
        } else {
            word.into_owned()
        }
    }));
    words.join(" ")
}
