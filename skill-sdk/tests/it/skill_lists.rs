//! What a skill has beside its tools: resources, templates, prompts, completions, things that it
//! knows at run time only, several questions at once, and what it says on the way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    Ask, Completions, Elicit, Elicited, Empty, List, MessageLevel, Part, Prompt, PromptText,
    Prompts, Resource, Resources, Sample, SampleMessage, Sampled, SkillTools, ToolDecl, ToolResult,
};
use conjure_skill_sdk::testkit::{Plugin, TestHost, TestHostBuilder, Transport};
use conjure_skill_sdk::{Error, ResourceTemplate, Result, Skill, ToolOptions};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Row {
    table: String,
    id: u32,
    #[serde(default)]
    brief: bool,
}

/// What to plan.
#[derive(Deserialize, schemars::JsonSchema)]
struct Plan {
    /// The day.
    day: String,
    #[serde(default)]
    hours: Option<u8>,
}

const TEMPLATE: &str = "db://{table}/{id}{?brief}";

pub(crate) fn skill() -> Skill {
    let late = Arc::new(AtomicBool::new(false));
    let (turned_on, there) = (Arc::clone(&late), Arc::clone(&late));
    let (prompts, found) = (Arc::clone(&late), late);
    let watched: Arc<Mutex<Vec<String>>> = Arc::default();
    let watching = Arc::clone(&watched);
    Skill::new("library", "Has all kinds of lists")
        .resource(
            Resource::new("note://today", "today")
                .description("What is on today")
                .media_type("text/markdown"),
            |_cx| Ok("# Today"),
        )
        .resource(Resource::new("bytes://three", "three"), |_cx| {
            Ok(vec![1_u8, 2, 3])
        })
        .resource(Resource::new("big://text", "big"), |_cx| {
            Ok("x".repeat(100_000))
        })
        .resource_template(
            ResourceTemplate::new(TEMPLATE, "row")
                .description("A row of a table")
                .media_type("application/json"),
            |_cx, row: Row| {
                if row.id == 0 {
                    return Err(Error::not_found("there is no row 0"));
                }
                Ok(json!({ "table": row.table, "id": row.id, "brief": row.brief }))
            },
        )
        .on_subscribe(move |_cx, uri, on| {
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.push(format!("{uri} {on}"));
            Ok(())
        })
        .prompt("plan", "Plans a day", |_cx, plan: Plan| {
            let hours = plan
                .hours
                .map_or_else(String::new, |h| format!(" in {h} hours"));
            Ok(format!("Plan {}{hours}", plan.day))
        })
        .prompt("greet", "Greets", |_cx, _: Empty| {
            Ok(PromptText::user("Hello").and_assistant("Hello!").message(
                "user",
                json!({ "type": "image", "data": "AA==", "mimeType": "image/png" }),
            ))
        })
        .complete("plan", "day", |_cx, asked| {
            let days = ["monday", "tuesday", "thursday"];
            Ok(Completions::beginning(&asked.value, days))
        })
        .complete(TEMPLATE, "id", |_cx, _asked| {
            Ok((1..=150).map(|id| id.to_string()).collect::<Vec<_>>())
        })
        .run_time_tools(
            move |_cx| {
                let schema = json!({ "type": "object" });
                let tool = ToolDecl::new("late", "Was not there before", schema);
                Ok(there
                    .load(Ordering::SeqCst)
                    .then_some(tool)
                    .into_iter()
                    .collect())
            },
            |_cx, name, arguments| match name {
                "late" => Ok(arguments),
                other => Err(Error::not_found(format!("there is no {other}"))),
            },
        )
        .run_time_resources(
            |_cx| {
                Ok(vec![
                    Resource::new("found://1", "found").media_type("text/x"),
                ])
            },
            |_cx, uri| match uri {
                "found://1" => Ok(vec![Part::text_resource("found://1", "text/x", "one")]),
                other => Err(Error::not_found(format!("nothing at {other}"))),
            },
        )
        .run_time_prompts(
            move |_cx| {
                let late = prompts.load(Ordering::SeqCst).then(|| Prompt {
                    name: "late".into(),
                    description: None,
                    arguments: Vec::new(),
                    meta: None,
                });
                Ok(late.into_iter().collect())
            },
            move |_cx, name, _arguments| match name {
                "late" if found.load(Ordering::SeqCst) => Ok("Late"),
                other => Err(Error::not_found(format!("there is no prompt {other}"))),
            },
        )
        .execute(
            "grow | ask | say | watched | null",
            move |cx, call: conjure_skill_sdk::protocol::Execute| match call.command.as_str() {
                "ask" => ask(cx),
                "say" => {
                    cx.message(MessageLevel::Info, "a text")?;
                    cx.message(MessageLevel::Emergency, json!({ "all": [1] }))?;
                    cx.resource_updated("note://today")?;
                    Ok(ToolResult::default())
                }
                "watched" => {
                    let watched = watching.lock().unwrap_or_else(PoisonError::into_inner);
                    Ok(ToolResult::text(watched.join(", ")))
                }
                "null" => Ok(ToolResult::json(Value::Null)),
                _ => {
                    turned_on.store(true, Ordering::SeqCst);
                    cx.catalog_changed(&[List::Tools, List::Prompts])?;
                    Ok(ToolResult::text("grown"))
                }
            },
        )
        .with(
            ToolOptions::new()
                .title("Runs")
                .annotations(json!({ "idempotentHint": true }))
                .output_schema(json!({})),
        )
}

