//! Encoding.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::encode;
use super::*;

#[test]
fn a_request_looks_like_this() {
    let mut request = request(vec![
        Message::user("What is in the log?"),
        assistant(vec![
            thought("Look.", json!({"type": "thinking", "signature": "sig"})),
            Part::text("I look."),
            call(
                "toolu_1",
                "log_execute",
                json!({"command": "fetch app.log"}),
            ),
        ]),
        results(vec![result("toolu_1", "3 errors")]),
    ]);
    request.system = vec![
        "You are careful.".to_owned(),
        " ".to_owned(),
        "Skills.".to_owned(),
    ];
    request.tools = vec![tool("log_execute")];
    request.thinking_tokens = Some(2048);
    request.stop_sequences = vec!["END".to_owned(), "\n".to_owned()];
    request.contribution = ProviderFragments {
        tools: vec![json!({"type": "code_execution_20250825", "name": "code_execution"})],
        fields: json!({"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}})
            .as_object()
            .cloned()
            .unwrap(),
        user_content: vec![json!({"type": "container_upload", "file_id": "file_1"})],
        call_content: BTreeMap::from([(
            "toolu_1".to_owned(),
            vec![json!({"type": "container_upload", "file_id": "file_2"})],
        )]),
        headers: BTreeMap::from([
            ("Anthropic-Beta".to_owned(), "b1".to_owned()),
            ("X-Api-Key".to_owned(), "stolen".to_owned()),
        ]),
    };
    let encoded = encode(&request);
    insta::assert_snapshot!(format!("{:#}", body(&encoded)), @r#"
    {
      "model": "claude-sonnet-4-5",
      "max_tokens": 4096,
      "stream": true,
      "stop_sequences": [
        "END"
      ],
      "thinking": {
        "type": "enabled",
        "budget_tokens": 2048
      },
      "tools": [
        {
          "name": "log_execute",
          "description": "Does log_execute.",
          "input_schema": {
            "type": "object",
            "properties": {
              "b": {},
              "a": {}
            }
          },
          "cache_control": {
            "type": "ephemeral"
          }
        },
        {
          "type": "code_execution_20250825",
          "name": "code_execution"
        }
      ],
      "system": [
        {
          "type": "text",
          "text": "You are careful."
        },
        {
          "type": "text",
          "text": "Skills.",
          "cache_control": {
            "type": "ephemeral"
          }
        }
      ],
      "messages": [
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "What is in the log?",
              "cache_control": {
                "type": "ephemeral"
              }
            },
            {
              "type": "container_upload",
              "file_id": "file_1"
            }
          ]
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "thinking",
              "thinking": "Look.",
              "signature": "sig"
            },
            {
              "type": "text",
              "text": "I look."
            },
            {
              "type": "tool_use",
              "id": "toolu_1",
              "name": "log_execute",
              "input": {
                "command": "fetch app.log"
              }
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "tool_result",
              "tool_use_id": "toolu_1",
              "content": [
                {
                  "type": "text",
                  "text": "3 errors"
                }
              ],
              "cache_control": {
                "type": "ephemeral"
              }
            },
            {
              "type": "container_upload",
              "file_id": "file_2"
            }
          ]
        }
      ],
      "container": {
        "skills": [
          {
            "type": "anthropic",
            "skill_id": "xlsx"
          }
        ]
      }
    }
    "#);
    insta::assert_debug_snapshot!((encoded.headers, encoded.notes), @r#"
    (
        [
            (
                "accept",
                "text/event-stream",
            ),
            (
                "content-type",
                "application/json",
            ),
            (
                "anthropic-version",
                "2023-06-01",
            ),
            (
                "anthropic-beta",
                "b1",
            ),
        ],
        [
            "a stop sequence of white space only is left out",
            "a backend's header `x-api-key` is left out: backends may set only `anthropic-…`",
        ],
    )
    "#);
}

