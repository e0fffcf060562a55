//! What is private of the host wherever it was put: no command and no file tool of a session
//! reaches it.

use std::fs;
use std::path::Path;

use conjure_kit::{Cli, Engine, Output, Workspace, build_plugin};
use serde_json::{Value, json};

use crate::stage::{LOCAL, workspace};

/// What nobody may find.
const KEY: &str = "the-key-that-nobody-sees";

/// A call by hand, in a session that works in a directory.
fn calls(workspace: &Workspace, dir: &Path, tool: &str, arguments: &Value) -> Cli {
    let session = format!(
        "working_dir = \"{}\"\n[[backend]]\nkind = \"local\"\n",
        dir.display()
    );
    let file = workspace.root().join("session.toml");
    fs::write(&file, session).unwrap();
    let (file, arguments) = (file.display().to_string(), arguments.to_string());
    let call = ["call", tool, "--config", &file, "--args", &arguments];
    conjure_kit::cli(call).workspace(workspace)
}

fn command(workspace: &Workspace, script: &str) -> Cli {
    let arguments = json!({ "command": script, "description": "" });
    calls(workspace, &workspace.work(), "local_bash_tool", &arguments)
}

fn sees_nothing(output: &Output) {
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(!said.contains(KEY), "{output:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_reads_nothing_of_the_host_however_its_places_are_said() {
    let workspace = workspace(&[LOCAL]);
    for file in ["rel/vault.key", "keys/my.key", "elsewhere/my.db"] {
        let file = workspace.work().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, KEY).unwrap();
    }
    let local = build_plugin(LOCAL).unwrap();
    workspace
        .trust(&workspace.work().join("rel"), &local)
        .unwrap();
    let variables = [
        ("CONJURE_DATA_DIR", "cat rel/vault.key; true", "rel"),
        ("CONJURE_KEY_FILE", "cat keys/my.key; true", "keys/my.key"),
    ];
    for (variable, script, value) in variables {
        let output = command(&workspace, script).env(variable, value);
        sees_nothing(&output.run().unwrap());
    }
    let arguments = json!({ "command": "cat rel/vault.key", "description": "" }).to_string();
    let call = ["call", "local_bash_tool", "--executor", "local"];
    let call = call
        .into_iter()
        .chain(["--data-dir", "rel", "--args", &arguments]);
    let output = conjure_kit::cli(call).workspace(&workspace).run().unwrap();
    sees_nothing(&output);
    assert_eq!(output.code, Some(1), "{output:?}");
    // What is no database is not opened, so that one is made.
    let database = workspace.work().join("elsewhere/new.db");
    let made = conjure_kit::cli(["thread", "list"]).workspace(&workspace);
    let made = made.env("CONJURE_DATABASE", &database).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let read = command(&workspace, "wc -c <elsewhere/new.db").env("CONJURE_DATABASE", &database);
    let read = read.run().unwrap();
    assert_eq!(read.stdout.trim(), "0", "{read:?}");
    assert!(fs::metadata(&database).unwrap().len() > 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_with_the_hosts_key_in_it_is_moved_nowhere_without_a_sandbox_either() {
    let workspace = workspace(&[LOCAL]);
    let data = workspace.home().join(".local/share/conjure");
    for dir in [&data, &workspace.work().join("keys")] {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(data.join("vault.key"), KEY).unwrap();
    fs::write(workspace.work().join("keys/my.key"), KEY).unwrap();
    let file = workspace.root().join("session.toml").display().to_string();
    let work = workspace.work();
    let session =
        format!("sandbox = \"none\"\nworking_dir = {work:?}\n[[backend]]\nkind = \"local\"\n");
    fs::write(&file, session).unwrap();
    let bash = |script: &str| {
        let arguments = json!({ "command": script, "description": "" }).to_string();
        let call = [
            "call",
            "local_bash_tool",
            "--config",
            &file,
            "--args",
            &arguments,
        ];
        let call = conjure_kit::cli(call).workspace(&workspace);
        call.env("CONJURE_KEY_FILE", "keys/my.key").run().unwrap()
    };
    for (moves, reads) in [
        ("cd ~ && mv .local .l2", "cat ~/.l2/share/conjure/vault.key"),
        (
            "cd ~/.local && mv share s2",
            "cat ~/.local/s2/conjure/vault.key",
        ),
        ("mv keys k2", "cat k2/my.key"),
    ] {
        assert_eq!(bash(moves).code, Some(1), "{moves}");
        let read = bash(reads);
        sees_nothing(&read);
        assert_eq!(read.code, Some(1), "{read:?}");
    }
    // What is beside it is moved as ever.
    let moved =
        bash("mkdir ~/.local/other a && mv ~/.local/other ~/.local/moved && mv a b && ls b");
    assert_eq!(moved.code, Some(0), "{moved:?}");
}

#[test]
fn a_file_tool_reads_and_writes_nothing_of_the_host() {
    let workspace = workspace(&[LOCAL]);
    let home = workspace.home();
    let data = home.join(".local/share/conjure");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("vault.key"), KEY).unwrap();
    let path = ".local/share/conjure/vault.key";
    let arguments = json!({ "path": path, "description": "" });
    let viewed = calls(&workspace, &home, "local_view", &arguments)
        .run()
        .unwrap();
    sees_nothing(&viewed);
    assert!(
        viewed.stdout.contains("the host's own files") && viewed.code == Some(1),
        "{viewed:?}"
    );
    let path = ".local/share/conjure/trusted.json";
    let arguments = json!({ "path": path, "file_text": "{}", "description": "" });
    let written = calls(&workspace, &home, "local_create_file", &arguments)
        .run()
        .unwrap();
    assert_eq!(written.code, Some(1), "{written:?}");
    assert!(!data.join("trusted.json").exists());
    let arguments = json!({ "path": "new.txt", "file_text": "x", "description": "" });
    let written = calls(&workspace, &home, "local_create_file", &arguments)
        .run()
        .unwrap();
    assert_eq!(written.code, Some(0), "{written:?}");
}

#[test]
fn a_container_finds_neither_the_hosts_data_nor_its_key_and_cannot_work_in_them() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let workspace = workspace(&["conjure-backend-docker"]);
    let work = workspace.work();
    let data = work.join("data");
    let key = work.join("keys/my.key");
    fs::create_dir_all(&data).unwrap();
    fs::create_dir_all(key.parent().unwrap()).unwrap();
    let docker = build_plugin("conjure-backend-docker").unwrap();
    workspace.trust(&data, &docker).unwrap();
    for file in [&data.join("vault.key"), &data.join("http-token"), &key] {
        fs::write(file, KEY).unwrap();
    }
    fs::write(work.join("seen.txt"), "what is nobody's secret").unwrap();
    let call = |dir: &Path, tool: &str, arguments: &Value| {
        let session = format!(
            "working_dir = \"{}\"\n[[backend]]\nkind = \"docker\"\nconfig.image = \"{}\"\n",
            dir.display(),
            engine.image()
        );
        workspace.write("session.toml", session).unwrap();
        let arguments = arguments.to_string();
        let call = [
            "call",
            tool,
            "--config",
            "session.toml",
            "--args",
            &arguments,
        ];
        let call = conjure_kit::cli(call).workspace(&workspace);
        let call = call.env("CONJURE_DATA_DIR", &data);
        call.env("CONJURE_KEY_FILE", &key).run().unwrap()
    };
    let bash = |dir: &Path, script: &str| {
        let arguments = json!({ "command": script, "description": "" });
        call(dir, "docker_bash_tool", &arguments)
    };
    let script = "cat seen.txt; cat data/vault.key keys/my.key; \
                  grep -r the-key-that . ; umount data; \
                  cat data/http-token; ln -s data/vault.key link; \
                  cat link; true";
    let read = bash(&work, script);
    sees_nothing(&read);
    assert!(read.stdout.contains("nobody's secret"), "{read:?}");
    let path = "data/vault.key";
    let viewed = call(
        &work,
        "docker_view",
        &json!({ "path": path, "description": "" }),
    );
    sees_nothing(&viewed);
    assert_eq!(viewed.code, Some(1), "{viewed:?}");
    let path = "data/trusted.json";
    let new = json!({ "path": path, "file_text": "{}", "description": "" });
    call(&work, "docker_create_file", &new);
    assert!(!data.join("trusted.json").exists());
    // Nor is the directory itself mounted.
    let inside = bash(&data, "cat vault.key; true");
    sees_nothing(&inside);
    assert_eq!(inside.code, Some(1), "{inside:?}");
}

/// A server of tools that writes down what a script finds.
#[cfg(target_os = "linux")]
fn serves(workspace: &Workspace, script: &str, more: &str) {
    let session = format!(
        "[[backend]]\nkind = \"mcp\"\n[backend.config.servers.s]\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", '''{script}''']\ncwd = \"{}\"\n{more}",
        workspace.work().display()
    );
    workspace.write("session.toml", session).unwrap();
    let routes = conjure_kit::cli(["routes", "--config", "session.toml"]);
    routes.workspace(workspace).run().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_of_tools_sees_neither_the_hosts_data_nor_its_processes() {
    let workspace = workspace(&["conjure-backend-mcp"]);
    let data = workspace.home().join(".local/share/conjure");
    fs::create_dir_all(&data).unwrap();
    for file in ["vault.key", "http-token"] {
        fs::write(data.join(file), KEY).unwrap();
    }
    let script = format!(
        "{{ cat {0}/vault.key {0}/http-token /proc/$PPID/root{0}/vault.key /proc/1/root{0}/vault.key; \
         head -c 1 /proc/1/mem && echo {KEY}; readlink /proc/1/exe && echo {KEY}; }} >seen 2>&1",
        data.display()
    );
    serves(&workspace, &script, "");
    let seen = fs::read_to_string(workspace.work().join("seen")).unwrap();
    assert!(!seen.contains(KEY) && seen.contains("cat: "), "{seen}");
    // Who wants it otherwise says so.
    serves(&workspace, &script, "confine = false\n");
    let seen = fs::read_to_string(workspace.work().join("seen")).unwrap();
    assert!(seen.contains(KEY), "{seen}");
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_that_a_server_of_tools_started_survives_the_program() {
    let workspace = workspace(&["conjure-backend-mcp"]);
    let mark = format!("999{}", std::process::id());
    let script = format!(
        "setsid env -i /bin/sleep {mark}.1 & \
         (setsid sh -c '(env -i /bin/sleep {mark}.2 </dev/null >/dev/null 2>&1 &)' &) ; \
         sleep 0.3; touch started; cat >/dev/null"
    );
    // Quotes of the script stand in a literal of TOML.
    serves(&workspace, &script, "initialize_timeout_ms = 1500\n");
    assert!(workspace.work().join("started").exists());
    let left = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| String::from_utf8_lossy(line).contains(&mark))
            .filter(|line| line.starts_with(b"/bin/sleep"))
            .count()
    };
    let begun = std::time::Instant::now();
    while left() > 0 && begun.elapsed() < std::time::Duration::from_secs(5) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(left(), 0);
}
