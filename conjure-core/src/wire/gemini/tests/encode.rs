//! Encoding, and what goes back to the model that made it.

use super::*;
use crate::chat::{Content, FunctionCallOutput, Message, Part, Role};
use crate::request::{Attachment, OutputFormat, ToolChoice};
use crate::wire::test_kit::{assistant, call, json as body_of, result, results, tool};

const UNSIGNED: &str = "skip_thought_signature_validator";

#[test]
fn a_request_looks_like_this() {
    let failed = FunctionCallOutput::text("toolu_2", "no such file", true);
    let mut request = RIG.request(vec![
        Message::user("q"),
        assistant(vec![
            Part::text("a"),
            call("toolu_1", "read", json!({"z": 1, "a": 2})),
            call("toolu_2", "list", json!({})),
        ]),
        results(vec![
            result("toolu_1", "r"),
            Content::FunctionCallOutput(failed).into(),
        ]),
        Message::user("go on"),
    ]);
    request.system = vec!["You are careful.".to_owned(), "Second.".to_owned()];
    request.tools = vec![
        tool(
            "read",
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        ),
        tool("list", json!({"type": "object"})),
    ];
    request.tool_choice = ToolChoice::Tool("read".to_owned());
    request.thinking_tokens = Some(8_000);
    request.stop_sequences = vec!["END".to_owned()];
    request.response_format = Some(OutputFormat {
        name: "answer".to_owned(),
        schema: json!({"type": "object", "properties": {"x": {"const": 1}}}),
    });
    let text = serde_json::to_string_pretty(&body_of(&RIG.encode(&request))).unwrap();
    insta::assert_snapshot!(text, @r#"
    {
      "toolConfig": {
        "functionCallingConfig": {
          "mode": "ANY",
          "allowedFunctionNames": [
            "read"
          ]
        }
      },
      "tools": [
        {
          "functionDeclarations": [
            {
              "name": "read",
              "description": "Does read.",
              "parameters": {
                "type": "object",
                "properties": {
                  "path": {
                    "type": "string"
                  }
                },
                "required": [
                  "path"
                ]
              }
            },
            {
              "name": "list",
              "description": "Does list."
            }
          ]
        }
      ],
      "systemInstruction": {
        "parts": [
          {
            "text": "You are careful."
          },
          {
            "text": "Second."
          }
        ]
      },
      "generationConfig": {
        "maxOutputTokens": 8192,
        "stopSequences": [
          "END"
        ],
        "thinkingConfig": {
          "includeThoughts": true,
          "thinkingLevel": "high"
        },
        "responseMimeType": "application/json",
        "responseJsonSchema": {
          "type": "object",
          "properties": {
            "x": {
              "const": 1
            }
          }
        }
      },
      "contents": [
        {
          "role": "user",
          "parts": [
            {
              "text": "q"
            }
          ]
        },
        {
          "role": "model",
          "parts": [
            {
              "text": "a"
            },
            {
              "functionCall": {
                "name": "read",
                "args": {
                  "z": 1,
                  "a": 2
                }
              },
              "thoughtSignature": "skip_thought_signature_validator"
            },
            {
              "functionCall": {
                "name": "list",
                "args": {}
              }
            }
          ]
        },
        {
          "role": "user",
          "parts": [
            {
              "functionResponse": {
                "name": "read",
                "response": {
                  "result": "r"
                }
              }
            },
            {
              "functionResponse": {
                "name": "list",
                "response": {
                  "error": "no such file"
                }
              }
            }
          ]
        },
        {
          "role": "user",
          "parts": [
            {
              "text": "go on"
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn w43_the_signature_of_a_call_goes_back_and_foreign_calls_say_that_they_have_none() {
    let parts = json!([{"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "s=="}]);
    let sent = RIG.body(RIG.answered(&RIG.complete_reply(&reply(parts, "STOP"))));
    assert_eq!(sent["contents"][1]["parts"][0]["thoughtSignature"], "s==");

    let foreign = vec![
        Message::user("q"),
        assistant(vec![
            call("a", "read", json!({})),
            call("b", "read", json!({})),
        ]),
        results(vec![result("a", "r"), result("b", "r")]),
        assistant(vec![call("c", "read", json!({}))]),
        results(vec![result("c", "r")]),
    ];
    let signature = |body: &Value, content: usize, part: usize| {
        body["contents"][content]["parts"][part]
            .get("thoughtSignature")
            .cloned()
    };
    let body = RIG.body(foreign.clone());
    assert_eq!(signature(&body, 1, 0), Some(json!(UNSIGNED)));
    assert_eq!(signature(&body, 1, 1), None);
    assert_eq!(signature(&body, 3, 0), Some(json!(UNSIGNED)));
    // Models before 3 know no such word.
    let old = Rig {
        model: "gemini-2.5-flash",
        ..RIG
    };
    assert_eq!(signature(&old.body(foreign), 1, 0), None);
}

#[test]
fn w44_of_parallel_calls_only_the_first_is_signed_and_that_is_kept() {
    let parts = json!([
        {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "s=="},
        {"functionCall": {"name": "b", "args": {}}},
    ]);
    let sent = RIG.body(RIG.answered(&RIG.complete_reply(&reply(parts.clone(), "STOP"))));
    assert_eq!(sent["contents"][1]["parts"], parts);
}

#[test]
fn w45_a_signature_on_a_trailing_empty_text_goes_back_where_it_was() {
    let body = stream(&[
        chunk(json!([{"text": "Hel"}])),
        chunk(json!([{"text": "lo"}])),
        last(json!([{"text": "", "thoughtSignature": "s=="}]), "STOP"),
    ]);
    let response = RIG.complete_reply(&body);
    let text: String = response.parts.iter().filter_map(Part::as_text).collect();
    assert_eq!(text, "Hello");
    let sent = RIG.body(RIG.answered(&response));
    assert_eq!(
        sent["contents"][1]["parts"],
        json!([{"text": "Hello"}, {"text": "", "thoughtSignature": "s=="}])
    );
    // And on a text that says something.
    let parts = json!([{"text": "a"}, {"text": "b", "thoughtSignature": "s=="}]);
    let sent = RIG.body(RIG.answered(&RIG.complete_reply(&reply(parts.clone(), "STOP"))));
    assert_eq!(sent["contents"][1]["parts"], parts);
}

#[test]
fn w46_only_real_ids_go_back() {
    let parts = json!([{"functionCall": {"name": "a", "args": {}}}, {"functionCall": {"id": "real", "name": "b", "args": {}}}]);
    let sent = RIG.body(RIG.answered(&RIG.complete_reply(&reply(parts, "STOP"))));
    let id = |content: usize, part: usize, kind: &str| {
        sent["contents"][content]["parts"][part][kind]
            .get("id")
            .cloned()
    };
    assert_eq!(id(1, 0, "functionCall"), None);
    assert_eq!(id(2, 0, "functionResponse"), None);
    assert_eq!(id(1, 1, "functionCall"), Some(json!("real")));
    assert_eq!(id(2, 1, "functionResponse"), Some(json!("real")));
}

#[test]
fn w47_there_are_as_many_responses_as_calls_in_their_order_and_right_behind_them() {
    let body = RIG.body(vec![
        Message::user("q"),
        assistant(vec![
            call("a", "one", json!({})),
            call("b", "two", json!({})),
            call("c", "three", json!({})),
        ]),
        results(vec![
            result("c", "3"),
            result("a", "1"),
            result("orphan", "x"),
        ]),
        Message::user("well?"),
    ]);
    let names: Vec<&str> = body["contents"][2]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["functionResponse"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["one", "two", "three"]);
    assert_eq!(body["contents"][2]["role"], "user");
    let responses = &body["contents"][2]["parts"];
    assert_eq!(
        responses[0]["functionResponse"]["response"],
        json!({"result": "1"})
    );
    assert!(responses[1]["functionResponse"]["response"]["error"].is_string());
    assert_eq!(body["contents"][3]["parts"], json!([{"text": "well?"}]));
}

#[test]
fn w57_models_that_always_think_get_no_budget_of_0() {
    let config = |model: &'static str, tokens: Option<u32>| {
        let rig = Rig { model, ..RIG };
        let mut request = rig.request(vec![Message::user("q")]);
        request.thinking_tokens = tokens;
        body_of(&rig.encode(&request))["generationConfig"]
            .get("thinkingConfig")
            .cloned()
    };
    for tokens in [None, Some(0)] {
        assert_eq!(config("gemini-2.5-pro", tokens), None);
        assert_eq!(config("gemini-3-pro-preview", tokens), None);
        assert_eq!(config("gemini-flash-latest", tokens), None);
        assert_eq!(
            config("gemini-2.5-flash", tokens),
            Some(json!({"thinkingBudget": 0}))
        );
        assert_eq!(config("gemini-2.0-flash", tokens), None);
    }
    assert_eq!(
        config("gemini-2.5-pro", Some(1)),
        Some(json!({"includeThoughts": true, "thinkingBudget": 128}))
    );
    assert_eq!(
        config("gemini-3-pro-preview", Some(20_000)),
        Some(json!({"includeThoughts": true, "thinkingLevel": "high"}))
    );
}

#[test]
fn w59_the_providers_own_code_comes_back_as_it_was_sent() {
    let parts = json!([
        {"text": "Hm.", "thought": true},
        {"executableCode": {"code": "print(1)", "language": "PYTHON"}, "thoughtSignature": "s=="},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        {"text": "It is 1."},
    ]);
    let (decoded, _) = RIG.decode(&reply(parts.clone(), "STOP"));
    let sent = RIG.body(RIG.answered(&decoded.response));
    let mut back = sent["contents"][1]["parts"].clone();
    let mut parts = parts;
    back.sort_all_objects();
    parts.sort_all_objects();
    assert_eq!(back, parts);
    // Elsewhere it is told as text, and the thought is left out.
    let elsewhere = Rig {
        wire: Wire::OpenaiChat,
        provider: "deepseek",
        model: "deepseek-chat",
    };
    let sent = elsewhere.body(RIG.answered(&decoded.response));
    let text = sent["messages"][1]["content"].as_str().unwrap();
    assert!(
        text.contains("print(1)") && text.contains("It is 1.") && !text.contains("Hm."),
        "{text}"
    );
    assert!(!text.contains("s=="), "{text}");
}

#[test]
fn an_older_model_is_asked_for_a_form_in_words_when_it_has_tools() {
    let rig = Rig {
        model: "gemini-2.5-flash",
        ..RIG
    };
    let mut request = rig.request(vec![Message::user("q")]);
    request.response_format = Some(OutputFormat {
        name: "answer".to_owned(),
        schema: json!({"type": "object"}),
    });
    let form = |request: &crate::request::ModelRequest| {
        body_of(&rig.encode(request))["generationConfig"]["responseMimeType"].clone()
    };
    assert_eq!(form(&request), "application/json");
    request.tools = vec![tool("read", json!({"type": "object"}))];
    assert_eq!(form(&request), Value::Null);
    let system = body_of(&rig.encode(&request))["systemInstruction"].to_string();
    assert!(system.contains("JSON Schema"), "{system}");
}

#[test]
fn what_a_result_shows_follows_in_a_content_of_its_own() {
    let artifact = crate::chat::ArtifactRef {
        id: "f1".to_owned(),
        name: "plot.png".to_owned(),
        media_type: "image/png".to_owned(),
        size: None,
    };
    let shown = Content::FunctionCallOutput(FunctionCallOutput {
        call_id: "c1".to_owned(),
        output: vec![crate::chat::OutputPart::Image {
            artifact: artifact.clone(),
        }],
        is_error: false,
    });
    let file = |id: &str| {
        Part::from(Content::File {
            artifact: crate::chat::ArtifactRef {
                id: id.to_owned(),
                ..artifact.clone()
            },
        })
    };
    let mut request = RIG.request(vec![
        Message::user("q"),
        assistant(vec![call("c1", "plot", json!({}))]),
        results(vec![shown.into()]),
        Message::new(Role::User, vec![file("f2"), file("f3"), file("f4")]),
    ]);
    for (id, media_type) in [
        ("f1", "image/png"),
        ("f2", "audio/mpeg"),
        ("f3", "image/gif"),
        ("f4", "application/pdf"),
    ] {
        let attachment = Attachment {
            media_type: media_type.to_owned(),
            data: "AAAA".to_owned(),
        };
        request.attachments.insert(id.to_owned(), attachment);
    }
    let contents = body_of(&RIG.encode(&request))["contents"].take();
    let inline = |media_type: &str| json!({"inlineData": {"mimeType": media_type, "data": "AAAA"}});
    assert_eq!(contents[3]["parts"][1], inline("image/png"));
    assert_eq!(
        contents[4]["parts"],
        json!([
            {"text": "[file: plot.png, image/png, id f2]"},
            inline("audio/mpeg"),
            {"text": "[file: plot.png, image/png, id f3] [what is in it is not shown here; tools can open it]"},
            {"text": "[file: plot.png, image/png, id f4]"},
            inline("application/pdf"),
        ])
    );
}
