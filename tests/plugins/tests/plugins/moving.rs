//! Executors and backends of sessions that run, which are replaced, removed and added.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::{Content, Event, FunctionCall, OutputPart, Part, Response, StopReason};
use conjure_core::log::{EntryBody, NoticeReason};
use conjure_core::request::ModelRequest;
use conjure_core::turn::EffectiveFrom;
use conjure_host::Host;
use conjure_host::plugin::{Isolation, PluginTrust, TrustedLibrary, WorkerOptions};
use conjure_host::provider::{Provider, ProviderError, ReplySink};
use conjure_host::session::{
    BackendSpec, SandboxMode, SandboxSpec, Session, SessionSettings, SessionSpec, ToolSession,
};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::versioned;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::sessions::reply;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A host that watches a directory, and what is put there.
struct Stage {
    host: Host,
    plugins: PathBuf,
    work: PathBuf,
    dir: TempDir,
}

impl Stage {
    async fn new() -> Self {
        Self::with(None).await
    }

    async fn with(workers: Option<WorkerOptions>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, work) = (dir.path().join("plugins"), dir.path().join("work"));
        for dir in [&plugins, &work] {
            std::fs::create_dir(dir).unwrap();
        }
        let mut builder = Host::builder()
            .data_dir(dir.path().join("data"))
            .plugin_dir(&plugins)
            .watch(true)
            .provider("looking", Looking);
        if let Some(workers) = workers {
            builder = builder.workers(workers);
        }
        let stage = Self {
            host: builder.build().await.unwrap(),
            plugins,
            work,
            dir,
        };
        for name in ["keeper", "teller"] {
            stage.put(name, "0.2.0").await;
        }
        stage
    }

    /// Puts this version in its place, and waits until the host has it.
    async fn put(&self, name: &str, version: &str) {
        let mut generations = self.host.registry().subscribe();
        let part = self.plugins.join("part");
        std::fs::write(&part, versioned(name, version)).unwrap();
        std::fs::rename(part, self.file(name)).unwrap();
        let registry = self.host.registry();
        let is_there = |_: &u64| {
            let snapshot = registry.snapshot();
            let plugin = snapshot.get(name);
            plugin.is_some_and(|plugin| plugin.manifest().version == version)
        };
        let there = tokio::time::timeout(LIMIT, generations.wait_for(is_there));
        there.await.expect("the file is noticed").unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.plugins.join(format!("lib{name}.so"))
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.work.join(name), "").unwrap();
    }

    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.work.join("log.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn logs(&self, lines: &[&str]) {
        // Nothing tells of a line of a file.
        let limit = Instant::now() + LIMIT;
        while self.log() != lines {
            assert!(
                Instant::now() < limit,
                "never: {lines:?}; last: {:?}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn spec(&self) -> SessionSpec {
        let none: [&str; 0] = [];
        let backends = ["keeper", "teller"].map(|kind| BackendSpec::executor(kind, none));
        let mut spec = SessionSpec {
            provider: Some("looking".to_owned()),
            working_dir: Some(self.work.clone()),
            // Its executors keep to none, which would be a notice among those that are looked at.
            sandbox: SandboxSpec::of(SandboxMode::None),
            ..SessionSpec::hybrid(backends)
        };
        for rule in ["keeper_*", "teller_*"] {
            spec.policy.allow.push(rule.parse().unwrap());
        }
        spec
    }

    async fn calls(&self) -> Arc<ToolSession> {
        Arc::new(self.host.calls(self.spec()).await.unwrap())
    }
}

/// The versions of the tools' plugins.
fn versions(calls: &ToolSession) -> Vec<String> {
    let table = calls.table();
    let routes = table.routes().iter();
    let mut versions: Vec<String> = routes
        .filter_map(|route| {
            let origin = &route.definition.origin;
            Some(format!(
                "{} {}",
                origin.plugin.as_ref()?,
                origin.version.as_ref()?
            ))
        })
        .collect();
    versions.dedup();
    versions
}

async fn have(calls: &ToolSession, wanted: &[&str]) {
    let mut revision = calls.revision();
    let there = revision.wait_for(|_| versions(calls) == wanted);
    let there = tokio::time::timeout(LIMIT, there).await;
    there
        .unwrap_or_else(|_| panic!("never: {wanted:?}; last: {:?}", versions(calls)))
        .unwrap();
}

async fn call(calls: &ToolSession, tool: &str, arguments: Value) -> String {
    let call = FunctionCall {
        call_id: format!("call-{tool}"),
        name: tool.to_owned(),
        arguments,
        arguments_text: None,
    };
    match calls.call(&call, &CancellationToken::new()).await {
        Ok(report) => text(&report.output.output),
        Err(error) => error.to_string(),
    }
}

fn text(parts: &[OutputPart]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        OutputPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

async fn count(calls: &ToolSession) -> String {
    call(calls, "keeper_count", json!({})).await
}

async fn command(calls: &ToolSession) -> String {
    call(calls, "teller_bash_tool", json!({ "command": "which" })).await
}

/// Everything that was said so far.
pub(crate) fn said(notices: &mut tokio::sync::broadcast::Receiver<Arc<str>>) -> String {
    let mut said = String::new();
    while let Ok(text) = notices.try_recv() {
        writeln!(said, "{text}").unwrap();
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn executors_and_backends_of_a_session_move_to_another_version_with_what_they_keep() {
    let stage = Stage::new().await;
    let calls = stage.calls().await;
    let mut notices = calls.notices();
    assert_eq!(count(&calls).await, "0.2.0: 1");
    assert_eq!(command(&calls).await.trim(), "0.2.0");

    stage.put("keeper", "0.3.0").await;
    stage.put("teller", "0.3.0").await;
    have(&calls, &["keeper 0.3.0", "teller 0.3.0"]).await;
    assert_eq!(count(&calls).await, "0.3.0: 2", "the count came over");
    assert_eq!(command(&calls).await.trim(), "0.3.0");
    let told = said(&mut notices);
    assert!(
        told.contains("keeper 0.2.0 → 0.3.0; its state moves over"),
        "{told}"
    );
    assert!(
        told.contains("teller 0.2.0 → 0.3.0; its state, if it held any, was lost"),
        "{told}"
    );
    stage
        .logs(&["open 0.2.0", "open 0.3.0", "close 0.2.0"])
        .await;

    stage.put("keeper", "0.2.0").await;
    have(&calls, &["keeper 0.2.0", "teller 0.3.0"]).await;
    assert_eq!(count(&calls).await, "0.2.0: 3");
    let told = said(&mut notices);
    assert!(told.contains("keeper 0.3.0 → 0.2.0, a downgrade"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_runs_ends_on_the_version_that_it_began_with() {
    let stage = Stage::new().await;
    let calls = stage.calls().await;
    let slow = {
        let calls = Arc::clone(&calls);
        tokio::spawn(async move { call(&calls, "keeper_slow", json!({})).await })
    };
    stage.logs(&["open 0.2.0", "slow 0.2.0"]).await;
    stage.put("keeper", "0.3.0").await;
    have(&calls, &["keeper 0.3.0", "teller 0.2.0"]).await;
    stage
        .logs(&["open 0.2.0", "slow 0.2.0", "open 0.3.0"])
        .await;
    stage.touch("go-on");
    assert_eq!(slow.await.unwrap(), "0.2.0: 1");
    assert_eq!(count(&calls).await, "0.3.0: 2");
    stage
        .logs(&["open 0.2.0", "slow 0.2.0", "open 0.3.0", "close 0.2.0"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_takes_its_tools_along_and_has_them_when_it_is_back() {
    let stage = Stage::new().await;
    let calls = stage.calls().await;
    assert_eq!(count(&calls).await, "0.2.0: 1");
    std::fs::remove_file(stage.file("keeper")).unwrap();
    have(&calls, &["teller 0.2.0"]).await;
    let refused = count(&calls).await;
    assert!(refused.contains("keeper_count"), "{refused}");
    assert_eq!(command(&calls).await.trim(), "0.2.0", "others go on");
    let mut notices = calls.notices();
    stage.put("keeper", "0.3.0").await;
    have(&calls, &["keeper 0.3.0", "teller 0.2.0"]).await;
    assert_eq!(count(&calls).await, "0.3.0: 2");
    let told = said(&mut notices);
    assert!(
        told.contains("keeper 0.2.0 → 0.3.0; its state moves over"),
        "{told}"
    );
    stage
        .logs(&["open 0.2.0", "open 0.3.0", "close 0.2.0"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_as_it_was_has_its_state_or_is_told_without() {
    let stage = Stage::new().await;
    let session = stage.host.session(stage.spec()).await.unwrap();
    session.chat("call keeper_count").await.unwrap();
    seen(&session, "0.2.0: 1").await;
    std::fs::remove_file(stage.file("keeper")).unwrap();
    seen(&session, "gone: keeper_count").await;
    stage.put("keeper", "0.2.0").await;
    seen(&session, "new: keeper_count").await;
    session.chat("call keeper_count").await.unwrap();
    seen(&session, "0.2.0: 2").await;
    // One that hands nothing over.
    std::fs::remove_file(stage.file("teller")).unwrap();
    seen(&session, "gone: teller_").await;
    stage.put("teller", "0.2.0").await;
    let lost = "teller 0.2.0, loaded again; its state, if it held any, was lost";
    seen(&session, lost).await;
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_whose_plugin_runs_elsewhere_once_it_is_loaded_again_moves_there() {
    let list = tempfile::tempdir().unwrap();
    let trust = PluginTrust::default().listed_in(list.path().join("trusted"));
    let mut workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    workers.isolation = Isolation::Process;
    workers.trust = trust.clone();
    let stage = Stage::with(Some(workers)).await;
    let calls = stage.calls().await;
    assert_eq!(count(&calls).await, "0.2.0: 1");
    let registry = stage.host.registry();
    let keeper = registry.snapshot().get("keeper").cloned().unwrap();
    assert_eq!(keeper.isolation(), Isolation::Process);
    let library = TrustedLibrary {
        sha256: keeper.id().sha256.unwrap(),
        name: keeper.id().to_string(),
    };
    assert!(trust.add(library).unwrap());
    let keeper = registry.reload("keeper").unwrap().unwrap();
    assert_eq!(keeper.isolation(), Isolation::InProcess);
    // Until the session has moved, the one before goes on counting.
    let limit = Instant::now() + LIMIT;
    let mut calls_made = 1;
    while !stage.log().contains(&"close 0.2.0".to_owned()) {
        assert!(Instant::now() < limit, "it stays: {:?}", stage.log());
        calls_made += 1;
        assert_eq!(count(&calls).await, format!("0.2.0: {calls_made}"));
    }
    assert_eq!(stage.log(), ["open 0.2.0", "open 0.2.0", "close 0.2.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_cannot_be_made_ready_changes_nothing_and_is_said() {
    let stage = Stage::new().await;
    let calls = stage.calls().await;
    let mut notices = calls.notices();
    assert_eq!(count(&calls).await, "0.2.0: 1");
    stage.touch("refuse-0.3.0");
    stage.put("keeper", "0.3.0").await;
    let told = tokio::time::timeout(LIMIT, notices.recv())
        .await
        .unwrap()
        .unwrap();
    for part in [
        "`keeper` stays as it was",
        "keeper 0.2.0",
        "0.3.0",
        "it does not want to",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(versions(&calls), ["keeper 0.2.0", "teller 0.2.0"]);
    // Another change of the plugins does not try it again, though it would be ready by now.
    std::fs::remove_file(stage.work.join("refuse-0.3.0")).unwrap();
    stage.put("teller", "0.3.0").await;
    have(&calls, &["keeper 0.2.0", "teller 0.3.0"]).await;
    assert_eq!(count(&calls).await, "0.2.0: 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_nobody_waits_for_any_more_is_closed_once_it_is_open() {
    let stage = Stage::new().await;
    let calls = stage.calls().await;
    assert_eq!(count(&calls).await, "0.2.0: 1");
    stage.touch("slow-0.3.0");
    stage.put("keeper", "0.3.0").await;
    stage.logs(&["open 0.2.0", "opening 0.3.0"]).await;
    stage.put("keeper", "0.2.0").await;
    assert_eq!(count(&calls).await, "0.2.0: 2", "it goes on meanwhile");
    stage.touch("go-on");
    stage
        .logs(&["open 0.2.0", "opening 0.3.0", "open 0.3.0", "close 0.3.0"])
        .await;
    assert_eq!(count(&calls).await, "0.2.0: 3");
    assert_eq!(versions(&calls), ["keeper 0.2.0", "teller 0.2.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_cannot_come_over_stays_where_it_is() {
    let stage = Stage::new().await;
    let calls = stage.calls().await;
    assert_eq!(count(&calls).await, "0.2.0: 1");
    stage.touch("refuse-state");
    stage.put("keeper", "0.3.0").await;
    have(&calls, &["keeper 0.3.0", "teller 0.2.0"]).await;
    assert_eq!(
        count(&calls).await,
        "0.2.0: 2",
        "the version before goes on"
    );
    assert_eq!(count(&calls).await, "0.2.0: 3");
    assert_eq!(stage.log(), ["open 0.2.0", "open 0.3.0"]);
}

/// Calls what it is told to, and else says which tools there are.
pub(crate) struct Looking;

impl Provider for Looking {
    fn name(&self) -> &str {
        "looking"
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        _sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        let messages = request.messages.messages();
        // What the person said, without a note of the host's behind it.
        let last = messages.last().and_then(|last| last.content.first());
        let last = last.and_then(Part::as_text).unwrap_or_default();
        let names: Vec<&str> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        let (part, reason) = match last.strip_prefix("call ") {
            Some(tool) => {
                let call = FunctionCall {
                    call_id: format!("call-{}", messages.len()),
                    name: tool.to_owned(),
                    arguments: json!({ "command": "count" }),
                    arguments_text: None,
                };
                (Content::FunctionCall(call).into(), StopReason::ToolUse)
            }
            None => (Part::text(names.join(" ")), StopReason::EndTurn),
        };
        std::future::ready(Ok(reply(part, reason))).boxed()
    }
}

/// The results of calls, and what was said, up to one of these that ends with `last`.
pub(crate) async fn seen(session: &Session, last: &str) -> Vec<String> {
    let mut events = session.events(None);
    let mut seen: Vec<String> = Vec::new();
    while seen.last().is_none_or(|text| !text.contains(last)) {
        let event = tokio::time::timeout(LIMIT, events.next()).await;
        let event = event.unwrap_or_else(|_| panic!("never: {last}; seen: {seen:?}"));
        match &event.event {
            Event::FunctionCallOutput(output) => seen.push(output.output.clone()),
            Event::Notice { text } => seen.push(text.clone()),
            _ => {}
        }
    }
    seen
}

/// The plugins of the first calls of a session, as its events name them.
async fn started(session: &Session, calls: usize) -> Vec<String> {
    let mut events = session.events(None);
    let mut started = Vec::new();
    while started.len() < calls {
        let event = tokio::time::timeout(LIMIT, events.next()).await.unwrap();
        if let Event::CallStarted { plugin, .. } = &event.event {
            started.push(plugin.clone().unwrap_or_default());
        }
    }
    started
}

fn of(kind: &str, config: Option<Value>) -> BackendSpec {
    BackendSpec {
        kind: kind.to_owned(),
        config,
        ..BackendSpec::default()
    }
}

async fn set(session: &Session, backends: Vec<BackendSpec>) {
    let settings = SessionSettings {
        backends: Some(backends),
        ..SessionSettings::default()
    };
    session
        .change(settings, EffectiveFrom::NextTurn)
        .await
        .unwrap();
}

fn opened(work: &Path) -> usize {
    let log = std::fs::read_to_string(work.join("log.txt")).unwrap_or_default();
    log.lines().filter(|line| line.starts_with("open")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_takes_backends_in_and_lets_them_go_and_touches_no_other() {
    let stage = Stage::new().await;
    let mut spec = stage.spec();
    spec.backends = vec![of("keeper", None)];
    let session = stage.host.session(spec).await.unwrap();
    session.chat("call keeper_count").await.unwrap();
    set(&session, vec![of("keeper", None), of("teller", None)]).await;
    let there = session.chat("what is there?").await.unwrap();
    assert!(there.text.contains("keeper_count"), "{}", there.text);
    assert!(there.text.contains("teller_bash_tool"), "{}", there.text);
    session.chat("call keeper_count").await.unwrap();
    assert_eq!(opened(&stage.work), 1, "the other backend was not touched");

    // Another configuration is another instance, which takes the count over.
    set(
        &session,
        vec![
            of("keeper", Some(json!({ "from": 40 }))),
            of("teller", None),
        ],
    )
    .await;
    session.chat("call keeper_count").await.unwrap();
    // One that there is none of is said, and the others go on.
    set(
        &session,
        vec![
            of("keeper", Some(json!({ "from": 40 }))),
            of("nobody", None),
        ],
    )
    .await;
    let there = session.chat("what is there?").await.unwrap();
    assert_eq!(there.text, "keeper_count keeper_slow");
    session.chat("call keeper_count").await.unwrap();
    let seen = seen(&session, "0.2.0: 4").await;
    let counts: Vec<&String> = seen
        .iter()
        .filter(|text| text.starts_with("0.2.0: "))
        .collect();
    assert_eq!(counts, ["0.2.0: 1", "0.2.0: 2", "0.2.0: 3", "0.2.0: 4"]);
    assert!(
        seen.iter().any(|text| text.contains("`nobody`")),
        "{seen:?}"
    );
    let entries = session.entries().await;
    let reasons = entries.iter().filter_map(|entry| match &entry.body {
        EntryBody::Notice { reason, .. } => Some(reason.as_ref().expect("it has a reason")),
        _ => None,
    });
    let not_loaded = reasons.filter_map(|reason| match reason {
        NoticeReason::NotLoaded { backend, .. } => Some(backend.as_str()),
        _ => None,
    });
    assert_eq!(not_loaded.collect::<Vec<_>>(), ["nobody"]);
    let status = session.backends().await;
    assert!(status[1].missing.is_some(), "{status:?}");
    stage
        .logs(&["open 0.2.0", "open 0.2.0", "close 0.2.0"])
        .await;
    session.close().await;
    stage
        .logs(&["open 0.2.0", "open 0.2.0", "close 0.2.0", "close 0.2.0"])
        .await;
    drop(stage.dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_in_a_conversation_is_said_and_holds_from_the_next_step_on() {
    let stage = Stage::new().await;
    let session = stage.host.session(stage.spec()).await.unwrap();
    session.chat("call keeper_count").await.unwrap();
    stage.put("keeper", "0.3.0").await;
    seen(&session, "keeper 0.2.0 → 0.3.0").await;
    session.chat("call keeper_count").await.unwrap();
    seen(&session, "0.3.0: 2").await;
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_stayed_where_it_was_is_told_to_come_from_there() {
    let stage = Stage::new().await;
    let session = stage.host.session(stage.spec()).await.unwrap();
    session.chat("call keeper_count").await.unwrap();
    seen(&session, "0.2.0: 1").await;
    stage.touch("refuse-state");
    stage.put("keeper", "0.3.0").await;
    seen(&session, "keeper 0.2.0 → 0.3.0").await;
    session.chat("call keeper_count").await.unwrap();
    let refused = "keeper 0.3.0 could not take over the state of keeper 0.2.0, which goes on";
    seen(&session, refused).await;
    seen(&session, "0.2.0: 2").await;
    session.chat("call keeper_count").await.unwrap();
    seen(&session, "0.2.0: 3").await;
    // Of the first call nobody knows before that the state does not come over.
    let ran = ["keeper 0.2.0", "keeper 0.3.0", "keeper 0.2.0"];
    assert_eq!(started(&session, ran.len()).await, ran);
    std::fs::remove_file(stage.work.join("refuse-state")).unwrap();
    stage.put("keeper", "0.4.0").await;
    seen(&session, "keeper 0.2.0 → 0.4.0").await;
    session.chat("call keeper_count").await.unwrap();
    seen(
        &session,
        "keeper 0.4.0 has taken over the state of keeper 0.2.0.",
    )
    .await;
    seen(&session, "0.4.0: 4").await;
    session.close().await;
}
