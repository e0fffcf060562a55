//! What a process has, as the system tells: memory, descriptors, threads, children.

use std::fmt;
use std::fs;

use anyhow::{Context as _, Result};

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Snapshot {
    /// What it has written to and the system keeps for it (`RssAnon`): files that it only maps can
    /// be had again and do not count.
    pub(crate) memory_mib: f64,
    pub(crate) descriptors: usize,
    threads: usize,
    /// Processes that it began, and theirs.
    pub(crate) children: usize,
}

impl Snapshot {
    /// The process with this number.
    ///
    /// # Errors
    /// When there is none any more.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("there is no process {pid} any more"))?;
        let number = |name: &str| -> Result<usize> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words = line.and_then(|line| line.split_whitespace().next());
            let number = words.and_then(|word| word.parse().ok());
            number.with_context(|| format!("the system does not tell {name} of a process"))
        };
        Ok(Self {
            memory_mib: number("RssAnon:")? as f64 / 1_024.0,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: number("Threads:")?,
            children: children(pid),
        })
    }

    /// Whether it has no more descriptors and children than it had.
    pub(crate) fn is_at_most(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors && self.children <= before.children
    }

    /// The most of both of each.
    pub(crate) fn highest(&self, other: &Self) -> Self {
        Self {
            memory_mib: self.memory_mib.max(other.memory_mib),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            children: self.children.max(other.children),
        }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} MiB, {} descriptors, {} threads, {} children",
            self.memory_mib, self.descriptors, self.threads, self.children
        )
    }
}

/// How many processes a process and its children began that still run.
fn children(pid: i32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let of_task = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    of_task
        .flat_map(|children| {
            let children = children.split_whitespace().map(str::parse::<i32>);
            children.flatten().collect::<Vec<_>>()
        })
        .map(|child| 1 + children(child))
        .sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_seen_with_its_child_and_its_descriptor() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = Snapshot::of(own).unwrap();
        assert!(before.memory_mib > 0.0 && before.threads > 0, "{before}");
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let now = Snapshot::of(own).unwrap();
        assert_eq!(now.children, before.children + 1);
        assert!(now.descriptors > before.descriptors);
        assert!(!now.is_at_most(&before));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(Snapshot::of(own).unwrap().children, before.children);
    }
}
