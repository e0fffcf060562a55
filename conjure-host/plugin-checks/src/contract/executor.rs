//! What an executor does with commands: it prepares a session, runs them where its files are, shows
//! their output while they run, ends them, and shows skill folders.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_abi::code;
use conjure_plugins::{AfterStop, PluginCallFailure, PluginHealth};
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, Empty, ExecutorInit, ExecutorReady, View, Viewed, op,
};
use tokio_util::sync::CancellationToken;

use super::bench::{
    Bench, BenchSession, CheckFailure, CheckResult, FOLDER, FOLDER_WORD, expect, to_short_json,
    truncate,
};
use super::executor_files::fetch_file;
use super::{CheckKind, ContractCheck};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecutorCheck {
    Init,
    Output,
    LiveOutput,
    WorkingDir,
    Environment,
    TruncatedOutput,
    Cancel,
    Deadline,
    Folder,
    Cleanup,
}

/// The bytes that a command's output is cut to.
const KEEP_BYTES: u64 = 4096;
/// What a command that never ends writes its life signs to.
const TICKS: &str = "ticks.txt";

/// So long before the end of a command of 2 s its first line is there at the latest.
const SHOWN_BEFORE: Duration = Duration::from_millis(500);
/// A command that shows nothing within this time is cancelled all the same.
const FIRST_OUTPUT: Duration = Duration::from_secs(10);
/// The time limit of a command that never ends: long enough for its beginning, also far away.
const COMMAND_LIMIT: Duration = Duration::from_secs(3);

/// What writes into that file for 20 s at the most, whoever forgets it.
const TICKING: &str =
    "(i=0; while [ $i -lt 400 ]; do echo tick >> ticks.txt; sleep 0.05; i=$((i+1)); done)";

pub(super) fn checks() -> Vec<ContractCheck> {
    [
        ("a session is prepared", ExecutorCheck::Init),
        (
            "a command has its output and its exit code, also where it fails",
            ExecutorCheck::Output,
        ),
        (
            "output is shown while a command runs",
            ExecutorCheck::LiveOutput,
        ),
        (
            "commands run in the working directory",
            ExecutorCheck::WorkingDir,
        ),
        (
            "a command has the variables that it is given",
            ExecutorCheck::Environment,
        ),
        (
            "of long output the end is kept",
            ExecutorCheck::TruncatedOutput,
        ),
        (
            "a command that is cancelled ends with all that it started",
            ExecutorCheck::Cancel,
        ),
        ("a command ends at its time limit", ExecutorCheck::Deadline),
        ("skill folders can be read", ExecutorCheck::Folder),
        (
            "a session ends, and can begin again",
            ExecutorCheck::Cleanup,
        ),
    ]
    .into_iter()
    .map(|(name, check)| ContractCheck::new(name, CheckKind::Executor(check)))
    .collect()
}

pub(super) async fn run(check: ExecutorCheck, bench: &Bench) -> CheckResult {
    let session = bench.session(false);
    let ready = init(bench, &session).await?;
    let done = run_check(check, bench, &session, &ready).await;
    // Also where it does not hold nothing is left, such as a container.
    let cleaned = clean_up(&session).await;
    done.and(cleaned)
}

/// Ends a session.
pub(super) async fn clean_up(session: &BenchSession<'_>) -> CheckResult {
    let Empty {} = session
        .expect_reply(op::EXECUTOR_CLEANUP, &Empty {})
        .await?;
    Ok(())
}

async fn run_check(
    check: ExecutorCheck,
    bench: &Bench,
    session: &BenchSession<'_>,
    ready: &ExecutorReady,
) -> CheckResult {
    match check {
        ExecutorCheck::Init => check_ready(ready),
        ExecutorCheck::Output => check_output_streams(session).await,
        ExecutorCheck::LiveOutput => check_live_output(session).await,
        ExecutorCheck::WorkingDir => working_dir(session, ready).await,
        ExecutorCheck::Environment => environment(session).await,
        ExecutorCheck::TruncatedOutput => check_truncated_output(bench, session).await,
        ExecutorCheck::Cancel => cancel(bench, session).await,
        ExecutorCheck::Deadline => deadline(bench, session).await,
        ExecutorCheck::Folder => folder(session, ready).await,
        ExecutorCheck::Cleanup => {
            clean_up(session).await?;
            init(bench, session).await?;
            let output = bash(session, "echo again").await?;
            expect_output(&output, "again\n", 0)
        }
    }
}

/// Prepares a session that has the bench's skill folder.
pub(super) async fn init(bench: &Bench, session: &BenchSession<'_>) -> CheckResult<ExecutorReady> {
    let request = ExecutorInit {
        skills: vec![bench.folder()],
        env: BTreeMap::from([("CONTRACT".to_owned(), "session".to_owned())]),
        ..ExecutorInit::default()
    };
    session.expect_reply(op::EXECUTOR_INIT, &request).await
}

