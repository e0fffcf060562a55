//! Plugins in worker processes: what they say is what they say inside the host, and what ends their
//! process is an error of the calls that ran in it, and nothing to anybody else.

use std::time::Duration;

use conjure_core::chat::FunctionCall;
use conjure_host::plugin::{Isolation, WorkerLimits, WorkerOptions};
use conjure_host::session::{BackendSpec, Session, SessionSpec};
use conjure_kit::conjure_bin;
use tokio::task::JoinSet;

use crate::interrupted::ENDS_THE_PROCESS;
use crate::misbehaving::{FAIL, NEVER_END, SUCCEED, TOOL, mode, serves};
use crate::stage::{CACHE, FETCHER, MISBEHAVING, Seen, Stage};

/// Modes that use more of the machine than a worker is given here.
pub(crate) const USES_TOO_MUCH: [&str; 2] = ["burn", "threads 200"];

/// How the host runs workers: with the shipped program, and with little memory each.
fn workers() -> WorkerOptions {
    let mut workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    workers.isolation = Isolation::Process;
    workers.limits = WorkerLimits {
        memory: 512 * 1024 * 1024,
        ..WorkerLimits::default()
    };
    workers
}

async fn isolated(plugins: &[&str]) -> Stage {
    let stage = Stage::with(plugins, |builder| builder.workers(workers())).await;
    let snapshot = stage.host.registry().snapshot();
    assert_eq!(snapshot.plugins().len(), plugins.len(), "{snapshot:?}");
    stage
}

async fn session(stage: &Stage) -> Session {
    stage.session([BackendSpec::all_native()]).await
}

#[tokio::test]
async fn a_call_in_a_worker_has_the_same_result_as_one_inside_the_host() {
    let (inside, outside) = (
        Stage::new(&[MISBEHAVING]).await,
        isolated(&[MISBEHAVING]).await,
    );
    let sessions = (session(&inside).await, session(&outside).await);
    for text in SUCCEED.iter().chain(&FAIL) {
        let here = inside.call(&sessions.0, TOOL, mode(text)).await;
        let there = outside.call(&sessions.1, TOOL, mode(text)).await;
        // Paths of the two working directories differ.
        let placeless = |seen: Seen, stage: &Stage| Seen {
            text: seen.text.replace(&stage.path(""), "WORK/"),
            ..seen
        };
        assert_eq!(
            placeless(there, &outside),
            placeless(here, &inside),
            "{text}"
        );
    }
    sessions.0.close().await;
    sessions.1.close().await;
}

#[tokio::test]
async fn whatever_ends_a_worker_is_an_error_of_its_calls_and_of_nobody_elses() {
    let stage = isolated(&[MISBEHAVING, CACHE]).await;
    let (session, other) = (session(&stage).await, session(&stage).await);
    let endings = ENDS_THE_PROCESS.into_iter().chain(["allocate 4096"]);
    for (text, cause) in endings.zip([
        "aborted (SIGABRT)",
        "called `exit` with code 7",
        "a segmentation fault (SIGSEGV)",
        "stack overflow",
        "needed more memory than a worker may use (512 MiB)",
    ]) {
        let seen = stage
            .calls(
                &session,
                &[
                    (TOOL, mode(text)),
                    ("cache-manager_execute", mode("set k v")),
                ],
            )
            .await;
        let [ended, neighbour] = &seen[..] else {
            panic!("{seen:?}");
        };
        assert!(ended.is_error, "{text}: {ended:?}");
        for part in [cause, TOOL, "misbehaving 0.1.0: its worker process "] {
            assert!(ended.text.contains(part), "{text}: {part}: {ended:?}");
        }
        assert_eq!(neighbour, &Seen::ok("stored"), "{text}");
        serves(&stage, &session, text).await;
        serves(&stage, &other, text).await;
    }
    session.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_worker_that_uses_more_of_the_machine_than_it_may_ends_and_says_so() {
    let mut few = workers();
    few.limits.processor_time = Duration::from_secs(1);
    few.limits.threads = 64;
    let stage = Stage::with(&[MISBEHAVING, CACHE], |builder| builder.workers(few)).await;
    let (session, other) = (session(&stage).await, session(&stage).await);
    for (text, cause) in USES_TOO_MUCH.into_iter().zip([
        "used more time of processors than a worker may (1 s)",
        "has more threads than a worker may (64)",
    ]) {
        let seen = stage.call(&session, TOOL, mode(text)).await;
        assert!(
            seen.is_error && seen.text.contains(cause),
            "{text}: {seen:?}"
        );
        serves(&stage, &session, text).await;
        serves(&stage, &other, text).await;
    }
    let snapshot = stage.host.registry().snapshot();
    assert_eq!(snapshot.get("misbehaving").unwrap().health().worker_ends, 2);
    session.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_call_that_never_ends_ends_with_its_worker_again_and_again() {
    let stage = isolated(&[MISBEHAVING, CACHE]).await;
    let spec = SessionSpec {
        call_timeout_ms: Some(300),
        ..stage.spec([BackendSpec::all_native()])
    };
    let session = stage.open(spec).await;
    // More often than a plugin inside the host may lose threads.
    for text in NEVER_END.iter().chain(&["hang", "hang"]) {
        let seen = stage.call(&session, TOOL, mode(text)).await;
        let blamed = seen.text.replace(TOOL, "").contains("misbehaving");
        assert!(seen.is_error && blamed, "{text}: {seen:?}");
        assert!(!seen.text.contains("may go on"), "{text}: {seen:?}");
        serves(&stage, &session, text).await;
    }
    let plugin = stage.host.registry().snapshot();
    let plugin = plugin.get("misbehaving").unwrap();
    assert_eq!(plugin.health().lost_threads, 0);
    assert_eq!(plugin.health().quarantined, None);
    session.close().await;
}

#[tokio::test]
async fn ten_sessions_are_served_while_a_worker_ends_again_and_again() {
    let stage = isolated(&[MISBEHAVING, CACHE, FETCHER]).await;
    let open = || stage.host.calls(stage.spec([BackendSpec::all_native()]));
    let call = |name: &str, text: String| FunctionCall {
        call_id: text.clone(),
        name: name.to_owned(),
        arguments: mode(&text),
        arguments_text: None,
    };
    let mut tasks = JoinSet::new();
    for number in 0..10 {
        let session = open().await.unwrap();
        tasks.spawn(async move {
            for round in 0..20 {
                let call = call("cache-manager_execute", format!("set k{number} {round}"));
                let report = session.call(&call, &Default::default()).await.unwrap();
                assert!(!report.output.is_error, "{report:?}");
            }
            session.close().await;
        });
    }
    let breaking = open().await.unwrap();
    tasks.spawn(async move {
        for round in 0..20 {
            let mode = ENDS_THE_PROCESS[round % ENDS_THE_PROCESS.len()];
            let ended = call(TOOL, mode.to_owned());
            let report = breaking.call(&ended, &Default::default()).await.unwrap();
            assert!(report.output.is_error, "{mode}: {report:?}");
            let echo = call(TOOL, "echo again".to_owned());
            let report = breaking.call(&echo, &Default::default()).await.unwrap();
            assert!(!report.output.is_error, "after {mode}: {report:?}");
        }
        breaking.close().await;
    });
    crate::stage::in_time(tasks.join_all()).await;
}
