//! What the plugins of a data directory are that came in packages: `conjure.lock`.
//!
//! A host reads it before it opens a library there: one that the lock names has the bytes that the
//! lock says, or none of its code runs. The same form pins the plugins of a team.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use conjure_config::fs;
use serde::{Deserialize, Serialize};

use super::{ANY_TARGET, LibraryTarget, Sha256};

/// The name of the file.
pub const LOCK_FILE: &str = "conjure.lock";

/// The number of the form.
const FORMAT_VERSION: u32 = 1;

/// The most bytes of a lock.
const MAX_LOCK_BYTES: u64 = 4 * 1024 * 1024;

/// A plugin that came in a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedPlugin {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Where the package came from: a path, an address, or a name in an index. In the file a path below
    /// the lock's own directory begins with `./` and is one from there.
    pub source: String,
    /// The index that names it, where the source is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// The digest of the package.
    pub sha256: Sha256,
    /// The public key that its signature was checked with; absent where a person took it unsigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The digest of the manifest that the library for this machine gave when it was allowed; only in
    /// the lock of a data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Sha256>,
    /// The digest of a skill folder's archive, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<Sha256>,
    /// The digest of the library, or of the program's bundle, for each machine that the package has
    /// one for.
    pub libraries: BTreeMap<String, Sha256>,
}

impl LockedPlugin {
    /// Whether one of the package's libraries, or its skill, has these bytes.
    pub fn contains(&self, sha256: &Sha256) -> bool {
        self.digests().any(|known| known == sha256)
    }

    /// The digests of what is installed of it.
    pub(crate) fn digests(&self) -> impl Iterator<Item = &Sha256> {
        self.libraries.values().chain(&self.skill)
    }

    /// The digest of what is installed of it on this machine.
    pub(crate) fn local_digest(&self) -> Option<&Sha256> {
        let of = |target: &str| self.libraries.get(target);
        let library = of(&LibraryTarget::here()).or_else(|| of(ANY_TARGET));
        self.skill.as_ref().or(library)
    }
}

/// A lock's file.
#[derive(Debug, Clone)]
pub struct PluginLock {
    path: PathBuf,
    /// Whether it is kept with a project, for all who work on that.
    is_shared: bool,
}

/// Why a lock says nothing.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The system does not let the host read the lock.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system does not let the host change the lock.
    #[error("the lock of plugins was not changed: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file does not have the form of a lock.
    #[error(
        "{} is not a lock of plugins: {reason}. Put back the file as it was, or move it away and \
         install the plugins again",
        path.display()
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockText {
    lock: u32,
    #[serde(default, rename = "plugin", skip_serializing_if = "Vec::is_empty")]
    plugins: Vec<LockedPlugin>,
}

