//! Plugins as an author wrote them at the baseline, built by the oldest compiler and loaded by the
//! program of today.
//!
//! The commit's own SDK, lock file and templates are taken out of the history; nothing of today's
//! source is in what is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{BASELINE, COMPILERS, Outcome, Place, by_compiler, tried};
use crate::artifacts::Built;
use crate::{files, repo};

/// What is taken of the commit.
const PARTS: [&str; 4] = ["Cargo.toml", "Cargo.lock", "skill-sdk", "conjure-host/cli"];

/// The members of the workspace that is taken.
const MEMBERS: [&str; 3] = ["skill-sdk", "skill-sdk/abi", "skill-sdk/macros"];

/// Where the commit has its templates: the program's source, and the file beside it.
const TEMPLATES: (&str, &str) = (
    "conjure-host/cli/src/plugin_create.rs",
    "conjure-host/cli/templates/executor.rs.in",
);

/// The plugins, and the constant of the templates with the source of each; none: the file beside.
const PLUGINS: [(&str, Option<&str>); 3] = [
    ("baseline-skill", Some("SKILL")),
    ("baseline-backend", Some("BACKEND")),
    ("baseline-executor", None),
];

/// Why it cannot run on this machine, and what to do.
pub(crate) fn missing() -> Option<String> {
    if oldest().is_none() {
        let (version, variable) = COMPILERS[0];
        let variable = variable.unwrap_or_default();
        return Some(format!(
            "{variable} is not set: it names the rustc {version} that builds the plugins"
        ));
    }
    is_there().err().map(|error| format!("{error:#}"))
}

/// Checks that the commit is in the history that is here.
///
/// # Errors
/// When it is not, as in a shallow clone, or git reads no history here, with what git says.
pub(crate) fn is_there() -> Result<()> {
    is_there_in(&repo::root())
}

fn is_there_in(root: &Path) -> Result<()> {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        repo::text_of(git.args(args).current_dir(root))
    };
    git(&["rev-parse", "--git-dir"]).context("git reads no history here")?;
    git(&["cat-file", "-e", &format!("{BASELINE}^{{commit}}")]).with_context(|| {
        format!(
            "the commit {BASELINE} is not in the history that is here; in a shallow clone \
             `git fetch --unshallow` brings it"
        )
    })?;
    Ok(())
}

/// Builds the plugins and loads each in both places by this program.
///
/// # Errors
/// With every plugin that does not run, and where.
pub(crate) fn run(program: &Path) -> Result<()> {
    if let Some(why) = missing() {
        bail!("{why}");
    }
    let (version, _) = COMPILERS[0];
    let rustc = oldest().context("the oldest compiler is named")?;
    let short = BASELINE.get(..12).unwrap_or(BASELINE);
    let folder = repo::target()
        .join("compat")
        .join(format!("baseline-{short}"));
    let source = folder.join("source");
    take_out(&source)?;
    let crates = folder.join("plugins");
    write_crates(&source, &crates)?;
    let built = build(&crates, &rustc)?;
    let mut wrong = Vec::new();
    for (package, _) in PLUGINS {
        let library = built.library(package)?;
        for place in Place::ALL {
            let outcome = tried(program, &folder.join("data"), library, place, version)?;
            let found = outcome
                .as_ref()
                .map_or_else(String::clone, |it| it.word().to_owned());
            println!("{package:<18} {:<11} {found}", place.isolation());
            if outcome != Ok(Outcome::Holds) {
                wrong.push(format!(
                    "{package} of {short}, {}: {found}, and a library that was built then must run",
                    place.isolation()
                ));
            }
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

/// Takes the source of the commit out of the history.
fn take_out(to: &Path) -> Result<()> {
    files::empty(to)?;
    let archive = to.join("source.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg(BASELINE)
        .args(PARTS)
        .current_dir(repo::root());
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
    workspace.insert("members".to_owned(), toml::Value::from(MEMBERS.to_vec()));
    workspace.remove("exclude");
    write(&path, &toml::to_string(&manifest)?)
}

/// Makes a crate of each template, as `conjure plugin create` did then, and one workspace of them.
fn write_crates(source: &Path, to: &Path) -> Result<()> {
    let (constants, executor) = TEMPLATES;
    let constants = read(&source.join(constants))?;
    let executor = read(&source.join(executor))?;
    let sdk = source.join("skill-sdk");
    for (package, constant) in PLUGINS {
        let text = match constant {
            Some(name) => text_of(&constants, name)
                .with_context(|| format!("{BASELINE} has no template `{name}`"))?,
            None => executor.as_str(),
        };
        let name = package.to_owned();
        let text = text.replace("{{name}}", &name).replace("{{title}}", &name);
        write(&to.join(package).join("src/lib.rs"), &text)?;
        let manifest = MANIFEST
            .replace("{name}", package)
            .replace("{sdk}", &sdk.display().to_string());
        write(&to.join(package).join("Cargo.toml"), &manifest)?;
    }
    let members = PLUGINS
        .map(|(package, _)| format!("\"{package}\""))
        .join(", ");
    write(
        &to.join("Cargo.toml"),
        &WORKSPACE.replace("{members}", &members),
    )?;
    let lock = to.join("Cargo.lock");
    if !lock.exists() {
        // The versions of the commit, so that nothing is resolved anew.
        std::fs::copy(source.join("Cargo.lock"), lock)?;
    }
    Ok(())
}

/// The text of a raw string constant.
fn text_of<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = source.split_once(&format!("const {name}: &str = r"))?;
    let (hashes, text) = behind.split_once('"')?;
    let (text, _) = text.split_once(&format!("\"{hashes};"))?;
    Some(text)
}

/// Builds all of them where the tests build plugins by this compiler, which have most of what they
/// depend on. Without the network where that is enough.
fn build(crates: &Path, rustc: &Path) -> Result<Built> {
    let name = rustc.file_name().unwrap_or(rustc.as_os_str());
    let target = format!("build-{}", name.to_string_lossy());
    let target = repo::target().join("plugin-tests").join(target);
    let command = |more: &[&str]| {
        let mut command = repo::cargo(["build", "--workspace"]);
        command.args(more).current_dir(crates);
        command.env("CARGO_TARGET_DIR", &target);
        by_compiler(&mut command, Some(rustc));
        command
    };
    let is_enough = repo::succeeds(&mut command(&["--offline", "--quiet"]));
    let offline: &[&str] = if is_enough { &["--offline"] } else { &[] };
    Built::by(&mut command(offline))
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
version = "1.0.0"
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
        let error = format!("{:#}", is_there_in(folder.path()).unwrap_err());
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