fn ask(cx: &conjure_skill_sdk::Cx) -> Result<ToolResult> {
    let question = Elicit {
        message: "Who?".into(),
        ..Elicit::default()
    };
    let sample = Sample {
        messages: vec![SampleMessage::user("Greet")],
        max_tokens: Some(10),
        ..Sample::default()
    };
    let asked = Ask::new()
        .elicit("who", question)
        .sample("greeting", sample)
        .roots("where");
    let answers = cx.ask(&asked)?;
    let who = &answers.elicited("who")?.content["name"];
    let greeting = match answers.sampled("greeting") {
        Ok(sampled) => sampled.text.clone(),
        Err(error) => format!("[{}] {error}", error.code()),
    };
    let roots = answers.roots("where")?;
    assert!(answers.roots("who").is_err() && answers.roots("nowhere").is_err());
    Ok(ToolResult::text(format!(
        "{greeting}, {who} in {}",
        roots[0].uri
    )))
}

pub(crate) fn host(transport: Transport) -> TestHostBuilder {
    let accept = |_| Elicited {
        action: "accept".into(),
        content: BTreeMap::from([("name".to_owned(), json!("Ada"))]),
    };
    let host = TestHost::builder().transport(transport).elicit(accept);
    host.root("file:///work")
}

fn on(host: TestHostBuilder) -> Plugin {
    host.build().unwrap().link(skill).unwrap()
}

fn execute(plugin: &Plugin, command: &str) -> String {
    plugin
        .call("skill.execute", json!({ "command": command }))
        .text()
}

fn read(plugin: &Plugin, uri: &str) -> Vec<Part> {
    let read = plugin.call("resource.read", json!({ "uri": uri }));
    read.result().unwrap().content
}

#[test]
fn the_manifest_says_which_operations_there_are() {
    let plugin = on(host(Transport::Direct));
    for operation in [
        "resource.list",
        "resource.read",
        "resource.subscribe",
        "resource.unsubscribe",
        "prompt.list",
        "prompt.get",
        "complete",
        "skill.tools",
    ] {
        assert!(
            plugin.manifest().has(&format!("{operation}/1")),
            "{operation}"
        );
    }
    let [execute] = plugin.manifest().tools.as_slice() else {
        panic!("{:?}", plugin.manifest().tools);
    };
    assert_eq!(execute.title.as_deref(), Some("Runs"));
    assert_eq!(execute.annotations, Some(json!({ "idempotentHint": true })));
    assert_eq!(execute.output_schema, Some(json!({})));

    let plain = Plugin::linked(|| Skill::new("plain", "Has none of it")).unwrap();
    assert_eq!(
        plain.manifest().capabilities,
        ["conjure.ping/1", "stream/1"]
    );
    for operation in ["resource.list", "prompt.list", "complete", "skill.tools"] {
        let outcome = plain.call(operation, json!({}));
        assert_eq!(outcome.code(), Some(code::UNSUPPORTED), "{operation}");
    }
}

