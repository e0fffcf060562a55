//! Where what runs in a sandbox writes, and which secrets of the user it reads all the same.

use std::path::{Path, PathBuf};

use conjure_process_tree::outermost;
use conjure_skill_sdk::protocol::Sandbox;
use conjure_skill_sdk::{Error, Result};

use crate::home_secrets::home_secrets;

/// What is allowed in a sandbox, as its paths led when it was made: what a command puts in the place of one of
/// them afterwards, such as a link, gets nothing by that. So it is made once, and kept for whatever is
/// started later.
#[derive(Debug, Clone)]
pub struct SandboxRules {
    /// The directories of whoever runs there and those that are named, without those below another one of them,
    /// which are changed with that.
    write: Vec<PathBuf>,
    /// What is named: no secret that is kept from commands.
    granted: Vec<PathBuf>,
    network: bool,
}

impl SandboxRules {
    /// Rules of a sandbox with these directories, which are changed without being named. They are
    /// without links, as they led when the session began, and are not looked at here.
    ///
    /// # Errors
    /// Which path it cannot be.
    pub fn of<'a>(sandbox: &Sandbox, dirs: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        for path in sandbox.write.iter().chain(&sandbox.read) {
            if !path.starts_with('/') {
                return Err(Error::invalid(format!(
                    "the sandbox names `{path}`; it must be an absolute path"
                )));
            }
        }
        let named = sandbox.write.iter().map(|path| {
            Path::new(path).canonicalize().map_err(|error| {
                Error::invalid(format!(
                    "the sandbox lets commands write to `{path}`, which cannot be looked at: \
                     {error}; make it, or leave it out"
                ))
            })
        });
        let mut granted = named.collect::<Result<Vec<_>>>()?;
        let dirs = dirs.into_iter().map(Path::to_owned);
        let write = outermost(granted.iter().cloned().chain(dirs).collect());
        for path in sandbox.write.iter().chain(&sandbox.read) {
            if let Some(leads) = linked_target(Path::new(path), &write) {
                return Err(Error::invalid(format!(
                    "the sandbox names `{path}`, and a link there leads to `{}`; a command can put \
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

    /// The directories that commands may write in.
    #[must_use]
    pub fn write(&self) -> &[PathBuf] {
        &self.write
    }

    /// Where a path leads by a link that lies where commands may write.
    #[must_use]
    pub fn link_target(&self, path: &Path) -> Option<PathBuf> {
        linked_target(path, &self.write)
    }

    /// Whether the sandbox has a network.
    #[must_use]
    pub fn network(&self) -> bool {
        self.network
    }

    /// The secrets of this user that it does not see.
    #[must_use]
    pub fn hidden(&self) -> Vec<PathBuf> {
        home_secrets(std::env::home_dir().as_deref(), &self.granted)
    }
}

/// Without links, as far as it is there.
#[must_use]
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Where a path leads by a link that lies in one of these directories.
fn linked_target(path: &Path, dirs: &[PathBuf]) -> Option<PathBuf> {
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
    fn a_link_in_the_place_of_a_directory_is_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (work, keys) = (root.join("work"), root.join("keys"));
        std::fs::create_dir(&keys).unwrap();
        std::os::unix::fs::symlink(&keys, &work).unwrap();
        let rules = SandboxRules::of(&Sandbox::default(), [&*work]).unwrap();
        assert_eq!(rules.write, [work]);
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
