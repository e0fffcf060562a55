//! One turn that goes on at other providers with calls in flight, with thoughts and without.
//!
//! Played as the mock provider plays it: it writes each reply in the wire's own form, mints what
//! is signed, and judges each request as the real one would.

use conjure_core::chat::{Content, FunctionCallOutput, Message, Meta, Part, Role};
use conjure_core::repair::{RepairTarget, repair};
use conjure_core::request::ModelRequest;
use conjure_core::wire::{Endpoint, Wire};
use conjure_mock_llm as mock;
use serde_json::{Value, json};

/// Wires, providers and models that can be asked.
const STOPS: [(Wire, mock::Wire, &str, &str); 5] = [
    (
        Wire::Anthropic,
        mock::Wire::Anthropic,
        "anthropic",
        "claude-sonnet-4-5",
    ),
    (
        Wire::Anthropic,
        mock::Wire::Anthropic,
        "anthropic",
        "claude-opus-4-7",
    ),
    (
        Wire::OpenaiResponses,
        mock::Wire::Responses,
        "openai",
        "gpt-5.2",
    ),
    (
        Wire::OpenaiChat,
        mock::Wire::Chat,
        "deepseek",
        "deepseek-reasoner",
    ),
    (Wire::Gemini, mock::Wire::Gemini, "gemini", "gemini-3-pro"),
];

/// One request: who is asked, whether for thoughts, and whether the reply then has some.
#[derive(Debug, Clone, Copy)]
struct Stop {
    at: usize,
    asks: bool,
    thinks: bool,
}

/// Asks, has the mock judge the request, and keeps its reply with a call and the call's result.
/// Gives back the body and the thoughts that went along.
fn step(stop: Stop, number: usize, log: &mut Vec<Message>) -> (Value, Vec<String>) {
    let (wire, played, provider, model) = STOPS[stop.at];
    let target = RepairTarget::new(provider, model).with_wire(wire);
    let endpoint = Endpoint::new(provider).with_model(model);
    let request = ModelRequest {
        messages: repair(log.clone(), &target),
        thinking_tokens: stop.asks.then_some(2_048),
        max_tokens: 8_192,
        stream: true,
        ..ModelRequest::empty(&target)
    };
    let encoded = wire.encode(&request, &endpoint);
    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
    let asked = mock::Request::to(played, model, body.clone()).streaming();
    let refused = [mock::validate(played, &asked), mock::verify(played, &asked)].concat();
    assert_eq!(refused, [], "{stop:?} after {log:#?}\nis refused: {body:#}");
    let thoughts = (0..number).map(|number| format!("Thought {number}."));
    let text = body.to_string();
    let told = thoughts.filter(|thought| text.contains(thought)).collect();

    let mut reply = mock::Message::new();
    if stop.thinks {
        reply = reply.reasoning(format!("Thought {number}."));
    }
    let reply = reply.tool_use(format!("toolu_{number}"), "read", json!({"n": number}));
    let mut decoder = wire.decoder(&endpoint);
    decoder.push(&reply.body(&asked), &mut Vec::new());
    let decoded = decoder.finish(&mut Vec::new());
    assert_eq!(decoded.error, None);
    let call = decoded.response.parts.iter().find_map(Part::as_call);
    let output = FunctionCallOutput::text(&call.unwrap().call_id, "r", false);
    log.push(Message {
        meta: Some(Meta {
            provider: provider.to_owned(),
            model: model.to_owned(),
            ..Meta::default()
        }),
        ..Message::new(Role::Assistant, decoded.response.parts)
    });
    let result = Content::FunctionCallOutput(output).into();
    log.push(Message::new(Role::Tool, vec![result]));
    (body, told)
}

#[test]
fn w02_a_turn_goes_on_at_whichever_provider_is_next_with_thoughts_and_without() {
    // Every way over two stops, each not asked for thoughts, asked, or asked and thinking; then to
    // each. A model with a budget thinks at the start of its turn, and in between as it likes.
    let ways = STOPS.len() * 3;
    for path in 0..ways * ways * STOPS.len() {
        let stops = [
            path / STOPS.len() / ways,
            path / STOPS.len() % ways,
            path % STOPS.len() * 3 + 2,
        ];
        let mut log = vec![Message::user("q")];
        for (number, way) in stops.into_iter().enumerate() {
            let stop = Stop {
                at: way / 3,
                asks: way % 3 > 0,
                thinks: way % 3 == 2 || (number == 0 && way % 3 == 1),
            };
            step(stop, number, &mut log);
        }
        // Back to where it began, with thoughts again, while the last call is answered.
        let home = Stop {
            at: stops[0] / 3,
            asks: true,
            thinks: false,
        };
        step(home, 3, &mut log);
        // The person speaks while a call waits, then after an answer.
        log.push(Message::user("and?"));
        step(home, 4, &mut log);
        log.push(Message::assistant("Done."));
        log.push(Message::user("Next."));
        let (body, _) = step(home, 5, &mut log);
        if STOPS[home.at].0 == Wire::Anthropic {
            assert!(body["thinking"].is_object(), "{body:#}");
        }
    }
}

#[test]
fn w02_a_turn_that_began_at_home_thinks_on_after_calls_of_others() {
    let stop = |at: usize| Stop {
        at,
        asks: true,
        thinks: true,
    };
    for away in 2..STOPS.len() {
        let mut log = vec![Message::user("q")];
        for (number, stop) in [stop(0), stop(away), stop(away)].into_iter().enumerate() {
            step(stop, number, &mut log);
        }
        let (body, told) = step(stop(0), 3, &mut log);
        assert_eq!(body["thinking"]["type"], "enabled");
        assert_eq!(told, ["Thought 0."]);
        // And one that began elsewhere does not, but still can be sent.
        let mut log = vec![Message::user("q")];
        step(stop(away), 0, &mut log);
        let (body, told) = step(stop(0), 1, &mut log);
        assert_eq!(body.get("thinking"), None);
        assert_eq!(told, [] as [String; 0]);
    }
}

#[test]
fn w02_a_turn_that_stops_thinking_leaves_its_thoughts_at_home() {
    let stop = |asks: bool| Stop {
        at: 0,
        asks,
        thinks: asks,
    };
    let mut log = vec![Message::user("q")];
    step(stop(true), 0, &mut log);
    let (body, told) = step(stop(false), 1, &mut log);
    assert_eq!(body.get("thinking"), None);
    assert_eq!(told, [] as [String; 0]);
    // They are there again when it thinks again.
    let (body, told) = step(stop(true), 2, &mut log);
    assert_eq!(body["thinking"]["type"], "enabled");
    assert_eq!(told, ["Thought 0."]);
}
