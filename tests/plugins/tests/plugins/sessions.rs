//! Sessions on a host whose skill is replaced while they call it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conjure_core::chat::{Content, Event, FunctionCall, Part, Response, Role, Stop, StopReason};
use conjure_core::request::ModelRequest;
use conjure_host::Host;
use conjure_host::provider::{Provider, ProviderError, ReplySink};
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_plugin_tests::{Plugin, Versions};
use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Open, PluginEvent, ToolDecl, ToolResult,
};
use conjure_skill_sdk::{Backend, BackendPlugin, Cx};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

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

/// What the load must be at least.
const CALLS_A_SECOND: u64 = 100;

/// The model's replies come this far apart, over all sessions: four of five ask for two calls, so
/// that 160 calls a second are asked for.
const PACE: Duration = Duration::from_millis(10);

/// How long something may take that must happen.
const LIMIT: Duration = Duration::from_secs(20);

/// A model that calls the skill in every step until it is told to stop, and looks at each answer:
/// it must come from the version that the table of its step named.
#[derive(Default)]
struct Caller {
    stop: AtomicBool,
    /// Replies that have their time.
    replies: AtomicU64,
    /// Calls that were asked for.
    sent: AtomicU64,
    /// Calls whose results came back.
    calls: watch::Sender<u64>,
    versions_seen: AtomicU64,
    wrong: AtomicU64,
}

struct Model {
    caller: Arc<Caller>,
    begun: Instant,
}

