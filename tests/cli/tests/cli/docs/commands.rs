//! Blocks of commands, run by a shell as they are printed.
//!
//! The blocks of a page run one after the other in one fresh directory, so that what an earlier one
//! made is there for a later one. Around them stand what a reader has: keys, a model (the mock
//! provider), skills and files that the page names. In place of the person, [`stand_ins`] type keys
//! and end servers; nothing of the printed text is changed but addresses of servers, ids and keys, which
//! are the reader's own. Pages that need a person at a terminal, or more around them, have tests in
//! modules of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_kit::{
    Cli, Output, ProgramHandle, Workspace, build_bin, build_plugin, conjure_bin, repo_root,
};
use conjure_mock_llm::{Hosted, Message, MockLlm, Reply, Request, Script, Step, StoredSkill};
use serde_json::{Value, json};

use super::blocks::{Block, Check, blocks, pages};
use super::waiting;
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

/// Pages with commands. Each is run by a test below or in a module beside this one: `containers`,
/// `databases`, `five_minutes`, `packages`, `terminals`, `waiting`.
const TESTED: [&str; 16] = [
    "README.md",
    "conjure-host/docs/acp.md",
    "conjure-host/docs/api.md",
    "conjure-host/docs/auths.md",
    "conjure-host/docs/containers.md",
    "conjure-host/docs/hosted.md",
    "conjure-host/docs/mcp.md",
    "conjure-host/docs/packages.md",
    "conjure-host/docs/page.md",
    "conjure-host/docs/plugins.md",
    "conjure-host/docs/replay.md",
    "conjure-host/docs/saved-sessions.md",
    "conjure-host/docs/store.md",
    "conjure-host/docs/terminal.md",
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
fn api() {
    if !have(&["curl", "jq", "python3"]) {
        return;
    }
    let place = Place::new();
    waiting::add_notes_server(&place);
    place.workspace.write("key.txt", "a-key-of-nobody").unwrap();
    place.workspace.write("manifest.json", BUNDLE).unwrap();
    place.make("/usr/bin/python3 -m zipfile --create notes.mcpb manifest.json");
    let token = "a-token-of-nobody-that-is-long-enough\n";
    place.workspace.write("tokens", token).unwrap();
    place.keep_private("tokens");
    place.auth("home", "openai");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let server = place
        .as_reader(conjure_kit::cli(arguments))
        .start()
        .unwrap();
    let ready = server.wait_for_stdout("\n").unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let address = ready["url"].as_str().unwrap().trim_start_matches("http://");
    let mut blocks = commands("conjure-host/docs/api.md");
    waiting::ask_ahead_of_questions(&mut blocks);
    let question = ("/questions/0199…", "/questions/$question");
    place.run_blocks(&blocks, &[(SHOWN_ADDRESS, address), question]);
    waiting::assert_note_is_filed(&place);
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

fn end(server: ProgramHandle) {
    server.signal(conjure_kit::Signal::TERM);
    assert_eq!(server.wait().unwrap().code, Some(143));
}

/// The blocks of a page that are commands.
pub(super) fn commands(page: &str) -> Vec<Block> {
    let mut blocks = blocks(page);
    blocks.retain(|block| block.check() == Ok(Check::Commands));
    blocks
}

/// A reader's machine: a home, a working directory, a model, and programs.
pub(super) struct Place {
    pub(super) workspace: Workspace,
    pub(super) model: MockLlm,
}

impl Place {
    /// With a model that [answers](answers) whatever comes.
    pub(super) fn new() -> Self {
        let hosted = Hosted::new()
            .skill(StoredSkill::custom(
                "skill_01AbCdEf",
                "my-report",
                "Writes reports.",
            ))
            .generated_file("file_01AbCdEf", "report.xlsx", "PK");
        let script = Script::new().step(Step::answer(answers).always());
        Self::with_model(script.hosted(hosted))
    }

    /// With a model that says what the script has, and nothing more.
    pub(super) fn with_model(script: Script) -> Self {
        let workspace = workspace(&[LOCAL, FETCHER, HOSTED]);
        let model = MockLlm::start_blocking(script).unwrap();
        let place = Self { workspace, model };
        stand_ins(&place);
        place
    }

    fn bin(&self) -> PathBuf {
        self.workspace.root().join("bin")
    }

    /// Puts a program on the reader's path.
    pub(super) fn add_program(&self, name: &str, text: &str) {
        program(&self.bin().join(name), text);
    }

    /// A program in the reader's environment.
    pub(super) fn as_reader(&self, program: Cli) -> Cli {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.bin().display());
        let mut program = program
            .workspace(&self.workspace)
            .deadline(DEADLINE)
            .env("PATH", path)
            .env("MODEL", self.model.base_url())
            .env("STAGE", self.workspace.root())
            .env("CONJURE_SIGNING_PASSWORD", "a-password-of-nobody");
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

    /// A shell of the reader's that does this.
    pub(super) fn shell(&self, script: &str) -> Cli {
        self.as_reader(Cli::program("/bin/sh", ["-eu", "-c", script]))
    }

    /// Begins a command of the reader's at a terminal of its own.
    pub(super) fn begin_at_terminal(&self, command: &str) -> ProgramHandle {
        self.shell(command).on_terminal().start().unwrap()
    }

    /// Takes a file from everybody but its owner.
    pub(super) fn keep_private(&self, file: &str) {
        let file = self.workspace.work().join(file);
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// What the reader did before.
    pub(super) fn make(&self, script: &str) {
        self.output_of(script);
    }

    /// What commands of the reader's print, which have to succeed.
    pub(super) fn output_of(&self, script: &str) -> Output {
        let output = self.shell(script).run().unwrap();
        assert_eq!(output.code, Some(0), "{script}\n{}", output.snapshot());
        output
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
        self.run_blocks(&commands(page), &[]);
    }

    /// Runs blocks of commands one after the other in one shell. What stands for something of the
    /// reader's own is changed to that: a text of the page, and what is there in its place.
    pub(super) fn run_blocks(&self, blocks: &[Block], own: &[(&str, &str)]) -> Output {
        // Nobody types but the stand-ins.
        let mut script = "exec </dev/null\n".to_owned();
        for block in blocks {
            script.push_str(&format!("echo '== {}' >&2\n", block.place()));
            script.push_str(&match block.language.as_str() {
                "console" => typed(&block.text),
                _ => block.text.clone(),
            });
        }
        for (shown, here) in own {
            assert!(script.contains(shown), "no block has {shown}");
            script = script.replace(shown, here);
        }
        let output = self.shell(&script).run().unwrap();
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
        output
    }
}

/// What the model says: something, in a form where one is asked for. It files a note, or makes a page,
/// where it is asked to and has not.
fn answers(request: &Request) -> Reply {
    let body = request.body.to_string();
    let has_not = |call: &str| request.tool_result_text(call).is_none();
    let message = Message::new();
    let message = if body.contains("\"json_schema\"") {
        message.text(r#"{"files": 3}"#)
    } else if body.contains(waiting::FILE_NOTE) {
        match has_not(waiting::NOTE_CALL) {
            true => message.tool_use(waiting::NOTE_CALL, waiting::NOTE_TOOL, json!({})),
            false => message.text("It is filed."),
        }
    } else if body.contains("Make a page") && has_not("toolu_1") {
        let input = json!({ "path": "index.html", "file_text": "<p>" });
        message.tool_use("toolu_1", "local_create_file", input)
    } else {
        message.text("There are three files.")
    };
    message.into()
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
