//! Ownership of containers, so that what a killed host left behind is found and removed.
//!
//! A host holds a lock on a file of its own for as long as it lives; the kernel lets go of it,
//! whatever ends the host. Containers and volumes say which file that is. Containers end with the
//! stream to their host anyway; this finds those that could not.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveVolumeOptions,
};
use conjure_exec_agent::private::PrivatePaths;
use conjure_skill_sdk::{Error, Result};

use crate::engine::Engine;
use crate::modes;

/// The label that names the host: `<directory of all hosts>/<one host>`.
pub(crate) const OWNER_LABEL: &str = "io.conjure.host";
/// The label that names the session.
pub(crate) const SESSION_LABEL: &str = "io.conjure.session";

/// How long the engine may take to remove a container.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(15);

const LOCK_FILE: &str = "lock";
const PROGRAM_FILE: &str = "agent";

/// Identity of the host, as its containers name it.
#[derive(Debug)]
pub(crate) struct ContainerOwner {
    /// The directory of all hosts with the same data.
    hosts_dir: PathBuf,
    name: String,
    /// What of the host no container sees.
    private: PrivatePaths,
    /// Held for as long as this lives.
    _lock: File,
}

impl ContainerOwner {
    /// A new owner. `data_dir` outlives the host.
    pub(crate) fn new(data_dir: &Path, agent: &[u8]) -> Result<Self> {
        let all = data_dir.join("hosts");
        let name = uuid::Uuid::now_v7().to_string();
        let made = || -> io::Result<File> {
            let dir = all.join(&name);
            fs::create_dir_all(&dir)?;
            let lock = File::create(dir.join(LOCK_FILE))?;
            lock.lock()?;
            // What is mounted into containers, which run as another user.
            let shared = dir.join("bin");
            modes::make_dir(&shared)?;
            modes::make_program(&shared.join(PROGRAM_FILE), agent)?;
            Ok(lock)
        };
        match made() {
            Ok(lock) => Ok(Self {
                hosts_dir: all.canonicalize().unwrap_or(all),
                name,
                private: PrivatePaths::of(Some(data_dir), &[]),
                _lock: lock,
            }),
            Err(error) => Err(Error::new(format!(
                "the directory {} cannot be used: {error}",
                all.display()
            ))),
        }
    }

    /// What of the host no container sees, without any link in it, as far as it is there.
    pub(crate) fn private(&self) -> Vec<PathBuf> {
        let there = self.private.iter();
        there.filter_map(|path| path.canonicalize().ok()).collect()
    }

    /// The directory with the agent in it.
    pub(crate) fn bin(&self) -> PathBuf {
        self.hosts_dir.join(&self.name).join("bin")
    }

    /// The directory of the sockets that wait for agents.
    pub(crate) fn links(&self) -> PathBuf {
        self.hosts_dir.join(&self.name).join("links")
    }

    /// Where copies of a session's skills go.
    pub(crate) fn copies(&self, session: &str) -> PathBuf {
        // A session's id is the host's word, and no path.
        let session: String = session
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        self.hosts_dir
            .join(&self.name)
            .join(format!("skills-{session}"))
    }

