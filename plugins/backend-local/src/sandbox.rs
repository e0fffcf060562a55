//! The sandbox of a session's commands: where they write, what they do not see, their own directory for
//! temporary files.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use conjure_exec_agent::home_secrets::home_secrets;
use conjure_exec_agent::message::ShellSandbox;
use conjure_skill_sdk::protocol::Sandbox;
use conjure_skill_sdk::{Error, Result};

/// The directory for temporary files, in the exchange directory.
const TEMPORARY: &str = "tmp";

/// What a session allows its commands, as its paths led when it began: what a command puts in the place of
/// one of them afterwards, such as a link, gets nothing by that.
#[derive(Debug)]
pub(crate) struct SandboxRules {
    /// The directories of the session and those that are named, without those below another one of them,
    /// which are changed with that.
    write: Vec<PathBuf>,
    /// What is named: no secret that is kept from commands.
    granted: Vec<PathBuf>,
    network: bool,
}

impl SandboxRules {
    /// Of a session with these directories.
    ///
    /// # Errors
    /// Which path it cannot be.
    pub(crate) fn of<'a>(
        sandbox: &Sandbox,
        dirs: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Self> {
        for path in sandbox.write.iter().chain(&sandbox.read) {
            if !path.starts_with('/') {
                return Err(Error::invalid(format!(
                    "the session's sandbox names `{path}`; it must be an absolute path"
                )));
            }
        }
        let named = sandbox.write.iter().map(|path| {
            Path::new(path).canonicalize().map_err(|error| {
                Error::invalid(format!(
                    "the session's sandbox lets commands write to `{path}`, which cannot be looked at: \
                     {error}; make it, or leave it out"
                ))
            })
        });
        let mut granted = named.collect::<Result<Vec<_>>>()?;
        let dirs = dirs.into_iter().map(real);
        let write = outermost(granted.iter().cloned().chain(dirs).collect());
        for path in sandbox.write.iter().chain(&sandbox.read) {
            if let Some(leads) = led_out(Path::new(path), &write) {
                return Err(Error::invalid(format!(
                    "the session's sandbox names `{path}`, and a link there leads to `{}`; a command can put \
                     such a link where it may write, so name where it leads, or leave it out",
                    leads.display()
                )));
            }
        }
        granted.extend(sandbox.read.iter().map(|path| real(Path::new(path))));
        Ok(Self {
            write,
            granted,
            network: sandbox.network,
        })
    }
}

/// Without links, as far as it is there.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Where a path leads by a link that lies in one of these directories.
fn led_out(path: &Path, dirs: &[PathBuf]) -> Option<PathBuf> {
    let leads = path.canonicalize().ok()?;
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    let mut above = above.into_iter().rev();
    let plain = above.find_map(|above| {
        let there = real(above);
        let is_in = dirs.iter().any(|dir| there.starts_with(dir));
        let rest = path.strip_prefix(above).ok().filter(|_| is_in)?;
        Some(there.join(rest))
    });
    plain.filter(|plain| *plain != leads).map(|_| leads)
}

/// Those that are below none of the others.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !outermost.iter().any(|outer| path.starts_with(outer)) {
            outermost.push(path);
        }
    }
    outermost
}

/// The sandbox of a command.
#[derive(Debug)]
pub(crate) struct SessionSandbox {
    write: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    temporary_dir: Option<PathBuf>,
    network: bool,
}

impl SessionSandbox {
    /// Of a session with these rules.
    pub(crate) fn new(rules: &SandboxRules, exchange_dir: Option<&Path>) -> Self {
        Self {
            hidden: home_secrets(std::env::home_dir().as_deref(), &rules.granted),
            temporary_dir: exchange_dir.and_then(temporary),
            write: rules.write.clone(),
            network: rules.network,
        }
    }

    /// Where its temporary files go, if there is such a place.
    pub(crate) fn temporary_dir(&self) -> Option<&Path> {
        self.temporary_dir.as_deref()
    }

    /// As the agent is told.
    pub(crate) fn into_shell(self) -> ShellSandbox {
        let texts = |paths: Vec<PathBuf>| {
            let texts = paths.iter().map(|path| path.to_string_lossy().into_owned());
            texts.collect()
        };
        ShellSandbox {
            write: texts(self.write),
            hidden: texts(self.hidden),
            network: self.network,
        }
    }
}

/// The session's own, for this user only.
fn temporary(exchange_dir: &Path) -> Option<PathBuf> {
    let dir = exchange_dir.join(TEMPORARY);
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&dir);
    made.ok().map(|()| dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_directory_that_is_changed_is_no_place_of_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let [work, exchange, out] = ["work", "exchange", "out"].map(|name| root.join(name));
        for dir in [&work.join("build"), &exchange, &out.join("inner")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let sandbox = Sandbox {
            write: [work.join("build"), out.clone(), out.join("inner")]
                .map(text)
                .into(),
            read: vec![text(work.join("keys"))],
            network: false,
        };
        let rules = SandboxRules::of(&sandbox, [&*work, &*exchange]).unwrap();
        assert_eq!(rules.write, [exchange, out.clone(), work.clone()]);
        let inner = out.join("inner");
        let named = [work.join("build"), out, inner, work.join("keys")];
        assert_eq!(rules.granted, named);
    }

    #[test]
    fn a_link_where_commands_write_leads_a_session_nowhere_else() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (work, out) = (root.join("work"), root.join("out"));
        for dir in [&work, &out.join("inner")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        for (link, to) in [
            (work.join("link"), &out),
            (root.join("short"), &work),
            (root.join("far"), &out),
        ] {
            std::os::unix::fs::symlink(to, link).unwrap();
        }
        for (path, is_refused) in [
            ("work/link", true),
            ("work/link/inner", true),
            ("short/link", true),
            ("short", false),
            ("far", false),
            ("far/inner", false),
        ] {
            let named = vec![root.join(path).to_str().unwrap().to_owned()];
            let [write, read] = [(named.clone(), Vec::new()), (Vec::new(), named)];
            for (write, read) in [write, read] {
                let sandbox = Sandbox {
                    write,
                    read,
                    network: false,
                };
                let refused = SandboxRules::of(&sandbox, [&*work]).err();
                let said = refused.map(|error| error.to_string());
                assert_eq!(said.is_some(), is_refused, "{path}: {said:?}");
            }
        }
    }
}
