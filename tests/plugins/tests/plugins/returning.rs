//! Native skills of sessions that run, which are removed, come back, or are loaded again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_core::turn::EffectiveFrom;
use conjure_host::Host;
use conjure_host::backend::ToolSnapshot;
use conjure_host::session::{
    BackendSpec, SessionSettings, SessionSpec, ToolCallOptions, ToolSession,
};
use conjure_plugin_tests::versioned;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::moving::{Looking, said, seen};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A host that watches a directory, and a skill in it.
struct Stage {
    host: Host,
    name: &'static str,
    file: PathBuf,
    _dir: TempDir,
}

impl Stage {
    async fn new(name: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plugins = dir.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        let file = plugins.join(format!("lib{name}.so"));
        conjure_host::fs::write_atomic(&file, &versioned(name, "0.2.0")).unwrap();
        let host = Host::builder()
            .data_dir(dir.path().join("data"))
            .plugin_dir(&plugins)
            .watch(true)
            .provider("looking", Looking)
            .build();
        let stage = Self {
            host: host.await.unwrap(),
            name,
            file,
            _dir: dir,
        };
        stage.has(Some("0.2.0")).await;
        stage
    }

    /// Waits until the host has this version, or none.
    async fn has(&self, version: Option<&str>) {
        let registry = self.host.registry();
        let mut generations = registry.subscribe();
        let is_so = |_: &u64| {
            let snapshot = registry.snapshot();
            let there = snapshot.get(self.name);
            there.map(|plugin| plugin.manifest().version.as_str()) == version
        };
        let so = tokio::time::timeout(LIMIT, generations.wait_for(is_so)).await;
        so.expect("the file is noticed").unwrap();
    }

    async fn put(&self, version: &str) {
        conjure_host::fs::write_atomic(&self.file, &versioned(self.name, version)).unwrap();
        self.has(Some(version)).await;
    }

    async fn remove(&self) {
        std::fs::remove_file(&self.file).unwrap();
        self.has(None).await;
    }

    fn tool(&self) -> String {
        format!("{}_execute", self.name)
    }

    fn spec(&self) -> SessionSpec {
        let mut spec = SessionSpec {
            provider: Some("looking".to_owned()),
            ..SessionSpec::hybrid([BackendSpec::all_native()])
        };
        spec.policy.allow.push(self.tool().parse().unwrap());
        spec
    }

    /// Waits until the tools of a session are of this version, or gone.
    async fn sees(&self, calls: &ToolSession, version: Option<&str>) {
        let mut revision = calls.revision();
        let is_so = |_: &_| {
            let table = calls.table();
            let route = table.route(&self.tool());
            let seen = route.map(|route| route.definition.origin.version.clone());
            seen == version.map(|version| Some(version.to_owned()))
        };
        let so = tokio::time::timeout(LIMIT, revision.wait_for(is_so)).await;
        so.expect("the session follows").unwrap();
    }

    async fn count(&self, calls: &ToolSession, snapshot: &ToolSnapshot) -> String {
        let call = FunctionCall {
            call_id: "call-1".to_owned(),
            name: self.tool(),
            arguments: json!({ "command": "count" }),
            arguments_text: None,
        };
        let with = ToolCallOptions {
            snapshot,
            cancel: &CancellationToken::new(),
            live: &(Arc::new(|_, _: &[u8]| {}) as _),
            request_context: None,
            verbatim: false,
        };
        let report = calls.call_with(&call, with).await.unwrap();
        let parts = report.output.output.iter();
        let texts = parts.filter_map(|part| match part {
            OutputPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_has_a_skill_that_was_removed_before_its_first_call() {
    let stage = Stage::new("counter").await;
    let calls = stage.host.calls(stage.spec()).await.unwrap();
    let step = calls.snapshot();
    stage.remove().await;
    stage.sees(&calls, None).await;
    assert_eq!(stage.count(&calls, &step).await, "0.2.0: 1");
    calls.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_that_comes_back_takes_over_what_it_held() {
    let stage = Stage::new("counter").await;
    let calls = stage.host.calls(stage.spec()).await.unwrap();
    let mut notices = calls.notices();
    assert_eq!(stage.count(&calls, &calls.snapshot()).await, "0.2.0: 1");
    stage.remove().await;
    stage.sees(&calls, None).await;
    stage.put("0.3.0").await;
    stage.sees(&calls, Some("0.3.0")).await;
    assert_eq!(stage.count(&calls, &calls.snapshot()).await, "0.3.0: 2");
    let told = said(&mut notices);
    let moves = "counter 0.2.0 → 0.3.0; its state moves over at its next call.";
    assert!(told.contains(moves), "{told}");
    calls.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_told_of_a_version_that_came_back_another() {
    let stage = Stage::new("counter").await;
    let session = stage.host.session(stage.spec()).await.unwrap();
    session.chat("call counter_execute").await.unwrap();
    seen(&session, "0.2.0: 1").await;
    stage.remove().await;
    seen(&session, "gone: counter_execute").await;
    stage.put("0.3.0").await;
    seen(&session, "counter 0.2.0 → 0.3.0").await;
    session.chat("call counter_execute").await.unwrap();
    seen(&session, "0.3.0: 2").await;
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_that_a_person_takes_out_is_not_gone() {
    let stage = Stage::new("counter").await;
    let session = stage.host.session(stage.spec()).await.unwrap();
    session.chat("call counter_execute").await.unwrap();
    seen(&session, "0.2.0: 1").await;
    let none: [&str; 0] = [];
    for backend in [BackendSpec::native(none), BackendSpec::all_native()] {
        let has_all = backend.skills.is_none();
        let settings = SessionSettings {
            backends: Some(vec![backend]),
            ..SessionSettings::default()
        };
        session
            .change(settings, EffectiveFrom::NextTurn)
            .await
            .unwrap();
        let there = session.chat("what is there?").await.unwrap().text;
        assert_eq!(there.contains("counter_execute"), has_all, "{there}");
    }
    // It begins anew, as one that a person has never had there.
    for _ in 0..2 {
        session.chat("call counter_execute").await.unwrap();
    }
    let seen = seen(&session, "0.2.0: 2").await;
    let ones = seen.iter().filter(|text| text.contains("0.2.0: 1")).count();
    assert_eq!(ones, 2, "{seen:?}");
    assert!(!seen.iter().any(|text| text.contains("loaded again")));
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_skill_that_is_loaded_again_cannot_hand_over_is_told() {
    let stage = Stage::new("toucher").await;
    let session = stage.host.session(stage.spec()).await.unwrap();
    session.chat("call toucher_execute").await.unwrap();
    seen(&session, "0.2.0").await;
    stage.host.registry().reload("toucher").unwrap().unwrap();
    let lost = "toucher 0.2.0, loaded again; its state, if it held any, was lost: it cannot be";
    seen(&session, lost).await;
    session.close().await;
}
