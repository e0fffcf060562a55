//! Files that go with a question: shown to the model on every wire, files of the thread for tools,
//! and refused in words where they cannot be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_kit::{Model, Output, Signal, Workspace};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::stage::{LOCAL, conjure, json as parsed, json_lines, workspace};

/// An image of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==";

/// A working directory with an image and a text.
fn stage(plugins: &[&str]) -> Workspace {
    let workspace = workspace(plugins);
    let image = STANDARD.decode(PNG).unwrap();
    std::fs::write(workspace.work().join("plan.png"), image).unwrap();
    workspace.write("notes.csv", "lamp,on\n").unwrap();
    workspace
}

fn run(workspace: &Workspace, model: &Model, args: &str) -> Output {
    let address = model.base_url();
    let args = format!("run --allow * --model a-model --base-url {address} {args}");
    let keys = ["ANTHROPIC", "OPENAI", "OPENROUTER", "GEMINI", "MISTRAL"];
    let run = conjure(workspace, &args);
    let run = keys
        .iter()
        .fold(run, |run, name| run.env(format!("{name}_API_KEY"), "k"));
    run.run().unwrap()
}

#[test]
fn every_wire_shows_an_image_and_a_text_before_the_question() {
    let url = format!("data:image/png;base64,{PNG}");
    for (provider, path, image) in [
        (
            "anthropic",
            "/messages/0/content",
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
        ),
        (
            "openai",
            "/input/0/content",
            json!({"type": "input_image", "image_url": url}),
        ),
        (
            "openrouter",
            "/messages/1/content",
            json!({"type": "image_url", "image_url": {"url": url}}),
        ),
        (
            "gemini",
            "/contents/0/parts",
            json!({"inlineData": {"mimeType": "image/png", "data": PNG}}),
        ),
    ] {
        let workspace = stage(&[]);
        let model = Model::start().unwrap();
        model.says(Message::new().text("A lamp."));
        let args = format!("--provider {provider} --file notes.csv --image plan.png What?");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.stdout, "A lamp.\n", "{provider}: {output:?}");
        let body = &model.last_request().body;
        let first = body.pointer(path).and_then(Value::as_array);
        let parts = first.unwrap_or_else(|| panic!("{provider}: {body}"));
        let at = |wanted: &dyn Fn(&Value) -> bool| parts.iter().position(wanted);
        // What a wire adds beside it, such as a mark of the cache, does not matter.
        let is_image = |part: &Value| {
            let fields = image.as_object().unwrap();
            fields.iter().all(|(name, value)| &part[name] == value)
        };
        let text = at(&|part| part.to_string().contains("lamp,on"));
        let seen = at(&is_image);
        let asked = at(&|part| part.to_string().contains("What?"));
        assert!(text.is_some(), "{provider}: {body}");
        assert!(text < seen && seen < asked, "{provider}: {body}");
    }
}

