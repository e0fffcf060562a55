//! The page of the first five minutes, word by word: in an empty home with the program and Rust alone,
//! each command of it runs as printed and prints what the page shows, line by line.
//!
//! What serves and what watches goes on in terminals of its own. A block that begins with no command is
//! what the newest of them prints next; `^C` ends it. Cargo builds where the other tests do.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use conjure_kit::{Cli, ProgramHandle, Signal, Workspace, conjure_bin};

use super::blocks::{Block, Check, blocks};
use crate::plugin_test::with_rust;
use crate::stage::workspace;

const PAGE: &str = "skill-sdk/docs/five-minutes.md";
/// Commands that do not end by themselves.
const STAY: [&str; 2] = ["conjure serve ", "conjure plugin dev "];
/// A command to a host, which has what was installed a moment later.
const ASKS_HOST: &str = "conjure run ";
/// How long the host has for that.
const LIVE: Duration = Duration::from_secs(30);

#[test]
fn the_page_of_the_first_five_minutes_is_what_happens() {
    let mut reader = PageReader::new();
    for block in blocks(PAGE) {
        assert_eq!(block.check(), Ok(Check::Commands), "{}", block.place());
        for step in PageStep::all(&block) {
            reader.takes(&step, &block);
        }
    }
    assert!(reader.terminals.is_empty(), "{:?}", reader.terminals);
}

/// What is typed, if anything, and what is shown then.
struct PageStep {
    typed: Option<String>,
    shown: Vec<String>,
}

impl PageStep {
    fn all(block: &Block) -> Vec<Self> {
        let mut steps: Vec<Self> = Vec::new();
        for line in block.text.lines() {
            let typed = line
                .strip_prefix("$ ")
                .or_else(|| (line == "^C").then_some(line));
            match (typed, steps.last_mut()) {
                (None, Some(step)) => step.shown.push(line.to_owned()),
                (typed, _) => steps.push(Self {
                    typed: typed.map(str::to_owned),
                    shown: typed
                        .is_none()
                        .then(|| line.to_owned())
                        .into_iter()
                        .collect(),
                }),
            }
        }
        steps
    }

    /// Whether exactly these lines were shown, as the page has them.
    fn is_shown_in<'a>(&self, seen: impl IntoIterator<Item = &'a str>) -> bool {
        let seen: Vec<&str> = seen.into_iter().collect();
        let mut lines = self.shown.iter().zip(&seen);
        seen.len() == self.shown.len() && lines.all(|(shown, seen)| is_as_shown(seen, shown))
    }
}

/// Whether a line is as the page shows it; `…` stands for anything.
fn is_as_shown(seen: &str, shown: &str) -> bool {
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return seen == shown;
    };
    let between = seen.strip_prefix(*first);
    let between = between.and_then(|rest| rest.strip_suffix(*last));
    let Some(mut rest) = between else {
        return false;
    };
    middle.iter().all(|part| match rest.split_once(*part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// A program that goes on in a terminal, and how many of its lines the page has shown.
#[derive(Debug)]
struct OpenTerminal {
    program: ProgramHandle,
    read: usize,
}

/// Somebody who does what the page says.
struct PageReader {
    workspace: Workspace,
    /// The newest last.
    terminals: Vec<OpenTerminal>,
}

impl PageReader {
    fn new() -> Self {
        let workspace = workspace(&[]);
        let bin = workspace.root().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(conjure_bin().unwrap(), bin.join("conjure")).unwrap();
        Self {
            workspace,
            terminals: Vec::new(),
        }
    }

    /// A command in a shell of the reader's, with both outputs in one, as on a terminal.
    fn shell(&self, command: &str) -> Cli {
        let script = format!("exec 2>&1 </dev/null\n{command}");
        let shell = Cli::program("/bin/sh", ["-eu", "-c", script.as_str()]);
        let path = std::env::var("PATH").unwrap();
        let bin = self.workspace.root().join("bin");
        with_rust(shell)
            .env("PATH", format!("{}:{path}", bin.display()))
            .workspace(&self.workspace)
    }

    fn takes(&mut self, step: &PageStep, block: &Block) {
        match step.typed.as_deref() {
            None => self.looks(step, block),
            Some("^C") => self.interrupts(step, block),
            Some(command) if STAY.iter().any(|begins| command.starts_with(begins)) => {
                let program = self.shell(&format!("exec {command}")).start().unwrap();
                self.terminals.push(OpenTerminal { program, read: 0 });
                self.looks(step, block);
            }
            Some(command) => self.runs(command, step, block),
        }
    }

    /// The newest terminal shows this next.
    fn looks(&mut self, step: &PageStep, block: &Block) {
        let terminal = self.terminals.last_mut().unwrap();
        let end = terminal.read + step.shown.len();
        let seen = terminal.program.wait_for_lines(end).unwrap();
        let new = seen.lines().skip(terminal.read).take(step.shown.len());
        assert!(step.is_shown_in(new), "{}:\n{seen}", block.place());
        terminal.read = end;
    }

    /// Ctrl-C in the newest terminal.
    fn interrupts(&mut self, step: &PageStep, block: &Block) {
        let OpenTerminal { program, read } = self.terminals.pop().unwrap();
        program.signal(Signal::INT);
        let output = program.wait().unwrap();
        assert_eq!(output.code, Some(130), "{}: {output:?}", block.place());
        let rest = output.stdout.lines().skip(read);
        assert!(step.is_shown_in(rest), "{}: {output:?}", block.place());
    }

    /// Runs a command to its end, and one to the host until that has what was installed.
    fn runs(&self, command: &str, step: &PageStep, block: &Block) {
        let begun = Instant::now();
        loop {
            let output = self.shell(command).run().unwrap();
            assert_eq!(output.code, Some(0), "{}: {output:?}", block.place());
            if step.is_shown_in(output.stdout.lines()) {
                return;
            }
            let may_follow = command.starts_with(ASKS_HOST) && begun.elapsed() < LIVE;
            assert!(may_follow, "{}: {output:?}", block.place());
        }
    }
}
