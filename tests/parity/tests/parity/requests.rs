//! What the provider receives: tools, their names and schemas, and the order of things.

use conjure_host::session::{BackendSpec, Session};
use conjure_kit::Workspace;
use conjure_mock_llm::{Message, Request};
use serde_json::{Value, json};

use crate::folders::printed;
use crate::native::echo;
use crate::stage::{CACHE, LOCAL, Seen, Stage, bash, conjure, in_time, local, result, workspace};

/// `name {field, field?}` for each tool of a request.
pub(crate) fn shapes(request: &Request) -> Vec<String> {
    let tools = request.body["tools"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tools
        .iter()
        .map(|tool| {
            let schema = &tool["input_schema"];
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let fields: Vec<String> = schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(|field| {
                    let optional = !required.contains(&json!(field));
                    format!("{field}{}", if optional { "?" } else { "" })
                })
                .collect();
            format!(
                "{} {{{}}}",
                tool["name"].as_str().unwrap(),
                fields.join(", ")
            )
        })
        .collect()
}

/// The request that a question leads to.
async fn asked(stage: &Stage, session: &Session) -> std::sync::Arc<Request> {
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hi.")).await.unwrap();
    stage.model.last_request()
}

#[tokio::test]
async fn p03_command_tools_have_the_arguments_that_models_know() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let request = asked(&stage, &session).await;
    let mut shapes = shapes(&request);
    shapes.sort();
    assert_eq!(
        shapes,
        [
            "local_bash_tool {command, description}",
            "local_create_file {path, file_text, description}",
            "local_str_replace {path, old_str, new_str?, description}",
            "local_view {path, view_range?}",
        ]
    );
    session.close().await;
}

#[tokio::test]
async fn p03_filters_choose_what_a_backend_offers() {
    let stage = Stage::new(&[LOCAL, CACHE]).await;
    let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (only, except, expected) in [
        (
            list(&["view", "bash*"]),
            list(&[]),
            vec!["local_bash_tool", "local_view"],
        ),
        (
            list(&[]),
            list(&["bash_tool", "str*"]),
            vec!["local_create_file", "local_view"],
        ),
    ] {
        let session = stage
            .session([BackendSpec {
                only,
                except,
                ..local()
            }])
            .await;
        let request = asked(&stage, &session).await;
        let mut names = request.tool_names();
        names.sort_unstable();
        assert_eq!(names, expected);
        session.close().await;
    }
}

#[tokio::test]
async fn p03_filters_are_the_same_on_native_skills() {
    let stage = Stage::new(&[CACHE]).await;
    let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (only, except) in [(list(&["exec*"]), list(&[])), (list(&[]), list(&["re*"]))] {
        let native = BackendSpec {
            only,
            except,
            ..BackendSpec::all_native()
        };
        let session = stage.session([native]).await;
        let request = asked(&stage, &session).await;
        assert_eq!(request.tool_names(), ["cache-manager_execute"]);
        session.close().await;
    }
}

#[tokio::test]
async fn p05_calls_are_read_in_order_and_text_between_them_is_skipped() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let message = Message::new()
        .text("First this.")
        .tool_use("toolu_a", "local_bash_tool", bash("echo a | tee -a order"))
        .text("Then that.")
        .tool_use("toolu_b", "local_bash_tool", bash("echo b | tee -a order"))
        .tool_use("toolu_c", "local_bash_tool", bash("cat order"));
    stage.model.says(message);
    stage.model.says(Message::new().text("Done."));
    in_time(session.chat("Go on.")).await.unwrap();
    let request = stage.model.last_request();
    let ids = crate::stage::result_ids(&request);
    assert_eq!(ids, ["toolu_a", "toolu_b", "toolu_c"]);
    assert_eq!(result(&request, "toolu_c"), Seen::ok("a\nb\n"));
    let said: Vec<&str> = request.messages()[1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        said,
        ["text", "tool_use", "text", "tool_use", "tool_use"],
        "nothing is lost"
    );
    session.close().await;
}

