//! Blocks that are files: session files, manifests, models and prices, JSON.

use std::fs;
use std::process::Command;

use conjure_kit::{Cli, Engine, MockMcp, Workspace, repo_root};
use conjure_mock_llm::{Hosted, MockLlm, Script, StoredSkill};
use serde_json::Value;

use super::blocks::{Block, Check, checked_as};
use crate::stage::{FETCHER, LOCAL, conjure, json, workspace};

/// Plugins that session files of pages name, by the line that names them.
const PLUGINS: [(&str, &str); 7] = [
    ("kind = \"native\"", FETCHER),
    ("kind = \"local\"", LOCAL),
    ("kind = \"anthropic\"", "conjure-backend-anthropic"),
    ("kind = \"docker\"", "conjure-backend-docker"),
    ("kind = \"ssh\"", "conjure-backend-ssh"),
    ("kind = \"kubernetes\"", "conjure-backend-kubernetes"),
    ("kind = \"mcp\"", "conjure-backend-mcp"),
];

/// What stands around a session file on a reader's machine.
fn surroundings(file: &str) -> Workspace {
    let plugins = PLUGINS.iter().filter(|(line, _)| file.contains(line));
    let plugins: Vec<&str> = plugins.map(|(_, plugin)| *plugin).collect();
    let workspace = workspace(&plugins);
    for (folder, name) in [
        ("skills/log-analyzer", "log-analyzer"),
        ("packages/reports.skill", "reports"),
    ] {
        let made = workspace.write_skill(folder, name, "Writes reports.", "Body");
        made.unwrap();
    }
    workspace
}

/// A session file read as `conjure routes` does.
fn routes(block: &Block, text: &str) -> Result<(), String> {
    let workspace = surroundings(text);
    workspace.write("session.toml", text).unwrap();
    let hosted = StoredSkill::custom("skill_01AbCdEf", "my-report", "Writes reports.");
    let script = Script::new().hosted(Hosted::new().skill(hosted));
    let model = MockLlm::start_blocking(script).unwrap();
    let bin = workspace.root().join("bin");
    fs::create_dir(&bin).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    if text.contains("kind = \"mcp\"") {
        let server = bin.join("mcp-server-memory");
        std::os::unix::fs::symlink(MockMcp::program().unwrap(), server).unwrap();
    }
    let as_reader = |program: Cli| {
        program
            .env("PATH", &path)
            .env("ANTHROPIC_BASE_URL", model.base_url())
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("MCP_NOTES_TOKEN", "a-token-of-nobody")
            .env("MCP_TRACKER_TOKEN", "a-token-of-nobody")
    };
    for auth in ["work --provider anthropic", "home --provider openai"] {
        let add = conjure(&workspace, &format!("auth create {auth}"));
        let added = as_reader(add).stdin("a-key-of-nobody").run().unwrap();
        assert_eq!(added.code, Some(0), "{}", added.snapshot());
    }
    let routes = conjure(&workspace, "routes --config session.toml");
    let output = as_reader(routes).run().unwrap();
    match output.code {
        Some(0) => Ok(()),
        _ => Err(format!("{}: {}\n", block.place(), output.snapshot())),
    }
}

#[test]
fn session_files_are_read_by_the_program() {
    let blocks = checked_as(&Check::Session);
    assert!(!blocks.is_empty());
    let mut wrong = String::new();
    for block in blocks {
        if block.text.contains("kind = \"docker\"") {
            continue;
        }
        wrong.extend(routes(&block, &block.text).err());
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn session_files_with_a_container_are_read_where_an_engine_runs() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    for block in checked_as(&Check::Session) {
        if block.text.contains("kind = \"docker\"") {
            // The image that the page has made before.
            let text = block.text.replace("conjure-workspace", engine.image());
            routes(&block, &text).unwrap();
        }
    }
}

#[test]
fn a_field_that_there_is_not_is_found() {
    let block = checked_as(&Check::Session).remove(0);
    let wrong = routes(&block, "provder = \"scripted\"\n").unwrap_err();
    assert!(wrong.contains("unknown field `provder`"), "{wrong}");
}

#[test]
fn models_and_prices_are_read_by_the_program() {
    for block in checked_as(&Check::Models) {
        let workspace = surroundings("");
        workspace.write("data/models.toml", &block.text).unwrap();
        let args = "models openai --offline --json --data-dir data";
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(
            output.code,
            Some(0),
            "{}: {}",
            block.place(),
            output.snapshot()
        );
        let models = json(&output);
        let priced = models
            .as_array()
            .unwrap()
            .iter()
            .any(|model| model["model"] == "gpt-5" && model["price"]["input"] == 1.0);
        assert!(priced, "{}: {models:#}", block.place());
    }
}

#[test]
fn manifests_are_read_by_cargo() {
    for block in checked_as(&Check::Manifest) {
        let workspace = surroundings("");
        let package = "[package]\nname = \"a-reader\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        let root = repo_root();
        let text = block
            .text
            .replace("\"…/", &format!("\"{}/", root.display()));
        workspace
            .write("Cargo.toml", format!("{package}\n{text}\n[workspace]\n"))
            .unwrap();
        workspace.write("src/lib.rs", "").unwrap();
        let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
            .args(["metadata", "--no-deps", "--format-version=1"])
            .current_dir(workspace.work())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", block.place());
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        for dependency in metadata["packages"][0]["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if let Some(path) = dependency["path"].as_str() {
                let manifest = fs::read_to_string(format!("{path}/Cargo.toml")).unwrap();
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{path}");
                for feature in dependency["features"].as_array().unwrap() {
                    let feature = format!("{} = [", feature.as_str().unwrap());
                    assert!(manifest.contains(&feature), "{path}: {feature}");
                }
            }
        }
    }
}

