//! Plugins as an author wrote them at each baseline, built by the oldest compiler and loaded by the
//! program of today.
//!
//! A commit's own SDK, lock file and templates are taken out of the history. Of today's source only the
//! two plugins in `sources/` are built, with that SDK.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::upgrade_session::{self, BaselineLibraries};
use super::{BASELINES, Baseline, COMPILERS, Outcome, RunMode, by_compiler, run_plugin_test};
use crate::artifacts::BuildOutput;
use crate::{files, repo};

/// What is taken of a commit.
const PARTS: [&str; 3] = ["Cargo.toml", "Cargo.lock", "skill-sdk"];

/// Members of the workspace that is taken, as far as the commit has them.
const MEMBERS: [&str; 3] = ["skill-sdk", "skill-sdk/abi", "skill-sdk/macros"];

/// Where a commit has its templates: a part of its source, and in it the program's source and the file
/// beside it.
const TEMPLATES: (&str, &str, &str) = (
    "conjure-host/cli",
    "conjure-host/cli/src/plugin_create.rs",
    "conjure-host/cli/templates/executor.rs.in",
);

/// The plugins of the templates, and the constant with the source of each; none: the file beside.
const TEMPLATE_PLUGINS: [(&str, Option<&str>); 3] = [
    ("skill", Some("SKILL")),
    ("backend", Some("BACKEND")),
    ("executor", None),
];

/// The plugins that every baseline builds: each uses more of the contract than a template.
const LEDGER: (&str, &str) = ("ledger", include_str!("sources/ledger.rs.in"));
const DESK: (&str, &str) = ("desk", include_str!("sources/desk.rs.in"));

/// Why it cannot run on this machine, and what to do.
pub(crate) fn missing_requirement() -> Option<String> {
    if oldest().is_none() {
        let (version, variable) = COMPILERS[0];
        let variable = variable.unwrap_or_default();
        return Some(format!(
            "{variable} is not set: it names the rustc {version} that builds the plugins"
        ));
    }
    let are_there = BASELINES.iter().try_for_each(check_commit);
    are_there.err().map(|error| format!("{error:#}"))
}

/// Checks that the commit is in the history that is here.
///
/// # Errors
/// When it is not, as in a shallow clone, or git reads no history here, with what git says.
pub(crate) fn check_commit(baseline: &Baseline) -> Result<()> {
    check_commit_in(&repo::root(), baseline)
}

fn check_commit_in(root: &Path, baseline: &Baseline) -> Result<()> {
    let commit = baseline.commit;
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        repo::text_of(git.args(args).current_dir(root))
    };
    git(&["rev-parse", "--git-dir"]).context("git reads no history here")?;
    git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).with_context(|| {
        format!(
            "the commit {commit} is not in the history that is here; in a shallow clone \
             `git fetch --unshallow` brings it"
        )
    })?;
    Ok(())
}

