//! `conjure plugin test`: the contract of each kind, in process and in a worker. The crates that
//! `plugin create` makes hold it, and what does not hold it is told.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_kit::{Cargo, Cli, Engine, Output, Sshd, Workspace, repo_root};
use serde_json::{Value, json};

use crate::plugin_create::{built, checkout};
use crate::stage::{CACHE, FETCHER, LOCAL, conjure, json, workspace};

/// Runs the checks of a library.
pub(crate) fn tested(workspace: &Workspace, library: &str, more: &str) -> (Output, Value) {
    let args = format!("plugin test {library} --json {more}");
    let output = conjure(workspace, &args).run().unwrap();
    let said = json(&output);
    (output, said)
}

/// The outcomes of one place, as `verdict check`.
pub(crate) fn outcomes(said: &Value, place: usize) -> Vec<String> {
    let checks = said["runs"][place]["checks"].as_array().unwrap();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    checks
        .iter()
        .map(|check| format!("{} {}", word(&check["verdict"]), word(&check["check"])))
        .collect()
}

/// The checks that failed, in any place, with what was there.
pub(crate) fn failed(said: &Value) -> Vec<(String, String)> {
    let runs = said["runs"].as_array().unwrap();
    let checks = runs
        .iter()
        .flat_map(|run| run["checks"].as_array().unwrap());
    let checks = checks.filter(|check| check["verdict"] == "failed");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    checks
        .map(|check| (word(&check["check"]), word(&check["got"])))
        .collect()
}

/// Lets a program find the compiler of this machine, and what others have built.
pub(crate) fn with_rust(program: Cli) -> Cli {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = repo_root().join("target/plugin-new");
    let mut program = program
        .env("CARGO", cargo)
        .env("CARGO_TARGET_DIR", target)
        .deadline(Duration::from_secs(240));
    for name in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "PATH"] {
        if let Some(value) = std::env::var_os(name) {
            program = program.env(name, value);
        }
    }
    program
}

/// Makes a crate, changes its source, and builds it.
pub(crate) fn built_with(
    workspace: &Workspace,
    kind: &str,
    name: &str,
    changes: &[(&str, &str)],
) -> PathBuf {
    let create = format!("plugin create {kind} {name} {}", checkout());
    let made = conjure(workspace, &create).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    change(workspace, name, changes);
    let target = repo_root().join("target/plugin-new");
    Cargo::at(workspace.work().join(name), target)
        .plugin(name)
        .unwrap()
}

/// Changes the source of a crate.
fn change(workspace: &Workspace, name: &str, changes: &[(&str, &str)]) {
    let source = workspace.work().join(name).join("src/lib.rs");
    let mut text = fs::read_to_string(&source).unwrap();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    fs::write(&source, text).unwrap();
}

#[test]
fn a_skill_of_the_template_holds_its_contract_with_the_sdk_of_the_program() {
    let workspace = workspace(&[]);
    let library = built(&workspace, "skill", "tested-skill", "");
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(said["plugin"], "tested-skill 0.1.0");
    let places = ["in-process", "process"];
    for (place, name) in places.into_iter().enumerate() {
        assert_eq!(said["runs"][place]["isolation"], name);
        let outcomes = outcomes(&said, place);
        for check in [
            "passed it answers a ping",
            "passed `greet` refuses arguments that do not fit its schema",
            "passed example: `greet` {\"name\":\"Ada\"}",
            "passed example: `execute` {\"command\":\"sing\"}",
        ] {
            assert!(outcomes.iter().any(|there| there == check), "{outcomes:?}");
        }
    }
}

#[test]
fn an_executor_of_the_template_holds_its_contract_and_has_files_and_skills() {
    let workspace = workspace(&[]);
    let library = built(&workspace, "executor", "tested-executor", &checkout());
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(0), "{output:?}");
    for place in 0..2 {
        let outcomes = outcomes(&said, place);
        assert!(outcomes.len() > 20, "{outcomes:?}");
        for check in [
            "skill folders can be read",
            "a file that was made can be fetched",
            "a command that is cancelled ends with all that it started",
        ] {
            let wanted = format!("passed {check}");
            assert!(outcomes.contains(&wanted), "{check}: {outcomes:?}");
        }
    }
}

#[test]
fn an_executor_that_keeps_its_files_to_itself_is_found() {
    let workspace = workspace(&[]);
    let change = (".with_files()", "");
    let library = built_with(&workspace, "executor", "closed-executor", &[change]);
    let more = "--isolation in-process --only fetched";
    let (output, said) = tested(&workspace, library.to_str().unwrap(), more);
    assert_eq!(output.code, Some(1), "{output:?}");
    let [(check, got)] = &failed(&said)[..] else {
        panic!("{said:#}");
    };
    assert_eq!(check, "a file that was made can be fetched");
    assert!(got.contains("no `files.get`"), "{got}");
}

