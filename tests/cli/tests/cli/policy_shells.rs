//! Commands that shells read differently, under rules for commands: what is allowed of them is run by
//! the shells of this machine and makes nothing that no rule allows.

use std::path::Path;
use std::process::{Command, Stdio};

use conjure_core::routing::{Defaults, EffectLevel, Policy, PolicyCall, PolicyDecision, Rule};
use conjure_kit::Workspace;
use proptest::prelude::*;

/// The file that no command may make.
const MADE: &str = "made";
/// Shells as which a command may run.
const SHELLS: [&str; 3] = ["/bin/sh", "/bin/bash", "/bin/dash"];

/// Commands that make the file under one shell or another, and are to be asked about.
const ATTACKS: &[&str] = &[
    "ls . &>/dev/null touch made",
    "ls . &>>/dev/null touch made",
    "ls . 2>&1 &>/dev/null touch made",
    "ls $(ls . &>/dev/null touch made)",
    "ls . |& touch made",
    "ls <<<x touch made",
    "[[ -e . || touch made ]]",
    "((touch made))",
    "(( touch made ))",
    "((ls); (touch made))",
    "ls $((ls '$(touch made)'); (ls))",
    "time -v touch made",
    "time -o /dev/null touch made",
    "time -- touch made",
    "time { ls; touch made; }",
    "time (touch made)",
    "function f { touch made; }; f",
    "coproc touch made",
    "!(touch made)",
    "select x in a; do touch made; done",
    "case x in x) ls ;& y) touch made;; esac",
    "case x in x) ls ;;& *) touch made;; esac",
    "ls >(touch made)",
    "ls <(touch made)",
    "ls $\"`touch made`\"",
    "ls $'\\'; touch made; ls \\''",
    "ls a=(touch made)",
    "ls @(a|touch made)",
    "ls 'a\nb ((' # \"\ntouch made #\"",
    "ls $(#) \"\ntouch made\n) #\"",
    "ls . &\\\n>/dev/null touch made",
    "ls . \\ #; touch made",
    "ls \"$(always; touch made)\"",
    "ls $(touch made; ls a}b)",
    "ls {$x;touch made",
    "ls {$x>made",
    "ls $x{{;touch made;}}",
    "ls ${!?:$(touch made)0}",
    "ls ${!-:$(touch made)0}",
    "x=a; ls ${x~$(touch made)}",
    "ls ${ touch made; }",
    "ls @($x;touch made)",
    "ls $x\"a\"(;touch made)",
    "ls <<E\n$(touch made)\nE",
    "ls . &! touch made",
    "ls . &| touch made",
];

/// Commands of which more than one shell makes the same: they stay allowed.
const COMMON: &[&str] = &[
    "ls . 2>&1 >/dev/null </dev/null",
    "ls . >|/dev/null",
    "ls . 2>&- 9>/dev/null",
    "ls . & ls .",
    "! ls .",
    "(ls .) | ls .",
    "{ ls .; }",
    "time ls .",
    "time ls . | ls .",
];

/// Pieces of which any command may be made.
const PIECES: &[&str] = &[
    "ls",
    "ls",
    " ",
    " ",
    " ",
    ".",
    "a",
    "x",
    "1",
    "10",
    "-",
    "=",
    "'",
    "'",
    "\"",
    "\"",
    "\\",
    "\\\n",
    "\n",
    "\n",
    ";",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    "(",
    ")",
    "((",
    "))",
    "<",
    ">",
    ">>",
    "<<",
    "<<<",
    "&>",
    ">&",
    ">&-",
    "/dev/null",
    "#",
    " #",
    "# ",
    "$",
    "$#",
    "$(",
    "`",
    "${",
    "{",
    "}",
    " { ",
    "; }",
    "!",
    "*",
    "?",
    "[",
    "]",
    "[[ ",
    " ]]",
    "$'",
    "$\"",
    ",",
    "..",
    "time ",
    "if ",
    "; then ",
    "; fi",
    "while ",
    "; do ",
    "; done",
    "case x in x) ",
    " ;; esac",
    ";&",
    "function f ",
    "f() { ",
    "coproc ",
    "E\n",
    "\nE\n",
    "\t",
    " touch made ",
    "\ntouch made\n",
    ";touch made;",
    "|touch made",
    "&touch made&",
    "touch made",
];

/// The rules: listing is allowed, and making a file is denied.
fn rules() -> Policy {
    let rule = |pattern: &str, decision| Rule {
        pattern: pattern.parse().unwrap(),
        decision,
    };
    Policy {
        rules: vec![
            rule("bash_tool(ls *)", PolicyDecision::Allow),
            rule("bash_tool(*)", PolicyDecision::Allow),
            rule("bash_tool(touch *)", PolicyDecision::Deny),
        ],
        default: Defaults::default(),
    }
}

fn decided(command: &str) -> PolicyDecision {
    let arguments = serde_json::json!({ "command": command, "description": "d" });
    let verdict = rules().decide(&PolicyCall {
        name: "bash_tool",
        backend: "local",
        effects: EffectLevel::Destructive,
        arguments: &arguments,
    });
    verdict.decision
}

/// Whether a shell that is here makes the file of this command.
fn is_made(dir: &Path, command: &str) -> bool {
    let here = SHELLS.into_iter().filter(|shell| Path::new(shell).exists());
    let made = here.map(|shell| {
        // Any loop may be one without end.
        let mut program = Command::new("timeout");
        program.args(["5", shell, "-c", command]).current_dir(dir);
        let program = program.stdin(Stdio::null()).stdout(Stdio::null());
        program.stderr(Stdio::null()).status().unwrap();
        std::fs::remove_file(dir.join(MADE)).is_ok()
    });
    made.fold(false, |before, made| before | made)
}

#[test]
fn what_shells_read_differently_makes_nothing_that_no_rule_allows() {
    let workspace = Workspace::new().unwrap();
    let mut made = 0;
    for command in ATTACKS {
        assert_ne!(decided(command), PolicyDecision::Allow, "{command}");
        made += usize::from(is_made(&workspace.work(), command));
    }
    // Not each shell is here, and some of them are for others; but they are attacks.
    assert!(made > ATTACKS.len() / 3, "{made} of {}", ATTACKS.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn no_command_that_is_allowed_makes_what_no_rule_allows(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 1..14),
    ) {
        let command = format!("ls {}", pieces.concat());
        if decided(&command) == PolicyDecision::Allow {
            let workspace = Workspace::new().unwrap();
            prop_assert!(!is_made(&workspace.work(), &command), "{command:?}");
        }
    }
}

#[test]
fn what_every_shell_reads_alike_stays_allowed() {
    let workspace = Workspace::new().unwrap();
    for command in COMMON {
        assert_eq!(decided(command), PolicyDecision::Allow, "{command}");
        assert!(!is_made(&workspace.work(), command), "{command}");
    }
}
