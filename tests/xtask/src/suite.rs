//! `cargo xtask test`: builds everything, runs the tests and the checks, says what was left out.
//!
//! One build of libraries, programs and tests together, so that features are resolved once
//! and the plugins that tests load are there. Then the runner, then the examples in the
//! documentation, which cargo-nextest does not run, then what `cargo xtask check` checks. In CI the
//! release program is built while tests run, since most of those wait for other programs.

use std::{
    fmt,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    builds,
    check::{self, CHECKS},
    compat::baseline,
    left_out::{LeftOut, unescape},
    repo, sanitize, space,
};

/// What of each package is built and tested; documentation comes after.
const TARGETS: [&str; 5] = ["--workspace", "--lib", "--bins", "--tests", "--examples"];

/// Where nextest leaves its report, as `.config/nextest.toml` says: below the root of the
/// repository, wherever cargo builds.
const REPORT: &str = "target/nextest/default/junit.xml";

/// Folders that only tests, or only checks, build into: see [`space::in_targets`].
const TEST_BUILDS: [&str; 3] = ["plugin-tests", "plugin-new", "compat"];
const CHECK_BUILDS: [&str; 2] = ["doc", "package"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to the runner, such as a filter; then only tests run, without the examples in
    /// the documentation and without the checks
    #[arg(last = true, value_name = "ARGS")]
    runner: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut outcome = Outcome {
        is_filtered: !args.runner.is_empty(),
        ..Outcome::default()
    };
    outcome.timed("build", |_| repo::run(repo::cargo(["build"]).args(TARGETS)))?;
    let is_ci = repo::in_ci() && !outcome.is_filtered;
    let release = is_ci.then(builds::begin).transpose()?;
    outcome.timed("tests", |outcome| tests(&args.runner, outcome))?;
    if !outcome.is_filtered {
        outcome.timed("examples in the documentation", |outcome| {
            let mut command = repo::cargo(["test", "--workspace", "--doc", "--no-fail-fast"]);
            command.args(["--", "--show-output"]);
            cargo_test(&mut command, outcome)
        })?;
        outcome.timed("baselines of plugins", Outcome::take_baselines);
        outcome.free_space(|| space::remove_tests(&TARGETS));
        outcome.free_space(|| space::remove(&space::in_targets(&TEST_BUILDS)));
        outcome.take_checks();
        outcome.free_space(|| space::remove(&space::in_targets(&CHECK_BUILDS)));
        outcome.timed("budget of the build", Outcome::take_builds);
        let why = "`.ci/run` does at its end, and each night a workflow; here, `cargo xtask fuzz`";
        outcome.left_out.add_check("fuzz targets", why);
        outcome.timed("address sanitizer", Outcome::take_sanitizer);
    }
    drop(release);
    outcome.report()
}

/// Runs the tests but for the examples in the documentation.
fn tests(args: &[String], outcome: &mut Outcome) -> Result<()> {
    if repo::succeeds(&mut repo::cargo(["nextest", "--version"])) {
        return nextest(args, outcome);
    }
    eprintln!("cargo-nextest is not installed; running `cargo test`, which is slower");
    let mut command = repo::cargo(["test", "--no-fail-fast"]);
    command
        .args(TARGETS)
        .args(args)
        .args(["--", "--show-output"]);
    cargo_test(&mut command, outcome)
}

/// What the runners said, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Tests that passed at another attempt only.
    flaky: Vec<String>,
    /// Tests that passed at no attempt, with what the last of them said.
    failures: Vec<Failure>,
    left_out: LeftOut,
    /// Command lines and checks that did not succeed.
    broken: Vec<String>,
    /// How many checks passed.
    checks: usize,
    /// Only what the command line picked was asked for.
    is_filtered: bool,
    /// How long each part took.
    durations: Vec<(&'static str, Duration)>,
}

/// A test that failed.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    test: String,
    /// The end of what it wrote.
    output: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed: {}\n{}", self.test, self.output)
    }
}

