//! Blocks of commands, run by a shell as they are printed.
//!
//! The blocks of a page run one after the other in one fresh directory, so that what an earlier one
//! made is there for a later one. Around them stand what a reader has: keys, a model (the mock
//! provider), skills and files that the page names. In place of the person, [`stand_ins`] type keys
//! and end servers; nothing of the printed text is changed but the address of a running server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_kit::{
    Cli, Output, Running, Workspace, build_bin, build_plugin, conjure_bin, repo_root,
};
use conjure_mock_llm::{Hosted, Message, MockLlm, Script, Step, StoredSkill};
use serde_json::{Value, json};

use super::blocks::{Block, Check, blocks, pages};
use crate::stage::{FETCHER, LOCAL, conjure, workspace};

/// The plugin of hosted skills.
const HOSTED: &str = "conjure-backend-anthropic";
/// The address that pages show for a server.
const SHOWN_ADDRESS: &str = "127.0.0.1:7420";
/// The manifest of an MCP bundle that a page imports.
const BUNDLE: &str = r#"{
    "manifest_version": "0.3", "name": "notebook", "version": "1.0.0",
    "server": { "type": "node", "entry_point": "server/index.js", "mcp_config": {
        "command": "node", "args": ["${__dirname}/server/index.js"]
    } }
}"#;
/// A page's commands, a build of a small crate among them.
const DEADLINE: Duration = Duration::from_secs(240);

/// Pages with commands, each run by a test below, and the last one, which has servers that go on, by
/// `five_minutes`.
const TESTED: [&str; 13] = [
    "README.md",
    "conjure-host/docs/acp.md",
    "conjure-host/docs/api.md",
    "conjure-host/docs/auths.md",
    "conjure-host/docs/hosted.md",
    "conjure-host/docs/mcp.md",
    "conjure-host/docs/page.md",
    "conjure-host/docs/plugins.md",
    "conjure-host/docs/replay.md",
    "conjure-host/docs/saved-sessions.md",
    "conjure-host/docs/store.md",
    "skill-sdk/docs/any-language.md",
    "skill-sdk/docs/five-minutes.md",
];

#[test]
fn every_page_with_commands_is_run() {
    let mut with_commands = pages();
    with_commands.retain(|page| !commands(page).is_empty());
    assert_eq!(with_commands, TESTED);
}

#[test]
fn readme() {
    Place::new().run("README.md");
}

#[test]
fn acp() {
    Place::new().run("conjure-host/docs/acp.md");
}

#[test]
fn page() {
    Place::new().run("conjure-host/docs/page.md");
}

#[test]
fn auths() {
    Place::new().run("conjure-host/docs/auths.md");
}

#[test]
fn hosted_skills() {
    let place = Place::new();
    let folder = place
        .workspace
        .write_skill("my-report", "my-report", "Writes reports.", "Body");
    folder.unwrap();
    place.run("conjure-host/docs/hosted.md");
}

#[test]
fn mcp() {
    let place = Place::new();
    let session = "[[backend]]\nkind = \"native\"\n";
    place.workspace.write("session.toml", session).unwrap();
    place.run("conjure-host/docs/mcp.md");
}

#[test]
fn plugins() {
    let place = Place::new();
    place
        .workspace
        .write("notes.txt", "Milk, bread.\n")
        .unwrap();
    place.make("conjure plugin create skill my-skill && cd my-skill && cargo build");
    let made = place.workspace.work().join("my-skill/target");
    std::os::unix::fs::symlink(made, place.workspace.work().join("target")).unwrap();
    place.run("conjure-host/docs/plugins.md");
}

#[test]
fn any_language() {
    Place::new().run("skill-sdk/docs/any-language.md");
}

#[test]
fn replay() {
    if !have(&["jq"]) {
        return;
    }
    let place = Place::new();
    let session = "provider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n";
    place.workspace.write("session.toml", session).unwrap();
    place.make("conjure run --config session.toml 'What is in this directory?'");
    place.run("conjure-host/docs/replay.md");
}

