//! What a container works with: the session's directory, its skills, the agent, and as whom.
//!
//! Where the engine sees this machine's files they are mounted. Elsewhere the session has two
//! volumes, one to work in and one to read, which are filled through a container that is never
//! started.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Component, Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountTmpfsOptions, MountType, MountVolumeOptions,
    VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, RemoveVolumeOptions, UploadToContainerOptionsBuilder,
};
use conjure_skill_sdk::protocol::SkillMount;
use conjure_skill_sdk::{Error, Result};

use crate::config::DockerSettings;
use crate::engine::{Engine, engine_error};
use crate::owner::{ContainerOwner, remove_container};
use crate::skills;

/// Working directory of commands.
pub(crate) const WORKSPACE: &str = "/workspace";
/// Directory of the skills.
pub(crate) const SKILLS: &str = "/mnt/skills";
/// Path of the agent.
pub(crate) const AGENT: &str = "/mnt/conjure/agent";
/// The only other place that can be written to.
pub(crate) const TMP: &str = "/tmp";

const BIN: &str = "/mnt/conjure";
const READ_ONLY: &str = "/mnt";

/// How much what lies over a private directory could hold; nothing is written there.
const COVER_BYTES: i64 = 64 * 1024;

/// Nobody on any system.
const NOBODY: u32 = 65_534;

/// Directories that a session brings along.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionMounts {
    pub(crate) working_dir: PathBuf,
    pub(crate) skills: Vec<SkillMount>,
    pub(crate) env: Vec<(String, String)>,
}

/// What a container mounts, and as whom it runs.
#[derive(Debug, Clone)]
pub(crate) struct ContainerMounts {
    pub(crate) user: String,
    pub(crate) userns: Option<String>,
    source: MountSource,
}

#[derive(Debug, Clone)]
enum MountSource {
    /// From this machine: each with its place inside, and whether it can be written to.
    Local {
        working_dir: PathBuf,
        mounts: Vec<(PathBuf, String, bool)>,
        /// What of the working directory is not for the container: where it is on this machine.
        private: Vec<PathBuf>,
    },
    /// Volumes of the engine's.
    Volumes(Volumes),
}

/// The volumes of a session.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    work: String,
    read_only: String,
}

impl ContainerMounts {
    /// Mounts of directories of this machine.
    pub(crate) fn from_directories(
        engine: &Engine,
        settings: &DockerSettings,
        owner: &ContainerOwner,
        session: &str,
        session_mounts: &SessionMounts,
    ) -> Result<Self> {
        let (user, userns) = match &settings.user {
            Some(user) => (user.clone(), None),
            None => container_user(engine, &session_mounts.working_dir)?,
        };
        let private = private_below(&session_mounts.working_dir, owner)?;
        let mut mounts = vec![
            (
                session_mounts.working_dir.clone(),
                WORKSPACE.to_owned(),
                true,
            ),
            (owner.bin(), BIN.to_owned(), false),
        ];
        for skill in &session_mounts.skills {
            let dir = Path::new(&skill.dir);
            let dir = match rustix::process::geteuid().is_root() {
                true => {
                    let copies = owner.copies(session);
                    let copied = tokio::task::block_in_place(|| {
                        skills::readable(dir, &copies, &skill.name, ids(&user).0)
                    });
                    copied.map_err(|error| {
                        let name = &skill.name;
                        Error::new(format!("the skill `{name}` cannot be mounted: {error}"))
                    })?
                }
                false => dir.to_owned(),
            };
            mounts.push((dir, format!("{SKILLS}/{}", skill.name), false));
        }
        Ok(Self {
            user,
            userns,
            source: MountSource::Local {
                working_dir: session_mounts.working_dir.clone(),
                mounts,
                private,
            },
        })
    }

    /// Volumes, which are there already.
    pub(crate) fn volumes(settings: &DockerSettings, volumes: &Volumes) -> Self {
        Self {
            user: volume_user(settings),
            userns: None,
            source: MountSource::Volumes(volumes.clone()),
        }
    }

