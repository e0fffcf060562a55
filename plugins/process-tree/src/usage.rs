//! How many processes are below one, and what memory they have together.
//!
//! Counts only; what is too much, and what becomes of it, is for whoever asks. Elsewhere than on Linux
//! it finds nothing.

use std::fs;

#[cfg(target_os = "linux")]
use crate::descendants::below;

/// Memory in a process's status, which counts what several share for each of them.
const RESIDENT: [&str; 3] = ["RssAnon:", "RssShmem:", "VmSwap:"];
/// Memory of a process with what is shared divided among those that share it. The kernel goes through
/// all of a process's pages for this.
const PROPORTIONAL: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];

/// The processes below one at a moment, which is not among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeUsage(Vec<i32>);

impl TreeUsage {
    /// Everything below a process.
    pub fn below(root: u32) -> Self {
        Self(i32::try_from(root).map_or_else(|_| Vec::new(), below))
    }

    /// How many there are.
    pub fn processes(&self) -> usize {
        self.0.len()
    }

    /// The most bytes that they may have written to, in memory or swapped out; programs and files that
    /// are mapped are none. What several share, such as a parent and the children that it forked, counts
    /// for each.
    pub fn most_memory(&self) -> u64 {
        self.sum(resident)
    }

    /// Like [`Self::most_memory`], with what several share counted once. Takes longer the more it is.
    pub fn exact_memory(&self) -> u64 {
        self.sum(proportional)
    }

    fn sum(&self, memory: fn(i32) -> u64) -> u64 {
        let each = self.0.iter().map(|pid| memory(*pid));
        each.fold(0, u64::saturating_add)
    }
}

/// Nothing of one that is gone.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(0, |status| bytes(&status, RESIDENT).unwrap_or(0))
}

/// The more of both where the kernel does not say.
fn proportional(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    bytes(&rollup, PROPORTIONAL).unwrap_or_else(|| resident(pid))
}

/// The sum of these lines, of which the first must be there.
fn bytes(text: &str, names: [&str; 3]) -> Option<u64> {
    let kib = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    let [first, rest @ ..] = names;
    let rest: u64 = rest.into_iter().filter_map(kib).sum();
    Some(kib(first)?.saturating_add(rest).saturating_mul(1024))
}

#[cfg(not(target_os = "linux"))]
fn below(_root: i32) -> Vec<i32> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_memory_are_added_and_nothing_is_made_up() {
        let status = "Name:\tx\nVmRSS:\t    5000 kB\nRssAnon:\t    1000 kB\nRssFile:\t    3990 kB\n\
                      RssShmem:\t      10 kB\nVmSwap:\t       2 kB\n";
        assert_eq!(bytes(status, RESIDENT), Some(1012 * 1024));
        assert_eq!(bytes("RssAnon:\t 7 kB\n", RESIDENT), Some(7 * 1024));
        // A process that has ended, and a kernel that does not say.
        assert_eq!(bytes("Name:\tx\nState:\tZ (zombie)\n", RESIDENT), None);
        assert_eq!(bytes("Pss:  100 kB\n", PROPORTIONAL), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn everything_below_a_process_is_counted_and_not_the_process() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        let script = "exec 3<&0; (cat <&3 & cat <&3; wait) & cat <&3 & echo ready; wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let below_shell = TreeUsage::below(shell.id());
        // The subshell may not have begun its own yet.
        let processes = below_shell.processes();
        assert!((2..=4).contains(&processes), "{below_shell:?}");
        assert!(below_shell.most_memory() > 0, "{below_shell:?}");
        assert!(below_shell.exact_memory() > 0, "{below_shell:?}");
        let below_own = TreeUsage::below(std::process::id());
        assert!(below_own.processes() > processes);
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(TreeUsage::below(shell.id()), TreeUsage::default());
    }
}
