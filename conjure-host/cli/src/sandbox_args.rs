//! What commands on this machine may do, as options.

use std::path::{Component, Path, PathBuf};

use conjure_config::{SandboxMode, SandboxSpec};

use super::args::current_dir;
use super::error::CliError;

/// The options of the sandbox, which go before the session file's.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct SandboxArgs {
    /// What commands on this machine may do: `working-dir` for changing the working directory, without a
    /// network, or `none` for all that you may [default: the session file's, else `working-dir`]
    #[arg(long, value_name = "MODE", value_parser = mode, help_heading = "Permissions")]
    sandbox: Option<SandboxMode>,
    /// Let commands in the sandbox use the network
    #[arg(long, help_heading = "Permissions")]
    allow_network: bool,
    /// Let commands in the sandbox change this file or directory too
    #[arg(long, value_name = "PATH", help_heading = "Permissions")]
    allow_write: Vec<PathBuf>,
    /// Let commands in the sandbox read these secrets, such as `~/.ssh`
    #[arg(long, value_name = "PATH", help_heading = "Permissions")]
    allow_read: Vec<PathBuf>,
}

fn mode(name: &str) -> Result<SandboxMode, String> {
    match name {
        "none" => Ok(SandboxMode::None),
        "working-dir" => Ok(SandboxMode::WorkingDir),
        _ => Err("it is `working-dir` or `none`".to_owned()),
    }
}

impl SandboxArgs {
    /// The options, and whether each is given.
    pub(crate) fn given_options(&self) -> [(&'static str, bool); 4] {
        [
            ("--sandbox", self.sandbox.is_some()),
            ("--allow-network", self.allow_network),
            ("--allow-write", !self.allow_write.is_empty()),
            ("--allow-read", !self.allow_read.is_empty()),
        ]
    }

    /// Puts the options over what a session file says. Without a sandbox everything is allowed already.
    pub(crate) fn apply(&self, spec: &mut SandboxSpec) -> Result<(), CliError> {
        if let Some(mode) = self.sandbox {
            *spec = SandboxSpec::of(mode);
        }
        if !spec.is_on() {
            return Ok(());
        }
        let here = current_dir()?;
        let below = |path: &PathBuf| resolve_path(&here, path);
        spec.network |= self.allow_network;
        spec.write.extend(self.allow_write.iter().map(below));
        spec.read.extend(self.allow_read.iter().map(below));
        Ok(())
    }
}

/// A path as the shell gave it, without `..` where it leads somewhere; what stands behind a `~` that the shell
/// left alone is in the home directory.
fn resolve_path(here: &Path, path: &Path) -> PathBuf {
    let path = match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => here.join(path),
    };
    let climbs = path.components().any(|part| part == Component::ParentDir);
    match climbs.then(|| path.canonicalize()) {
        Some(Ok(plain)) => plain,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_before_a_file_and_mean_nothing_without_a_sandbox() {
        let read = |text: &str| {
            conjure_config::SessionSpec::from_toml(text)
                .unwrap()
                .sandbox
        };
        let args = |mode| SandboxArgs {
            sandbox: mode,
            allow_network: true,
            allow_write: vec!["/srv".into()],
            ..SandboxArgs::default()
        };
        let put = |args: SandboxArgs, file: &str| {
            let mut spec = read(file);
            args.apply(&mut spec).unwrap();
            spec
        };
        let more = read("sandbox = { write = [\"/srv\"], network = true }");
        assert_eq!(put(args(Some(SandboxMode::WorkingDir)), ""), more);
        let open = read("sandbox = \"none\"");
        assert_eq!(put(args(None), "sandbox = \"none\""), open);
        assert_eq!(put(args(Some(SandboxMode::None)), "[sandbox]"), open);
        let only = SandboxArgs {
            sandbox: Some(SandboxMode::WorkingDir),
            ..SandboxArgs::default()
        };
        let shut = read("sandbox = \"working-dir\"");
        assert_eq!(put(only, "sandbox = { network = true }"), shut);
    }

    #[test]
    fn a_path_above_is_where_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("work")).unwrap();
        let here = root.join("work");
        assert_eq!(resolve_path(&here, Path::new("..")), root);
        assert_eq!(resolve_path(&here, Path::new("out")), here.join("out"));
        let none = Path::new("../none");
        assert_eq!(resolve_path(&here, none), here.join(none));
    }
}
