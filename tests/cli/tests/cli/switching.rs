//! One conversation over all four wires: with tool calls in flight at each change, and back to the
//! provider that it began with.

use std::time::Duration;

use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use conjure_core::wire::{Endpoint, Wire};
use conjure_host::Host;
use conjure_host::provider::{HttpOptions, HttpProvider};
use conjure_host::session::{ApprovalMode, BackendSpec, Session, SessionSettings, SessionSpec};
use conjure_kit::{Model, Workspace, build_plugin};
use conjure_mock_llm::{Message, Wire as Played};
use serde_json::json;

use crate::stage::{CACHE, conjure, workspace};

/// Provider, model, wire.
const STOPS: [(&str, &str, Wire, Played); 4] = [
    (
        "anthropic",
        "claude-sonnet-4-5",
        Wire::Anthropic,
        Played::Anthropic,
    ),
    ("openai", "gpt-5", Wire::OpenaiResponses, Played::Responses),
    ("deepseek", "deepseek-chat", Wire::OpenaiChat, Played::Chat),
    ("gemini", "gemini-2.5-pro", Wire::Gemini, Played::Gemini),
];

/// A step with thoughts and two calls at once.
fn step(number: usize) -> Message {
    let call = |name: &str| json!({ "command": format!("set {name}{number} {number}") });
    Message::new()
        .reasoning(format!("Thought {number}."))
        .text(format!("Step {number}. "))
        .tool_use(
            format!("toolu_{number}a"),
            "cache-manager_execute",
            call("a"),
        )
        .tool_use(
            format!("toolu_{number}b"),
            "cache-manager_execute",
            call("b"),
        )
}

/// Waits until both calls of a step wait for a decision, and gives back their ids.
async fn in_flight(session: &Session) -> Vec<String> {
    let waiting = async {
        let mut events = session.events_from_now();
        loop {
            let pending = session.pending().await;
            if pending.len() == 2 {
                return pending
                    .into_iter()
                    .map(|pending| pending.call.call_id)
                    .collect();
            }
            events.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .expect("the calls never wait")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_over_every_wire_with_calls_in_flight_and_comes_home() {
    // Begins with each of the four in turn.
    for first in 0..STOPS.len() {
        let workspace = Workspace::new().unwrap();
        let model = Model::start().unwrap();
        let mut builder = Host::builder()
            .data_dir(workspace.root().join("data"))
            .plugin_file(build_plugin(CACHE).unwrap());
        for (name, _, wire, _) in STOPS {
            let options = HttpOptions::new(model.base_url());
            let key = Some("a-key-of-nobody".into());
            let provider = HttpProvider::new(wire, Endpoint::new(name), key, options).unwrap();
            builder = builder.provider(name, provider);
        }
        let host = builder.build().await.unwrap();
        let route: Vec<_> = (0..=STOPS.len())
            .map(|number| STOPS[(first + number) % STOPS.len()])
            .collect();
        let session = host
            .session(SessionSpec {
                provider: Some(route[0].0.to_owned()),
                model: Some(route[0].1.to_owned()),
                working_dir: Some(workspace.work()),
                thinking_tokens: Some(2048),
                ..SessionSpec::hybrid([BackendSpec::all_native()])
            })
            .await
            .unwrap();
        session.attend(ApprovalMode::Attended).await;
        for number in 0..STOPS.len() {
            model.says(step(number));
        }
        model.says(Message::new().reasoning("Home.").text("Done."));
        model.says(Message::new().text("Still here."));
        let session = std::sync::Arc::new(session);
        let asked = std::sync::Arc::clone(&session);
        let answer = tokio::spawn(async move { asked.chat("Go on.").await });
        for (provider, model, ..) in &route[1..] {
            let calls = in_flight(&session).await;
            let settings = SessionSettings {
                provider: Some((*provider).to_owned()),
                model: Some((*model).to_owned()),
                ..SessionSettings::default()
            };
            session.change(settings, EffectiveFrom::Now).await.unwrap();
            for call in calls {
                session.decide(call, ApprovalDecision::Allow).await;
            }
        }
        assert_eq!(answer.await.unwrap().unwrap().text, "Done.", "from {first}");
        assert_eq!(session.chat("And?").await.unwrap().text, "Still here.");
        // Refused requests are told here: ids, pairs, and signatures that are not its own.
        let requests = model.requests();
        let wires: Vec<_> = requests
            .iter()
            .map(|request| request.wire().unwrap())
            .collect();
        let mut wanted: Vec<_> = route.iter().map(|stop| stop.3).collect();
        wanted.push(route[0].3);
        assert_eq!(wires, wanted);
        for (number, request) in requests.iter().enumerate() {
            let body = request.body.to_string();
            for earlier in 0..number.min(STOPS.len()) {
                for name in ["a", "b"] {
                    let command = format!("set {name}{earlier} {earlier}");
                    assert!(body.contains(&command), "request {number}: {command}");
                }
                let stored = body.matches("stored").count();
                assert!(stored >= 2 * (earlier + 1), "request {number}: {body}");
                // Thoughts go home and nowhere else.
                let thought = body.contains(&format!("Thought {earlier}."));
                let own = route[earlier].0 == route[number.min(STOPS.len())].0;
                assert!(own || !thought, "request {number} tells thought {earlier}");
            }
        }
        if let Some(session) = std::sync::Arc::into_inner(session) {
            session.close().await;
        }
    }
}

#[test]
fn a_person_changes_the_model_in_the_middle_of_a_chat() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let mut chat = conjure(
        &workspace,
        "chat --allow * --provider anthropic --model claude-sonnet-4-5",
    )
    .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
    .env("OPENAI_API_KEY", "a-key-of-nobody")
    .env("GOOGLE_API_KEY", "a-key-of-nobody")
    .env("DEEPSEEK_API_KEY", "a-key-of-nobody")
    .env("ANTHROPIC_BASE_URL", model.base_url())
    .env("OPENAI_BASE_URL", model.base_url())
    .env("GEMINI_BASE_URL", model.base_url())
    .env("DEEPSEEK_BASE_URL", model.base_url())
    .start()
    .unwrap();
    chat.wait_for_stderr("/help").unwrap();
    let route = [
        "anthropic/claude-sonnet-4-5",
        "openai/gpt-5",
        "gemini/gemini-2.5-pro",
        "deepseek/deepseek-chat",
        "anthropic/claude-sonnet-4-5",
    ];
    for (number, stop) in route.iter().enumerate() {
        chat.send_line(&format!("/model {stop}")).unwrap();
        model.says(step(number));
        model.says(Message::new().text(format!("Answer {number}.")));
        chat.send_line(&format!("Question {number}?")).unwrap();
        chat.wait_for_stdout(&format!("Answer {number}.\n"))
            .unwrap();
    }
    for (line, said) in [
        (
            "/model nobody/x",
            "nothing changes: there is no provider `nobody`",
        ),
        (
            "/model mistral/x",
            "nothing changes: the provider `mistral` needs a key: set MISTRAL_API_KEY",
        ),
        ("/model", "Write `/model PROVIDER/MODEL`"),
    ] {
        chat.send_line(line).unwrap();
        chat.wait_for_stderr(said).unwrap();
    }
    chat.close_stdin();
    let output = chat.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(model.requests().len(), 2 * route.len());
}
