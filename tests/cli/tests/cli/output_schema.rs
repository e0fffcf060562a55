//! `--output-schema`: the answer is one JSON value that fits a schema, and nothing else is printed.

use conjure_kit::{Cli, Model, Workspace};
use conjure_mock_llm::{Message, Wire};
use serde_json::{Value, json};

use crate::session::{DATA, done, ok};
use crate::stage::{conjure, json as parsed, json_lines, workspace};

fn schema(workspace: &Workspace) -> Value {
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "people": { "type": "integer", "minimum": 1 } },
        "required": ["city", "people"],
        "additionalProperties": false,
    });
    workspace.write("form.json", schema.to_string()).unwrap();
    schema
}

fn run(workspace: &Workspace, args: &str) -> Cli {
    conjure(
        workspace,
        &format!("run --output-schema form.json {args} Where?"),
    )
}

/// Where each wire says which form the answer has.
fn form(wire: Wire, body: &Value) -> &Value {
    match wire {
        Wire::Anthropic => &body["output_config"]["format"]["schema"],
        Wire::Responses => &body["text"]["format"]["schema"],
        Wire::Gemini => &body["generationConfig"]["responseJsonSchema"],
        Wire::Chat => &body["response_format"]["json_schema"]["schema"],
    }
}

#[test]
fn on_each_wire_an_answer_that_does_not_fit_is_asked_for_again() {
    let workspace = workspace(&[]);
    schema(&workspace);
    for (provider, key, wire) in [
        ("anthropic", "ANTHROPIC_API_KEY", Wire::Anthropic),
        ("openai", "OPENAI_API_KEY", Wire::Responses),
        ("gemini", "GEMINI_API_KEY", Wire::Gemini),
        ("openai-compatible", "OPENAI_COMPATIBLE_API_KEY", Wire::Chat),
    ] {
        let model = Model::start().unwrap();
        model.says(Message::new().text("In Oslo, I think."));
        model.says(Message::new().text("{\"city\": \"Oslo\", \"people\": 0}"));
        model.says(Message::new().text("{\"city\": \"Oslo\", \"people\": 717710}\n"));
        let args = format!(
            "--provider {provider} --model m --base-url {}",
            model.base_url()
        );
        let output = run(&workspace, &args).env(key, "k").run().unwrap();
        assert_eq!(output.code, Some(0), "{provider}: {output:?}");
        assert_eq!(
            output.stdout, "{\"city\": \"Oslo\", \"people\": 717710}\n",
            "{provider}: {output:?}"
        );
        let requests = model.requests();
        assert_eq!(requests.len(), 3, "{provider}");
        for request in &requests {
            assert_eq!(request.wire(), Some(wire), "{provider}");
            let form = form(wire, &request.body);
            assert_eq!(
                form["properties"]["city"]["type"], "string",
                "{provider}: {}",
                request.body
            );
        }
        let told = |number: usize| requests[number].body.to_string();
        assert!(
            told(1).contains("it is not JSON"),
            "{provider}: {}",
            told(1)
        );
        assert!(
            told(2).contains("0 is less than the minimum of 1"),
            "{provider}: {}",
            told(2)
        );
        assert!(
            told(2).contains("(at `/people`)"),
            "{provider}: {}",
            told(2)
        );
    }
}

