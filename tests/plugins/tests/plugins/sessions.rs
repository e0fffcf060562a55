//! Sessions on a host whose skill is replaced while they call it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conjure_core::chat::{Content, FunctionCall, Part, Response, Role, Stop, StopReason};
use conjure_core::request::ModelRequest;
use conjure_host::Host;
use conjure_host::provider::{Provider, ProviderError, ReplySink};
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_plugin_tests::{Plugin, Versions};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;

/// The mark of a version stands in its tool's description, and is what a call answers.
const TELLING: &str = r#"
use conjure_skill_sdk::protocol::Execute;
use conjure_skill_sdk::{export_skill, Skill};

#[no_mangle]
pub static CONJURE_TEST_MARK: [u8; 16] = *b"mark:00000000000";

fn mark() -> String {
    let mark = unsafe { std::ptr::read_volatile(&CONJURE_TEST_MARK) };
    String::from_utf8_lossy(&mark).into_owned()
}

fn skill() -> Skill {
    Skill::new("telling", "Says which version it is").execute(&mark(), |_cx, _c: Execute| mark())
}

export_skill!(skill, name = "telling");
"#;

const SESSIONS: u64 = 10;
const REPLACEMENTS: u64 = 200;

/// A model that calls the skill in every step until it is told to stop, and looks at each answer:
/// it must come from the version that the table of its step named.
#[derive(Default)]
struct Caller {
    stop: AtomicBool,
    calls: AtomicU64,
    versions_seen: AtomicU64,
    wrong: AtomicU64,
}

struct Model(Arc<Caller>);

impl Provider for Model {
    fn name(&self) -> &str {
        "caller"
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        _sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        async move { Ok(self.0.answer(request)) }.boxed()
    }
}

impl Caller {
    fn answer(&self, request: &ModelRequest) -> Response {
        let described = request.tools.iter().find(|t| t.name == "telling_execute");
        let named = described.and_then(|tool| mark_in(&tool.description));
        self.judge(request);
        let messages = request.messages.messages().len();
        let since_asked = request
            .messages
            .messages()
            .iter()
            .rev()
            .take_while(|m| m.role != Role::User)
            .count();
        let enough = since_asked >= 8 || self.stop.load(Ordering::SeqCst);
        let (parts, reason) = if enough || named.is_none() {
            (vec![Part::text("done")], StopReason::EndTurn)
        } else {
            let mark = named.unwrap_or_default();
            let calls = (0..2)
                .map(|n| {
                    Content::FunctionCall(FunctionCall {
                        call_id: format!("{mark}-{messages}-{n}"),
                        name: "telling_execute".to_owned(),
                        arguments: json!({ "command": "mark" }),
                        arguments_text: None,
                    })
                    .into()
                })
                .collect();
            (calls, StopReason::ToolUse)
        };
        Response {
            parts,
            stop: Some(Stop {
                reason,
                raw: "scripted".to_owned(),
                sequence: None,
            }),
            complete: true,
            ..Response::default()
        }
    }

    /// The newest results: the id of a call holds the mark that its table named.
    fn judge(&self, request: &ModelRequest) {
        let Some(results) = request
            .messages
            .messages()
            .iter()
            .rev()
            .find(|m| m.role == Role::Tool)
        else {
            return;
        };
        for part in &results.content {
            let Content::FunctionCallOutput(output) = &part.content else {
                continue;
            };
            self.calls.fetch_add(1, Ordering::SeqCst);
            let answered = output.joined_text();
            let number = answered.strip_prefix("mark:").and_then(|n| n.parse().ok());
            self.versions_seen
                .fetch_max(number.unwrap_or(0), Ordering::SeqCst);
            if output.is_error || !output.call_id.starts_with(&answered) {
                self.wrong.fetch_add(1, Ordering::SeqCst);
                println!("{} was answered by {answered}", output.call_id);
            }
        }
    }
}

fn mark_in(description: &str) -> Option<String> {
    let at = description.find("mark:")?;
    description.get(at..at + 16).map(str::to_owned)
}

fn place(dir: &Path, bytes: &[u8]) {
    let part = dir.join("libtelling.so.part");
    std::fs::write(&part, bytes).unwrap();
    std::fs::rename(part, dir.join("libtelling.so")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_skill_replaced_200_times_under_ten_sessions_answers_as_each_table_says() {
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let versions = Versions::of_text(&Plugin::new("telling", TELLING).build(), "mark:00000000000");
    place(&plugins, versions.original());

    let caller = Arc::new(Caller::default());
    let host = Host::builder()
        .data_dir(dir.path().join("data"))
        .plugin_dir(&plugins)
        .watch(true)
        .provider("caller", Model(Arc::clone(&caller)))
        .build()
        .await
        .unwrap();
    let talking: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let (host, caller) = (host.clone(), Arc::clone(&caller));
            tokio::spawn(async move {
                let mut spec = SessionSpec {
                    provider: Some("caller".to_owned()),
                    ..SessionSpec::hybrid([BackendSpec::all_native()])
                };
                spec.policy.allow.push("telling_*".parse().unwrap());
                let session = host.session(spec).await.unwrap();
                while !caller.stop.load(Ordering::SeqCst) {
                    session.chat("go on").await.unwrap();
                }
                session.close().await;
            })
        })
        .collect();

    let mut generations = host.registry().subscribe();
    for number in 1..=REPLACEMENTS {
        place(
            &plugins,
            &versions.with(format!("mark:{number:011}").as_bytes()),
        );
        let changed = tokio::time::timeout(Duration::from_secs(20), generations.changed()).await;
        changed.expect("the replacement is noticed").unwrap();
    }
    caller.stop.store(true, Ordering::SeqCst);
    for session in talking {
        session.await.unwrap();
    }
    let calls = caller.calls.load(Ordering::SeqCst);
    println!("FIGURES {calls} calls of {SESSIONS} sessions over {REPLACEMENTS} replacements");
    assert_eq!(caller.wrong.load(Ordering::SeqCst), 0);
    assert!(calls > SESSIONS * 10, "{calls} calls");
    assert!(caller.versions_seen.load(Ordering::SeqCst) > REPLACEMENTS / 2);
}