    /// Whether the mounts are directories of this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.source, MountSource::Local { .. })
    }

    /// Mounts one more of this machine's directories.
    pub(crate) fn add(&mut self, mount: (PathBuf, String, bool)) {
        if let MountSource::Local { mounts, .. } = &mut self.source {
            mounts.push(mount);
        }
    }

    /// The numbers of the user and the group.
    pub(crate) fn ids(&self) -> (u32, u32) {
        ids(&self.user)
    }

    /// The mounts for the engine. Directories that are to be relabelled are told in another way.
    pub(crate) fn engine_mounts(&self, relabel: bool) -> (Vec<Mount>, Vec<String>) {
        let mount = |kind, source: &str, target: &str, writable: bool| Mount {
            typ: Some(kind),
            source: Some(source.to_owned()),
            target: Some(target.to_owned()),
            read_only: Some(!writable),
            volume_options: (kind == MountType::VOLUME).then(|| MountVolumeOptions {
                no_copy: Some(true),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        };
        // Something empty lies over what is private.
        let cover = |working_dir: &Path, path: &PathBuf| -> Option<Mount> {
            let target = container_path(working_dir, path)?;
            if !path.is_dir() {
                return Some(mount(MountType::BIND, "/dev/null", &target, false));
            }
            Some(Mount {
                typ: Some(MountType::TMPFS),
                target: Some(target),
                read_only: Some(true),
                tmpfs_options: Some(MountTmpfsOptions {
                    size_bytes: Some(COVER_BYTES),
                    ..MountTmpfsOptions::default()
                }),
                ..Mount::default()
            })
        };
        let covers: Vec<Mount> = match &self.source {
            MountSource::Local {
                working_dir,
                private,
                ..
            } => private
                .iter()
                .filter_map(|path| cover(working_dir, path))
                .collect(),
            MountSource::Volumes(_) => Vec::new(),
        };
        match &self.source {
            MountSource::Local { mounts, .. } if relabel => {
                let binds = mounts.iter().map(|(from, to, writable)| {
                    let mode = if *writable { "rw" } else { "ro" };
                    format!("{}:{to}:{mode},z", from.display())
                });
                (covers, binds.collect())
            }
            MountSource::Local { mounts, .. } => {
                let mounts = mounts.iter().map(|(from, to, writable)| {
                    mount(MountType::BIND, &from.to_string_lossy(), to, *writable)
                });
                (mounts.chain(covers).collect(), Vec::new())
            }
            MountSource::Volumes(Volumes { work, read_only }) => (
                vec![
                    mount(MountType::VOLUME, work, WORKSPACE, true),
                    mount(MountType::VOLUME, read_only, READ_ONLY, false),
                ],
                Vec::new(),
            ),
        }
    }

    /// A path of the container's as this machine has it, when it has it.
    pub(crate) fn local_path(&self, path: &str) -> Option<PathBuf> {
        let MountSource::Local {
            working_dir,
            private,
            ..
        } = &self.source
        else {
            return None;
        };
        let below = Path::new(path).strip_prefix(WORKSPACE).ok()?;
        let plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let here = working_dir.join(below);
        (plain && !private.iter().any(|path| here.starts_with(path))).then_some(here)
    }

    /// The first directory that it mounts and this machine does not have.
    pub(crate) fn missing_directory(&self) -> Option<&Path> {
        let MountSource::Local { mounts, .. } = &self.source else {
            return None;
        };
        let places = mounts.iter().map(|(path, ..)| path.as_path());
        places.into_iter().find(|path| !path.is_dir())
    }

    /// A path of this machine's as the container has it, when it is mounted there to work in.
    pub(crate) fn path_in_container(&self, path: &Path) -> Option<String> {
        let MountSource::Local { working_dir, .. } = &self.source else {
            return None;
        };
        container_path(working_dir, path)
    }
}

/// A path of the working directory as the container has it.
fn container_path(working_dir: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(working_dir).ok()?.to_str()?;
    Some(format!("{WORKSPACE}/{below}"))
}

/// What of the host is below a working directory, as that is named.
fn private_below(working_dir: &Path, owner: &ContainerOwner) -> Result<Vec<PathBuf>> {
    let real = working_dir
        .canonicalize()
        .unwrap_or_else(|_| working_dir.to_owned());
    let private = owner.private();
    if private.contains(&real) {
        return Err(Error::new(format!(
            "the working directory {} is the host's own directory, with its key: no container gets \
             it. Work in another directory",
            working_dir.display()
        )));
    }
    let mut below: Vec<PathBuf> = private
        .iter()
        .filter_map(|path| path.strip_prefix(&real).ok())
        .map(|path| working_dir.join(path))
        .collect();
    below.sort();
    // What lies in a covered directory needs no cover.
    below.dedup_by(|inner, outer| inner.starts_with(outer));
    Ok(below)
}

fn volume_user(settings: &DockerSettings) -> String {
    let nobody = || format!("{NOBODY}:{NOBODY}");
    settings.user.clone().unwrap_or_else(nobody)
}

/// As whom a container works in a directory of this machine.
fn container_user(engine: &Engine, working_dir: &Path) -> Result<(String, Option<String>)> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    if uid != 0 {
        return Ok(match (engine.rootless, engine.podman) {
            (true, true) => (format!("{uid}:{gid}"), Some("keep-id".to_owned())),
            // The first user inside is this user outside, and has no capability at all.
            (true, false) => ("0:0".to_owned(), None),
            (false, _) => (format!("{uid}:{gid}"), None),
        });
    }
    let unusable = |error: io::Error| {
        Error::new(format!(
            "the working directory {} cannot be used: {error}",
            working_dir.display()
        ))
    };
    let found = fs::metadata(working_dir).map_err(unusable)?;
    if found.uid() != 0 {
        return Ok((format!("{}:{}", found.uid(), found.gid()), None));
    }
    if is_system_dir(working_dir) {
        return Err(Error::new(format!(
            "the working directory {} is root's own, and containers do not run as root. Work in a \
             directory below it, or give the directory to another user",
            working_dir.display()
        )));
    }
    chown(working_dir, Some(NOBODY), Some(NOBODY)).map_err(unusable)?;
    Ok((format!("{NOBODY}:{NOBODY}"), None))
}

