//! A plugin that does everything wrong: the host serves the next call, and says who is to blame.
//!
//! What a process cannot survive is in `interrupted`.

use std::collections::BTreeSet;

use conjure_host::session::BackendSpec;
use serde_json::{Value, json};

use crate::folders::printed;
use crate::stage::{CACHE, MISBEHAVING, Seen, Stage, conjure, workspace};

pub(crate) const TOOL: &str = "misbehaving_execute";

/// Modes whose call has a result.
pub(crate) const SUCCEED: [&str; 14] = [
    "echo fine",
    "flood 4",
    "flood-rudely 4",
    "flood-reply 2",
    "log-flood 2000",
    "invalid-utf8",
    "lie-files",
    "wrong-call",
    "host-op kv.get {\"key\":\"k\"}",
    "host-op-after-return",
    "emit-after-return",
    "leak-thread",
    "spawn-orphan",
    "allocate 16",
];

/// Modes whose call has an error result.
pub(crate) const FAIL: [&str; 8] = [
    "panic at the disco",
    "panic-nonstring",
    "invalid-utf8-reply",
    "lie-json",
    "lie-schema",
    "lie-fault",
    "host-op teleport",
    "no-such-mode",
];

/// Modes whose call does not end by itself, or not in time.
pub(crate) const NEVER_END: [&str; 3] = ["hang", "sleep 30000", "hang-politely"];

/// The mode that goes wrong only when the session is closed.
const DROP: &str = "drop-panic";

/// The mode that takes the process's own streams: `mcp_serve` has a process for it.
const STREAMS: &str = "print";

pub(crate) fn mode(text: &str) -> Value {
    json!({ "command": text })
}

