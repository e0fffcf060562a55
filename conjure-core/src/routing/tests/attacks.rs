//! Commands that try to pass as something that a policy allows, or past something that it denies.

use serde_json::{Value, json};

use super::super::*;

pub(super) fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |patterns: &[&str], decision| {
        let rule = |arguments: &&str| Rule {
            pattern: format!("bash_tool({arguments})").parse().unwrap(),
            decision,
        };
        patterns.iter().map(rule).collect::<Vec<_>>()
    };
    Policy {
        rules: [
            rules(allow, PolicyDecision::Allow),
            rules(deny, PolicyDecision::Deny),
        ]
        .concat(),
        default: Defaults::default(),
    }
}

fn decide(policy: &Policy, arguments: &Value) -> PolicyVerdict {
    policy.decide(&PolicyCall {
        name: "bash_tool",
        backend: "local",
        effects: EffectLevel::Destructive,
        arguments,
    })
}

pub(super) fn decision(policy: &Policy, command: &str) -> PolicyDecision {
    decide(policy, &json!({ "command": command, "description": "d" })).decision
}

/// Each row: what is allowed, and a command that it must not allow.
const NOT_ALLOWED: &[(&str, &str)] = &[
    // Programs that run others by option or subcommand.
    ("git *", "git -c alias.x='!reboot' x"),
    ("git *", "git status"),
    ("git status *", "git -c core.fsmonitor=reboot status"),
    ("git log *", "git log -c x"),
    ("git log *", "git log --output=/etc/cron.d/x"),
    ("git log *", "git log --outp=/etc/cron.d/x"),
    ("git grep *", "git grep -Oreboot x"),
    ("git fetch *", "git fetch --upload-pack=reboot x"),
    ("git fetch *", "git fetch --upload-pa reboot x"),
    ("git diff *", "git diff --ext-diff"),
    ("git config *", "git config alias.x '!reboot'"),
    ("git rebase *", "git rebase -x reboot main"),
    ("git submodule *", "git submodule foreach reboot"),
    ("git remote-ext *", "git remote-ext x 'sh -c reboot'"),
    ("git archive *", "git archive -o /etc/cron.d/x HEAD"),
    ("git archive *", "git archive --output=/etc/cron.d/x HEAD"),
    ("git bundle *", "git bundle create /etc/cron.d/x HEAD"),
    ("hg log *", "hg log --config alias.log='!reboot'"),
    ("svn diff *", "svn diff --diff-cmd reboot"),
    ("gh alias *", "gh alias set x '!reboot'"),
    ("gh *", "gh alias set x '!reboot'"),
    ("run-parts *", "run-parts /tmp/x"),
    ("tcpdump -r *", "tcpdump -r x -z reboot"),
    ("gcc main.c *", "gcc main.c @options"),
    ("gcc main.c *", "gcc main.c -o /etc/cron.d/x"),
    ("go test *", "go test --exec reboot"),
    ("ip netns *", "ip netns exec x reboot"),
    ("docker container *", "docker container exec x reboot"),
    ("service *", "service ../../tmp/x start"),
    (
        "curl https://x.org/*",
        "curl https://x.org/a --dump-header /etc/x",
    ),
    ("find *", "find . -exec rm {} +"),
    ("find . *", "find . -name x -exec rm {} ;"),
    ("find . *", "find . -name x -exec rm {} \\;"),
    ("find . *", "find . -delete"),
    ("find . *", "find . -fprint /etc/cron.d/x"),
    ("find . *", "find . $x"),
    ("find . *", "find . *"),
    ("tar *", "tar --to-command=reboot -xf a.tar"),
    (
        "tar tf *",
        "tar tf a.tar --checkpoint=1 --checkpoint-action=exec=reboot",
    ),
    ("tar tf *", "tar tf a.tar -Ireboot"),
    ("awk *", "awk 'BEGIN{system(\"reboot\")}'"),
    ("awk '{print $1}' *", "awk '{print $1}' -f evil.awk x"),
    ("sed -n *", "sed -n '1e reboot' x"),
    ("sed 1p *", "sed 1p -e '1e reboot' x"),
    ("sed 1p *", "sed 1p -i x"),
    ("ssh *", "ssh -o ProxyCommand=reboot x"),
    ("python3 *", "python3 -c 'import os'"),
    ("python3 -m *", "python3 -m http.server"),
    ("perl *", "perl -e 'exec reboot'"),
    ("make *", "make -f evil.mk"),
    ("make test *", "make test SHELL=/tmp/x"),
    ("npm *", "npm exec reboot"),
    ("docker *", "docker run -v /:/host x"),
    ("rsync *", "rsync -e reboot a b"),
    ("sort x *", "sort x --compress-program=reboot"),
    ("rg x *", "rg x --pre reboot"),
    ("less *", "less x"),
    ("vim *", "vim -c '!reboot'"),
    ("test *", "test -v 'a[$(reboot)]'"),
    // Wrappers.
    ("sudo *", "sudo reboot"),
    ("env *", "env reboot"),
    ("xargs *", "xargs reboot"),
    ("timeout 5 *", "timeout 5 reboot"),
    ("sh -c *", "sh -c reboot"),
    ("bash *", "bash -c reboot"),
    ("eval *", "eval reboot"),
    ("command *", "command reboot"),
    ("exec *", "exec reboot"),
    (". *", ". ./evil"),
    ("time ls *", "time reboot"),
    ("time ls *", "ls a"),
    // Several commands.
    ("ls *", "ls a; reboot"),
    ("ls *", "ls a && reboot"),
    ("ls *", "ls a || reboot"),
    ("ls *", "ls a | sh"),
    ("ls *", "ls a & reboot"),
    ("ls *", "ls a\nreboot"),
    ("ls *", "(ls a; reboot)"),
    ("ls *", "{ ls a; reboot; }"),
    ("ls *", "if ls a; then reboot; fi"),
    ("ls *", "for i in 1; do reboot; done"),
    ("ls *", "while ls a; do reboot; done"),
    ("ls *", "case x in x) reboot;; esac"),
    ("ls *", "f() { reboot; }; ls a"),
    ("ls *", "ls() { reboot; }; ls a"),
    ("ls *", "! reboot"),
    ("ls *", "coproc reboot"),
    ("ls *", "ls a |& reboot"),
    // What bash and a POSIX shell read differently.
    ("ls *", "ls a &>/dev/null reboot"),
    ("ls *", "ls a &>>/dev/null reboot"),
    ("ls *", "ls a |& ls b"),
    ("ls *", "ls a 10>/dev/null"),
    ("ls *", "((ls a); (ls b))"),
    ("*", "time -v ls a"),
    ("kill 5", "kill 5 >&-77"),
    ("sort x *", "sort x {},--compress-program=reboot}"),
    // Substitutions and what else expands.
    ("ls *", "ls $(reboot)"),
    ("ls *", "ls `reboot`"),
    ("ls *", "ls \"$(reboot)\""),
    ("ls *", "ls \"a`reboot`\""),
    ("ls *", "ls <(reboot)"),
    ("ls *", "ls >(reboot)"),
    ("ls *", "ls ${x:-$(reboot)}"),
    ("ls *", "ls $((a[$(reboot)]))"),
    ("ls *", "ls ${x@P}"),
    ("ls *", "ls <<EOF\n$(reboot)\nEOF"),
    ("ls *", "ls <<< $(reboot)"),
    ("ls *", "[[ -v a[$(reboot)] ]]"),
    ("ls *", "((a[$(reboot)]))"),
    // The program.
    ("ls *", "$x a"),
    ("ls *", "l$x a"),
    ("ls *", "\"$x\" a"),
    ("ls *", "$(echo reboot) a"),
    ("ls *", "./ls a"),
    ("ls *", "/tmp/ls a"),
    ("ls *", "l? a"),
    ("ls *", "lsof a"),
    ("ls *", "'ls a'"),
    ("g*", "git status"),
    ("s*", "sudo x"),
    ("l*", "./ls a"),
    ("*", "sh -c reboot"),
    ("*", "/bin/sh x"),
    ("* x", "sh x"),
    ("scripts/*", "scripts/../../bin/reboot"),
    ("scripts/*", "reboot"),
    // Variables.
    ("ls *", "PATH=/tmp ls a"),
    ("ls *", "LD_PRELOAD=/tmp/x.so ls a"),
    ("git status *", "GIT_SSH_COMMAND=reboot git status -s"),
    ("ls *", "PATH=/tmp; ls a"),
    ("ls *", "export PATH=/tmp; ls a"),
    ("ls *", "declare -x LD_PRELOAD=x; ls a"),
    ("ls *", "for PATH in /tmp; do ls a; done"),
    ("ls *", "http_proxy=evil ls a"),
    ("ls *", "IFS=x ls a"),
    ("ls *", "a[$(reboot)]=1 ls a"),
    // Files.
    ("echo *", "echo x > /etc/passwd"),
    ("echo *", "echo x >> ~/.bashrc"),
    ("echo *", "echo x >| y"),
    ("echo *", "echo x &> y"),
    ("echo *", "echo x 2> y"),
    ("echo *", "echo x >& y"),
    ("echo *", "> y"),
    ("echo *", "{ echo x; } > y"),
    ("cat docs/*", "cat docs/a < /etc/shadow"),
    ("cat docs/*", "cat docs/../../../etc/shadow"),
    ("cat docs/*", "cat docs/a docs/../../etc/shadow"),
    ("cat docs/*", "cat docs/a /etc/shadow"),
    ("cat docs/*", "cat docs/.."),
    ("cat docs/*", "cat docs/\".\".'/..'/etc/shadow"),
    ("cat docs/*", "cat docs/{a,../../etc/shadow}"),
    ("cat docs/*", "cat docs/.*/shadow"),
    ("cat docs/*", "cat docs/$x"),
    ("cat docs/*", "cat /docs/a"),
    ("cat docs/*", "cat 'docs/a b' c"),
    ("cat docs/*", "cd /etc && cat docs/a"),
    ("cat *.md", "cat ../x.md"),
    ("ls --x=docs/*", "ls --x=docs/../../etc"),
    ("echo hi > out/*", "echo hi > out/../../etc/passwd"),
    // What a person and a shell read differently.
    ("ls *", "ls a\u{0}b"),
    ("ls *", "ls\u{a0}a"),
    ("ls *", "ls a\u{202e}b"),
    ("ls *", "ls a\u{ad}b"),
    ("ls *", "ls a\u{34f}b"),
    ("ls *", "ls a\u{3164}b"),
    ("ls *", "ls a\u{fe0f}b"),
    ("ls *", "ls a\rreboot"),
    ("ls *", "ls 'a"),
    ("ls *", "ls $'a'"),
    ("ls *", ""),
    ("cat * | wc *", "cat a | sh | wc -l"),
    ("cat * | wc *", "cat a; wc -l"),
    ("cat * | wc *", "cat a | wc -l > x"),
];