impl PluginLock {
    /// The lock in a file of the user's alone.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            is_shared: false,
        }
    }

    /// The lock in a file that is kept with a project: whoever the project is open to may read it as the
    /// user's mask says, and one that is there stays what it is, with its mode, its group and the links that
    /// lead to it.
    pub fn of_project(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            is_shared: true,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says, in the order of names; nothing where there is no file.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn plugins(&self) -> Result<Vec<LockedPlugin>, LockError> {
        let text = match fs::size(&self.path) {
            Ok(size) if size > MAX_LOCK_BYTES => {
                return Err(self.format_error(format!(
                    "it has {size} bytes, and {MAX_LOCK_BYTES} are enough"
                )));
            }
            Ok(_) => fs::read_to_string(&self.path),
            Err(error) => Err(error),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                let path = self.path.clone();
                return Err(LockError::Read { path, source });
            }
        };
        let lock: LockText =
            toml::from_str(&text).map_err(|error| self.format_error(one_line(error.message())))?;
        if lock.lock != FORMAT_VERSION {
            return Err(self.format_error(format!(
                "its form is number {}, and this program reads number {FORMAT_VERSION}",
                lock.lock
            )));
        }
        let mut plugins = lock.plugins;
        self.rewrite_sources(&mut plugins, |dir, place| {
            let below = place.strip_prefix("./")?;
            Some(dir.join(below).display().to_string())
        });
        plugins.sort_by(|one, two| one.name.cmp(&two.name));
        let twice = plugins
            .windows(2)
            .find(|pair| matches!(pair, [one, two] if one.name == two.name));
        if let Some([twice, _]) = twice {
            return Err(self.format_error(format!("it names `{}` twice", twice.name)));
        }
        Ok(plugins)
    }

    /// What it says of a plugin.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn plugin(&self, name: &str) -> Result<Option<LockedPlugin>, LockError> {
        let plugins = self.plugins()?;
        Ok(plugins.into_iter().find(|plugin| plugin.name == name))
    }

    /// Says of a plugin what it is now; nothing where it came in no package.
    ///
    /// # Errors
    /// [`LockError`], and the system's.
    pub fn set(&self, name: &str, plugin: Option<LockedPlugin>) -> Result<(), LockError> {
        let mut plugins = self.plugins()?;
        let before = plugins.clone();
        plugins.retain(|known| known.name != name);
        plugins.extend(plugin);
        plugins.sort_by(|one, two| one.name.cmp(&two.name));
        if plugins == before {
            return Ok(());
        }
        // What lies with the lock stays with it, wherever both are moved.
        self.rewrite_sources(&mut plugins, |dir, place| {
            let place = Path::new(place).is_absolute().then_some(Path::new(place))?;
            let real = || relative_path(&place.canonicalize().ok()?, &dir.canonicalize().ok()?);
            let below = relative_path(place, dir).or_else(real)?;
            Some(format!("./{}", below.to_str()?))
        });
        let lock = LockText {
            lock: FORMAT_VERSION,
            plugins,
        };
        let text = toml::to_string(&lock).map_err(|error| self.format_error(error.to_string()))?;
        let text = format!(
            "# Written by `conjure plugin install`. Keep it under version control.\n\n{text}"
        );
        let written = match self.is_shared {
            true => fs::write_shared(&self.path, text.as_bytes()),
            false => fs::write_atomic(&self.path, text.as_bytes()),
        };
        written.map_err(|source| LockError::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Whether it could be written now, as far as the file that is there says it.
    ///
    /// # Errors
    /// The system's.
    pub fn check_writable(&self) -> io::Result<()> {
        fs::check_writable(&self.path)
    }

    /// Writes the places of packages and indexes in another way, where there is one.
    fn rewrite_sources(
        &self,
        plugins: &mut [LockedPlugin],
        write: impl Fn(&Path, &str) -> Option<String>,
    ) {
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let Some(dir) = path.parent() else {
            return;
        };
        for plugin in plugins {
            let places = std::iter::once(&mut plugin.source).chain(&mut plugin.index);
            for place in places {
                if let Some(other) = write(dir, place) {
                    *place = other;
                }
            }
        }
    }

    fn format_error(&self, reason: String) -> LockError {
        LockError::Form {
            path: self.path.clone(),
            reason,
        }
    }
}

/// The way to a place from a directory that it is below, going back nowhere.
fn relative_path(place: &Path, dir: &Path) -> Option<PathBuf> {
    let way = place.strip_prefix(dir).ok()?;
    let goes_back = way.components().any(|part| part == Component::ParentDir);
    (!goes_back).then(|| way.to_owned())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str) -> LockedPlugin {
        LockedPlugin {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source: "oci://h.example/p:1.0.0".to_owned(),
            sha256: Sha256::of(name.as_bytes()),
            index: None,
            signer: Some("RWQ".to_owned()),
            manifest: None,
            skill: None,
            libraries: [("x86_64-unknown-linux-gnu".to_owned(), Sha256::of(b"l"))].into(),
        }
    }

    #[test]
    fn what_is_set_is_read_back_in_order_and_what_is_gone_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let lock = PluginLock::at(dir.path().join(LOCK_FILE));
        assert_eq!(lock.plugins().unwrap(), []);
        lock.set("two", Some(plugin("two"))).unwrap();
        lock.set("one", Some(plugin("one"))).unwrap();
        assert_eq!(lock.plugins().unwrap(), [plugin("one"), plugin("two")]);
        let mut newer = plugin("one");
        newer.version = "2.0.0".to_owned();
        newer.signer = None;
        lock.set("one", Some(newer.clone())).unwrap();
        lock.set("two", None).unwrap();
        assert_eq!(lock.plugins().unwrap(), [newer]);
    }

    #[test]
    fn what_is_no_lock_says_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let lock = PluginLock::at(dir.path().join(LOCK_FILE));
        lock.set("one", Some(plugin("one"))).unwrap();
        let good = fs::read_to_string(lock.path()).unwrap();
        let entry = good.split_once("[[plugin]]").unwrap().1;
        for (bad, reason) in [
            ("lock = 2".to_owned(), "its form is number 2"),
            ("what".to_owned(), "is not a lock of plugins"),
            (format!("{good}\n[[plugin]]{entry}"), "names `one` twice"),
            (good.replace("sha256 = \"", "sha256 = \"+"), "64 hex digits"),
            (
                good.replace("lock = 1", "lock = 1\nmore = 2"),
                "unknown field",
            ),
        ] {
            fs::write(lock.path(), &bad).unwrap();
            let error = lock.plugins().unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
            // Nor is it written over.
            lock.set("two", Some(plugin("two"))).unwrap_err();
            assert_eq!(fs::read_to_string(lock.path()).unwrap(), bad);
        }
    }

    #[test]
    fn what_lies_above_a_lock_is_named_by_its_whole_path() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("project");
        fs::create_private_dir(&dir).unwrap();
        fs::write(scratch.path().join("p"), "x").unwrap();
        fs::write(dir.join("q"), "x").unwrap();
        let lock = PluginLock::at(dir.join(LOCK_FILE));
        for (place, relative) in [
            (dir.join("../p"), None),
            (dir.join("../missing"), None),
            (dir.join("../project/q"), Some("\"./q\"")),
        ] {
            let mut one = plugin("one");
            one.source = place.display().to_string();
            lock.set("one", Some(one)).unwrap();
            let text = fs::read_to_string(lock.path()).unwrap();
            match relative {
                Some(relative) => assert!(text.contains(relative), "{text}"),
                None => assert!(!text.contains("\"./"), "{text}"),
            }
        }
    }

    #[test]
    fn a_lock_that_cannot_be_written_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let lock = PluginLock::at(dir.path().join("missing").join(LOCK_FILE));
        let error = lock
            .set("one", Some(plugin("one")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot write"), "{error}");
    }

    #[test]
    fn the_lock_of_a_project_stays_the_file_that_it_is() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.lock");
        let link = dir.path().join(LOCK_FILE);
        std::os::unix::fs::symlink("real.lock", &link).unwrap();
        let lock = PluginLock::of_project(&link);
        let mode = || std::fs::metadata(&real).unwrap().mode() & 0o777;
        // A new one is as the user's mask says, as other files are.
        let other = dir.path().join("other");
        fs::write(&other, "x").unwrap();
        lock.set("one", Some(plugin("one"))).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(mode(), std::fs::metadata(&other).unwrap().mode() & 0o777);
        for bits in [0o664, 0o600, 0o640] {
            std::fs::set_permissions(&real, std::fs::Permissions::from_mode(bits)).unwrap();
            let mut next = plugin("one");
            next.version = format!("{bits}.0.0");
            lock.set("one", Some(next)).unwrap();
            assert_eq!(mode(), bits);
            assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        lock.check_writable().unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o444)).unwrap();
        lock.check_writable().unwrap_err();
        lock.set("one", None).unwrap_err();
        assert_eq!(mode(), 0o444);
        assert_eq!(fs::entries(dir.path()).unwrap().len(), 3, "nothing is left");
    }

    #[test]
    fn what_lies_with_a_lock_is_found_where_both_were_moved() {
        let scratch = tempfile::tempdir().unwrap();
        let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
        fs::create_private_dir(one.join("packages")).unwrap();
        let of = |dir: &Path| {
            let mut inside = plugin("inside");
            inside.source = dir.join("packages/p.conjure-plugin").display().to_string();
            inside.index = Some(dir.join("packages").display().to_string());
            inside
        };
        let mut outside = plugin("outside");
        outside.source = scratch.path().join("p").display().to_string();
        let lock = PluginLock::at(one.join(LOCK_FILE));
        lock.set("inside", Some(of(&one))).unwrap();
        lock.set("outside", Some(outside.clone())).unwrap();
        let text = fs::read_to_string(lock.path()).unwrap();
        assert!(text.contains("\"./packages/p.conjure-plugin\""), "{text}");
        assert_eq!(lock.plugins().unwrap(), [of(&one), outside.clone()]);
        fs::rename(&one, &two).unwrap();
        let lock = PluginLock::at(two.join(LOCK_FILE));
        assert_eq!(lock.plugins().unwrap(), [of(&two), outside]);
    }
}