impl Outcome {
    /// Prints the end of the run.
    ///
    /// # Errors
    /// When a test or a check failed, when no test ran, and in CI when something was left out that CI
    /// should have run.
    fn report(self) -> Result<()> {
        let left_out = self.left_out_lines();
        if !left_out.is_empty() {
            println!("\nLeft out:");
            left_out.iter().for_each(|line| println!("  {line}"));
        }
        for test in &self.flaky {
            println!("\nfailed once, then passed: {test}");
        }
        for failure in &self.failures {
            println!("\n{failure}");
        }
        let seconds = |(part, time): &(&str, Duration)| format!("{part} {} s", time.as_secs());
        let times: Vec<String> = self.durations.iter().map(seconds).collect();
        println!("\ntime: {}", times.join(", "));
        println!(
            "tests: {} passed, {} failed, {} skipped; checks: {} of {} passed",
            self.passed,
            self.failed,
            self.skipped,
            self.checks,
            CHECKS.len()
        );
        if self.failed > 0 || !self.broken.is_empty() {
            bail!("not everything passed: {}", self.broken.join("; "));
        }
        if self.passed == 0 {
            bail!("no test ran");
        }
        let cassettes_given =
            std::env::var_os("CONJURE_CASSETTES").is_some_and(|folder| !folder.is_empty());
        let missing = self.left_out.not_expected_in_ci(cassettes_given);
        if repo::in_ci() && !missing.is_empty() {
            bail!(
                "left out in CI: {}; make .ci/run install what they need, or name them in \
                 tests/xtask/src/left_out.rs with the reason",
                missing.join(", ")
            );
        }
        Ok(())
    }

    /// What did not run and why, one line each.
    fn left_out_lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.left_out.lines().collect();
        if self.is_filtered {
            lines.push(format!(
                "examples in the documentation, {}: only some tests were asked for; \
                 `cargo xtask test` without arguments runs all, `cargo xtask check` the checks",
                check::names()
            ));
        }
        lines
    }

    /// Does a part and notes how long it took; in CI it says so at once, with what is left of the disk.
    fn timed<T>(&mut self, part: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        let begun = Instant::now();
        let result = work(self);
        let time = begun.elapsed();
        self.durations.push((part, time));
        if repo::in_ci() {
            let free = space::describe_free().unwrap_or_default();
            eprintln!("{part}: {} s, {free}", time.as_secs());
        }
        result
    }

    /// Removes build output while everything passed; what is broken may be looked at. Where it cannot be
    /// removed is said, and is no reason to fail.
    fn free_space(&self, remove: impl FnOnce() -> Result<()>) {
        if !self.broken.is_empty() {
            return;
        }
        if let Err(error) = remove() {
            eprintln!("build output stays where it is: {error:#}");
        }
    }

    /// Builds and loads plugins of the commits whose libraries go on loading in CI; elsewhere says how
    /// to, since it builds the SDK of each.
    fn take_baselines(&mut self) {
        const NAME: &str = "baselines of plugins";
        if !repo::in_ci() {
            let why = "it runs in CI; `cargo xtask compat --baseline` runs it here";
            self.left_out.add_check(NAME, why);
        } else if let Some(why) = baseline::missing_requirement() {
            self.left_out.add_check(NAME, &why);
        } else {
            // The program that the tests ran.
            let program = format!("debug/conjure{}", std::env::consts::EXE_SUFFIX);
            if let Err(error) = baseline::run(&repo::target().join(program)) {
                self.broken.push(format!("{NAME}: {error:#}"));
            }
        }
    }

    /// Runs the checks, all of them, and takes in what came of them.
    fn take_checks(&mut self) {
        for check in &CHECKS {
            if let Some(why) = check.missing_tool() {
                self.left_out.add_check(check.name, &why);
                continue;
            }
            if let Err(error) = self.timed(check.name, |_| check.run()) {
                eprintln!("{}: {error:#}", check.name);
                self.broken.push(format!("{}: {error:#}", check.name));
            } else {
                self.checks += 1;
            }
        }
    }

    /// Holds the release program against its budget in CI; elsewhere says how to, since it builds
    /// everything once more.
    fn take_builds(&mut self) {
        const NAME: &str = "budget of the build";
        if !repo::in_ci() {
            let why = "it runs in CI; `cargo xtask perf build` measures it here";
            self.left_out.add_check(NAME, why);
        } else if let Err(error) = builds::check() {
            self.broken.push(format!("{NAME}: {error:#}"));
        }
    }

    /// Runs the tests of the `unsafe` with the address sanitizer in CI; elsewhere says how to, since it
    /// builds what they need once more.
    fn take_sanitizer(&mut self) {
        const NAME: &str = "address sanitizer";
        if let Some(why) = sanitize::missing_requirement() {
            self.left_out.add_check(NAME, &why);
        } else if !repo::in_ci() {
            let why = "it runs in CI; `cargo xtask sanitize` runs it here";
            self.left_out.add_check(NAME, why);
        } else if let Err(error) = sanitize::run() {
            self.broken.push(format!("{NAME}: {error:#}"));
        } else {
            self.free_space(|| space::remove(&[sanitize::TARGET_DIR]));
        }
    }

    /// Adds `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn take_result_line(&mut self, line: &str) {
        for part in line.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Adds the totals in the head of a JUnit report.
    fn take_junit(&mut self, report: &str) {
        let head = report
            .split_once("<testsuites")
            .map_or("", |(_, rest)| rest);
        let head = head.split('>').next().unwrap_or_default();
        let number = |name: &str| -> u64 {
            let value = head
                .split_once(&format!(" {name}=\""))
                .map(|(_, rest)| rest);
            let value = value.and_then(|rest| rest.split('"').next());
            value.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let failed = number("failures") + number("errors");
        self.failed += failed;
        self.passed += number("tests").saturating_sub(failed);
        self.flaky.extend(flaky(report));
        self.failures.extend(failures(report));
        self.left_out.take_junit(report);
    }
}

