//! `conjure policy check`: what could ask, told before a run.

use conjure_kit::{MockMcp, Model, Output, Workspace};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::mcp::place;
use crate::stage::{CACHE, asks, conjure, json, workspace};

fn check(workspace: &Workspace, rules: &str) -> Output {
    let args = format!("policy check --executor none {rules}");
    conjure(workspace, &args).run().unwrap()
}

fn of_call(workspace: &Workspace, rules: &[&str], name: &str, arguments: &str) -> Output {
    let args = ["policy", "check", "--executor", "none", "--call"];
    let args = [&args, &[name, arguments][..], rules].concat();
    conjure_kit::cli(args).workspace(workspace).run().unwrap()
}

#[test]
fn what_could_ask_is_listed_before_a_run_and_the_exit_code_says_so() {
    let workspace = workspace(&[CACHE]);
    let output = check(&workspace, "");
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("cache-manager_execute"));
    assert!(!output.stdout.contains("cache-manager_read"));
    assert!(output.stderr.contains("Calls could ask a person."));
    let all = check(&workspace, "--all");
    assert!(all.stdout.contains("cache-manager_read"), "{all:?}");

    let output = check(&workspace, "--allow cache-manager_*");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout, "");
    let output = check(&workspace, "--deny cache-manager_*");
    assert_eq!(output.code, Some(0), "deny wins: {output:?}");
    let output = check(&workspace, "--allow cache-manager_* --ask *");
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn a_rule_with_arguments_makes_a_tool_depend_on_them() {
    let workspace = workspace(&[CACHE]);
    let output = check(&workspace, "--allow cache-manager_execute(get*) --json");
    assert_eq!(output.code, Some(1), "{output:?}");
    let told = json(&output);
    assert_eq!(told["could_ask"], true);
    let tools = told["tools"].as_array().unwrap();
    let execute = tools
        .iter()
        .find(|tool| tool["name"] == "cache-manager_execute")
        .unwrap();
    assert_eq!(execute["decision"], "ask");
    assert_eq!(execute["rule"], json!(null));
    assert_eq!(
        execute["depends_on"],
        json!([{"pattern": "cache-manager_execute(get*)", "decision": "allow"}])
    );
}

#[test]
fn one_call_gets_what_a_run_would_give_it() {
    let workspace = workspace(&[CACHE]);
    let rules = ["--allow", "cache-manager_execute(get*)"];
    let name = "cache-manager_execute";
    let get = of_call(&workspace, &rules, name, r#"{"command": "get k"}"#);
    assert_eq!(get.code, Some(0), "{get:?}");
    assert_eq!(
        get.stdout,
        "allow by the rule `cache-manager_execute(get*)`\n"
    );
    let set = of_call(&workspace, &rules, name, r#"{"command": "set k v"}"#);
    assert_eq!(set.code, Some(1), "{set:?}");
    assert_eq!(
        set.stdout,
        "ask by default for a tool with effects `write`\n"
    );

    let model = Model::start().unwrap();
    model.calls("toolu_1", name, json!({"command": "set k v"}));
    model.says(Message::new().text("Done."));
    let args = "run --allow cache-manager_execute(get*)";
    let run = asks(&workspace, &model, args, "Go on.").run().unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let got = model.last_request().tool_result_text("toolu_1").unwrap();
    assert!(got.contains(set.stdout.trim()), "{got}");

    let unknown = of_call(&workspace, &[], "nothing", "{}");
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let no_object = of_call(&workspace, &[], name, "[]");
    assert_eq!(no_object.code, Some(2), "{no_object:?}");
}

#[test]
fn servers_that_give_no_tools_are_told() {
    let login = MockMcp::over_http(&["oauth"]).unwrap();
    let workspace = place(&[("o", format!("url = \"{}\"", login.url()))]);
    let check = |more: &str| {
        let args = format!("policy check --config session.toml {more}");
        conjure(&workspace, &args).run().unwrap()
    };
    let told = "MCP server `o` of backend `mcp` is not connected (needs_auth)";
    let all = check("");
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.stderr.contains(told), "{all:?}");
    assert!(all.stderr.contains("conjure mcp login o"), "{all:?}");
    assert!(!all.stderr.contains("No call can ask a person."), "{all:?}");
    let one = check("--call o_echo {}");
    assert_eq!(one.code, Some(2), "{one:?}");
    assert!(one.stderr.contains(told), "{one:?}");
    let printed = json(&check("--json"));
    assert_eq!(printed["unavailable"][0]["server"], "o", "{printed}");
}
