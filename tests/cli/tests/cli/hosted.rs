//! Hosted skills from the command line: where the key and the address come from.

use conjure_mock_llm::{Hosted, Message, MockLlm, Script, Step, StoredSkill, Wire};
use serde_json::json;

use crate::stage::{CACHE, conjure, json, json_lines, workspace};

/// The package of the hosted skills.
const HOSTED: &str = "conjure-backend-anthropic";

#[test]
fn the_key_is_the_providers_own_unless_a_secret_says_another() {
    let hosted = Hosted::new().skill(StoredSkill::custom("skill_01", "my-report", "Reports."));
    let mock = MockLlm::start_blocking(Script::new().hosted(hosted)).unwrap();
    let workspace = workspace(&[HOSTED]);
    workspace
        .write(
            "session.toml",
            "[[backend]]\nkind = \"anthropic\"\nconfig.skills = [\"skill_01\", \"xlsx\"]\n",
        )
        .unwrap();
    let routes = |variables: &[(&str, &str)]| {
        let cli = conjure(&workspace, "routes --config session.toml")
            .env("ANTHROPIC_BASE_URL", mock.base_url());
        let cli = variables
            .iter()
            .fold(cli, |cli, (name, value)| cli.env(name, value));
        cli.run().unwrap()
    };
    let key = || {
        let last = mock.requests().pop().unwrap();
        last.header("x-api-key").unwrap().to_owned()
    };
    let own = ("ANTHROPIC_API_KEY", "the-providers");
    let listed = routes(&[own]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(
        listed.stdout.contains("my-report_code_execution"),
        "{listed:?}"
    );
    assert!(listed.stdout.contains("xlsx_code_execution"), "{listed:?}");
    assert_eq!(key(), "the-providers");
    routes(&[own, ("CONJURE_SECRET_ANTHROPIC_API_KEY", "a-secret")]);
    assert_eq!(key(), "a-secret");
    let before = mock.requests().len();
    let without = routes(&[]);
    assert_ne!(without.code, Some(0), "{without:?}");
    assert!(without.stderr.contains("ANTHROPIC_API_KEY"), "{without:?}");
    assert_eq!(mock.requests().len(), before);
}

#[test]
fn routes_and_the_policy_show_the_tools_of_the_request() {
    let hosted = Hosted::new().skill(StoredSkill::custom("skill_01", "my-report", "Reports."));
    let answers = Step::new(Message::new().text("Done.")).always();
    let script = Script::new().hosted(hosted).step(answers);
    let mock = MockLlm::start_blocking(script).unwrap();
    let workspace = workspace(&[HOSTED, CACHE]);
    for provider in ["anthropic", "openai"] {
        let session = format!(
            "provider = \"{provider}\"\nmodel = \"claude-sonnet-4-5\"\n[[backend]]\n\
             kind = \"native\"\n[[backend]]\nkind = \"anthropic\"\n\
             config.skills = [\"skill_01\", \"xlsx\"]\n"
        );
        workspace.write("session.toml", &session).unwrap();
        let ask = |args: &str| {
            let cli = conjure(&workspace, &format!("{args} --config session.toml"));
            let cli = cli.env("ANTHROPIC_BASE_URL", mock.base_url());
            let cli = cli.env("OPENAI_BASE_URL", mock.base_url());
            cli.env("ANTHROPIC_API_KEY", "k").env("OPENAI_API_KEY", "k")
        };
        let ran = ask("run Hi.").run().unwrap();
        assert_eq!(ran.stdout, "Done.\n", "{ran:?}");
        let requests = mock.requests();
        let sent = requests.last().unwrap().tool_names();
        let shown = json(&ask("routes --json").run().unwrap());
        let names = |list: &str| -> Vec<String> {
            let list = shown[list].as_array().unwrap().iter();
            list.map(|tool| tool["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let listed = [names("routes"), names("server_tools")].concat();
        assert_eq!(listed, sent, "{provider}");
        let is_inline = sent.contains(&"code_execution");
        assert_eq!(is_inline, provider == "anthropic", "{sent:?}");
        let policy = json(&ask("policy check --all --json").run().unwrap());
        let names = |shown: &serde_json::Value, lists: [&str; 2]| -> Vec<String> {
            let tools = lists.map(|list| shown[list].as_array().unwrap().clone());
            let names = tools.concat().into_iter();
            names
                .map(|tool| tool["name"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            names(&policy, ["tools", "server_tools"]),
            sent,
            "{provider}"
        );
        let told = ask("policy check --all").run().unwrap().stdout;
        assert!(told.contains("code_execution"), "{told}");

        // A saved session of the same says the same.
        let auth = format!(
            "auth create {provider} --provider {provider} --base-url {}",
            mock.base_url()
        );
        let saved = |args: &str| {
            let cli = conjure(&workspace, args).env("ANTHROPIC_API_KEY", "k");
            let cli = cli.env("ANTHROPIC_BASE_URL", mock.base_url());
            let output = cli.stdin("sk-a-key-of-a-test").run().unwrap();
            assert_eq!(output.code, Some(0), "{output:?}");
            output
        };
        saved(&auth);
        let tools = session.split_once("[[backend]]").unwrap().1;
        workspace
            .write("tools.toml", format!("[[backend]]{tools}"))
            .unwrap();
        saved(&format!(
            "session create {provider} --auth {provider} --model claude-sonnet-4-5 --tools tools.toml"
        ));
        let shown = json(&saved(&format!("session tools {provider} --json")));
        assert_eq!(
            names(&shown, ["routes", "server_tools"]),
            sent,
            "{provider}"
        );
    }
}

#[test]
fn without_a_model_too_routes_and_the_policy_show_the_tools_of_the_request() {
    let hosted = Hosted::new().skill(StoredSkill::custom("skill_01", "my-report", "Reports."));
    let answers = Step::new(Message::new().text("Done.")).always();
    let mock = MockLlm::start_blocking(Script::new().hosted(hosted).step(answers)).unwrap();
    let workspace = workspace(&[HOSTED]);
    let session = "provider = \"anthropic\"\n[[backend]]\nkind = \"anthropic\"\n\
                   config.skills = [\"skill_01\", \"xlsx\"]\n";
    workspace.write("session.toml", session).unwrap();
    let ask = |args: &str| {
        let cli = conjure(&workspace, &format!("{args} --config session.toml"));
        let cli = cli.env("ANTHROPIC_BASE_URL", mock.base_url());
        cli.env("ANTHROPIC_API_KEY", "k").run().unwrap()
    };
    // The provider refuses it, as it stands.
    ask("run Hi.");
    let requests = mock.requests();
    let asked = requests
        .iter()
        .rev()
        .find(|it| it.path.ends_with("/messages"));
    let sent = asked.unwrap().tool_names();
    assert!(sent.contains(&"code_execution"), "{sent:?}");
    let lists = [
        ("routes --json", ["routes", "server_tools"]),
        ("policy check --all --json", ["tools", "server_tools"]),
    ];
    for (verb, lists) in lists {
        let shown = json(&ask(verb));
        let tools = lists.map(|list| shown[list].as_array().unwrap().clone());
        let names: Vec<String> = tools
            .concat()
            .into_iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, sent, "{verb}");
    }
}

#[test]
fn thread_show_has_what_a_hosted_skill_ran_that_was_called_as_a_tool() {
    let ran = json!({
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "three rows\n", "stderr": "", "return_code": 0, "content": [],
        },
    });
    let command = json!({ "command": "python make_table.py" });
    let message = Message::new()
        .server_tool_use("srvtoolu_1", "bash_code_execution", command)
        .raw_on(Wire::Anthropic, ran)
        .text("Made.");
    let script = Script::new().hosted(Hosted::new()).step(Step::new(message));
    let mock = MockLlm::start_blocking(script).unwrap();
    let workspace = workspace(&[HOSTED]);
    let call = json!({ "tool": "xlsx_code_execution", "arguments": { "task": "A table." } });
    let steps = json!({ "steps": [{ "calls": [call] }, { "text": "Done." }] });
    workspace.write("script.json", steps.to_string()).unwrap();
    let session = "script = \"script.json\"\n[policy]\nallow = [\"*\"]\n[[backend]]\n\
                   kind = \"anthropic\"\nconfig.skills = [\"xlsx\"]\n";
    workspace.write("session.toml", session).unwrap();
    let ask = |args: &str| {
        let cli = conjure(&workspace, args).env("ANTHROPIC_BASE_URL", mock.base_url());
        let output = cli.env("ANTHROPIC_API_KEY", "k").run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        output
    };
    let ran = ask("run Go. --config session.toml --json");
    let ended = json_lines(&ran).pop().unwrap();
    let thread = ended["thread"].as_str().unwrap();
    let shown = ask(&format!("thread show {thread}")).stdout;
    for part in ["python make_table.py", "three rows", "Made."] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_call_of_what_the_provider_runs_itself_says_why_there_is_no_such_tool() {
    let hosted = Hosted::new().skill(StoredSkill::custom("skill_01", "my-report", "Reports."));
    let mock = MockLlm::start_blocking(Script::new().hosted(hosted)).unwrap();
    let workspace = workspace(&[HOSTED]);
    let session = "provider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n[[backend]]\n\
                   kind = \"anthropic\"\nconfig.skills = [\"skill_01\", \"xlsx\"]\n";
    workspace.write("session.toml", session).unwrap();
    let call = "call my-report_code_execution --config session.toml";
    let called = conjure(&workspace, call)
        .env("ANTHROPIC_BASE_URL", mock.base_url())
        .env("ANTHROPIC_API_KEY", "k")
        .run()
        .unwrap();
    assert_ne!(called.code, Some(0), "{called:?}");
    for told in [
        "there is no tool `my-report_code_execution`",
        "only in a conversation: `code_execution` (of the backend `anthropic`)",
        "without `provider` in the session file",
    ] {
        assert!(called.stderr.contains(told), "{told}: {called:?}");
    }
}
