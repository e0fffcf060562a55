//! `conjure auth`, and sessions that ask with a saved auth. Mostly about what must never be seen.

use conjure_host::store::{Location, Options, Store};
use conjure_kit::{Cli, Model, Output, Signal, Workspace, search, thread_ids, thread_log};
use conjure_mock_llm::{ErrorReply, Message};
use insta::assert_snapshot;
use serde_json::Value;

use crate::stage::{LOCAL, conjure, json, workspace};

/// What nobody may see again.
const SECRET: &str = "sk-nobody-sees-this-again-0123456789";
/// Where the data is.
const DATA: &str = ".local/share/conjure";

/// `conjure` that logs all that it can.
fn tracing(workspace: &Workspace, args: &str) -> Cli {
    conjure(workspace, args).env("CONJURE_LOG", "trace")
}

/// Saves [`SECRET`] through a pipe.
fn save(workspace: &Workspace, args: &str, text: &str) -> Output {
    let output = tracing(workspace, &format!("auth create {args}"))
        .stdin(text)
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    without_secret(&output);
    output
}

fn without_secret(output: &Output) {
    for text in [&output.stdout, &output.stderr] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// Answers once with the secret, and once with an error that repeats it.
fn asks_and_fails(workspace: &Workspace, model: &Model, auth: &str, header: (&str, &str)) {
    model.says(Message::new().text("Hello."));
    let asking = |more: &str| {
        tracing(
            workspace,
            &format!("run --auth {auth} --model m {more} Hi."),
        )
        .env("ANTHROPIC_API_KEY", "another-key")
        .env("OPENAI_API_KEY", "another-key")
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9")
        .run()
        .unwrap()
    };
    let output = asking("");
    assert_eq!(output.stdout, "Hello.\n", "{output:?}");
    without_secret(&output);
    assert_eq!(model.last_request().header(header.0), Some(header.1));
    for more in ["", "--json"] {
        let refused = format!("The key {SECRET} is not valid, nor is {SECRET}.");
        model.says(ErrorReply::new(401).message(refused));
        let output = asking(more);
        assert_eq!(output.code, Some(3), "{output:?}");
        let told = format!("{}{}", output.stdout, output.stderr);
        assert!(told.contains("The key [key] is not valid"), "{told}");
        without_secret(&output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_put_in_in_each_way_is_nowhere_to_be_seen() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let base_url = model.base_url();

    let prompted = format!("auth create typed --provider anthropic --base-url {base_url}");
    let mut running = tracing(&workspace, &prompted)
        .on_terminal()
        .start()
        .unwrap();
    running.wait_for_stdout("Key (it is not shown): ").unwrap();
    running.send_line(SECRET).unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.stdout.contains("anthropic/api_key/typed is saved"),
        "{output:?}"
    );
    without_secret(&output);
    let token = format!("piped --provider openai --kind bearer-token --base-url {base_url}");
    save(&workspace, &token, &format!("{SECRET}\n"));
    let headers = format!(
        "as-header --provider openai-compatible --kind custom-headers --base-url {base_url}"
    );
    save(
        &workspace,
        &headers,
        &format!("api-key: {SECRET}\nX-Team: red\n"),
    );

    let bearer = format!("Bearer {SECRET}");
    for (auth, header) in [
        ("typed", ("x-api-key", SECRET)),
        ("piped", ("authorization", bearer.as_str())),
        ("as-header", ("api-key", SECRET)),
    ] {
        asks_and_fails(&workspace, &model, auth, header);
        for args in [
            format!("auth check {auth}"),
            format!("auth check {auth} --json"),
        ] {
            let output = tracing(&workspace, &args).run().unwrap();
            assert_eq!(output.code, Some(0), "{output:?}");
            without_secret(&output);
        }
    }
    for args in [
        "auth list",
        "auth list --json",
        "auth rotate --json",
        "models --auth typed",
    ] {
        let output = tracing(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        without_secret(&output);
    }

    let threads = thread_ids(&workspace).unwrap();
    assert_eq!(threads.len(), 9);
    for thread in &threads {
        assert!(!thread_log(&workspace, thread).unwrap().contains(SECRET));
    }
    let data = workspace.home().join(DATA);
    let (place, options) = (Location::File(data.join("conjure.db")), Options::default());
    let store = Store::open(&place, &options).await.unwrap();
    store.backup(&data.join("a-backup.db")).await.unwrap();
    store.export(&data.join("an-export")).await.unwrap();
    drop(store);
    // The database, its backup, the export and the key at least.
    let search = search(workspace.root(), SECRET).unwrap();
    assert!(search.files >= 4, "{search:?}");
    assert!(search.found.is_empty(), "{search:?}");
}

#[test]
fn what_the_model_said_tells_which_auth_it_was_asked_with() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let add = format!("work --provider anthropic --base-url {}", model.base_url());
    save(&workspace, &add, SECRET);
    workspace
        .write(
            "session.toml",
            "auth = \"anthropic/api-key/work\"\nmodel = \"m\"\n",
        )
        .unwrap();
    model.says(Message::new().text("Hello."));
    let output = conjure(&workspace, "run --config session.toml Hi.")
        .run()
        .unwrap();
    assert_eq!(output.stdout, "Hello.\n", "{output:?}");
    let thread = thread_ids(&workspace).unwrap().swap_remove(0);
    let log = thread_log(&workspace, &thread).unwrap();
    assert!(
        log.contains("\"auth_type\":\"api_key\",\"auth_name\":\"work\""),
        "{log}"
    );
    // A provider beside it that is another one is a mistake.
    let other = "run --config session.toml --provider openai Hi.";
    assert_snapshot!(conjure(&workspace, other).run().unwrap().snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: the saved auth `anthropic/api_key/work` is for the provider `anthropic`, and the session is to use `openai`; leave the provider out, or name another auth
    ");
}

#[test]
fn a_conversation_that_changes_its_provider_asks_there_with_that_ones_auth() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let at = format!("--base-url {}", model.base_url());
    save(
        &workspace,
        &format!("work --provider anthropic {at}"),
        SECRET,
    );
    save(
        &workspace,
        &format!("home --provider openai {at}"),
        "another-secret",
    );
    let file = "auth = \"work\"\nmodel = \"m\"\n[providers.openai]\nauth = \"home\"\n";
    workspace.write("session.toml", file).unwrap();
    model.says(Message::new().text("One."));
    model.says(Message::new().text("Two."));
    let output = conjure(&workspace, "chat --config session.toml")
        .stdin("Hi.\n/model openai/gpt-5\nAnd?\n")
        .run()
        .unwrap();
    assert!(output.stdout.contains("Two."), "{output:?}");
    let requests = model.requests();
    let sent = |number: usize, name: &str| requests[number].header(name).map(str::to_owned);
    assert_eq!(sent(0, "x-api-key").as_deref(), Some(SECRET));
    let bearer = sent(1, "authorization");
    assert_eq!(bearer.as_deref(), Some("Bearer another-secret"));
    let thread = thread_ids(&workspace).unwrap().swap_remove(0);
    let log = thread_log(&workspace, &thread).unwrap();
    for name in ["work", "home"] {
        assert!(log.contains(&format!("\"auth_name\":\"{name}\"")), "{log}");
    }
}

#[test]
fn a_life_of_a_saved_auth() {
    let workspace = workspace(&[]);
    let told = |args: &str, secret: &str| {
        let output = conjure(&workspace, args).stdin(secret).run().unwrap();
        without_secret(&output);
        format!("$ conjure {args}\n{}", output.snapshot())
    };
    let mut story = String::new();
    for (args, secret) in [
        ("auth list", ""),
        ("run --auth work --model m Hi.", ""),
        ("auth create work --provider opneai", SECRET),
        ("auth create work --provider openai", ""),
        ("auth create work --provider openai", "two\nlines"),
        ("auth create work --provider openai", SECRET),
        ("auth create work --provider openai", SECRET),
        ("auth create work --provider anthropic", SECRET),
        ("auth rename work office", ""),
        ("auth rename openai/api-key/work office", ""),
        ("auth rename office x", ""),
        ("models openai gemini --auth office", ""),
        ("auth delete office", ""),
        ("auth delete office --yes", ""),
        ("auth delete office --yes", ""),
    ] {
        story.push_str(&told(args, secret));
        story.push('\n');
    }
    assert_snapshot!(story, @r"
    $ conjure auth list
    exit code 0
    --- stdout
    --- stderr
    There is no saved auth yet; `conjure auth create NAME --provider PROVIDER` saves one.

    $ conjure run --auth work --model m Hi.
    exit code 2
    --- stdout
    --- stderr
    error: there is no saved auth `work`; there is none yet: `conjure auth create NAME --provider PROVIDER` saves one

    $ conjure auth create work --provider opneai
    exit code 2
    --- stdout
    --- stderr
    error: `opneai` cannot have a saved auth: nobody says where it is. Give its base URL, or name one of: anthropic, openai, gemini, deepseek, mistral, openrouter, llamacpp, ollama

    $ conjure auth create work --provider openai
    exit code 2
    --- stdout
    --- stderr
    error: the secret cannot be read from stdin: nothing came
    hint: send the secret there, or run this at a terminal, which asks for it and does not show it

    $ conjure auth create work --provider openai
    exit code 2
    --- stdout
    --- stderr
    error: that is no api_key: it has to be one line of ordinary characters

    $ conjure auth create work --provider openai
    exit code 0
    --- stdout
    openai/api_key/work is saved
    --- stderr

    $ conjure auth create work --provider openai
    exit code 2
    --- stdout
    --- stderr
    error: there is a saved auth `openai/api_key/work` already: `conjure auth replace openai/api_key/work` saves another credential in its place, such as one without a typing error, and `conjure auth delete openai/api_key/work` takes it away

    $ conjure auth create work --provider anthropic
    exit code 0
    --- stdout
    anthropic/api_key/work is saved
    --- stderr

    $ conjure auth rename work office
    exit code 2
    --- stdout
    --- stderr
    error: `work` is the name of several saved auths; name one in full: `openai/api_key/work`, `anthropic/api_key/work`

    $ conjure auth rename openai/api-key/work office
    exit code 0
    --- stdout
    openai/api_key/office is its name now
    --- stderr

    $ conjure auth rename office x
    exit code 2
    --- stdout
    --- stderr
    error: `x` cannot be the name of a saved auth: 3 to 50 letters, digits, `_` and `-`

    $ conjure models openai gemini --auth office
    exit code 2
    --- stdout
    --- stderr
    error: `--auth` is for one provider
    hint: name that one, or none

    $ conjure auth delete office
    exit code 2
    --- stdout
    --- stderr
    This deletes openai/api_key/office, for good.
    error: nobody is there to ask
    hint: `--yes` says that it is meant

    $ conjure auth delete office --yes
    exit code 0
    --- stdout
    openai/api_key/office is deleted
    --- stderr

    $ conjure auth delete office --yes
    exit code 2
    --- stdout
    --- stderr
    error: there is no saved auth `office`
    hint: there are: work
    ");
    let listed = json(&conjure(&workspace, "auth list --json").run().unwrap());
    let auth = &listed["auths"][0];
    let fields: Vec<&String> = auth.as_object().unwrap().keys().collect();
    let expected = [
        "id",
        "provider",
        "kind",
        "name",
        "base_url",
        "created_at_ms",
        "updated_at_ms",
    ];
    assert_eq!(fields, expected);
    assert_eq!(auth["name"], "work");
}

#[test]
fn a_test_says_what_failed() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let base_url = model.base_url();
    // This server wants a credential, and the auth has none.
    let add = format!("auth create open --provider openai --kind base-url --base-url {base_url}");
    let output = conjure(&workspace, &add).run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let output = conjure(&workspace, "auth check open").run().unwrap();
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("HTTP status 401"), "{output:?}");
    let output = conjure(&workspace, "auth check open --json").run().unwrap();
    assert_eq!(output.code, Some(3), "{output:?}");
    let told = json(&output);
    assert_eq!(
        (&told["works"], &told["models"]),
        (&Value::Bool(false), &Value::Null)
    );
    assert!(
        told["error"]["message"].as_str().unwrap().contains("401"),
        "{told}"
    );
}

/// Base64 of 32 bytes.
const OLD: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEW: &str = "HxAdHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

#[test]
fn a_key_of_the_environment_is_replaced_there() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let args = format!(
        "auth create work --provider openai --base-url {}",
        model.base_url()
    );
    let added = conjure(&workspace, &args)
        .env("CONJURE_KEY", OLD)
        .stdin(SECRET);
    assert_eq!(added.run().unwrap().code, Some(0));
    let with = |args: &str, key: &str| conjure(&workspace, args).env("CONJURE_KEY", key);
    let works = |key: &str| with("auth check work", key).run().unwrap().code == Some(0);
    assert!(works(OLD));
    let refused = with("auth rotate", OLD).run().unwrap();
    assert!(refused.stderr.contains("CONJURE_OLD_KEY"), "{refused:?}");
    let unread = with("auth check work", NEW).run().unwrap();
    assert_eq!(unread.code, Some(5), "{unread:?}");
    assert!(!unread.stderr.contains(NEW), "{unread:?}");
    let rotated = with("auth rotate", NEW)
        .env("CONJURE_OLD_KEY", OLD)
        .run()
        .unwrap();
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    assert!(works(NEW));
    assert!(!works(OLD));
}

