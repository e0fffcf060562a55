//! What a worker is granted of this machine: what its session has and its manifest names, and never
//! what is the host's or the system itself. The kernel keeps it to that ([`conjure_confinement`]) from
//! before the library is opened, so for its constructors too.
//!
//! The kernel tells in any case that a file exists, and its size and times.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use conjure_confinement::{ConfinementGaps, WorkerConfinement};

use super::{InstanceDirs, WorkerGrants};

/// Where the session of `conjure serve --demo` works, below the data directory. Nothing of the host's is in
/// it, so plugins are granted it.
pub const DEMO_WORK_DIR: &str = "demo/work";

/// Devices and the kernel's own settings, which no manifest gets.
const SYSTEM_DIRS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What an instance is granted of what its manifest names, and the directories that it works in. `home`
/// stands for `~`.
///
/// A directory to work in is left out where one of the `secrets` is, where the host keeps its own, and
/// where something else stands by now: [`refused_dirs`]. So is a skill folder of the latter kind.
///
/// # Errors
/// The path that cannot be granted: one that is not absolute, or that holds one of the secrets or lies
/// in it.
pub(super) fn granted_confinement(
    grants: &WorkerGrants,
    home: Option<&Path>,
    secrets: &[PathBuf],
) -> Result<WorkerConfinement, String> {
    let WorkerGrants {
        permissions,
        asked_write,
        dirs,
    } = grants;
    let read = NamedPath::all(&permissions.read, home)?;
    let write = NamedPath::all(&permissions.write, home)?;
    let work = || {
        let dirs = dirs.work.iter();
        dirs.filter(move |dir| DirRefusal::of(dir, secrets).is_none())
    };
    // What is below a directory that it may change is its own anyway; named apart, a link that
    // it puts there would be granted what that leads to.
    let own = write.iter().map(|named| named.path.clone());
    let own = ChangeableDirs::of(own.chain(work().cloned()));
    // Where this session lets it change nothing, another one may have let it put a link.
    let elsewhere = asked_write
        .iter()
        .filter_map(|name| NamedPath::new(name, home).ok());
    let elsewhere = ChangeableDirs::of(elsewhere.map(|named| named.path));
    let granted_of = |paths: &[NamedPath<'_>]| -> Result<Vec<PathBuf>, String> {
        let apart = paths
            .iter()
            .filter(|named| !own.contains(&named.path) && elsewhere.allows_separately(named));
        apart.map(|named| named.grantable_path(secrets)).collect()
    };
    let mut write_granted = granted_of(&write)?;
    write_granted.extend(work().cloned());
    let mut read_granted = granted_of(&read)?;
    let only_read = dirs.read.iter().filter(|dir| !own.contains(dir));
    let only_read = only_read.filter(|dir| DirRefusal::of(dir, secrets).is_none());
    read_granted.extend(only_read.cloned());
    // They were without links when the session got them. Where others write above them, one may have come.
    let folders = dirs.folders.iter().filter(|folder| !own.contains(folder));
    read_granted.extend(folders.filter(|folder| is_free_of_links(folder)).cloned());
    Ok(WorkerConfinement {
        read: read_granted,
        write: write_granted,
        network: permissions.network,
        commands: permissions.commands,
        program: false,
    })
}

/// Directories in which a plugin can put a link, each with where it leads.
struct ChangeableDirs(Vec<(PathBuf, PathBuf)>);

impl ChangeableDirs {
    fn of(dirs: impl Iterator<Item = PathBuf>) -> Self {
        let dirs = dirs.map(|dir| {
            let real_dir = resolve_links(&dir);
            (dir, real_dir)
        });
        Self(dirs.collect())
    }

    /// The directories of these that a path leads through.
    fn above<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a (PathBuf, PathBuf)> {
        let parents: Vec<PathBuf> = path.ancestors().skip(1).map(resolve_links).collect();
        self.0.iter().filter(move |(dir, real_dir)| {
            let leads_through = || parents.iter().any(|parent| parent.starts_with(real_dir));
            path != dir && (path.starts_with(dir) || leads_through())
        })
    }

    /// Whether a path is below one of them.
    fn contains(&self, path: &Path) -> bool {
        self.above(path).next().is_some()
    }