#[test]
fn what_was_attached_is_a_file_of_the_thread_that_tools_open_and_later_turns_show() {
    let workspace = stage(&[LOCAL]);
    let model = Model::start().unwrap();
    let call = json!({ "command": "wc -c file-1", "description": "" });
    model.calls("call_1", "local_bash_tool", call);
    model.says(Message::new().text("It has 70."));
    let said = run(
        &workspace,
        &model,
        "--provider anthropic --executor local --json --image plan.png Look.",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    let result = model.last_request().tool_result_text("call_1").unwrap();
    assert!(result.contains("70 "), "{result}");
    let last = json_lines(&said).pop().unwrap();
    let thread = last["thread"].as_str().unwrap().to_owned();
    let files = conjure(&workspace, &format!("files list {thread} --json"));
    let files = parsed(&files.run().unwrap());
    let file = &files[0];
    assert_eq!(
        (&file["name"], &file["source"], &file["media_type"]),
        (&json!("plan.png"), &json!("person"), &json!("image/png")),
        "{files}"
    );
    model.says(Message::new().text("Still there."));
    let again = run(
        &workspace,
        &model,
        &format!("--provider openai --thread {thread} Again."),
    );
    assert_eq!(again.stdout, "Still there.\n", "{again:?}");
    let body = model.last_request().body.to_string();
    assert!(body.contains(PNG), "{body}");
}

#[test]
fn standard_input_is_a_file_where_it_is_asked_for() {
    let workspace = stage(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Three errors."));
    let args = format!(
        "run --provider anthropic --model a-model --base-url {} --file - Count.",
        model.base_url()
    );
    let run = conjure(&workspace, &args).env("ANTHROPIC_API_KEY", "k");
    let output = run.stdin("ERROR a\nERROR b\n").run().unwrap();
    assert_eq!(output.stdout, "Three errors.\n", "{output:?}");
    let body = model.last_request().body.to_string();
    assert!(
        body.contains("ERROR b") && body.contains("[file: stdin, text/plain, 16 bytes, id file-1]"),
        "{body}"
    );
}

#[test]
fn a_signal_ends_the_wait_for_a_pipe_of_which_nothing_comes() {
    let workspace = stage(&[]);
    let pipe = workspace.work().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let model = Model::start().unwrap();
    let args = format!(
        "run --provider anthropic --model a-model --base-url {} --file pipe Look.",
        model.base_url()
    );
    let run = conjure(&workspace, &args).env("ANTHROPIC_API_KEY", "k");
    let running = run.start().unwrap();
    // Opened as soon as somebody reads it, and nothing is written.
    let writer = std::fs::OpenOptions::new().write(true).open(&pipe);
    let writer = writer.unwrap();
    running.signal(Signal::TERM);
    let output = running.wait().unwrap();
    drop(writer);
    assert_ne!(output.code, Some(0), "{output:?}");
    assert!(model.requests().is_empty());
}

#[test]
fn what_cannot_be_attached_is_refused_before_anything_is_sent() {
    let workspace = stage(&[]);
    workspace.write("empty", "").unwrap();
    let model = Model::start().unwrap();
    for (args, words) in [
        ("--image notes.csv", "is no image that a model can look at"),
        ("--file no-such-file", "no-such-file"),
        ("--file .", "is a directory"),
        ("--file empty", "is empty"),
        ("--file /dev/null", "is neither a file nor a pipe"),
    ] {
        let args = format!("--provider anthropic {args} Look.");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        assert!(output.stderr.contains(words), "{args}: {output:?}");
    }
    assert!(model.requests().is_empty());
}

#[test]
fn of_a_pdf_that_no_provider_takes_the_model_reads_the_name() {
    let head = "%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n";
    let pdf = |trailer: &str| {
        let at = head.len();
        format!(
            "{head}xref\n0 1\n0000000000 65535 f \ntrailer\n<< {trailer} >>\nstartxref\n{at}\n%%EOF"
        )
    };
    let workspace = workspace(&[]);
    let long = format!("%PDF-1.7\n{}", "x".repeat(4_000_000));
    for (name, text, why) in [
        ("open.pdf", pdf("/Root 1 0 R"), None),
        (
            "locked.pdf",
            pdf("/Root 1 0 R /Encrypt 2 0 R"),
            Some("it is encrypted, and providers refuse that"),
        ),
        ("long.pdf", long, Some("a PDF of at most 3.75 MB is shown")),
    ] {
        workspace.write(name, text).unwrap();
        let model = Model::start().unwrap();
        model.says(Message::new().text("A plan."));
        let args = format!("--provider anthropic --file {name} What?");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.code, Some(0), "{name}: {output:?}");
        let body = model.last_request().body.to_string();
        assert!(body.contains(name), "{name}: {body}");
        let is_shown = body.contains("\"document\"");
        assert_eq!(is_shown, why.is_none(), "{name}: {body}");
        let told = why.is_none_or(|why| output.stderr.contains(why));
        assert!(told, "{name}: {output:?}");
    }
}

#[test]
fn of_every_file_that_no_model_is_shown_the_person_is_told() {
    let workspace = stage(&[]);
    let image = STANDARD.decode(PNG).unwrap();
    // The header says how wide it is.
    let mut wide = image.clone();
    wide[16..20].copy_from_slice(&9_000_u32.to_be_bytes());
    let mut large = image;
    large.resize(4_000_000, 0);
    for (name, bytes, why) in [
        ("wide.png", wide, "more than 8,000 pixels on a side"),
        ("large.png", large, "an image of at most 3.75 MB is shown"),
        ("photo.tiff", b"II*\0photo".to_vec(), "it is image/tiff"),
        ("photo.bmp", b"BM\0photo".to_vec(), "it is image/bmp"),
        (
            "long.txt",
            vec![b'x'; 300_000],
            "a text of at most 262,144 bytes is shown",
        ),
        ("all.zip", b"PK\0all".to_vec(), "it is application/zip"),
    ] {
        std::fs::write(workspace.work().join(name), bytes).unwrap();
        let model = Model::start().unwrap();
        model.says(Message::new().text("A name."));
        let args = format!("--provider anthropic --file {name} What?");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.code, Some(0), "{name}: {output:?}");
        let note = format!("note: the model reads only the name of `{name}`: ");
        let told = output.stderr.lines().find(|line| line.starts_with(&note));
        assert!(told.is_some_and(|line| line.contains(why)), "{output:?}");
    }
    let model = Model::start().unwrap();
    model.says(Message::new().text("A lamp."));
    let args = "--provider anthropic --file notes.csv --file plan.png What?";
    let output = run(&workspace, &model, args);
    assert!(!output.stderr.contains("note:"), "what it sees: {output:?}");
}