    /// The agent's name in that directory.
    pub(crate) fn program(&self) -> &'static str {
        PROGRAM_FILE
    }

    /// What this host's containers and volumes are labelled with.
    pub(crate) fn labels(&self, session: &str) -> HashMap<String, String> {
        HashMap::from([
            (OWNER_LABEL.to_owned(), self.label(&self.name)),
            (SESSION_LABEL.to_owned(), session.to_owned()),
        ])
    }

    fn label(&self, name: &str) -> String {
        self.hosts_dir.join(name).display().to_string()
    }

    /// Removes what hosts that are gone left behind: containers, volumes, and their directories.
    pub(crate) async fn remove_leftovers(&self, engine: &Engine) -> usize {
        let mut removed = 0;
        let mut failed = Vec::new();
        let filter = HashMap::from([("label", vec![OWNER_LABEL])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filter)
            .build();
        for container in engine
            .docker
            .list_containers(Some(options))
            .await
            .unwrap_or_default()
        {
            let labels = container.labels.unwrap_or_default();
            let (Some(id), Some(owner)) = (container.id, self.dead_owner(&labels)) else {
                continue;
            };
            if remove_container(engine, &id).await {
                removed += 1;
            } else {
                failed.push(owner);
            }
        }
        let options = ListVolumesOptionsBuilder::new().filters(&filter).build();
        let volumes = engine.docker.list_volumes(Some(options)).await;
        let volumes = volumes.ok().and_then(|list| list.volumes);
        for volume in volumes.unwrap_or_default() {
            let Some(owner) = self.dead_owner(&volume.labels) else {
                continue;
            };
            let none = None::<RemoveVolumeOptions>;
            match engine.docker.remove_volume(&volume.name, none).await {
                Ok(()) => removed += 1,
                Err(_) => failed.push(owner),
            }
        }
        self.remove_directories(&failed);
        removed
    }

    /// The name of the host that these labels name, if it is one of ours and is gone.
    fn dead_owner(&self, labels: &HashMap<String, String>) -> Option<String> {
        let label = Path::new(labels.get(OWNER_LABEL)?);
        let name = label.file_name()?.to_str()?;
        let ours = label.parent()? == self.hosts_dir && name != self.name;
        (ours && !self.is_alive(name)).then(|| name.to_owned())
    }

    /// Whether a host lives, or nobody knows: only one whose lock is gone or free is dead.
    fn is_alive(&self, name: &str) -> bool {
        match File::open(self.hosts_dir.join(name).join(LOCK_FILE)) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn remove_directories(&self, failed: &[String]) {
        let names = fs::read_dir(&self.hosts_dir)
            .into_iter()
            .flatten()
            .flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            let other = name != self.name && !failed.contains(&name);
            // A host that has just made its directory does not hold its lock yet.
            let settled = self
                .hosts_dir
                .join(&name)
                .join("bin")
                .join(PROGRAM_FILE)
                .exists();
            if other && settled && !self.is_alive(&name) {
                let _ = fs::remove_dir_all(self.hosts_dir.join(&name));
            }
        }
    }
}

impl Drop for ContainerOwner {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.hosts_dir.join(&self.name));
    }
}

/// Removes a container with everything in it, and says whether it is gone.
pub(crate) async fn remove_container(engine: &Engine, id: &str) -> bool {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true);
    let removing = engine.docker.remove_container(id, Some(options.build()));
    let Ok(removed) = tokio::time::timeout(REMOVE_TIMEOUT, removing).await else {
        return false;
    };
    match removed {
        Ok(()) => true,
        Err(error) => {
            // Somebody else removes it right now, such as the engine itself.
            let text = error.to_string();
            crate::engine::is_missing(&error) || text.contains("already in progress")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_gone_host_of_ours_left_is_a_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let ours = ContainerOwner::new(dir.path(), b"x").unwrap();
        let living = ContainerOwner::new(dir.path(), b"x").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = ContainerOwner::new(elsewhere.path(), b"x").unwrap();
        assert_eq!(ours.dead_owner(&ours.labels("s")), None);
        assert_eq!(ours.dead_owner(&living.labels("s")), None);
        assert_eq!(ours.dead_owner(&other.labels("s")), None);
        assert_eq!(ours.dead_owner(&HashMap::new()), None);
        let labels = living.labels("s");
        let name = living.name.clone();
        drop(living);
        assert_eq!(ours.dead_owner(&labels), Some(name));
    }

    #[test]
    fn a_killed_hosts_directory_goes_and_a_living_ones_stays() {
        let dir = tempfile::tempdir().unwrap();
        let killed = dir.path().join("hosts/killed");
        fs::create_dir_all(killed.join("bin")).unwrap();
        for name in [LOCK_FILE, "bin/agent"] {
            fs::write(killed.join(name), "").unwrap();
        }
        let living = ContainerOwner::new(dir.path(), b"x").unwrap();
        let ours = ContainerOwner::new(dir.path(), b"x").unwrap();
        ours.remove_directories(&[]);
        assert!(!killed.exists() && living.bin().exists() && ours.bin().exists());
    }
}