#[test]
fn what_a_pattern_does_not_say_is_not_allowed() {
    for (pattern, command) in NOT_ALLOWED {
        let verdict = decision(&policy(&[pattern], &[]), command);
        assert_eq!(
            verdict,
            PolicyDecision::Ask,
            "`{pattern}` allows {command:?}"
        );
    }
    assert!(NOT_ALLOWED.len() >= 80);
}

#[test]
fn what_a_pattern_says_is_allowed() {
    for (pattern, command) in [
        ("ls", "ls"),
        ("ls *", "ls -la /etc"),
        ("ls *", "ls \"$HOME\" $x"),
        ("ls *", "ls a* b?c"),
        ("ls *", "ls a; ls b && ls c | ls d"),
        ("ls *", "(ls a) & ls b"),
        ("ls *", "for f in a b; do ls \"$f\"; done"),
        ("ls *", "x=1; ls $x"),
        ("ls *", "LC_ALL=C ls a"),
        ("ls *", "ls a 2>&1 >/dev/null </dev/null"),
        ("ls *", "ls a # a comment; reboot"),
        ("ls *", "l\"s\" a"),
        ("git status", "git status"),
        ("git status *", "git status -s --branch"),
        ("git log *", "git log -p --stat main..x -- docs/a"),
        ("find docs *", "find docs -name '*.md' -type f"),
        ("tar tf *", "tar tf a.tar"),
        ("awk '{print $1}' *", "awk '{print $1}' a.log b.log"),
        (
            "python3 scripts/report.py *",
            "python3 scripts/report.py -c x",
        ),
        ("make test", "make test"),
        ("sudo systemctl restart web", "sudo systemctl restart web"),
        ("sh -c 'make test'", "sh -c 'make test'"),
        ("echo $HOME > x", "echo $HOME > x"),
        ("cat docs/*", "cat docs/a"),
        ("cat docs/*", "cat docs/sub/a"),
        ("cat docs/*", "cat ./docs//sub/../a"),
        ("cat docs/*", "cat 'docs/a b'"),
        ("cat docs/*", "cat docs/*.md"),
        ("cat docs/* *", "cat docs/a docs/b"),
        ("cat *.md", "cat a.md"),
        ("cat ../x/*", "cat ../x/a"),
        ("npm run test:*", "npm run test:unit"),
        ("echo hi > out/*", "echo hi > out/a"),
        ("cat * | wc *", "cat a b | wc -l"),
        ("CC=gcc make all", "CC=gcc make all"),
        ("*", "ls -la"),
        ("get*", "get k v"),
        ("l*", "ls"),
        ("scripts/*", "scripts/check"),
    ] {
        let verdict = decision(&policy(&[pattern], &[]), command);
        assert_eq!(
            verdict,
            PolicyDecision::Allow,
            "`{pattern}` and {command:?}"
        );
    }
    let two = policy(&["cat *", "wc *"], &[]);
    assert_eq!(decision(&two, "cat a | wc -l"), PolicyDecision::Allow);
    // In another directory `scripts/check` is another program.
    let moving = policy(&["cd *", "scripts/*", "./build.sh", "/opt/tools/*"], &[]);
    for (command, expected) in [
        ("cd src; scripts/check", PolicyDecision::Ask),
        ("cd src && ./build.sh", PolicyDecision::Ask),
        ("cd src; /opt/tools/check", PolicyDecision::Allow),
        ("./build.sh; scripts/check", PolicyDecision::Allow),
    ] {
        assert_eq!(decision(&moving, command), expected, "{command}");
    }
}

