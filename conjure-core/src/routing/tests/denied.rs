//! Commands that do what a rule denies or asks about, written with other options, or without
//! arguments; and rules that still let something through, which are told.

use serde_json::json;

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
    ("npm publish *", &["npm --silent publish"]),
    ("rm *", &["rm", "sudo -n rm", "ls | xargs -n 1 rm"]),
    ("*rm *", &["rm", "/bin/rm", "sudo rm", "env A=b rm"]),
    ("*sudo *", &["sudo", "/usr/bin/sudo", "sudo ls"]),
    ("docker *", &["docker", "sudo docker", "sh -c docker"]),
    (
        "python3 -c *",
        &["python3 -c 1", "python3 -I -c 1", "python3 -Ic 1"],
    ),
    ("git -c *", &["git -c a=b log", "git -C sub -c a=b log"]),
    (
        "kubectl delete * --force*",
        &["kubectl delete pod x --force"],
    ),
    ("docker run *", &["docker --context x run img"]),
    ("docker rm web*", &["docker rm -f web"]),
    ("docker compose down *", &["docker compose -f x.yaml down"]),
    ("pnpm add *", &["pnpm -w add x"]),
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
    (
        "reboot *",
        &[
            "ls reboot",
            "rebooter",
            "git log --grep reboot",
            "man reboot",
            "sudo apt install reboot",
        ],
    ),
    (
        "git push *",
        &[
            "git log",
            "git log push",
            "git pushx",
            "git status --short",
            "git --no-pager log push",
            "git commit -am 'git push'",
            "man git push",
        ],
    ),
    (
        "kubectl delete *",
        &[
            "kubectl -n prod get pod delete",
            "kubectl -n delete get pod",
        ],
    ),
    ("rm -rf *", &["rm -r x", "rm -f x", "rm x", "ls -rf"]),
    ("rm -f *", &["git rm -rf x", "rm -r x"]),
    ("git push * --force*", &["git push", "git push --dry-run"]),
    (
        "*--force*",
        &[
            "tail -f log",
            "curl -fsSL url",
            "git push -f",
            "kubectl apply -f x.yaml",
            "tar -cf x.tar y",
            "grep -f names x",
        ],
    ),
    ("*--all*", &["ls -la", "git commit -a", "docker ps -a"]),
    (
        "*--delete*",
        &["cut -d, x", "docker run -d img", "git branch -d x"],
    ),
    (
        "kubectl apply --force*",
        &["kubectl apply -f x.yaml", "kubectl apply --filename x.yaml"],
    ),
    ("kubectl * --force*", &["kubectl apply -f x.yaml"]),
    ("oc apply --force*", &["oc apply -f x.yaml"]),
    ("helm upgrade * --force*", &["helm upgrade -f x.yaml a b"]),
    (
        "docker * --force*",
        &[
            "docker compose -f x.yaml up",
            "docker build -f Dockerfile .",
        ],
    ),
    (
        "docker compose * --force*",
        &["docker compose -f x.yaml up"],
    ),
    ("tail --force*", &["tail -f log"]),
    ("curl --force*", &["curl -fsSL url"]),
    ("curl * --all*", &["curl -a x"]),
    ("journalctl --force*", &["journalctl -f"]),
    ("git * --all*", &["git tag -a v1"]),
    (
        "git * --force*",
        &["git grep -f names", "git config -f x a"],
    ),
    (
        "git push --force-with-lease*",
        &["git push --force", "git push -f"],
    ),
    (
        "*rm *",
        &[
            "ls src/platform",
            "cd terraform",
            "cargo test confirm",
            "man rm",
            "which rm",
        ],
    ),
    (
        "*sudo *",
        &[
            "which sudo",
            "command -v sudo",
            "man sudo",
            "ls /usr/bin/sudo",
        ],
    ),
    (
        "docker *",
        &[
            "make docker",
            "git clone docker",
            "cargo install docker",
            "npm run docker",
            "bash run.sh docker",
            "sudo apt install docker",
            "time make docker",
            "timeout 60 make docker",
            "command -v docker",
            "find . -name docker",
            "ssh docker",
        ],
    ),
    ("npm *", &["git add npm", "man npm", "cargo run npm"]),
    ("sudo *", &["git grep sudo", "apt show sudo"]),
    (
        "*-dev*",
        &["docker run -d -e A=b -v /x:/y img", "ls -d e v"],
    ),
    (
        "*-prod*",
        &["docker run -p 1:2 -d img", "tar -p -r -o -d x"],
    ),
    ("*-db*", &["cut -d, -b 1 x", "docker run -d -b x img"]),
    ("*-rf*", &["ls -r -f", "rm -r x -f", "cp -fr x y"]),
    ("docker *-dev*", &["docker run -d -e A=b -v /x:/y img"]),
    (
        "python3 -c *",
        &[
            "python3 manage.py test -c",
            "python3 -m pytest -c x",
            "python3 x.py -c",
        ],
    ),
    ("node -e *", &["node app.js -e x"]),
    ("bash -c *", &["bash run.sh -c x"]),
    ("sh -c *", &["sh run.sh -c"]),
    ("perl -e *", &["perl x.pl -e"]),
    ("ruby -e *", &["ruby x.rb -e"]),
    ("git -c *", &["git commit -c HEAD", "git log -c"]),
    ("git -C *", &["git grep -C 3 x"]),
    ("sudo -u *", &["sudo ls -u"]),
    (" *", &["ls", "git status", "rm x"]),
    ("* *", &["ls", "make", "npm"]),
    ("* push *", &["git push"]),
    ("mysql -e *", &["mysql -uadmin -psecret"]),
    ("npm publish*", &["npm --silent run publish"]),
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
            assert_ne!(decided, PolicyDecision::Deny, "`{deny}` and {command:?}");
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
    // What is about paths alone, and a backend that runs no commands, have no rules for commands.
    for pattern in ["*_create_file(/etc/*)", "backend:github(issues)"] {
        policy.rules[0].pattern = pattern.parse().unwrap();
        assert_eq!(policy.warnings(), [], "{pattern}");
    }
}

#[test]
fn a_call_is_sorted_by_its_text_alone() {
    let touches = |pattern: &str, command: &str| {
        let pattern: Pattern = format!("bash_tool({pattern})").parse().unwrap();
        let arguments = json!({ "command": command });
        let call = PolicyCall {
            name: "bash_tool",
            backend: "local",
            effects: EffectLevel::Destructive,
            arguments: &arguments,
        };
        (pattern.touches(&call), pattern.touches_text(&call))
    };
    for (pattern, command, expected) in [
        ("docker *", "docker ps", (true, true)),
        ("docker *", "sudo docker ps", (true, true)),
        ("docker *", "docker", (true, false)),
        ("docker *", "make docker", (false, false)),
        ("git push *", "git --no-pager push x", (true, false)),
    ] {
        assert_eq!(
            touches(pattern, command),
            expected,
            "`{pattern}` and {command:?}"
        );
    }
}
