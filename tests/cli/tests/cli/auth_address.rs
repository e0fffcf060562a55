//! Where a saved auth goes: to the address that it is bound to, whoever names another one.

use conjure_host::provider::KNOWN_PROVIDERS;
use conjure_kit::{Cli, Model, Output, Workspace};
use conjure_mock_llm::Message;

use crate::session::{done, server};
use crate::stage::{conjure, workspace};

/// The secret that must not go elsewhere.
const SECRET: &str = "sk-for-the-usual-address-0123456789";

fn save(workspace: &Workspace, args: &str) {
    let saved = conjure(workspace, &format!("auth create {args}"));
    let saved = saved.stdin(SECRET).run().unwrap();
    assert_eq!(saved.code, Some(0), "{saved:?}");
}

/// Whether a person is told that the auth does not go there.
fn is_told(text: &str) -> bool {
    text.contains("is not sent to") || text.contains("leave the base URL out")
}

/// Runs a command, and sees that nobody was asked and why.
fn refused(cli: Cli, elsewhere: &Model, way: &str) {
    assert_refused(&cli.run().unwrap(), elsewhere, way);
}

fn assert_refused(output: &Output, elsewhere: &Model, way: &str) {
    assert_ne!(output.code, Some(0), "{way}: {output:?}");
    let told = format!("{}{}", output.stdout, output.stderr);
    assert!(is_told(&told), "{way}: {told}");
    assert!(!told.contains(SECRET), "{way}: {told}");
    assert!(elsewhere.requests().is_empty(), "{way}");
}

#[test]
fn however_an_address_is_said_a_saved_auth_goes_to_its_own() {
    let workspace = workspace(&[]);
    let elsewhere = Model::start().unwrap();
    let url = elsewhere.base_url();
    save(&workspace, "usual --provider anthropic");
    save(
        &workspace,
        "named --provider anthropic --base-url http://127.0.0.1:9",
    );
    for auth in ["usual", "named"] {
        let head = format!("auth = \"{auth}\"\nmodel = \"m\"\n");
        let files = [
            format!("{head}base_url = \"{url}\"\n"),
            format!("{head}[providers.anthropic]\nbase_url = \"{url}\"\n"),
            format!("{head}[providers.anthropic]\nbase_url = \"{url}\"\nwire = \"openai-chat\"\n"),
        ];
        for file in files {
            workspace.write("session.toml", &file).unwrap();
            let run = conjure(&workspace, "run --config session.toml Hi.");
            refused(run, &elsewhere, &file);
        }
        let other = format!(
            "provider = \"ollama\"\nmodel = \"m\"\n[providers.anthropic]\nauth = \"{auth}\"\n\
             base_url = \"{url}\"\n"
        );
        workspace.write("session.toml", other).unwrap();
        let chat = conjure(&workspace, "chat --config session.toml");
        let switched = chat.stdin("/model anthropic/m\nHi.\n").run().unwrap();
        assert!(is_told(&switched.stderr), "{auth}: {switched:?}");
        for args in [
            format!("run --auth {auth} --model m --base-url {url} Hi."),
            format!("models --auth {auth} --base-url {url}"),
        ] {
            refused(conjure(&workspace, &args), &elsewhere, &args);
        }
        // A saved session says it among its tools.
        let tools = format!("[providers.anthropic]\nbase_url = \"{url}\"\n");
        let tools = workspace.write("tools.toml", tools).unwrap();
        let create = format!(
            "session create {auth}-s --auth {auth} --model m --tools {}",
            tools.display()
        );
        let created = conjure(&workspace, &create).run().unwrap();
        if created.code == Some(0) {
            let run = conjure(&workspace, &format!("run --session {auth}-s Hi."));
            refused(run, &elsewhere, "a saved session");
        } else {
            assert_refused(&created, &elsewhere, &create);
        }
    }
}

