//! `conjure run` with each provider that it knows, as a person names them.

use conjure_kit::Model;
use conjure_mock_llm::{Message, Wire};
use insta::assert_snapshot;

use crate::stage::{CACHE, conjure, workspace};

#[test]
fn each_provider_is_asked_on_its_wire_with_its_key() {
    let workspace = workspace(&[]);
    for (provider, key, wire) in [
        ("anthropic", "ANTHROPIC_API_KEY", Wire::Anthropic),
        ("openai", "OPENAI_API_KEY", Wire::Responses),
        ("gemini", "GEMINI_API_KEY", Wire::Gemini),
        ("gemini", "GOOGLE_API_KEY", Wire::Gemini),
        ("deepseek", "DEEPSEEK_API_KEY", Wire::Chat),
        ("mistral", "MISTRAL_API_KEY", Wire::Chat),
        ("openrouter", "OPENROUTER_API_KEY", Wire::Chat),
        ("llamacpp", "LLAMACPP_API_KEY", Wire::Chat),
        ("ollama", "OLLAMA_API_KEY", Wire::Chat),
        ("openai-compatible", "OPENAI_COMPATIBLE_API_KEY", Wire::Chat),
    ] {
        let model = Model::start().unwrap();
        model.says(Message::new().text("Hello."));
        let args = format!(
            "run --provider {provider} --model m --base-url {} Hi.",
            model.base_url()
        );
        let output = conjure(&workspace, &args)
            .env(key, "a-key-of-nobody")
            .env("CONJURE_LOG", "debug")
            .run()
            .unwrap();
        assert_eq!(output.stdout, "Hello.\n", "{provider}: {output:?}");
        assert!(
            !output.stderr.contains("a-key-of-nobody"),
            "{provider}: {output:?}"
        );
        assert_eq!(model.last_request().wire(), Some(wire), "{provider}");
    }
}

#[test]
fn a_wire_can_be_chosen() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Hello."));
    let args = format!(
        "run --provider openai --wire openai-chat --model gpt-5 --base-url {} Hi.",
        model.base_url()
    );
    let output = conjure(&workspace, &args)
        .env("OPENAI_API_KEY", "k")
        .run()
        .unwrap();
    assert_eq!(output.stdout, "Hello.\n", "{output:?}");
    assert_eq!(model.last_request().wire(), Some(Wire::Chat));
}

#[test]
fn a_server_of_ones_own_is_named_in_the_session_file() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let file = format!(
        "provider = \"mine\"\nmodel = \"m\"\n[providers.mine]\nbase_url = \"{}\"\n\
         dialect = \"mistral\"\nkey_var = \"MY_KEY\"\nheaders = {{ x-team = \"blue\" }}\n\
         [http]\nattempts = 1\nidle_timeout_ms = 5000\n",
        model.base_url()
    );
    workspace.write("session.toml", file).unwrap();
    model.says(Message::new().text("Hello."));
    let output = conjure(&workspace, "run --config session.toml Hi.")
        .env("MY_KEY", "a-key-of-nobody")
        .run()
        .unwrap();
    assert_eq!(output.stdout, "Hello.\n", "{output:?}");
    let request = model.last_request();
    assert_eq!(request.header("x-team"), Some("blue"));
    assert_eq!(
        request.header("authorization"),
        Some("Bearer a-key-of-nobody")
    );
}

#[test]
fn a_proxy_of_the_environment_is_used() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Hello."));
    let args = "run --provider ollama --model m --base-url http://models.example/v1 Hi.";
    let output = conjure(&workspace, args)
        .env("OLLAMA_API_KEY", "a-key-of-nobody")
        .env("HTTP_PROXY", model.base_url())
        .env("http_proxy", model.base_url())
        .run()
        .unwrap();
    assert_eq!(output.stdout, "Hello.\n", "{output:?}");
    assert_eq!(model.last_request().header("host"), Some("models.example"));
}

