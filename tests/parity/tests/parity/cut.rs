//! A log that ends anywhere, as a crash may leave it: the thread sends from there on every wire.
//!
//! `killed` ends the real program where it happens to be; here the log is cut at every place at
//! which it could have been.

use std::fs;

use conjure_core::wire::{Endpoint, Wire};
use conjure_host::Host;
use conjure_host::provider::{HttpOptions, HttpProvider};
use conjure_host::session::{BackendSpec, PolicySpec, Session, SessionSpec};
use conjure_host::store::{self, Log as _, Store, ThreadId, json_lines};
use conjure_kit::{Workspace, build_plugin};
use conjure_mock_llm::{Message, MockLlm, Script, Step};

use crate::killed::{EFFECTS, Logged, NOT_BEGUN, RAN, STOPS, told, turn};
use crate::stage::{CACHE, LOCAL, in_time, local};

const WIRES: [Wire; 4] = [
    Wire::Anthropic,
    Wire::OpenaiResponses,
    Wire::OpenaiChat,
    Wire::Gemini,
];

/// A host with a database, and a model that plays the turn for the question `Go on.` and
/// else says that it is here.
struct Stage {
    workspace: Workspace,
    store: Store,
    mock: MockLlm,
    host: Host,
}

impl Stage {
    async fn new() -> Self {
        let workspace = Workspace::new().unwrap();
        let data = workspace.root().join("data");
        let store = store::open(&data).await.unwrap();
        let script = Script::new().step(
            Step::answer(|request| {
                let body = request.body.to_string();
                let rounds = (1..=2).filter(|n| body.contains(&format!("This is step {n}.")));
                let message = if body.contains("again?") {
                    Message::new().text("Here again.")
                } else {
                    turn()[rounds.count()].clone()
                };
                message.into()
            })
            .always(),
        );
        let mock = MockLlm::start(script).await.unwrap();
        let mut builder = Host::builder().data_dir(data).log(store.clone());
        for plugin in [LOCAL, CACHE] {
            builder = builder.plugin_file(build_plugin(plugin).unwrap());
        }
        for ((name, _), wire) in STOPS.into_iter().zip(WIRES) {
            let key = Some("a-key-of-nobody".into());
            let options = HttpOptions::new(mock.base_url());
            let provider = HttpProvider::new(wire, Endpoint::new(name), key, options).unwrap();
            builder = builder.provider(name, provider);
        }
        Self {
            host: builder.build().await.unwrap(),
            workspace,
            store,
            mock,
        }
    }

    async fn open(&self, stop: usize, thread: &ThreadId) -> Session {
        let spec = SessionSpec {
            provider: Some(STOPS[stop].0.to_owned()),
            model: Some(STOPS[stop].1.to_owned()),
            working_dir: Some(self.workspace.work()),
            thinking_tokens: Some(2048),
            policy: PolicySpec {
                allow: vec!["*".parse().unwrap()],
                ..PolicySpec::default()
            },
            ..SessionSpec::hybrid([local(), BackendSpec::all_native()])
        };
        self.host.resume(spec, thread.clone()).await.unwrap()
    }

    /// What a thread holds, one record a line.
    async fn log(&self, thread: &ThreadId) -> Vec<u8> {
        json_lines(&self.store.read(thread).await.unwrap()).unwrap()
    }

    /// The log of the whole turn with this provider.
    async fn recorded(&self, stop: usize) -> Vec<u8> {
        let thread = ThreadId::fresh();
        let session = self.open(stop, &thread).await;
        let answer = in_time(session.chat("Go on.")).await.unwrap();
        assert_eq!(answer.text, "This is the answer to everything.");
        session.close().await;
        self.log(&thread).await
    }