#[test]
fn why_a_file_is_not_shown_is_data_in_the_thread_and_words_for_who_reads_it() {
    let workspace = stage(&[]);
    std::fs::write(workspace.work().join("all.zip"), b"PK\0all").unwrap();
    let model = Model::start().unwrap();
    model.says(Message::new().text("A name."));
    let output = run(
        &workspace,
        &model,
        "--provider anthropic --file all.zip What?",
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let listed = parsed(&conjure(&workspace, "thread list --json").run().unwrap());
    let thread = listed["threads"][0]["id"].as_str().unwrap();
    let shown = conjure(&workspace, &format!("thread show {thread} --json"));
    let entries = json_lines(&shown.run().unwrap());
    let notices = entries.iter().filter(|entry| entry["entry"] == "notice");
    let reasons: Vec<&Value> = notices.map(|entry| &entry["reason"]).collect();
    let not_taken = json!({ "kind": "media_type", "media_type": "application/zip" });
    let files = json!([{ "name": "all.zip", "reason": not_taken }]);
    assert_eq!(
        reasons,
        [&json!({ "kind": "files_unshown", "files": files })]
    );
    let shown = conjure(&workspace, &format!("thread show {thread}"));
    let shown = shown.run().unwrap();
    let note = "note: the model reads only the name of `all.zip`: it is application/zip, and";
    assert!(shown.stdout.contains(note), "{shown:?}");
}

#[test]
fn of_many_files_the_person_and_the_model_are_told_which_are_not_shown() {
    let workspace = stage(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Plans."));
    let image = STANDARD.decode(PNG).unwrap();
    let mut args = "--provider anthropic".to_owned();
    for number in 1..=22 {
        let name = format!("plan-{number}.png");
        std::fs::write(workspace.work().join(&name), &image).unwrap();
        args.push_str(&format!(" --image {name}"));
    }
    let output = run(&workspace, &model, &format!("{args} What?"));
    assert_eq!(output.code, Some(0), "{output:?}");
    let note = "note: the model reads only the names of `plan-1.png` and `plan-2.png`: a request carries at \
                most 20 images; attach fewer at once. Tools open them";
    let notes = output.stderr.lines().filter(|line| line.contains("note:"));
    assert_eq!(notes.collect::<Vec<_>>(), [note], "{output:?}");
    let body = model.last_request().body.to_string();
    assert_eq!(body.matches("\"type\":\"image\"").count(), 20, "{body}");
    let told = body.matches("what is in it is not shown here").count();
    assert_eq!(told, 2, "{body}");
}

#[test]
fn a_text_is_shown_in_whatever_encoding_it_is_and_else_the_person_is_told() {
    let workspace = stage(&[]);
    let utf16 = "Grüße\n".encode_utf16().flat_map(u16::to_le_bytes);
    for (name, bytes, is_shown) in [
        ("latin.txt", b"Gr\xfc\xdfe\n".to_vec(), false),
        (
            "wide.txt",
            [0xff, 0xfe].into_iter().chain(utf16).collect(),
            true,
        ),
        ("other.txt", b"\xf0\xd2\xc9\xd7\xc5\xd4\n".to_vec(), false),
    ] {
        std::fs::write(workspace.work().join(name), bytes).unwrap();
        let model = Model::start().unwrap();
        model.says(Message::new().text("A greeting."));
        let args = format!("--provider anthropic --file {name} What?");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.code, Some(0), "{name}: {output:?}");
        let body = model.last_request().body.to_string();
        assert_eq!(body.contains("Grüße"), is_shown, "{name}: {body}");
        let told = output.stderr.contains("its encoding is not known");
        assert_eq!(told, !is_shown, "{name}: {output:?}");
    }
}

#[test]
fn in_a_saved_session_too_the_person_is_told_what_the_model_is_not_shown() {
    let model = Model::start().unwrap();
    let workspace = stage(&[]);
    std::fs::write(workspace.work().join("other.txt"), b"f\xfcr\n").unwrap();
    let url = model.base_url();
    let auth = format!("auth create work --provider anthropic --base-url {url}");
    let saved = conjure(&workspace, &auth).stdin("a-key-of-a-test");
    assert_eq!(saved.run().unwrap().code, Some(0));
    let made = conjure(&workspace, "session create s --auth work --model a-model");
    assert_eq!(made.run().unwrap().code, Some(0));
    model.says(Message::new().text("A word."));
    let asked = conjure(&workspace, "run --session s --file other.txt What?");
    let output = asked.run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let note = "note: the model reads only the name of `other.txt`: its encoding is not known";
    assert!(output.stderr.contains(note), "{output:?}");
}

#[test]
fn what_a_wire_does_not_carry_the_person_is_told() {
    let workspace = stage(&[]);
    let gif = b"GIF89a\x01\0\x01\0\0\0\0";
    std::fs::write(workspace.work().join("plan.gif"), gif).unwrap();
    let pdf = "%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n";
    workspace.write("plan.pdf", pdf).unwrap();
    for (provider, name, why) in [
        ("gemini", "plan.gif", "the Gemini API looks at no GIF"),
        (
            "mistral",
            "plan.pdf",
            "the model `a-model` is not sent PDFs",
        ),
    ] {
        let model = Model::start().unwrap();
        model.says(Message::new().text("A plan."));
        let args = format!("--provider {provider} --file {name} What?");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.code, Some(0), "{name}: {output:?}");
        let note = format!("note: the model reads only the name of `{name}`: {why}");
        let told = output.stderr.lines().any(|line| line.starts_with(&note));
        assert!(told, "{name}: {output:?}");
    }
}