#[test]
fn a_value_that_is_no_object_is_asked_for_in_one_and_given_out_without_it() {
    let workspace = workspace(&[]);
    let schema = json!({ "type": "array", "items": { "type": "integer" }, "minItems": 1 });
    workspace.write("form.json", schema.to_string()).unwrap();
    for (provider, key, wire) in [
        ("anthropic", "ANTHROPIC_API_KEY", Wire::Anthropic),
        ("openai", "OPENAI_API_KEY", Wire::Responses),
        ("gemini", "GEMINI_API_KEY", Wire::Gemini),
        ("openai-compatible", "OPENAI_COMPATIBLE_API_KEY", Wire::Chat),
    ] {
        let model = Model::start().unwrap();
        model.says(Message::new().text("{\"value\": [\"three\"]}"));
        model.says(Message::new().text("{\"value\": [3, 4]}"));
        let args = format!(
            "--provider {provider} --model m --base-url {}",
            model.base_url()
        );
        let output = run(&workspace, &args).env(key, "k").run().unwrap();
        assert_eq!(output.code, Some(0), "{provider}: {output:?}");
        assert_eq!(output.stdout, "[3, 4]\n", "{provider}: {output:?}");
        let body = model.last_request().body.clone();
        let form = form(wire, &body);
        assert_eq!(form["type"], "object", "{provider}: {body}");
        assert_eq!(
            form["properties"]["value"]["items"]["type"], "integer",
            "{provider}: {body}"
        );
        let told = body.to_string();
        assert!(told.contains("(at `/value/0`)"), "{provider}: {told}");
    }
    // The log has the value, and replays.
    let threads = parsed(&done(&workspace, "thread list --json"));
    let threads = threads["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 4, "{threads:#?}");
    for thread in threads {
        let id = thread["id"].as_str().unwrap();
        let shown = ok(conjure(&workspace, &format!("thread show {id} --json")));
        assert!(shown.stdout.contains("[3, 4]"), "{shown:?}");
        assert!(!shown.stdout.contains("\\\"value\\\": [3"), "{shown:?}");
        let file = workspace.root().join(format!("{id}.json"));
        let file = file.display();
        let export = format!("thread export {id} --cassette {file}");
        done(&workspace, &export);
        done(&workspace, &format!("replay {file}"));
    }
}

#[test]
fn a_model_without_schemas_is_told_the_form_in_words() {
    let workspace = workspace(&[]);
    schema(&workspace);
    let model = Model::start().unwrap();
    model.says(Message::new().text("{\"city\": \"Oslo\", \"people\": 2}"));
    let args = format!(
        "--provider deepseek --model m --base-url {}",
        model.base_url()
    );
    let output = run(&workspace, &args)
        .env("DEEPSEEK_API_KEY", "k")
        .run()
        .unwrap();
    assert_eq!(
        output.stdout, "{\"city\": \"Oslo\", \"people\": 2}\n",
        "{output:?}"
    );
    let body = model.last_request().body.to_string();
    assert!(
        body.contains("fits this JSON Schema, and nothing else"),
        "{body}"
    );
}

#[test]
fn a_form_that_the_api_rejects_is_asked_for_in_words() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let open = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    let nested = json!({ "type": "object", "properties": { "people": open } });
    for (schema, answer) in [
        (open, "{\"Oslo\": 717710}"),
        (nested, "{\"people\": {\"Oslo\": 717710}}"),
    ] {
        workspace.write("form.json", schema.to_string()).unwrap();
        model.says(Message::new().text(answer));
        let output = ok(run(&workspace, "--provider anthropic --model m").model(&model));
        assert_eq!(output.stdout, format!("{answer}\n"), "{output:?}");
        let body = model.last_request().body.clone();
        assert_eq!(body["output_config"], Value::Null, "{body}");
        let system = body["system"].to_string();
        assert!(system.contains("fits this JSON Schema"), "{system}");
    }
}

#[test]
fn an_answer_that_never_fits_is_an_error_and_nothing_is_printed() {
    let workspace = workspace(&[]);
    schema(&workspace);
    let model = Model::start().unwrap();
    for _ in 0..3 {
        model.says(Message::new().text("In Oslo."));
    }
    let output = run(&workspace, "--provider anthropic --model m").model(&model);
    let output = output.run().unwrap();
    assert_eq!(output.code, Some(3), "{output:?}");
    assert_eq!(output.stdout, "");
    assert!(output.stderr.contains("answered 3 times"), "{output:?}");
    assert_eq!(model.requests().len(), 3);
    // A limit of the turn holds for what is asked again.
    model.says(Message::new().text("In Oslo."));
    let limited = "--provider anthropic --model m --max-iterations 1";
    let output = run(&workspace, limited).model(&model).run().unwrap();
    assert_eq!((output.code, &*output.stdout), (Some(4), ""), "{output:?}");
    assert_eq!(model.requests().len(), 4);
    // In events too.
    for _ in 0..3 {
        model.says(Message::new().text("In Oslo."));
    }
    let output = run(&workspace, "--json --provider anthropic --model m").model(&model);
    let lines = json_lines(&output.run().unwrap());
    let failed = lines.iter().find(|line| line["kind"] == "unfit_answer");
    assert!(failed.is_some(), "{lines:#?}");
}

#[test]
fn a_schema_that_is_none_is_wrong_usage_before_anything_is_asked() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    for (text, words) in [
        ("{", "EOF while parsing"),
        ("[]", "is not of type"),
        ("false", "no value fits"),
        (
            "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"strin\"}}}",
            "strin",
        ),
    ] {
        workspace.write("form.json", text).unwrap();
        let output = run(&workspace, "--provider anthropic --model m").model(&model);
        let output = output.run().unwrap();
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
        assert!(
            output.stderr.contains("--output-schema form.json"),
            "{output:?}"
        );
    }
    assert!(model.requests().is_empty());
}

#[test]
fn a_saved_session_answers_in_a_form_here_and_at_a_server() {
    let model = Model::start().unwrap();
    let workspace = workspace(&[]);
    schema(&workspace);
    let auth = format!(
        "auth create work --provider anthropic --base-url {}",
        model.base_url()
    );
    ok(conjure(&workspace, &auth).stdin("sk-a-key-of-a-test"));
    done(&workspace, "session create site --auth work --model m");
    let answers = || {
        model.says(Message::new().text("In Oslo."));
        model.says(Message::new().text("{\"city\": \"Oslo\", \"people\": 3}"));
        let output = ok(run(&workspace, "--session site"));
        assert_eq!(
            output.stdout, "{\"city\": \"Oslo\", \"people\": 3}\n",
            "{output:?}"
        );
    };
    answers();
    let server = conjure(&workspace, "serve --listen 127.0.0.1:0 --json")
        .start()
        .unwrap();
    server.wait_for_lines(1).unwrap();
    assert!(workspace.home().join(DATA).join("serve.json").exists());
    answers();
    // The next turn is free again, and a turn is one run with one answer.
    model.says(Message::new().text("As I like."));
    let free = ok(conjure(&workspace, "run --session site And?"));
    assert_eq!(free.stdout, "As I like.\n", "{free:?}");
    assert_eq!(model.last_request().body["output_config"], Value::Null);
    let turns = parsed(&done(&workspace, "session turns site --json"));
    let turns = turns["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 3, "{turns:#?}");
    for _ in 0..3 {
        model.says(Message::new().text("In Oslo."));
    }
    let output = run(&workspace, "--session site").run().unwrap();
    assert_eq!((output.code, &*output.stdout), (Some(3), ""), "{output:?}");
    // What does not fit is no answer.
    for _ in 0..3 {
        model.says(Message::new().text("In Oslo."));
    }
    let output = run(&workspace, "--json --session site").run().unwrap();
    let lines = json_lines(&output);
    let result = lines.iter().find(|line| line["type"] == "result").unwrap();
    let told = (&result["state"], &result["text"]);
    assert_eq!(told, (&json!("failed"), &Value::Null), "{result}");
}