#[test]
fn saved_sessions() {
    let place = Place::new();
    place
        .workspace
        .write("persona.md", "You are brief.\n")
        .unwrap();
    place.run("conjure-host/docs/saved-sessions.md");
}

#[test]
fn store() {
    if !have(&["jq"]) {
        return;
    }
    let place = Place::new();
    place.make("conjure run --provider anthropic --model claude-sonnet-4-5 'What is here?'");
    place.run("conjure-host/docs/store.md");
}

#[test]
fn api() {
    if !have(&["curl", "jq", "python3"]) {
        return;
    }
    let place = Place::new();
    place.workspace.write("key.txt", "a-key-of-nobody").unwrap();
    place.workspace.write("manifest.json", BUNDLE).unwrap();
    place.make("/usr/bin/python3 -m zipfile --create notes.mcpb manifest.json");
    let token = "a-token-of-nobody-that-is-long-enough\n";
    place.workspace.write("tokens", token).unwrap();
    place.auth("home", "openai");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let server = place
        .as_reader(conjure_kit::cli(arguments))
        .start()
        .unwrap();
    let ready = server.wait_for_stdout("\n").unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let address = ready["url"].as_str().unwrap().trim_start_matches("http://");
    place.run_at("conjure-host/docs/api.md", address);
    end(server);
}

#[test]
fn command_lines_that_are_not_run_are_such_that_the_program_takes() {
    let place = Place::new();
    for block in pages().iter().flat_map(|page| super::blocks::blocks(page)) {
        let is_not_run = matches!(block.check(), Ok(Check::NotRun(_)));
        let text = block.text.replace("\\\n", "");
        for line in text.lines().filter(|_| is_not_run) {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            if line.starts_with("conjure ") {
                let line = line.split_once("  #").map_or(line, |(line, _)| line);
                place.make(&format!("{line} --help"));
            }
        }
    }
}

/// Whether programs that a page uses are installed; if not, that is said.
pub(super) fn have(programs: &[&str]) -> bool {
    let mut all = true;
    for name in programs {
        let path = std::env::var_os("PATH").unwrap();
        if !std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
            eprintln!("LEFT OUT: {name}: it is not installed");
            all = false;
        }
    }
    all
}

fn end(server: Running) {
    server.signal(conjure_kit::Signal::TERM);
    assert_eq!(server.wait().unwrap().code, Some(143));
}

/// The blocks of a page that are commands.
fn commands(page: &str) -> Vec<Block> {
    let mut blocks = blocks(page);
    blocks.retain(|block| block.check() == Ok(Check::Commands));
    blocks
}

/// A reader's machine: a home, a working directory, a model, and programs.
pub(super) struct Place {
    pub(super) workspace: Workspace,
    model: MockLlm,
}