/// The tests of a JUnit report that failed at first and passed then.
fn flaky(report: &str) -> Vec<String> {
    cases(report)
        .filter(|case| case.contains("<flakyFailure"))
        .filter_map(name_of)
        .collect()
}

/// The tests of a JUnit report that failed at every attempt.
fn failures(report: &str) -> Vec<Failure> {
    cases(report)
        .filter(|case| case.contains("<failure") || case.contains("<error"))
        .filter_map(|case| {
            Some(Failure {
                test: name_of(case)?,
                output: ["system-out", "system-err"]
                    .map(|stream| end_of(case, stream))
                    .concat(),
            })
        })
        .collect()
}

/// The test cases of a JUnit report, as XML.
fn cases(report: &str) -> impl Iterator<Item = &str> {
    report
        .split("<testcase ")
        .skip(1)
        .map(|case| case.split("</testcase>").next().unwrap_or_default())
}

/// A test case's binary and name.
fn name_of(case: &str) -> Option<String> {
    let value = |attribute: &str| {
        let (_, rest) = case.split_once(attribute)?;
        rest.split('"').next()
    };
    let name = value("name=\"")?;
    Some(match value(" classname=\"") {
        Some(binary) => format!("{binary} {name}"),
        None => name.to_owned(),
    })
}

/// The last lines of what a test case wrote to `stream` at its last attempt.
fn end_of(case: &str, stream: &str) -> String {
    const LINES: usize = 40;
    // Later attempts stand in elements of their own, before what the first one wrote.
    let case = match case.rsplit_once("<rerunFailure") {
        Some((_, last)) => last.split("</rerunFailure>").next().unwrap_or_default(),
        None => case,
    };
    let Some((_, text)) = case.rsplit_once(&format!("<{stream}>")) else {
        return String::new();
    };
    let text = text.split("</").next().unwrap_or_default();
    text.lines()
        .skip(text.lines().count().saturating_sub(LINES))
        .map(|line| format!("{}\n", unescape(line)))
        .collect()
}

/// Runs cargo-nextest and reads its JUnit report: output of tests that pass is only there.
fn nextest(args: &[String], outcome: &mut Outcome) -> Result<()> {
    let report = repo::root().join(REPORT);
    if report.exists() {
        std::fs::remove_file(&report)
            .with_context(|| format!("cannot remove `{}`", report.display()))?;
    }
    let mut command = repo::cargo(["nextest", "run", "--profile", "default"]);
    command.args(TARGETS).args(args);
    // What tests load was built before them.
    command.env("CONJURE_KIT_BUILT", "1");
    if let Err(error) = repo::run(&mut command) {
        outcome.broken.push(format!("{error:#}"));
    }
    match std::fs::read_to_string(&report) {
        Ok(text) => outcome.take_junit(&text),
        Err(error) => outcome.broken.push(format!(
            "nextest left no report at `{}` ({error})",
            report.display()
        )),
    }
    Ok(())
}

