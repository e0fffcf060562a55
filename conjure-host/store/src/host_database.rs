//! The database of a host: where it is for a directory of data, and what is taken over into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_config::env;

use crate::{Location, Options, Store, StoreError};

/// Where the database of a host with this directory of data is: where
/// [`DATABASE`](env::DATABASE) says, else in that directory.
///
/// # Errors
/// [`StoreError::BadLocation`] when the environment names no place.
pub fn location(data_dir: &Path) -> Result<Location, StoreError> {
    match env::var(env::DATABASE) {
        Some(location) => Location::parse(&location),
        None => Ok(Location::File(data_dir.join("conjure.db"))),
    }
}

/// How the database of a host with this directory of data is opened: a server's backups are in
/// `backups` there, a file's beside it.
pub fn options(location: &Location, data_dir: &Path) -> Options {
    let is_served = matches!(location, Location::Postgres(_));
    Options {
        backups: is_served.then(|| data_dir.join("backups")),
        ..Options::default()
    }
}

/// Opens the database of a host with this directory of data. Threads that an earlier version kept
/// there as files of JSON lines are taken over first.
///
/// # Errors
/// [`StoreError`] when it cannot be opened, or a file of an earlier version cannot be read whole.
#[boxed]
pub async fn open(data_dir: &Path) -> Result<Store, StoreError> {
    let location = location(data_dir)?;
    let store = Store::open(&location, &options(&location, data_dir)).await?;
    import_old_threads(&store, &data_dir.join("threads")).await?;
    Ok(store)
}

/// Imports a directory of JSON lines, and moves it aside when all of it is in the database.
async fn import_old_threads(store: &Store, dir: &Path) -> Result<(), StoreError> {
    if !conjure_config::fs::is_dir(dir).unwrap_or_default() {
        return Ok(());
    }
    let imported = store.import_json_lines(dir).await?;
    let aside: PathBuf = dir.with_file_name("threads.imported");
    let moved = conjure_config::fs::rename(dir, &aside);
    moved.map_err(|source| StoreError::Io {
        what: "move aside",
        path: dir.to_owned(),
        source: Arc::new(source),
    })?;
    tracing::info!(
        threads = imported.new.len(),
        "the threads of an earlier version are in the database now; their files are in {}",
        aside.display()
    );
    Ok(())
}
