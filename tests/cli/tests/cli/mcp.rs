//! `conjure mcp`: the servers of a session file.

use std::os::unix::fs::PermissionsExt;

use conjure_kit::{MockMcp, Redactor, Workspace, visit};
use insta::assert_snapshot;

use crate::stage::{conjure, json, workspace};

const MCP: &str = "conjure-backend-mcp";

fn server() -> String {
    let program = MockMcp::program().unwrap();
    program.display().to_string()
}

/// A place with a session file of these servers: names and tables.
pub(crate) fn place(servers: &[(&str, String)]) -> Workspace {
    let workspace = workspace(&[MCP]);
    let mut file = "[[backend]]\nkind = \"mcp\"\n".to_owned();
    for (name, table) in servers {
        file.push_str(&format!("[backend.config.servers.{name}]\n{table}\n"));
    }
    workspace.write("session.toml", file).unwrap();
    workspace
}

/// A server of these traits.
pub(crate) fn program(traits: &str) -> String {
    format!(
        "command = {:?}\nargs = [{traits}]\nera = \"legacy\"",
        server()
    )
}

fn redact(workspace: &Workspace) -> Redactor {
    Redactor::for_workspace(workspace)
        .pattern(r"\S+/mock-mcp", "[SERVER]")
        .pattern(r"process \d+", "process [N]")
        .pattern(r"PATH=\S+", "PATH=[PATH]")
}