    /// Goes on with what a crash left of a log, and checks what the model is told. Gives back the
    /// log after that.
    async fn goes_on(&self, log: &[u8], stop: usize, place: &str) -> Vec<u8> {
        let thread = ThreadId::fresh();
        let path = self.workspace.root().join("cut.jsonl");
        fs::write(&path, log).unwrap();
        self.store.import_thread(&path, &thread).await.unwrap();
        let before = self.mock.requests().len();
        let session = self.open(stop, &thread).await;
        let answer = in_time(session.chat(format!("Are you there again? {place}"))).await;
        session.close().await;
        assert_eq!(self.mock.violations(), [], "{place}");
        assert_eq!(answer.unwrap().text, "Here again.", "{place}");
        let requests = self.mock.requests();
        assert_eq!(requests.len(), before + 1, "{place}");
        self.check(log, &told(&requests[before]), place);
        self.log(&thread).await
    }

    /// Every text is told, every result that was seen, and of every other call what is known.
    fn check(&self, log: &[u8], told: &str, place: &str) {
        let logged = Logged::read(log);
        assert!(told.contains(place), "{place}: {told}");
        for text in &logged.texts {
            assert!(told.contains(text.trim()), "{place}: `{text}` in {told}");
        }
        for output in &logged.outputs {
            assert!(told.contains(output), "{place}: `{output}` in {told}");
        }
        let open: Vec<_> = logged
            .calls
            .iter()
            .filter(|(_, end)| end.is_none())
            .collect();
        let is_started = |name: &String| logged.started.contains(name);
        let started = open.iter().filter(|(name, _)| is_started(name)).count();
        let ran = logged.ended("indeterminate") + started;
        let not_begun = logged.ended("refused") + open.len() - started;
        assert_eq!(told.matches(RAN).count(), ran, "{place}: {told}");
        assert_eq!(
            told.matches(NOT_BEGUN).count(),
            not_begun,
            "{place}: {told}"
        );
    }
}

/// Where each line of a log ends; 0 among it.
fn ends(log: &[u8]) -> Vec<usize> {
    let ends = log.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    [0].into_iter().chain(ends.map(|(at, _)| at + 1)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_cut_after_any_line_sends_on_every_wire() {
    let stage = Stage::new().await;
    for (from, (name, _)) in STOPS.into_iter().enumerate() {
        let log = stage.recorded(from).await;
        let ends = ends(&log);
        assert!(ends.len() > 35, "{}", String::from_utf8_lossy(&log));
        for (line, end) in ends.iter().enumerate() {
            let cut = &log[..*end];
            // What was only shown changes no request: one wire is enough behind it.
            let last = ends[line.saturating_sub(1)];
            let wires = if cut[last..].starts_with(b"{\"event\"") {
                line % STOPS.len()..line % STOPS.len() + 1
            } else {
                0..STOPS.len()
            };
            for to in wires {
                let place = format!("Line {line}, {name} to {}.", STOPS[to].0);
                stage.goes_on(cut, to, &place).await;
            }
        }
    }
    let mut effects = EFFECTS.map(|name| format!("{name}\n")).concat();
    effects = effects.repeat(STOPS.len());
    assert_eq!(stage.workspace.read("effects").unwrap(), effects);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_cut_in_the_middle_of_a_line_sends_as_one_that_ends_before_it() {
    let stage = Stage::new().await;
    let log = stage.recorded(0).await;
    for (line, pair) in ends(&log).windows(2).enumerate() {
        let middle = pair[0].midpoint(pair[1]);
        let to = line % STOPS.len();
        let place = format!("Half of line {line}, to {}.", STOPS[to].0);
        stage.goes_on(&log[..middle], to, &place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn going_on_may_be_interrupted_too() {
    let stage = Stage::new().await;
    let log = stage.recorded(0).await;
    let ends_of_first = ends(&log);
    // One call has its result, one runs, one waits.
    let mut cuts = ends_of_first.iter().map(|end| &log[..*end]);
    let half = cuts.rfind(|log| {
        let logged = Logged::read(log);
        logged.started.len() == 2 && logged.ended("done") == 1
    });
    let half = half.expect("no such moment");
    let again = stage.goes_on(half, 1, "The first interruption.").await;
    assert!(again.starts_with(half));
    for (line, end) in ends(&again).into_iter().enumerate() {
        if end > half.len() {
            let to = line % STOPS.len();
            let place = format!("Line {line} of going on, to {}.", STOPS[to].0);
            stage.goes_on(&again[..end], to, &place).await;
        }
    }
}