#[test]
fn what_is_missing_is_told() {
    let workspace = workspace(&[]);
    let story = |args: &str| conjure(&workspace, args).run().unwrap().snapshot();
    assert_snapshot!(story("run --provider gemini --model m Hi."), @"
    exit code 2
    --- stdout
    --- stderr
    error: the provider `gemini` needs a key: set GEMINI_API_KEY or GOOGLE_API_KEY
    ");
    assert_snapshot!(story("run --provider openai-compatible --model m Hi."), @"
    exit code 2
    --- stdout
    --- stderr
    error: nobody says where the provider `openai-compatible` is: `--base-url URL`, OPENAI_COMPATIBLE_BASE_URL, or `base_url` below `[providers.openai-compatible]` in the session file
    ");
    assert_snapshot!(story("run --provider nobody --model m Hi."), @"
    exit code 2
    --- stdout
    --- stderr
    error: there is no provider `nobody`; there are: anthropic, openai, gemini, deepseek, mistral, openrouter, llamacpp, ollama, openai-compatible, scripted, tool-walk
    ");
    assert_snapshot!(story("run --provider ollama --base-url localhost:1 --model m Hi."), @"
    exit code 2
    --- stdout
    --- stderr
    error: the base URL cannot be used: it is no `http://` or `https://` address; it is the address of the API without a resource, such as `https://api.openai.com/v1`
    ");
}

#[test]
fn a_walk_calls_every_tool_once_without_a_key() {
    let workspace = workspace(&[CACHE]);
    let output = conjure(&workspace, "run --provider tool-walk --allow * Go.")
        .run()
        .unwrap();
    assert_snapshot!(output.snapshot(), @r#"
    exit code 0
    --- stdout
    0 of 2 tools gave a result that is no error.
    - cache-manager_execute: failed: `text` is not a command of this skill. Grammar: clear | set K V | get K | delete K | list [PREFIX]
    - cache-manager_read: failed: there is no `text` to read; `stats` is all there is. A value is read with the command `get K`.
    --- stderr
    note: No model answers: the provider `tool-walk` calls every tool once, with arguments made from its schema.
    → cache-manager_execute {"command":"text"}
    → cache-manager_read {"path":"text"}
    ✗ cache-manager_execute (on native, [DURATION])
      `text` is not a command of this skill. Grammar: clear | set K V | get K | delete K | list [PREFIX]
      [The call of `cache-manager_execute` on backend `native` failed with what stands above. Correct the arguments …
    ✗ cache-manager_read (on native, [DURATION])
      there is no `text` to read; `stats` is all there is. A value is read with the command `get K`.
      [The call of `cache-manager_read` on backend `native` failed with what stands above. Correct the arguments or …
    "#);
}

#[test]
fn the_models_of_a_provider_are_listed_with_what_is_known_of_them() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let own = "[openai.gpt-mock]\ncontext = 1000\nprice = { input = 1.5 }\n";
    workspace
        .write("../home/.local/share/conjure/models.toml", own)
        .unwrap();
    let list = |args: &str| {
        let args = format!("models {args} --base-url {}", model.base_url());
        conjure(&workspace, &args)
            .env("OPENAI_API_KEY", "k")
            .run()
            .unwrap()
    };
    assert_snapshot!(list("openai").snapshot(), @"
    exit code 0
    --- stdout
    PROVIDER  MODEL          CONTEXT  OUTPUT  $ IN  $ CACHED  $ OUT
    openai    claude-mock    -        -       -     -         -
    openai    gpt-mock       1000     -       1.5   -         -
    openai    deepseek-mock  -        -       -     -         -
    openai    gemini-mock    -        -       -     -         -
    --- stderr
    ");
    let listed = crate::stage::json(&list("openai --json"));
    assert_eq!(listed[1]["model"], "gpt-mock");
    assert_eq!(listed[1]["price"]["input"], 1.5);
    assert_eq!(list("gemini").code, Some(2), "without a key");
    assert_eq!(list("openai gemini").code, Some(2), "one address for two");
    let offline = conjure(&workspace, "models --offline anthropic")
        .run()
        .unwrap();
    assert!(offline.stdout.contains("claude-sonnet-4-5"), "{offline:?}");
}
