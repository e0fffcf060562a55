//! `conjure files`: what a thread's calls made, and copies of it.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use conjure_config::fs;
use conjure_core::foreign_text::escape_line;
use conjure_runtime::artifacts::Artifact;
use serde_json::json;

use super::args::{Global, SessionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::files_remote;
use super::output::{self, Table, clean, line, print_note, size};
use super::thread::{id, store_host};

/// Lists the files of a thread, or saves copies of them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure files list 0193…
  conjure files save 0193… report.xlsx --to ~/reports
  conjure files save 0193… --config session.toml      # all; the backends of the file are asked")]
pub(crate) struct FilesArgs {
    #[command(subcommand)]
    verb: FilesVerb,
}

#[derive(Subcommand)]
enum FilesVerb {
    /// List them: handle, name, size, which backend made it, and where it is
    List {
        /// The thread
        #[arg(value_name = "ID")]
        thread: String,
    },
    /// Save copies; nothing is replaced unless asked
    ///
    /// What is on this machine is copied. What is still with its backend, such as a hosted skill or
    /// an MCP server, is fetched first: that needs the session file that the thread was held with.
    Save(Box<Save>),
    /// The files that Anthropic keeps for hosted skills
    #[command(subcommand)]
    Remote(files_remote::FilesRemoteVerb),
}

#[derive(clap::Args)]
struct Save {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// Handles, such as `file-3`, or names; of a name the newest [default: all]
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// The directory that they are saved in
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Replace files of the same name; without this a copy gets another name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) async fn run(global: &Global, args: FilesArgs) -> Result<Exit, CliError> {
    match args.verb {
        FilesVerb::List { thread } => {
            let files = store_host(global).await?.files(&id(&thread)?).await?;
            list(global, &files);
            Ok(Exit::Success)
        }
        FilesVerb::Save(args) => save_all(global, *args).await,
        FilesVerb::Remote(verb) => files_remote::run(global, &verb).await,
    }
}

fn list(global: &Global, files: &[Artifact]) {
    if global.json {
        output::json(&files);
        return;
    }
    if files.is_empty() {
        print_note("The calls of this thread made no files.");
        return;
    }
    let mut table = Table::new(["FILE", "NAME", "SIZE", "FROM", "PLACE"]);
    for file in files {
        table.row([
            clean(&file.id).into_owned(),
            clean(&file.name).into_owned(),
            file.size.map_or_else(|| "-".to_owned(), size),
            clean(&file.source).into_owned(),
            match (&file.path, &file.remote) {
                (Some(path), _) => escape_line(&path.display().to_string()).into_owned(),
                (None, Some(_)) => format!("with {}", clean(file.fetch_backend())),
                (None, None) => "gone".to_owned(),
            },
        ]);
    }
    table.print();
}

/// Options of a session that say nothing about where its files are.
const TURN_OPTIONS: [&str; 5] = [
    "--persona",
    "--max-iterations",
    "--allow",
    "--ask",
    "--deny",
];

async fn save_all(global: &Global, args: Save) -> Result<Exit, CliError> {
    let is_unused = |option: &str| TURN_OPTIONS.contains(&option);
    let why = "files are fetched without a turn";
    args.session.check_unused(is_unused, why)?;
    let thread = id(&args.thread)?;
    let host = args
        .session
        .plugins
        .named_host(global)?
        .log(global.store().await?)
        .build()
        .await?;
    let known = host.files(&thread).await?;
    let wanted = select_files(&known, &args.files)?;
    let elsewhere: Vec<String> = wanted
        .iter()
        .filter(|file| file.path.is_none())
        .map(|file| file.id.clone())
        .collect();
    let mut fetched = Default::default();
    if !elsewhere.is_empty() {
        let spec = args.session.spec(&host, global).await?;
        fetched = host.fetch_files(spec, &thread, &elsewhere).await?;
    }
    fs::create_dir_all(&args.to).map_err(CliError::host_from)?;
    let (mut told, mut failed) = (Vec::new(), false);
    for file in wanted {
        let path = match (&file.path, fetched.remove(&file.id)) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(fetched)) => fetched.map_err(CliError::host_from),
            (None, None) => Err(CliError::host("nobody has it any more")),
        };
        match path.and_then(|path| save(file, &path, &args.to, args.replace)) {
            Ok(to) if global.json => told.push(json!({ "file": file.id, "saved": to })),
            Ok(to) => line(format_args!(
                "{}  {}",
                clean(&file.id),
                escape_line(&to.display().to_string())
            )),
            Err(error) => {
                failed = true;
                if global.json {
                    told.push(json!({ "file": file.id, "error": error.to_string() }));
                } else {
                    print_note(format_args!(
                        "{} `{}` was not saved: {}",
                        clean(&file.id),
                        clean(&file.name),
                        clean(&error.to_string())
                    ));
                }
            }
        }
    }
    if global.json {
        output::json(&told);
    }
    Ok(if failed { Exit::No } else { Exit::Success })
}

/// The files with these handles or names; without any, all.
fn select_files<'a>(
    known: &'a [Artifact],
    names: &[String],
) -> Result<Vec<&'a Artifact>, CliError> {
    if names.is_empty() {
        return Ok(known.iter().collect());
    }
    let find = |name: &String| {
        find_file(known, name).ok_or_else(|| {
            CliError::usage(format!("this thread has no file `{name}`"))
                .hint("`conjure files list` shows those that it has")
        })
    };
    names.iter().map(find).collect()
}

/// The file with this handle, or the newest with this name.
pub(crate) fn find_file<'a>(known: &'a [Artifact], name: &str) -> Option<&'a Artifact> {
    let by_handle = known.iter().find(|file| file.id == name);
    by_handle.or_else(|| known.iter().rev().find(|file| file.name == name))
}

/// Saves a copy in a directory, under its name, or with its handle in front where that is taken and
/// not to be replaced.
pub(crate) fn save(
    file: &Artifact,
    from: &Path,
    dir: &Path,
    replace: bool,
) -> Result<PathBuf, CliError> {
    let name = conjure_runtime::artifacts::safe_name(&file.name);
    // A command may have put another thing in its place.
    let (source, ..) = fs::open_no_follow(from).map_err(CliError::host_from)?;
    let to = dir.join(&name);
    let taken = to.symlink_metadata().is_ok();
    if taken && replace {
        return fs::replace_with_copy(&source, &to)
            .map(|()| to)
            .map_err(CliError::host_from);
    }
    let to = match taken {
        true => dir.join(format!("{}-{name}", file.id)),
        false => to,
    };
    fs::copy_opened(&source, &to).map_err(CliError::host_from)?;
    Ok(to)
}
