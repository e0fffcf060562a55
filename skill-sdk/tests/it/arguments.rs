//! What a plugin makes of requests that do not fit, and what comes back when they do.

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{Execute, Read, ToolMode, ToolResult};
use conjure_skill_sdk::testkit::{Plugin, TestHost, Transport};
use conjure_skill_sdk::{Error, Json, Skill, ToolOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How many keys.
#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Top {
    /// How many.
    #[serde(default = "ten")]
    pub(crate) count: u32,
    /// Only keys that begin so.
    #[serde(default)]
    pub(crate) prefix: Option<String>,
}

fn ten() -> u32 {
    10
}

#[derive(Serialize)]
struct Stats {
    hits: u32,
    ratio: f64,
}

pub(crate) fn skill() -> Skill {
    Skill::new("store", "Keeps things")
        .execute("echo TEXT | fail", |cx, command: Execute| {
            cx.stdout(command.command.as_bytes())?;
            match command.command.as_str() {
                "fail" => Err(Error::new("it failed: try echo")),
                other => Ok(other.to_owned()),
            }
        })
        .read("stats", |_cx, _read: Read| {
            Json(Stats {
                hits: 3,
                ratio: 0.5,
            })
        })
        .tool_with(
            "top",
            "The top keys",
            ToolOptions::new().read_only().stateless(),
            |_cx, top: Top| json!([top.count, top.prefix]),
        )
        .raw_tool(
            "anything",
            "Takes anything",
            json!({ "type": "object" }),
            ToolOptions::new(),
            |_cx, arguments: Value| Json(arguments),
        )
        .example("execute", json!({ "command": "echo hi" }), "hi")
        .upgrade(
            |_cx| Ok(json!({ "kept": 1 })),
            |_cx, state| {
                if state.state["kept"] == 1 {
                    Ok(())
                } else {
                    Err(Error::invalid("that is not mine"))
                }
            },
        )
}

fn on(transport: Transport) -> Plugin {
    let host = TestHost::builder().transport(transport).build().unwrap();
    host.link(skill).unwrap()
}

#[test]
fn b5_a_missing_or_mistyped_argument_is_an_error_result() {
    for transport in Transport::BOTH {
        let plugin = on(transport);
        for (op, body, reason) in [
            ("skill.execute", json!({}), "missing field `command`"),
            (
                "skill.execute",
                json!({ "command": 7 }),
                "invalid type: integer `7`, expected a string",
            ),
            (
                "skill.tool.top",
                json!({ "count": "many" }),
                "invalid type: string \"many\", expected u32",
            ),
            (
                "skill.execute",
                json!("clear"),
                "invalid type: string \"clear\", expected struct Execute",
            ),
        ] {
            let outcome = plugin.call(op, body);
            assert_eq!(
                outcome.result().unwrap(),
                ToolResult::error(format!("The arguments do not fit: {reason}.")),
            );
        }
        assert_eq!(
            plugin
                .call("skill.execute", json!({ "command": "on" }))
                .text(),
            "on"
        );
    }
}

#[test]
fn b6_a_call_without_input_gets_a_result() {
    for transport in Transport::BOTH {
        let plugin = on(transport);
        assert_eq!(
            plugin.call("skill.tool.top", Value::Null).result().unwrap(),
            ToolResult::json(json!([10, null])),
        );
        assert_eq!(
            plugin.call("skill.execute", Value::Null).text(),
            "The arguments do not fit: missing field `command`.",
        );
    }
}

