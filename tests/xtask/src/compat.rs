//! `cargo xtask compat`: a plugin of each compiler and each way of building, loaded in both places.
//!
//! What must come of each is in [`expected`], and the page `skill-sdk/docs/compatibility.md` has the
//! same table: a test holds one against the other.

pub(crate) mod baseline;
mod upgrade_session;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::artifacts::BuildOutput;
use crate::{files, repo};

/// The compilers, and the variables that name those which are not the workspace's own.
const COMPILERS: [(&str, Option<&str>); 3] = [
    ("1.85", Some("CONJURE_RUSTC_185")),
    ("1.95", None),
    ("1.96", Some("CONJURE_RUSTC_196")),
];

/// A commit whose libraries go on loading.
pub(crate) struct Baseline {
    pub(crate) commit: &'static str,
    /// Reason for it, as the page says it.
    reason: &'static str,
    /// Whether it has the templates of `conjure plugin create`.
    has_templates: bool,
}

/// The commits whose libraries go on loading, the oldest first. The last one stands for a release until
/// there is one, whose tag takes its place.
pub(crate) const BASELINES: [Baseline; 2] = [
    Baseline {
        commit: "05446476fd30e3d6464b3f8697794e407c4b6355",
        reason: "binary interface and protocol were frozen at 1.0.0, so no library that counts is older",
        has_templates: false,
    },
    Baseline {
        commit: "b2e5482e3c6612f166269598e0e4caeff5ee5e10",
        reason: "stands for a release until there is one: the public items of its SDK are promised, and it \
              has the templates of `conjure plugin create`",
        has_templates: true,
    },
];

/// The baseline whose public items are promised.
pub(crate) const LATEST_BASELINE: &Baseline = {
    let [.., latest] = &BASELINES;
    latest
};

impl Baseline {
    /// The first digits of the commit.
    fn short(&self) -> &'static str {
        self.commit.get(..8).unwrap_or(self.commit)
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build and load plugins of the commits whose libraries go on loading, instead of the cells:
    /// skills, backends and an executor on their SDKs, by the oldest compiler, each alone and in a
    /// session that moves from one to the next
    #[arg(long)]
    baseline: bool,
}

/// The page that promises the outcomes.
const PAGE: &str = "skill-sdk/docs/compatibility.md";

/// The ways of building.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    Debug,
    Release,
    Lto,
    Strip,
    Allocator,
    Abort,
}

/// Where a host runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunMode {
    InProcess,
    Worker,
}

/// Outcome of a build in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The build holds the contract of its kind and its examples.
    Holds,
    /// The host does not run it there.
    Refused,
}

impl Build {
    const ALL: [Self; 6] = [
        Self::Debug,
        Self::Release,
        Self::Lto,
        Self::Strip,
        Self::Allocator,
        Self::Abort,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
            Self::Lto => "LTO",
            Self::Strip => "strip",
            Self::Allocator => "other allocator",
            Self::Abort => "panic = abort",
        }
    }

    /// Options of `cargo rustc`, and those of the compiler for the plugin itself.
    const fn options(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Debug => (&[], &[]),
            Self::Release => (&["--release"], &[]),
            Self::Lto => (&["--profile", "lto"], &[]),
            Self::Strip => (&[], &["-C", "strip=symbols"]),
            Self::Allocator => (&["--features", "other-allocator"], &[]),
            Self::Abort => (&[], &["-C", "panic=abort"]),
        }
    }
}

impl RunMode {
    const ALL: [Self; 2] = [Self::InProcess, Self::Worker];

    const fn isolation(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Worker => "process",
        }
    }
}

impl Outcome {
    const fn label(self) -> &'static str {
        match self {
            Self::Holds => "runs",
            Self::Refused => "refused",
        }
    }
}

/// What must come of a build in a place, by whatever compiler.
const fn expected(build: Build, place: RunMode) -> Outcome {
    match (build, place) {
        // A panic would end the host.
        (Build::Abort, RunMode::InProcess) => Outcome::Refused,
        _ => Outcome::Holds,
    }
}

/// Checks that the page promises what is checked here.
fn check_page() -> Result<()> {
    let page = repo::root().join(PAGE);
    let page =
        std::fs::read_to_string(&page).with_context(|| format!("`{PAGE}` cannot be read"))?;
    ensure!(
        page.contains(&table()),
        "`{PAGE}` has another table than this:\n{}",
        table()
    );
    for (version, _) in COMPILERS {
        ensure!(
            page.contains(version),
            "`{PAGE}` does not name Rust {version}"
        );
    }
    ensure!(
        page.contains(&baselines()),
        "`{PAGE}` names other commits whose libraries go on loading than these:\n{}",
        baselines()
    );
    Ok(())
}

