//! Encoding, and what goes back to the model that made it.

use super::*;
use crate::chat::{Content, Message, Part, Role};
use crate::request::{Attachment, OutputFormat, ToolChoice};
use crate::wire::test_kit::{assistant, call, json as body_of, result, results, tool};

fn full(rig: &Rig) -> Value {
    let mut request = rig.request(vec![
        Message::user("q"),
        assistant(vec![
            Part::text("a"),
            call("toolu_1", "read", json!({"z": 1, "a": 2})),
        ]),
        results(vec![result("toolu_1", "r")]),
        Message::user("go on"),
    ]);
    request.system = vec!["You are careful.".to_owned(), "Second.".to_owned()];
    let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": false});
    request.tools = vec![tool("read", schema.clone())];
    request.tool_choice = ToolChoice::Any;
    request.thinking_tokens = Some(8_000);
    request.stop_sequences = vec!["END".to_owned()];
    request.response_format = Some(OutputFormat {
        name: "answer".to_owned(),
        schema,
    });
    body_of(&rig.encode(&request))
}

#[test]
fn a_request_looks_like_this() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&full(&RIG)).unwrap(), @r#"
    {
      "model": "gpt-5.2",
      "max_completion_tokens": 8192,
      "stream": true,
      "stream_options": {
        "include_usage": true
      },
      "reasoning_effort": "medium",
      "response_format": {
        "type": "json_schema",
        "json_schema": {
          "name": "answer",
          "schema": {
            "type": "object",
            "properties": {
              "x": {
                "type": "string"
              }
            },
            "required": [
              "x"
            ],
            "additionalProperties": false
          },
          "strict": true
        }
      },
      "tool_choice": "required",
      "tools": [
        {
          "type": "function",
          "function": {
            "name": "read",
            "description": "Does read.",
            "parameters": {
              "type": "object",
              "properties": {
                "x": {
                  "type": "string"
                }
              },
              "required": [
                "x"
              ],
              "additionalProperties": false
            },
            "strict": true
          }
        }
      ],
      "messages": [
        {
          "role": "system",
          "content": "You are careful.\n\nSecond."
        },
        {
          "role": "user",
          "content": "q"
        },
        {
          "role": "assistant",
          "content": "a",
          "tool_calls": [
            {
              "id": "toolu_1",
              "type": "function",
              "function": {
                "name": "read",
                "arguments": "{\"z\":1,\"a\":2}"
              }
            }
          ]
        },
        {
          "role": "tool",
          "tool_call_id": "toolu_1",
          "content": "r"
        },
        {
          "role": "user",
          "content": "go on"
        }
      ]
    }
    "#);
}

#[test]
fn a_dialect_is_written_as_its_server_reads_it() {
    let settings = |provider: &'static str| {
        let mut body = full(&of(provider));
        for name in ["model", "messages", "tools"] {
            body.as_object_mut().unwrap().shift_remove(name);
        }
        let form = body["response_format"]["type"].clone();
        body["response_format"] = form;
        format!("{provider}: {body}")
    };
    let lines = [
        "deepseek",
        "mistral",
        "openrouter",
        "llamacpp",
        "ollama",
        "mine",
    ]
    .map(settings);
    insta::assert_snapshot!(lines.join("\n"), @r#"
    deepseek: {"max_tokens":8192,"stream":true,"stream_options":{"include_usage":true},"thinking":{"type":"enabled"},"stop":["END"],"response_format":"json_object","tool_choice":"required"}
    mistral: {"max_tokens":8192,"stream":true,"stop":["END"],"response_format":"json_schema","tool_choice":"any"}
    openrouter: {"max_tokens":8192,"stream":true,"stream_options":{"include_usage":true},"reasoning":{"max_tokens":8000},"stop":["END"],"response_format":"json_schema","tool_choice":"required"}
    llamacpp: {"max_tokens":8192,"stream":true,"stream_options":{"include_usage":true},"stop":["END"],"response_format":"json_schema","tool_choice":"required"}
    ollama: {"max_tokens":8192,"stream":true,"stream_options":{"include_usage":true},"stop":["END"],"response_format":"json_schema","tool_choice":"required"}
    mine: {"max_tokens":8192,"stream":true,"stream_options":{"include_usage":true},"stop":["END"],"response_format":"json_schema","tool_choice":"required"}
    "#);
    // Where a server takes no schema, it is told in words.
    let body = full(&of("deepseek"));
    assert!(
        body["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("JSON Schema")
    );
}

#[test]
fn w35_content_is_null_only_beside_calls() {
    let body = RIG.body(vec![
        Message::user("q"),
        assistant(vec![call("c1", "read", json!({}))]),
        results(vec![result("c1", "r")]),
        assistant(vec![Part::text("done")]),
        Message::user("next"),
    ]);
    for message in body["messages"].as_array().unwrap() {
        assert_eq!(
            message["content"].is_null(),
            message.get("tool_calls").is_some(),
            "{message}"
        );
    }
}

#[test]
fn w36_deepseek_gets_its_thoughts_back_beside_the_calls_they_led_to() {
    let rig = of("deepseek");
    let thought = json!({"content": "", "reasoning_content": "I must look.", "tool_calls": [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]});
    for body in [
        body(thought.clone(), "tool_calls"),
        reply(vec![thought], "tool_calls"),
    ] {
        let sent = rig.body(rig.answered(&rig.complete_reply(&body)));
        assert_eq!(sent["messages"][1]["reasoning_content"], "I must look.");
    }
    // A call that another model made has no thought that could be told, and DeepSeek wants one.
    let foreign = vec![
        Message::user("q"),
        assistant(vec![call("c1", "read", json!({}))]),
        results(vec![result("c1", "r")]),
    ];
    assert_eq!(
        rig.body(foreign.clone())["messages"][1]["reasoning_content"],
        ""
    );
    assert_eq!(
        RIG.body(foreign)["messages"][1].get("reasoning_content"),
        None
    );
}

#[test]
fn w59_openrouters_details_come_home_as_they_were() {
    let rig = of("openrouter");
    let details = json!([
        {"type": "reasoning.text", "text": "Step 1", "index": 0, "format": "anthropic-claude-v1"},
        {"type": "reasoning.text", "signature": "s==", "index": 0, "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "data": "d==", "id": "rs_1", "index": 1},
    ]);
    let whole = json!({"content": "a", "reasoning": "Step 1", "reasoning_details": details});
    let sent = rig.body(rig.answered(&rig.complete_reply(&body(whole, "stop"))));
    assert_eq!(sent["messages"][1]["reasoning_details"], details);
    // In a stream they come in fragments, which are joined.
    let deltas = vec![
        json!({"reasoning": "Ste", "reasoning_details": [{"type": "reasoning.text", "text": "Ste", "index": 0}]}),
        json!({"reasoning": "p 1", "reasoning_details": [{"type": "reasoning.text", "text": "p 1", "index": 0}]}),
        json!({"reasoning_details": [{"type": "reasoning.text", "signature": "s==", "index": 0}]}),
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "d==", "index": 0}]}),
        json!({"content": "a"}),
    ];
    let sent = rig.body(rig.answered(&rig.complete_reply(&reply(deltas, "stop"))));
    assert_eq!(
        sent["messages"][1]["reasoning_details"],
        json!([
            {"type": "reasoning.text", "text": "Step 1", "index": 0, "signature": "s=="},
            {"type": "reasoning.encrypted", "data": "d==", "index": 0},
        ])
    );
}