    /// Whether a path may be granted apart from them. The log says so where it may not.
    fn allows_separately(&self, named: &NamedPath<'_>) -> bool {
        let is_straight = self.has_no_links_to(&named.path);
        if !is_straight {
            tracing::warn!(
                name = named.name,
                "a worker is not granted it: a link is on the way to it from a directory that the \
                 manifest asks to change; name what it leads to in the manifest"
            );
        }
        is_straight
    }

    /// Whether no link is on the way to a path from any of them that it is below, by the name of the
    /// directory or by where that leads.
    fn has_no_links_to(&self, path: &Path) -> bool {
        let real_path = resolve_links(path);
        self.above(path).all(|(dir, real_dir)| {
            let rest = path.strip_prefix(dir);
            let rest = rest.or_else(|_| path.strip_prefix(real_dir));
            rest.is_ok_and(|rest| real_dir.join(rest) == real_path)
        })
    }
}

/// Whether a skill folder is what it was when the session got it. The log says so where it is not.
fn is_free_of_links(folder: &Path) -> bool {
    let is_plain = !has_links(folder);
    if !is_plain {
        tracing::warn!(
            folder = %folder.display(),
            "a worker is not granted this skill folder: a link is on the way to it by now"
        );
    }
    is_plain
}

/// The directories of the session that cannot be granted, and why.
pub(super) fn refused_dirs<'a>(
    dirs: &'a InstanceDirs,
    secrets: &[PathBuf],
) -> impl Iterator<Item = (&'a Path, DirRefusal)> {
    dirs.work.iter().chain(&dirs.read).filter_map(move |dir| {
        let refusal = DirRefusal::of(dir, secrets)?;
        Some((dir.as_path(), refusal))
    })
}

/// Why a directory to work in cannot be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirRefusal {
    /// The host keeps its own there, or it is in what the host keeps.
    HostDirectory,
    /// The directory is not any more what it was when its session began: a plugin that may change
    /// what is above it can put a link to anything there.
    Replaced,
}

impl DirRefusal {
    fn of(dir: &Path, secrets: &[PathBuf]) -> Option<Self> {
        if has_links(dir) || (dir.exists() && !dir.is_dir()) {
            return Some(Self::Replaced);
        }
        let is_in = |secret: &PathBuf| {
            let inside = dir.strip_prefix(resolve_links(secret));
            inside.is_ok_and(|inside| !is_of_session_or_plugin(inside))
        };
        let is_hosts_own = contains_secret(dir, secrets) || secrets.iter().any(is_in);
        is_hosts_own.then_some(Self::HostDirectory)
    }

    /// The reason and what to do about it, for a person. `data_dir` is where the host keeps its own files.
    pub(super) fn sentence(self, dir: &Path, data_dir: &Path) -> String {
        let (dir, data_dir) = (dir.display(), data_dir.display());
        match self {
            Self::HostDirectory => format!(
                "`{dir}`, where it is to work, is in the host's data directory `{data_dir}` or holds files \
                 of the host's own, which no plugin reaches, so let its session work in a directory \
                 somewhere else: `conjure session set NAME --working-dir DIR`, or `working_dir` in the \
                 session file"
            ),
            Self::Replaced => format!(
                "`{dir}`, where it is to work, is not the directory any more that it was when its session \
                 began: a link or a file is there or on the way to it, so put the directory back, or begin \
                 another session"
            ),
        }
    }
}

/// Whether a path in the data directory is what a session or a plugin has there: a session's directory
/// to work in, the one where it exchanges files, a plugin's own, and [where the demo works](DEMO_WORK_DIR).
fn is_of_session_or_plugin(inside: &Path) -> bool {
    let names: Option<Vec<&str>> = inside.iter().map(OsStr::to_str).collect();
    let is_own = matches!(
        names.as_deref(),
        Some(["sessions", _, "work" | "exchange", ..] | ["plugin-data", _, ..])
    );
    is_own || inside.starts_with(DEMO_WORK_DIR)
}

/// Whether links are on the way to a path that had none.
fn has_links(path: &Path) -> bool {
    resolve_links(path) != path
}

/// Whether one of these paths is a directory or lies in it.
fn contains_secret(dir: &Path, secrets: &[PathBuf]) -> bool {
    let dir = resolve_links(dir);
    secrets
        .iter()
        .any(|secret| resolve_links(secret).starts_with(&dir))
}

