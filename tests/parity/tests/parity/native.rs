//! Native skills: the round trip, panics, results that are no text, arguments.

use conjure_core::chat::Role;
use conjure_core::cost::Cause;
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_mock_llm::Message;
use conjure_skill_sdk::protocol::{
    Execute, Modify, Permissions, Read, Sample, SampleMessage, ToolResult, Write,
};
use conjure_skill_sdk::{Skill, ToolOptions};
use serde_json::{Value, json};

use crate::stage::{CACHE, MISBEHAVING, Seen, Stage, in_time, result};

/// A skill with one tool that needs no arguments.
pub(crate) fn clock() -> Skill {
    let schema = json!({ "type": "object", "properties": {} });
    Skill::new("clock", "Tells the time").raw_tool(
        "now",
        "Tells the time",
        schema,
        ToolOptions::new().read_only(),
        |_cx, _arguments: Value| "noon",
    )
}

#[tokio::test]
async fn p03_the_four_callbacks_of_a_native_skill_have_the_arguments_that_models_know() {
    let stage = Stage::with(&[], |builder| builder.skill(everything)).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hi.")).await.unwrap();
    let mut shapes = crate::requests::shapes(&stage.model.last_request());
    shapes.sort();
    assert_eq!(
        shapes,
        [
            "notes_execute {command}",
            "notes_modify {path, old_content, new_content}",
            "notes_read {path, offset?, limit?}",
            "notes_write {path, content}",
        ]
    );
    let seen = stage
        .calls(
            &session,
            &[
                ("notes_execute", json!({ "command": "c" })),
                (
                    "notes_read",
                    json!({ "path": "p", "offset": 1, "limit": 2 }),
                ),
                ("notes_write", json!({ "path": "p", "content": "t" })),
                (
                    "notes_modify",
                    json!({ "path": "p", "old_content": "o", "new_content": "n" }),
                ),
            ],
        )
        .await;
    assert_eq!(
        seen,
        [
            "execute c",
            "read p Some(1) Some(2)",
            "write p t",
            "modify p o n"
        ]
        .map(Seen::ok)
    );
    session.close().await;
}

fn everything() -> Skill {
    Skill::new("notes", "Keeps notes")
        .execute("anything", |_cx, r: Execute| {
            format!("execute {}", r.command)
        })
        .read("anything", |_cx, r: Read| {
            format!("read {} {:?} {:?}", r.path, r.offset, r.limit)
        })
        .write("anything", |_cx, r: Write| {
            format!("write {} {}", r.path, r.content)
        })
        .modify("anything", |_cx, r: Modify| {
            format!("modify {} {} {}", r.path, r.old_content, r.new_content)
        })
}

#[tokio::test]
async fn p07_a_native_round_trip_is_four_messages_and_a_failing_tool_is_an_error() {
    let stage = Stage::new(&[CACHE]).await;
    let session = stage
        .session([BackendSpec::native(["cache-manager"])])
        .await;
    stage.model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set city Lyon" }),
    );
    stage.model.says(Message::new().text("Stored."));
    let answer = in_time(session.chat("Remember Lyon.")).await.unwrap();
    assert_eq!(answer.text, "Stored.");
    let roles: Vec<Role> = session
        .messages()
        .await
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
    );
    assert_eq!(
        result(&stage.model.last_request(), "toolu_1"),
        Seen::ok("stored")
    );
    assert_eq!(
        stage
            .call(
                &session,
                "cache-manager_execute",
                json!({ "command": "get nothing" })
            )
            .await,
        Seen::error(
            "`nothing` is not in the cache. `list` shows what is.\n[The call of \
             `cache-manager_execute` on backend `native` failed with what stands above. Correct the \
             arguments or do it in another way; the same call may fail again.]"
        )
    );
    session.close().await;
}

