//! What an author works on: a crate, which is built, or a program, which is there as it is.

use std::path::{Path, PathBuf};

use crate::args::{Global, display_path};
use crate::error::CliError;
use crate::plugin_crate::{BuiltPlugin, PluginCrate};
use crate::plugin_test::description_at;

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
    /// The one in a directory, or with this description.
    pub(super) async fn at(global: &Global, place: &Path) -> Result<Self, CliError> {
        let Some(description) = description_at(place)? else {
            let plugin = PluginCrate::at(place, &global.data_dir()).await?;
            return Ok(Self::Crate(plugin));
        };
        let description = description.canonicalize().map_err(|error| {
            let context = format!("`{}` cannot be used", display_path(&description));
            CliError::usage_from(error).context(context)
        })?;
        Ok(Self::Program(ProgramDir {
            dir: description.parent().unwrap_or(&description).to_owned(),
            description,
        }))
    }

    /// Directory of the plugin, without links.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Crate(plugin) => plugin.dir(),
            Self::Program(program) => &program.dir,
        }
    }

    /// The description of a program.
    pub(super) fn description(&self) -> Option<&Path> {
        match self {
            Self::Crate(_) => None,
            Self::Program(program) => Some(&program.description),
        }
    }

    /// Where its build writes: nothing there is a source.
    pub(super) fn output_dirs(&self) -> Vec<PathBuf> {
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
