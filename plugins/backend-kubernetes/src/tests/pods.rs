//! What the server's pods are: processes of this machine in namespaces of their own, and statuses as
//! a cluster shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// Puts each first directory of a pair, up to `--`, in the place of the second one, and becomes the rest.
const MOUNTS: &str = "while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\" || exit; shift 2; done; \
                      shift; exec \"$@\"";

/// A pod whose first process runs. It ends with all its processes when this is dropped.
pub(super) struct RunningPod {
    first: Child,
    /// Number that the pod's first process has on this machine.
    pid: u32,
    env: Vec<(String, String)>,
    dirs: Vec<PathBuf>,
}

impl RunningPod {
    /// Runs it. Its mounts are directories of this machine where they say, which one pod alone can have
    /// at a time; or lead to directories of its own below `volumes`.
    pub(super) fn new(pod: &Value, volumes: Option<&Path>) -> Self {
        let container = &pod["spec"]["containers"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mounts = container["volumeMounts"].as_array().unwrap();
        let dirs = mounts
            .iter()
            .map(|mount| PathBuf::from(text(&mount["mountPath"])));
        let dirs: Vec<PathBuf> = dirs.filter(|dir| dir != Path::new("/tmp")).collect();
        let own = volumes.map(|volumes| volumes.join(text(&pod["metadata"]["name"])));
        let mut pairs = Vec::new();
        for (number, dir) in dirs.iter().enumerate() {
            assert!(dir.starts_with(std::env::temp_dir()), "{}", dir.display());
            fs::create_dir_all(dir).unwrap();
            if let Some(own) = &own {
                let volume = own.join(number.to_string());
                fs::create_dir_all(&volume).unwrap();
                pairs.extend([volume, dir.clone()]);
            }
        }
        let env = container["env"].as_array().unwrap().iter();
        let env = env
            .map(|set| (text(&set["name"]), text(&set["value"])))
            .collect();
        let words: Vec<String> = container["command"]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect();
        let first = Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--mount",
                "--mount-proc",
                "--kill-child",
                "--",
            ])
            .args(["sh", "-c", MOUNTS, "sh"])
            .args(&pairs)
            .arg("--")
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", first.id());
        let pid = loop {
            let found = fs::read_to_string(&children).unwrap();
            if let Some(pid) = found.split_whitespace().next()
                // It is the shell once it has its namespaces' own /proc.
                && fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().starts_with(&words[0])
            {
                break pid.parse().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        Self {
            first,
            pid,
            env,
            dirs: own.map_or(dirs, |own| vec![own]),
        }
    }

    /// A program in it.
    pub(super) fn command(&self, words: &[String]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("nsenter");
        command
            .arg("--target")
            .arg(self.pid.to_string())
            .args(["--pid", "--mount", "--"])
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(self.env.iter().cloned());
        command
    }

    /// The processes in it, as this machine numbers them, whose command line has this.
    pub(super) fn processes(&self, word: &str) -> Vec<i32> {
        let own = fs::read_link(format!("/proc/{}/ns/pid", self.pid)).unwrap();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_one = |pid: &i32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let inside = fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|ns| ns == own);
            inside && line.split('\0').any(|found| found == word)
        };
        numbers.filter(is_one).collect()
    }
}

impl Drop for RunningPod {
    fn drop(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
        for dir in &self.dirs {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// What the cluster says of a pod that is looked at so many times, by its image.
pub(super) fn status(pod: &Value, looks: usize) -> Value {
    let waiting = |reason: &str, message: &str| {
        json!({ "phase": "Pending", "containerStatuses": [{
            "name": "work", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": reason, "message": message } },
        }] })
    };
    match pod["spec"]["containers"][0]["image"].as_str().unwrap() {
        "unknown" if looks < 3 => waiting("ErrImagePull", "no such manifest: unknown"),
        "unknown" => waiting("ImagePullBackOff", "Back-off pulling image \"unknown\""),
        "broken" => json!({ "phase": "Failed", "containerStatuses": [{
            "name": "work", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "reason": "StartError", "exitCode": 128,
                "message": "exec: \"/bin/sh\": no such file" } },
        }] }),
        "large" => json!({ "phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory" }] }),
        "slow" => waiting("ContainerCreating", ""),
        _ if looks < 2 => json!({ "phase": "Pending" }),
        _ if looks < 3 => waiting("ContainerCreating", ""),
        _ => json!({ "phase": "Running", "containerStatuses": [{
            "name": "work", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": {} },
        }] }),
    }
}
