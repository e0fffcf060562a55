//! `conjure call`: one call, no model.

use conjure_kit::MockMcp;
use insta::assert_snapshot;
use serde_json::json;

use crate::mcp::{place, program, script};
use crate::stage::{CACHE, FETCHER, LOCAL, conjure, json, workspace};

#[test]
fn a_native_skill_is_called() {
    let workspace = workspace(&[CACHE]);
    let args = "call cache-manager_execute --args {\"command\":\"list\"}";
    assert_snapshot!(conjure(&workspace, args).run().unwrap().snapshot(), @r"
    exit code 0
    --- stdout
    nothing is stored
    --- stderr
    ");
}

#[test]
fn a_command_tool_needs_an_executor() {
    let workspace = workspace(&[LOCAL]);
    let call = "call local_bash_tool --args {\"command\":\"pwd\",\"description\":\"\"}";
    assert_snapshot!(conjure(&workspace, call).run().unwrap().snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: there is no tool `local_bash_tool`; there are: none. No executor is named, so there are no command tools: name one, such as `--executor local`.
    ");
    let named = format!("{call} --executor local");
    assert_snapshot!(conjure(&workspace, &named).run().unwrap().snapshot(), @r"
    exit code 0
    --- stdout
    [WORKSPACE]/work
    --- stderr
    ");
    let none = format!("{call} --executor none");
    let none = conjure(&workspace, &none).run().unwrap();
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("No executor is named"), "{none:?}");
    let other = format!("{call} --executor docker");
    assert_snapshot!(conjure(&workspace, &other).run().unwrap().snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: backend `docker`: no executor or backend plugin is called `docker`; loaded are: local. Load it with `--plugin FILE`, or put it into a plugin directory (`conjure plugin list` shows them)
    ");
}

#[test]
fn a_tool_of_a_skill_folder_is_called() {
    let workspace = workspace(&[LOCAL]);
    workspace.write_skill("s", "s", "A skill.", "Body").unwrap();
    workspace.write("s/scripts/x.sh", "echo ran\n").unwrap();
    let command = json!({ "command": "sh scripts/x.sh", "description": "" }).to_string();
    let mut args = vec!["call", "s_bash_tool", "--executor", "local", "--skill", "s"];
    args.extend(["--args", &command]);
    let output = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "ran\n"),
        "{output:?}"
    );
}

#[test]
fn a_failing_call_is_exit_code_1_with_its_output() {
    let workspace = workspace(&[LOCAL]);
    let command = json!({ "command": "echo out; echo err >&2; exit 3", "description": "" });
    let args = [
        "call",
        "local_bash_tool",
        "--executor",
        "local",
        "--args",
        &command.to_string(),
    ];
    let output = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 1
    --- stdout
    out
    [stderr]
    err
    [exit code 3]
    [The call of `local_bash_tool` on backend `local` failed with what stands above. Correct the command, or do it in another way.]
    --- stderr
    ");
}

#[test]
fn programs_get_json() {
    let workspace = workspace(&[CACHE, FETCHER]);
    workspace
        .write("app.log", "2026-01-02T03:04:05Z ERROR it broke\n")
        .unwrap();
    let args = [
        "call",
        "log-fetcher_execute",
        "--json",
        "--args",
        "{\"command\":\"fetch app.log\"}",
    ];
    let output = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    let mut printed = json(&output);
    let file = &printed["files"][0];
    assert_eq!(file["source"], "native");
    assert!(
        file["sha256"].is_string() && file["size"].is_number(),
        "{file}"
    );
    printed["files"] = json!("…");
    printed["output"] = json!("…");
    printed["duration_ms"] = json!("…");
    let text = serde_json::to_string_pretty(&printed).unwrap();
    let redact = conjure_kit::Redactor::for_workspace(&workspace);
    assert_snapshot!(redact.apply(&text), @r#"
    {
      "tool": "log-fetcher_execute",
      "is_error": false,
      "output": "…",
      "text": "Kept 1 of 1 entries from app.log.\nLevels: ERROR 1.\nTime: [TIME] to [TIME].\nWritten to logs.jsonl in the working directory, one JSON object a line.\n[file] file-1 `logs.jsonl` (application/jsonl, 74 bytes) at logs.jsonl",
      "structured": {
        "count": 1,
        "levels": {
          "ERROR": 1,
          "WARN": 0,
          "INFO": 0,
          "DEBUG": 0,
          "TRACE": 0
        },
        "file": "logs.jsonl",
        "skipped": 0,
        "read": 1,
        "from": "[TIME]",
        "to": "[TIME]"
      },
      "files": "…",
      "duration_ms": "…",
      "unavailable": []
    }
    "#);
}

#[test]
fn wrong_usage_is_told() {
    let workspace = workspace(&[CACHE]);
    let mut story = String::new();
    for args in [
        "call",
        "call nobody_knows",
        "call cache-manager_execute --args {",
        "call cache-manager_execute --args []",
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        story.push_str(&format!("$ conjure {args}\n{}", output.snapshot()));
    }
    assert_snapshot!(story, @r#"
    $ conjure call
    exit code 2
    --- stdout
    --- stderr
    error: the following required arguments were not provided:
      <TOOL>

    Usage: conjure call <TOOL>

    For more information, try '--help'.
    $ conjure call nobody_knows
    exit code 2
    --- stdout
    --- stderr
    error: there is no tool `nobody_knows`; there are: cache-manager_execute, cache-manager_read. No executor is named, so there are no command tools: name one, such as `--executor local`.
    $ conjure call cache-manager_execute --args {
    exit code 2
    --- stdout
    --- stderr
    error: `--args` is not JSON: EOF while parsing an object at line 1 column 1
    $ conjure call cache-manager_execute --args []
    exit code 2
    --- stdout
    --- stderr
    error: `--args` is not a JSON object
    hint: write one, such as '{"command": "…"}'
    "#);
}

#[test]
fn any_tool_of_a_session_file_is_called() {
    let workspace = workspace(&[LOCAL, CACHE]);
    let session = "provider = \"anthropic\"\nmodel = \"m\"\n[[backend]]\nkind = \"local\"\n\
                   name = \"here\"\n[[backend]]\nkind = \"native\"\nskills = [\"cache-manager\"]\n";
    workspace.write("session.toml", session).unwrap();
    let call = |tool: &str, arguments: &str| {
        let call = format!("call {tool} --config session.toml --args {arguments}");
        conjure(&workspace, &call).run().unwrap()
    };
    let shell = call(
        "here_bash_tool",
        "{\"command\":\"pwd\",\"description\":\"\"}",
    );
    assert_eq!(shell.code, Some(0), "{shell:?}");
    assert!(shell.stdout.trim_end().ends_with("/work"), "{shell:?}");
    let skill = call("cache-manager_execute", "{\"command\":\"list\"}");
    assert_eq!(skill.stdout, "nothing is stored\n", "{skill:?}");
}

#[test]
fn a_name_that_no_tool_has_starts_no_server_a_second_time() {
    let starts = |provider: &str| {
        let server = MockMcp::program().unwrap();
        let run = "echo started >> starts; exec \"$SERVER\"";
        let server = format!("{}\nenv.SERVER = {server:?}", script(run));
        let workspace = place(&[("good", server)]);
        let servers = workspace.read("session.toml").unwrap();
        let session = format!("{provider}{servers}");
        workspace.write("session.toml", session).unwrap();
        let call = "call good_ecko --config session.toml";
        let called = conjure(&workspace, call).run().unwrap();
        let told = called.stderr.contains("there is no tool `good_ecko`");
        assert!(told, "{called:?}");
        workspace.read("starts").unwrap()
    };
    let alone = starts("");
    assert_eq!(starts("provider = \"anthropic\"\nmodel = \"m\"\n"), alone);
}

#[test]
fn a_call_tells_of_servers_that_give_no_tools() {
    let login = MockMcp::over_http(&["oauth"]).unwrap();
    let workspace = place(&[
        ("dead", script("exit 3")),
        ("good", program("")),
        ("o", format!("url = \"{}\"", login.url())),
    ]);
    let call = |args: &str| {
        let call = format!("call {args} --config session.toml");
        conjure(&workspace, &call).run().unwrap()
    };
    let missing = call("o_echo");
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("there is no tool `o_echo`"));
    let beside = call("good_echo --args {\"text\":\"hi\"}");
    assert_eq!(
        (beside.code, beside.stdout.as_str()),
        (Some(0), "hi\n"),
        "{beside:?}"
    );
    for told in [
        "MCP server `dead` of backend `mcp` is not connected",
        "MCP server `o` of backend `mcp` is not connected (needs_auth)",
        "what to do: conjure mcp login o",
    ] {
        assert!(missing.stderr.contains(told), "{told}: {missing:?}");
        assert!(beside.stderr.contains(told), "{told}: {beside:?}");
    }
    let printed = json(&call("good_echo --json --args {\"text\":\"hi\"}"));
    let unavailable = printed["unavailable"].as_array().unwrap();
    let names: Vec<&str> = unavailable
        .iter()
        .filter_map(|it| it["server"].as_str())
        .collect();
    assert_eq!(names, ["dead", "o"], "{printed}");
}

#[test]
fn an_image_is_told_with_its_place_and_every_file_once() {
    let workspace = place(&[("s", program(""))]);
    let output = conjure(&workspace, "call s_content --config session.toml");
    let output = output.run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines = output.stdout.lines();
    let files: Vec<&str> = lines.filter(|line| line.starts_with("[file] ")).collect();
    let images: Vec<&&str> = files
        .iter()
        .filter(|line| line.contains("`image.png`"))
        .collect();
    let [image] = images.as_slice() else {
        panic!("{output:?}");
    };
    let (_, place) = image.rsplit_once(" at ").unwrap();
    assert!(workspace.work().join(place).is_file(), "{place}");
    let mut ids: Vec<_> = files
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    ids.sort_unstable();
    let told = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), told, "{output:?}");
}

/// Another user than root, who may look into every process.
#[cfg(target_os = "linux")]
const NOBODY: u32 = 65534;

#[cfg(target_os = "linux")]
#[test]
fn a_command_that_is_not_confined_cannot_read_the_hosts_environment_either() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    let workspace = workspace(&[LOCAL]);
    let session = "sandbox = \"none\"\n[[backend]]\nkind = \"local\"\nconfig.confine = false\n";
    workspace.write("session.toml", session).unwrap();
    // Where another user may run it.
    let program = workspace.root().join("conjure");
    std::fs::copy(conjure_kit::conjure_bin().unwrap(), &program).unwrap();
    let key = format!("sk-{}", std::process::id());
    let script =
        format!("cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c {key}; true");
    let arguments = json!({ "command": script, "description": "" }).to_string();
    let call = [
        "call",
        "local_bash_tool",
        "--config",
        "session.toml",
        "--args",
        &arguments,
    ];
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = if is_root {
        let mut everything = vec![workspace.root().to_owned()];
        while let Some(path) = everything.pop() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            if path.is_dir() && !path.is_symlink() {
                let entries = std::fs::read_dir(&path).unwrap();
                everything.extend(entries.map(|entry| entry.unwrap().path()));
            }
        }
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&program);
        command
    } else {
        std::process::Command::new(&program)
    };
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = command
        .args(call)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", workspace.home())
        .env("TMPDIR", workspace.root().join("tmp"))
        .env("CONJURE_PLUGIN_PATH", workspace.plugins())
        .env("ANTHROPIC_API_KEY", &key)
        .current_dir(workspace.work())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim(), "0", "{told}");
}

