//! Files of the host that tools are kept from: its data directory, with the key that saved credentials
//! are sealed with, and the key's file and the database where those are somewhere else.
//!
//! For executors and other plugins that let programs of a model's or of strangers touch files.

use std::fs;
use std::path::{Path, PathBuf};

/// Below a host's data directory, what holds the directories of its plugins.
const PLUGINS_DIR: &str = "plugin-data";
/// The variables that say where the host keeps its things.
const DATA_DIR: &str = "CONJURE_DATA_DIR";
const KEY_FILE: &str = "CONJURE_KEY_FILE";
const DATABASE: &str = "CONJURE_DATABASE";
/// What SQLite keeps beside the file of a database.
const DATABASE_SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// The paths, all absolute. What they name need not be there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrivatePaths(Vec<PathBuf>);

impl PrivatePaths {
    /// Paths of the host that makes an instance of a plugin with this directory of data, and more.
    #[must_use]
    pub fn of(instance_dir: Option<&Path>, more: &[PathBuf]) -> Self {
        Self::from(instance_dir, more, |name| match std::env::var_os(name) {
            None if name == "HOME" => std::env::home_dir(),
            value => value.map(PathBuf::from),
        })
    }

    fn from(
        instance_dir: Option<&Path>,
        more: &[PathBuf],
        var: impl Fn(&str) -> Option<PathBuf>,
    ) -> Self {
        let named = |name: &str| var(name).filter(|path| !path.as_os_str().is_empty());
        let absolute = |name: &str| named(name).filter(|path| path.is_absolute());
        let all = instance_dir.and_then(Path::parent);
        let data_dir = all
            .filter(|all| all.ends_with(PLUGINS_DIR))
            .and_then(Path::parent);
        // Also where this host was sent elsewhere: what the user's other hosts keep is there.
        let share = absolute("XDG_DATA_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/share")))
            .map(|share| share.join("conjure"));
        let is_file = |place: &PathBuf| {
            place != Path::new("memory") && !place.to_string_lossy().contains("://")
        };
        let database = named(DATABASE).filter(is_file).into_iter();
        let database = database.flat_map(|file| {
            DATABASE_SUFFIXES.map(|end| {
                let mut name = file.clone().into_os_string();
                name.push(end);
                PathBuf::from(name)
            })
        });
        let paths = data_dir
            .map(Path::to_owned)
            .into_iter()
            .chain(named(DATA_DIR))
            .chain(named(KEY_FILE))
            .chain(share)
            .chain(database)
            .chain(more.iter().cloned());
        // A relative one is below where the host runs.
        let mut paths: Vec<PathBuf> = paths
            .filter_map(|path| std::path::absolute(path).ok())
            .collect();
        // Where links lead at this moment: one of them may lead elsewhere when a command runs.
        let real: Vec<PathBuf> = paths
            .iter()
            .filter_map(|path| fs::canonicalize(path).ok())
            .collect();
        paths.extend(real);
        paths.sort();
        paths.dedup();
        Self(paths)
    }

    /// The paths, in order.
    pub fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_data_its_key_and_its_database_are_private() {
        let var = |name: &str| match name {
            "CONJURE_KEY_FILE" => Some("/keys/vault.key".into()),
            "CONJURE_DATABASE" => Some("/srv/c.db".into()),
            "HOME" => Some("/home/me".into()),
            _ => None,
        };
        let own = Path::new("/data/plugin-data/local");
        let paths = PrivatePaths::from(Some(own), &["/more".into()], var);
        let expected = [
            "/data",
            "/home/me/.local/share/conjure",
            "/keys/vault.key",
            "/more",
            "/srv/c.db",
            "/srv/c.db-shm",
            "/srv/c.db-wal",
        ];
        assert_eq!(paths.0, expected.map(PathBuf::from));
        // A directory that lies somewhere else says nothing about the host's.
        let paths = PrivatePaths::from(Some(Path::new("/tmp/local")), &[], |_| None);
        assert_eq!(paths, PrivatePaths::default());
    }

    #[test]
    fn what_a_link_leads_to_is_private_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (real, link) = (root.join("real"), root.join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let paths = PrivatePaths::from(None, std::slice::from_ref(&link), |_| None);
        assert_eq!(paths.0, [link, real]);
    }

    #[test]
    fn a_relative_path_is_below_where_the_host_runs() {
        let var = |name: &str| match name {
            "CONJURE_DATA_DIR" => Some("data".into()),
            "CONJURE_KEY_FILE" => Some("keys/my.key".into()),
            "CONJURE_DATABASE" => Some("memory".into()),
            "HOME" => Some("relative".into()),
            _ => None,
        };
        let own = Path::new("rel/plugin-data/local");
        let here = std::env::current_dir().unwrap();
        let paths = PrivatePaths::from(Some(own), &[], var);
        let expected = ["data", "keys/my.key", "rel"].map(|path| here.join(path));
        assert_eq!(paths.0, expected);
        let var = |name: &str| (name == DATABASE).then(|| "postgres://me@db/x".into());
        assert_eq!(PrivatePaths::from(None, &[], var), PrivatePaths::default());
    }
}