#[test]
fn resources_are_listed_and_read() {
    for transport in Transport::BOTH {
        let plugin = on(host(transport));
        let list: Resources = plugin.call("resource.list", json!({})).parse().unwrap();
        let uris: Vec<&str> = list.resources.iter().map(|r| r.uri.as_str()).collect();
        assert_eq!(
            uris,
            ["note://today", "bytes://three", "big://text", "found://1"]
        );
        assert_eq!(
            list.resource_templates,
            [json!({
                "uriTemplate": TEMPLATE,
                "name": "row",
                "description": "A row of a table",
                "mimeType": "application/json",
            })]
        );
        assert_eq!(
            read(&plugin, "note://today"),
            [Part::text_resource(
                "note://today",
                "text/markdown",
                "# Today"
            )]
        );
        assert_eq!(
            read(&plugin, "bytes://three"),
            [Part::binary_resource(
                "bytes://three",
                "application/octet-stream",
                "AQID"
            )]
        );
        assert_eq!(
            read(&plugin, "found://1"),
            [Part::text_resource("found://1", "text/x", "one")]
        );
        let row = r#"{"table":"a b","id":7,"brief":true}"#;
        assert_eq!(
            read(&plugin, "db://a%20b/7?brief=true"),
            [Part::text_resource(
                "db://a%20b/7?brief=true",
                "application/json",
                row
            )]
        );
    }
}

#[test]
fn a_resource_that_is_not_there_and_variables_that_do_not_fit_are_told_apart() {
    for transport in Transport::BOTH {
        let plugin = on(host(transport));
        let code_of = |uri: &str| plugin.call("resource.read", json!({ "uri": uri })).code();
        assert_eq!(code_of("nothing://here"), Some(code::NOT_FOUND));
        assert_eq!(code_of("db://users/0"), Some(code::NOT_FOUND));
        assert_eq!(code_of("db://users/x"), Some(code::INVALID));
    }
}

#[test]
fn a_large_resource_crosses_as_a_file_with_its_media_type() {
    let dir = tempfile::tempdir().unwrap();
    for transport in Transport::BOTH {
        let plugin = on(host(transport).exchange_dir(dir.path().to_str().unwrap()));
        let parts = read(&plugin, "big://text");
        let [Part::File { file }] = parts.as_slice() else {
            panic!("{parts:?}");
        };
        assert_eq!(file.media_type.as_deref(), Some("text/plain"));
        assert_eq!(file.name, "text");
        let text = std::fs::read(file.path.as_ref().unwrap()).unwrap();
        assert_eq!(text.len(), 100_000);
    }
}

#[test]
fn prompts_have_typed_arguments() {
    for transport in Transport::BOTH {
        let plugin = on(host(transport));
        let list: Prompts = plugin.call("prompt.list", json!({})).parse().unwrap();
        assert_eq!(list.prompts.len(), 2);
        assert_eq!(
            list.prompts[0].arguments,
            [
                json!({ "name": "day", "description": "The day.", "required": true }),
                json!({ "name": "hours", "required": false }),
            ]
        );
        let get = |name: &str, arguments: Value| {
            plugin.call(
                "prompt.get",
                json!({ "name": name, "arguments": arguments }),
            )
        };
        let plan: PromptText = get("plan", json!({ "day": "monday", "hours": "3" }))
            .parse()
            .unwrap();
        let text = json!({ "type": "text", "text": "Plan monday in 3 hours" });
        assert_eq!(plan.messages, [json!({ "role": "user", "content": text })]);
        assert_eq!(plan.description.as_deref(), Some("Plans a day"));
        let greet: PromptText = get("greet", json!({})).parse().unwrap();
        let roles: Vec<&Value> = greet
            .messages
            .iter()
            .map(|message| &message["role"])
            .collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!(get("plan", json!({})).code(), Some(code::INVALID));
        assert_eq!(
            get("plan", json!({ "day": "x", "hours": "many" })).code(),
            Some(code::INVALID)
        );
        assert_eq!(get("late", json!({})).code(), Some(code::NOT_FOUND));
    }
}

#[test]
fn completions_are_of_their_argument_and_at_most_a_hundred() {
    for transport in Transport::BOTH {
        let plugin = on(host(transport));
        let complete = |reference: Value, argument: &str, value: &str| {
            let asked = json!({ "reference": reference, "argument": argument, "value": value });
            plugin
                .call("complete", asked)
                .parse::<Completions>()
                .unwrap()
        };
        let prompt = json!({ "type": "ref/prompt", "name": "plan" });
        assert_eq!(
            complete(prompt.clone(), "day", "t").values,
            ["tuesday", "thursday"]
        );
        assert_eq!(complete(prompt, "hours", ""), Completions::default());
        let template = json!({ "type": "ref/resource", "uri": TEMPLATE });
        let ids = complete(template, "id", "");
        assert_eq!(
            (ids.values.len(), ids.more, ids.total),
            (100, true, Some(150))
        );
    }
}