/// Secrets of the environment, whoever is to use them.
#[cfg(target_os = "linux")]
const SECRETS: [&str; 4] = [
    "ANTHROPIC_API_KEY",
    "CONJURE_TOKEN",
    "CONJURE_KEY",
    "CONJURE_SECRET_MCP_X",
];

/// A secret that is nowhere by chance, in the form of a key.
#[cfg(target_os = "linux")]
fn secret() -> String {
    format!("{:064x}", (u64::from(std::process::id()) << 24) | 0xab_cdef)
}

/// A script that notes its own environment and that of all processes, as far as it can be read.
#[cfg(target_os = "linux")]
const NOTES: &str =
    "{ env; for file in /proc/[0-9]*/environ; do cat $file; done; } >seen 2>/dev/null; true";

/// What `conjure` lets a script find that runs [`NOTES`].
#[cfg(target_os = "linux")]
fn found(workspace: &conjure_kit::Workspace, session: &str, call: &[&str]) -> String {
    workspace.write("session.toml", session).unwrap();
    let _ = std::fs::remove_file(workspace.work().join("seen"));
    let call = call.iter().copied().chain(["--config", "session.toml"]);
    let mut call = conjure_kit::cli(call).workspace(workspace);
    for name in SECRETS {
        call = call.env(name, secret());
    }
    let output = call.run().unwrap();
    let seen = std::fs::read(workspace.work().join("seen"));
    let seen = seen.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    String::from_utf8_lossy(&seen).into_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn also_root_finds_no_key_in_the_environment_of_any_process() {
    let workspace = workspace(&[LOCAL]);
    let arguments = json!({ "command": NOTES, "description": "" }).to_string();
    let call = ["call", "local_bash_tool", "--args", &arguments];
    let session = "sandbox = \"none\"\n[[backend]]\nkind = \"local\"\nconfig.confine = false\n";
    let seen = found(&workspace, session, &call);
    assert!(
        seen.contains("PATH=") && !seen.contains(&secret()),
        "{seen}"
    );
    let passes = format!("{session}config.pass_env = [\"ANTHROPIC_API_KEY\", \"CONJURE_KEY\"]\n");
    let seen = found(&workspace, &passes, &call);
    assert!(
        seen.contains(&format!("ANTHROPIC_API_KEY={}", secret())),
        "{seen}"
    );
    assert!(!seen.contains(&format!("CONJURE_KEY={}", secret())));
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_of_tools_finds_no_key_but_what_it_is_passed() {
    let workspace = workspace(&["conjure-backend-mcp"]);
    let server = |more: &str| {
        let session = format!(
            "[[backend]]\nkind = \"mcp\"\n[backend.config.servers.s]\ncommand = \"/bin/sh\"\n\
             args = [\"-c\", '''{NOTES}''']\ncwd = \"{}\"\n{more}",
            workspace.work().display()
        );
        found(&workspace, &session, &["routes"])
    };
    let seen = server("");
    assert!(
        seen.contains("PATH=") && !seen.contains(&secret()),
        "{seen}"
    );
    let seen = server("pass_env = [\"ANTHROPIC_API_KEY\", \"CONJURE_KEY\"]\n");
    assert!(
        seen.contains(&format!("ANTHROPIC_API_KEY={}", secret())),
        "{seen}"
    );
    assert!(!seen.contains(&format!("CONJURE_KEY={}", secret())));
    let seen = server("env = { OTHER = { expand = \"<${env:ANTHROPIC_API_KEY}>\" } }\n");
    assert!(seen.contains(&format!("OTHER=<{}>", secret())), "{seen}");
}