#[test]
fn a_command_that_leaves_others_running_is_found() {
    let workspace = workspace(&[]);
    let change = ("-s KILL -- -{leader}", "-s KILL {leader}");
    let library = built_with(&workspace, "executor", "leaving-executor", &[change]);
    let more = "--isolation in-process --only cancelled";
    let (output, said) = tested(&workspace, library.to_str().unwrap(), more);
    assert_eq!(output.code, Some(1), "{output:?}");
    let failed = failed(&said);
    assert_eq!(failed.len(), 1, "{said:#}");
}

#[test]
fn a_backend_of_the_template_holds_its_contract() {
    let workspace = workspace(&[]);
    let library = built(&workspace, "backend", "tested-backend", &checkout());
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(0), "{output:?}");
    let outcomes = outcomes(&said, 1);
    assert!(
        outcomes.contains(&"passed example: `echo` {\"text\":\"hi\"}".to_owned()),
        "{outcomes:?}"
    );
}

#[test]
fn an_executor_and_a_backend_in_python_hold_their_contracts_and_have_tests() {
    let workspace = workspace(&[]);
    for (kind, tests, least, check) in [
        (
            "executor",
            3,
            24,
            "a command that is cancelled ends with all that it started",
        ),
        (
            "backend",
            2,
            9,
            "a session that closes leaves the others open",
        ),
    ] {
        let name = format!("my-{kind}");
        let create = format!("plugin create {kind} {name} --lang python");
        let made = conjure(&workspace, &create).run().unwrap();
        assert_eq!(made.code, Some(0), "{made:?}");
        let own = std::process::Command::new("/usr/bin/python3")
            .args(["-B", "-W", "error", "-m", "unittest"])
            .current_dir(workspace.work().join(&name))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&own.stderr);
        let all_ran = format!("Ran {tests} tests");
        assert!(own.status.success() && said.contains(&all_ran), "{said}");
        let (output, said) = tested(&workspace, &name, "");
        assert_eq!(output.code, Some(0), "{said:#}");
        let outcomes = outcomes(&said, 0);
        let passed = outcomes.iter().filter(|it| it.starts_with("passed"));
        assert!(passed.count() >= least, "{outcomes:?}");
        assert!(
            outcomes.contains(&format!("passed {check}")),
            "{outcomes:?}"
        );
    }
    // As the words after making them say it.
    let args = [
        "call",
        "my-backend_echo",
        "--executor",
        "my-backend",
        "--args",
        "{\"text\": \"hi\"}",
    ];
    let more = ["--plugin", "my-backend/my-backend.plugin.toml"];
    let called = conjure_kit::cli(args.into_iter().chain(more)).workspace(&workspace);
    assert_eq!(called.run().unwrap().stdout, "hi\n");
    let args = [
        "call",
        "my-executor_bash_tool",
        "--executor",
        "my-executor",
        "--args",
        "{\"command\": \"echo hi\"}",
    ];
    let more = ["--plugin", "my-executor/my-executor.plugin.toml"];
    let called = conjure_kit::cli(args.into_iter().chain(more)).workspace(&workspace);
    let called = called.run().unwrap();
    assert!(called.stdout.contains("hi"), "{called:?}");
}

/// The skill of the template as an `impl` block.
const WITH_ATTRIBUTE: &str = r#"use std::sync::Mutex;

use conjure_skill_sdk::{export_skill, skill, Error, Result, Skill};
use serde_json::json;

#[derive(Default)]
struct Greeter(Mutex<Vec<String>>);

/// Greets people and remembers whom
#[skill]
impl Greeter {
    /// Greets somebody
    #[tool]
    fn greet(
        &self,
        /// Whom to greet
        name: String,
    ) -> Result<String> {
        let mut greeted = self.0.lock().map_err(|_| Error::new("the list is broken"))?;
        greeted.push(name);
        Ok(format!("Hello, {}!", greeted.join(" and ")))
    }
}

fn greeter() -> Skill {
    Greeter::skill()
        .example("greet", json!({ "name": "Ada" }), "Hello, Ada!")
        .example("greet", json!({ "name": "Grace" }), "Hello, Ada and Grace!")
}

export_skill!(greeter);
"#;