#[test]
fn what_is_denied_is_found_however_it_is_written() {
    for (pattern, command) in [
        ("*rm *", "r\"m\" -rf x"),
        ("*rm *", "r\\m -rf x"),
        ("*rm *", "'rm' -rf x"),
        ("rm *", "ls; rm x"),
        ("rm *", "ls | xargs rm x"),
        ("rm *", "/bin/rm x"),
        ("rm *", "../../bin/rm x"),
        ("rm *", "sudo rm x"),
        ("rm *", "sudo -u root env A=b nice rm x"),
        ("rm *", "(rm x)"),
        ("rm *", "echo $(rm x)"),
        ("rm *", "echo `rm x`"),
        ("rm *", "if a; then rm x; fi"),
        ("rm *", "f() { rm x; }; f"),
        ("rm *", "sh -c 'rm x'"),
        ("rm *", "sh -c 'ls; rm x'"),
        ("rm *", "bash -c \"sh -c 'r\\\"m\\\" x'\""),
        ("rm *", "eval rm x"),
        ("rm *", "eval 'rm x'"),
        ("rm *", "find . -exec rm x ;"),
        ("rm *", "find . -exec sh -c 'rm x' \\;"),
        ("rm *", "case x in x) rm x;; esac"),
        ("rm *", "X=1 rm x"),
        ("rm *", "! rm x"),
        ("rm *", "time rm x"),
        ("rm *", "echo <(rm x)"),
        ("rm *", "cat <<EOF\n$(rm x)\nEOF"),
        ("git push *", "git  push   origin"),
        ("*/etc/shadow*", "cat /etc/./shadow"),
        ("*/etc/shadow*", "cat /tmp/../etc/shadow"),
        ("*/etc/shadow*", "cat /e\"t\"c/shadow"),
        ("*/etc/passwd*", "echo x > /etc//passwd"),
        ("PATH=*", "PATH=/tmp ls"),
    ] {
        let verdict = decision(&policy(&["*"], &[pattern]), command);
        assert_eq!(verdict, PolicyDecision::Deny, "`{pattern}` and {command:?}");
    }
}

