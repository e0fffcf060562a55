//! The processes of a command, and ending them.
//!
//! Every process below the agent stays below it, since it adopts those that lose their parent.
//! While one command runs, all of them are its own. While several run, a process belongs to one
//! by its parents, its group or the mark in its environment; what hides from all three is ended
//! with the last command.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::children::{Children, Whose};

/// The environment variable that marks the processes of a command.
pub(super) const MARK: &str = "CONJURE_CALL";

/// How often everything is looked for again, for what forks faster than it is found.
const PASSES: usize = 100;

/// The tree of one command.
pub(super) struct Tree {
    leader: i32,
    mark: String,
    known: HashSet<Process>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    /// When it began: the number alone may be given away again.
    began: u64,
}

/// What `/proc` says about a process.
#[derive(Debug, Clone, Copy)]
struct Line {
    process: Process,
    parent: i32,
    group: i32,
}

impl Tree {
    /// The tree of a command that leads a process group.
    pub(super) fn new(leader: i32, mark: &str) -> Self {
        Self {
            leader,
            mark: mark.to_owned(),
            known: HashSet::new(),
        }
    }

    /// Whether nobody is left.
    pub(super) fn is_gone(&mut self, children: &Children) -> bool {
        self.look(children).is_empty()
    }

    /// Signals all of it.
    pub(super) fn signal(&mut self, signal: Signal, children: &Children) {
        // No command begins while everything is ended.
        if signal == Signal::KILL && children.if_alone(self.leader, end_container) {
            return;
        }
        let lines = below(getpid().as_raw_nonzero().get(), &read_all());
        // A group gets a signal at once, however fast it forks.
        let group = lines.iter().find(|line| line.group == self.leader);
        if let Some(group) = group.and_then(|line| Pid::from_raw(line.group)) {
            let _ = kill_process_group(group, signal);
        }
        for member in self.look(children) {
            send(member, signal);
        }
    }

    fn look(&mut self, children: &Children) -> Vec<Process> {
        let lines = below(getpid().as_raw_nonzero().get(), &read_all());
        // Asked after the look: what began before it is known to the table by now.
        let members: Vec<Process> = match children.whose(self.leader) {
            Whose::Others => Vec::new(),
            Whose::Its => lines.iter().map(|line| line.process).collect(),
            Whose::Shared => self.own(&lines),
        };
        self.known.extend(&members);
        members
    }

    fn own(&self, lines: &[Line]) -> Vec<Process> {
        let mut own = HashSet::new();
        for line in lines {
            let belongs = line.group == self.leader
                || line.process.pid == self.leader
                || self.known.contains(&line.process)
                || is_marked(line.process.pid, &self.mark);
            if belongs {
                own.insert(line.process.pid);
            }
        }
        loop {
            let before = own.len();
            for line in lines {
                if own.contains(&line.parent) {
                    own.insert(line.process.pid);
                }
            }
            if own.len() == before {
                break;
            }
        }
        let members = lines.iter().map(|line| line.process);
        members.filter(|one| own.contains(&one.pid)).collect()
    }
}

/// Kills every other process of the container at once, when the agent is its first one.
fn end_container() -> bool {
    // `kill(-1)` reaches everybody but the caller. Anywhere else than in a container of our own
    // that would be somebody else's.
    getpid().is_init() && kill_process_group(Pid::INIT, Signal::KILL).is_ok()
}

/// Kills everything below the agent.
pub(super) fn end_all() {
    if end_container() {
        return;
    }
    let own = getpid().as_raw_nonzero().get();
    for _ in 0..PASSES {
        let lines = below(own, &read_all());
        if lines.is_empty() {
            return;
        }
        for line in lines {
            send(line.process, Signal::KILL);
        }
    }
}

fn send(process: Process, signal: Signal) {
    // Looking again just before leaves next to no time for the number to be given away.
    let same = read(process.pid).is_some_and(|line| line.process == process);
    if let Some(pid) = Pid::from_raw(process.pid).filter(|_| same) {
        let _ = kill_process(pid, signal);
    }
}

/// The living descendants of a process.
fn below(ancestor: i32, lines: &[Line]) -> Vec<Line> {
    let mut below = HashSet::from([ancestor]);
    loop {
        let before = below.len();
        for line in lines {
            if below.contains(&line.parent) {
                below.insert(line.process.pid);
            }
        }
        if below.len() == before {
            break;
        }
    }
    let below = |line: &&Line| line.process.pid != ancestor && below.contains(&line.process.pid);
    lines.iter().filter(below).copied().collect()
}

fn read_all() -> Vec<Line> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(read).collect()
}

/// Nothing when it is gone, or a zombie whose parent will collect it.
fn read(pid: i32) -> Option<Line> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(pid: i32, stat: &[u8]) -> Option<Line> {
    // The name in parentheses may hold anything, also parentheses and blanks.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let began = fields.nth(16)?.parse().ok()?;
    Some(Line {
        process: Process { pid, began },
        parent,
        group,
    })
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let marks = environment.split(|byte| *byte == 0);
    marks
        .filter_map(|entry| entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
        .any(|value| value == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: i32, parent: i32, group: i32) -> Line {
        Line {
            process: Process { pid, began: 7 },
            parent,
            group,
        }
    }

    #[test]
    fn descendants_are_found_in_any_order() {
        let lines = [
            line(9, 8, 9),
            line(8, 5, 8),
            line(5, 1, 5),
            line(6, 1, 6),
            line(3, 0, 3),
        ];
        let found = |ancestor| -> Vec<i32> {
            let below = below(ancestor, &lines);
            below.iter().map(|line| line.process.pid).collect()
        };
        assert_eq!(found(5), [9, 8]);
        assert_eq!(found(1), [9, 8, 5, 6]);
        assert_eq!(found(6), [0; 0]);
    }

    #[test]
    fn of_two_commands_each_has_its_own() {
        let lines = [
            line(10, 1, 10),
            line(11, 10, 11),
            line(12, 1, 10),
            line(20, 1, 20),
            line(13, 1, 13),
        ];
        let mut tree = Tree::new(10, "no-such-mark");
        tree.known.insert(line(13, 0, 0).process);
        let own: Vec<i32> = tree.own(&lines).iter().map(|one| one.pid).collect();
        assert_eq!(own, [10, 11, 12, 13]);
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_is_no_obstacle() {
        let stat = b"7 (a) b) (c) S 4 5 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let read = parse(7, stat).unwrap();
        assert_eq!((read.parent, read.group, read.process.began), (4, 5, 4242));
        assert!(parse(7, b"7 (x) Z 4 5 6").is_none());
    }
}
