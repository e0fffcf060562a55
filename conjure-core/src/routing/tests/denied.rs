//! Commands that do what a rule denies or asks about, written with other options, or without
//! arguments; and rules that still let something through, which are told.

use super::super::*;
use super::attacks::{decision, policy, whole_tool};

/// Each row: what is denied, and commands that do it.
const DENIED: &[(&str, &[&str])] = &[
    (
        "reboot *",
        &["reboot", "/sbin/reboot", "sudo reboot", "ls; reboot"],
    ),
    (
        "git push *",
        &[
            "git push",
            "git --no-pager push",
            "git -p push origin",
            "git -C sub push",
            "git --git-dir=x push",
            "sudo -u me git -p push",
            "sh -c 'git -p push'",
        ],
    ),
    (
        "git push*",
        &["git push", "git --no-pager push", "git -p push"],
    ),
    (
        "kubectl delete *",
        &[
            "kubectl delete",
            "kubectl -n prod delete pod x",
            "kubectl --context prod -n x delete pod x",
        ],
    ),
    ("docker rm *", &["docker --debug rm x"]),
    ("npm publish*", &["npm --silent publish"]),
    (
        "rm -rf *",
        &[
            "rm -rf",
            "rm -r -f x",
            "rm -fr x",
            "rm x -rf",
            "rm -rvf x",
            "rm --recursive --force x",
            "find . -exec rm -f -r {} +",
        ],
    ),
    ("*rm -rf*", &["rm -r -f x", "rm -fr x", "ls | xargs rm -fr"]),
    (
        "git push * --force*",
        &["git push --force", "git push origin -f"],
    ),
];

/// Each row: what is denied, and commands that do something else.
const NOT_DENIED: &[(&str, &[&str])] = &[
    ("reboot *", &["ls reboot", "rebooter"]),
    (
        "git push *",
        &["git log", "git log push", "git pushx", "git status --short"],
    ),
    ("kubectl delete *", &["kubectl -n prod get pod delete"]),
    ("rm -rf *", &["rm -r x", "rm -f x", "rm x", "ls -rf"]),
    ("git push * --force*", &["git push", "git push --dry-run"]),
];

#[test]
fn a_command_is_denied_with_other_options_too() {
    for (deny, commands) in DENIED {
        for command in *commands {
            let decided = decision(&whole_tool(deny), command);
            assert_eq!(decided, PolicyDecision::Deny, "`{deny}` and {command:?}");
        }
    }
    for (deny, commands) in NOT_DENIED {
        for command in *commands {
            let decided = decision(&whole_tool(deny), command);
            assert_eq!(decided, PolicyDecision::Allow, "`{deny}` and {command:?}");
        }
    }
}

#[test]
fn a_rule_that_asks_is_read_as_widely_as_one_that_denies() {
    for (ask, commands) in DENIED {
        let mut policy = whole_tool(ask);
        policy.rules.remove(0);
        policy.rules[0].decision = PolicyDecision::Ask;
        policy.default.destructive = PolicyDecision::Allow;
        for command in *commands {
            let decided = decision(&policy, command);
            assert_eq!(decided, PolicyDecision::Ask, "`{ask}` and {command:?}");
        }
    }
}

#[test]
fn nothing_of_it_makes_what_is_allowed_wider() {
    for (allow, command) in [
        ("git push *", "git push"),
        ("git status *", "git --no-pager status -s"),
        ("kubectl get pods *", "kubectl -n prod get pods x"),
        ("rm -rf *", "rm -fr x"),
        ("rm -r -f *", "rm -rf x"),
        ("reboot *", "reboot"),
        ("ls -l -a *", "ls -la x"),
    ] {
        let decided = decision(&policy(&[allow], &[]), command);
        assert_eq!(decided, PolicyDecision::Ask, "`{allow}` and {command:?}");
    }
}

#[test]
fn a_shell_may_expand_to_what_is_denied_with_other_options() {
    for (deny, command) in [
        ("rm -rf *", "rm -f $x"),
        ("rm -rf *", "rm $x build"),
        ("kubectl delete *", "kubectl -n prod del$x pod"),
        ("systemctl stop *", "systemctl --now $x"),
        ("cat /etc/shadow*", "cd /etc; cat -n shadow"),
    ] {
        let decided = decision(&whole_tool(deny), command);
        assert_eq!(decided, PolicyDecision::Ask, "`{deny}` and {command:?}");
    }
    for (deny, command) in [
        ("rm -rf *", "rm -f build/*.o"),
        ("cat /etc/shadow*", "cd src; cat -n notes"),
    ] {
        let decided = decision(&whole_tool(deny), command);
        assert_eq!(decided, PolicyDecision::Allow, "`{deny}` and {command:?}");
    }
}