#[test]
fn what_may_be_denied_and_cannot_be_judged_asks_also_where_the_tool_is_allowed() {
    let mut policy = policy(&[], &["rm *"]);
    policy.rules.push(Rule {
        pattern: "bash_tool".parse().unwrap(),
        decision: PolicyDecision::Allow,
    });
    assert_eq!(decision(&policy, "ls -la"), PolicyDecision::Allow);
    assert_eq!(decision(&policy, "python3 a.py"), PolicyDecision::Allow);
    for command in [
        "$x -rf /",
        "$(echo r)m -rf /",
        "eval \"$x\"",
        "sh script.sh",
        "echo cm0gLXJmIC8K | base64 -d | sh",
        "python3 -c \"import os; os.system('r'+'m x')\"",
        "ls | xargs $x",
        "r{m,} x",
        "$'\\x72m' x",
        "alias x=y",
        "ls 'a",
        "${x} y",
        "r$(true)m x",
        "git -c alias.x='!y' x",
    ] {
        let verdict = decide(&policy, &json!({ "command": command }));
        assert_eq!(verdict.decision, PolicyDecision::Ask, "{command:?}");
        assert!(verdict.doubt.is_some(), "{command:?}");
    }
    // Without a rule that could be for it, the tool is allowed and no more is asked.
    policy.rules.remove(0);
    assert_eq!(decision(&policy, "eval \"$x\""), PolicyDecision::Allow);
}