#[tokio::test]
async fn b22_a_panic_of_a_native_skill_is_contained() {
    let stage = Stage::new(&[MISBEHAVING, CACHE]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let panic = json!({ "command": "panic out of luck" });
    let seen = stage
        .calls(
            &session,
            &[
                ("misbehaving_execute", panic),
                ("cache-manager_execute", json!({ "command": "set k v" })),
                (
                    "misbehaving_execute",
                    json!({ "command": "echo still here" }),
                ),
            ],
        )
        .await;
    assert!(seen[0].is_error, "{seen:?}");
    for word in ["misbehaving", "panicked", "out of luck"] {
        assert!(seen[0].text.contains(word), "{word}: {}", seen[0].text);
    }
    assert_eq!(seen[1..], [Seen::ok("stored"), Seen::ok("still here")]);
    session.close().await;
}

#[tokio::test]
async fn b22_a_panic_in_a_skill_of_the_embedding_program_is_contained_too() {
    let stage = Stage::with(&[], |builder| {
        builder.skill(|| {
            Skill::new("own", "The program's own")
                .execute("anything", |_cx, r: Execute| -> String {
                    panic!("no {}", r.command)
                })
        })
    })
    .await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let seen = stage
        .call(&session, "own_execute", json!({ "command": "luck" }))
        .await;
    assert!(
        seen.is_error && seen.text.contains("own") && seen.text.contains("no luck"),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test]
async fn b22_a_result_that_is_not_text_is_serialised() {
    let stage = Stage::with(&[], |builder| {
        builder.skill(|| {
            Skill::new("shapes", "Gives anything back").execute("what", |_cx, r: Execute| {
                match r.command.as_str() {
                    "data" => ToolResult::json(json!({ "rows": [1, 2], "ok": true })),
                    "only-data" => ToolResult {
                        structured: Some(json!([null, 1.5])),
                        ..ToolResult::default()
                    },
                    _ => ToolResult::default(),
                }
            })
        })
    })
    .await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let call = |command: &str| ("shapes_execute", json!({ "command": command }));
    let seen = stage
        .calls(
            &session,
            &[call("data"), call("only-data"), call("nothing")],
        )
        .await;
    assert_eq!(
        seen,
        [r#"{"rows":[1,2],"ok":true}"#, "[null,1.5]", "(no output)"].map(Seen::ok)
    );
    session.close().await;
}

#[tokio::test]
async fn b22_two_skills_whose_tools_have_one_name_are_refused() {
    let plugins = |builder: conjure_host::HostBuilder| {
        builder
            .skill(|| echo("a_b", "c"))
            .skill(|| echo("a", "b_c"))
    };
    let stage = Stage::with(&[], plugins).await;
    let error = stage
        .host
        .session(stage.spec([BackendSpec::all_native()]))
        .await
        .err()
        .expect("the names clash");
    for word in ["`a_b_c`", "a_b", "alias"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    // With one of them left out there is no clash.
    let spec: SessionSpec = stage.spec([BackendSpec::native(["a"])]);
    let session = stage.open(spec).await;
    assert_eq!(
        stage.call(&session, "a_b_c", json!({})).await,
        Seen::ok("b_c of a")
    );
    session.close().await;
}

/// A skill whose only tool says whose it is.
pub(crate) fn echo(skill: &str, tool: &str) -> Skill {
    let says = format!("{tool} of {skill}");
    let schema = json!({ "type": "object", "properties": {} });
    Skill::new(skill, "Says whose it is").raw_tool(
        tool,
        "Says whose it is",
        schema,
        ToolOptions::new().read_only(),
        move |_cx, _arguments: Value| says.clone(),
    )
}

#[tokio::test]
async fn all_tools_of_a_skill_share_its_state() {
    let stage = Stage::new(&[CACHE]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let set = json!({ "command": "set city Lyon" });
    stage.call(&session, "cache-manager_execute", set).await;
    assert_eq!(
        stage
            .call(&session, "cache-manager_read", json!({ "path": "stats" }))
            .await,
        Seen::ok(r#"{"hits":0,"misses":0,"entries":1,"bytes":8}"#)
    );
    session.close().await;
}

#[tokio::test]
async fn a_skills_state_is_the_sessions_own() {
    let stage = Stage::new(&[CACHE]).await;
    let (one, two) = (
        stage.session([BackendSpec::all_native()]).await,
        stage.session([BackendSpec::all_native()]).await,
    );
    let command = |text: &str| json!({ "command": text });
    stage
        .call(&one, "cache-manager_execute", command("set k one"))
        .await;
    stage
        .call(&two, "cache-manager_execute", command("set k two"))
        .await;
    assert_eq!(
        stage
            .call(&one, "cache-manager_execute", command("get k"))
            .await,
        Seen::ok("one")
    );
    one.close().await;
    two.close().await;
}

/// Asks the session's model to translate.
fn translator() -> Skill {
    let may = Permissions {
        sample: true,
        ..Permissions::default()
    };
    let skill = Skill::new("translator", "Translates").permissions(may);
    skill.execute("a text", |cx, r: Execute| {
        let asked = Sample {
            system: Some("You translate.".to_owned()),
            messages: vec![SampleMessage::user(format!("Translate: {}", r.command))],
            max_tokens: Some(100),
            ..Sample::default()
        };
        cx.sample(&asked).map(|sampled| sampled.text)
    })
}

#[tokio::test]
async fn what_a_skill_asks_the_sessions_model_is_answered_and_paid_by_the_session() {
    let stage = Stage::with(&[], |builder| builder.skill(translator)).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    stage.model.calls(
        "toolu_1",
        "translator_execute",
        json!({ "command": "guten Tag" }),
    );
    stage.model.says(Message::new().text("good day"));
    stage.model.says(Message::new().text("Done."));
    let answer = in_time(session.chat("Translate it.")).await.unwrap();
    let requests = stage.model.requests();
    assert_eq!(requests[1].body["system"][0]["text"], "You translate.");
    assert_eq!(requests[1].body["max_tokens"], 100);
    assert_eq!(result(&requests[2], "toolu_1"), Seen::ok("good day"));
    let cost = session.cost().await;
    let paid = &cost.total.cost.usage;
    assert_eq!(
        answer.usage, *paid,
        "the turn's tokens are those of all three"
    );
    assert_eq!((cost.total.replies, paid.input, paid.output), (3, 30, 15));
    assert!(
        cost.total
            .causes
            .iter()
            .any(|cost| cost.cause == Cause::Sampling)
    );
    session.close().await;
}
