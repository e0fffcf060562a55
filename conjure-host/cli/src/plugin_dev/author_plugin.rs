//! What an author works on: a crate, which is built, or a program, which is there as it is.

use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::plugin_crate::{BuiltPlugin, PluginCrate};
use crate::plugin_test::description_in;

/// A plugin in its sources.
pub(super) enum AuthorPlugin {
    Crate(PluginCrate),
    Program(ProgramDir),
}

/// The directory of a program, with its description.
pub(super) struct ProgramDir {
    dir: PathBuf,
    description: PathBuf,
}

impl AuthorPlugin {
    /// The one in a directory.
    pub(super) async fn at(dir: &Path) -> Result<Self, CliError> {
        let Some(description) = description_in(dir) else {
            return Ok(Self::Crate(PluginCrate::at(dir).await?));
        };
        let real = |path: &Path| path.canonicalize().map_err(CliError::usage_from);
        Ok(Self::Program(ProgramDir {
            dir: real(dir)?,
            description: real(&description)?,
        }))
    }

    /// Its directory, without links.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Crate(plugin) => plugin.dir(),
            Self::Program(program) => &program.dir,
        }
    }

    /// Where its build writes: nothing there is a source.
    pub(super) fn written(&self) -> Vec<PathBuf> {
        match self {
            Self::Crate(plugin) => vec![plugin.target_dir().to_owned()],
            Self::Program(_) => Vec::new(),
        }
    }

    /// Builds it, where there is something to build. The inner error is what the compiler says.
    pub(super) async fn build(
        &self,
        release: bool,
    ) -> Result<Result<BuiltPlugin, String>, CliError> {
        match self {
            Self::Crate(plugin) => plugin.build(release).await,
            Self::Program(program) => Ok(Ok(BuiltPlugin {
                library: program.description.clone(),
                warnings: String::new(),
            })),
        }
    }
}