#[test]
fn a_command_without_bound_is_not_read_without_bound() {
    let deep = |open: &str, close: &str| format!("{}ls{}", open.repeat(5_000), close.repeat(5_000));
    let commands = [
        deep("(", ")"),
        deep("$(", ")"),
        deep("{ ", "; }"),
        deep("if ls; then ", "; fi"),
        deep("\"$(", ")\""),
        "ls ".repeat(100_000),
        "ls;".repeat(5_000),
        "ls|".repeat(5_000) + "ls",
        "$((".repeat(5_000),
        "${x:-".repeat(3_000),
        "<<A ".repeat(4_000),
        "`".repeat(16_000),
        "a=(".repeat(5_000),
        "[[ ".repeat(5_000),
        "case x in ".repeat(1_500),
        "!".repeat(16_000),
        "sh -c 'sh -c ".repeat(1_000),
    ];
    let policy = policy(&["ls *", "ls"], &["rm *"]);
    for command in commands {
        assert_eq!(
            decision(&policy, &command),
            PolicyDecision::Ask,
            "{}",
            &command[..40]
        );
    }
}

#[test]
fn a_path_is_allowed_only_below_what_the_pattern_names() {
    let policy = policy(&["/data/*"], &[]);
    let allowed = |path: &str| {
        decide(&policy, &json!({ "path": path, "text": "t" })).decision == PolicyDecision::Allow
    };
    for path in ["/data/a", "/data/a/../b", "/data//a", "/data/./a/b..c"] {
        assert!(allowed(path), "{path}");
    }
    for path in [
        "/data/../etc",
        "/data/a/../..",
        "/data",
        "/database/x",
        "data/x",
        "/data/a\\..\\..\\b",
    ] {
        assert!(!allowed(path), "{path}");
    }
}

#[test]
fn patterns_that_cannot_keep_what_they_suggest_are_told_with_better_ones() {
    let mut policy = policy(
        &[
            "git *",
            "find *",
            "tar *",
            "awk *",
            "ssh *",
            "sudo *",
            "python3 *",
            "git config *",
            "git*",
            "*",
            "ls 'a",
            "",
            "echo $HOME",
        ],
        &["git *"],
    );
    let told: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"));
    // What it proposes is itself nothing to warn about.
    let better = policy.warnings().into_iter().filter_map(|it| it.better);
    policy.rules = better
        .map(|pattern| Rule {
            pattern,
            decision: PolicyDecision::Allow,
        })
        .collect();
    assert_eq!(policy.warnings(), []);
    let fine = super::attacks::policy(&["git status *", "ls *", "make test", "cat docs/*"], &[]);
    assert_eq!(fine.warnings(), []);
    // Arguments of other tools are no commands.
    policy.rules[0].pattern = "cache_execute(git *)".parse().unwrap();
    assert_eq!(policy.warnings(), []);
}

