//! What the mock makes of what is said to be its own: signatures, encrypted reasoning and ids.

use conjure_mock_llm::{Message, MockLlm, Reply, Request, Rule, Script, Wire, signature};
use serde_json::{Value, json};

use crate::client::{ask_of, exchange_of};

/// A mock that answers everything with reasoning and text.
fn reasoner(message: Message) -> MockLlm {
    let script = Script::new().fallback(Reply::from(message));
    MockLlm::start_blocking(script).unwrap()
}

/// A request that sends this sidecar back, on the wires that have one.
fn with(wire: Wire, sidecar: &Value) -> Request {
    let mut request = ask_of(wire, false);
    request.body = match wire {
        Wire::Anthropic => json!({"model": "claude-test", "max_tokens": 100, "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": sidecar},
                {"type": "text", "text": "Hi"},
            ]},
            {"role": "user", "content": "Go on."},
        ]}),
        Wire::Responses => json!({"model": "gpt-test", "store": false, "input": [
            {"type": "reasoning", "summary": [], "encrypted_content": sidecar},
            {"type": "message", "role": "assistant", "content": "Hi"},
            {"type": "message", "role": "user", "content": "Go on."},
        ]}),
        Wire::Chat => json!({"model": "deepseek-test", "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi", "reasoning_details": [{"type": "reasoning.encrypted", "data": sidecar}]},
            {"role": "user", "content": "Go on."},
        ]}),
        Wire::Gemini => json!({"contents": [
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "Hi", "thoughtSignature": sidecar}]},
            {"role": "user", "parts": [{"text": "Go on."}]},
        ]}),
    };
    request
}

/// The sidecar of an answer.
fn sidecar(wire: Wire, answer: &Value) -> Value {
    let place = match wire {
        Wire::Anthropic => "/content/0/signature",
        Wire::Responses => "/output/0/encrypted_content",
        Wire::Chat => "/nothing",
        Wire::Gemini => "/candidates/0/content/parts/1/thoughtSignature",
    };
    answer.pointer(place).cloned().unwrap_or_default()
}

#[test]
fn what_the_mock_made_comes_back_to_any_mock() {
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let mock = reasoner(Message::new().reasoning("hm").text("Hi"));
        let made = sidecar(wire, &exchange_of(&mock, &ask_of(wire, false)).json());
        assert!(made.is_string(), "{wire}");
        let another = reasoner(Message::new().text("Hi"));
        for mock in [mock, another] {
            let response = exchange_of(&mock, &with(wire, &made));
            assert_eq!(response.status, 200, "{wire}: {}", response.body());
            assert_eq!(mock.violations(), [], "{wire}");
        }
    }
}

#[test]
fn what_the_script_gave_by_hand_comes_back_to_the_mock_that_sent_it() {
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let mock = reasoner(Message::new().thinking("hm", "c2lnbmVk").text("Hi"));
        let given = with(wire, &json!("c2lnbmVk"));
        assert_eq!(
            exchange_of(&mock, &given).status,
            400,
            "{wire}: not sent yet"
        );
        assert_eq!(exchange_of(&mock, &ask_of(wire, false)).status, 200);
        assert_eq!(exchange_of(&mock, &given).status, 200, "{wire}: sent");
    }
}

#[test]
fn what_is_anothers_is_refused_in_the_providers_words() {
    let mock = reasoner(Message::new().text("Hi"));
    let refusals = Wire::ALL.map(|wire| {
        // The sidecar of each wire is sent to the next one.
        let at = Wire::ALL.iter().position(|it| *it == wire).unwrap();
        let other = Wire::ALL[(at + 1) % 4];
        let foreign = json!(signature(other, "claude-test", "hm"));
        let response = exchange_of(&mock, &with(wire, &foreign));
        assert_eq!(response.status, 400, "{wire}");
        response.json()["error"].clone()
    });
    let rules: Vec<Rule> = mock.violations().iter().map(|it| it.rule).collect();
    assert_eq!(rules, [Rule::ForeignSidecar; 4]);
    let [anthropic, responses, chat, gemini] = refusals;
    assert_eq!(anthropic["type"], "invalid_request_error");
    assert!(
        anthropic["message"]
            .as_str()
            .unwrap()
            .contains("Invalid `signature` in `thinking` block")
    );
    for openai in [responses, chat] {
        assert_eq!(openai["code"], "invalid_encrypted_content");
    }
    assert_eq!(gemini["status"], "INVALID_ARGUMENT");
    assert!(
        gemini["message"]
            .as_str()
            .unwrap()
            .contains("Corrupted thought signature")
    );
}

#[test]
fn w01_thinking_that_was_edited_is_refused() {
    let mock = reasoner(Message::new().reasoning("hm").text("Hi"));
    let edited = with(
        Wire::Anthropic,
        &json!(signature(Wire::Anthropic, "claude-test", "hmm")),
    );
    assert_eq!(exchange_of(&mock, &edited).status, 400);
    assert_eq!(mock.violations()[0].rule, Rule::EditedSidecar);
}

#[test]
fn no_two_signatures_of_an_answer_are_alike() {
    let message = || {
        Message::new()
            .reasoning("hm")
            .tool_use("call_1", "clock_read", json!({}))
            .redacted_reasoning()
            .redacted_reasoning()
            .reasoning("hm")
            .tool_use("call_2", "clock_read", json!({}))
    };
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let body = exchange_of(&reasoner(message()), &ask_of(wire, false)).body();
        let fields = [
            "\"signature\":\"",
            "\"data\":\"",
            "\"encrypted_content\":\"",
            "\"thoughtSignature\":\"",
        ];
        let mut found: Vec<&str> = fields
            .iter()
            .flat_map(|field| body.split(field).skip(1))
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        let expected = if wire == Wire::Gemini { 2 } else { 4 };
        assert_eq!((found.len(), count), (expected, expected), "{wire}");
    }
}

#[test]
fn w43_a_signature_belongs_to_its_part() {
    let mock = reasoner(Message::new().text("Hi"));
    let moved = with(
        Wire::Gemini,
        &json!(signature(Wire::Gemini, "gemini-test", "clock_read")),
    );
    assert_eq!(exchange_of(&mock, &moved).status, 400);
    assert_eq!(mock.violations()[0].rule, Rule::EditedSidecar);
}

#[test]
fn a_snapshot_and_its_alias_sign_alike_and_two_models_do_not() {
    let signed = |model: &str| signature(Wire::Gemini, model, "");
    assert_eq!(
        signed("claude-opus-4-5-20251101"),
        signed("claude-opus-4-5")
    );
    assert_eq!(signed("openai/gpt-5.2-2025-12-11"), signed("gpt-5.2"));
    assert_eq!(
        signed("gemini-2.5-flash-latest"),
        signed("gemini-2.5-flash")
    );
    assert_ne!(signed("gemini-2.5-flash"), signed("gemini-2.5-pro"));
    assert_ne!(signed("claude-opus-4-5"), signed("claude-opus-4-1"));
}
