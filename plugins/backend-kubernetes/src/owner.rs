//! Ownership of pods, and what is left of hosts that are gone.
//!
//! A host holds a lock in a directory of its own, and its pods name that directory and the data that
//! all such directories lie in by labels. Only pods of the same data whose host holds no lock are
//! anybody's to remove.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_skill_sdk::{Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use crate::cluster::Cluster;
use crate::data_dir_identity::data_dir_identity;
use crate::retry::ask;

/// The label that names the host.
const HOST_LABEL: &str = "io.conjure/host";
/// The label that names the data of hosts.
const DATA_LABEL: &str = "io.conjure/data";
/// The annotation that names the session.
pub(crate) const SESSION_ANNOTATION: &str = "io.conjure/session";

/// How long the cluster may take to take a deletion.
const DELETE_TIMEOUT: Duration = Duration::from_secs(15);
/// Grace period of a pod's end, in seconds.
const GRACE_SECONDS: u32 = 1;

const LOCK_FILE: &str = "lock";
/// What the name of a directory begins with that is no host's yet.
const TEMPORARY_PREFIX: &str = "making-";

/// Whether a label says whose a pod is.
pub(crate) fn is_owner_label(label: &str) -> bool {
    label.starts_with("io.conjure/")
}

/// Identity of this host in the labels of its pods.
#[derive(Debug)]
pub(crate) struct PodOwner {
    /// The directory of all hosts with the same data.
    hosts_dir: PathBuf,
    /// The name of that data, which no other has.
    data: String,
    name: String,
    /// Held for as long as this lives.
    _lock: File,
}

impl PodOwner {
    /// A new owner. `data_dir` outlives the host.
    pub(crate) fn new(data_dir: &Path) -> Result<Self> {
        let all = data_dir.join("hosts");
        let name = uuid::Uuid::now_v7().simple().to_string();
        let made = || -> io::Result<(String, File)> {
            // It gets its name when its lock is held: nobody sees it without.
            let making = all.join(format!("{TEMPORARY_PREFIX}{name}"));
            fs::create_dir_all(&making)?;
            let lock = File::create(making.join(LOCK_FILE))?;
            lock.lock()?;
            fs::rename(&making, all.join(&name))?;
            Ok((data_dir_identity(data_dir)?, lock))
        };
        match made() {
            Ok((data, lock)) => Ok(Self {
                hosts_dir: all,
                data,
                name,
                _lock: lock,
            }),
            Err(error) => Err(Error::new(format!(
                "the directory {} cannot be used: {error}",
                all.display()
            ))),
        }
    }

    /// What this host's pods are labelled with.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (HOST_LABEL.to_owned(), self.name.clone()),
            (DATA_LABEL.to_owned(), self.data.clone()),
            (
                "app.kubernetes.io/managed-by".to_owned(),
                "conjure".to_owned(),
            ),
        ])
    }

    /// Deletes what hosts of the same data left behind that are gone, and says how many pods that
    /// were.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub(crate) async fn remove_leftovers(&self, cluster: &Cluster) -> Result<usize, kube::Error> {
        let ours = ListParams::default().labels(&format!("{DATA_LABEL}={}", self.data));
        let listing = Box::pin(ask(DELETE_TIMEOUT, || Box::pin(cluster.pods.list(&ours))));
        // One that says nothing is asked again with the next session.
        let pods = listing.await.unwrap_or_else(|| Err(timeout_error()))?;
        let mut removed = 0;
        let mut kept = Vec::new();
        for pod in pods {
            let Some(host) = self.dead_owner(&pod) else {
                continue;
            };
            let name = pod.metadata.name.unwrap_or_default();
            match delete(&cluster.pods, &name).await {
                Deletion::Accepted | Deletion::NotFound => removed += 1,
                Deletion::Failed => kept.push(host),
            }
        }
        self.remove_directories(&kept);
        Ok(removed)
    }

    /// The name of the host that a pod names, if it is one of ours and is gone.
    fn dead_owner(&self, pod: &Pod) -> Option<String> {
        let labels = pod.metadata.labels.as_ref()?;
        let host = labels.get(HOST_LABEL)?;
        let ours = labels.get(DATA_LABEL) == Some(&self.data) && *host != self.name;
        // A label's value is no path.
        let plain = host.chars().all(|c| c.is_ascii_alphanumeric());
        (ours && plain && !self.is_alive(host)).then(|| host.clone())
    }

    /// Whether a host lives, or nobody knows: only one whose lock is gone or free is dead.
    fn is_alive(&self, name: &str) -> bool {
        match File::open(self.hosts_dir.join(name).join(LOCK_FILE)) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Removes the directories of hosts that are gone and have left nothing in this namespace. A
    /// pod of one is somebody's to remove also without it.
    fn remove_directories(&self, kept: &[String]) {
        let names = fs::read_dir(&self.hosts_dir)
            .into_iter()
            .flatten()
            .flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            let other = name != self.name && !kept.contains(&name);
            if other && !name.starts_with(TEMPORARY_PREFIX) && !self.is_alive(&name) {
                let _ = fs::remove_dir_all(self.hosts_dir.join(&name));
            }
        }
    }
}