/// Builds the plugins of every baseline and loads each in both places by this program: alone, with its
/// contract and its examples, and one after the other in a session.
///
/// # Errors
/// With every plugin that does not run, and where.
pub(crate) fn run(program: &Path) -> Result<()> {
    if let Some(why) = missing_requirement() {
        bail!("{why}");
    }
    let (version, _) = COMPILERS[0];
    let rustc = oldest().context("the oldest compiler is named")?;
    let compat = repo::target().join("compat");
    let (mut wrong, mut libraries) = (Vec::new(), Vec::new());
    for (number, baseline) in BASELINES.iter().enumerate() {
        let folder = compat.join(format!("baseline-{}", baseline.short()));
        let source = folder.join("source");
        take_out(baseline, &source)?;
        let crates = BaselineCrates {
            baseline,
            version: format!("1.{number}.0"),
            dir: folder.join("plugins"),
        };
        crates.write(&source)?;
        let built = crates.build(&rustc)?;
        for (name, _) in crates.sources(&source)? {
            let library = built.library(&crates.package(name))?;
            for place in RunMode::ALL {
                let outcome =
                    run_plugin_test(program, &folder.join("data"), library, place, version)?;
                let found = outcome
                    .as_ref()
                    .map_or_else(String::clone, |it| it.label().to_owned());
                let short = baseline.short();
                println!("{short} {name:<9} {:<11} {found}", place.isolation());
                if outcome != Ok(Outcome::Holds) {
                    wrong.push(format!(
                        "{name} of {short}, {}: {found}, and a library that was built then must run",
                        place.isolation()
                    ));
                }
            }
        }
        let library = |(name, _): (&str, _)| built.library(&crates.package(name)).cloned();
        libraries.push(BaselineLibraries {
            ledger: library(LEDGER)?,
            desk: library(DESK)?,
            version: crates.version,
        });
    }
    for place in RunMode::ALL {
        let folder = compat.join(format!("session-{}", place.isolation()));
        let outcome = upgrade_session::run(program, &folder, &libraries, place);
        let found = outcome.as_ref().map_or("broken", |()| "runs");
        println!("{:<18} {:<11} {found}", "one session", place.isolation());
        if let Err(error) = outcome {
            wrong.push(format!("{}: {error:#}", place.isolation()));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The oldest compiler that the SDK promises.
fn oldest() -> Option<PathBuf> {
    let (_, variable) = COMPILERS[0];
    std::env::var_os(variable?).map(PathBuf::from)
}

/// Takes the source of a commit out of the history.
fn take_out(baseline: &Baseline, to: &Path) -> Result<()> {
    files::empty(to)?;
    let archive = to.join("source.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg(baseline.commit)
        .args(PARTS)
        .current_dir(repo::root());
    if baseline.has_templates {
        git.arg(TEMPLATES.0);
    }
    repo::run(&mut git)?;
    repo::run(
        Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(to),
    )?;
    let path = to.join("Cargo.toml");
    let mut manifest: toml::Table = read(&path)?.parse().context("the workspace's manifest")?;
    let workspace = manifest
        .get_mut("workspace")
        .and_then(toml::Value::as_table_mut);
    let workspace = workspace.context("the workspace's manifest has no `workspace`")?;
    let members = MEMBERS.iter().filter(|member| to.join(member).is_dir());
    let members: Vec<&str> = members.copied().collect();
    workspace.insert("members".to_owned(), toml::Value::from(members));
    workspace.remove("exclude");
    write(&path, &toml::to_string(&manifest)?)
}

/// The crates of a baseline's plugins, one workspace of them.
struct BaselineCrates<'a> {
    baseline: &'a Baseline,
    /// The version that its plugins have.
    version: String,
    dir: PathBuf,
}

impl BaselineCrates<'_> {
    /// Name of a plugin's crate, another one for each baseline: all are built in one place.
    fn package(&self, name: &str) -> String {
        format!("{name}-{}", self.baseline.short())
    }

    /// The plugins with their sources: the two of ours, and what `conjure plugin create` made then.
    fn sources(&self, source: &Path) -> Result<Vec<(&'static str, String)>> {
        let mut sources = vec![(LEDGER.0, LEDGER.1.to_owned()), (DESK.0, DESK.1.to_owned())];
        if !self.baseline.has_templates {
            return Ok(sources);
        }
        let (_, constants, executor) = TEMPLATES;
        let constants = read(&source.join(constants))?;
        let executor = read(&source.join(executor))?;
        for (name, constant) in TEMPLATE_PLUGINS {
            let text = match constant {
                Some(constant) => text_of(&constants, constant).with_context(|| {
                    format!("{} has no template `{constant}`", self.baseline.commit)
                })?,
                None => executor.as_str(),
            };
            let package = self.package(name);
            let text = text.replace("{{name}}", &package);
            sources.push((name, text.replace("{{title}}", &package)));
        }
        Ok(sources)
    }

    /// Writes them.
    fn write(&self, source: &Path) -> Result<()> {
        let sdk = source.join("skill-sdk");
        let mut members = Vec::new();
        for (name, text) in self.sources(source)? {
            let dir = self.dir.join(name);
            write(&dir.join("src/lib.rs"), &text)?;
            let manifest = MANIFEST
                .replace("{name}", &self.package(name))
                .replace("{version}", &self.version)
                .replace("{sdk}", &sdk.display().to_string());
            write(&dir.join("Cargo.toml"), &manifest)?;
            members.push(format!("\"{name}\""));
        }
        let workspace = WORKSPACE.replace("{members}", &members.join(", "));
        write(&self.dir.join("Cargo.toml"), &workspace)?;
        let lock = self.dir.join("Cargo.lock");
        if !lock.exists() {
            // The versions of the commit, so that nothing is resolved anew.
            std::fs::copy(source.join("Cargo.lock"), lock)?;
        }
        Ok(())
    }

    /// Builds all of them where the tests build plugins by this compiler, which have most of what they
    /// depend on. Without the network where that is enough.
    fn build(&self, rustc: &Path) -> Result<BuildOutput> {
        let name = rustc.file_name().unwrap_or(rustc.as_os_str());
        let target = format!("build-{}", name.to_string_lossy());
        let target = repo::target().join("plugin-tests").join(target);
        let command = |more: &[&str]| {
            let mut command = repo::cargo(["build", "--workspace"]);
            command.args(more).current_dir(&self.dir);
            command.env("CARGO_TARGET_DIR", &target);
            by_compiler(&mut command, Some(rustc));
            command
        };
        let is_enough = repo::succeeds(&mut command(&["--offline", "--quiet"]));
        let offline: &[&str] = if is_enough { &["--offline"] } else { &[] };
        BuildOutput::by(&mut command(offline))
    }
}

/// The text of a raw string constant.
fn text_of<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = source.split_once(&format!("const {name}: &str = r"))?;
    let (hashes, text) = behind.split_once('"')?;
    let (text, _) = text.split_once(&format!("\"{hashes};"))?;
    Some(text)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("`{}` cannot be read", path.display()))
}

/// Writes a file, unless it is there with this text: cargo builds anew what was written.
fn write(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

/// As the tests' own plugins, so that they share what they depend on.
const WORKSPACE: &str = r#"[workspace]
resolver = "2"
members = [{members}]

[profile.dev]
debug = false
strip = true
incremental = false
"#;

const MANIFEST: &str = r#"[package]
name = "{name}"
version = "{version}"
edition = "2021"
license = "MIT"
publish = false

[lib]
crate-type = ["cdylib"]

[dependencies]
conjure-skill-sdk = { path = "{sdk}", features = ["async"] }
schemars = "1"
serde = { version = "1", features = ["derive"] }
serde_json = "1"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_that_git_does_not_read_is_told_in_gits_words() {
        let folder = tempfile::tempdir().unwrap();
        // No repository, wherever the folder is.
        std::fs::write(folder.path().join(".git"), "gitdir: nowhere\n").unwrap();
        let error = check_commit_in(folder.path(), &BASELINES[0]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("git reads no history here"), "{error}");
        assert!(error.contains("fatal: "), "{error}");
        assert!(!error.contains("unshallow"), "{error}");
    }

    #[test]
    fn a_template_is_what_stands_between_its_quotes() {
        let source = "const A: &str = r#\"one \"two\"\n\"#;\nconst B: &str = r##\"a \"# b\"##;\n";
        assert_eq!(text_of(source, "A"), Some("one \"two\"\n"));
        assert_eq!(text_of(source, "B"), Some("a \"# b"));
        assert_eq!(text_of(source, "C"), None);
    }
}
