//! What a provider keeps, skills and files: where that is, and deleting some of it.

use std::path::PathBuf;

use conjure_config::SessionSpec;
use conjure_providers::{HttpProvider, ProviderError};
use conjure_runtime::session::SessionError;
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean};
use super::person::confirm;

/// The provider that keeps the skills or files.
#[derive(clap::Args)]
pub(crate) struct RemoteStorageArgs {
    /// The provider, as a session names it
    #[arg(long, value_name = "NAME", default_value = "anthropic")]
    provider: String,
    /// Where the provider is, when not at its usual place
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A session file (TOML) that describes providers
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl RemoteStorageArgs {
    /// The provider there.
    pub(crate) fn provider(&self) -> Result<HttpProvider, CliError> {
        let mut spec = match &self.config {
            Some(path) => SessionSpec::read(path)?,
            None => SessionSpec::default(),
        };
        if self.base_url.is_some() {
            spec.provider = Some(self.provider.clone());
            spec.base_url.clone_from(&self.base_url);
        }
        Ok(HttpProvider::of(&self.provider, &spec).map_err(SessionError::from)?)
    }
}

/// The skills or files to delete.
#[derive(clap::Args)]
pub(crate) struct RemoteDeleteArgs {
    /// The ids of what to delete
    #[arg(required = true)]
    id: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Deletes each of these: what could not be is told, and the rest is deleted all the same.
pub(crate) async fn delete_each(
    global: &Global,
    RemoteDeleteArgs { id: ids, yes }: &RemoteDeleteArgs,
    delete: impl AsyncFn(&str) -> Result<(), ProviderError>,
) -> Result<Exit, CliError> {
    let what = format!(
        "This deletes for everybody in the workspace, for good: {}.",
        clean(&ids.join(", "))
    );
    if !confirm(*yes, what, "Delete them?").await? {
        return Ok(Exit::Interrupted);
    }
    let mut deleted = Vec::new();
    let mut exit = Exit::Success;
    for id in ids {
        match delete(id).await {
            Ok(()) => {
                if !global.json {
                    output::line(format_args!("Deleted {}.", clean(id)));
                }
                deleted.push(id);
            }
            Err(error) => {
                let error = CliError::from(error);
                output::error_aside(&error);
                exit = error.exit;
            }
        }
    }
    if global.json {
        output::json(&json!({ "deleted": deleted }));
    }
    Ok(exit)
}
