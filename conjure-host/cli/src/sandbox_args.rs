//! What commands on this machine may do, as options.

use std::path::{Path, PathBuf};

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
    /// Puts the options over what a session file says.
    pub(crate) fn put(self, spec: &mut SandboxSpec) -> Result<(), CliError> {
        match self.sandbox {
            Some(SandboxMode::None) => *spec = SandboxSpec::of(SandboxMode::None),
            Some(mode) => spec.mode = mode,
            None => {}
        }
        spec.network |= self.allow_network;
        let here = current_dir()?;
        spec.write
            .extend(self.allow_write.iter().map(|path| below(&here, path)));
        spec.read
            .extend(self.allow_read.iter().map(|path| below(&here, path)));
        Ok(())
    }
}

/// A path as the shell gave it: what stands behind a `~` that the shell left alone is in the home directory.
fn below(here: &Path, path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => here.join(path),
    }
}