#[test]
fn a_skill_as_an_impl_block_holds_its_contract_with_the_sdk_of_the_program() {
    let workspace = workspace(&[]);
    let made = conjure(&workspace, "plugin create skill block-skill")
        .run()
        .unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::write(
        workspace.work().join("block-skill/src/lib.rs"),
        WITH_ATTRIBUTE,
    )
    .unwrap();
    let target = repo_root().join("target/plugin-new");
    let library = Cargo::at(workspace.work().join("block-skill"), target)
        .plugin("block-skill")
        .unwrap();
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(0), "{said:#}");
    for place in 0..2 {
        let outcomes = outcomes(&said, place);
        for check in [
            "passed `greet` refuses arguments that do not fit its schema",
            "passed example: `greet` {\"name\":\"Grace\"}",
        ] {
            assert!(outcomes.iter().any(|it| it == check), "{outcomes:?}");
        }
    }
}

#[test]
fn a_crash_fails_its_check_and_the_others_go_on() {
    let workspace = workspace(&[]);
    let library = built_with(
        &workspace,
        "skill",
        "crashing-skill",
        &[
            (
                "greeted.push(arguments.name.clone());",
                "if arguments.name == \"abort\" { std::process::abort() }\n\
                 if arguments.name == \"leave\" { std::process::exit(0) }\n\
                 greeted.push(arguments.name.clone());",
            ),
            (
                ".example(\"greet\", json!({ \"name\": \"Ada\" }), \"Hello, Ada!\")",
                ".example(\"greet\", json!({ \"name\": \"abort\" }), \"Hello\")\n\
                 .example(\"greet\", json!({ \"name\": \"leave\" }), \"Hello\")\n\
                 .example(\"greet\", json!({ \"name\": \"Ada\" }), \"Bye, Ada!\")",
            ),
        ],
    );
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(1), "{output:?}");
    let crash = "example: `greet` {\"name\":\"abort\"}";
    let left = "example: `greet` {\"name\":\"leave\"}";
    let wrong = "example: `greet` {\"name\":\"Ada\"}";
    let failed = failed(&said);
    let checks: Vec<&str> = failed.iter().map(|(check, _)| check.as_str()).collect();
    assert_eq!(
        checks,
        [crash, left, wrong, crash, left, wrong],
        "{failed:?}"
    );
    assert!(failed[0].1.contains("SIGABRT"), "{failed:?}");
    assert!(failed[3].1.contains("SIGABRT"), "{failed:?}");
    assert!(failed[1].1.contains("exit code 0"), "{failed:?}");
    assert!(failed[2].1.contains("Hello, Ada!"), "{failed:?}");
    // What comes after the crash was run all the same.
    for place in 0..2 {
        let outcomes = outcomes(&said, place);
        let last = "passed example: `execute` {\"command\":\"sing\"}";
        assert_eq!(outcomes.last().map(String::as_str), Some(last));
    }
}

#[test]
fn what_would_run_nothing_is_a_mistake_and_no_success() {
    let workspace = workspace(&[]);
    let library = workspace.add_plugin(CACHE).unwrap();
    for (more, reason) in [
        ("--only xyz", "no check has `xyz` in its name"),
        ("--working-dir nowhere", "nowhere is no directory"),
    ] {
        let args = format!("plugin test {} {more}", library.display());
        let output = conjure(&workspace, &args).run().unwrap();
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(reason), "{output:?}");
    }
}

#[test]
fn a_crate_is_built_first_and_what_the_compiler_says_is_shown() {
    let workspace = workspace(&[]);
    built(&workspace, "skill", "built-skill", &checkout());
    let run = || {
        let test = conjure(&workspace, "plugin test built-skill --only ping");
        with_rust(test).run().unwrap()
    };
    let output = run();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("1 passed, 0 failed"), "{output:?}");
    let wrong = (
        "fn skill() -> Skill {",
        "fn skill() -> Skill {\n    nothing;",
    );
    change(&workspace, "built-skill", &[wrong]);
    let output = run();
    assert_eq!(output.code, Some(1), "{output:?}");
    for part in [
        "cannot find value `nothing`",
        "src/lib.rs",
        "does not build",
    ] {
        assert!(output.stdout.contains(part), "{part}: {output:?}");
    }
}

#[test]
fn what_is_no_plugin_is_refused() {
    let workspace = workspace(&[CACHE]);
    workspace.write("notes.txt", "Milk.\n").unwrap();
    let output = conjure(&workspace, "plugin test notes.txt").run().unwrap();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("refused: notes.txt: is a text file"));
    let output = conjure(&workspace, "plugin test .").run().unwrap();
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("there is no Cargo.toml"),
        "{output:?}"
    );
    let library = workspace
        .plugins()
        .join("libconjure_skill_cache_manager.so");
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(failed(&said).is_empty(), "{said:#}");
    let state = "passed the state that it hands out is taken over by a new instance";
    assert!(outcomes(&said, 0).iter().any(|it| it == state), "{said:#}");
}

