//! How many processes are below one, what memory they have together, and what time of processors they took.
//!
//! Counts only; what is too much, and what becomes of it, is for whoever asks. Elsewhere than on Linux
//! it finds nothing.

use std::fs;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::descendants::below;

/// Memory in a process's status, which counts what several share for each of them.
const RESIDENT: [&str; 3] = ["RssAnon:", "RssShmem:", "VmSwap:"];
/// Memory of a process with what is shared divided among those that share it. The kernel goes through
/// all of a process's pages for this.
const PROPORTIONAL: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];

/// Ticks of a second in which Linux counts time for programs, on every processor that it is built for here.
const TICKS_PER_SECOND: u64 = 100;
/// Where the time of a process stands in its `stat`, behind its name: its own, that of the kernel for it, and
/// the two of those of its children that have ended and that it has waited for.
const TIMES: [usize; 4] = [11, 12, 13, 14];

/// Time of processors that a process took by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessorTime {
    /// On all of its threads, those that have ended too.
    pub own: Duration,
    /// Time of children that have ended, and of theirs.
    pub ended_children: Duration,
}

impl ProcessorTime {
    /// Time of a process; none of one that is gone, and none elsewhere than on Linux.
    pub fn of(process: u32) -> Self {
        let stat = fs::read(format!("/proc/{process}/stat"));
        stat.map_or_else(
            |_| Self::default(),
            |stat| Self::read(&stat).unwrap_or_default(),
        )
    }

    fn read(stat: &[u8]) -> Option<Self> {
        // A name may have spaces and parentheses.
        let behind_name = stat.rsplit(|byte| *byte == b')').next()?;
        let fields: Vec<&str> = str::from_utf8(behind_name)
            .ok()?
            .split_ascii_whitespace()
            .collect();
        let ticks = TIMES.map(|at| fields.get(at)?.parse::<u64>().ok());
        let [user, system, ended_user, ended_system] = ticks;
        let time = |user: u64, system: u64| {
            Duration::from_millis(
                user.saturating_add(system).saturating_mul(1000) / TICKS_PER_SECOND,
            )
        };
        Some(Self {
            own: time(user?, system?),
            ended_children: time(ended_user?, ended_system?),
        })
    }

    /// Own time and that of ended children.
    pub fn total(self) -> Duration {
        self.own.saturating_add(self.ended_children)
    }
}

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
    pub fn memory_upper_bound(&self) -> u64 {
        self.sum(resident)
    }

    /// Like [`Self::memory_upper_bound`], with what several share counted once. Takes longer the more it is.
    pub fn exact_memory(&self) -> u64 {
        self.sum(proportional)
    }

    /// Time of processors that they took, with those of their children that have ended.
    pub fn processor_time(&self) -> Duration {
        let pids = self.0.iter().filter_map(|pid| u32::try_from(*pid).ok());
        let each = pids.map(|pid| ProcessorTime::of(pid).total());
        each.fold(Duration::ZERO, Duration::saturating_add)
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

    #[test]
    fn times_are_read_behind_a_name_with_whatever_it_has_in_it() {
        let stat = b"17 (a ) b (c) S 1 17 17 0 -1 4194560 80 90 0 0 250 50 30 70 20 0 9 0 100 1 2";
        let expected = ProcessorTime {
            own: Duration::from_secs(3),
            ended_children: Duration::from_secs(1),
        };
        assert_eq!(ProcessorTime::read(stat), Some(expected));
        assert_eq!(expected.total(), Duration::from_secs(4));
        for broken in [
            &b""[..],
            b"17 (a) S 1",
            b"17 (a) S 1 2 3 4 5 6 7 8 9 x y z 1 2 3",
        ] {
            assert_eq!(ProcessorTime::read(broken), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_process_computes_is_counted_and_what_its_children_did_with_it() {
        let begun = ProcessorTime::of(std::process::id());
        let mut value = 0_u64;
        while ProcessorTime::of(std::process::id()).own < begun.own + Duration::from_millis(50) {
            value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(7));
        }
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh")
            .args(["-c", script])
            .status();
        assert!(status.unwrap().success());
        let ended = ProcessorTime::of(std::process::id());
        assert!(ended.ended_children > begun.ended_children, "{ended:?}");
        assert_eq!(ProcessorTime::of(u32::MAX), ProcessorTime::default());
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
        assert!(below_shell.memory_upper_bound() > 0, "{below_shell:?}");
        assert!(below_shell.exact_memory() > 0, "{below_shell:?}");
        let below_own = TreeUsage::below(std::process::id());
        assert!(below_own.processes() > processes);
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(TreeUsage::below(shell.id()), TreeUsage::default());
    }
}