impl Place {
    pub(super) fn new() -> Self {
        let workspace = workspace(&[LOCAL, FETCHER, HOSTED]);
        // Says something, in a form where one is asked for, and makes a file where it is asked to
        // and has not.
        let says = Step::answer(|request| {
            let body = request.body.to_string();
            if body.contains("\"json_schema\"") {
                return Message::new().text(r#"{"files": 3}"#).into();
            }
            let asked = body.contains("Make a page");
            match asked && request.tool_result_text("toolu_1").is_none() {
                true => Message::new()
                    .tool_use(
                        "toolu_1",
                        "local_create_file",
                        json!({ "path": "index.html", "file_text": "<p>" }),
                    )
                    .into(),
                false => Message::new().text("There are three files.").into(),
            }
        });
        let hosted = Hosted::new()
            .skill(StoredSkill::custom(
                "skill_01AbCdEf",
                "my-report",
                "Writes reports.",
            ))
            .made_file("file_01AbCdEf", "report.xlsx", "PK");
        let script = Script::new().step(says.always()).hosted(hosted);
        let model = MockLlm::start_blocking(script).unwrap();
        let place = Self { workspace, model };
        stand_ins(&place);
        place
    }

    fn bin(&self) -> PathBuf {
        self.workspace.root().join("bin")
    }

    /// A program in the reader's environment.
    fn as_reader(&self, program: Cli) -> Cli {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.bin().display());
        let mut program = program
            .workspace(&self.workspace)
            .deadline(DEADLINE)
            .env("PATH", path)
            .env("MODEL", self.model.base_url())
            .env("STAGE", self.workspace.root());
        for vendor in ["ANTHROPIC", "OPENAI"] {
            program = program
                .env(format!("{vendor}_BASE_URL"), self.model.base_url())
                .env(format!("{vendor}_API_KEY"), "a-key-of-nobody");
        }
        // The compiler of this machine, for whoever builds a plugin.
        for name in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            if let Some(value) = std::env::var_os(name) {
                program = program.env(name, value);
            }
        }
        program
    }

    fn shell(&self, script: &str) -> Output {
        let shell = Cli::program("/bin/sh", ["-eu", "-c", script]);
        self.as_reader(shell).run().unwrap()
    }

    /// What the reader did before.
    pub(super) fn make(&self, script: &str) {
        let output = self.shell(script);
        assert_eq!(output.code, Some(0), "{script}\n{}", output.snapshot());
    }

    /// A saved auth that a page takes for granted.
    pub(super) fn auth(&self, name: &str, provider: &str) {
        let url = self.model.base_url();
        let add = format!("auth create {name} --provider {provider} --base-url {url}");
        let add = conjure(&self.workspace, &add);
        let output = self.as_reader(add).stdin("a-key-of-nobody").run().unwrap();
        assert_eq!(output.code, Some(0), "{}", output.snapshot());
    }

    fn run(&self, page: &str) {
        self.run_at(page, SHOWN_ADDRESS);
    }

    /// Runs the commands of a page; a server that it shows is at this address.
    fn run_at(&self, page: &str, address: &str) {
        let blocks = commands(page);
        // Nobody types but the stand-ins.
        let mut script = "exec </dev/null\n".to_owned();
        for block in &blocks {
            script.push_str(&format!("echo '== {}' >&2\n", block.place()));
            script.push_str(&match block.language.as_str() {
                "console" => typed(&block.text),
                _ => block.text.clone(),
            });
        }
        let output = self.shell(&script.replace(SHOWN_ADDRESS, address));
        assert_eq!(output.code, Some(0), "{}", output.snapshot());
        let seen = format!("{}{}", output.stdout, output.stderr);
        for block in blocks.iter().filter(|block| block.language == "console") {
            for line in shown(&block.text) {
                assert!(
                    fits(&seen, line),
                    "{}: this is not shown: {line}\n{}",
                    block.place(),
                    output.snapshot()
                );
            }
        }
    }
}

/// What is typed in a block that shows a terminal. Of a command that is shown to be refused, the
/// failure is wanted.
fn typed(text: &str) -> String {
    let mut script = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            continue;
        };
        let fails = lines
            .peek()
            .is_some_and(|answer| answer.starts_with("refused: ") || answer.starts_with("error: "));
        script.push_str(&match fails {
            true => format!("if {command}\nthen exit 1; fi\n"),
            false => format!("{command}\n"),
        });
    }
    script
}

/// What is shown in a block that shows a terminal.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("$ "))
}

/// Whether a line is in an output. `…` stands for anything, as do ports.
fn fits(seen: &str, line: &str) -> bool {
    let port = |text: &str| {
        let (before, after) = text.split_once("127.0.0.1:")?;
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
        Some(format!("{before}127.0.0.1:…{after}"))
    };
    let line = port(line).unwrap_or_else(|| line.to_owned());
    seen.lines().any(|seen| {
        let mut rest = seen;
        let mut parts = line.split('…');
        let begins = parts.next().unwrap_or_default();
        match rest.strip_prefix(begins) {
            Some(after) => rest = after,
            None => return false,
        }
        parts.all(|part| match rest.find(part) {
            Some(at) => {
                rest = rest.get(at + part.len()..).unwrap_or_default();
                true
            }
            None => false,
        })
    })
}