/// A path in a manifest.
struct NamedPath<'a> {
    name: &'a str,
    path: PathBuf,
}

impl<'a> NamedPath<'a> {
    fn all(names: &'a [String], home: Option<&Path>) -> Result<Vec<Self>, String> {
        names.iter().map(|name| Self::new(name, home)).collect()
    }

    fn new(name: &'a str, home: Option<&Path>) -> Result<Self, String> {
        let path = match (name.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(name),
        };
        let is_plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if path.is_absolute() && is_plain {
            return Ok(Self { name, path });
        }
        Err(format!(
            "its manifest asks for `{name}`, which is neither a plain absolute path nor below `~/`"
        ))
    }

    /// Path that it leads to, if that may be granted.
    fn grantable_path(&self, secrets: &[PathBuf]) -> Result<PathBuf, String> {
        let path = resolve_links(&self.path);
        let refused = |why: &str| {
            let name = self.name;
            Err(format!("its manifest asks for `{name}`, {why}"))
        };
        if SYSTEM_DIRS.iter().any(|own| path.starts_with(own)) {
            return refused("which is no file but the system itself");
        }
        let is_in = secrets
            .iter()
            .any(|secret| path.starts_with(resolve_links(secret)));
        if is_in || contains_secret(&path, secrets) {
            return refused("where this host keeps its own files");
        }
        Ok(path)
    }
}