/// Runs a command that has to come to an end.
pub(super) async fn bash(session: &BenchSession<'_>, command: &str) -> CheckResult<BashOutput> {
    session
        .expect_reply(op::EXECUTOR_BASH, &request(command))
        .await
}

fn request(command: &str) -> Bash {
    Bash {
        command: command.to_owned(),
        ..Bash::default()
    }
}

/// What a command must have said, and how it must have ended.
pub(super) fn expect_output(output: &BashOutput, stdout: &str, exit_code: i32) -> CheckResult {
    let fits = output.stdout == stdout && output.exit_code == Some(exit_code);
    let expected = format!("exit code {exit_code} and {stdout:?} on stdout");
    expect(fits, &expected, || outcome(output))
}

fn outcome(output: &BashOutput) -> String {
    let code = output.exit_code.map_or_else(
        || "no exit code".to_owned(),
        |code| format!("exit code {code}"),
    );
    let text = |text: &str| truncate(text, 200);
    format!(
        "{code}, {:?} on stdout, {:?} on stderr",
        text(&output.stdout),
        text(&output.stderr)
    )
}

fn check_ready(ready: &ExecutorReady) -> CheckResult {
    expect(
        ready.working_dir.starts_with('/'),
        "the absolute path of the working directory as commands see it",
        || format!("`{}`", ready.working_dir),
    )?;
    mounted_folder(ready).map(drop)
}

fn mounted_folder(ready: &ExecutorReady) -> CheckResult<&str> {
    let mount = ready.skills.iter().find(|mount| mount.name == FOLDER);
    let mount = mount.filter(|mount| mount.dir.starts_with('/'));
    mount.map(|mount| mount.dir.as_str()).ok_or_else(|| {
        CheckFailure::new(
            format!("the absolute path of the skill folder `{FOLDER}` as commands see it"),
            to_short_json(&ready.skills),
        )
    })
}

async fn check_output_streams(session: &BenchSession<'_>) -> CheckResult {
    let output = bash(session, "echo out; echo err >&2; exit 3").await?;
    expect_output(&output, "out\n", 3)?;
    expect(output.stderr == "err\n", "\"err\\n\" on stderr", || {
        outcome(&output)
    })?;
    let counted = (output.stdout_bytes, output.stderr_bytes);
    expect(
        counted == (4, 4),
        "4 bytes of output and 4 of errors",
        || format!("{} and {}", counted.0, counted.1),
    )?;
    expect_output(&bash(session, "true").await?, "", 0)
}

async fn check_live_output(session: &BenchSession<'_>) -> CheckResult {
    let never = CancellationToken::new();
    let limit = Duration::from_secs(20);
    let body = request("echo first; sleep 2; echo second");
    let asked = session.request::<BashOutput>(op::EXECUTOR_BASH, &body, limit, &never, |_| {});
    let asked = asked.await;
    if let Err(failure) = &asked.reply {
        return Err(CheckFailure::new("a reply", failure.to_string()));
    }
    let fits = asked.stdout == "first\nsecond\n";
    expect(fits, "the output through `emit`, as it comes", || {
        format!("{:?}", truncate(&asked.stdout, 200))
    })?;
    // 2 s, less what a busy machine takes to pass it on.
    let before = asked.first_output_lead.unwrap_or_default();
    expect(
        before >= SHOWN_BEFORE,
        "the first line while the command runs on for 2 s",
        || format!("it {} ms before the reply", before.as_millis()),
    )
}

async fn working_dir(session: &BenchSession<'_>, ready: &ExecutorReady) -> CheckResult {
    let output = bash(session, "pwd -P; cd \"$PWD\" && echo here > made-here.txt").await?;
    let there = bash(
        session,
        &format!("cd '{}' && pwd -P && cat made-here.txt", ready.working_dir),
    )
    .await?;
    let expected = format!("{}here\n", output.stdout);
    expect_output(&there, &expected, 0)
}

async fn environment(session: &BenchSession<'_>) -> CheckResult {
    let request = Bash {
        env: BTreeMap::from([("GIVEN".to_owned(), "a b".to_owned())]),
        ..request("echo \"$CONTRACT/$GIVEN\"")
    };
    let output: BashOutput = session.expect_reply(op::EXECUTOR_BASH, &request).await?;
    expect_output(&output, "session/a b\n", 0)
}

async fn check_truncated_output(bench: &Bench, session: &BenchSession<'_>) -> CheckResult {
    let request = Bash {
        keep_bytes: Some(KEEP_BYTES),
        ..request("i=0; while [ $i -lt 2000 ]; do echo \"line $i\"; i=$((i+1)); done")
    };
    let output: BashOutput = session.expect_reply(op::EXECUTOR_BASH, &request).await?;
    let bytes: usize = (0..2000).map(|line| format!("line {line}\n").len()).sum();
    expect(
        output.stdout.len() as u64 <= KEEP_BYTES && output.stdout.ends_with("line 1999\n"),
        "at most `keep_bytes` of the output, and its end",
        || {
            let end = output.stdout.lines().next_back().unwrap_or_default();
            format!("{} bytes that end in {end:?}", output.stdout.len())
        },
    )?;
    expect(
        output.stdout_bytes == bytes as u64,
        &format!("that the command wrote {bytes} bytes"),
        || output.stdout_bytes.to_string(),
    )?;
    let expected = "all of the output as a file (`full_output`)";
    let Some(full) = &output.full_output else {
        return Err(CheckFailure::new(expected, "none"));
    };
    let full = fetch_file(bench, session, full).await?;
    let full = String::from_utf8_lossy(&full);
    let has_all = full.len() >= bytes && full.contains("line 0\n") && full.contains("line 1999\n");
    expect(has_all, expected, || {
        format!("a file of {} bytes without some of it", full.len())
    })
}