#[test]
fn h16_the_same_request_gives_the_same_bytes_and_keeps_the_order_of_tools() {
    let mut one = request(vec![Message::user("a")]);
    one.tools = vec![tool("z"), tool("a"), tool("m")];
    let first = encode(&one);
    assert_eq!(first, encode(&one.clone()));
    let names: Vec<String> = body(&first)["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["z", "a", "m"]);
    let text = String::from_utf8(first.body).unwrap();
    assert!(text.contains(r#""properties":{"b":{},"a":{}}"#), "{text}");
}

#[test]
fn w06_all_results_come_first_in_the_one_next_user_message() {
    let encoded = encode(&request(vec![
        Message::user("q"),
        assistant(vec![
            call("a", "t", json!({})),
            Part::text("and"),
            call("b", "t", json!({})),
        ]),
        results(vec![result("b", "second")]),
        Message::user("stop that"),
        results(vec![result("a", "first"), result("a", "again")]),
    ]));
    assert_eq!(
        messages_of(&encoded)[2],
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a",
             "content": [{"type": "text", "text": "first"}]},
            {"type": "tool_result", "tool_use_id": "b",
             "content": [{"type": "text", "text": "second"}]},
            {"type": "text", "text": "stop that"},
        ]})
    );
    assert_eq!(messages_of(&encoded).as_array().unwrap().len(), 3);
}

#[test]
fn w07_no_blank_text_is_sent_and_none_is_marked_for_the_cache() {
    let mut request = request(vec![
        Message::user("q"),
        assistant(vec![Part::text("  \n"), Part::text("a")]),
        Message::new(Role::User, vec![Part::text(""), Part::text("b")]),
        assistant(vec![Part::text("\t")]),
        Message::user(" "),
    ]);
    request.system = vec![String::new()];
    let encoded = encode(&request);
    assert_eq!(
        body(&encoded)["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            {"role": "user", "content": [
                {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
        ])
    );
    assert_eq!(body(&encoded).get("system"), None);
}

#[test]
fn w08_an_empty_turn_is_not_sent_back() {
    let encoded = encode(&request(vec![
        Message::user("q"),
        assistant(vec![]),
        Message::user("again"),
    ]));
    assert_eq!(
        messages_of(&encoded),
        json!([{"role": "user", "content": [
            {"type": "text", "text": "q"}, {"type": "text", "text": "again"}]}])
    );
}

#[test]
fn w10_a_paused_reply_goes_back_as_it_is_and_nothing_follows() {
    let used = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution",
                      "input": {"code": "1"}});
    let paused = said(
        vec![Part::text("Working."), item(used.clone())],
        "pause_turn",
    );
    let encoded = encode(&request(vec![Message::user("q"), paused.clone()]));
    assert_eq!(
        messages_of(&encoded)[1],
        json!({"role": "assistant", "content": [{"type": "text", "text": "Working."}, used]})
    );
    assert_eq!(messages_of(&encoded).as_array().unwrap().len(), 2);

    // Then the result opens the next reply, and both are one message.
    let result = json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1",
                        "content": {"type": "code_execution_result", "stdout": "1"}});
    let rest = said(vec![item(result.clone()), Part::text("1")], "end_turn");
    let encoded = encode(&request(vec![
        Message::user("q"),
        paused,
        rest,
        Message::user("thanks"),
    ]));
    assert_eq!(
        messages_of(&encoded)[1]["content"],
        json!([{"type": "text", "text": "Working."}, used, result, {"type": "text", "text": "1"}])
    );
}

#[test]
fn w12_a_container_is_merged_into_the_request() {
    let mut request = request(vec![Message::user("q")]);
    request.contribution.fields = json!({"container": {"id": "c1", "skills": []},
        "output_config": {"effort": "low"}, "messages": [], "model": "other"})
    .as_object()
    .cloned()
    .unwrap();
    let encoded = encode(&request);
    let body = body(&encoded);
    assert_eq!(body["container"], json!({"id": "c1", "skills": []}));
    assert_eq!(body["output_config"], json!({"effort": "low"}));
    assert_eq!(body["model"], MODEL);
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(encoded.notes.len(), 2);
}