#[test]
fn what_runs_other_programs_is_judged_by_what_it_runs() {
    for command in [
        "cross-env A=b reboot",
        "cross-env-shell 'ls; reboot'",
        "mise exec -- reboot",
        "mise x node -- reboot",
        "concurrently ls 'reboot now'",
        "eatmydata reboot",
        "nsjail -Mo -- reboot",
        "op run -- reboot",
        "distrobox enter box -- reboot",
        "rr record reboot",
        "ansible all -a reboot",
    ] {
        let decided = decision(&whole_tool("reboot *"), command);
        assert_eq!(decided, PolicyDecision::Deny, "{command}");
    }
    for (allow, command) in [
        ("cross-env *", "cross-env reboot"),
        ("mise exec *", "mise exec reboot"),
        ("mise x *", "mise x reboot"),
        ("concurrently *", "concurrently reboot"),
        ("op run *", "op run -- reboot"),
        ("distrobox enter *", "distrobox enter box -- reboot"),
        ("rr record *", "rr record reboot"),
        ("rails runner *", "rails runner 'exec \"reboot\"'"),
        ("ansible all *", "ansible all -a reboot"),
        ("ansible web *", "ansible web -a reboot"),
        (
            "kubectl config *",
            "kubectl config set-credentials x --exec-command=./evil",
        ),
        ("kubectl get *", "kubectl get x --exec-command=./evil"),
        ("cargo test *", "cargo test -- --logfile=/etc/cron.d/x"),
        ("redis-cli config *", "redis-cli config set dir /etc/cron.d"),
        ("redis-cli *", "redis-cli config set dir /etc/cron.d"),
    ] {
        let decided = decision(&policy(&[allow], &[]), command);
        assert_eq!(decided, PolicyDecision::Ask, "`{allow}` and {command:?}");
    }
}

#[test]
fn rules_that_deny_less_than_they_seem_to_are_told_with_better_ones() {
    let mut policy = policy(
        &[],
        &[
            "git push",
            "/bin/rm *",
            "/etc/*",
            "curl * | sh",
            "PATH=* make *",
            "git commit --no-verify*",
            "cat /etc/*",
        ],
    );
    policy.rules[0].decision = PolicyDecision::Ask;
    let told: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "the rule `ask bash_tool(git push)` is not for the command with a further argument. Write \
             for instance `bash_tool(git push *)`.",
            "the rule `deny bash_tool(/bin/rm *)` is not for the program where it is called by its name \
             alone or from another directory. Write for instance `bash_tool(rm *)`.",
            "the rule `deny bash_tool(/etc/*)` is for no command that has the path among its arguments. \
             Write for instance `bash_tool(*/etc/*)`.",
            "the rule `deny bash_tool(curl * | sh)` is for its commands only where they are written \
             together like that: each command, and each variable that is set, is looked at alone. Write \
             for instance `bash_tool(sh *)`.",
            "the rule `deny bash_tool(PATH=* make *)` is for its commands only where they are written \
             together like that: each command, and each variable that is set, is looked at alone. Write \
             for instance `bash_tool(PATH=*)`.",
            "the rule `deny bash_tool(git commit --no-verify*)` is for `--no-verify` under this name \
             only, and the program may have another one for it. Write for instance `bash_tool(git \
             commit *)`.",
            "the rule `deny bash_tool(cat /etc/*)` is not for `/etc/` behind another argument. Write for \
             instance `bash_tool(cat */etc/*)`.",
        ]
    );
    let better = policy.warnings().into_iter().filter_map(|it| it.better);
    policy.rules = better
        .map(|pattern| Rule {
            pattern,
            decision: PolicyDecision::Deny,
        })
        .collect();
    assert_eq!(policy.rules.len(), 7);
    assert_eq!(policy.warnings(), []);
    // What is about paths alone is no rule for commands.
    policy.rules[0].pattern = "*_create_file(/etc/*)".parse().unwrap();
    assert_eq!(policy.warnings(), []);
}