impl Provider for Model {
    fn name(&self) -> &str {
        "caller"
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        _sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        async move {
            // A model takes its time, and a reply that is late does not make the others late.
            let number = self.caller.replies.fetch_add(1, Ordering::SeqCst);
            let due = self.begun + PACE.mul_f64(number as f64);
            tokio::time::sleep_until(due).await;
            Ok(self.caller.answer(request))
        }
        .boxed()
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
            self.sent.fetch_add(2, Ordering::SeqCst);
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

    /// The results that are new: the id of a call holds the mark that its table named.
    fn judge(&self, request: &ModelRequest) {
        let newest = request.messages.messages().last();
        let Some(results) = newest.filter(|m| m.role == Role::Tool) else {
            return;
        };
        for part in &results.content {
            let Content::FunctionCallOutput(output) = &part.content else {
                continue;
            };
            self.calls.send_modify(|calls| *calls += 1);
            // A note of the host's may stand behind it.
            let answered = output.joined_text();
            let answered = answered.lines().next().unwrap_or_default();
            let number = answered.strip_prefix("mark:").and_then(|n| n.parse().ok());
            self.versions_seen
                .fetch_max(number.unwrap_or(0), Ordering::SeqCst);
            if output.is_error || !output.call_id.starts_with(answered) {
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
        .provider(
            "caller",
            Model {
                caller: Arc::clone(&caller),
                begun: Instant::now(),
            },
        )
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
    let mut calls = caller.calls.subscribe();
    // The load is there before the first replacement.
    answered_after(&mut calls, SESSIONS).await;
    let (begun, sent_before) = (Instant::now(), caller.sent.load(Ordering::SeqCst));
    let mut meanwhile = 0;
    for number in 1..=REPLACEMENTS {
        let before = *calls.borrow_and_update();
        place(
            &plugins,
            &versions.with(format!("mark:{number:011}").as_bytes()),
        );
        let changed = tokio::time::timeout(LIMIT, generations.changed()).await;
        changed.expect("the replacement is noticed").unwrap();
        meanwhile += u64::from(*calls.borrow() > before);
        answered_after(&mut calls, before).await;
    }
    let (elapsed, sent) = (begun.elapsed(), caller.sent.load(Ordering::SeqCst));
    caller.stop.store(true, Ordering::SeqCst);
    for session in talking {
        session.await.unwrap();
    }
    let (calls, all_sent) = (*calls.borrow(), caller.sent.load(Ordering::SeqCst));
    let rate = (sent - sent_before) as f64 / elapsed.as_secs_f64();
    println!(
        "FIGURES {calls} calls of {SESSIONS} sessions over {REPLACEMENTS} replacements in \
         {elapsed:?}, {rate:.0} a second; in {meanwhile} of them one was answered meanwhile"
    );
    assert_eq!(caller.wrong.load(Ordering::SeqCst), 0);
    assert_eq!(calls, all_sent, "no call is lost");
    assert!(rate >= CALLS_A_SECOND as f64, "{rate} calls a second");
    assert!(
        meanwhile > REPLACEMENTS / 10,
        "in {meanwhile} replacements a call was answered between the file and the change"
    );
    assert!(caller.versions_seen.load(Ordering::SeqCst) > REPLACEMENTS / 2);
}

/// Waits until more calls than these were answered.
async fn answered_after(calls: &mut watch::Receiver<u64>, before: u64) {
    let answered = calls.wait_for(|calls| *calls > before);
    let answered = tokio::time::timeout(LIMIT, answered).await;
    answered.expect("calls are answered").unwrap();
}

/// Offers another tool from the moment on that one is called.
struct Growing {
    grown: Arc<AtomicBool>,
    told: Arc<tokio::sync::Notify>,
}

impl Backend for Growing {
    async fn open(&self, _cx: Cx, _request: Open) -> conjure_skill_sdk::Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> conjure_skill_sdk::Result<CatalogReply> {
        let tool = |name: &str| ToolDecl::new(name, "A tool", json!({ "type": "object" }));
        let mut tools = vec![tool("grow")];
        if self.grown.load(Ordering::SeqCst) {
            tools.push(tool("grown"));
        }
        Ok(CatalogReply {
            tools,
            ..CatalogReply::default()
        })
    }

    async fn call(&self, _cx: Cx, _request: BackendCall) -> conjure_skill_sdk::Result<ToolResult> {
        self.grown.store(true, Ordering::SeqCst);
        self.told.notify_one();
        Ok(ToolResult::text("it grows"))
    }

    async fn close(&self, _cx: Cx) -> conjure_skill_sdk::Result<()> {
        Ok(())
    }

    async fn watch(&self, cx: Cx) -> conjure_skill_sdk::Result<()> {
        loop {
            self.told.notified().await;
            cx.event_async(&PluginEvent::CatalogChanged {
                sessions: Vec::new(),
                what: Vec::new(),
            })
            .await?;
        }
    }
}

/// A whole reply of one part.
pub(crate) fn reply(part: Part, reason: StopReason) -> Response {
    Response {
        parts: vec![part],
        stop: Some(Stop {
            reason,
            raw: "scripted".to_owned(),
            sequence: None,
        }),
        complete: true,
        ..Response::default()
    }
}

/// Calls `growing_grow` once, and says what it sees in each request after that.
struct Looking;

impl Provider for Looking {
    fn name(&self) -> &str {
        "looking"
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        _sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        let first = request.messages.messages().len() == 1;
        let names: Vec<&str> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        let (part, reason) = if first {
            let call = FunctionCall {
                call_id: "one".to_owned(),
                name: "growing_grow".to_owned(),
                arguments: json!({}),
                arguments_text: None,
            };
            (Content::FunctionCall(call).into(), StopReason::ToolUse)
        } else {
            (Part::text(names.join(" ")), StopReason::EndTurn)
        };
        std::future::ready(Ok(reply(part, reason))).boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_changes_is_there_in_a_later_step_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder()
        .data_dir(dir.path())
        .provider("looking", Looking)
        .link(|| {
            BackendPlugin::new("growing", "Grows", |_setup| {
                Ok(Growing {
                    grown: Arc::default(),
                    told: Arc::default(),
                })
            })
        })
        .build()
        .await
        .unwrap();
    let mut spec = SessionSpec {
        provider: Some("looking".to_owned()),
        ..SessionSpec::hybrid([BackendSpec::executor("growing", [] as [&str; 0])])
    };
    spec.policy.allow.push("growing_*".parse().unwrap());
    let session = host.session(spec).await.unwrap();
    let mut events = session.events_since_opened();
    session.chat("grow").await.unwrap();
    let said = async {
        loop {
            if let Event::Notice { text } = &events.next().await.event
                && text.contains("growing_grown")
            {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), said)
        .await
        .expect("the change is said");
    let answer = session.chat("what is there?").await.unwrap();
    assert_eq!(answer.text, "growing_grow growing_grown");
    session.close().await;
}