/// Fails where the server says that something is wrong, stops to watch after a while, and says where
/// the model of a saved auth is.
const CURL: &str = r#"#!/bin/sh
PATH=${PATH#*:}
case " $* " in *"/auths "*)
    jq --arg url "$MODEL" '.base_url = $url' | curl --fail-with-body "$@"
    exit ;;
esac
[ "$1" = -sN ] || exec curl --fail-with-body "$@"
curl --fail-with-body --max-time 3 "$@" || [ $? = 28 ]
"#;

/// Programs that stand in for the person, and for what takes minutes.
fn stand_ins(place: &Place) {
    let bin = place.bin();
    fs::create_dir(&bin).unwrap();
    let conjure = conjure_bin().unwrap();
    let xtask = build_bin("conjure-xtask", "conjure-xtask").unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let shared = repo_root().join("target/plugin-new");
    // Types a key where one is asked for, says where the model is (a saved auth goes to its vendor's
    // own address else), and ends a server once it is ready.
    let conjure = format!(
        r#"#!/bin/sh
real='{}'
case "${{1-}} ${{2-}}" in
    'auth create')
        if [ -p /dev/stdin ]; then exec "$real" "$@" --base-url "$MODEL"; fi
        exec "$real" "$@" --base-url "$MODEL" <"$STAGE/key" ;;
    serve* | 'mcp serve') ;;
    *) exec "$real" "$@" ;;
esac
# One without options also says how a browser gets in.
ready=http://
if [ "$*" = serve ]; then ready='/login?code='; fi
case " $* " in *' --stdio '*) exec "$real" "$@" ;; esac
case " $* " in *' --listen '* | *' --http '*) ;; *) set -- "$@" --listen 127.0.0.1:0 ;; esac
for word; do
    shift
    case $word in *:[0-9]*) word=${{word%:*}}:0 ;; esac
    set -- "$@" "$word"
done
rm -f "$STAGE/said" && mkfifo "$STAGE/said"
"$real" "$@" >"$STAGE/said" 2>&1 &
server=$!
while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in *"$ready"*) kill -TERM "$server"; cat ;; esac
done <"$STAGE/said"
wait "$server" || [ $? = 143 ]
"#,
        conjure.display()
    );
    // Puts what was built with the tests where a build would, builds crates of the reader's with
    // what earlier ones have built, and asks the repository's commands how they are used.
    let cargo = format!(
        r#"#!/bin/sh
set -eu
if [ "$1" = xtask ]; then shift; exec '{}' "$@" --help; fi
if [ -f Cargo.toml ]; then
    CARGO_TARGET_DIR='{}' '{cargo}' "$@"
    ln -sfn '{}' target
    exit
fi
mkdir -p target/release
for word; do
    case $word in
        build | --release | -p) ;;
        *) cp "$STAGE/packages/$word"/* target/release/ ;;
    esac
done
"#,
        xtask.display(),
        shared.display(),
        shared.display()
    );
    for (name, script) in [
        ("conjure", conjure.as_str()),
        ("cargo", &cargo),
        ("pass", "#!/bin/sh\necho a-key-of-nobody\n"),
        ("curl", CURL),
    ] {
        program(&bin.join(name), script);
    }
    fs::write(place.workspace.root().join("key"), "a-key-of-nobody\n").unwrap();
    let packages = place.workspace.root().join("packages");
    for package in [LOCAL, FETCHER] {
        let library = build_plugin(package).unwrap();
        let folder = packages.join(package);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(&library, folder.join(library.file_name().unwrap())).unwrap();
    }
    fs::create_dir_all(packages.join("conjure-cli")).unwrap();
    program(&packages.join("conjure-cli/conjure"), &conjure);
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
