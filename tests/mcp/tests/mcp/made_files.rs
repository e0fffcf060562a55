//! Files that calls made, read by a client of `conjure mcp serve`.

use std::os::unix::fs::symlink;
use std::process::Command;

use conjure_kit::{Workspace, conjure_bin};
use serde_json::{Value, json};

use crate::wire::{Manner, OverStdio, Wire as _};

/// Commands on this machine, all of which are allowed.
const SESSION: &str = "[[backend]]\nkind = \"local\"\n[policy]\nallow = [\"*\"]\n";

/// A server whose sessions run commands in the workspace.
fn served(workspace: &Workspace) -> OverStdio {
    workspace.add_plugin("conjure-backend-local").unwrap();
    workspace.write("session.toml", SESSION).unwrap();
    let mut command = Command::new(conjure_bin().unwrap());
    command.arg("--plugin-dir").arg(workspace.plugins());
    command.arg("--data-dir").arg(workspace.data_dir());
    command.args(["mcp", "serve", "--stdio", "-c"]);
    command.arg(workspace.work().join("session.toml"));
    command.current_dir(workspace.work());
    let manner = Manner {
        modern: false,
        name: "client",
        capabilities: json!({}),
    };
    OverStdio::start(command, manner)
}

#[test]
fn a_file_that_became_a_link_is_not_read_for_a_client() {
    let workspace = Workspace::new().unwrap();
    let secret = workspace.root().join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("out.txt"), "nobody's").unwrap();
    let mut server = served(&workspace);
    let call = json!({ "command": "mkdir d; echo abc >d/out.txt", "description": "" });
    let call = json!({ "name": "local_bash_tool", "arguments": call });
    let said = server.ask("tools/call", &call);
    let files = server.list("resources/list", "resources");
    let uri = files
        .iter()
        .find(|file| file["name"] == "out.txt")
        .map(|file| file["uri"].clone())
        .unwrap_or_else(|| panic!("{said} {files:?}"));
    let mut read = || server.ask("resources/read", &json!({ "uri": uri }));
    assert_eq!(read()["contents"][0]["text"], "abc\n");
    let refused = |answer: &Value| {
        let answer = answer.to_string();
        assert!(answer.contains("error"), "{answer}");
        assert!(!answer.contains("nobody's"), "{answer}");
    };
    let made = workspace.work().join("d");
    std::fs::remove_file(made.join("out.txt")).unwrap();
    symlink(secret.join("out.txt"), made.join("out.txt")).unwrap();
    refused(&read());
    // The same where the directory became one.
    std::fs::rename(&made, workspace.work().join("d2")).unwrap();
    symlink(&secret, &made).unwrap();
    refused(&read());
}
