//! Replies that a provider ends or fills oddly, as `conjure run` takes them: what is whole runs, what
//! is malformed is refused, and an address where nothing is is told with what to look at.

use conjure_kit::{Model, Workspace};
use conjure_mock_llm::{CutAt, CutHow, ErrorReply, Faults, Message, Position, Reply, Wire};
use serde_json::json;

use crate::stage::{CACHE, conjure, json as parsed, json_lines, workspace};

/// `conjure run` with this provider on its own wire.
fn run(workspace: &Workspace, model: &Model, provider: &str, key: &str) -> conjure_kit::Output {
    let args = format!(
        "run --allow * --provider {provider} --model a-model --base-url {} Go.",
        model.base_url()
    );
    conjure(workspace, &args).env(key, "k").run().unwrap()
}

#[test]
fn a_call_runs_when_a_chat_stream_tells_its_tokens_and_its_end_but_not_why() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let faults = Faults {
        leave_out: vec!["finish".to_owned()],
        ..Faults::default()
    };
    let call = Message::new().tool_use(
        "call_1",
        "cache-manager_execute",
        json!({ "command": "set city Lyon" }),
    );
    model.says(call.faults(faults));
    model.says(Message::new().text("Done."));
    let output = run(&workspace, &model, "openrouter", "OPENROUTER_API_KEY");
    assert_eq!(output.stdout, "Done.\n", "{output:?}");
    let result = &model.last_request().body["messages"];
    assert!(!result.to_string().contains("not run"), "{result}");
}

#[test]
fn a_reply_without_a_word_is_told_as_one() {
    let workspace = workspace(&[]);
    for (reason, code, words) in [
        ("end_turn", 0, "the model answered nothing"),
        (
            "max_tokens",
            4,
            "cut short by the provider (max_tokens); no text came",
        ),
    ] {
        let model = Model::start().unwrap();
        model.says(Message::new().stop_reason(reason));
        let output = run(&workspace, &model, "anthropic", "ANTHROPIC_API_KEY");
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.stderr.contains(words), "{reason}: {output:?}");
    }
}

#[test]
fn malformed_arguments_of_gemini_are_refused_and_told_to_the_model() {
    let workspace = workspace(&[CACHE]);
    for call in [
        json!({"name": "cache-manager_execute", "partialArgs": "{\"command\": \"list\"}"}),
        json!({"name": "cache-manager_execute", "willContinue": true}),
    ] {
        let model = Model::start().unwrap();
        let part = json!({ "functionCall": call });
        model.says(Message::new().raw_on(Wire::Gemini, part));
        model.says(Message::new().text("Sorry."));
        let output = run(&workspace, &model, "gemini", "GEMINI_API_KEY");
        assert_eq!(output.stdout, "Sorry.\n", "{output:?}");
        let told = model.last_request().body.to_string();
        assert!(told.contains("arguments are not a JSON object"), "{told}");
    }
}

#[test]
fn an_address_where_nothing_is_is_told_with_the_model_on_every_wire() {
    let workspace = workspace(&[]);
    for (provider, key) in [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
    ] {
        let model = Model::start().unwrap();
        model.says(ErrorReply::new(404));
        let output = run(&workspace, &model, provider, key);
        assert_eq!(output.code, Some(3), "{output:?}");
        let words = "Check that the provider has the model `a-model` (`conjure models` lists what \
                     it has), and that the base URL";
        assert!(output.stderr.contains(words), "{provider}: {output:?}");
        let address = model.base_url();
        assert!(output.stderr.contains(&address), "{provider}: {output:?}");
        assert_eq!(model.requests().len(), 1, "{provider}");
    }
}

#[test]
fn a_stream_that_is_cut_while_a_call_is_written_is_asked_for_again() {
    let workspace = workspace(&[CACHE]);
    for how in [CutHow::Reset, CutHow::Eof, CutHow::End] {
        let model = Model::start().unwrap();
        let call = || {
            Message::new().tool_use(
                "toolu_1",
                "cache-manager_execute",
                json!({ "command": "set city Lyon" }),
            )
        };
        // The start of the message, of the call, and a part of its arguments.
        model.says(Reply::from(call()).cut(CutAt::Events(3), how));
        model.says(call());
        model.says(Message::new().text("Done."));
        let output = run(&workspace, &model, "anthropic", "ANTHROPIC_API_KEY");
        assert_eq!(output.stdout, "Done.\n", "{how:?}: {output:?}");
        assert_eq!(model.requests().len(), 3, "{how:?}");
        let result = model.last_request().tool_result_text("toolu_1");
        assert_eq!(result.as_deref(), Some("stored"), "{how:?}");
    }
}

#[test]
fn a_stream_that_stalls_while_a_call_is_written_is_asked_for_again_and_both_attempts_are_paid() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let config = format!(
        "provider = \"anthropic\"\nmodel = \"a-model\"\nbase_url = \"{}\"\n\
         [http]\nidle_timeout_ms = 400\n[[backend]]\nkind = \"native\"\n",
        model.base_url()
    );
    workspace.write("session.toml", config).unwrap();
    let call = || {
        Message::new().tool_use(
            "toolu_1",
            "cache-manager_execute",
            json!({ "command": "set city Lyon" }),
        )
    };
    model.says(Reply::from(call()).hang(Position::Event(3)));
    model.says(call());
    model.says(Message::new().text("Done."));
    let output = conjure(&workspace, "run --allow * --config session.toml Go.")
        .env("ANTHROPIC_API_KEY", "k")
        .run()
        .unwrap();
    assert_eq!(output.stdout, "Done.\n", "{output:?}");
    assert_eq!(model.requests().len(), 3);
    let result = model.last_request().tool_result_text("toolu_1");
    assert_eq!(result.as_deref(), Some("stored"));
    assert!(output.stderr.contains("Attempt 2 of 4"), "{output:?}");
    assert!(!output.stderr.contains("What came is kept"), "{output:?}");
    assert!(!output.stderr.contains("again to go on"), "{output:?}");

    let listed = parsed(&conjure(&workspace, "thread list --json").run().unwrap());
    let thread = listed["threads"][0]["id"].as_str().unwrap();
    let shown = conjure(&workspace, &format!("thread show {thread} --json"));
    let entries = json_lines(&shown.run().unwrap());
    let input = |kind: &str| -> Vec<u64> {
        let entries = entries.iter().filter(|entry| entry["entry"] == kind);
        let metas = entries.map(|entry| match kind {
            "message" => &entry["message"]["_meta"],
            _ => &entry["_meta"],
        });
        metas
            .filter_map(|meta| meta["usage"]["input"].as_u64())
            .collect()
    };
    let (replies, spent) = (input("message"), input("spent"));
    assert_eq!(spent, [replies[0]], "{entries:#?}");
    let ended = entries.iter().find(|entry| entry["entry"] == "turn_ended");
    let sum: u64 = replies.iter().chain(&spent).sum();
    assert_eq!(ended.unwrap()["usage"]["input"], sum, "{entries:#?}");
}