#[test]
fn descriptions_are_read_by_the_program() {
    let blocks = checked_as(&Check::Description);
    assert!(!blocks.is_empty());
    for block in blocks {
        let workspace = surroundings("");
        workspace.write("plugin.toml", &block.text).unwrap();
        let description: toml::Table = toml::from_str(&block.text).unwrap();
        for file in description["files"].as_array().unwrap() {
            let file = file.as_str().unwrap();
            let file = match file.ends_with('/') {
                true => format!("{file}a-file"),
                false => file.to_owned(),
            };
            workspace.write(&file, "").unwrap();
        }
        let output = conjure(&workspace, "plugin show plugin.toml")
            .run()
            .unwrap();
        assert_eq!(
            output.code,
            Some(0),
            "{}: {}",
            block.place(),
            output.snapshot()
        );
    }
}

#[test]
fn plugins_in_python_say_their_manifest() {
    let blocks = checked_as(&Check::Python);
    assert!(!blocks.is_empty());
    for block in blocks {
        let workspace = surroundings("");
        workspace.write("plugin.py", &block.text).unwrap();
        let output = Command::new("/usr/bin/python3")
            .args(["-B", "plugin.py", "--manifest"])
            .env("PYTHONPATH", repo_root().join("skill-sdk/python"))
            .current_dir(workspace.work())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", block.place());
        let manifest: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(manifest["tools"][0]["name"], "greet", "{}", block.place());
    }
}

#[test]
fn programs_on_no_sdk_hold_their_contract_and_are_called() {
    let blocks = checked_as(&Check::Program);
    assert!(!blocks.is_empty());
    for block in blocks {
        let workspace = surroundings("");
        workspace.write("program.py", &block.text).unwrap();
        let description = "plugin = 1\nprotocol = 1\nkind = \"skill\"\nname = \"my-skill\"\n\
            version = \"0.1.0\"\ncommand = [\"python3\", \"program.py\"]\nfiles = [\"program.py\"]\n";
        workspace.write("plugin.toml", description).unwrap();
        for (args, said) in [
            ("plugin check plugin.toml", "a host takes it"),
            ("plugin test .", " passed, 0 failed"),
            (
                "call my-skill_greet --args {\"name\":\"Ada\"} --plugin plugin.toml",
                "Hello, Ada!\n",
            ),
        ] {
            let output = conjure(&workspace, args).run().unwrap();
            let is_fine = output.code == Some(0) && output.stdout.contains(said);
            assert!(is_fine, "{}: {}", block.place(), output.snapshot());
            assert!(!output.stdout.contains("warning:"), "{}", output.snapshot());
        }
    }
}

#[test]
fn json_is_json_and_a_script_answers() {
    for block in checked_as(&Check::Json) {
        let values = serde_json::Deserializer::from_str(&block.text).into_iter::<Value>();
        let values: Result<Vec<Value>, _> = values.collect();
        let values = values.unwrap_or_else(|error| panic!("{}: {error}", block.place()));
        assert!(!values.is_empty(), "{}", block.place());
        if values.iter().any(|value| value.get("steps").is_some()) {
            script_answers(&block);
        }
    }
}

/// A script is answered from to its end, over a log.
fn script_answers(block: &Block) {
    let session = "provider = \"scripted\"\nmodel = \"a-script\"\nscript = \"script.json\"\n\
        [[backend]]\nkind = \"native\"\n[policy]\nallow = [\"*\"]\n";
    let workspace = surroundings(session);
    workspace.write("session.toml", session).unwrap();
    workspace.write("script.json", &block.text).unwrap();
    workspace
        .write("app.log", "10:30:00 ERROR it broke\n")
        .unwrap();
    let args = "run --config session.toml --set input=app.log Why?";
    let output = conjure(&workspace, args).run().unwrap();
    assert_eq!(
        output.code,
        Some(0),
        "{}: {}",
        block.place(),
        output.snapshot()
    );
    assert!(
        output.stdout.contains("logs.jsonl"),
        "{}",
        output.snapshot()
    );
}