#[test]
fn a_variable_of_the_environment_leads_no_saved_auth_elsewhere() {
    let workspace = workspace(&[]);
    let (own, elsewhere) = (Model::start().unwrap(), Model::start().unwrap());
    for known in &KNOWN_PROVIDERS {
        let name = known.name;
        let url = own.base_url();
        save(
            &workspace,
            &format!("{name} --provider {name} --base-url {url}"),
        );
        own.says(Message::new().text("Hello."));
        let run = conjure(&workspace, &format!("run --auth {name} --model m Hi."));
        let run = run.env(known.base_url_var, elsewhere.base_url());
        let output = run.run().unwrap();
        assert_eq!(output.stdout, "Hello.\n", "{name}: {output:?}");
        assert!(elsewhere.requests().is_empty(), "{name}");
    }
    assert_eq!(own.requests().len(), KNOWN_PROVIDERS.len());
}

/// A change of a saved session, here or at a server that runs (`PATCH /sessions`).
#[test]
fn no_change_of_a_saved_session_leads_its_auth_elsewhere() {
    let workspace = workspace(&[]);
    let (own, elsewhere) = (Model::start().unwrap(), Model::start().unwrap());
    let address = |url: &str| format!("[providers.anthropic]\nbase_url = \"{url}\"\n");
    let tools = |name: &str, url: &str| workspace.write(name, address(url)).unwrap();
    let there = tools("there.toml", &elsewhere.base_url());
    let here = tools("here.toml", &own.base_url());
    for (auth, url) in [("one", own.base_url()), ("two", elsewhere.base_url())] {
        save(
            &workspace,
            &format!("{auth} --provider anthropic --base-url {url}"),
        );
    }
    for with_server in [false, true] {
        let _server = with_server.then(|| server(&workspace, ""));
        // Other tools, and another auth beside tools that say where the first one goes.
        let changes = [
            ("tools", format!("--tools {}", there.display())),
            ("auth", "--auth two".to_owned()),
        ];
        for (what, change) in changes {
            let session = format!("{what}-{with_server}");
            done(
                &workspace,
                &format!(
                    "session create {session} --auth one --model m --tools {}",
                    here.display()
                ),
            );
            done(&workspace, &format!("session set {session} {change}"));
            let run = conjure(&workspace, &format!("run --session {session} Hi."));
            refused(run, &elsewhere, &session);
            assert!(own.requests().is_empty(), "{session}");
        }
    }
}

#[test]
fn an_auth_that_a_chat_takes_up_does_not_go_where_the_chat_was() {
    let workspace = workspace(&[]);
    let (own, elsewhere) = (Model::start().unwrap(), Model::start().unwrap());
    let url = own.base_url();
    save(
        &workspace,
        &format!("own --provider anthropic --base-url {url}"),
    );
    let url = elsewhere.base_url();
    let file = format!("provider = \"ollama\"\nmodel = \"m\"\nbase_url = \"{url}\"\n");
    workspace.write("session.toml", file).unwrap();
    let chat = conjure(&workspace, "chat --config session.toml");
    let output = chat.stdin("/auth own m\n").run().unwrap();
    assert!(is_told(&output.stderr), "{output:?}");
    assert!(elsewhere.requests().is_empty(), "{output:?}");
    assert!(own.requests().is_empty(), "{output:?}");
}

#[test]
fn the_same_address_may_be_said_again() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let url = model.base_url();
    save(
        &workspace,
        &format!("own --provider anthropic --base-url {url}"),
    );
    model.says(Message::new().text("Hello."));
    let run = format!("run --auth own --model m --base-url {url}/ Hi.");
    let output = conjure(&workspace, &run).run().unwrap();
    assert_eq!(output.stdout, "Hello.\n", "{output:?}");
    assert_eq!(model.last_request().header("x-api-key"), Some(SECRET));
}

#[test]
fn the_address_of_one_provider_is_not_that_of_the_next_one() {
    let workspace = workspace(&[]);
    let (first, second) = (Model::start().unwrap(), Model::start().unwrap());
    let url = first.base_url();
    second.says(Message::new().text("Hello."));
    let chat = format!("chat --provider ollama --model m --base-url {url}");
    let chat = conjure(&workspace, &chat).model(&second);
    // A fresh thread opens the session anew.
    let said = chat.stdin("/model anthropic/m\n/new\nHi.\n").run().unwrap();
    assert!(said.stdout.contains("Hello."), "{said:?}");
    assert!(first.requests().is_empty(), "{said:?}");
}
