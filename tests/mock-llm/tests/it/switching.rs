//! One script, one conversation, four wires: each goes on where another stopped, tools in flight.
//!
//! The client here is the smallest that can do this: it keeps what an answer said, and what it was
//! word for word, which only its own wire and model gets back.

use conjure_mock_llm::{Message, MockLlm, Request, Script, Wire};
use serde_json::{Value, json};

use crate::client::exchange_of;

/// A turn of the model with one call, and its result.
struct Step {
    wire: Wire,
    /// As it came: content, output, message or parts.
    own: Value,
    call: String,
    result: String,
}

fn model(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "claude-test",
        Wire::Responses => "gpt-test",
        Wire::Chat => "deepseek-test",
        Wire::Gemini => "gemini-3-flash-test",
    }
}

/// The request that continues the conversation.
fn request(wire: Wire, steps: &[Step]) -> Request {
    let history: Vec<Value> = steps.iter().flat_map(|step| told(wire, step)).collect();
    let all = |question: Value| -> Vec<Value> {
        std::iter::once(question).chain(history.clone()).collect()
    };
    let text = json!({"role": "user", "content": "What time is it?"});
    let body = match wire {
        Wire::Anthropic => {
            json!({"model": model(wire), "max_tokens": 100, "messages": all(text)})
        }
        Wire::Responses => json!({
            "model": model(wire), "store": false, "input": all(text),
            "include": ["reasoning.encrypted_content"],
        }),
        Wire::Chat => json!({"model": model(wire), "messages": all(text)}),
        Wire::Gemini => {
            json!({"contents": all(json!({"role": "user", "parts": [{"text": "What time is it?"}]}))})
        }
    };
    Request::to(wire, model(wire), body)
}

/// A step in the words of a wire.
fn told(wire: Wire, step: &Step) -> Vec<Value> {
    let own = step.wire == wire;
    let (call, result) = (&step.call, &step.result);
    match wire {
        Wire::Anthropic => {
            let content = if own {
                step.own.clone()
            } else {
                json!([{"type": "tool_use", "id": call, "name": "clock_read", "input": {}}])
            };
            vec![
                json!({"role": "assistant", "content": content}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": result}]}),
            ]
        }
        Wire::Responses => {
            let mut items = if own {
                step.own.as_array().unwrap().clone()
            } else {
                vec![
                    json!({"type": "function_call", "call_id": call, "name": "clock_read", "arguments": "{}"}),
                ]
            };
            items.push(json!({"type": "function_call_output", "call_id": call, "output": result}));
            items
        }
        Wire::Chat => vec![
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": call, "type": "function", "function": {"name": "clock_read", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": call, "content": result}),
        ],
        Wire::Gemini => {
            let parts = if own {
                step.own.clone()
            } else {
                json!([{
                    "functionCall": {"name": "clock_read", "args": {}},
                    "thoughtSignature": "skip_thought_signature_validator",
                }])
            };
            let response = json!({"name": "clock_read", "response": {"output": result}});
            vec![
                json!({"role": "model", "parts": parts}),
                json!({"role": "user", "parts": [{"functionResponse": response}]}),
            ]
        }
    }
}

/// The answer as it came, and the id of its call.
fn read(wire: Wire, answer: &Value) -> (Value, String) {
    let (own, id) = match wire {
        Wire::Anthropic => ("/content", "/content/1/id"),
        Wire::Responses => ("/output", "/output/1/call_id"),
        Wire::Chat => ("/choices/0/message", "/choices/0/message/tool_calls/0/id"),
        Wire::Gemini => ("/candidates/0/content/parts", "/nothing"),
    };
    let id = answer.pointer(id).and_then(Value::as_str);
    (
        answer.pointer(own).unwrap().clone(),
        id.unwrap_or("call_made_here").to_owned(),
    )
}

#[test]
fn a_conversation_goes_over_all_wires_and_comes_back_to_each() {
    for first in 0..4 {
        let path: Vec<Wire> = (0..6).map(|at| Wire::ALL[(first + at) % 4]).collect();
        let script = (0..path.len()).fold(Script::new(), |script, number| {
            script.reply(Message::new().reasoning("Let me see.").tool_use(
                format!("toolu_{number}"),
                "clock_read",
                json!({}),
            ))
        });
        let mock = MockLlm::start_blocking(script).unwrap();
        let mut steps: Vec<Step> = Vec::new();
        for (number, wire) in path.into_iter().enumerate() {
            let response = exchange_of(&mock, &request(wire, &steps));
            assert_eq!(response.status, 200, "{wire}: {}", response.body());
            let (own, call) = read(wire, &response.json());
            // Without an id of its own, a call gets one that no other has.
            let call = call.replace("made_here", &number.to_string());
            let result = format!("{number}:00");
            steps.push(Step {
                wire,
                own,
                call,
                result,
            });
        }
        assert_eq!(mock.violations(), []);
        assert_eq!(mock.unexpected(), []);
    }
}

#[test]
fn what_is_one_wires_own_is_refused_by_the_others() {
    let mock = MockLlm::start_blocking(
        Script::new().fallback(Message::new().reasoning("hm").tool_use(
            "toolu_1",
            "clock_read",
            json!({}),
        )),
    )
    .unwrap();
    let answer = exchange_of(&mock, &request(Wire::Anthropic, &[]));
    let (mut own, call) = read(Wire::Anthropic, &answer.json());
    let step = |own: Value| Step {
        wire: Wire::Anthropic,
        own,
        call: call.clone(),
        result: "12:00".to_owned(),
    };
    let mut other_model = request(Wire::Anthropic, &[step(own.clone())]);
    other_model.body["model"] = json!("claude-other");
    assert_eq!(exchange_of(&mock, &other_model).status, 400);
    own[0]["thinking"] = json!("hmm");
    let edited = request(Wire::Anthropic, &[step(own)]);
    assert_eq!(exchange_of(&mock, &edited).status, 400);
}