/// The page's table of the commits.
fn baselines() -> String {
    let mut table = "| commit | why it is one |\n|---|---|\n".to_owned();
    for baseline in &BASELINES {
        let _ = writeln!(table, "| `{}` | {} |", baseline.commit, baseline.reason);
    }
    table
}

/// The table of the page.
fn table() -> String {
    let mut table =
        "| built as | in the host's process | in a worker |\n|---|---|---|\n".to_owned();
    for build in Build::ALL {
        let [own, worker] = RunMode::ALL.map(|place| expected(build, place).label());
        let _ = writeln!(table, "| {} | {own} | {worker} |", build.name());
    }
    table
}

/// Builds and loads all cells, or what the baselines made.
///
/// # Errors
/// With everything that has another outcome than it must have, and in CI where a compiler is missing.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_page()?;
    let program = BuildOutput::dev_or_before(&["conjure-cli"])?
        .program("conjure")?
        .clone();
    match args.baseline {
        true => baseline::run(&program),
        false => matrix(&program),
    }
}

fn matrix(program: &Path) -> Result<()> {
    let root = repo::root().join("target/compat");
    let source = root.join("plugin");
    write_crate(&source)?;
    let (mut wrong, mut left_out) = (Vec::new(), Vec::new());
    println!(
        "{:<9} {:<16} {:<11} {:<8}",
        "rustc", "built as", "where", "outcome"
    );
    for (version, variable) in COMPILERS {
        let rustc = match variable {
            None => None,
            Some(variable) => match std::env::var_os(variable) {
                Some(rustc) => Some(PathBuf::from(rustc)),
                None => {
                    left_out.push(format!("rustc {version}: {variable} is not set"));
                    continue;
                }
            },
        };
        let target = root.join(format!("build-{version}"));
        for build in Build::ALL {
            let library = library(&source, &target, rustc.as_deref(), build)?;
            let data = root.join("data");
            for place in RunMode::ALL {
                let outcome = run_plugin_test(program, &data, &library, place, version)?;
                let found = outcome
                    .as_ref()
                    .map_or_else(String::clone, |it| it.label().to_owned());
                println!(
                    "{version:<9} {:<16} {:<11} {found}",
                    build.name(),
                    place.isolation()
                );
                if outcome != Ok(expected(build, place)) {
                    wrong.push(format!(
                        "rustc {version}, {}, {}: {found}, and it must be: {}",
                        build.name(),
                        place.isolation(),
                        expected(build, place).label()
                    ));
                }
            }
        }
    }
    for cells in &left_out {
        println!("LEFT OUT: {cells}");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(
        left_out.is_empty() || !repo::in_ci(),
        "in CI no compiler may be left out"
    );
    Ok(())
}

/// What `conjure plugin test` says: that it holds everything, or that a host does not run it there. The
/// error is what else it says.
fn run_plugin_test(
    program: &Path,
    data: &Path,
    library: &Path,
    place: RunMode,
    version: &str,
) -> Result<Result<Outcome, String>> {
    let mut command = Command::new(program);
    command
        .args([
            "plugin",
            "test",
            "--json",
            "--isolation",
            place.isolation(),
            "--data-dir",
        ])
        .args([data, library]);
    let output = command.output().context("`conjure` could not be started")?;
    let said: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("`{}` said: {}", repo::line(&command), said.trim())
    })?;
    let run = said.pointer("/runs/0").unwrap_or(&Value::Null);
    if let Some(reason) = run.get("refused").and_then(Value::as_str) {
        return Ok(match reason.contains("panic = \"abort\"") {
            true => Ok(Outcome::Refused),
            false => Err(reason.to_owned()),
        });
    }
    let checks = run.get("checks").and_then(Value::as_array);
    let is_checked = checks.is_some_and(|checks| !checks.is_empty());
    if !is_checked || run.get("ok") != Some(&Value::Bool(true)) {
        return Ok(Err(run.to_string()));
    }
    // The file says which compiler it was, and which allocator.
    let shown = Command::new(program)
        .args(["plugin", "show", "--json", "--data-dir"])
        .args([data, library])
        .output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    Ok(match shown.contains(&format!("rustc {version}.")) {
        true => Ok(Outcome::Holds),
        false => Err(format!("it is not of rustc {version}: {shown}")),
    })
}

