//! The sandbox of a server that is a program, where its configuration wants one: the one that a session's
//! commands have.

use std::path::{Path, PathBuf};

use conjure_exec_agent::sandbox_rules::{SandboxRules, real};
use conjure_skill_sdk::protocol::Sandbox;
use conjure_skill_sdk::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// The setting `sandbox` of a server: `"none"`, `"working-dir"`, or a table of what is allowed besides.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "`sandbox` is \"none\", \"working-dir\", or a table of `mode`, `read`, `write` and `network`"
)]
pub(crate) enum SandboxSetting {
    Mode(ServerSandboxMode),
    Table(ServerSandboxTable),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerSandboxMode {
    /// The server does what the user may.
    None,
    /// The server changes what is below its directory and the session's, and has no network.
    WorkingDir,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSandboxTable {
    #[serde(default = "working_dir")]
    mode: ServerSandboxMode,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    network: bool,
}

/// A table says what is allowed more, which has a meaning in a sandbox only.
fn working_dir() -> ServerSandboxMode {
    ServerSandboxMode::WorkingDir
}

impl Default for SandboxSetting {
    fn default() -> Self {
        Self::Mode(ServerSandboxMode::None)
    }
}

impl SandboxSetting {
    /// Whether the server is in a sandbox.
    pub(crate) fn is_on(&self) -> bool {
        let (Self::Mode(mode) | Self::Table(ServerSandboxTable { mode, .. })) = self;
        *mode == ServerSandboxMode::WorkingDir
    }

    /// Whether it allows something besides and is no sandbox.
    pub(crate) fn contradicts_itself(&self) -> bool {
        matches!(self, Self::Table(table) if !self.is_on()
            && (table.network || !table.read.is_empty() || !table.write.is_empty()))
    }

    /// What is allowed to a server that works in these directories, which are without links, if it is in a
    /// sandbox.
    ///
    /// # Errors
    /// Which path cannot be allowed.
    fn rules<'a>(&self, dirs: impl IntoIterator<Item = &'a Path>) -> Result<Option<SandboxRules>> {
        if !self.is_on() {
            return Ok(None);
        }
        let sandbox = match self {
            Self::Mode(_) => Sandbox::default(),
            Self::Table(table) => Sandbox {
                read: absolute(&table.read),
                write: absolute(&table.write),
                network: table.network,
            },
        };
        SandboxRules::of(&sandbox, dirs).map(Some)
    }

    /// JSON Schema of the setting.
    pub(crate) fn schema() -> Value {
        let mode = json!({ "enum": ["none", "working-dir"] });
        let paths = json!({ "type": "array", "items": { "type": "string" } });
        let table = json!({
            "type": "object",
            "properties": {
                "mode": mode,
                "read": paths,
                "write": paths,
                "network": { "type": "boolean" }
            },
            "additionalProperties": false
        });
        json!({ "anyOf": [mode, table] })
    }
}

/// Where a server that is a program works and what it may change, as its paths led when it was looked at
/// first. A server that is started again gets nothing by a link that was put there since.
#[derive(Debug, Clone)]
pub(crate) struct ServerWorkspace {
    /// The `cwd` of its configuration and the session's directory, without links.
    dirs: Vec<PathBuf>,
    /// What alone it changes, where that is limited.
    pub(crate) sandbox: Option<SandboxRules>,
}

impl ServerWorkspace {
    /// The place of a server with this setting and this `cwd`, for a session that works in a directory
    /// without links.
    ///
    /// # Errors
    /// Which path cannot be allowed.
    pub(crate) fn of(
        setting: &SandboxSetting,
        cwd: Option<&Path>,
        working_dir: Option<&Path>,
    ) -> Result<Self> {
        let dirs = cwd.map(real).into_iter();
        let dirs: Vec<PathBuf> = dirs.chain(working_dir.map(Path::to_owned)).collect();
        let sandbox = setting.rules(dirs.iter().map(PathBuf::as_path))?;
        if let (Some(rules), Some(cwd)) = (&sandbox, cwd)
            && let Some(leads) = rules.link_target(cwd)
        {
            return Err(Error::invalid(format!(
                "its `cwd` is `{}`, and a link there leads to `{}`; a program in a sandbox can put such a \
                 link where it may write, so name where it leads",
                cwd.display(),
                leads.display()
            )));
        }
        Ok(Self { dirs, sandbox })
    }

    /// Directories of the server, without those where a link is by now.
    pub(crate) fn unlinked_dirs(&self) -> Vec<&Path> {
        let dirs = self.dirs.iter().map(PathBuf::as_path);
        dirs.filter(|dir| real(dir) == *dir).collect()
    }
}

/// The directory that a server starts in: its `cwd`, or the session's, which the host names without links.
///
/// # Errors
/// Where a link is on the way to the session's by now.
pub(crate) fn start_dir<'a>(
    cwd: Option<&'a Path>,
    working_dir: Option<&'a Path>,
) -> Result<Option<&'a Path>> {
    if let (None, Some(dir)) = (cwd, working_dir)
        && real(dir) != dir
    {
        return Err(Error::new(format!(
            "the session's directory `{}`, where it is to start, is not the one any more that it was when \
             the session began: a link is there, or on the way to it; put the directory back, or begin \
             another session",
            dir.display()
        )));
    }
    Ok(cwd.or(working_dir))
}

/// With the home directory in the place of `~`.
fn absolute(paths: &[String]) -> Vec<String> {
    let home = std::env::home_dir();
    let absolute = |path: &String| match (Path::new(path).strip_prefix("~"), &home) {
        (Ok(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
        _ => path.clone(),
    };
    paths.iter().map(absolute).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_place_stays_what_it_was_and_no_link_in_it_leads_out() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (work, keys) = (root.join("work"), root.join("keys"));
        for dir in [&work.join("job"), &keys] {
            std::fs::create_dir_all(dir).unwrap();
        }
        symlink(work.join("job"), root.join("link")).unwrap();
        let setting = SandboxSetting::Mode(ServerSandboxMode::WorkingDir);
        let place = |cwd: &Path, working_dir: &Path| {
            ServerWorkspace::of(&setting, Some(cwd), Some(working_dir))
        };
        let (job, link) = (work.join("job"), root.join("link"));
        // A link of the user's own is followed, once.
        let by_link = place(&link, &root.join("keys")).unwrap();
        let writes = by_link.sandbox.as_ref().unwrap().write().to_vec();
        assert_eq!(writes, [keys.clone(), job.clone()]);
        assert_eq!(by_link.unlinked_dirs(), [&*job, &*keys]);
        std::fs::remove_dir(&job).unwrap();
        symlink(&keys, &job).unwrap();
        assert_eq!(by_link.unlinked_dirs(), [&*keys]);
        // The session's directory is not looked at again, and one that is configured is refused.
        let of_session = ServerWorkspace::of(&setting, None, Some(&job)).unwrap();
        assert_eq!(
            of_session.sandbox.unwrap().write(),
            std::slice::from_ref(&job)
        );
        let refused = place(&job, &work).unwrap_err().to_string();
        assert!(refused.contains("a link there leads to"), "{refused}");
        // Nothing starts there.
        let said = start_dir(None, Some(&job)).unwrap_err().to_string();
        assert!(said.contains("a link is there"), "{said}");
        assert_eq!(start_dir(Some(&work), Some(&job)).unwrap(), Some(&*work));
        assert_eq!(start_dir(None, Some(&work)).unwrap(), Some(&*work));
    }
}
