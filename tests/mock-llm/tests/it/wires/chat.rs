//! Chat Completions and its dialects.

use conjure_mock_llm::{
    CallIds, CallIndex, ChatDialect, Message, NoArguments, ReasoningField, StreamUsage, Wire,
    verify,
};
use serde_json::{Value, json};

use super::everything;
use crate::client::{Response, answer, ask_of, exchange_of, mock};

fn dialect(dialect: ChatDialect) -> Response {
    answer(Wire::Chat, true, everything().deltas(100).dialect(dialect))
}

/// The deltas, without choices that have none.
fn deltas(response: &Response) -> Vec<Value> {
    response
        .events()
        .iter()
        .filter_map(|event| event["choices"].get(0)?.get("delta").cloned())
        .collect()
}

/// The fragments of calls.
fn fragments(dialect: ChatDialect) -> Vec<Value> {
    deltas(&self::dialect(dialect))
        .into_iter()
        .filter_map(|delta| Some(delta.get("tool_calls")?[0].clone()))
        .collect()
}

#[test]
fn a_stream_follows_the_recorded_grammar() {
    let response = dialect(ChatDialect::default());
    assert_eq!(
        deltas(&response),
        [
            json!({"role": "assistant", "content": ""}),
            json!({"reasoning_content": "Let me see."}),
            json!({"content": "I look."}),
            json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "clock_read", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"zone\":\"UTC\"}"}}]}),
            json!({"tool_calls": [{"index": 1, "id": "call_2", "type": "function", "function": {"name": "bell_ring", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
            json!({}),
        ]
    );
    let events = response.events();
    let [.., finish, usage, done] = events.as_slice() else {
        panic!("{events:#?}");
    };
    assert_eq!(finish["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["total_tokens"], 15);
    assert_eq!(done, "[DONE]");
    assert_eq!(response.names(), Vec::<String>::new());
}

#[test]
fn without_stream_the_same_message_is_one_object() {
    let body = answer(Wire::Chat, false, everything()).json();
    assert_eq!(
        body["choices"],
        json!([{
            "index": 0,
            "logprobs": null,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I look.",
                "refusal": null,
                "reasoning_content": "Let me see.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "clock_read", "arguments": "{\"zone\":\"UTC\"}"}},
                    {"id": "call_2", "type": "function", "function": {"name": "bell_ring", "arguments": "{}"}},
                ],
            },
        }])
    );
}

#[test]
fn w30_the_index_of_calls_counts_from_one_or_is_the_same_or_missing() {
    let indices = |index| -> Vec<Value> {
        let dialect = ChatDialect {
            index,
            ..ChatDialect::default()
        };
        fragments(dialect)
            .into_iter()
            .map(|fragment| fragment.get("index").cloned().unwrap_or_default())
            .collect()
    };
    assert_eq!(indices(CallIndex::FromOne), [1, 1, 2, 2]);
    assert_eq!(indices(CallIndex::Same), [0, 0, 0, 0]);
    // Without one, a call comes whole.
    assert_eq!(indices(CallIndex::Missing), [Value::Null, Value::Null]);
}

#[test]
fn w30_w37_ids_are_repeated_empty_missing_or_of_nine_letters() {
    let ids = |ids| -> Vec<Value> {
        let dialect = ChatDialect {
            ids,
            ..ChatDialect::default()
        };
        fragments(dialect)
            .into_iter()
            .map(|fragment| fragment.get("id").cloned().unwrap_or_default())
            .collect()
    };
    let null = Value::Null;
    assert_eq!(
        ids(CallIds::Repeated),
        ["call_1", "call_1", "call_2", "call_2"]
    );
    assert_eq!(
        ids(CallIds::Empty),
        [json!(""), null.clone(), json!(""), null.clone()]
    );
    assert_eq!(ids(CallIds::Missing), vec![null; 4]);
    let nine = ids(CallIds::Nine);
    assert_eq!(nine[0].as_str().map(str::len), Some(9));
    assert_ne!(nine[0], nine[2]);
}

#[test]
fn w38_a_call_without_arguments_has_an_empty_text_null_or_nothing() {
    let functions = |no_arguments| -> Value {
        let dialect = ChatDialect {
            no_arguments,
            ..ChatDialect::default()
        };
        fragments(dialect)[2]["function"].clone()
    };
    assert_eq!(
        functions(NoArguments::Null),
        json!({"name": "bell_ring", "arguments": null})
    );
    assert_eq!(
        functions(NoArguments::Missing),
        json!({"name": "bell_ring"})
    );
    assert_eq!(
        functions(NoArguments::Empty),
        json!({"name": "bell_ring", "arguments": ""})
    );
}

#[test]
fn reasoning_has_another_name_or_none() {
    let keys = |reasoning| -> Vec<String> {
        let dialect = ChatDialect {
            reasoning,
            ..ChatDialect::default()
        };
        let delta = deltas(&self::dialect(dialect))[1].clone();
        delta.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(ReasoningField::Reasoning), ["reasoning"]);
    assert_eq!(keys(ReasoningField::Hidden), ["content"]);
}

#[test]
fn reasoning_may_have_details_and_its_encrypted_form_which_come_back() {
    let dialect = || ChatDialect {
        reasoning: ReasoningField::Details,
        ..ChatDialect::default()
    };
    let whole = answer(Wire::Chat, false, everything().dialect(dialect())).json();
    let message = &whole["choices"][0]["message"];
    let details = message["reasoning_details"].as_array().unwrap();
    assert_eq!(message["reasoning"], "Let me see.");
    let kinds: Vec<&Value> = details.iter().map(|detail| &detail["type"]).collect();
    assert_eq!(kinds, ["reasoning.summary", "reasoning.encrypted"]);

    let streamed: Vec<Value> = deltas(&self::dialect(dialect()))
        .iter()
        .filter_map(|delta| delta.get("reasoning_details")?.get(0).cloned())
        .collect();
    assert_eq!(streamed.len(), 2);
    assert_eq!(streamed[0]["summary"], "Let me see.");
    assert!(streamed[1]["data"].is_string());

    let mut request = ask_of(Wire::Chat, false);
    let messages = request.body["messages"].as_array_mut().unwrap();
    let returned = json!({"role": "assistant", "content": "Hi", "reasoning_details": details});
    messages.extend([returned, json!({"role": "user", "content": "Go on."})]);
    assert_eq!(verify(Wire::Chat, &request), []);
    request.body["model"] = json!("another");
    assert_eq!(verify(Wire::Chat, &request).len(), 1);
}

#[test]
fn w39_a_stream_may_end_without_finish_reason_or_done() {
    let neither = dialect(ChatDialect {
        finish_reason: false,
        done: false,
        ..ChatDialect::default()
    });
    assert!(!neither.body().contains("[DONE]"));
    assert!(neither.events().iter().all(|event| {
        event["choices"]
            .get(0)
            .is_none_or(|choice| choice["finish_reason"].is_null())
    }));
}

#[test]
fn w33_usage_comes_without_choices_or_with_the_finish_reason_and_only_when_asked() {
    let usages = |usage, asked: bool| -> Vec<(bool, usize)> {
        let mut request = ask_of(Wire::Chat, true);
        if !asked {
            request
                .body
                .as_object_mut()
                .unwrap()
                .remove("stream_options");
        }
        let dialect = ChatDialect {
            usage,
            ..ChatDialect::default()
        };
        let mock = mock(Message::new().text("Hi").dialect(dialect));
        exchange_of(&mock, &request)
            .events()
            .iter()
            .filter(|event| event.get("usage").is_some_and(Value::is_object))
            .map(|event| {
                let choices = event["choices"].as_array().unwrap();
                let finished = choices.iter().any(|it| it["finish_reason"].is_string());
                (finished, choices.len())
            })
            .collect()
    };
    assert_eq!(usages(StreamUsage::Asked, true), [(false, 0)]);
    assert_eq!(usages(StreamUsage::Asked, false), []);
    assert_eq!(usages(StreamUsage::Always, false), [(false, 0)]);
    assert_eq!(usages(StreamUsage::WithFinish, false), [(true, 1)]);
    assert_eq!(usages(StreamUsage::Never, true), []);
}

#[test]
fn w33_the_first_event_may_have_no_choices_and_events_may_be_padded() {
    let response = dialect(ChatDialect {
        empty_first: true,
        obfuscation: true,
        ..ChatDialect::default()
    });
    let events = response.events();
    assert_eq!(events[0]["choices"], json!([]));
    assert_eq!(events[1]["obfuscation"].as_str().map(str::len), Some(12));
}

#[test]
fn w40_comment_lines_stand_between_events() {
    let response = dialect(ChatDialect {
        comment: Some("OPENROUTER PROCESSING".to_owned()),
        ..ChatDialect::default()
    });
    assert!(
        response
            .body()
            .starts_with(": OPENROUTER PROCESSING\n\ndata: {")
    );
    assert_eq!(
        response.events().len(),
        dialect(ChatDialect::default()).events().len()
    );
}

#[test]
fn w41_the_chunks_of_several_choices_alternate() {
    let mut request = ask_of(Wire::Chat, true);
    request.body["n"] = json!(2);
    let mock = mock(Message::new().text("Hi"));
    let indices: Vec<Value> = exchange_of(&mock, &request)
        .events()
        .iter()
        .filter_map(|event| Some(event["choices"].get(0)?["index"].clone()))
        .collect();
    assert_eq!(indices, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn w32_arguments_that_are_cut_short_are_told_as_they_are() {
    let message = Message::new()
        .tool_use_text("call_1", "create_file", "{\"path\": \"/etc/pas")
        .stop_reason("max_tokens");
    let body = answer(Wire::Chat, false, message).json();
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["arguments"], "{\"path\": \"/etc/pas");
}

#[test]
fn an_id_of_another_grammar_becomes_one_of_this_wire_and_is_found_again() {
    let body = answer(
        Wire::Chat,
        false,
        Message::new().tool_use("toolu_1", "clock_read", json!({})),
    )
    .json();
    let id = body["choices"][0]["message"]["tool_calls"][0]["id"].clone();
    assert_eq!(id, Wire::Chat.call_id("toolu_1"));
    let mut request = ask_of(Wire::Chat, false);
    let messages = request.body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "clock_read", "arguments": "{}"}},
    ]}));
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": "12:00"}));
    assert_eq!(
        request.tool_result_text("toolu_1").as_deref(),
        Some("12:00")
    );
}