/// Runs `cargo test … --show-output`, shows what it prints but for the output of tests that
/// passed, and takes from that what was left out.
fn cargo_test(command: &mut Command, outcome: &mut Outcome) -> Result<()> {
    repo::announce(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{}` could not be started", repo::line(command)))?;
    if let Some(stdout) = child.stdout.take() {
        let mut hidden = false;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.context("the tests' output could not be read")?;
            let line = String::from_utf8_lossy(&line);
            outcome.left_out.take_line(&line);
            if line.starts_with("test result: ") {
                outcome.take_result_line(&line);
            }
            hidden = match line.as_ref() {
                "successes:" => true,
                "failures:" => false,
                other => hidden && !other.starts_with("test result: "),
            };
            if !hidden {
                println!("{line}");
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        outcome
            .broken
            .push(format!("`{}` failed ({status})", repo::line(command)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_both_runners_are_added_up() {
        let mut outcome = Outcome::default();
        outcome.take_result_line("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s");
        outcome.take_junit("<?xml version=\"1.0\"?>\n<testsuites name=\"nextest-run\" tests=\"12\" failures=\"1\" errors=\"1\" uuid=\"x\" time=\"0.1\">\n<testsuite name=\"t\" tests=\"12\"/>");
        assert_eq!(
            (outcome.passed, outcome.failed, outcome.skipped),
            (13, 2, 1)
        );
    }

    #[test]
    fn what_was_not_asked_for_is_named_with_its_command() {
        assert!(Outcome::default().left_out_lines().is_empty());
        let picked = Outcome {
            is_filtered: true,
            ..Outcome::default()
        };
        assert_eq!(
            picked.left_out_lines(),
            [
                "examples in the documentation, formatting, house rules, public items of the SDK, \
                 dependencies, lints, packages of the SDK, documentation: only some tests were asked for; `cargo xtask test` without \
                 arguments runs all, `cargo xtask check` the checks"
            ]
        );
    }

    #[test]
    fn a_test_that_passed_at_its_second_attempt_is_named() {
        let mut outcome = Outcome::default();
        outcome.take_junit(
            "<testsuites name=\"x\" tests=\"2\" failures=\"0\" errors=\"0\"><testsuite name=\"t\">\
             <testcase name=\"steady\" classname=\"t\"></testcase>\
             <testcase name=\"shaky\" classname=\"t\"><flakyFailure type=\"x\"></flakyFailure>\
             </testcase></testsuite></testsuites>",
        );
        assert_eq!((outcome.passed, outcome.failed), (2, 0));
        assert_eq!(outcome.flaky, ["t shaky"]);
    }

    #[test]
    fn a_test_that_failed_is_named_with_the_end_of_what_it_wrote() {
        let noise = "noise\n".repeat(60);
        let found = failures(&format!(
            "<testsuites name=\"x\" tests=\"2\"><testsuite name=\"t\">\
             <testcase name=\"steady\" classname=\"t\"></testcase>\
             <testcase name=\"shaky\" classname=\"t\"><flakyFailure type=\"x\"></flakyFailure></testcase>\
             <testcase name=\"broken\" classname=\"t\"><failure type=\"x\"/><rerunFailure>\
             <system-out>second</system-out></rerunFailure><rerunFailure>\
             <system-out>{noise}out</system-out><system-err>left &lt; right &amp;&amp; more</system-err>\
             </rerunFailure><system-out>first</system-out></testcase></testsuite></testsuites>"
        ));
        let [failure] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(failure.test, "t broken");
        assert!(
            failure
                .output
                .ends_with("noise\nout\nleft < right && more\n")
        );
        assert_eq!(failure.output.lines().count(), 41);
    }

    #[test]
    fn a_failed_check_fails_the_run() {
        let outcome = Outcome {
            passed: 1,
            broken: vec!["formatting: `cargo fmt --all --check` failed".to_owned()],
            ..Outcome::default()
        };
        assert_eq!(
            outcome.report().unwrap_err().to_string(),
            "not everything passed: formatting: `cargo fmt --all --check` failed"
        );
    }

    #[test]
    fn a_run_without_tests_is_a_failure() {
        let error = Outcome::default().report().unwrap_err();
        assert_eq!(error.to_string(), "no test ran");
    }
}