async fn cancel(bench: &Bench, session: &BenchSession<'_>) -> CheckResult {
    let before = bench.plugin.health();
    let cancel = CancellationToken::new();
    let command = format!(
        "{TICKING} & \
         (sleep 60; echo late) & \
         while [ ! -s {TICKS} ]; do sleep 0.02; done; echo started; wait"
    );
    let ending = cancel.clone();
    let canceller = async {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(FIRST_OUTPUT) => cancel.cancel(),
        }
    };
    let limit = Duration::from_secs(20);
    let body = request(&command);
    let shown = move |output: &[u8]| {
        if !output.is_empty() {
            ending.cancel();
        }
    };
    let asked = session.request::<BashOutput>(op::EXECUTOR_BASH, &body, limit, &cancel, shown);
    let (asked, ()) = tokio::join!(asked, canceller);
    match asked.reply {
        Err(PluginCallFailure::Cancelled {
            after: AfterStop::Stopped,
            ..
        })
        | Ok(_) => {}
        Err(PluginCallFailure::Fault { code, .. }) if code != code::PANIC => {}
        Err(other) => {
            return Err(CheckFailure::new(
                "that the call ends within 2 s of being cancelled",
                other.to_string(),
            ));
        }
    }
    expect_orderly_end(bench, &before)?;
    expect_all_ended(session).await
}

async fn deadline(bench: &Bench, session: &BenchSession<'_>) -> CheckResult {
    let before = bench.plugin.health();
    let limit = COMMAND_LIMIT;
    let command = format!("{TICKING} & echo before; wait");
    let body = request(&command);
    let never = CancellationToken::new();
    let asked = session.request::<BashOutput>(op::EXECUTOR_BASH, &body, limit, &never, |_| {});
    match asked.await.reply {
        Ok(output) => {
            expect(output.timed_out, "`timed_out` in the reply", || {
                outcome(&output)
            })?;
        }
        Err(PluginCallFailure::TimedOut {
            after: AfterStop::Stopped,
            ..
        }) => {}
        Err(PluginCallFailure::Fault { code, .. }) if code != code::PANIC => {}
        Err(other) => {
            return Err(CheckFailure::new(
                "that the call ends within 2 s of its time limit",
                other.to_string(),
            ));
        }
    }
    expect_orderly_end(bench, &before)?;
    expect_all_ended(session).await
}

/// Checks that a call which was told to stop did so in order: no panic, and no end of its process.
fn expect_orderly_end(bench: &Bench, before: &PluginHealth) -> CheckResult {
    let after = bench.plugin.health();
    let expected = "that the call ends in order";
    expect(after.late_panics == before.late_panics, expected, || {
        "a panic".to_owned()
    })?;
    expect(after.worker_ends == before.worker_ends, expected, || {
        "the end of its process".to_owned()
    })
}

/// Checks that nothing writes ticks any more, and that something did.
async fn expect_all_ended(session: &BenchSession<'_>) -> CheckResult {
    let output = bash(
        session,
        &format!("wc -l < {TICKS}; sleep 0.5; wc -l < {TICKS}"),
    )
    .await?;
    let counts: Vec<u64> = output
        .stdout
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let expected = "that what the command started has ended";
    match counts[..] {
        [0, _] => Err(CheckFailure::new(
            "that the command had begun",
            "it had not",
        )),
        [before, after] => expect(before == after, expected, || {
            "it goes on: end the whole process group, and wait for it".to_owned()
        }),
        _ => Err(CheckFailure::new(expected, outcome(&output))),
    }
}

async fn folder(session: &BenchSession<'_>, ready: &ExecutorReady) -> CheckResult {
    let dir = mounted_folder(ready)?;
    let output = bash(session, &format!("cat '{dir}/SKILL.md'")).await?;
    expect_output(&output, super::bench::FOLDER_TEXT, 0)?;
    let view = View {
        path: format!("{dir}/SKILL.md"),
        view_range: None,
    };
    let viewed: Viewed = session.expect_reply(op::EXECUTOR_VIEW, &view).await?;
    expect(
        viewed.content.contains(FOLDER_WORD),
        "the text of the skill's `SKILL.md` from `executor.view`",
        || format!("{:?}", truncate(&viewed.content, 200)),
    )
}
