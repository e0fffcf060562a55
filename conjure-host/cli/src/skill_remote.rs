//! `conjure skill upload` and `conjure skill remote`: skills that Anthropic keeps.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use conjure_config::fs;
use conjure_core::skill_folder::{Severity, validate_upload};
use conjure_providers::{HttpProvider, ProviderError, RemoteSkill, SkillUpload};
use conjure_runtime::artifacts::safe_name;
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table, clean};
use super::plugin_args::check_exists;
use super::remote::{self, RemoteDeleteArgs, RemoteStorageArgs};
use super::skill;

/// What is uploaded.
#[derive(clap::Args)]
pub(crate) struct SkillUploadArgs {
    /// The folder or package
    path: PathBuf,
    /// What people call it [default: its name]
    #[arg(long, conflicts_with = "version_of")]
    title: Option<String>,
    /// Make it a new version of this skill
    #[arg(long, value_name = "ID")]
    version_of: Option<String>,
    #[command(flatten)]
    storage: RemoteStorageArgs,
}

#[derive(Subcommand)]
pub(crate) enum SkillRemoteVerb {
    /// List the skills, or the versions of one
    List {
        /// The skill whose versions to list
        id: Option<String>,
        /// Only skills of this source
        #[arg(long, value_parser = ["custom", "anthropic"])]
        source: Option<String>,
        #[command(flatten)]
        storage: RemoteStorageArgs,
    },
    /// Download a skill as a package; nothing is replaced
    Download {
        /// The skill
        id: String,
        /// The version [default: the latest]
        #[arg(value_name = "VERSION")]
        of: Option<String>,
        /// The directory that it is saved in
        #[arg(long, value_name = "DIR", default_value = ".")]
        to: PathBuf,
        #[command(flatten)]
        storage: RemoteStorageArgs,
    },
    /// Delete skills with all their versions
    ///
    /// Sessions that name them are refused from then on.
    Delete {
        #[command(flatten)]
        skills: RemoteDeleteArgs,
        #[command(flatten)]
        storage: RemoteStorageArgs,
    },
}

/// Uploads a skill, after it was found right.
pub(crate) fn upload(global: &Global, args: &SkillUploadArgs) -> Result<Exit, CliError> {
    let upload = pack_upload(&args.path, args.title.clone())?;
    let provider = args.storage.provider()?;
    let uploading = provider.upload_skill(&upload, args.version_of.as_deref());
    let (id, version) = block_on(uploading)?;
    if global.json {
        let files = upload.files.len();
        output::json(&json!({
            "id": id, "version": version, "name": upload.name, "files": files
        }));
        return Ok(Exit::Success);
    }
    let version = version.map_or(String::new(), |version| format!(", version {version}"));
    output::line(format_args!(
        "Uploaded `{}` as {}{}.",
        upload.name,
        clean(&id),
        clean(&version)
    ));
    Ok(Exit::Success)
}

/// Looks at what is kept, or deletes it.
pub(crate) fn remote(global: &Global, verb: &SkillRemoteVerb) -> Result<Exit, CliError> {
    match verb {
        SkillRemoteVerb::List {
            id: Some(id),
            storage: place,
            ..
        } => versions(global, &place.provider()?, id),
        SkillRemoteVerb::List {
            id: None,
            source,
            storage: place,
        } => list(global, &place.provider()?, source.as_deref()),
        SkillRemoteVerb::Download {
            id,
            of,
            to,
            storage: place,
        } => download(global, &place.provider()?, id, of.as_deref(), to),
        SkillRemoteVerb::Delete {
            skills,
            storage: place,
        } => {
            let provider = place.provider()?;
            let deleting =
                remote::delete_each(global, skills, async |id| provider.delete_skill(id).await);
            runtime()?.block_on(deleting)
        }
    }
}

/// The files of a skill that breaks no rule.
fn pack_upload(path: &Path, title: Option<String>) -> Result<SkillUpload, CliError> {
    check_exists(path)?;
    let (loaded, _kept) =
        skill::load(path).map_err(|error| CliError::from_source(Exit::No, error))?;
    let broken: Vec<String> = validate_upload(&loaded.folder)
        .into_iter()
        .filter(|found| found.severity == Severity::Error)
        .map(|found| found.message)
        .collect();
    if !broken.is_empty() {
        let message = format!(
            "the skill at `{}` cannot be uploaded: {}",
            display_path(path),
            broken.join(" ")
        );
        return Err(
            CliError::new(Exit::No, message).hint("`conjure skill check --upload` says more")
        );
    }
    let mut files = Vec::with_capacity(loaded.paths.len());
    for name in &loaded.paths {
        let bytes = fs::read(loaded.dir.join(name));
        let bytes = bytes.map_err(CliError::host_from)?;
        files.push((name.clone(), bytes));
    }
    let name = loaded.folder.name.as_str().to_owned();
    Ok(SkillUpload {
        title: Some(title.unwrap_or_else(|| name.clone())),
        name,
        files,
    })
}

fn list(global: &Global, provider: &HttpProvider, source: Option<&str>) -> Result<Exit, CliError> {
    let skills: Vec<RemoteSkill> = block_on(provider.remote_skills(source))?;
    if global.json {
        output::json(&json!({ "skills": skills }));
    } else if skills.is_empty() {
        output::line("No skills.");
    } else {
        let mut rows = Table::new(["ID", "TITLE", "SOURCE", "LATEST VERSION"]);
        for skill in skills {
            rows.row([
                skill.id,
                skill.title.unwrap_or_default(),
                skill.source,
                skill.latest_version.unwrap_or_default(),
            ]);
        }
        rows.print();
    }
    Ok(Exit::Success)
}

fn versions(global: &Global, provider: &HttpProvider, id: &str) -> Result<Exit, CliError> {
    let versions = block_on(provider.remote_versions(id))?;
    if global.json {
        output::json(&json!({ "id": id, "versions": versions }));
    } else if versions.is_empty() {
        output::line("No versions.");
    } else {
        let mut rows = Table::new(["VERSION", "NAME", "CREATED"]);
        for version in versions {
            rows.row([
                version.version,
                version.name.unwrap_or_default(),
                version.created_at.unwrap_or_default(),
            ]);
        }
        rows.print();
    }
    Ok(Exit::Success)
}

fn download(
    global: &Global,
    provider: &HttpProvider,
    id: &str,
    version: Option<&str>,
    dir: &Path,
) -> Result<Exit, CliError> {
    let package = block_on(provider.download_skill(id, version))?;
    let name = package.version.name.as_deref().unwrap_or(id);
    let to = dir.join(format!("{}.skill", safe_name(name)));
    let saved = fs::create_dir_all(dir).and_then(|()| fs::write_new(&to, &package.bytes));
    saved.map_err(|error| CliError::from_source(Exit::No, error))?;
    let version = &package.version.version;
    if global.json {
        output::json(&json!({ "id": id, "version": version, "saved": to }));
    } else {
        output::line(format_args!(
            "Saved {} of {} as {}. `conjure skill check` says whether it is right.",
            clean(version),
            clean(id),
            display_path(&to)
        ));
    }
    Ok(Exit::Success)
}

/// Waits for the provider.
fn block_on<T>(asking: impl Future<Output = Result<T, ProviderError>>) -> Result<T, CliError> {
    runtime()?.block_on(asking).map_err(CliError::from)
}

/// The runtime of a verb that waits for one thing.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::host_from(error).context("no runtime"))
}
