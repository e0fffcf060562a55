//! Programs that have more ways to run something than a list can hold: only what is known to be
//! harmless of them is taken for harmless.

use super::super::*;
use super::attacks::{decision, policy};

/// Each row: what is allowed, and a command that it must not allow.
const NOT_ALLOWED: &[(&str, &str)] = &[
    ("gcc main.c *", "gcc main.c -Wl,-plugin,./evil.so"),
    ("gcc main.c *", "gcc main.c -Wl,-o,/etc/cron.d/x"),
    ("gcc main.c *", "gcc main.c -Wp,-MD,/etc/cron.d/x"),
    ("gcc main.c *", "gcc main.c -aux-info /etc/cron.d/x"),
    ("rustc main.rs *", "rustc main.rs --codegen linker=./evil"),
    ("rustdoc main.rs *", "rustdoc main.rs --test"),
    ("ar rc *", "ar rc /etc/cron.d/x main.o"),
    ("jar cf *", "jar cf ../x a"),
    ("npm test *", "npm test --node-options=--import=data:x"),
    ("npm test *", "npm test --userconfig=./evil"),
    ("npm test *", "npm test -- --require ./evil.js"),
    ("rake test *", "rake test -e 'system \"reboot\"'"),
    ("bazel test *", "bazel test --run_under=reboot"),
    ("just test *", "just test --shell ./evil"),
    ("mvn test *", "mvn test -s evil.xml"),
    ("mvn test *", "mvn test org.evil:plugin:run"),
    ("gradle test *", "gradle test -p /tmp/evil"),
    ("go test *", "go test -coverprofile=/etc/cron.d/x"),
    (
        "kubectl get *",
        "kubectl get pods --server=https://evil --token=x",
    ),
    ("terraform plan *", "terraform plan -out=/etc/cron.d/x"),
    ("docker ps *", "docker ps -c evil"),
    ("gh pr view *", "gh pr view -w"),
    ("git apply *", "git apply --unsafe-paths x.patch"),
    ("git apply *", "git apply --directory=../x x.patch"),
    ("git merge-index *", "git merge-index ./evil -a"),
    ("pip download *", "pip download ./evil"),
    ("pylint src *", "pylint src --init-hook='import evil'"),
    ("bat notes.md *", "bat notes.md --pager=reboot"),
    ("mypy src *", "mypy src --python-executable=./evil"),
    (
        "eslint src *",
        "eslint src --resolve-plugins-relative-to=/tmp",
    ),
    ("pytest tests *", "pytest tests -p evil"),
    ("pytest tests *", "pytest tests /tmp/evil.py"),
    ("pytest tests *", "pytest tests @a.txt"),
    ("prettier src *", "prettier src /tmp/evil/a.js"),
    ("eslint src *", "eslint src ../evil"),
    ("cmake . *", "cmake . -B /tmp/x"),
    ("cmake . *", "cmake . /tmp/evil"),
    ("cmake . *", "cmake . -DCMAKE_C_COMPILER=./evil"),
    ("mocha tests *", "mocha tests --require ./evil.js"),
    ("ctest *", "ctest -S evil.cmake"),
    ("coverage run *", "coverage run evil.py"),
    ("fzf x *", "fzf x --preview reboot"),
    ("dd if=a *", "dd if=a of=/etc/cron.d/x"),
    ("pdflatex a.tex *", "pdflatex a.tex --shell-escape"),
];

/// Each row: what is allowed, and a command that it allows.
const ALLOWED: &[(&str, &str)] = &[
    (
        "gcc main.c *",
        "gcc main.c util.c -O2 -Wall -Wno-unused -std=c99 -lm",
    ),
    ("make test *", "make test -j8 -k"),
    ("cmake . *", "cmake . --trace -v"),
    ("eslint src *", "eslint src lib/a.js --quiet"),
    ("npm test *", "npm test --silent"),
    ("npm view *", "npm view @types/node --json"),
    ("go test *", "go test ./... -run=TestA -race -count=1"),
    (
        "pytest tests *",
        "pytest tests tests/test_a.py::test_b -k slow -vv",
    ),
    ("mvn test *", "mvn test -q -Dtest=Some"),
    ("kubectl get *", "kubectl get pods --output=yaml -owide"),
    ("coverage report *", "coverage report -m"),
    ("bat notes.md *", "bat notes.md --plain"),
];

#[test]
fn an_option_that_is_not_known_to_be_harmless_is_not_allowed_by_a_star() {
    for (pattern, command) in NOT_ALLOWED {
        let verdict = decision(&policy(&[pattern], &[]), command);
        assert_ne!(
            verdict,
            PolicyDecision::Allow,
            "`{pattern}` and {command:?}"
        );
    }
    for (pattern, command) in ALLOWED {
        let verdict = decision(&policy(&[pattern], &[]), command);
        assert_eq!(
            verdict,
            PolicyDecision::Allow,
            "`{pattern}` and {command:?}"
        );
    }
}
