//! Random conversations as this API reads them: a strict reader of the body that shares no code
//! with the wire.

use proptest::prelude::*;
use serde_json::Value;

use super::super::encode;
use super::*;
use crate::repair::tests::random::any_conversation;

fn check(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    assert!(!messages.is_empty());
    let mut owed: Vec<&str> = Vec::new();
    let mut marks = 0;
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(message["role"], role, "{body:#}");
        let content = message["content"].as_array().unwrap();
        assert!(!content.is_empty(), "{body:#}");
        let mut results = Vec::new();
        let mut calls = Vec::new();
        for (block_at, block) in content.iter().enumerate() {
            marks += usize::from(block.get("cache_control").is_some());
            match block["type"].as_str().unwrap() {
                "text" => assert!(!block["text"].as_str().unwrap().trim().is_empty()),
                "tool_use" => {
                    assert_eq!(role, "assistant");
                    assert!(block["input"].is_object());
                    let id = block["id"].as_str().unwrap();
                    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                    assert!(!id.is_empty() && id.chars().all(legal), "{id}");
                    calls.push(id);
                }
                "tool_result" => {
                    assert_eq!((role, results.len()), ("user", block_at), "{body:#}");
                    results.push(block["tool_use_id"].as_str().unwrap());
                    let content = block.get("content").and_then(Value::as_array);
                    assert!(content.is_none_or(|content| !content.is_empty()));
                }
                "thinking" => assert!(role == "assistant" && block["signature"].is_string()),
                _ => {}
            }
        }
        assert_eq!(results, owed, "{body:#}");
        owed = calls;
    }
    assert!(owed.is_empty() && marks <= 4, "{body:#}");
}

proptest! {
    #[test]
    fn whatever_was_repaired_is_a_body_that_the_api_takes(conversation in any_conversation()) {
        let request = request(conversation);
        let encoded = encode(&request);
        prop_assert_eq!(&encode(&request), &encoded);
        check(&body(&encoded));
    }
}