/// Builds the plugin, and puts the library where no later build replaces it.
fn library(source: &Path, target: &Path, rustc: Option<&Path>, build: Build) -> Result<PathBuf> {
    let (options, compiler) = build.options();
    let mut command = repo::cargo(["rustc", "--quiet", "--lib", "--message-format=json"]);
    command.args(options).arg("--").args(compiler);
    command.current_dir(source).env("CARGO_TARGET_DIR", target);
    by_compiler(&mut command, rustc);
    let messages = repo::text_of(&mut command)?;
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut own = messages.filter(|message| {
        let text = |at: &str| message.pointer(at).and_then(Value::as_str);
        text("/reason") == Some("compiler-artifact") && text("/target/name") == Some("compat_skill")
    });
    let built = own.next_back().and_then(|message| {
        let file = message.pointer("/filenames/0").and_then(Value::as_str);
        file.map(PathBuf::from)
    });
    let Some(built) = built else {
        bail!("`{}` made no library", repo::line(&command));
    };
    let dir = target.join("libraries").join(format!("{build:?}"));
    files::empty(&dir)?;
    let library = dir.join(built.file_name().unwrap_or_default());
    std::fs::copy(&built, &library)?;
    Ok(library)
}

/// Has cargo build by this compiler, or by its own, and with no flags from outside.
fn by_compiler(command: &mut Command, rustc: Option<&Path>) {
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC",
    ] {
        command.env_remove(name);
    }
    if let Some(rustc) = rustc {
        // What comes beside an old compiler is not always there.
        command.env("RUSTC", rustc).env("RUSTDOC", "false");
    }
}

fn write_crate(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("src"))?;
    let sdk = repo::root().join("skill-sdk");
    std::fs::write(
        dir.join("Cargo.toml"),
        MANIFEST.replace("{sdk}", &sdk.display().to_string()),
    )?;
    std::fs::write(dir.join("src/lib.rs"), SOURCE)?;
    let lock = dir.join("Cargo.lock");
    if !lock.exists() {
        // The versions of the workspace, so that nothing is resolved anew.
        std::fs::copy(repo::root().join("Cargo.lock"), lock)?;
    }
    Ok(())
}

const MANIFEST: &str = r#"[package]
name = "compat-skill"
version = "1.0.0"
edition = "2021"
license = "MIT"
publish = false

[workspace]

[lib]
crate-type = ["cdylib"]

[features]
other-allocator = []

[dependencies]
conjure-skill-sdk = { path = "{sdk}" }
serde_json = "1"

[profile.dev]
debug = false
incremental = false

[profile.lto]
inherits = "release"
lto = "fat"
"#;

/// Source of a skill that allocates, panics, and says how it was built.
const SOURCE: &str = r#"//! A skill that is built in every way.

use std::sync::Mutex;

use conjure_skill_sdk::{export_skill, skill, Error, Result, Skill};
use serde_json::json;

/// An allocator that is not the host's: it keeps a mark in front of all that it gives, and takes back
/// nothing that has none.
#[cfg(feature = "other-allocator")]
mod allocator {
    use std::alloc::{GlobalAlloc, Layout, System};

    const MARK: u64 = 0x636f_6e6a_7572_6521;

    struct Marked;

    fn with_mark(layout: Layout) -> (Layout, usize) {
        let front = layout.align().max(16);
        let size = layout.size() + front;
        (Layout::from_size_align(size, front).expect("it fits"), front)
    }

    unsafe impl GlobalAlloc for Marked {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let (whole, front) = with_mark(layout);
            let block = System.alloc(whole);
            if block.is_null() {
                return block;
            }
            block.add(front).sub(8).cast::<u64>().write_unaligned(MARK);
            block.add(front)
        }

        unsafe fn dealloc(&self, given: *mut u8, layout: Layout) {
            let (whole, front) = with_mark(layout);
            if given.sub(8).cast::<u64>().read_unaligned() != MARK {
                std::process::abort();
            }
            System.dealloc(given.sub(front), whole);
        }
    }

    #[global_allocator]
    static ALLOCATOR: Marked = Marked;
}

/// What one session said.
#[derive(Default)]
struct Parrot(Mutex<Vec<String>>);

/// Says things again
#[skill]
impl Parrot {
    /// Says it again, so often
    #[tool]
    fn say(&self, text: String, times: usize) -> Result<String> {
        let mut said = self.0.lock().map_err(|_| Error::new("it is hoarse"))?;
        said.push(text.repeat(times));
        Ok(said.join(" "))
    }

    /// Fails
    #[tool]
    fn panic(&self) {
        if cfg!(panic = "unwind") {
            panic!("as it should");
        }
    }
}

fn parrot() -> Skill {
    let parrot = Parrot::skill().example("say", json!({ "text": "ab", "times": 40_000 }), "abab");
    match cfg!(panic = "unwind") {
        true => parrot.failing_example("panic", json!({}), "as it should"),
        false => parrot,
    }
}

export_skill!(parrot);
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_outcomes_that_are_checked() {
        check_page().unwrap();
    }
}