/// Whether giving a directory to somebody else would do harm.
fn is_system_dir(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let home = std::env::home_dir().is_some_and(|home| home.starts_with(&dir));
    home || dir.components().count() <= 2
}

impl Volumes {
    /// Makes and fills them.
    pub(crate) async fn make(
        engine: &Engine,
        settings: &DockerSettings,
        owner: &ContainerOwner,
        session: &str,
        session_mounts: &SessionMounts,
    ) -> Result<Self> {
        let name = uuid::Uuid::now_v7().simple();
        let volumes = Self {
            work: format!("conjure-work-{name}"),
            read_only: format!("conjure-mnt-{name}"),
        };
        let failed = |error| engine_error("making a volume", &settings.image, &error);
        let making = async {
            for name in [&volumes.work, &volumes.read_only] {
                let request = VolumeCreateRequest {
                    name: Some(name.clone()),
                    labels: Some(owner.labels(session)),
                    ..VolumeCreateRequest::default()
                };
                engine.docker.create_volume(request).await.map_err(failed)?;
            }
            volumes
                .fill(engine, settings, owner, session, session_mounts)
                .await
        };
        let made = making.await;
        if made.is_err() {
            volumes.remove(engine).await;
        }
        made.map(|()| volumes)
    }

    async fn fill(
        &self,
        engine: &Engine,
        settings: &DockerSettings,
        owner: &ContainerOwner,
        session: &str,
        session_mounts: &SessionMounts,
    ) -> Result<()> {
        let failed = |error| engine_error("filling a volume", &settings.image, &error);
        let user = volume_user(settings);
        let unreadable = |error| Error::new(format!("the skills cannot be read: {error}"));
        let agent = owner.bin().join(owner.program());
        let read_only = tokio::task::block_in_place(|| read_only(&agent, session_mounts));
        let read_only = read_only.map_err(unreadable)?;
        // Docker gives a directory's owner to what is inside the place that is named, Podman looks
        // for the volume behind that very place.
        let (place, name) = match engine.podman {
            true => (WORKSPACE, "./"),
            false => ("/", WORKSPACE.trim_start_matches('/')),
        };
        let work = work(&user, name).map_err(unreadable)?;
        let archives = [(READ_ONLY, read_only), (place, work)];
        let mounts = [(&self.work, WORKSPACE), (&self.read_only, READ_ONLY)];
        let mounts = mounts.map(|(name, target)| Mount {
            typ: Some(MountType::VOLUME),
            source: Some(name.clone()),
            target: Some(target.to_owned()),
            ..Mount::default()
        });
        let body = ContainerCreateBody {
            image: Some(settings.image.clone()),
            entrypoint: Some(vec![AGENT.to_owned()]),
            labels: Some(owner.labels(session)),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                mounts: Some(mounts.to_vec()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        // By a name of ours it can be removed, also when its making was not answered.
        let id = format!("conjure-fill-{}", uuid::Uuid::now_v7().simple());
        let options = CreateContainerOptionsBuilder::new().name(&id).build();
        let made = engine.docker.create_container(Some(options), body).await;
        let mut done = made.map(drop);
        for (place, archive) in archives {
            let options = UploadToContainerOptionsBuilder::new().path(place).build();
            if done.is_err() {
                break;
            }
            let body = bollard::body_full(archive.into());
            let uploaded = engine
                .docker
                .upload_to_container(&id, Some(options), body)
                .await;
            done = uploaded;
        }
        remove_container(engine, &id).await;
        done.map_err(failed)
    }

    /// Removes them, and says whether they are gone.
    pub(crate) async fn remove(&self, engine: &Engine) -> bool {
        let mut gone = true;
        for name in [&self.work, &self.read_only] {
            let none = None::<RemoveVolumeOptions>;
            let removed = engine.docker.remove_volume(name, none).await;
            gone &= removed.is_ok_and(|()| true);
        }
        gone
    }
}

/// `uid` or `uid:gid` as numbers; a user alone has the group with its number.
fn ids(user: &str) -> (u32, u32) {
    let mut ids = user.split(':').map(|id| id.parse().unwrap_or(NOBODY));
    let uid = ids.next().unwrap_or(NOBODY);
    (uid, ids.next().unwrap_or(uid))
}

/// The agent and the skills, below the place that is read only.
fn read_only(agent: &Path, session_mounts: &SessionMounts) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    for place in [BIN, SKILLS] {
        archive.append_data(&mut directory((0, 0)), in_archive(place), io::empty())?;
    }
    archive.append_path_with_name(agent, in_archive(AGENT))?;
    let mut room = skills::MAX_BYTES;
    for skill in &session_mounts.skills {
        let place = format!("{SKILLS}/{}", skill.name);
        skills::fits(Path::new(&skill.dir), &mut room)?;
        archive.append_dir_all(in_archive(&place), &skill.dir)?;
    }
    archive.into_inner()
}

/// A working directory that belongs to `user`, with nothing in it.
fn work(user: &str, name: &str) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut directory(ids(user)), name, io::empty())?;
    archive.into_inner()
}