impl Drop for PodOwner {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.hosts_dir.join(&self.name));
    }
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The cluster does it.
    Accepted,
    /// The pod does not exist, or not yet.
    NotFound,
    /// The cluster refused or did not answer, so the pod may still be there.
    Failed,
}

/// Deletes a pod.
pub(crate) async fn delete(pods: &Api<Pod>, name: &str) -> Deletion {
    let soon = DeleteParams::default().grace_period(GRACE_SECONDS);
    let deleting = Box::pin(ask(DELETE_TIMEOUT, || Box::pin(pods.delete(name, &soon))));
    match deleting.await {
        Some(Ok(_)) => Deletion::Accepted,
        Some(Err(kube::Error::Api(status))) if status.code == 404 => Deletion::NotFound,
        Some(Err(_)) | None => Deletion::Failed,
    }
}

fn timeout_error() -> kube::Error {
    kube::Error::Service("the cluster does not answer in time".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: BTreeMap<String, String>) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.labels = Some(labels);
        pod
    }

    #[test]
    fn only_what_a_gone_host_of_the_same_data_left_is_a_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let ours = PodOwner::new(dir.path()).unwrap();
        let living = PodOwner::new(dir.path()).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = PodOwner::new(elsewhere.path()).unwrap();
        for owner in [&ours, &living, &other] {
            assert_eq!(ours.dead_owner(&pod(owner.labels())), None);
        }
        assert_eq!(ours.dead_owner(&Pod::default()), None);
        let labels = living.labels();
        let name = living.name.clone();
        let mut path = labels.clone();
        path.insert(HOST_LABEL.to_owned(), "../x".to_owned());
        assert_eq!(ours.dead_owner(&pod(path)), None);
        drop((living, other));
        assert_eq!(ours.dead_owner(&pod(labels)), Some(name));
    }

    #[test]
    fn a_copied_data_directory_takes_no_pod_of_a_living_host() {
        let dir = tempfile::tempdir().unwrap();
        let living = PodOwner::new(dir.path()).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(dir.path().join("."))
            .arg(copy.path())
            .status();
        assert!(copied.unwrap().success());
        assert!(copy.path().join("hosts").join(&living.name).exists());
        let ours = PodOwner::new(copy.path()).unwrap();
        assert_eq!(ours.dead_owner(&pod(living.labels())), None);
        // Where the directory is still the same one, it is known again.
        let moved = copy.path().with_extension("moved");
        fs::rename(copy.path(), &moved).unwrap();
        let later = PodOwner::new(&moved).unwrap();
        let same = later.data == ours.data;
        fs::rename(&moved, copy.path()).unwrap();
        assert!(same);
    }

    #[test]
    fn a_killed_hosts_directory_goes_and_a_living_ones_stays() {
        let dir = tempfile::tempdir().unwrap();
        let killed = dir.path().join("hosts/killed");
        fs::create_dir_all(&killed).unwrap();
        fs::write(killed.join(LOCK_FILE), "").unwrap();
        let living = PodOwner::new(dir.path()).unwrap();
        let ours = PodOwner::new(dir.path()).unwrap();
        ours.remove_directories(&[]);
        assert!(!killed.exists() && ours.is_alive(&living.name));
        assert_eq!(ours.data, living.data);
    }
}