#[test]
fn b22_a_result_that_is_not_text_is_serialised() {
    for transport in Transport::BOTH {
        let plugin = on(transport);
        let stats = plugin.call("skill.read", json!({ "path": "stats" }));
        let result = stats.result().unwrap();
        assert_eq!(result.structured, Some(json!({ "hits": 3, "ratio": 0.5 })));
        assert_eq!(result.joined_text(), r#"{"hits":3,"ratio":0.5}"#);
    }
}

#[test]
fn a_failing_callback_is_an_error_result_and_its_output_is_kept() {
    for transport in Transport::BOTH {
        let outcome = on(transport).call("skill.execute", json!({ "command": "fail" }));
        assert_eq!(outcome.stdout, b"fail");
        assert_eq!(
            outcome.result().unwrap(),
            ToolResult::error("it failed: try echo")
        );
    }
}

#[test]
fn b22_two_tools_of_one_name_are_refused_by_name() {
    let twice = || {
        Skill::new("twice", "")
            .execute("x", |_cx, _: Execute| "one")
            .raw_tool(
                "execute",
                "",
                json!({ "type": "object" }),
                ToolOptions::new(),
                |_cx, _: Value| "two",
            )
    };
    for transport in Transport::BOTH {
        let host = TestHost::builder().transport(transport).build().unwrap();
        let error = host.link(twice).unwrap_err();
        assert_eq!(error.message(), "two tools are called `execute`");
        assert_eq!(error.code(), code::INVALID);
    }
}

#[test]
fn an_operation_that_is_not_utf8_or_unknown_is_a_fault_and_the_next_call_works() {
    for transport in Transport::BOTH {
        let plugin = on(transport);
        let bad = plugin.call_raw(b"skill.\xff\xfe", br#"{"body":{}}"#);
        assert_eq!(bad.code(), Some(code::INVALID));
        assert_eq!(bad.text(), "the operation's name is not UTF-8");
        let unknown = plugin.call("skill.dance", json!({}));
        assert_eq!(unknown.code(), Some(code::UNSUPPORTED));
        assert_eq!(unknown.text(), "this plugin has no operation `skill.dance`");
        let no_tool = plugin.call("skill.tool.dance", json!({}));
        assert_eq!(no_tool.code(), Some(code::NOT_FOUND));
        let not_async = plugin
            .start("skill.execute", json!({ "command": "a" }))
            .wait();
        assert_eq!(not_async.code(), Some(code::UNSUPPORTED));
        assert_eq!(
            plugin
                .call("skill.execute", json!({ "command": "b" }))
                .text(),
            "b"
        );
    }
}

#[test]
fn a_request_that_is_not_an_envelope_is_a_fault() {
    for transport in Transport::BOTH {
        let plugin = on(transport);
        for json in [
            &b""[..],
            b"\xff",
            b"[]",
            b"{}",
            br#"{"session":1,"body":{}}"#,
        ] {
            let outcome = plugin.call_raw(b"skill.execute", json);
            assert_eq!(outcome.code(), Some(code::INVALID), "{json:?}");
        }
    }
}

#[test]
fn a_manifest_declares_exactly_what_is_registered() {
    let plugin = on(Transport::Direct);
    let manifest = plugin.manifest();
    let tools: Vec<(&str, &str)> = manifest
        .tools
        .iter()
        .map(|tool| (tool.op.as_str(), tool.name.as_str()))
        .collect();
    assert_eq!(
        tools,
        [
            ("skill.execute", "execute"),
            ("skill.read", "read"),
            ("skill.tool.top", "top"),
            ("skill.tool.anything", "anything"),
        ]
    );
    assert_eq!(
        manifest.capabilities,
        [
            "conjure.ping/1",
            "stream/1",
            "skill.execute/1",
            "skill.read/1",
            "skill.tool/1",
            "state.export/1",
            "state.import/1",
        ]
    );
    let top = &manifest.tools[2];
    assert_eq!(top.mode, ToolMode::Stateless);
    assert_eq!(
        top.input_schema,
        json!({
            "type": "object",
            "description": "How many keys.",
            "properties": {
                "count": {
                    "description": "How many.",
                    "type": "integer",
                    "format": "uint32",
                    "minimum": 0,
                    "default": 10,
                },
                "prefix": {
                    "description": "Only keys that begin so.",
                    "type": ["string", "null"],
                    "default": null,
                },
            },
        })
    );
}
