//! Programs that the command line starts itself, an editor and a browser, and the keys that are no
//! business of theirs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use conjure_kit::{Cli, MockMcp, Model, Workspace, visit};

use crate::session::{done, stage};
use crate::stage::{conjure, workspace};

/// What none of them may find.
const KEY: &str = "the-key-that-nobody-sees";
/// A variable that only settings know for the holder of a key.
const NAMED: &str = "MINE_ACCESS";
/// Settings that name it.
const PROVIDER: &str =
    "[providers.mine]\nbase_url = \"http://127.0.0.1:9\"\nkey_var = \"MINE_ACCESS\"\n";

/// Keys of every sort, beside a variable that a program needs.
fn with_keys(cli: Cli) -> Cli {
    let names = ["ANTHROPIC_API_KEY", "CONJURE_TOKEN", "MCP_TOKEN", NAMED];
    let cli = names.into_iter().fold(cli, |cli, name| cli.env(name, KEY));
    cli.env("KEYBOARD", "a-keyboard")
}

/// A program that notes its environment, and then does what a script says.
fn notes(workspace: &Workspace, name: &str, script: &str) -> PathBuf {
    let seen = workspace.root().join("seen");
    let text = format!(
        "#!/bin/sh\nenv >'{0}.new'\n{script}\nmv '{0}.new' '{0}'\n",
        seen.display()
    );
    let file = workspace.write(name, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn sees_no_key(workspace: &Workspace) {
    let seen = fs::read_to_string(workspace.root().join("seen")).unwrap();
    assert!(
        seen.contains("KEYBOARD=a-keyboard") && !seen.contains(KEY),
        "{seen}"
    );
}

#[test]
fn an_editor_finds_no_key() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    workspace.write("tools.toml", PROVIDER).unwrap();
    done(
        &workspace,
        "session create work --auth open --model gpt-5 --tools tools.toml",
    );
    let editor = notes(&workspace, "editor", "echo remembered >\"$1\"");
    let edit = conjure(&workspace, "session memory work edit").env("EDITOR", editor);
    let edited = with_keys(edit).on_terminal().run().unwrap();
    assert!(edited.stdout.contains("remembered"), "{edited:?}");
    sees_no_key(&workspace);
}

#[cfg(target_os = "linux")]
#[test]
fn a_browser_finds_no_key() {
    let server = MockMcp::over_http(&["oauth"]).unwrap();
    let workspace = workspace(&["conjure-backend-mcp"]);
    let session = format!(
        "{PROVIDER}[[backend]]\nkind = \"mcp\"\n[backend.config.servers.web]\nurl = \"{}\"\n",
        server.url()
    );
    workspace.write("session.toml", session).unwrap();
    let browser = notes(&workspace, "bin/xdg-open", "");
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", browser.parent().unwrap().display());
    let login = conjure(&workspace, "mcp login web").env("PATH", path);
    let login = with_keys(login.env("DISPLAY", ":0")).start().unwrap();
    let told = login.wait_for_stderr("paste the address").unwrap();
    assert!(told.contains("A browser was asked"), "{told}");
    let mut lines = told.lines().map(str::trim);
    let page = lines.find(|line| line.starts_with("http://")).unwrap();
    assert_eq!(visit(&visit(page).unwrap()), None);
    let output = login.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    sees_no_key(&workspace);
}
