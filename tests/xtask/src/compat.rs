//! `cargo xtask compat`: a plugin of each compiler and each way of building, loaded in both places.
//!
//! What must come of each is in [`expected`], and the page `skill-sdk/docs/compatibility.md` has the
//! same table: a test holds one against the other.

pub(crate) mod baseline;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::artifacts::Built;
use crate::{files, repo};

/// The compilers, and the variables that name those which are not the workspace's own.
const COMPILERS: [(&str, Option<&str>); 3] = [
    ("1.85", Some("CONJURE_RUSTC_185")),
    ("1.95", None),
    ("1.96", Some("CONJURE_RUSTC_196")),
];

/// The commit from which libraries go on loading, until there is a release whose tag takes its place.
pub(crate) const BASELINE: &str = "b2e5482e3c6612f166269598e0e4caeff5ee5e10";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build and load plugins of the commit from which libraries go on loading, instead of the cells:
    /// a skill, a backend and an executor on its SDK, by the oldest compiler
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
enum Place {
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

impl Place {
    const ALL: [Self; 2] = [Self::InProcess, Self::Worker];

    const fn isolation(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Worker => "process",
        }
    }
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Holds => "runs",
            Self::Refused => "refused",
        }
    }
}

/// What must come of a build in a place, by whatever compiler.
const fn expected(build: Build, place: Place) -> Outcome {
    match (build, place) {
        // A panic would end the host.
        (Build::Abort, Place::InProcess) => Outcome::Refused,
        _ => Outcome::Holds,
    }
}

/// Checks that the page promises what is checked here.
fn page_holds() -> Result<()> {
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
        page.contains(BASELINE),
        "`{PAGE}` does not name the commit {BASELINE}, from which libraries go on loading"
    );
    Ok(())
}

/// The table of the page.
fn table() -> String {
    let mut table =
        "| built as | in the host's process | in a worker |\n|---|---|---|\n".to_owned();
    for build in Build::ALL {
        let [own, worker] = Place::ALL.map(|place| expected(build, place).word());
        let _ = writeln!(table, "| {} | {own} | {worker} |", build.name());
    }
    table
}

/// Builds and loads all cells, or what the baseline made.
///
/// # Errors
/// With everything that has another outcome than it must have, and in CI where a compiler is missing.
pub(crate) fn run(args: &Args) -> Result<()> {
    page_holds()?;
    let program = Built::dev(&["conjure-cli"])?.program("conjure")?.clone();
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
            for place in Place::ALL {
                let outcome = tried(program, &data, &library, place, version)?;
                let found = outcome
                    .as_ref()
                    .map_or_else(String::clone, |it| it.word().to_owned());
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
                        expected(build, place).word()
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
fn tried(
    program: &Path,
    data: &Path,
    library: &Path,
    place: Place,
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
        page_holds().unwrap();
    }
}