#[test]
fn w14_in_a_mixed_turn_the_reply_holds_all_results_and_nothing_else() {
    let used = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution",
                      "input": {}});
    let mixed = said(
        vec![
            call("a", "t", json!({})),
            item(used.clone()),
            call("b", "t", json!({})),
        ],
        "tool_use",
    );
    let answers = results(vec![result("b", "2"), result("a", "1")]);
    let mut request = request(vec![Message::user("q"), mixed.clone(), answers.clone()]);
    request.contribution.user_content =
        vec![json!({"type": "container_upload", "file_id": "file_1"})];
    let sent = messages_of(&encode(&request));
    assert_eq!(
        sent[0]["content"][1],
        json!({"type": "container_upload", "file_id": "file_1"})
    );
    assert_eq!(sent[1]["content"][1], used);
    let ids: Vec<&str> = sent[2]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["tool_use_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["a", "b"]);

    // The deferred result opens the next reply and stays there.
    let late = json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1",
                      "content": {}});
    let sent = messages_of(&encode(&super::request(vec![
        Message::user("q"),
        mixed,
        answers,
        said(vec![item(late.clone()), Part::text("done")], "end_turn"),
        Message::user("thanks"),
    ])));
    assert_eq!(sent[1]["content"][1], used);
    assert_eq!(sent[3]["content"][0], late);
}

#[test]
fn w15_arguments_that_are_no_object_are_wrapped_into_one() {
    let mut bad = call("a", "t", json!({}));
    let Content::FunctionCall(call) = &mut bad.content else {
        panic!("no call");
    };
    call.arguments_text = Some("{\"x\": ".to_owned());
    let sent = messages_of(&encode(&request(vec![
        Message::user("q"),
        assistant(vec![bad]),
        results(vec![result("a", "r")]),
    ])));
    assert_eq!(
        sent[1]["content"][0]["input"],
        json!({"arguments_text": "{\"x\": "})
    );
}

#[test]
fn w59_what_another_provider_made_is_recast_and_its_ids_become_legal() {
    let foreign = Message {
        content: vec![
            Part {
                content: Content::Reasoning {
                    text: "secret".to_owned(),
                },
                sidecar: Some(Sidecar {
                    provider: "openai".to_owned(),
                    model_family: "gpt".to_owned(),
                    data: json!({"encrypted": "x"}),
                }),
            },
            Content::ServerItem {
                provider: "openai".to_owned(),
                item: json!({"type": "web_search_call", "encrypted_content": "long", "query": "q"}),
            }
            .into(),
            call("fc.1|x", "functions.t", json!({})),
        ],
        ..assistant(vec![])
    };
    let sent = messages_of(&encode(&request(vec![
        Message::user("q"),
        foreign,
        results(vec![result("fc.1|x", "r")]),
    ])));
    let content = sent[1]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert_eq!(
        content[0],
        json!({"type": "text", "text":
            "[openai ran a tool of its own: {\"type\":\"web_search_call\",\"query\":\"q\"}]"})
    );
    let id = content[1]["id"].as_str().unwrap();
    assert!(id.starts_with("fc1x") && id.len() == 12, "{id}");
    assert_eq!(sent[2]["content"][0]["tool_use_id"], id);
    let name = content[1]["name"].as_str().unwrap();
    assert!(name.starts_with("functionst"), "{name}");
}

#[test]
fn at_most_four_marks_for_the_cache_whatever_backends_bring() {
    let mut request = request(vec![
        Message::user("1"),
        assistant(vec![call("a", "t", json!({"cache_control": "mine"}))]),
        results(vec![result("a", "r")]),
        assistant(vec![Part::text("2")]),
        Message::user("3"),
    ]);
    request.system = vec!["a".to_owned(), "b".to_owned()];
    request.tools = vec![tool("t"), tool("u")];
    let marked = json!({"type": "ephemeral"});
    let encoded = body(&encode(&request));
    assert_eq!(encoded["tools"][1]["cache_control"], marked);
    assert_eq!(encoded["system"][1]["cache_control"], marked);
    assert_eq!(
        encoded["messages"][2]["content"][0]["cache_control"],
        marked
    );
    assert_eq!(
        encoded["messages"][4]["content"][0]["cache_control"],
        marked
    );
    let marks = |body: &serde_json::Value| body.to_string().matches("\"ephemeral\"").count();
    assert_eq!(marks(&encoded), 4);
    request.contribution.tools = vec![
        json!({"type": "x", "name": "x", "cache_control": {"type": "ephemeral"}}),
        json!({"type": "y", "name": "t"}),
    ];
    let encoded = body(&encode(&request));
    assert_eq!(marks(&encoded), 4);
    assert_eq!(encoded["tools"].as_array().unwrap().len(), 3);
    assert_eq!(encoded["tools"][1].get("cache_control"), None);
}