#[test]
fn tools_and_prompts_that_come_at_run_time_are_told_listed_and_called() {
    for transport in Transport::BOTH {
        let plugin = on(host(transport));
        let tools = || {
            plugin
                .call("skill.tools", json!({}))
                .parse::<SkillTools>()
                .unwrap()
                .tools
        };
        let prompts = || {
            plugin
                .call("prompt.list", json!({}))
                .parse::<Prompts>()
                .unwrap()
                .prompts
        };
        assert_eq!((tools().len(), prompts().len()), (0, 2));
        let grown = plugin.call("skill.execute", json!({ "command": "grow" }));
        assert_eq!(
            grown.events,
            [json!({ "event": "catalog_changed", "sessions": [], "what": ["tools", "prompts"] })]
        );
        assert_eq!((tools().len(), prompts().len()), (1, 3));
        assert_eq!(tools()[0].op, "skill.tool.late");
        let called = plugin
            .call("skill.tool.late", json!({ "a": 1 }))
            .result()
            .unwrap();
        assert_eq!(called.structured, Some(json!({ "a": 1 })));
        assert_eq!(plugin.call("skill.tool.late", Value::Null).text(), "{}");
        assert!(
            plugin
                .call("skill.tool.other", json!({}))
                .result()
                .unwrap()
                .is_error
        );
        let late: PromptText = plugin
            .call("prompt.get", json!({ "name": "late" }))
            .parse()
            .unwrap();
        assert_eq!(late.messages.len(), 1);
    }
}

#[test]
fn several_questions_are_asked_at_once_and_one_that_nobody_answers_is_refused_alone() {
    for transport in Transport::BOTH {
        let refused = on(host(transport));
        let expected = r#"[1] this host has no operation `sample`, "Ada" in file:///work"#;
        assert_eq!(execute(&refused, "ask"), expected);
        let sample = |asked: Sample| {
            Ok(Sampled {
                text: format!("Hi after {}", asked.messages[0].text),
                ..Sampled::default()
            })
        };
        let answered = on(host(transport).sample(sample));
        assert_eq!(
            execute(&answered, "ask"),
            r#"Hi after Greet, "Ada" in file:///work"#
        );
    }
}

#[test]
fn messages_and_updates_are_events_of_the_call() {
    for transport in Transport::BOTH {
        let said = on(host(transport)).call("skill.execute", json!({ "command": "say" }));
        assert_eq!(
            said.events,
            [
                json!({ "event": "log", "level": "info", "data": "a text" }),
                json!({ "event": "log", "level": "emergency", "data": { "all": [1] } }),
                json!({ "event": "resource_updated", "uri": "note://today" }),
            ]
        );
    }
}

#[test]
fn a_skill_hears_what_is_watched() {
    for transport in Transport::BOTH {
        let plugin = on(host(transport));
        for operation in ["resource.subscribe", "resource.unsubscribe"] {
            let asked = plugin.call(operation, json!({ "uri": "note://today" }));
            assert_eq!(asked.reply.unwrap(), json!({}));
        }
        let watched = "note://today true, note://today false";
        assert_eq!(execute(&plugin, "watched"), watched);
    }
}

#[test]
fn structured_data_may_be_null() {
    for transport in Transport::BOTH {
        let outcome = on(host(transport)).call("skill.execute", json!({ "command": "null" }));
        assert_eq!(outcome.result().unwrap().structured, Some(Value::Null));
        let without: ToolResult = serde_json::from_value(json!({ "content": [] })).unwrap();
        assert_eq!(without.structured, None);
    }
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let refused = |skill: fn() -> Skill| Plugin::linked(skill).unwrap_err().message().to_owned();
    let twins = refused(|| {
        let one = |skill: Skill| skill.resource(Resource::new("a://b", "b"), |_| Ok(""));
        one(one(Skill::new("x", "y")))
    });
    assert_eq!(twins, "two resources have the URI `a://b`: rename one");
    let prompts = refused(|| {
        let one = |skill: Skill| skill.prompt("p", "", |_cx, _: Empty| Ok(""));
        one(one(Skill::new("x", "y")))
    });
    assert_eq!(prompts, "two prompts are called `p`: rename one");
    let unknown = refused(|| Skill::new("x", "y").complete("p", "a", |_, _| Ok(Vec::new())));
    assert!(
        unknown.contains("no such prompt or resource template"),
        "{unknown}"
    );
    let template = refused(|| {
        let template = ResourceTemplate::new("a://{b", "b");
        Skill::new("x", "y").resource_template(template, |_cx, _: Empty| Ok(""))
    });
    assert!(
        template.contains("a brace that does not close"),
        "{template}"
    );
}