#[test]
fn no_command_sees_the_key() {
    let workspace = workspace(&[LOCAL]);
    let args = "call local_bash_tool --executor local --json --args";
    let output = conjure_kit::cli(
        args.split(' ')
            .chain(["{\"command\":\"env\",\"description\":\"\"}"]),
    )
    .workspace(&workspace)
    .env("CONJURE_KEY", OLD)
    .env("CONJURE_OLD_KEY", NEW)
    .env("CONJURE_KEY_FILE", "/no/such/key-file")
    .run()
    .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("PATH="), "{output:?}");
    for told in ["CONJURE_KEY", "CONJURE_OLD", OLD, NEW, "key-file"] {
        assert!(!output.stdout.contains(told), "{told}: {output:?}");
    }
}

#[test]
fn a_prompt_that_is_interrupted_saves_nothing() {
    let workspace = workspace(&[]);
    let add = conjure(&workspace, "auth create work --provider openai");
    let running = add.on_terminal().start().unwrap();
    running.wait_for_stdout("Key (it is not shown): ").unwrap();
    running.signal(Signal::INT);
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    let listed = json(&conjure(&workspace, "auth list --json").run().unwrap());
    assert_eq!(listed["auths"], Value::Array(Vec::new()));
}

#[test]
fn the_token_of_a_login_is_refused_in_the_environment_too() {
    let workspace = workspace(&[]);
    let asked = conjure(&workspace, "run --provider anthropic --model m Hello");
    let asked = asked.env("ANTHROPIC_API_KEY", "sk-ant-oat01-token");
    let output = asked.run().unwrap();
    assert_ne!(output.code, Some(0), "{output:?}");
    for part in ["ANTHROPIC_API_KEY cannot be used", "API key"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
}
