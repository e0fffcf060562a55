//! What the provider ran itself, and what one wire alone has: told, and taken back.

use conjure_mock_llm::{Message, Wire, validate, verify};
use serde_json::{Value, json};

use crate::client::{answer, ask_of};

fn message() -> Message {
    let mut message =
        Message::new().server_tool_use("srvtoolu_1", "code_execution", json!({"code": "1 + 1"}));
    for wire in Wire::ALL {
        message = message.raw_on(wire, only_on(wire));
    }
    message.text("Two.")
}

/// Something that a wire has and the others have not.
fn only_on(wire: Wire) -> Value {
    match wire {
        Wire::Anthropic => json!({
            "type": "code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "code_execution_result"},
        }),
        Wire::Responses => json!({
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "one and one"},
        }),
        Wire::Chat => json!({"nothing": true}),
        Wire::Gemini => json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
    }
}

/// The kinds of what an answer holds, in order.
fn kinds(wire: Wire, content: &Value) -> Vec<String> {
    let items = content.as_array().unwrap().iter();
    items
        .map(|item| match wire {
            Wire::Gemini => item.as_object().unwrap().keys().next().unwrap().clone(),
            _ => item["type"].as_str().unwrap().to_owned(),
        })
        .collect()
}

fn content(wire: Wire, body: &Value) -> Value {
    let pointer = match wire {
        Wire::Anthropic => "/content",
        Wire::Responses => "/output",
        Wire::Chat => "/choices/0/message",
        Wire::Gemini => "/candidates/0/content/parts",
    };
    body.pointer(pointer).unwrap().clone()
}

#[test]
fn each_wire_tells_hosted_calls_in_its_words_and_nothing_of_the_others() {
    let told = |wire| kinds(wire, &content(wire, &answer(wire, false, message()).json()));
    assert_eq!(
        told(Wire::Anthropic),
        ["server_tool_use", "code_execution_tool_result", "text"]
    );
    assert_eq!(
        told(Wire::Responses),
        ["code_interpreter_call", "web_search_call", "message"]
    );
    assert_eq!(
        told(Wire::Gemini),
        [
            "executableCode",
            "codeExecutionResult",
            "inlineData",
            "text"
        ]
    );
    let chat = answer(Wire::Chat, false, message()).json();
    assert_eq!(
        content(Wire::Chat, &chat),
        json!({"role": "assistant", "content": "Two.", "refusal": null})
    );
}

#[test]
fn what_was_told_is_taken_back_word_for_word() {
    for wire in Wire::ALL {
        let answered = content(wire, &answer(wire, false, message()).json());
        let mut request = ask_of(wire, false);
        let question = |text: &str| match wire {
            Wire::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            _ => json!({"role": "user", "content": text}),
        };
        let mut history = vec![question("What is one and one?")];
        match wire {
            Wire::Anthropic => history.push(json!({"role": "assistant", "content": answered})),
            Wire::Responses => history.extend(answered.as_array().unwrap().clone()),
            Wire::Chat => history.push(answered),
            Wire::Gemini => history.push(json!({"role": "model", "parts": answered})),
        }
        history.push(question("And two?"));
        let field = match wire {
            Wire::Responses => "input",
            Wire::Gemini => "contents",
            Wire::Anthropic | Wire::Chat => "messages",
        };
        request.body[field] = json!(history);
        assert_eq!(validate(wire, &request), [], "{wire}");
        assert_eq!(verify(wire, &request), [], "{wire}");
    }
}