#[tokio::test]
async fn no_mode_is_without_a_test() {
    let stage = Stage::new(&[MISBEHAVING]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let read = json!({ "path": "modes" });
    let listed = stage.call(&session, "misbehaving_read", read).await.text;
    let listed: BTreeSet<&str> = listed.lines().map(name).collect();
    let tested: BTreeSet<&str> = SUCCEED
        .iter()
        .chain(&FAIL)
        .chain(&NEVER_END)
        .chain(&crate::interrupted::ENDS_THE_PROCESS)
        .chain(&crate::isolated::USES_TOO_MUCH)
        .chain([&DROP, &STREAMS])
        .map(|text| name(text))
        .filter(|name| *name != "no-such-mode")
        .collect();
    assert_eq!(listed, tested);
    session.close().await;
}

/// The name of the mode with which a line begins.
fn name(line: &str) -> &str {
    let end = line.find([' ', ':']).unwrap_or(line.len());
    &line[..end]
}

#[tokio::test]
async fn after_every_mode_that_a_process_survives_the_host_serves_the_next_call() {
    let stage = Stage::new(&[MISBEHAVING, CACHE]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    for text in SUCCEED {
        let seen = stage.call(&session, TOOL, mode(text)).await;
        assert!(!seen.is_error, "{text}: {seen:?}");
        serves(&stage, &session, text).await;
    }
    for text in FAIL {
        let seen = stage.call(&session, TOOL, mode(text)).await;
        assert!(seen.is_error, "{text}: {seen:?}");
        serves(&stage, &session, text).await;
    }
    session.close().await;
}

/// Fails unless both plugins answer.
pub(crate) async fn serves(stage: &Stage, session: &conjure_host::session::Session, after: &str) {
    let seen = stage
        .calls(
            session,
            &[
                (TOOL, mode("echo still here")),
                ("cache-manager_execute", mode(&format!("set last {after}"))),
            ],
        )
        .await;
    assert_eq!(
        seen,
        ["still here", "stored"].map(Seen::ok),
        "after {after}"
    );
}

#[tokio::test]
async fn the_result_of_a_call_that_the_plugin_spoiled_names_it() {
    let stage = Stage::new(&[MISBEHAVING]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    for text in [
        "panic at the disco",
        "panic-nonstring",
        "invalid-utf8-reply",
        "lie-json",
        "lie-schema",
        "lie-fault",
        "flood-reply 20",
    ] {
        let seen = stage.call(&session, TOOL, mode(text)).await;
        let blamed = seen.text.replace(TOOL, "").contains("misbehaving");
        assert!(seen.is_error && blamed, "{text}: {seen:?}");
    }
    session.close().await;
}

#[tokio::test]
async fn a_call_that_does_not_end_is_given_up_and_names_the_plugin() {
    for text in NEVER_END {
        let stage = Stage::new(&[MISBEHAVING, CACHE]).await;
        let spec = conjure_host::session::SessionSpec {
            call_timeout_ms: Some(300),
            ..stage.spec([BackendSpec::all_native()])
        };
        let session = stage.open(spec).await;
        let seen = stage
            .calls(
                &session,
                &[
                    (TOOL, mode(text)),
                    ("cache-manager_execute", mode("set k v")),
                ],
            )
            .await;
        let blamed = seen[0].text.replace(TOOL, "").contains("misbehaving");
        assert!(seen[0].is_error && blamed, "{text}: {seen:?}");
        assert_eq!(seen[1], Seen::ok("stored"), "{text}");
        serves(&stage, &session, text).await;
        session.close().await;
    }
}

#[tokio::test]
async fn a_plugin_that_never_stops_is_refused_in_the_end_and_the_others_are_not() {
    let stage = Stage::new(&[MISBEHAVING, CACHE]).await;
    let native = BackendSpec {
        call_timeout_ms: Some(100),
        ..BackendSpec::all_native()
    };
    let spec = conjure_host::session::SessionSpec {
        call_timeout_ms: Some(100),
        ..stage.spec([native])
    };
    let session = stage.open(spec).await;
    for _ in 0..3 {
        assert!(stage.call(&session, TOOL, mode("hang")).await.is_error);
    }
    let refused = stage.call(&session, TOOL, mode("echo anybody")).await;
    assert!(
        refused.is_error && refused.text.contains("not used any more"),
        "{refused:?}"
    );
    let seen = stage
        .call(&session, "cache-manager_execute", mode("set k v"))
        .await;
    assert_eq!(seen, Seen::ok("stored"));
    session.close().await;
}

#[tokio::test]
async fn files_that_are_lies_are_refused_and_the_rest_of_the_result_stays() {
    let stage = Stage::new(&[MISBEHAVING]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let seen = stage.call(&session, TOOL, mode("lie-files")).await;
    assert!(seen.text.contains("refused"), "{seen:?}");
    assert!(
        !seen.text.contains("root:"),
        "nothing of the system's is shown: {seen:?}"
    );
    let work = stage.workspace.work();
    for file in session.created_files() {
        let path = file.path.clone().expect("a native skill's files are here");
        assert!(path.starts_with(&work), "{file:?}");
        assert!(!file.name.contains(['/', '\0']), "{file:?}");
        assert_eq!(
            file.size,
            Some(12),
            "what is there counts, not what was said: {file:?}"
        );
        assert_ne!(file.sha256.as_deref(), Some("0".repeat(64).as_str()));
    }
    session.close().await;
}

#[tokio::test]
async fn what_a_plugin_says_of_another_call_is_not_believed() {
    let stage = Stage::new(&[MISBEHAVING]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let seen = stage.call(&session, TOOL, mode("wrong-call")).await;
    assert!(seen.text.contains("the result of another call"), "{seen:?}");
    let names: Vec<String> = session
        .created_files()
        .into_iter()
        .map(|file| file.name)
        .collect();
    assert_eq!(names, [] as [&str; 0]);
    session.close().await;
}

#[tokio::test]
async fn a_call_that_is_over_can_do_nothing_more() {
    let stage = Stage::new(&[MISBEHAVING]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    stage.call(&session, TOOL, mode("emit-after-return")).await;
    stage
        .call(&session, TOOL, mode("host-op-after-return"))
        .await;
    let said = crate::stage::in_time(Box::pin(async {
        loop {
            let read = json!({ "path": "after-return" });
            let seen = stage.call(&session, "misbehaving_read", read).await;
            if seen.text.lines().count() >= 2 {
                return seen.text;
            }
        }
    }))
    .await;
    let mut said: Vec<&str> = said.lines().collect();
    said.sort_unstable();
    assert_eq!(said[0], "emit: Cancelled");
    assert!(said[1].starts_with("host-op: fault"), "{said:?}");
    session.close().await;
}

#[test]
fn a_plugin_that_panics_when_it_is_dropped_spoils_no_result() {
    let workspace = workspace(&[MISBEHAVING, CACHE]);
    let output = conjure(
        &workspace,
        ["call", TOOL, "--args", "{\"command\": \"drop-panic\"}"],
    )
    .run()
    .unwrap();
    assert_eq!(output.stdout, "drop-panic: done\n", "{output:?}");
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[tokio::test]
async fn a_session_that_closes_with_a_panic_takes_no_other_down() {
    let stage = Stage::new(&[MISBEHAVING, CACHE]).await;
    let session = || stage.session([BackendSpec::all_native()]);
    let (closing, other) = (session().await, session().await);
    let seen = stage.call(&closing, TOOL, mode(DROP)).await;
    assert_eq!(seen, Seen::ok("drop-panic: done"));
    crate::stage::in_time(closing.close()).await;
    serves(&stage, &other, DROP).await;
    other.close().await;
    let later = session().await;
    serves(&stage, &later, DROP).await;
    later.close().await;
}

#[test]
fn a_plugin_that_fails_to_load_is_listed_with_its_reason_and_takes_nothing_down() {
    listed_as_failed(&[
        ("panic-manifest", "panic"),
        ("wrong-version", "99.9.9"),
        ("wrong-name", "somebody-else"),
        ("wrong-kind", "backend"),
        ("bad-manifest", "manifest"),
        ("requires-unknown", "teleport/9"),
    ]);
}

/// The system opens one library at a time, so the one after it waits for the constructor too.
#[test]
fn a_library_that_takes_too_long_to_open_is_given_up() {
    listed_as_failed(&[("slow-constructor:12000", "10s")]);
}

#[test]
fn a_plugin_that_makes_no_instance_is_listed_with_its_reason_and_takes_nothing_down() {
    listed_as_failed(&[
        ("panic-create", "panic"),
        ("refuse-create", "asked to refuse"),
        ("never-pings", "ping"),
    ]);
}

/// Fails unless `conjure plugin list` shows the plugin as failed for a reason with this word, and
/// the other one as loaded.
fn listed_as_failed(modes: &[(&str, &str)]) {
    for (mode, word) in modes.iter().copied() {
        let workspace = workspace(&[MISBEHAVING, CACHE]);
        let list = conjure(&workspace, ["plugin", "list", "--json"])
            .env("CONJURE_MISBEHAVE", mode)
            .env("CONJURE_ISOLATION", "in-process")
            .run()
            .unwrap();
        assert_eq!(list.code, Some(0), "{mode}: {list:?}");
        let list = printed(&list);
        let names: Vec<&Value> = list["plugins"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(names, ["cache-manager"], "{mode}: {list:#}");
        let failed = &list["failed"][0];
        let reason = failed["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains(word) && reason.contains("misbehaving"),
            "{mode}: {list:#}"
        );
        assert_eq!(failed["state"], "failed");
    }
}

#[test]
fn a_plugin_that_makes_no_instance_is_blamed_by_the_check_and_by_the_call() {
    for (mode, word) in [
        ("panic-create", "panic"),
        ("refuse-create", "asked to refuse"),
    ] {
        let workspace = workspace(&[MISBEHAVING, CACHE]);
        let library = workspace.plugins().join("libconjure_misbehaving.so");
        let check = conjure(&workspace, ["plugin", "check", library.to_str().unwrap()])
            .env("CONJURE_MISBEHAVE", mode)
            .env("CONJURE_ISOLATION", "in-process")
            .run()
            .unwrap();
        assert_eq!(check.code, Some(1), "{mode}: {check:?}");
        assert!(
            check.stdout.contains(word) && check.stdout.contains("misbehaving"),
            "{check:?}"
        );
        for (tool, command, fails) in [
            (TOOL, "echo anybody", true),
            ("cache-manager_execute", "set k v", false),
        ] {
            let args = json!({ "command": command }).to_string();
            let call = conjure(&workspace, ["call", tool, "--args", &args])
                .env("CONJURE_MISBEHAVE", mode)
                .env("CONJURE_ISOLATION", "in-process")
                .run()
                .unwrap();
            if !fails {
                assert_eq!(call.code, Some(0), "{mode}: {call:?}");
                continue;
            }
            assert!(
                call.code == Some(1) || call.code == Some(2),
                "{mode}: {call:?}"
            );
            let said = format!("{}{}", call.stdout, call.stderr).replace(TOOL, "");
            assert!(said.contains("misbehaving"), "{mode}: {call:?}");
        }
    }
}

#[test]
fn what_is_only_odd_at_load_is_no_reason_to_refuse() {
    for mode in ["unknown-capability", "slow-load:50", "slow-constructor:50"] {
        let workspace = workspace(&[MISBEHAVING]);
        let output = conjure(
            &workspace,
            ["call", TOOL, "--args", "{\"command\": \"echo fine\"}"],
        )
        .env("CONJURE_MISBEHAVE", mode)
        .env("CONJURE_ISOLATION", "in-process")
        .run()
        .unwrap();
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "fine\n"),
            "{mode}: {output:?}"
        );
    }
}
