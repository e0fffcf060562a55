//! The examples of the help, as the reference page shows them: each line runs as it is printed, behind
//! those before it in its block. Lines for which a reader's machine, a vendor or a person is missing
//! have their reason here; of those the form alone is tried, by `commands`.
//!
//! Nothing of a line is changed but the id of a thread, which is the reader's own.

use conjure_kit::Workspace;

use super::blocks::{Block, Check, blocks};
use super::commands::{Place, have};
use crate::stage::CACHE;

const PAGE: &str = "conjure-host/docs/cli.md";
/// A thread as the examples name it.
const THREAD: &str = "0193…";
/// The reader's newest one.
const NEWEST: &str = "\"$(conjure thread list --json | jq -r '.threads[0].id')\"";

/// Lines that are not run, by what only they have in them, and why.
const NOT_RUN: [(&str, &str); 15] = [
    ("--file notes.pdf", "who the model is stands elsewhere"),
    ("chat --resume lamp", "a person picks a conversation"),
    (
        "call notes_search",
        "it needs an MCP server of the reader's",
    ),
    ("plugin create skill", "the page of plugins runs it"),
    ("cd my-skill", "the page of plugins runs it"),
    ("call my-skill_greet", "the page of plugins runs it"),
    ("MCP_TOKEN=…", "the token is the reader's"),
    ("http://10.0.0.7", "it needs a server on another machine"),
    ("session fork work --at 12", "the chat is not that long yet"),
    ("thread unfold", "it needs a chat that was summarised"),
    ("serve --link", "a server has to run meanwhile"),
    ("postgres://", "it needs a database server of the reader's"),
    ("report.xlsx", "it needs a file that a call made"),
    ("curl -sN …", "the address is the reader's"),
    ("--kind custom-headers", "a person types the headers"),
];

/// What the reader did before the block that begins so.
const BEFORE: [(&str, &str); 7] = [
    (
        "conjure run ",
        "conjure session create work --auth anthropic-key --model claude-sonnet-4-5",
    ),
    (
        "conjure chat ",
        "conjure run --provider anthropic --model m Hi.",
    ),
    (
        "conjure acp",
        "conjure auth create work --provider anthropic",
    ),
    (
        "conjure persona ",
        "conjure auth create work --provider anthropic",
    ),
    (
        "conjure thread list",
        "printf 'One.\\nTwo.\\nThree.\\n' | conjure chat --provider anthropic --model m",
    ),
    (
        "conjure files ",
        "conjure run --provider anthropic --model m Hi.",
    ),
    (
        "conjure thread export ",
        "conjure run --provider anthropic --model claude-sonnet-4-5 Hi.",
    ),
];

/// Files that the examples name.
const FILES: [(&str, &str); 9] = [
    (
        "session.toml",
        "provider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n[[backend]]\nkind = \"local\"\n\
         skills = [\"skills/log-analyzer\"]\n",
    ),
    ("tools.toml", ""),
    (
        "form.json",
        r#"{"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}"#,
    ),
    ("script.json", r#"{"steps": [{"text": "Hello."}]}"#),
    ("chat.json", r#"[{"role": "user", "content": "Hi"}]"#),
    ("reviewer.md", "You review.\n"),
    ("tokens", "a-token-of-nobody-that-is-long-enough\n"),
    (
        "reply.sse",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\
         \"model\":\"m\",\"content\":[]}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\
         \"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\n\
         data: {\"type\":\"message_stop\"}\n\n",
    ),
    (
        "error.json",
        r#"{"error": {"code": 429, "message": "Slowly.", "status": "RESOURCE_EXHAUSTED"}}"#,
    ),
];

#[test]
fn the_examples_of_the_help_run_as_printed() {
    if !have(&["jq"]) {
        return;
    }
    let place = Place::new();
    place.workspace.add_plugin(CACHE).unwrap();
    let (mut run, mut not_run) = (0, Vec::new());
    for block in blocks(PAGE) {
        let text = block.text.replace("\\\n", "");
        let (skipped, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| reason(line).is_some());
        not_run.extend(skipped.iter().filter_map(|line| reason(line)));
        run += lines.len();
        if !lines.is_empty() {
            runs(&place, &block, &lines);
        }
    }
    println!("{run} examples of the help run, {} do not", not_run.len());
    for (piece, why) in NOT_RUN {
        assert!(not_run.contains(&piece), "no line has {piece}: {why}");
    }
    assert!(run > 2 * not_run.len(), "{run}: {not_run:?}");
}

/// What of a line says that it is not run.
fn reason(line: &str) -> Option<&'static str> {
    let mut pieces = NOT_RUN.iter().map(|(piece, _)| *piece);
    pieces.find(|piece| line.contains(piece))
}

/// Empties the data directory, but for the list of the plugins that are trusted.
const AFRESH: &str = "cd ~/.local/share/conjure\n\
    find . -mindepth 1 -maxdepth 1 ! -name trusted-plugins -exec rm -rf {} +";

/// Runs these lines of a block, with nothing there of the blocks before it.
fn runs(place: &Place, block: &Block, lines: &[&str]) {
    assert!(
        matches!(block.check(), Ok(Check::NotRun(_))),
        "{}: its page runs it already",
        block.place()
    );
    place.make(AFRESH);
    surround(&place.workspace);
    place.keep_private("tokens");
    place.auth("anthropic-key", "anthropic");
    place.auth("openai-key", "openai");
    let first = block.text.lines().next().unwrap_or_default();
    let before = BEFORE.iter().filter(|(begin, _)| first.starts_with(begin));
    before.for_each(|(_, script)| place.make(&format!("exec </dev/null\n{script}")));
    let mut script = "exec </dev/null\n".to_owned();
    for line in lines {
        script.push_str(&format!("echo '== a line of {}' >&2\n", block.place()));
        let line = line.replace(THREAD, NEWEST);
        script.push_str(&match line.starts_with("conjure policy check") {
            // Its code says whether something asks.
            true => format!("{{ {line}\n}} || [ $? = 1 ]\n"),
            false => format!("{line}\n"),
        });
    }
    place.make(&script);
}

/// Files and folders that the examples name.
fn surround(workspace: &Workspace) {
    for (name, text) in FILES {
        workspace.write(name, text).unwrap();
    }
    let folder = workspace.write_skill("skills/log-analyzer", "log-analyzer", "Analyses.", "Body");
    folder.unwrap();
    for (name, text) in [
        (
            ".cursor/mcp.json",
            r#"{"mcpServers": {"notes": {"command": "notes-server"}}}"#,
        ),
        (
            ".codex/config.toml",
            "[mcp_servers.lamp]\ncommand = \"lamp-server\"\n",
        ),
    ] {
        workspace.write(workspace.home().join(name), text).unwrap();
    }
}
