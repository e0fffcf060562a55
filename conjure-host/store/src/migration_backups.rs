//! Copies of a database from before its schema changed: where they are, and which is the newest.

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;

use crate::database::Database;
use crate::database_copy::copy;
use crate::{Location, StoreError, files};

/// A backup before the schema changes from `migration` on.
pub(crate) async fn back_up_before(
    db: &Database,
    location: &Location,
    backups: Option<&Path>,
    migration: &str,
) -> Result<(), StoreError> {
    if matches!(location, Location::Memory) {
        return Ok(());
    }
    let (dir, prefix) = backup_location(location, backups)?;
    files::create_private_dir(&dir)?;
    let now = jiff::Timestamp::now().as_millisecond();
    copy(db, &dir.join(format!("{prefix}{now}-{migration}.backup"))).await
}

/// The newest backup from before a change of the schema.
pub(crate) fn newest(location: &Location, backups: Option<&Path>) -> Result<PathBuf, StoreError> {
    let (dir, prefix) = backup_location(location, backups)?;
    let none = || StoreError::NotFound {
        kind: "backup in",
        id: dir.display().to_string(),
    };
    let made_at = |path: &PathBuf| -> Option<i64> {
        let name = path.file_name()?.to_str()?;
        let (made_at, _) = name.strip_prefix(&prefix)?.split_once('-')?;
        made_at.parse().ok().filter(|_| name.ends_with(".backup"))
    };
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(none()),
        Err(error) => return Err(StoreError::io("list", &dir)(error)),
    };
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter_map(|path| made_at(&path).map(|at| (at, path)))
        .max()
        .map(|(_, path)| path)
        .ok_or_else(none)
}

/// Directory and name prefix of a database's backups.
fn backup_location(
    location: &Location,
    backups: Option<&Path>,
) -> Result<(PathBuf, String), StoreError> {
    let (beside, name) = match location {
        Location::File(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let dir = path.parent().unwrap_or(Path::new("."));
            (Some(dir.join("backups")), name.into_owned())
        }
        Location::Memory => (None, "memory".to_owned()),
        Location::Postgres(url) => {
            let url = url.expose_secret();
            let before = url.split(['?', '#']).next().unwrap_or_default();
            let name = before.rsplit('/').next().unwrap_or_default();
            (None, format!("postgres-{name}"))
        }
    };
    let dir = backups.map(Path::to_owned).or(beside);
    let dir = dir.ok_or_else(|| StoreError::BadLocation {
        location: location.to_string(),
        reason: "its schema must change, and there is no directory for the backup before that"
            .to_owned(),
    })?;
    Ok((dir, format!("{name}-")))
}
