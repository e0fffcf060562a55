//! Hosted skills inside the session's own requests: the session's provider is Anthropic.
//!
//! The provider is the mock with a memory: it refuses a container that it does not know, a paused
//! turn that comes back changed, a mixed turn that is answered with more than results.

use conjure_mock_llm::{Block, Hosted, Message, Rule, Script, ToolBlock, Wire};
use serde_json::{Value, json};

use crate::hosted_stage::{Place, RAN, bash_use, blocks, container, made, ran, xlsx};
use crate::stage::{CACHE, bash, in_time, local, result_ids};

#[tokio::test(flavor = "multi_thread")]
async fn h01_native_local_and_hosted_are_one_request() {
    let script = Script::new().reply(Message::new().text("Hello."));
    let place = Place::new(script, &[CACHE]).await;
    let native = conjure_host::session::BackendSpec::native(["cache-manager"]);
    let session = place
        .anthropic([native, local(), place.hosted(xlsx())])
        .await;
    in_time(session.chat("Hello.")).await.unwrap();
    let request = place.messages().remove(0);
    let names = request.tool_names();
    let executes = names.iter().filter(|name| **name == "code_execution");
    assert_eq!(executes.count(), 1, "{names:?}");
    assert!(names.contains(&"cache-manager_execute"), "{names:?}");
    assert!(names.contains(&"local_bash_tool"), "{names:?}");
    assert!(!names.contains(&"xlsx_code_execution"), "{names:?}");
    assert_eq!(
        request.body["container"],
        json!({"skills": [{"type": "anthropic", "skill_id": "xlsx"}]})
    );
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h04_h05_h16_a_mixed_turn_is_answered_by_results_alone_and_its_deferred_result_opens_the_next_reply()
 {
    let script = Script::new()
        .reply(
            bash_use("srvtoolu_1", "ls")
                .tool_use("toolu_1", "local_bash_tool", bash("echo one"))
                .tool_use("toolu_2", "local_bash_tool", bash("echo two"))
                .container(container("container_1")),
        )
        .reply(
            Message::new()
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
                .text("Done."),
        )
        .reply(Message::new().text("Bye."));
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([local(), place.hosted(xlsx())]).await;
    let answer = in_time(session.chat("Go on.")).await.unwrap();
    assert_eq!(answer.text, "Done.");
    in_time(session.chat("Thank you.")).await.unwrap();
    let requests = place.messages();
    assert_eq!(result_ids(&requests[1]), ["toolu_1", "toolu_2"]);
    let history = requests[2].messages();
    let kinds = |at: usize| -> Vec<&str> {
        let blocks = history[at]["content"].as_array().unwrap().iter();
        blocks
            .map(|block| block["type"].as_str().unwrap())
            .collect()
    };
    assert_eq!(kinds(1), ["server_tool_use", "tool_use", "tool_use"]);
    assert_eq!(kinds(3), [RAN, "text"]);
    // The third reply told no container: the one of before is named all the same.
    for request in &requests[1..] {
        assert_eq!(request.body["container"]["id"], "container_1");
        assert_eq!(request.body["tools"], requests[0].body["tools"]);
    }
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h06_b12_b14_a_paused_turn_goes_on_in_its_container_as_it_was() {
    let script = Script::new()
        .reply(
            bash_use("srvtoolu_1", "sleep 60")
                .stop_reason("pause_turn")
                .container(container("container_1")),
        )
        .reply(
            Message::new()
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
                .server_tool_use(
                    "srvtoolu_2",
                    "bash_code_execution",
                    json!({"command": "ls"}),
                )
                .stop_reason("pause_turn"),
        )
        .reply(
            Message::new()
                .raw_on(Wire::Anthropic, ran("srvtoolu_2", &[]))
                .text("Done."),
        );
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([local(), place.hosted(xlsx())]).await;
    let answer = in_time(session.chat("Go on.")).await.unwrap();
    assert_eq!(answer.text, "Done.");
    assert_eq!(answer.stop_reason.as_deref(), Some("end_turn"));
    let requests = place.messages();
    assert_eq!(requests.len(), 3);
    for request in &requests[1..] {
        assert_eq!(request.body["container"]["id"], "container_1");
        let last = request.messages().last().unwrap();
        assert_eq!(last["role"], "assistant", "{last:#}");
    }
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_calls_in_a_refusal_are_not_run() {
    let refused = bash_use("srvtoolu_1", "ls")
        .tool_use("toolu_1", "local_bash_tool", bash("touch ran"))
        .stop_reason("refusal")
        .container(container("container_1"));
    let place = Place::new(Script::new().reply(refused), &[]).await;
    let session = place.anthropic([local(), place.hosted(xlsx())]).await;
    let answer = in_time(session.chat("Go on.")).await.unwrap();
    assert_eq!(answer.stop_reason.as_deref(), Some("refusal"));
    assert!(!place.workspace.work().join("ran").exists());
    assert_eq!(place.messages().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_call_from_inside_the_container_is_answered_with_its_container_and_its_caller() {
    let mut call = ToolBlock::new("toolu_1", "local_bash_tool", bash("echo one"));
    call.caller = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_1"});
    let script = Script::new()
        .reply(
            Message::new()
                .reasoning("Hm.")
                .server_tool_use("srvtoolu_1", "code_execution", json!({"code": "call()"}))
                .block(Block::ToolUse(call.clone()))
                .container(container("container_1")),
        )
        .reply(
            Message::new()
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
                .text("Done."),
        )
        .reply(Message::new().text("Bye."));
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([local(), place.hosted(xlsx())]).await;
    in_time(session.chat("Go on.")).await.unwrap();
    in_time(session.chat("Thank you.")).await.unwrap();
    for request in &place.messages()[1..] {
        assert_eq!(request.body["container"]["id"], "container_1");
        let blocks = blocks(request);
        assert_eq!(blocks[1]["thinking"], "Hm.", "{blocks:#?}");
        assert_eq!(blocks[3]["caller"], call.caller, "{blocks:#?}");
    }
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_the_eleventh_pause_ends_the_turn() {
    let script = (0..12).fold(Script::new(), |script, number| {
        let call = format!("srvtoolu_{number}");
        let paused = bash_use(&call, "ls").raw_on(Wire::Anthropic, ran(&call, &[]));
        script.reply(
            paused
                .stop_reason("pause_turn")
                .container(container("container_1")),
        )
    });
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    let error = in_time(session.chat("Go on.")).await.unwrap_err();
    assert!(error.to_string().contains("`max_pauses` = 10"), "{error}");
    assert_eq!(place.messages().len(), 11);
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_an_expired_container_is_given_up_once() {
    let script = Script::new()
        .reply(
            bash_use("srvtoolu_1", "ls")
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
                .text("One.")
                .container(container("container_1")),
        )
        .reply(
            Message::new()
                .text("Two.")
                .container(container("container_2")),
        )
        .reply(Message::new().text("Three."));
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    in_time(session.chat("One?")).await.unwrap();
    place.mock.expire_container("container_1");
    let answer = in_time(session.chat("Two?")).await.unwrap();
    assert_eq!(answer.text, "Two.");
    in_time(session.chat("Three?")).await.unwrap();
    let named: Vec<Value> = place
        .messages()
        .iter()
        .map(|request| request.body["container"]["id"].clone())
        .collect();
    assert_eq!(
        named,
        [
            json!(null),
            json!("container_1"),
            json!(null),
            json!("container_2")
        ]
    );
    assert_eq!(place.rules(), [Rule::ContainerExpired]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_another_error_is_not_sent_again() {
    let script = Script::new()
        .reply(
            Message::new()
                .text("One.")
                .container(container("container_1")),
        )
        .reply(conjure_mock_llm::ErrorReply::new(400).message("messages: wrong"));
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    in_time(session.chat("One?")).await.unwrap();
    let error = in_time(session.chat("Two?")).await.unwrap_err();
    assert!(error.to_string().contains("messages: wrong"), "{error}");
    assert_eq!(place.messages().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_thread_that_goes_on_later_goes_on_in_its_container() {
    let script = Script::new()
        .reply(
            Message::new()
                .text("One.")
                .container(container("container_1")),
        )
        .reply(Message::new().text("Two."));
    let place = Place::new(script, &[]).await;
    let spec = place.spec("anthropic", [place.hosted(xlsx())]);
    let session = place.host.session(spec.clone()).await.unwrap();
    in_time(session.chat("One?")).await.unwrap();
    let thread = session.thread().clone();
    in_time(session.close()).await;
    let session = place.host.resume(spec, thread).await.unwrap();
    in_time(session.chat("Two?")).await.unwrap();
    assert_eq!(place.messages()[1].body["container"]["id"], "container_1");
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_b10_b24_a_file_that_a_skill_made_is_listed_and_fetched_once() {
    let script = Script::new().reply(made("srvtoolu_1", &["file_a", "file_a"]));
    let hosted = Hosted::new().generated_file("file_a", "../../r\u{e9}port.xlsx", "PK table");
    let place = Place::new(script.hosted(hosted), &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    in_time(session.chat("A table.")).await.unwrap();
    let files = session.created_files();
    assert_eq!(files.len(), 1, "{files:?}");
    let file = &files[0];
    assert_eq!((file.source.as_str(), file.size), ("anthropic", Some(8)));
    assert!(!file.name.contains(['/', '\\']), "{}", file.name);
    assert_eq!(file.path, None);
    assert_eq!(place.requests("/content"), 0);
    for _ in 0..2 {
        let path = in_time(session.resolve(&file.id)).await.unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"PK table");
    }
    assert_eq!(place.requests("/content"), 1);
    assert!(in_time(session.resolve("file_a")).await.is_err());
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_b10_a_file_that_nobody_fetched_is_still_to_be_had_when_the_thread_goes_on() {
    let upload = Message::new().tool_use(
        "call_1",
        "anthropic_upload_files",
        json!({ "files": ["data.csv"] }),
    );
    let script = Script::new()
        .reply(made("srvtoolu_1", &["file_a"]))
        .reply(upload)
        .reply(Message::new().text("It is there."))
        .reply(Message::new().text("Two."));
    let hosted = Hosted::new().generated_file("file_a", "report.xlsx", "PK table");
    let place = Place::new(script.hosted(hosted), &[]).await;
    let spec = place.spec("anthropic", [place.hosted(xlsx())]);
    let session = place.host.session(spec.clone()).await.unwrap();
    std::fs::write(place.workspace.work().join("data.csv"), "a,b").unwrap();
    in_time(session.chat("A table.")).await.unwrap();
    in_time(session.chat("And this.")).await.unwrap();
    let thread = session.thread().clone();
    in_time(session.close()).await;
    assert_eq!(place.requests("/content"), 0);

    let session = place.host.resume(spec, thread).await.unwrap();
    let files = session.created_files();
    assert_eq!(files.len(), 1, "{files:?}");
    let path = in_time(session.resolve("report.xlsx")).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"PK table");
    in_time(session.chat("Two?")).await.unwrap();
    let last = place.messages().pop().unwrap();
    let told = last.body["messages"].to_string();
    assert!(told.contains("container_upload"), "{told}");
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn p15_a_file_that_is_gone_withheld_or_cut_short_is_an_error_and_leaves_nothing() {
    use conjure_mock_llm::StoredFile;
    let expired = StoredFile {
        bytes: None,
        ..StoredFile::new("file_a", "a", "", true)
    };
    let withheld = StoredFile::new("file_b", "b", "b", false);
    let short = StoredFile {
        reported_size: Some(9),
        ..StoredFile::new("file_c", "c", "short", true)
    };
    let hosted = Hosted::new().file(expired).file(withheld).file(short);
    let script = Script::new().reply(made("srvtoolu_1", &["file_a", "file_b", "file_c"]));
    let place = Place::new(script.hosted(hosted), &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    in_time(session.chat("Files.")).await.unwrap();
    for (file, why) in session.created_files().iter().zip([
        "no longer at Anthropic",
        "only files that code execution made",
        "9 bytes, but 5 came",
    ]) {
        let error = in_time(session.resolve(&file.id)).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_a_local_file_is_uploaded_and_stands_in_the_next_request() {
    let script = Script::new()
        .reply(Message::new().tool_use(
            "toolu_1",
            "anthropic_upload_files",
            json!({"files": ["data.csv", "data.csv"]}),
        ))
        .reply(
            bash_use("srvtoolu_1", "ls")
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
                .text("Read.")
                .container(container("container_1")),
        )
        .reply(Message::new().text("Still there."));
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    std::fs::write(place.workspace.work().join("data.csv"), "a,b\n1,2\n").unwrap();
    in_time(session.chat("Read data.csv.")).await.unwrap();
    in_time(session.chat("And now?")).await.unwrap();
    let hosted = place.mock.hosted();
    let [file] = hosted.files() else {
        panic!("{:?}", hosted.files())
    };
    assert_eq!(file.name, "data.csv");
    assert_eq!(file.bytes.as_deref(), Some(b"a,b\n1,2\n".as_slice()));
    let requests = place.messages();
    let upload = json!({"type": "container_upload", "file_id": file.id});
    let uploads = |at: usize| -> usize {
        let blocks = blocks(&requests[at]);
        blocks.iter().filter(|block| **block == upload).count()
    };
    assert_eq!([uploads(0), uploads(1), uploads(2)], [0, 1, 1]);
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_an_upload_stays_where_it_happened_and_no_request_begins_otherwise_than_the_one_before()
{
    let upload = |id: &str, file: &str| {
        Message::new().tool_use(id, "anthropic_upload_files", json!({ "files": [file] }))
    };
    let mixed = bash_use("srvtoolu_1", "ls")
        .tool_use(
            "toolu_2",
            "anthropic_upload_files",
            json!({"files": ["b.csv"]}),
        )
        .container(container("container_1"));
    let script = Script::new()
        .reply(upload("toolu_1", "a.csv"))
        .reply(mixed)
        .reply(
            Message::new()
                .raw_on(Wire::Anthropic, ran("srvtoolu_1", &[]))
                .text("Both are there."),
        )
        .reply(upload("toolu_3", "c.csv"))
        .reply(Message::new().text("All three."))
        .reply(Message::new().text("Still."));
    let place = Place::new(script, &[]).await;
    let spec = place.spec("anthropic", [place.hosted(xlsx())]);
    let session = place.host.session(spec.clone()).await.unwrap();
    for file in ["a.csv", "b.csv", "c.csv"] {
        std::fs::write(place.workspace.work().join(file), file).unwrap();
    }
    for said in ["Upload a and b.", "And c."] {
        in_time(session.chat(said)).await.unwrap();
    }
    // Also when another host goes on with the thread.
    let thread = session.thread().clone();
    in_time(session.close()).await;
    let session = place.host.resume(spec, thread).await.unwrap();
    in_time(session.chat("And now?")).await.unwrap();

    let sent: Vec<Vec<Value>> = place.messages().iter().map(|it| unmarked(it)).collect();
    assert_eq!(sent.len(), 6);
    for (shorter, longer) in sent.iter().zip(&sent[1..]) {
        let (before, after) = (json!(shorter).to_string(), json!(longer).to_string());
        let before = before.trim_end_matches(']');
        assert!(after.starts_with(before), "{before}\n{after}");
    }
    let uploads: Vec<(usize, usize)> = sent[5]
        .iter()
        .enumerate()
        .map(|(at, message)| {
            let blocks = message["content"].as_array().unwrap().iter();
            let uploads = blocks.filter(|block| block["type"] == "container_upload");
            (at, uploads.count())
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    // The second call is part of a mixed reply, whose answer may hold results only.
    assert_eq!(uploads, [(2, 1), (6, 1), (8, 1)]);
    place.no_violations();
}

/// The messages of a request without the marks of the cache, which move.
fn unmarked(request: &conjure_mock_llm::Request) -> Vec<Value> {
    let mut messages = request.messages().to_vec();
    let blocks = messages
        .iter_mut()
        .filter_map(|message| message["content"].as_array_mut())
        .flatten();
    for fields in blocks.filter_map(Value::as_object_mut) {
        fields.shift_remove("cache_control");
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_what_cannot_be_uploaded_is_an_error_result() {
    let call = |id: &str, files: Value| {
        Message::new().tool_use(id, "anthropic_upload_files", json!({ "files": files }))
    };
    let script = Script::new()
        .reply(call("toolu_1", json!(["no-such-file"])))
        .reply(call("toolu_2", json!(["/etc/passwd"])))
        .reply(call("toolu_3", json!([])))
        .reply(call("toolu_4", json!(["empty"])))
        .reply(Message::new().text("Well."));
    let place = Place::new(script, &[]).await;
    let session = place.anthropic([place.hosted(xlsx())]).await;
    std::fs::write(place.workspace.work().join("empty"), "").unwrap();
    in_time(session.chat("Upload.")).await.unwrap();
    let requests = place.messages();
    for (number, why) in [
        (1, "no file `no-such-file`"),
        (2, "no file `/etc/passwd`"),
        (3, "nothing to upload"),
        (4, "1 byte to"),
    ] {
        let seen = crate::stage::result(&requests[number], &format!("toolu_{number}"));
        assert!(seen.is_error && seen.text.contains(why), "{seen:?}");
    }
    assert_eq!(place.mock.hosted().files(), []);
    place.no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn b15_too_many_skills_are_refused_before_any_request() {
    let place = Place::new(Script::new(), &[]).await;
    let skills: Vec<String> = (0..21).map(|number| format!("skill_{number}")).collect();
    let spec = place.spec("anthropic", [place.hosted(json!(skills))]);
    let error = place.host.session(spec).await.err().unwrap();
    assert!(error.to_string().contains("at most 20"), "{error}");
    assert_eq!(place.mock.requests().len(), 0);
}
