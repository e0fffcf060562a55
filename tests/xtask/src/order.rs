//! `cargo xtask order`: which functions runs of the program execute.
//!
//! Writes `tests/linker/order.txt`, by which release builds are laid out. Valgrind counts what is
//! called in runs of the release program and of the local executor with their symbols.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{artifacts::BuildOutput, files, repo};

/// What it writes.
const LIST: &str = "tests/linker/order.txt";
/// Where the runs have their files, below the root of the repository.
const RUN_DIR: &str = "target/order";

/// The package of the program, of a plugin that a run has, and of what plays the model.
const PACKAGES: [&str; 3] = ["conjure-cli", "conjure-backend-local", "conjure-mock-llm"];
/// The release build, with its symbols.
const OPTIONS: [&str; 4] = [
    "--release",
    "--locked",
    "--config",
    "profile.release.strip=false",
];

/// What the model says: a call, then an answer.
const SCRIPT: &str = r#"{
    "steps": [{"message": {"content": [
        {"type": "tool_use", "id": "toolu_1", "name": "local_bash_tool", "input": {"command": "ls"}}
    ]}}],
    "fallback": {"message": {"content": [{"type": "text", "text": "It is done."}]}}
}"#;
/// What it says where there is nobody to call.
const ANSWER: &str = r#"{
    "steps": [],
    "fallback": {"message": {"content": [{"type": "text", "text": "It is done."}]}}
}"#;

/// What it says then, as it is shown.
const ANSWER_TEXT: &str = "It is done.";
/// What is there in a chat when a text can be typed.
const READY: &str = "/ for commands";
/// How long a chat under Valgrind may take.
const CHAT_TIMEOUT: Duration = Duration::from_secs(300);

/// The runs: the provider, its model, and whether the local executor is there.
const RUNS: [(&str, &str, bool); 3] = [
    ("anthropic", "claude-sonnet-4-5", false),
    ("openai", "gpt-5", false),
    ("anthropic", "claude-sonnet-4-5", true),
];

pub(crate) fn run() -> Result<()> {
    if !repo::succeeds(Command::new("valgrind").arg("--version")) {
        bail!(
            "valgrind is not installed; it counts what a run executes (`apt-get install valgrind`)"
        );
    }
    let built = BuildOutput::with("build", &PACKAGES, &OPTIONS)?;
    let place = repo::root().join(RUN_DIR);
    files::empty(&place)?;
    let mut executed = BTreeSet::new();
    for (number, (provider, model, executor)) in RUNS.into_iter().enumerate() {
        let run = Run::new(&built, place.join(number.to_string()), executor)?;
        executed.extend(run.called_symbols(&built, provider, model)?);
    }
    let run = Run::new(&built, place.join("chat"), false)?;
    let in_chats = run.chat_symbols(&built)?;
    let known = functions([
        built.program("conjure")?,
        built.library("conjure-backend-local")?,
    ])?;
    let names = |executed: &BTreeSet<String>| -> BTreeSet<String> {
        let names = executed.iter().filter_map(|symbol| known.get(symbol));
        names.cloned().collect()
    };
    // What a run of one question needs lies in as few pieces as can be; what only a chat needs, behind it.
    let of_runs = names(&executed);
    let of_chats = names(&in_chats);
    let lines: Vec<&str> = of_runs
        .iter()
        .chain(of_chats.difference(&of_runs))
        .map(String::as_str)
        .collect();
    let text = lines.join("\n") + "\n";
    let list = repo::root().join(LIST);
    std::fs::write(&list, text).with_context(|| format!("cannot write {}", list.display()))?;
    println!("{} functions in {LIST}", lines.len());
    Ok(())
}

/// The functions that files define: what the list calls them, by symbol.
fn functions(files: [&Path; 2]) -> Result<BTreeMap<String, String>> {
    let linker = BuildOutput::dev(&["conjure-linker"])?;
    let mut command = Command::new(linker.program("conjure-linker")?);
    let lines = repo::text_of(command.arg("--functions").args(files))?;
    let pair = |line: &str| {
        let (symbol, name) = line
            .split_once('\t')
            .with_context(|| format!("conjure-linker printed `{line}`, without a tab"))?;
        Ok((symbol.to_owned(), name.to_owned()))
    };
    lines.lines().map(pair).collect()
}

/// A home, a directory to work in, one for plugins, and a model.
struct Run {
    dir: PathBuf,
    mock: Child,
    base_url: String,
}

impl Run {
    fn new(built: &BuildOutput, place: PathBuf, executor: bool) -> Result<Self> {
        for part in ["home", "work", "plugins"] {
            files::empty(&place.join(part))?;
        }
        if executor {
            let library = built.library("conjure-backend-local")?;
            let name = library.file_name().context("a library without a name")?;
            files::copy(library, &place.join("plugins").join(name))?;
        }
        let script = place.join("script.json");
        std::fs::write(&script, if executor { SCRIPT } else { ANSWER })?;
        let mut mock = Command::new(built.program("mock-llm")?)
            .arg("--script")
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .context("the model's program could not be started")?;
        let mut base_url = String::new();
        let out = mock.stdout.take().context("the model prints nothing")?;
        BufReader::new(out).read_line(&mut base_url)?;
        let base_url = base_url.trim().to_owned();
        Ok(Self {
            dir: place,
            mock,
            base_url,
        })
    }