fn directory((uid, gid): (u32, u32)) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header.set_size(0);
    header
}

fn in_archive(place: &str) -> &str {
    let below = place.strip_prefix(READ_ONLY).unwrap_or(place);
    below.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_of_the_work_directory_are_on_this_machine() {
        let container = ContainerMounts {
            user: String::new(),
            userns: None,
            source: MountSource::Local {
                working_dir: PathBuf::from("/home/me/project"),
                mounts: Vec::new(),
                private: Vec::new(),
            },
        };
        assert_eq!(
            container.local_path("/workspace/a/b"),
            Some(PathBuf::from("/home/me/project/a/b"))
        );
        for path in ["/workspace/../x", "/tmp/x", "/workspacex/a", "a"] {
            assert_eq!(container.local_path(path), None, "{path}");
        }
    }

    #[test]
    fn something_empty_lies_over_what_is_private_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join(".local/share/conjure");
        fs::create_dir_all(&data).unwrap();
        let key = dir.path().join("my.key");
        fs::write(&key, "k").unwrap();
        let container = ContainerMounts {
            user: String::new(),
            userns: None,
            source: MountSource::Local {
                working_dir: dir.path().to_owned(),
                mounts: vec![(dir.path().to_owned(), WORKSPACE.to_owned(), true)],
                private: vec![data, key],
            },
        };
        for relabel in [false, true] {
            let (mounts, _) = container.engine_mounts(relabel);
            let covers = |kind, target: &str| {
                let target = format!("{WORKSPACE}/{target}");
                mounts.iter().any(|mount| {
                    mount.typ == Some(kind)
                        && mount.target.as_deref() == Some(&target)
                        && mount.read_only == Some(true)
                })
            };
            assert!(covers(MountType::TMPFS, ".local/share/conjure"));
            assert!(covers(MountType::BIND, "my.key"));
        }
        for path in [".local/share/conjure/vault.key", "my.key"] {
            assert_eq!(container.local_path(&format!("{WORKSPACE}/{path}")), None);
        }
    }

    #[test]
    fn roots_own_directories_are_not_given_away() {
        for dir in ["/", "/etc", "/home"] {
            assert!(is_system_dir(Path::new(dir)), "{dir}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_system_dir(dir.path()));
    }
}