/// Under a rule that allows the whole tool: what a rule denies, and commands that become it.
const BECOME_DENIED: &[(&str, &[&str])] = &[
    (
        "*/etc/shadow*",
        &[
            "cat /etc/shado?",
            "cat /etc/sha*",
            "x=shadow; cat /etc/$x",
            "for f in shadow; do cat /etc/$f; done",
            "cat /etc/\"$(echo shadow)\"",
            "cat ~/../etc/shad*",
            "cd /etc; cat shadow",
        ],
    ),
    (
        "systemctl stop *",
        &[
            "x=stop; systemctl $x db",
            "systemctl $(echo stop) db",
            "systemctl sto? db",
            "systemctl s* db",
        ],
    ),
];

pub(super) fn whole_tool(deny: &str) -> Policy {
    let rule = |pattern: &str, decision| Rule {
        pattern: pattern.parse().unwrap(),
        decision,
    };
    let deny = format!("bash_tool({deny})");
    Policy {
        rules: vec![
            rule("bash_tool", PolicyDecision::Allow),
            rule(&deny, PolicyDecision::Deny),
        ],
        default: Defaults::default(),
    }
}

#[test]
fn what_a_shell_may_expand_to_what_is_denied_is_asked_about() {
    for (deny, commands) in BECOME_DENIED {
        let policy = whole_tool(deny);
        for command in *commands {
            assert_eq!(decision(&policy, command), PolicyDecision::Ask, "{command}");
        }
        for command in ["ls *.txt", "wc -l notes.md", "cd src && cargo test"] {
            assert_eq!(
                decision(&policy, command),
                PolicyDecision::Allow,
                "{command}"
            );
        }
    }
}

/// How a piece of a word may be written so that a shell makes the piece of it.
fn hidden(piece: &str, how: u8) -> String {
    match how % 6 {
        0 => "?".repeat(piece.chars().count()),
        1 => "*".to_owned(),
        2 => "$x".to_owned(),
        3 => "\"$x\"".to_owned(),
        4 => format!("$(echo {piece})"),
        _ => format!("'{piece}'"),
    }
}

proptest::proptest! {
    /// However a part of a denied command is hidden, what expands to it is not allowed.
    #[test]
    fn nothing_that_expands_to_what_is_denied_is_allowed(
        row in 0_usize..10,
        from in 0_usize..24,
        length in 1_usize..8,
        how in 0_u8..6,
        again in 0_u8..6,
    ) {
        let (deny, command) = [
            ("*/etc/shadow*", "cat /etc/shadow"),
            ("cat /etc/shadow", "cat /etc/shadow"),
            ("systemctl stop *", "systemctl stop db"),
            ("*token*", "grep x -- my.token a.b"),
            ("cp * /data/*", "cp a.txt /data/b.txt"),
            ("rm -rf *", "rm -rf build"),
            ("rm -rf *", "rm build -f -r"),
            ("git push *", "git --no-pager push"),
            ("kubectl delete pod *", "kubectl -n prod delete --now pod web"),
            ("docker rm --force *", "docker --debug rm web -f"),
        ][row];
        let policy = whole_tool(deny);
        proptest::prop_assert_eq!(decision(&policy, command), PolicyDecision::Deny);
        // The program stays; of its arguments a part of one word is hidden, and one more.
        let (program, arguments) = command.split_once(' ').unwrap();
        let mut words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let count = words.len();
        for (at, how) in [(from % count, how), ((from + 1) % count, again)]
            .into_iter()
            .take(count)
        {
            let word = words[at].clone();
            let start = from % word.len();
            let end = (start + length).min(word.len());
            let piece = &word[start..end];
            // No name of a file has a slash in it.
            let is_path = piece.contains('/') && how < 2;
            let piece = hidden(piece, if is_path { 2 } else { how });
            words[at] = format!("{}{piece}{}", &word[..start], &word[end..]);
        }
        let command = format!("{program} {}", words.join(" "));
        let decided = decision(&policy, &command);
        proptest::prop_assert_ne!(decided, PolicyDecision::Allow, "{}", command);
    }
}
