//! `conjure db`: the database itself.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use conjure_config::AuthRef;
use conjure_core::numerals::count;
use conjure_store::{Check, Store, StoreError, UnreadRows};
use serde_json::json;

use super::args::Global;
use super::db_import_maestro as maestro;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line, print_note};
use super::person::confirm;

/// Looks after the database that holds threads, sessions and what is saved.
#[derive(clap::Args)]
#[command(
    after_help = "The database is `conjure.db` in the data directory, unless CONJURE_DATABASE \
names another: the path of an SQLite file, or `postgres://…`.

Examples:
  conjure db check
  conjure db backup before-the-move.db
  conjure db import --from the-maestro postgres://me@localhost/the_maestro_dev --dry-run
  CONJURE_DATABASE=postgres://me@db/conjure conjure db import all.jsonl"
)]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    verb: DbVerb,
}

#[derive(Subcommand)]
enum DbVerb {
    /// Read all of it and say what is wrong
    ///
    /// The database's own structure, the numbers of every thread, every entry and event, and every
    /// blob's hash. Changes nothing.
    Check,
    /// Copy all of it to a file, which can be put in its place
    ///
    /// An SQLite database becomes an SQLite file, one of PostgreSQL the form of `export`, with the
    /// sealed secrets. Programs that use it go on meanwhile.
    Backup {
        /// The file; it must not be there yet
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Write all of it as JSON lines, for a database of any kind; without secrets
    Export {
        /// The file; it must not be there yet
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Read what was exported; what is there already stays as it is
    ///
    /// With `--from the-maestro` the sessions, chats and saved auths of that application, out of its
    /// PostgreSQL database, in which nothing is changed: its URL, whose password may be left to the
    /// variable PGPASSWORD. All of it comes or nothing; what cannot be taken is told.
    Import(ImportDatabaseArgs),
    /// Go back to the backup that was made before the newest change of its form
    ///
    /// For those who go back to the version of the program from before it. What was written since is
    /// lost. No program may have the database open.
    Rollback {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args)]
struct ImportDatabaseArgs {
    /// The file; with `--from`, the URL of the other application's database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Another application
    #[arg(long, value_name = "APPLICATION")]
    from: Option<Application>,
    /// The saved auth of sessions whose own cannot be taken [default: these are left out]
    #[arg(long, value_name = "NAME", requires = "from")]
    auth: Option<AuthRef>,
    /// Say what would come of it, and change nothing
    #[arg(long, requires = "from")]
    dry_run: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Application {
    /// The web application the-maestro
    TheMaestro,
}

pub(crate) async fn run(global: &Global, args: DbArgs) -> Result<Exit, CliError> {
    match args.verb {
        DbVerb::Check => check(global).await,
        DbVerb::Backup { to } => backup(global, &to).await,
        DbVerb::Export { to } => {
            let written = global.store().await?.export(&to).await;
            written.map_err(|error| CliError::of_named_file(&to, error))?;
            report(global, "export", &to);
            Ok(Exit::Success)
        }
        DbVerb::Import(args) => import(global, args).await,
        DbVerb::Rollback { yes } => roll_back(global, yes).await,
    }
}

async fn import(global: &Global, args: ImportDatabaseArgs) -> Result<Exit, CliError> {
    if let Some(Application::TheMaestro) = args.from {
        let url = args.file.into_os_string().into_string();
        let import = maestro::MaestroImport {
            url: url.map_err(|_| CliError::usage("the URL is not UTF-8"))?,
            auth: args.auth,
            dry_run: args.dry_run,
        };
        return maestro::run(global, import).await;
    }
    if args.file.to_string_lossy().contains("://") {
        // It may hold a password, so it is not said again.
        return Err(CliError::usage("that is a URL and no file")
            .hint("`--from the-maestro` says whose database it is"));
    }
    let read = global.store().await?.import(&args.file).await;
    let rows = read.map_err(|error| CliError::of_named_file(&args.file, error))?;
    if global.json {
        output::json(&json!({ "rows": rows }));
    } else {
        print_note(format_args!("{rows} rows are new."));
    }
    Ok(Exit::Success)
}

/// Copies the database; of a damaged one what can be read, and says what cannot be.
async fn backup(global: &Global, to: &Path) -> Result<Exit, CliError> {
    let data_dir = global.data_dir();
    let unread = match conjure_store::open(&data_dir).await {
        Ok(store) => {
            let copied = store.backup(to).await;
            copied.map_err(|error| CliError::of_named_file(to, error))?
        }
        Err(StoreError::Corrupt { .. } | StoreError::Disk { .. }) => {
            let location = conjure_store::location(&data_dir)?;
            let saved = Store::salvage(&location, to).await;
            saved.map_err(|error| CliError::of_named_file(to, error))?
        }
        Err(error) => return Err(CliError::unopened(error)),
    };
    if unread.is_empty() {
        report(global, "backup", to);
        return Ok(Exit::Success);
    }
    if global.json {
        let unread: Vec<_> = unread
            .iter()
            .map(|UnreadRows { table, rows }| json!({ "table": table, "rows": rows }))
            .collect();
        output::json(&json!({ "backup": to, "unread": unread }));
    } else {
        for UnreadRows { table, rows } in &unread {
            line(match rows {
                Some(rows) => format!("{table}: up to {rows} rows could not be read"),
                None => format!("{table}: its last rows could not be read"),
            });
        }
        print_note(format_args!(
            "The database is damaged. What can be read of it is in {}; `conjure db check` with that in \
             its place says what is missing.",
            to.display()
        ));
    }
    Ok(Exit::No)
}

/// Checks the database. One that is too damaged to be opened is one that is checked, too.
async fn check_database(global: &Global) -> Result<Check, StoreError> {
    match conjure_store::open(&global.data_dir()).await {
        Ok(store) => store.check().await,
        Err(StoreError::Corrupt { reason, .. } | StoreError::Disk { reason, .. }) => Ok(Check {
            problems: vec![format!("the database cannot be opened: {reason}")],
            ..Check::default()
        }),
        Err(error) => Err(error),
    }
}

async fn check(global: &Global) -> Result<Exit, CliError> {
    let check = check_database(global).await.map_err(CliError::unopened)?;
    if global.json {
        output::json(&json!({
            "sound": check.is_sound(),
            "problems": check.problems,
            "more_problems": check.unlisted,
            "threads": check.threads,
            "entries": check.entries,
            "events": check.events,
            "blobs": check.blobs,
        }));
    } else {
        for problem in &check.problems {
            line(clean(problem));
        }
        if check.unlisted > 0 {
            line(format_args!("and {} more", check.unlisted));
        }
        line(format_args!(
            "{}, {}, {}, {}: {}",
            count(check.threads as u64, "thread"),
            count(check.entries, "entry"),
            count(check.events, "event"),
            count(check.blobs, "blob"),
            match check.is_sound() {
                true => "nothing is wrong.",
                false => "see above. `conjure db backup` saves what can be read.",
            }
        ));
    }
    Ok(match check.is_sound() {
        true => Exit::Success,
        false => Exit::No,
    })
}

async fn roll_back(global: &Global, yes: bool) -> Result<Exit, CliError> {
    let data_dir = global.data_dir();
    let location = conjure_store::location(&data_dir)?;
    let options = conjure_store::options(&location, &data_dir);
    let backup = Store::newest_backup(&location, &options)?;
    let what = format!(
        "This puts the backup {} in the place of {location}. What was written since it was made is lost.",
        backup.display()
    );
    if !confirm(yes, what, "Restore it?").await? {
        return Ok(Exit::Interrupted);
    }
    let from = Store::roll_back(&location, &options).await?;
    if global.json {
        output::json(&json!({ "restored": from }));
    } else {
        print_note(format_args!(
            "The database is the one of {}.",
            from.display()
        ));
    }
    Ok(Exit::Success)
}

fn report(global: &Global, what: &str, file: &Path) {
    if global.json {
        output::json(&json!({ what: file }));
    } else {
        print_note(format_args!("The {what} is in {}.", file.display()));
    }
}
