//! Hosted skills as tools: the session's provider is another one, and a call is a conversation of
//! its own with Anthropic.

use std::sync::Arc;

use conjure_core::chat::Event;
use conjure_core::cost::Cause;
use conjure_core::turn::EffectiveFrom;
use conjure_host::session::{Session, SessionSettings};
use conjure_mock_llm::{
    Cut, CutAt, CutHow, ErrorReply, Hosted, Matcher, Message, Reply, Request, Rule, Script, Step,
    StoredSkill, Wire,
};
use serde_json::{Value, json};

use crate::hosted_stage::{Place, bash_use, blocks, container, made, ran, xlsx};
use crate::stage::{in_time, local};

/// What the session's model says.
fn says(message: Message) -> Step {
    Step::new(message).when(Matcher::any().wire(Wire::Chat))
}

/// What Anthropic says.
fn hosted_says(reply: impl Into<Reply>) -> Step {
    Step::new(reply).when(Matcher::any().wire(Wire::Anthropic))
}

/// The session's model calls the skill.
fn calls(id: &str, input: Value) -> Step {
    says(Message::new().tool_use(id, "xlsx_code_execution", input))
}

fn task() -> Value {
    json!({"task": "Make a table."})
}

/// The requests of the session's own model.
fn own(place: &Place) -> Vec<Arc<Request>> {
    let all = place.mock.requests();
    let is_own = |it: &Arc<Request>| it.path.ends_with("/chat/completions");
    all.into_iter().filter(is_own).collect()
}

/// A call's result, as the session's model got it.
fn seen(place: &Place, id: &str) -> String {
    let requests = own(place);
    let request = requests.last().unwrap();
    request.tool_result_text(id).unwrap()
}