#[test]
fn mistrals_thoughts_go_back_inside_the_content() {
    let rig = of("mistral");
    let content = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "a"},
    ]);
    let sent =
        rig.body(rig.answered(&rig.complete_reply(&body(json!({"content": content}), "stop"))));
    assert_eq!(sent["messages"][1]["content"], content);
}

#[test]
fn w42_ids_and_names_are_made_legal_and_meet_again() {
    let long = "toolu:".to_owned() + &"x".repeat(60);
    let conversation = vec![
        Message::user("q"),
        assistant(vec![
            call(&long, "mcp.server/tool", json!({})),
            call("AbCdEf123", "read", json!({})),
        ]),
        results(vec![result(&long, "r"), result("AbCdEf123", "s")]),
    ];
    for (rig, most) in [(RIG, 40), (of("mistral"), 9)] {
        let sent = rig.body(conversation.clone());
        let messages = sent["messages"].as_array().unwrap();
        let calls = messages[1]["tool_calls"].as_array().unwrap();
        for (call, result) in calls.iter().zip(&messages[2..]) {
            assert_eq!(call["id"], result["tool_call_id"]);
            assert!(call["id"].as_str().unwrap().len() <= most);
            let name = call["function"]["name"].as_str().unwrap();
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
                "{name}"
            );
        }
        assert_eq!(calls[1]["id"], "AbCdEf123");
    }
}

#[test]
fn w42_a_tool_is_strict_where_its_schema_and_its_server_are() {
    let strict = |rig: &Rig| full(rig)["tools"][0]["function"].get("strict").cloned();
    assert_eq!(strict(&RIG), Some(json!(true)));
    assert_eq!(strict(&of("mistral")), None);
}

#[test]
fn what_a_result_shows_follows_behind_all_results() {
    let artifact = crate::chat::ArtifactRef {
        id: "f1".to_owned(),
        name: "plot.png".to_owned(),
        media_type: "image/png".to_owned(),
        size: None,
    };
    let shown = Content::FunctionCallOutput(crate::chat::FunctionCallOutput {
        call_id: "c1".to_owned(),
        output: vec![crate::chat::OutputPart::Image { artifact }],
        is_error: true,
    });
    let mut request = RIG.request(vec![
        Message::user("q"),
        assistant(vec![
            call("c1", "plot", json!({})),
            call("c2", "read", json!({})),
        ]),
        results(vec![shown.into(), result("c2", "r")]),
    ]);
    let attachment = Attachment {
        media_type: "image/png".to_owned(),
        data: "AAAA".to_owned(),
    };
    request.attachments.insert("f1".to_owned(), attachment);
    let messages = body_of(&RIG.encode(&request))["messages"].take();
    assert_eq!(
        messages.as_array().unwrap()[2..],
        [
            json!({"role": "tool", "tool_call_id": "c1", "content": "[The call failed.]\n[file: plot.png, image/png, id f1]"}),
            json!({"role": "tool", "tool_call_id": "c2", "content": "r"}),
            json!({"role": "user", "content": [
                {"type": "text", "text": "[file: plot.png, image/png, id f1]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]}),
        ]
    );
    // A server that sees no images is told in words, with a note.
    let mut blind = request.clone();
    blind.provider = "deepseek".to_owned();
    let encoded = of("deepseek").encode(&blind);
    assert_eq!(body_of(&encoded)["messages"].as_array().unwrap().len(), 4);
    assert!(
        encoded.notes.iter().any(|note| note.contains("plot.png")),
        "{:?}",
        encoded.notes
    );
}

#[test]
fn an_item_of_the_responses_wire_is_told_as_text() {
    let item = Content::ServerItem {
        provider: "openai".to_owned(),
        item: json!({"type": "web_search_call", "id": "ws_1"}),
    };
    let body = RIG.body(vec![
        Message::user("q"),
        Message::new(Role::Assistant, vec![item.into()]),
        Message::user("r"),
    ]);
    let text = body["messages"][1]["content"].as_str().unwrap();
    assert!(text.contains("web_search_call"), "{text}");
}
