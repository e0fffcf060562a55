//! `conjure files remote`: files that Anthropic keeps.

use clap::Subcommand;
use conjure_providers::RemoteFile;
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table, clean, size};
use super::remote::{RemoteDeleteArgs, RemoteStorageArgs, delete_each};

#[derive(Subcommand)]
pub(crate) enum FilesRemoteVerb {
    /// List the files: what was uploaded for hosted skills, and what those made
    List {
        #[command(flatten)]
        storage: RemoteStorageArgs,
    },
    /// Delete files
    ///
    /// The files are the workspace's, so they are gone for everybody in it. A thread that has one
    /// fetches it no more.
    Delete {
        #[command(flatten)]
        files: RemoteDeleteArgs,
        #[command(flatten)]
        storage: RemoteStorageArgs,
    },
}

/// Looks at what is kept, or deletes it.
pub(crate) async fn run(global: &Global, verb: &FilesRemoteVerb) -> Result<Exit, CliError> {
    match verb {
        FilesRemoteVerb::List { storage: place } => {
            let files = place.provider()?.remote_files().await;
            list(global, &files?);
            Ok(Exit::Success)
        }
        FilesRemoteVerb::Delete {
            files,
            storage: place,
        } => {
            let provider = place.provider()?;
            let deleting = delete_each(global, files, async |id| provider.delete_file(id).await);
            deleting.await
        }
    }
}

fn list(global: &Global, files: &[RemoteFile]) {
    if global.json {
        output::json(&json!({ "files": files }));
        return;
    }
    if files.is_empty() {
        output::line("No files.");
        return;
    }
    let mut table = Table::new(["ID", "NAME", "SIZE", "MADE BY", "CREATED"]);
    for file in files {
        table.row([
            clean(&file.id).into_owned(),
            clean(&file.name).into_owned(),
            file.size.map_or_else(|| "-".to_owned(), size),
            match file.downloadable {
                true => "a skill",
                false => "an upload",
            }
            .to_owned(),
            clean(file.created_at.as_deref().unwrap_or("-")).into_owned(),
        ]);
    }
    table.print();
}