#[test]
fn a_model_that_cannot_look_at_images_is_told_of_them_in_words() {
    let workspace = stage(&[]);
    let facts = "[openrouter.a-model]\nimages = false\n";
    std::fs::create_dir_all(workspace.data_dir()).unwrap();
    std::fs::write(workspace.data_dir().join("models.toml"), facts).unwrap();
    for (provider, is_shown) in [("openrouter", false), ("openai", true)] {
        let model = Model::start().unwrap();
        model.says(Message::new().text("A name."));
        let args = format!("--provider {provider} --image plan.png What?");
        let output = run(&workspace, &model, &args);
        assert_eq!(output.code, Some(0), "{provider}: {output:?}");
        let body = model.last_request().body.to_string();
        assert!(body.contains("plan.png"), "{provider}: {body}");
        assert_eq!(body.contains("image_url"), is_shown, "{provider}: {body}");
        let told = output
            .stderr
            .contains("of `plan.png`: the model `a-model` cannot look at images");
        assert_eq!(told, !is_shown, "{provider}: {output:?}");
    }
}

#[test]
fn two_files_of_one_name_are_two_and_standard_input_is_one() {
    let workspace = stage(&[]);
    std::fs::create_dir(workspace.work().join("old")).unwrap();
    workspace.write("old/notes.csv", "lamp,off\n").unwrap();
    let model = Model::start().unwrap();
    model.says(Message::new().text("They differ."));
    let args = "--provider anthropic --file notes.csv --file old/notes.csv Compare.";
    let output = run(&workspace, &model, args);
    assert_eq!(output.stdout, "They differ.\n", "{output:?}");
    let body = model.last_request().body.to_string();
    for shown in [
        "[file: notes.csv, text/csv, 8 bytes, id file-1]",
        "[file: notes.csv, text/csv, 9 bytes, id file-2]",
        "lamp,on",
        "lamp,off",
    ] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    for twice in [
        "--file - --file -",
        "--file - --image -",
        "--file - --file /dev/stdin",
    ] {
        let args = format!("run --provider anthropic --model a-model {twice} Compare.");
        let run = conjure(&workspace, &args).env("ANTHROPIC_API_KEY", "k");
        let output = run.stdin("lamp,on\n").run().unwrap();
        assert_eq!(output.code, Some(2), "{twice}: {output:?}");
        assert!(
            output.stderr.contains("attached already"),
            "{twice}: {output:?}"
        );
        assert!(
            output.stderr.contains("can be read once"),
            "{twice}: {output:?}"
        );
    }
}