/// A session with one call of the skill, for which Anthropic says this.
async fn one_call(replies: impl IntoIterator<Item = Step>) -> (Place, Session) {
    let script = Script::new().step(calls("call_1", task()));
    let script = replies.into_iter().fold(script, Script::step);
    let place = Place::new(script.step(says(Message::new().text("Done."))), &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    in_time(session.chat("A table, please.")).await.unwrap();
    (place, session)
}

#[tokio::test(flavor = "multi_thread")]
async fn h01_p10_a_skill_is_a_tool_whose_call_is_a_conversation_of_its_own() {
    let (place, session) = one_call([hosted_says(made("srvtoolu_1", &["file_a"]))]).await;
    let tools = own(&place)[0].tool_names().join(" ");
    assert_eq!(tools, "xlsx_code_execution");
    let requests = place.messages();
    let [asked] = requests.as_slice() else {
        panic!("{requests:#?}")
    };
    assert_eq!(asked.tool_names(), ["code_execution"]);
    let skills = json!({"skills": [{"type": "anthropic", "skill_id": "xlsx"}]});
    assert_eq!(asked.body["container"], skills);
    assert_eq!(asked.messages().len(), 1);
    assert_eq!(asked.last_text(), "Make a table.");
    let defaults = ["model", "max_tokens", "stream"].map(|name| asked.body[name].clone());
    assert_eq!(
        defaults,
        [json!("claude-sonnet-4-5"), json!(8192), json!(true)]
    );
    let tool = json!({"type": "code_execution_20250825", "name": "code_execution"});
    assert_eq!(asked.body["tools"], json!([tool]));
    assert_eq!(asked.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(asked.header("x-api-key"), Some("a-key-of-nobody"));
    let text = seen(&place, "call_1");
    assert!(text.starts_with("Made."), "{text}");
    assert!(text.contains("file-1"), "{text}");
    let files = session.created_files();
    assert_eq!((files.len(), files[0].source.as_str()), (1, "anthropic"));
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h06_b12_p11_pauses_are_continued_and_the_next_call_runs_in_the_same_container() {
    let paused = bash_use("srvtoolu_1", "sleep 60")
        .stop_reason("pause_turn")
        .container(container("container_1"));
    let script = Script::new()
        .step(calls("call_1", task()))
        .step(hosted_says(paused))
        .step(hosted_says(
            Message::new()
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &["file_a"]))
                .text("One."),
        ))
        .step(calls("call_2", task()))
        .step(hosted_says(Message::new().text("Two.")))
        .step(says(Message::new().text("Done.")));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    in_time(session.chat("A table, please.")).await.unwrap();
    let requests = place.messages();
    let named: Vec<&Value> = requests
        .iter()
        .map(|it| &it.body["container"]["id"])
        .collect();
    assert_eq!(
        named,
        [&json!(null), &json!("container_1"), &json!("container_1")]
    );
    assert_eq!(requests[1].messages().last().unwrap()["role"], "assistant");
    assert_eq!(requests[1].body["tools"], requests[0].body["tools"]);
    assert_eq!(seen(&place, "call_2"), "Two.\n");
    assert_eq!(session.created_files().len(), 1);
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_the_eleventh_pause_is_an_error_result_with_what_was_made() {
    let paused = (0..11).map(|number| {
        let call = format!("srvtoolu_{number}");
        let message = bash_use(&call, "make")
            .raw_on(Wire::Anthropic, ran(&call, &["file_a"]))
            .stop_reason("pause_turn");
        hosted_says(message.container(container("container_1")))
    });
    let (place, session) = one_call(paused).await;
    assert_eq!(place.messages().len(), 11);
    let text = seen(&place, "call_1");
    assert!(text.contains("paused 10 times"), "{text}");
    assert_eq!(session.created_files().len(), 1);
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_a_refusal_a_limit_and_a_break_are_errors_that_keep_what_was_said() {
    let cut = Reply::from(Message::new().text("Half of it."));
    let cut = Reply {
        delivery: conjure_mock_llm::Delivery {
            cut: Some(Cut {
                at: CutAt::Events(5),
                how: CutHow::Eof,
            }),
            ..cut.delivery.clone()
        },
        ..cut
    };
    let cases: [(Reply, &str, &str); 4] = [
        (
            Message::new().text("No.").stop_reason("refusal").into(),
            "No.",
            "refused the task",
        ),
        (
            Message::new()
                .text("Much.")
                .stop_reason("max_tokens")
                .into(),
            "Much.",
            "max_tokens",
        ),
        (cut, "Half", "broke off"),
        (
            ErrorReply::new(401).message("invalid x-api-key").into(),
            "",
            "invalid x-api-key",
        ),
    ];
    for (reply, said, why) in cases {
        let (place, _session) = one_call([hosted_says(reply)]).await;
        let text = seen(&place, "call_1");
        assert!(text.contains(said) && text.contains(why), "{why}: {text}");
        assert_eq!(place.messages().len(), 1, "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_an_expired_container_is_given_up_once_and_what_is_overloaded_is_asked_again() {
    let script = Script::new()
        .step(calls("call_1", task()))
        .step(hosted_says(made("srvtoolu_1", &[])))
        .step(says(Message::new().text("One.")))
        .step(calls("call_2", task()))
        .step(hosted_says(ErrorReply::new(529).message("Overloaded")))
        .step(hosted_says(
            Message::new()
                .text("Two.")
                .container(container("container_2")),
        ))
        .step(says(Message::new().text("Two.")));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    in_time(session.chat("One?")).await.unwrap();
    place.mock.expire_container("container_1");
    in_time(session.chat("Two?")).await.unwrap();
    assert_eq!(seen(&place, "call_2"), "Two.\n");
    let requests = place.messages();
    let named: Vec<&Value> = requests
        .iter()
        .map(|it| &it.body["container"]["id"])
        .collect();
    let (none, one) = (json!(null), json!("container_1"));
    assert_eq!(named, [&none, &one, &none, &none]);
    assert_eq!(place.rules(), [Rule::ContainerExpired]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_h13_a_file_goes_up_by_path_and_by_handle_and_comes_down() {
    let script = Script::new()
        .step(calls(
            "call_1",
            json!({"task": "Read it.", "files": ["data.csv"]}),
        ))
        .step(hosted_says(made("srvtoolu_1", &["file_made"])))
        .step(calls(
            "call_2",
            json!({"task": "Read that.", "files": ["file-1", "data.csv"]}),
        ))
        .step(hosted_says(Message::new().text("Read.")))
        .step(calls(
            "call_3",
            json!({"task": "Read.", "files": ["nothing"]}),
        ))
        .step(says(Message::new().text("Done.")));
    let hosted = Hosted::new().generated_file("file_made", "table.xlsx", "PK table");
    let place = Place::new(script.hosted(hosted), &[]).await;
    let session = place.another([local(), place.hosted(xlsx())]).await;
    std::fs::write(place.workspace.work().join("data.csv"), "a,b").unwrap();
    in_time(session.chat("Go on.")).await.unwrap();
    let requests = place.messages();
    let uploads = |at: usize| {
        let all = blocks(&requests[at]).into_iter();
        all.filter(|block| block["type"] == "container_upload")
            .count()
    };
    assert_eq!([uploads(0), uploads(1)], [1, 2]);
    let hosted = place.mock.hosted();
    let names: Vec<&str> = hosted.files().iter().map(|it| it.name.as_str()).collect();
    // The one that a skill made, and both that went up, each once.
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["data.csv", "table.xlsx", "table.xlsx"]);
    assert_eq!(place.requests("/content"), 1);
    let text = seen(&place, "call_3");
    assert!(text.contains("no file `nothing`"), "{text}");
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_what_delegated_work_makes_and_costs_is_the_threads() {
    let spends =
        hosted_says(made("srvtoolu_1", &["file_made"]).container(container("container_1")));
    let script = Script::new()
        .step(calls("call_1", json!({"task": "Make it."})))
        .step(spends)
        .step(says(Message::new().text("Done.")))
        .step(calls("call_2", json!({"task": "Once more."})))
        .step(hosted_says(Message::new().text("Made.")))
        .step(says(Message::new().text("Done.")));
    let hosted = Hosted::new().generated_file("file_made", "table.xlsx", "PK table");
    let place = Place::new(script.hosted(hosted), &[]).await;
    let spec = place.spec("openai", [place.hosted(xlsx())]);
    let session = place.host.session(spec.clone()).await.unwrap();
    let answer = in_time(session.chat("Go on.")).await.unwrap();
    let cost = session.cost().await;
    let delegated = cost.total.causes.iter();
    let delegated = delegated.filter(|cost| cost.cause == Cause::Delegated);
    let delegated: u64 = delegated.map(|cost| cost.tokens).sum();
    assert!(
        delegated > 0 && answer.usage.total() > delegated,
        "{cost:?}"
    );
    let thread = session.thread().clone();
    in_time(session.close()).await;

    // What was not fetched is fetched by the next session, and the next task finds its container.
    let session = place.host.resume(spec, thread).await.unwrap();
    let path = in_time(session.resolve("table.xlsx")).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"PK table");
    in_time(session.chat("Again.")).await.unwrap();
    let asked = place.messages().pop().unwrap();
    assert_eq!(asked.body["container"]["id"], "container_1");
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_a_call_without_a_task_is_an_error_result() {
    let script = Script::new()
        .step(calls("call_1", json!({})))
        .step(says(Message::new().text("Done.")));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    in_time(session.chat("Go on.")).await.unwrap();
    let text = seen(&place, "call_1");
    assert!(text.contains("task"), "{text}");
    assert_eq!(place.messages().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_skill_of_the_workspace_is_called_as_it_is_in_both_shapes_of_the_api() {
    for old in [false, true] {
        let hosted = Hosted::new().skill(StoredSkill::custom("skill_01", "my-report", "Reports."));
        let hosted = if old { hosted.beta_format() } else { hosted };
        let script = Script::new().step(says(Message::new().text("Hello.")));
        let place = Place::new(script.hosted(hosted), &[]).await;
        let session = place.another([place.hosted(json!(["skill_01"]))]).await;
        in_time(session.chat("Hello.")).await.unwrap();
        assert_eq!(own(&place)[0].tool_names(), ["my-report_code_execution"]);
        place.no_violations();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_looked_up_when_its_name_is_wanted_and_what_fails_then_is_told() {
    let script = Script::new().step(says(Message::new().text("Hello.")));
    let place = Place::new(script, &[]).await;
    // Nobody has such a skill; inside Anthropic's own requests nobody asks what it is called.
    let spec = place.spec("anthropic", [place.hosted(json!(["skill_gone"]))]);
    let session = place.host.session(spec).await.unwrap();
    assert_eq!(place.mock.requests().len(), 0);
    let settings = SessionSettings {
        provider: Some("openai".to_owned()),
        model: None,
        ..SessionSettings::default()
    };
    let mut events = session.events_from_now();
    in_time(session.change(settings, EffectiveFrom::NextTurn))
        .await
        .unwrap();
    in_time(session.chat("Hello.")).await.unwrap();
    let told = async {
        loop {
            if let Event::Notice { text } = &events.next().await.event
                && text.contains("skill_gone")
            {
                return text.clone();
            }
        }
    };
    let told = in_time(told).await;
    assert!(told.starts_with("anthropic: "), "{told}");
    assert!(told.contains("cannot be looked up"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_the_tools_are_those_of_the_sessions_provider_also_after_a_switch() {
    let script = Script::new()
        .step(says(Message::new().text("One.")))
        .step(hosted_says(Message::new().text("Two.")))
        .step(says(Message::new().text("Three.")));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    for (text, provider) in [
        ("One?", "anthropic"),
        ("Two?", "openai"),
        ("Three?", "openai"),
    ] {
        in_time(session.chat(text)).await.unwrap();
        let settings = SessionSettings {
            provider: Some(provider.to_owned()),
            model: None,
            ..SessionSettings::default()
        };
        in_time(session.change(settings, EffectiveFrom::NextTurn))
            .await
            .unwrap();
    }
    let inline = place.messages().remove(0);
    assert_eq!(
        inline.tool_names(),
        ["anthropic_upload_files", "code_execution"]
    );
    for request in own(&place) {
        assert_eq!(request.tool_names(), ["xlsx_code_execution"]);
    }
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_a_request_that_is_made_again_for_another_provider_has_its_tools() {
    let held = Reply::from(Message::new().text("One, two."))
        .hold(conjure_mock_llm::Position::Event(2), "middle");
    let script = Script::new()
        .step(Step::new(held).when(Matcher::any().wire(Wire::Chat)))
        .step(hosted_says(Message::new().text("Three.")));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    let chat = session.chat("Count.");
    let switch = async {
        place.mock.wait_for_gate("middle").await.unwrap();
        let settings = SessionSettings {
            provider: Some("anthropic".to_owned()),
            model: None,
            ..SessionSettings::default()
        };
        session.change(settings, EffectiveFrom::Now).await.unwrap();
    };
    let (answer, ()) = in_time(async { tokio::join!(chat, switch) }).await;
    assert_eq!(answer.unwrap().text, "Three.");
    let request = place.messages().remove(0);
    assert_eq!(
        request.tool_names(),
        ["anthropic_upload_files", "code_execution"]
    );
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h01_delegated_work_is_shown_while_it_goes_on_and_has_ten_minutes() {
    let held = Reply::from(
        bash_use("srvtoolu_1", "make table")
            .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
            .text("Made."),
    )
    .hold(conjure_mock_llm::Position::Event(1000), "end");
    let script = Script::new()
        .step(calls("call_1", task()))
        .step(hosted_says(held))
        .step(says(Message::new().text("Done.")));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    let table = session.table();
    let route = table.route("xlsx_code_execution").unwrap();
    assert_eq!(route.definition.timeout_ms, Some(600_000));
    let mut events = session.events_from_now();
    let chat = session.chat("Go on.");
    let watched = async {
        let mut shown = String::new();
        while !shown.contains("Made.") {
            if let Event::ToolOutput { chunk, .. } = &events.next().await.event {
                shown.push_str(chunk);
            }
        }
        // Only now may the reply end.
        place.mock.release("end");
        shown
    };
    let (answer, shown) = in_time(async { tokio::join!(chat, watched) }).await;
    assert_eq!(answer.unwrap().text, "Done.");
    assert!(
        shown.contains("[bash_code_execution] make table"),
        "{shown}"
    );
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h08_a_delegated_call_that_is_cancelled_leaves_nothing_waiting() {
    let held = Reply::from(Message::new().text("Late."))
        .hold(conjure_mock_llm::Position::Event(2), "late");
    let paused = bash_use("srvtoolu_1", "sleep 60")
        .text("First.")
        .stop_reason("pause_turn")
        .container(container("container_1"));
    let script = Script::new()
        .step(calls("call_1", task()))
        .step(hosted_says(paused))
        .step(hosted_says(held));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    let chat = session.chat("Go on.");
    let cancel = async {
        place.mock.wait_for_gate("late").await.unwrap();
        session.cancel(true).await;
    };
    let (answer, ()) = in_time(async { tokio::join!(chat, cancel) }).await;
    assert!(answer.is_err(), "{answer:?}");
    let cost = session.cost().await;
    let causes = cost.total.causes.iter();
    let mut delegated = causes.filter(|cost| cost.cause == Cause::Delegated);
    assert!(delegated.any(|cost| cost.tokens > 0), "{cost:?}");
    assert_eq!(
        place.mock.wait_for_outcome(2).await.unwrap(),
        conjure_mock_llm::Outcome::ClientGone
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h08_what_came_of_a_reply_before_its_call_was_cancelled_is_paid_for() {
    let held = Reply::from(Message::new().text("Made half."))
        .hold(conjure_mock_llm::Position::Event(1000), "end");
    let script = Script::new()
        .step(calls("call_1", task()))
        .step(hosted_says(held));
    let place = Place::new(script, &[]).await;
    let session = place.another([place.hosted(xlsx())]).await;
    let mut events = session.events_from_now();
    let chat = session.chat("Go on.");
    let cancel = async {
        let mut shown = String::new();
        while !shown.contains("Made half.") {
            if let Event::ToolOutput { chunk, .. } = &events.next().await.event {
                shown.push_str(chunk);
            }
        }
        session.cancel(true).await;
    };
    let (answer, ()) = in_time(async { tokio::join!(chat, cancel) }).await;
    assert!(answer.is_err(), "{answer:?}");
    let cost = session.cost().await;
    let causes = cost.total.causes.iter();
    let mut delegated = causes.filter(|cost| cost.cause == Cause::Delegated);
    assert!(delegated.any(|cost| cost.tokens > 0), "{cost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_nothing_at_the_address_is_told_with_the_model_and_the_address() {
    let (place, _session) = one_call([hosted_says(ErrorReply::new(404))]).await;
    let told = seen(&place, "call_1");
    let hosted = place.messages().remove(0);
    let model = hosted.body["model"].as_str().unwrap();
    assert!(told.contains(&format!("the model `{model}`")), "{told}");
    assert!(told.contains(&place.mock.base_url()), "{told}");
}
