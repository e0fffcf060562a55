//! What a killed host must not leave behind: processes, by a mark in their environment, and
//! containers, by their label.

use std::path::Path;
use std::time::{Duration, Instant};

use conjure_kit::Engine;

/// How long what a host began may take to end after the host.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often is looked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What is to end after a kill.
#[derive(Debug)]
pub(crate) struct Leftovers {
    mark: String,
    containers: Vec<String>,
    killed: Instant,
}

impl Leftovers {
    /// The leftovers of the host that had this mark and was killed just now.
    pub(crate) fn of(mark: String, engine: Option<&Engine>, data_dir: &Path) -> Self {
        Self {
            mark,
            containers: engine.map_or_else(Vec::new, |engine| containers(engine, data_dir)),
            killed: Instant::now(),
        }
    }

    /// Waits until all of it is gone, and says what is not.
    pub(crate) fn wait_until_gone(&self, engine: Option<&Engine>, data_dir: &Path) -> Vec<String> {
        loop {
            let mut left = processes(&self.mark);
            if let Some(engine) = engine.filter(|_| !self.containers.is_empty()) {
                let there = containers(engine, data_dir);
                let kept = self.containers.iter().filter(|id| there.contains(id));
                left.extend(kept.map(|id| format!("container {id}")));
            }
            if left.is_empty() || self.killed.elapsed() > EXIT_TIMEOUT {
                return left;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The containers of a host's directory. An engine that does not answer has none to show.
pub(crate) fn containers(engine: &Engine, data_dir: &Path) -> Vec<String> {
    let label = format!("io.conjure.host={}", data_dir.display());
    engine.containers(&label).unwrap_or_default()
}

/// The processes with a mark in their environment: number and command line.
fn processes(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let path = entry.path();
        let environ = std::fs::read(path.join("environ")).ok()?;
        let has_mark = environ
            .windows(mark.len())
            .any(|part| part == mark.as_bytes());
        has_mark.then(|| {
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let line: String = line.chars().take(120).collect();
            format!("process {} ({line})", entry.file_name().display())
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_with_the_mark_is_seen_until_it_ends() {
        let mark = format!("conjure-chaos-test-{}", std::process::id());
        let mut child = Command::new("sleep")
            .arg("60")
            .env("MARKED", &mark)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + EXIT_TIMEOUT;
        while processes(&mark).is_empty() {
            assert!(Instant::now() < until, "it is not seen");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let left = Leftovers {
            mark,
            containers: Vec::new(),
            killed: Instant::now(),
        };
        assert_eq!(
            left.wait_until_gone(None, Path::new("/")),
            Vec::<String>::new()
        );
    }
}