#[test]
fn examples_find_the_files_that_they_are_given_and_build_on_each_other() {
    let workspace = workspace(&[FETCHER]);
    let library = workspace.plugins().join("libconjure_skill_log_fetcher.so");
    let library = library.display();
    let output = conjure(&workspace, &format!("plugin show {library} --load --json"));
    let manifest = json(&output.run().unwrap())["manifest"].clone();
    assert_eq!(manifest["examples"].as_array().map(Vec::len), Some(1));
    let (output, said) = tested(&workspace, &library.to_string(), "--only example");
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(failed(&said)[0].1.contains("app.log"), "{said:#}");
    // 477 lines that it leaves out, and 23 that it keeps.
    let line = |number| match number < 23 {
        true => "2026-11-01T09:00:00Z WARN late\n",
        false => "2026-11-01T09:00:00Z INFO fine\n",
    };
    let log: String = (0..500).map(line).collect();
    workspace.write("given/app.log", log).unwrap();
    let more = "--only example --working-dir given";
    let (output, said) = tested(&workspace, &library.to_string(), more);
    assert_eq!(output.code, Some(0), "{said:#}");
}

#[test]
fn the_local_executor_holds_the_contract_of_its_kind() {
    let workspace = workspace(&[LOCAL]);
    let library = workspace.plugins().join("libconjure_backend_local.so");
    let (output, said) = tested(&workspace, library.to_str().unwrap(), "");
    assert_eq!(output.code, Some(0), "{said:#}");
    let places = [outcomes(&said, 0), outcomes(&said, 1)];
    assert_eq!(places[0], places[1]);
    let all_pass = |outcomes: &Vec<String>| outcomes.iter().all(|one| one.starts_with("passed "));
    assert!(
        places[0].len() > 20 && places.iter().all(all_pass),
        "{places:?}"
    );
}

/// Runs the contract of a shipped executor, which passes in each of these places.
fn holds_its_contract(workspace: &Workspace, package: &str, config: &Value, places: &[&str]) {
    let library = workspace.add_plugin(package).unwrap();
    for place in places {
        holds_its_contract_in(workspace, &library, config, place);
    }
}

fn holds_its_contract_in(workspace: &Workspace, library: &Path, config: &Value, place: &str) {
    let args = format!(
        "plugin test {} --json --isolation {place} --config {config}",
        library.display()
    );
    let output = conjure(workspace, &args)
        .deadline(Duration::from_secs(240))
        .run()
        .unwrap();
    let said = json(&output);
    assert_eq!(output.code, Some(0), "{said:#}");
    let outcomes = outcomes(&said, 0);
    let all_pass = outcomes.iter().all(|one| one.starts_with("passed "));
    assert!(outcomes.len() > 20 && all_pass, "{place}: {outcomes:?}");
}

#[test]
fn the_container_executor_holds_the_contract_of_its_kind() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let config = json!({ "image": engine.image() });
    // A worker has no sockets of this machine, and this engine listens at one.
    let places = ["in-process"];
    holds_its_contract(&workspace(&[]), "conjure-backend-docker", &config, &places);
}

#[test]
fn the_container_executor_in_a_worker_says_why_it_has_no_engine_there() {
    let workspace = workspace(&[]);
    let library = workspace.add_plugin("conjure-backend-docker").unwrap();
    let socket = workspace.root().join("engine.sock");
    let _engine = UnixListener::bind(&socket).unwrap();
    let config = json!({ "engine": format!("unix://{}", socket.display()) });
    let only = "--only variables --isolation process";
    let more = format!("{only} --config {config}");
    let (output, said) = tested(&workspace, library.to_str().unwrap(), &more);
    assert_eq!(output.code, Some(1), "{said:#}");
    let failed = failed(&said);
    assert_eq!(failed.len(), 1, "{said:#}");
    assert!(failed[0].1.contains("`conjure plugin trust`"), "{failed:?}");
}

#[test]
fn the_executor_of_remote_machines_holds_the_contract_of_its_kind() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    fs::create_dir_all(sshd.path("scratch")).unwrap();
    let workspace = workspace(&[]);
    // Where a person has them, which is what the manifest asks for.
    let own = workspace.home().join(".ssh");
    fs::create_dir(&own).unwrap();
    for name in ["user_key", "known_hosts", "config"] {
        fs::copy(sshd.path(name), own.join(name)).unwrap();
    }
    let config = json!({
        "host": "127.0.0.1",
        "port": sshd.address().port(),
        "identity_file": "~/.ssh/user_key",
        "known_hosts": "~/.ssh/known_hosts",
        "config_file": "~/.ssh/config",
        "scratch_dir": sshd.path("scratch"),
        "agent_dir": sshd.path("agent"),
    });
    let places = ["in-process", "process"];
    holds_its_contract(&workspace, "conjure-backend-ssh", &config, &places);
    assert_eq!(fs::read_dir(sshd.path("scratch")).unwrap().count(), 0);
}