#[test]
fn a_list_says_how_each_server_is() {
    let workspace = place(&[
        ("absent", "command = \"no-such-program\"".to_owned()),
        ("good", program("\"bad-tools\"")),
        ("lazy", format!("{}\nstart = \"lazy\"", program(""))),
        ("off", "command = \"x\"\nenabled = false".to_owned()),
    ]);
    let output = conjure(&workspace, "mcp list").run().unwrap();
    assert_snapshot!(redact(&workspace).apply(&output.snapshot()), @r"
    exit code 0
    --- stdout
    SERVER  STATE   ERA     REVISION    TOOLS  LEFT OUT
    absent  failed  -       -           -      -
    good    ready   legacy  2025-11-25  22     6
    lazy    idle    -       -           -      -
    off     off     -       -           -      -
    --- stderr
    absent: there is no program `no-such-program`; it was looked for in PATH=[PATH] (the host's, and what a login shell, /bin/sh, has besides)
    good: `no_schema` is left out: its `inputSchema` is no object
    good: `null_schema` is left out: its `inputSchema` is no object
    good: `bool_schema` is left out: its `inputSchema` is no object
    good: tool 25 is left out: its name is no text
    good: `echo` is left out: the server has another tool of this name
    good: tool 28 is left out: its name is no text
    `conjure mcp check` says what to do.
    ");
    let output = conjure(&workspace, "mcp list --json").run().unwrap();
    let servers = json(&output)["servers"].clone();
    assert_eq!(servers[1]["server"], "good");
    assert_eq!(servers[1]["backend"], "mcp");
    let quarantined = servers[1]["quarantined"].as_array();
    assert_eq!(quarantined.map(Vec::len), Some(6), "{servers}");
}

#[test]
fn a_doctor_starts_all_and_says_what_to_do() {
    let workspace = place(&[
        ("absent", "command = \"no-such-program\"".to_owned()),
        ("dying", program("\"no-start\", \"a b\"")),
        ("lazy", format!("{}\nstart = \"lazy\"", program(""))),
    ]);
    let output = conjure(&workspace, "mcp check").run().unwrap();
    assert_snapshot!(redact(&workspace).apply(&output.snapshot()), @r"
    exit code 1
    --- stdout
    absent  failed
      why       there is no program `no-such-program`; it was looked for in PATH=[PATH] (the host's, and what a login shell, /bin/sh, has besides)
      do        install it, or write its whole path as `command`, or set `env.PATH` of the server
    dying  backoff
      why       it ended before the handshake was over; it wrote: the licence has expired; tried once, again in [DURATION]
      stderr    the licence has expired
      do        run it by hand to see more: [SERVER] no-start 'a b'
    lazy  ready
      program   [SERVER]
      ready     process [N], after [DURATION]
      protocol  2025-11-25, legacy
      tools     21
    --- stderr
    ");
    let well = conjure(&workspace, "mcp check lazy --json").run().unwrap();
    assert_eq!((well.code, &json(&well)["ok"]), (Some(0), &true.into()));
    let unknown = conjure(&workspace, "mcp check nobody").run().unwrap();
    assert_snapshot!(unknown.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: there is no MCP server `nobody`
    hint: there are: absent, dying, lazy
    ");
}

/// A server that is a line of the shell.
pub(crate) fn script(line: &str) -> String {
    format!("command = \"sh\"\nargs = [\"-c\", {line:?}]\nera = \"legacy\"")
}

#[test]
fn a_server_that_is_tried_again_keeps_the_reason_of_its_last_failure() {
    // The second try is silent, and so is another server for as long as is waited.
    let dying = "test -e tried && exec sleep 60; : > tried; echo broken >&2; exit 3";
    let workspace = place(&[("dying", script(dying)), ("slow", script("exec sleep 60"))]);
    let told = "dying: it ended before the handshake was over; it wrote: broken; it is tried again";
    for tried in 1.. {
        let output = conjure(&workspace, "mcp list").run().unwrap();
        let said = &output.stderr;
        assert!(said.contains("it wrote: broken"), "{output:?}");
        assert!(said.contains("slow: it is still starting"), "{output:?}");
        if said.contains(told) {
            break;
        }
        // On a busy machine the next try may not have begun when the list is made.
        assert!(
            output.stdout.contains("backoff") && tried < 10,
            "{output:?}"
        );
        std::fs::remove_file(workspace.work().join("tried")).unwrap();
    }
}

#[test]
fn a_list_and_a_check_tell_of_tools_that_are_held() {
    let run = "exec \"$SERVER\" $(cat traits)";
    let file = format!("{}\nenv.SERVER = {:?}", script(run), server());
    let workspace = place(&[("s", file)]);
    workspace.write("traits", "").unwrap();
    let done = |args: &str| {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        output
    };
    done("routes --config session.toml");
    assert!(!done("mcp list").stderr.contains("held"));
    workspace.write("traits", "turned").unwrap();
    // It is listed anew, and a session sees what differs.
    done("mcp list");
    done("routes --config session.toml");
    let told = "1 tool, changed after approval: `echo` (`conjure mcp held` shows how)";
    let list = done("mcp list");
    assert!(
        list.stderr.contains(&format!("s: held: {told}")),
        "{list:?}"
    );
    let check = done("mcp check");
    assert!(
        check.stdout.contains(&format!("held      {told}")),
        "{check:?}"
    );
    let printed = json(&done("mcp list --json"));
    let held = serde_json::json!([{ "tool": "echo", "changed": ["description"] }]);
    assert_eq!(printed["servers"][0]["held"], held);
}

#[test]
fn what_the_host_does_not_find_is_looked_for_in_the_path_of_a_login() {
    let script = "#!/bin/sh\nexec \"$SERVER\"\n";
    let launcher = "#!/usr/bin/env my-interpreter\n";
    let home = |name: &str| format!("env.SERVER = {:?}\ncommand = \"{name}\"", server());
    let workspace = place(&[
        ("named", home("my-server")),
        ("script", home("./launcher")),
        (
            "set",
            format!("{}\nenv.PATH = \"/usr/bin:/bin\"", home("my-server")),
        ),
    ]);
    let tools = workspace.home().join("my tools");
    let programs = [
        (tools.join("my-server"), script),
        (tools.join("my-interpreter"), script),
        (workspace.work().join("launcher"), launcher),
    ];
    for (program, text) in &programs {
        workspace.write(program, text).unwrap();
        std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let profile = "echo welcome\nPATH=\"$HOME/my tools:$PATH\"\n";
    workspace
        .write(workspace.home().join(".profile"), profile)
        .unwrap();
    let doctor = conjure(&workspace, "mcp check")
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh");
    let output = doctor.run().unwrap();
    assert_snapshot!(redact(&workspace).apply(&output.snapshot()), @r"
    exit code 1
    --- stdout
    named  ready
      program   [WORKSPACE]/home/my tools/my-server
      ready     process [N], after [DURATION]
      protocol  2025-11-25, legacy
      tools     21
    script  ready
      program   [WORKSPACE]/work/./launcher
      ready     process [N], after [DURATION]
      protocol  2025-11-25, legacy
      tools     21
      left out  `mock://a` of its resources: the MCP server `named` lists the same URI, and a list of resources has only that server's. Without a link of one of the two it is read from neither; set `resources = false` for one of them
    set  failed
      why       there is no program `my-server`; it was looked for in PATH=[PATH]
      do        install it, or write its whole path as `command`, or set `env.PATH` of the server
    --- stderr
    ");
}

#[test]
fn without_the_plugin_it_says_what_to_do() {
    let workspace = workspace(&[]);
    let file = "[[backend]]\nkind = \"mcp\"\n";
    workspace.write("session.toml", file).unwrap();
    let output = conjure(&workspace, "mcp list").run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: backend `mcp`: no executor or backend plugin is called `mcp`; loaded are: none. Load it with `--plugin FILE`, or put it into a plugin directory (`conjure plugin list` shows them)
    ");
}

#[test]
fn without_a_session_file_or_servers_it_says_what_to_do() {
    let workspace = workspace(&[MCP]);
    let missing = conjure(&workspace, "mcp list").run().unwrap();
    assert_snapshot!(missing.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: there is no session file session.toml
    hint: name one with `--config FILE`
    ");
    workspace
        .write("session.toml", "persona = \"Kind.\"\n")
        .unwrap();
    let empty = conjure(&workspace, "mcp list").run().unwrap();
    assert_snapshot!(empty.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: session.toml has no backend of the kind `mcp`
    hint: `conjure mcp import` makes one of another program's configuration
    ");
}

/// The address of the login that a running verb shows.
fn shown(text: &str) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("http://"));
    line.unwrap().to_owned()
}

#[test]
fn a_login_is_done_here_or_elsewhere_and_kept() {
    let server = MockMcp::over_http(&["oauth"]).unwrap();
    let workspace = place(&[("web", format!("url = \"{}\"", server.url()))]);
    let doctor = || conjure(&workspace, "mcp check").run().unwrap();
    let before = doctor();
    assert_eq!(before.code, Some(1));
    assert!(
        before.stdout.contains("conjure mcp login web"),
        "{}",
        before.stdout
    );
    // The browser is on this machine.
    let login = conjure(&workspace, "mcp login web --no-browser")
        .start()
        .unwrap();
    let page = shown(&login.wait_for_stderr("paste the address").unwrap());
    let back = visit(&page).unwrap();
    assert_eq!(visit(&back), None);
    let output = login.wait().unwrap();
    assert_eq!(
        (output.code, output.stdout.trim()),
        (Some(0), "web logged in")
    );
    assert_eq!(doctor().code, Some(0));
    let out = conjure(&workspace, "mcp logout web").run().unwrap();
    assert_eq!(out.stdout.trim(), "web logged out");
    assert_eq!(doctor().code, Some(1));
    // The browser is on another one, and only its last address comes here.
    let mut login = conjure(&workspace, "mcp login web --no-browser")
        .start()
        .unwrap();
    let page = shown(&login.wait_for_stderr("paste the address").unwrap());
    login.send_line(&visit(&page).unwrap()).unwrap();
    let output = login.wait().unwrap();
    assert_eq!(
        (output.code, output.stdout.trim()),
        (Some(0), "web logged in")
    );
    for path in workspace.files().unwrap() {
        let text = workspace.read(&path).unwrap_or_default();
        let is_kept = path.components().any(|part| part.as_os_str() == "logins");
        assert!(is_kept || !text.contains("access-"), "{}", path.display());
    }
}
