//! Which files of the host commands are kept from: its data directory, with the key that saved
//! credentials are sealed with, and the key's file where that is somewhere else.

use std::path::{Path, PathBuf};

use conjure_skill_sdk::Setup;

use crate::config::Settings;

/// Below a host's data directory, what holds the directories of its plugins.
const OF_PLUGINS: &str = "plugin-data";
/// The variables that say where the host keeps its things.
const DATA_DIR: &str = "CONJURE_DATA_DIR";
const KEY_FILE: &str = "CONJURE_KEY_FILE";

/// The paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PrivatePaths(Vec<PathBuf>);

impl PrivatePaths {
    /// Those of the host that makes this instance, and what its configuration adds.
    pub(crate) fn of(setup: &Setup, settings: &Settings) -> Self {
        let own = setup.create.data_dir.as_deref().map(Path::new);
        Self::from(own, &settings.hide, |name| {
            std::env::var_os(name).map(PathBuf::from)
        })
    }

    fn from(own: Option<&Path>, hide: &[PathBuf], var: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let absolute = |name: &str| var(name).filter(|path| path.is_absolute());
        let all = own.and_then(Path::parent);
        let data_dir = all
            .filter(|all| all.ends_with(OF_PLUGINS))
            .and_then(Path::parent);
        // Also where this host was sent elsewhere: what the user's other hosts keep is there.
        let share = absolute("XDG_DATA_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/share")))
            .map(|share| share.join("conjure"));
        let mut paths: Vec<PathBuf> = data_dir
            .map(Path::to_owned)
            .into_iter()
            .chain(absolute(DATA_DIR))
            .chain(absolute(KEY_FILE))
            .chain(share)
            .chain(hide.iter().cloned())
            .collect();
        paths.sort();
        paths.dedup();
        Self(paths)
    }

    /// All of them.
    #[cfg(target_os = "linux")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_data_and_its_key_are_private() {
        let var = |name: &str| match name {
            "CONJURE_DATA_DIR" => Some("relative".into()),
            "CONJURE_KEY_FILE" => Some("/keys/vault.key".into()),
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
        ];
        assert_eq!(paths.0, expected.map(PathBuf::from));
        // A directory that lies somewhere else says nothing about the host's.
        let paths = PrivatePaths::from(Some(Path::new("/tmp/local")), &[], |_| None);
        assert_eq!(paths, PrivatePaths::default());
    }
}
