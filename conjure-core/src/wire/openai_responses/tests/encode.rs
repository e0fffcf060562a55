//! Encoding.

use super::*;
use crate::chat::{Message, Part, Sidecar};
use crate::repair::{RepairTarget, repair};
use crate::request::{Attachment, ModelRequest, OutputFormat, ToolChoice};
use crate::wire::OmittedTool;
use crate::wire::test_kit::{assistant, call, json as body_of, result, results, tool};

#[test]
fn a_request_looks_like_this() {
    let mut request = RIG.request(vec![
        Message::user("q"),
        assistant(vec![
            Part::text("a"),
            call("toolu.1", "read", json!({"z": 1, "a": 2})),
        ]),
        results(vec![result("toolu.1", "r")]),
        Message::user("go on"),
    ]);
    request.system = vec![
        "You are careful.".to_owned(),
        " ".to_owned(),
        "Second.".to_owned(),
    ];
    request.tools = vec![
        tool(
            "read",
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false}),
        ),
        tool(
            "list",
            json!({"type": "object", "properties": {"l": {"type": "array"}}}),
        ),
    ];
    request.tool_choice = ToolChoice::Tool("read".to_owned());
    request.thinking_tokens = Some(8_000);
    request.response_format = Some(OutputFormat {
        name: "answer".to_owned(),
        schema: json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}),
    });
    let text = serde_json::to_string_pretty(&body_of(&RIG.encode(&request))).unwrap();
    insta::assert_snapshot!(text, @r#"
    {
      "model": "gpt-5.2",
      "max_output_tokens": 8192,
      "stream": true,
      "store": false,
      "include": [
        "reasoning.encrypted_content"
      ],
      "reasoning": {
        "effort": "medium",
        "summary": "auto"
      },
      "text": {
        "format": {
          "type": "json_schema",
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
      "tool_choice": {
        "type": "function",
        "name": "read"
      },
      "tools": [
        {
          "type": "function",
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
            ],
            "additionalProperties": false
          },
          "strict": true
        },
        {
          "type": "function",
          "name": "list",
          "description": "Does list.",
          "parameters": {
            "type": "object",
            "properties": {
              "l": {
                "type": "array",
                "items": {}
              }
            }
          },
          "strict": false
        }
      ],
      "instructions": "You are careful.\n\nSecond.",
      "input": [
        {
          "type": "message",
          "role": "user",
          "content": [
            {
              "type": "input_text",
              "text": "q"
            }
          ]
        },
        {
          "type": "message",
          "role": "assistant",
          "content": [
            {
              "type": "output_text",
              "text": "a"
            }
          ]
        },
        {
          "type": "function_call",
          "call_id": "toolu1f665d7f0",
          "name": "read",
          "arguments": "{\"z\":1,\"a\":2}"
        },
        {
          "type": "function_call_output",
          "call_id": "toolu1f665d7f0",
          "output": "r"
        },
        {
          "type": "message",
          "role": "user",
          "content": [
            {
              "type": "input_text",
              "text": "go on"
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn w20_a_thought_and_its_item_are_sent_together_or_not_at_all() {
    let items = [reasoning("rs_1"), function_call("fc_1", "call_1", "{}")];
    let response = RIG.complete_reply(&reply(&items, "completed"));
    let conversation = RIG.answered(&response);
    let body = RIG.body(conversation.clone());
    assert_eq!(body["input"][1], items[0]);
    assert_eq!(body["input"][2]["id"], "fc_1");

    // The item is gone: so is the thought.
    let mut without_item = conversation.clone();
    without_item[1].content.remove(1);
    without_item.truncate(2);
    without_item[1].content.push(Part::text("edited"));
    let body = RIG.body(without_item);
    assert_eq!(body["input"].as_array().unwrap().len(), 3, "{body:#}");
    assert_eq!(body["input"][1]["type"], "message");

    // The thought is gone: the item goes without the id that ties it to the thought.
    let mut without_thought = conversation;
    without_thought[1].content.remove(0);
    let body = RIG.body(without_thought);
    assert_eq!(body["input"][1]["type"], "function_call");
    assert_eq!(body["input"][1].get("id"), None);
    assert_eq!(body["input"][2]["call_id"], "call_1");
}

#[test]
fn w20_several_thoughts_in_a_row_stand_or_fall_with_the_last() {
    let items = [reasoning("rs_1"), reasoning("rs_2"), message("msg_1", "a")];
    let response = RIG.complete_reply(&reply(&items, "completed"));
    let kinds = |body: &Value| -> Vec<String> {
        let input = body["input"].as_array().unwrap().iter();
        input
            .map(|item| item["type"].as_str().unwrap().to_owned())
            .collect()
    };
    let conversation = RIG.answered(&response);
    let body = RIG.body(conversation.clone());
    assert_eq!(
        kinds(&body),
        ["message", "reasoning", "reasoning", "message", "message"]
    );
    let mut edited = conversation;
    edited[1].content[2] = Part::text("edited");
    assert_eq!(kinds(&RIG.body(edited)), ["message", "message", "message"]);
}

#[test]
fn w21_nothing_is_stored_and_a_thought_without_its_proof_is_left_out() {
    let mut open = reasoning("rs_1");
    open.as_object_mut()
        .unwrap()
        .shift_remove("encrypted_content");
    let response = RIG.complete_reply(&reply(&[open, message("msg_1", "a")], "completed"));
    let body = RIG.body(RIG.answered(&response));
    assert_eq!(body["store"], false);
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(body.get("previous_response_id"), None);
    assert_eq!(body["input"][1]["type"], "message");
    assert_eq!(body["input"][1].get("id"), None);
}

#[test]
fn models_that_do_not_reason_are_not_asked_for_thoughts() {
    let mut request = RIG.request(vec![Message::user("q")]);
    request.model = "gpt-4o".to_owned();
    request.thinking_tokens = Some(1_000);
    let encoded = RIG.encode(&request);
    let body = body_of(&encoded);
    assert_eq!((body.get("include"), body.get("reasoning")), (None, None));
    assert_eq!(
        encoded.notes,
        ["thinking is left out: gpt-4o does not think"]
    );
}

#[test]
fn w42_a_bad_schema_or_name_costs_one_tool_with_a_reason() {
    let mut request = RIG.request(vec![Message::user("q")]);
    let fine = json!({"type": "object", "properties": {}});
    request.tools = vec![
        tool("fine", fine.clone()),
        tool("mcp.server/tool", fine.clone()),
        tool(
            "bad",
            json!({"type": "object", "properties": {"a": {"type": "text"}}}),
        ),
        tool("also_fine", fine),
    ];
    request.tool_choice = ToolChoice::Tool("bad".to_owned());
    let encoded = RIG.encode(&request);
    let body = body_of(&encoded);
    let names: Vec<&str> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["fine", "also_fine"]);
    assert_eq!(body.get("tool_choice"), None);
    assert_eq!(
        encoded.quarantined,
        [
            OmittedTool {
                tool: "mcp.server/tool".to_owned(),
                reason: "its name is not 1 to 64 letters, digits, `_` or `-`".to_owned(),
            },
            OmittedTool {
                tool: "bad".to_owned(),
                reason: "its schema is wrong: `/properties/a/type` is no type of JSON Schema"
                    .to_owned(),
            },
        ]
    );
    let notes = &encoded.notes;
    assert!(
        !notes
            .iter()
            .any(|note| note.contains("its schema is wrong")),
        "a tool that is left out is told once: {notes:?}"
    );
}

#[test]
fn w59_what_another_provider_made_is_recast_and_its_ids_become_legal() {
    let foreign = Part {
        sidecar: Some(Sidecar {
            provider: "anthropic".to_owned(),
            model_family: "claude-opus-5".to_owned(),
            data: json!({"id": "x", "after": "rs", "type": "custom_tool_call"}),
        }),
        ..call(&"i".repeat(70), "read", json!({}))
    };
    let body = RIG.body(vec![
        Message::user("q"),
        assistant(vec![foreign]),
        results(vec![result(&"i".repeat(70), "r")]),
    ]);
    let id = body["input"][1]["call_id"].as_str().unwrap();
    assert_eq!(id.len(), 48);
    assert_eq!(body["input"][2]["call_id"], id);
    assert_eq!(
        body["input"][1],
        json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"})
    );
}

#[test]
fn files_are_sent_where_their_bytes_are_and_told_where_not() {
    let artifact = |id: &str| crate::chat::ArtifactRef {
        id: id.to_owned(),
        name: format!("{id}.x"),
        media_type: "image/png".to_owned(),
        size: None,
    };
    let image = |id: &str| {
        Part::from(crate::chat::Content::Image {
            artifact: artifact(id),
        })
    };
    let mut request = RIG.request(vec![Message::new(
        crate::chat::Role::User,
        ["png", "pdf", "txt", "zip", "gone"].map(image).into(),
    )]);
    for (id, media_type, data) in [
        ("png", "image/png", "AAAA"),
        ("pdf", "application/pdf", "BBBB"),
        ("txt", "text/plain", "aGk="),
        ("zip", "application/zip", "CCCC"),
    ] {
        let attachment = Attachment {
            media_type: media_type.to_owned(),
            data: data.to_owned(),
        };
        request.attachments.insert(id.to_owned(), attachment);
    }
    let body = body_of(&RIG.encode(&request));
    assert_eq!(
        body["input"][0]["content"],
        json!([
            {"type": "input_text", "text": "[file: png.x, image/png, id png]"},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"},
            {"type": "input_text", "text": "[file: pdf.x, image/png, id pdf]"},
            {"type": "input_file", "filename": "pdf.x", "file_data": "data:application/pdf;base64,BBBB"},
            {"type": "input_text", "text": "[file: txt.x, image/png, id txt]\nhi"},
            {"type": "input_text", "text": "[file: zip.x, image/png, id zip] [what is in it is not shown here; tools can open it]"},
            {"type": "input_text", "text": "[file: gone.x, image/png, id gone] [what is in it is not shown here; tools can open it]"},
        ])
    );
}

#[test]
fn a_call_of_the_providers_own_tools_that_nobody_answered_is_told_as_text() {
    let shell = |kind: &str| {
        Part::from(crate::chat::Content::ServerItem {
            provider: "openai".to_owned(),
            item: json!({"type": kind, "id": "i", "call_id": "call_9"}),
        })
    };
    let target = RepairTarget::new("openai", "gpt-5.2");
    let request = |parts: Vec<Part>| ModelRequest {
        messages: repair(
            vec![Message::user("q"), assistant(parts), Message::user("r")],
            &target,
        ),
        ..ModelRequest::empty(&target)
    };
    let both = vec![shell("shell_call"), shell("shell_call_output")];
    let body = body_of(&RIG.encode(&request(both)));
    assert_eq!(body["input"][1]["type"], "shell_call");
    assert_eq!(body["input"][2]["type"], "shell_call_output");
    for alone in ["shell_call", "shell_call_output"] {
        let body = body_of(&RIG.encode(&request(vec![shell(alone)])));
        assert_eq!(body["input"][1]["type"], "message", "{alone}");
    }
}