    /// The symbols of the functions that a run calls.
    fn called_symbols(
        &self,
        built: &BuildOutput,
        provider: &str,
        model: &str,
    ) -> Result<BTreeSet<String>> {
        let counts = self.dir.join("counts");
        let mut out = OsString::from("--callgrind-out-file=");
        out.push(&counts);
        let mut run = Command::new("valgrind");
        run.args(["--tool=callgrind", "--demangle=no", "--quiet"])
            .arg(out)
            .arg(built.program("conjure")?)
            .args(["run", "--provider", provider, "--model", model])
            .args(["--allow", "local_bash_tool"])
            .args(["--base-url", &self.base_url, "What is here?"])
            .current_dir(self.dir.join("work"))
            .env_clear()
            .env("HOME", self.dir.join("home"))
            .env("CONJURE_PLUGIN_PATH", self.dir.join("plugins"))
            .env("CONJURE_ISOLATION", "in-process")
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("OPENAI_API_KEY", "a-key-of-nobody")
            .stdin(Stdio::null());
        repo::run(&mut run)?;
        counted(&counts)
    }

    /// The symbols that a chat on a terminal calls which is left and resumed, with a turn each time.
    fn chat_symbols(&self, built: &BuildOutput) -> Result<BTreeSet<String>> {
        let mut called = BTreeSet::new();
        for resumed in [false, true] {
            let counts = self.dir.join("counts");
            let mut typed = OsString::from("exec valgrind --tool=callgrind --demangle=no --quiet");
            typed.push(" --callgrind-out-file=\"$COUNTS\" \"$CONJURE\" chat");
            typed.push(" --provider anthropic --model claude-sonnet-4-5");
            if resumed {
                typed.push(" --continue");
            }
            // It gives what it runs a terminal.
            let mut script = Command::new("script");
            let mut chat = script
                .args(["--quiet", "--return", "--flush", "--command"])
                .arg(typed)
                .arg("/dev/null")
                .current_dir(self.dir.join("work"))
                .env_clear()
                .env("COUNTS", &counts)
                .env("CONJURE", built.program("conjure")?)
                .env("HOME", self.dir.join("home"))
                .env("CONJURE_PLUGIN_PATH", self.dir.join("plugins"))
                .env("TERM", "xterm-256color")
                .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
                .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
                .env("ANTHROPIC_BASE_URL", &self.base_url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("`script` could not be started (`apt-get install bsdutils`)")?;
            let talked = run_chat_turn(&mut chat, resumed);
            if talked.is_err() {
                drop(chat.kill());
            }
            let status = chat.wait()?;
            talked?;
            if !status.success() {
                bail!("the chat failed ({status})");
            }
            called.extend(counted(&counts)?);
        }
        Ok(called)
    }
}

/// Says something in a chat, waits for the answer, and leaves.
fn run_chat_turn(chat: &mut Child, resumed: bool) -> Result<()> {
    let shown = chat.stdout.take().context("it shows nothing")?;
    let mut typed = chat.stdin.take().context("it reads nothing")?;
    let (send, came) = mpsc::channel();
    std::thread::spawn(move || {
        let mut shown = shown;
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = shown.read(&mut piece) {
            let piece = piece.get(..count).unwrap_or_default().to_vec();
            if send.send(piece).is_err() {
                return;
            }
        }
    });
    let mut all = Vec::new();
    let mut wait_for = |text: &str, times: usize| -> Result<()> {
        let until = Instant::now() + CHAT_TIMEOUT;
        while String::from_utf8_lossy(&all).matches(text).count() < times {
            let left = until.saturating_duration_since(Instant::now());
            let piece = came.recv_timeout(left);
            all.extend(piece.with_context(|| format!("the chat never showed `{text}`"))?);
        }
        Ok(())
    };
    wait_for(READY, 1)?;
    typed.write_all(b"What is here?\r")?;
    wait_for(ANSWER_TEXT, 1 + usize::from(resumed))?;
    typed.write_all(b"/quit\r")?;
    // Until it has ended.
    while came.recv_timeout(CHAT_TIMEOUT).is_ok() {}
    Ok(())
}

impl Drop for Run {
    fn drop(&mut self) {
        // It ended by itself, or ends now.
        drop(self.mock.kill());
        drop(self.mock.wait());
    }
}

/// The functions that Valgrind counted.
fn counted(counts: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(counts)
        .with_context(|| format!("cannot read `{}`", counts.display()))?;
    Ok(text
        .lines()
        .filter_map(function_name)
        .map(str::to_owned)
        .collect())
}

/// The function that a line of callgrind's names for the first time: `fn=(12) name`, or `cfn=` where
/// it is called.
fn function_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix('c').unwrap_or(line);
    let (_, name) = line.strip_prefix("fn=(")?.split_once(") ")?;
    // A function that calls itself is counted for each depth: `name'2`.
    Some(name.split_once('\'').map_or(name, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_once_and_numbered_then() {
        assert_eq!(function_name("fn=(12) sqlite3_step"), Some("sqlite3_step"));
        assert_eq!(
            function_name("cfn=(7) _ZN1a1b17h0123456789abcdefE'2"),
            Some("_ZN1a1b17h0123456789abcdefE")
        );
        assert_eq!(function_name("fn=(12)"), None);
        assert_eq!(function_name("calls=1 0"), None);
    }
}