/// The path without links, as far as it is there.
fn resolve_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// What this system cannot keep workers from. Tries it out, on a thread that ends then.
///
/// # Errors
/// The system's, when it has no thread.
pub fn confinement_gaps() -> std::io::Result<ConfinementGaps> {
    let tried = std::thread::Builder::new()
        .name("confinement".to_owned())
        .spawn(|| WorkerConfinement::default().enter(Path::new("/dev/null")))?
        .join();
    let tried = tried.map_err(|_| std::io::Error::other("it could not be tried out"))?;
    tried.map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::protocol::Permissions;

    use super::*;

    /// What a session grants that withholds nothing.
    fn grants(permissions: &Permissions, dirs: &InstanceDirs) -> WorkerGrants {
        WorkerGrants {
            permissions: permissions.clone(),
            asked_write: permissions.write.clone(),
            dirs: dirs.clone(),
        }
    }

    #[test]
    fn a_manifest_gets_what_it_names_and_never_what_is_the_hosts() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let secret = home.join("share/conjure");
        std::fs::create_dir_all(secret.join("store")).unwrap();
        std::fs::create_dir(home.join("notes")).unwrap();
        std::os::unix::fs::symlink(&secret, home.join("link")).unwrap();
        std::os::unix::fs::symlink("/proc/self", home.join("self")).unwrap();
        let asked = |path: &str| {
            let permissions = Permissions {
                write: vec![path.to_owned()],
                ..Permissions::default()
            };
            let dirs = InstanceDirs::default();
            granted_confinement(
                &grants(&permissions, &dirs),
                Some(&home),
                std::slice::from_ref(&secret),
            )
            .map(|granted| granted.write)
        };
        assert_eq!(asked("~/notes"), Ok(vec![home.join("notes")]));
        assert_eq!(asked("/var/log"), Ok(vec!["/var/log".into()]));
        let own = [
            "/",
            "~/",
            "~/share",
            "~/share/conjure",
            "~/share/conjure/store",
            "~/link",
            "~/link/store",
        ];
        for (refused, reason) in own.into_iter().map(|path| (path, "keeps its own")).chain([
            ("notes", "plain absolute path"),
            ("/var/log/../../home", "plain absolute path"),
            ("~/notes/../share", "plain absolute path"),
            ("/proc/self/ns/net", "the system itself"),
            ("/proc/sys", "the system itself"),
            ("/dev/sda1", "the system itself"),
            ("/sys", "the system itself"),
            ("~/self", "the system itself"),
        ]) {
            let said = asked(refused).unwrap_err();
            assert!(said.contains(reason), "{refused}: {said}");
        }
    }

    #[test]
    fn a_link_below_what_a_plugin_may_change_gets_nothing_more() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (work, notes, keys) = (home.join("work"), home.join("notes"), home.join(".ssh"));
        let skills = home.join("skills");
        for dir in [&work, &notes, &keys, &skills] {
            std::fs::create_dir(dir).unwrap();
        }
        std::os::unix::fs::symlink(&keys, notes.join("sub")).unwrap();
        std::os::unix::fs::symlink(&keys, work.join("sub")).unwrap();
        let permissions = Permissions {
            read: vec!["~/work/sub".to_owned()],
            write: vec!["~/notes".to_owned(), "~/notes/sub".to_owned()],
            ..Permissions::default()
        };
        let dirs = InstanceDirs {
            folders: vec![work.join("sub"), skills.clone()],
            ..InstanceDirs::of_work(&[&work])
        };
        let granted = granted_confinement(&grants(&permissions, &dirs), Some(&home), &[]);
        let expected = WorkerConfinement {
            read: vec![skills],
            write: vec![notes, work],
            ..WorkerConfinement::default()
        };
        assert_eq!(granted, Ok(expected));
    }

    #[test]
    fn a_link_to_what_a_plugin_may_change_is_no_way_around_that() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (work, keys) = (home.join("work"), home.join("keys"));
        for dir in [&work.join("a"), &keys.join("inner")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::os::unix::fs::symlink(&work, home.join("link")).unwrap();
        std::os::unix::fs::symlink(&keys, work.join("sub")).unwrap();
        let permissions = Permissions {
            read: ["~/link/sub", "~/link/sub/inner", "~/link/a", "~/keys/inner"]
                .map(str::to_owned)
                .into(),
            ..Permissions::default()
        };
        let dirs = InstanceDirs::of_work(&[&work]);
        let granted = granted_confinement(&grants(&permissions, &dirs), Some(&home), &[]).unwrap();
        assert_eq!(granted.read, [keys.join("inner")]);
    }

    #[test]
    fn a_link_that_a_session_with_more_rights_put_there_gets_one_with_less_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (out, keys) = (home.join("out"), home.join(".ssh"));
        for dir in [&out.join("in"), &out.join("deep/er"), &keys.join("er")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let narrowed = WorkerGrants {
            permissions: Permissions {
                read: names(&["~/out/in"]),
                write: names(&["~/out/deep/er"]),
                ..Permissions::default()
            },
            asked_write: names(&["~/out", "~/out/in", "~/out/deep/er"]),
            dirs: InstanceDirs {
                folders: vec![out.join("deep")],
                ..InstanceDirs::default()
            },
        };
        let granted = || {
            let granted = granted_confinement(&narrowed, Some(&home), &[]).unwrap();
            (granted.read, granted.write)
        };
        let (read, write) = (out.join("in"), out.join("deep/er"));
        let folder = out.join("deep");
        assert_eq!(granted(), (vec![read.clone(), folder], vec![write]));
        std::fs::remove_dir(&read).unwrap();
        std::os::unix::fs::symlink(&keys, &read).unwrap();
        std::fs::remove_dir_all(out.join("deep")).unwrap();
        std::os::unix::fs::symlink(&keys, out.join("deep")).unwrap();
        assert_eq!(granted(), (vec![], vec![]));
    }

    #[test]
    fn what_a_manifest_names_by_where_its_directory_leads_is_granted_unless_a_link_is_behind_that()
    {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (inner, keys) = (home.join("real/in"), home.join("keys"));
        for dir in [&inner, &keys] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::os::unix::fs::symlink(home.join("real"), home.join("link")).unwrap();
        let narrowed = WorkerGrants {
            permissions: Permissions {
                read: vec!["~/real/in".to_owned()],
                ..Permissions::default()
            },
            asked_write: vec!["~/link".to_owned()],
            dirs: InstanceDirs::default(),
        };
        let read = || {
            granted_confinement(&narrowed, Some(&home), &[])
                .unwrap()
                .read
        };
        assert_eq!(read(), std::slice::from_ref(&inner));
        std::fs::remove_dir(&inner).unwrap();
        std::os::unix::fs::symlink(&keys, &inner).unwrap();
        assert!(read().is_empty());
    }

    #[test]
    fn a_directory_with_the_hosts_own_in_it_is_not_granted_and_one_in_there_is() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (data, keys) = (home.join("share/conjure"), home.join("keys"));
        let own = data.join("plugin-data/a");
        for dir in [&own, &keys, &home.join("work")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let secrets = [data.clone(), keys.join("vault.key")];
        let granted = |work: &Path| {
            let dirs = InstanceDirs::of_work(&[work, &own]);
            let withheld: Vec<_> = refused_dirs(&dirs, &secrets)
                .map(|(dir, refusal)| (dir.to_owned(), refusal))
                .collect();
            let grants = grants(&Permissions::default(), &dirs);
            let granted = granted_confinement(&grants, None, &secrets).unwrap();
            (granted.write, withheld)
        };
        let only_read = |work: &Path| {
            let dirs = InstanceDirs::default().with_read_only(work);
            let grants = grants(&Permissions::default(), &dirs);
            super::granted_confinement(&grants, None, &secrets)
                .unwrap()
                .read
        };
        let of_sessions = [
            "sessions/one/work/deep",
            "sessions/two/exchange",
            DEMO_WORK_DIR,
        ];
        for work in of_sessions
            .map(|name| data.join(name))
            .iter()
            .chain([&home.join("work")])
        {
            std::fs::create_dir_all(work).unwrap();
            assert_eq!(granted(work), (vec![work.clone(), own.clone()], vec![]));
            assert_eq!(only_read(work), std::slice::from_ref(work));
        }
        let inside = [
            "store",
            "plugin-data",
            "sessions/one",
            "sessions/one/files",
            "demo",
            "work",
        ];
        let inside = inside.map(|name| data.join(name));
        for work in [&home, &home.join("share"), &data, &keys]
            .into_iter()
            .chain(&inside)
        {
            std::fs::create_dir_all(work).unwrap();
            let withheld = vec![(work.clone(), DirRefusal::HostDirectory)];
            assert_eq!(granted(work), (vec![own.clone()], withheld));
            assert_eq!(only_read(work), [] as [PathBuf; 0]);
            let said = DirRefusal::HostDirectory.sentence(work, &data);
            assert!(said.contains(data.to_str().unwrap()), "{said}");
        }
    }

    #[test]
    fn a_directory_to_work_in_is_granted_as_long_as_it_is_what_it_was() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (outer, keys) = (home.join("outer"), home.join("keys"));
        let work = outer.join("job");
        for dir in [&work, &keys] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(keys.join("key"), "a secret").unwrap();
        std::os::unix::fs::symlink(&outer, home.join("link")).unwrap();
        // Named by a link, which is resolved here and never again.
        let dirs = InstanceDirs::of_work(&[&home.join("link/job")]);
        // A manifest that names what is above it, and one that names nothing.
        for write in [vec!["~/outer".to_owned()], vec![]] {
            let permissions = Permissions {
                write,
                ..Permissions::default()
            };
            let grants = grants(&permissions, &dirs);
            let granted = || {
                granted_confinement(&grants, Some(&home), &[])
                    .unwrap()
                    .write
            };
            let withheld = || {
                refused_dirs(&dirs, &[])
                    .map(|(_, why)| why)
                    .collect::<Vec<_>>()
            };
            assert!(granted().contains(&work) && withheld().is_empty());
            for exchanged in [keys.clone(), keys.join("key")] {
                std::fs::remove_dir(&work).unwrap();
                std::os::unix::fs::symlink(exchanged, &work).unwrap();
                assert!(!granted().iter().any(|dir| dir.starts_with(&keys)));
                assert!(!granted().contains(&work));
                assert_eq!(withheld(), [DirRefusal::Replaced]);
                std::fs::remove_file(&work).unwrap();
                std::fs::create_dir(&work).unwrap();
            }
            std::fs::remove_dir(&work).unwrap();
            std::fs::hard_link(keys.join("key"), &work).unwrap();
            assert!(!granted().contains(&work));
            assert_eq!(withheld(), [DirRefusal::Replaced]);
            std::fs::remove_file(&work).unwrap();
            std::fs::create_dir(&work).unwrap();
        }
    }

    #[test]
    fn a_skill_folder_that_became_a_link_is_none() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let (skill, keys) = (home.join("skill"), home.join("keys"));
        std::fs::create_dir(&keys).unwrap();
        std::os::unix::fs::symlink(&keys, &skill).unwrap();
        let dirs = InstanceDirs {
            folders: vec![skill, keys.clone()],
            ..InstanceDirs::default()
        };
        let granted =
            granted_confinement(&grants(&Permissions::default(), &dirs), None, &[]).unwrap();
        assert_eq!(granted.read, [keys]);
    }
}