#[tokio::test]
async fn h03_every_name_is_legal_and_the_same_on_every_run() {
    let long = "x".repeat(64);
    let names = [long.as_str(), "größe", "日誌分析", "a"];
    let run = || async {
        let stage = Stage::new(&[LOCAL]).await;
        let skills = names.map(|name| {
            let dir = stage
                .workspace
                .write_skill(name, name, "Named oddly.", "Body")
                .unwrap();
            dir.display().to_string()
        });
        let session = stage.session([BackendSpec::local(skills)]).await;
        let request = asked(&stage, &session).await;
        let offered: Vec<String> = request
            .tool_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        // Every one of them leads to its skill.
        let mut led_to = Vec::new();
        for name in offered.iter().filter(|name| name.contains("bash")) {
            let seen = stage
                .call(&session, name, bash("basename \"$SKILL_DIR\""))
                .await;
            assert!(!seen.is_error, "{name}: {seen:?}");
            let begins: String = name.chars().take(2).collect();
            led_to.push((begins, seen.text.trim_end().to_owned()));
        }
        led_to.sort();
        let expected = [
            ("a_", "a"),
            ("gr", "größe"),
            ("t-", "日誌分析"),
            ("xx", &long),
        ];
        let expected = expected.map(|(begins, skill)| (begins.to_owned(), skill.to_owned()));
        assert_eq!(led_to, expected, "{offered:?}");
        session.close().await;
        offered
    };
    let (first, second) = (run().await, run().await);
    assert_eq!(first.len(), 16);
    for name in &first {
        let legal = name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        assert!(legal, "{name}");
    }
    let mut unique = first.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 16);
    assert_eq!(first, second);
}

#[test]
fn h03_the_routing_table_shows_the_names_that_the_model_sees() {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill("größe", "größe", "Named oddly.", "Body")
        .unwrap();
    let names = |workspace: &Workspace| -> Vec<String> {
        let args = ["routes", "--skill", "größe", "--json"];
        let routes = printed(&conjure(workspace, args).run().unwrap());
        let routes = routes["routes"].as_array().unwrap().clone();
        routes
            .iter()
            .map(|route| route["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let shown = names(&workspace);
    assert_eq!(shown.len(), 4);
    assert!(shown.iter().all(|name| name.is_ascii()), "{shown:?}");
    assert_eq!(shown, names(&workspace));
}

#[tokio::test]
async fn h16_the_tools_are_byte_identical_for_as_long_as_the_tables_version_is() {
    let workspace = workspace(&[]);
    let dir = workspace.plugins();
    let stage = Stage::with(&[LOCAL], |builder| {
        builder
            .skill(|| echo("own", "say"))
            .plugin_dir(dir)
            .watch(true)
    })
    .await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    let mut events = session.events_from_now();
    stage.bash(&session, "echo 1").await;
    stage
        .calls(
            &session,
            &[("own_say", json!({})), ("local_bash_tool", bash("echo 2"))],
        )
        .await;
    let before: Vec<String> = stage.model.requests().iter().map(|r| tools(r)).collect();
    assert_eq!(before.len(), 4);
    assert!(
        before.iter().all(|tools| *tools == before[0]),
        "{before:#?}"
    );
    // Nothing but a new table changes them.
    let version = session.table().version();
    workspace.add_plugin(CACHE).unwrap();
    in_time(async {
        while session.table().version() == version {
            events.next().await;
        }
    })
    .await;
    stage.bash(&session, "echo 3").await;
    let requests = stage.model.requests();
    let after: Vec<String> = requests[4..].iter().map(|request| tools(request)).collect();
    assert_ne!(after[0], before[0]);
    assert!(after[0].contains("cache-manager_execute"));
    assert_eq!(after[0], after[1]);
    session.close().await;
}

/// The tools of a request as they were sent, keys in their order.
fn tools(request: &Request) -> String {
    let sent = std::str::from_utf8(&request.raw_body).unwrap();
    let tools: Value = request.body["tools"].clone();
    let text = tools.to_string();
    assert!(sent.contains(&text), "the tools are sent as compact JSON");
    text
}
