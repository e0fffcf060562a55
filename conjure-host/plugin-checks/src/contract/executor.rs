//! What an executor does with commands: it prepares a session, runs them where its files are, shows
//! their output while they run, ends them, and shows skill folders.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_plugins::PluginCallFailure;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, Empty, ExecutorInit, ExecutorReady, View, Viewed, op,
};
use tokio_util::sync::CancellationToken;

use super::bench::{
    Bench, BenchSession, Broken, Checked, FOLDER, FOLDER_WORD, expect, short, shortened,
};
use super::{Check, CheckKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecutorCheck {
    Init,
    Output,
    Shown,
    WorkingDir,
    Environment,
    Kept,
    Cancel,
    Deadline,
    Folder,
    Cleanup,
}

/// The bytes that a command's output is cut to.
const KEEP: u64 = 4096;
/// What a command that never ends writes its life signs to.
const TICKS: &str = "ticks.txt";

/// What writes into that file for 20 s at the most, whoever forgets it.
const TICKING: &str =
    "(i=0; while [ $i -lt 400 ]; do echo tick >> ticks.txt; sleep 0.05; i=$((i+1)); done)";

pub(super) fn checks() -> Vec<Check> {
    [
        ("a session is prepared", ExecutorCheck::Init),
        (
            "a command has its output and its exit code, also where it fails",
            ExecutorCheck::Output,
        ),
        ("output is shown while a command runs", ExecutorCheck::Shown),
        (
            "commands run in the working directory",
            ExecutorCheck::WorkingDir,
        ),
        (
            "a command has the variables that it is given",
            ExecutorCheck::Environment,
        ),
        ("of long output the end is kept", ExecutorCheck::Kept),
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
    .map(|(name, check)| Check::new(name, CheckKind::Executor(check)))
    .collect()
}

pub(super) async fn run(check: ExecutorCheck, bench: &Bench) -> Checked {
    let session = bench.session(false);
    let ready = init(bench, &session).await?;
    match check {
        ExecutorCheck::Init => prepared(&ready),
        ExecutorCheck::Output => output(&session).await,
        ExecutorCheck::Shown => shown(&session).await,
        ExecutorCheck::WorkingDir => working_dir(&session, &ready).await,
        ExecutorCheck::Environment => environment(&session).await,
        ExecutorCheck::Kept => kept(&session).await,
        ExecutorCheck::Cancel => cancel(&session).await,
        ExecutorCheck::Deadline => deadline(&session).await,
        ExecutorCheck::Folder => folder(&session, &ready).await,
        ExecutorCheck::Cleanup => {
            let Empty {} = session.answer(op::EXECUTOR_CLEANUP, &Empty {}).await?;
            init(bench, &session).await?;
            let output = bash(&session, "echo again").await?;
            said(&output, "again\n", 0)
        }
    }?;
    let Empty {} = session.answer(op::EXECUTOR_CLEANUP, &Empty {}).await?;
    Ok(())
}

/// Prepares a session that has the bench's skill folder.
pub(super) async fn init(bench: &Bench, session: &BenchSession<'_>) -> Checked<ExecutorReady> {
    let request = ExecutorInit {
        skills: vec![bench.folder()],
        env: BTreeMap::from([("CONTRACT".to_owned(), "session".to_owned())]),
        ..ExecutorInit::default()
    };
    session.answer(op::EXECUTOR_INIT, &request).await
}

/// Runs a command that has to come to an end.
pub(super) async fn bash(session: &BenchSession<'_>, command: &str) -> Checked<BashOutput> {
    session.answer(op::EXECUTOR_BASH, &request(command)).await
}

fn request(command: &str) -> Bash {
    Bash {
        command: command.to_owned(),
        ..Bash::default()
    }
}

/// What a command must have said, and how it must have ended.
pub(super) fn said(output: &BashOutput, stdout: &str, exit_code: i32) -> Checked {
    let fits = output.stdout == stdout && output.exit_code == Some(exit_code);
    let expected = format!("exit code {exit_code} and {stdout:?} on stdout");
    expect(fits, &expected, || outcome(output))
}

fn outcome(output: &BashOutput) -> String {
    let code = output.exit_code.map_or_else(
        || "no exit code".to_owned(),
        |code| format!("exit code {code}"),
    );
    let text = |text: &str| shortened(text, 200);
    format!(
        "{code}, {:?} on stdout, {:?} on stderr",
        text(&output.stdout),
        text(&output.stderr)
    )
}

fn prepared(ready: &ExecutorReady) -> Checked {
    expect(
        ready.working_dir.starts_with('/'),
        "the absolute path of the working directory as commands see it",
        || format!("`{}`", ready.working_dir),
    )?;
    mounted(ready).map(drop)
}

fn mounted(ready: &ExecutorReady) -> Checked<&str> {
    let mount = ready.skills.iter().find(|mount| mount.name == FOLDER);
    let mount = mount.filter(|mount| mount.dir.starts_with('/'));
    mount.map(|mount| mount.dir.as_str()).ok_or_else(|| {
        Broken::new(
            format!("the absolute path of the skill folder `{FOLDER}` as commands see it"),
            short(&ready.skills),
        )
    })
}

async fn output(session: &BenchSession<'_>) -> Checked {
    let output = bash(session, "echo out; echo err >&2; exit 3").await?;
    said(&output, "out\n", 3)?;
    expect(output.stderr == "err\n", "\"err\\n\" on stderr", || {
        outcome(&output)
    })?;
    let counted = (output.stdout_bytes, output.stderr_bytes);
    expect(
        counted == (4, 4),
        "4 bytes of output and 4 of errors",
        || format!("{} and {}", counted.0, counted.1),
    )?;
    said(&bash(session, "true").await?, "", 0)
}

async fn shown(session: &BenchSession<'_>) -> Checked {
    let never = CancellationToken::new();
    let limit = Duration::from_secs(20);
    let body = request("echo first; sleep 0.3; echo second");
    let asked = session.asked::<BashOutput>(op::EXECUTOR_BASH, &body, limit, &never);
    let asked = asked.await;
    if let Err(failure) = &asked.reply {
        return Err(Broken::new("a reply", failure.to_string()));
    }
    let fits = asked.stdout == "first\nsecond\n";
    expect(fits, "the output through `emit`, as it comes", || {
        format!("{:?}", shortened(&asked.stdout, 200))
    })
}

async fn working_dir(session: &BenchSession<'_>, ready: &ExecutorReady) -> Checked {
    let output = bash(session, "pwd -P; cd \"$PWD\" && echo here > made-here.txt").await?;
    let there = bash(
        session,
        &format!("cd '{}' && pwd -P && cat made-here.txt", ready.working_dir),
    )
    .await?;
    let expected = format!("{}here\n", output.stdout);
    said(&there, &expected, 0)
}

async fn environment(session: &BenchSession<'_>) -> Checked {
    let request = Bash {
        env: BTreeMap::from([("GIVEN".to_owned(), "a b".to_owned())]),
        ..request("echo \"$CONTRACT/$GIVEN\"")
    };
    let output: BashOutput = session.answer(op::EXECUTOR_BASH, &request).await?;
    said(&output, "session/a b\n", 0)
}

async fn kept(session: &BenchSession<'_>) -> Checked {
    let request = Bash {
        keep_bytes: Some(KEEP),
        ..request("i=0; while [ $i -lt 2000 ]; do echo \"line $i\"; i=$((i+1)); done")
    };
    let output: BashOutput = session.answer(op::EXECUTOR_BASH, &request).await?;
    let bytes: usize = (0..2000).map(|line| format!("line {line}\n").len()).sum();
    expect(
        output.stdout.len() as u64 <= KEEP && output.stdout.ends_with("line 1999\n"),
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
    expect(
        output.full_output.is_some(),
        "all of the output as a file (`full_output`)",
        || "none".to_owned(),
    )
}

async fn cancel(session: &BenchSession<'_>) -> Checked {
    let cancel = CancellationToken::new();
    let command = format!(
        "{TICKING} & \
         (sleep 60; echo late) & echo started; wait"
    );
    let ending = cancel.clone();
    let canceller = async move {
        // Long enough for the first ticks, and the call ends this by itself where it fails.
        tokio::time::sleep(Duration::from_millis(700)).await;
        ending.cancel();
    };
    let limit = Duration::from_secs(20);
    let body = request(&command);
    let asked = session.asked::<BashOutput>(op::EXECUTOR_BASH, &body, limit, &cancel);
    let (asked, ()) = tokio::join!(asked, canceller);
    match asked.reply {
        Err(
            PluginCallFailure::Cancelled {
                abandoned: false, ..
            }
            | PluginCallFailure::Fault { .. },
        )
        | Ok(_) => {}
        Err(other) => {
            return Err(Broken::new(
                "that the call ends within 2 s of being cancelled",
                other.to_string(),
            ));
        }
    }
    all_ended(session).await
}

async fn deadline(session: &BenchSession<'_>) -> Checked {
    let limit = Duration::from_millis(900);
    let command = format!("{TICKING} & echo before; wait");
    let body = request(&command);
    let never = CancellationToken::new();
    let asked = session.asked::<BashOutput>(op::EXECUTOR_BASH, &body, limit, &never);
    match asked.await.reply {
        Ok(output) => {
            expect(output.timed_out, "`timed_out` in the reply", || {
                outcome(&output)
            })?;
        }
        Err(
            PluginCallFailure::TimedOut {
                abandoned: false, ..
            }
            | PluginCallFailure::Fault { .. },
        ) => {}
        Err(other) => {
            return Err(Broken::new(
                "that the call ends within 2 s of its time limit",
                other.to_string(),
            ));
        }
    }
    all_ended(session).await
}

/// That nothing writes ticks any more, and something did.
async fn all_ended(session: &BenchSession<'_>) -> Checked {
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
        [0, _] => Err(Broken::new("that the command had begun", "it had not")),
        [before, after] => expect(before == after, expected, || {
            "it goes on: end the whole process group, and wait for it".to_owned()
        }),
        _ => Err(Broken::new(expected, outcome(&output))),
    }
}

async fn folder(session: &BenchSession<'_>, ready: &ExecutorReady) -> Checked {
    let dir = mounted(ready)?;
    let output = bash(session, &format!("cat '{dir}/SKILL.md'")).await?;
    said(&output, super::bench::FOLDER_TEXT, 0)?;
    let view = View {
        path: format!("{dir}/SKILL.md"),
        view_range: None,
    };
    let viewed: Viewed = session.answer(op::EXECUTOR_VIEW, &view).await?;
    expect(
        viewed.content.contains(FOLDER_WORD),
        "the text of the skill's `SKILL.md` from `executor.view`",
        || format!("{:?}", shortened(&viewed.content, 200)),
    )
}
