//! What a session lets its commands do on this machine: the setting `sandbox`.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the commands of a session may do on this machine: `"none"`, `"working-dir"`, or a table of `mode`,
/// `read`, `write` and `network`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct SandboxSpec {
    /// Mode of the sandbox.
    pub mode: SandboxMode,
    /// Secrets of the user that the commands read all the same, such as `~/.ssh`.
    pub read: Vec<PathBuf>,
    /// More files and directories that the commands change.
    pub write: Vec<PathBuf>,
    /// Whether the commands reach the network.
    pub network: bool,
}

/// How the commands of a session are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// No sandbox: the commands do what the user may.
    None,
    /// A sandbox: the commands change what is below the session's working directory, read everything but
    /// the user's secrets, and have no network.
    WorkingDir,
}

impl Default for SandboxMode {
    /// The sandbox where the system has one, which only Linux does.
    fn default() -> Self {
        match cfg!(target_os = "linux") {
            true => Self::WorkingDir,
            false => Self::None,
        }
    }
}

/// The table, as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxTable {
    #[serde(default = "working_dir")]
    mode: SandboxMode,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    read: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    write: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    network: bool,
}

/// A table says what is allowed more, which has a meaning in a sandbox only.
fn working_dir() -> SandboxMode {
    SandboxMode::WorkingDir
}

impl SandboxSpec {
    /// With this mode and nothing more.
    pub fn of(mode: SandboxMode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// Whether commands are in a sandbox.
    pub fn is_on(&self) -> bool {
        self.mode == SandboxMode::WorkingDir
    }

    /// Resolves the paths: below `base`, or below `home` where they begin with `~/`.
    #[must_use]
    pub fn below(mut self, base: &Path, home: Option<&Path>) -> Self {
        for path in self.read.iter_mut().chain(&mut self.write) {
            *path = match (path.strip_prefix("~"), home) {
                (Ok(rest), Some(home)) => home.join(rest),
                _ => base.join(&*path),
            };
        }
        self
    }

    /// What cannot be, if something cannot.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.mode == SandboxMode::None && *self != Self::of(SandboxMode::None) {
            let text = "`sandbox` has the mode `none` and allows something more; without a sandbox \
                        everything is allowed, so leave out `read`, `write` and `network`";
            return Some(text.to_owned());
        }
        let paths = self.read.iter().chain(&self.write);
        let climbs = |path: &&PathBuf| path.components().any(|part| part == Component::ParentDir);
        let climbing = paths.clone().find(climbs)?;
        Some(format!(
            "`sandbox` names `{}`; write the path without `..`",
            climbing.display()
        ))
    }
}

impl TryFrom<Value> for SandboxSpec {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        if value.is_string() {
            let mode = serde_json::from_value(value.clone()).map_err(|_| {
                format!("there is no sandbox {value}; it is \"none\", \"working-dir\", or a table")
            })?;
            return Ok(Self::of(mode));
        }
        let table = crate::json::read_value(&value);
        let SandboxTable {
            mode,
            read,
            write,
            network,
        } = table.map_err(|error| format!("`sandbox` does not fit: {error}"))?;
        Ok(Self {
            mode,
            read,
            write,
            network,
        })
    }
}

impl From<SandboxSpec> for Value {
    fn from(spec: SandboxSpec) -> Self {
        let SandboxSpec {
            mode,
            read,
            write,
            network,
        } = spec;
        let table = SandboxTable {
            mode,
            read,
            write,
            network,
        };
        match table.read.is_empty() && table.write.is_empty() && !network {
            true => serde_json::to_value(mode).unwrap_or_default(),
            false => serde_json::to_value(table).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionSpec;

    fn read(text: &str) -> Result<SandboxSpec, String> {
        let spec = SessionSpec::from_toml(text).map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&spec.sandbox).unwrap();
        assert_eq!(
            serde_json::from_value::<SandboxSpec>(written).unwrap(),
            spec.sandbox
        );
        Ok(spec.sandbox)
    }

    #[test]
    fn it_is_a_word_or_a_table_and_on_unless_something_else_is_said() {
        let open = SandboxSpec::of(SandboxMode::None);
        assert_eq!(read("sandbox = \"none\""), Ok(open.clone()));
        assert_eq!(read("[sandbox]\nmode = \"none\""), Ok(open));
        let sandbox = SandboxSpec::of(SandboxMode::WorkingDir);
        assert_eq!(read(""), Ok(sandbox.clone()));
        assert_eq!(read("sandbox = \"working-dir\""), Ok(sandbox.clone()));
        assert_eq!(read("[sandbox]"), Ok(sandbox.clone()));
        let more = SandboxSpec {
            read: vec!["~/.ssh".into()],
            write: vec!["/srv/out".into()],
            network: true,
            ..sandbox
        };
        let text = "[sandbox]\nread = [\"~/.ssh\"]\nwrite = [\"/srv/out\"]\nnetwork = true";
        assert_eq!(read(text), Ok(more));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, expected) in [
            ("sandbox = \"some\"", "working-dir"),
            ("sandbox = { mod = \"none\" }", "unknown field `mod`"),
            (
                "sandbox = { mode = \"none\", network = true }",
                "everything is allowed",
            ),
            ("sandbox = { write = [\"../x\"] }", "without `..`"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file_or_to_the_home() {
        let spec = SandboxSpec {
            read: vec!["~/.ssh".into()],
            write: vec!["out".into(), "/srv".into()],
            ..SandboxSpec::of(SandboxMode::WorkingDir)
        };
        let placed = spec.below(Path::new("/project"), Some(Path::new("/home/me")));
        assert_eq!(placed.read, [PathBuf::from("/home/me/.ssh")]);
        assert_eq!(placed.write, [PathBuf::from("/project/out"), "/srv".into()]);
    }
}
