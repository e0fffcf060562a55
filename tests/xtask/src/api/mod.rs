//! `cargo xtask api`: the public items of the crates that are published, held against lists.
//!
//! The lists are in `skill-sdk/docs/public-api`, with the crate's features, each as `feature NAME`. They
//! are made from the source and the manifest alone, with the features that each item needs, so that the
//! compiler at hand makes no difference. Something that is gone or has another signature is told apart
//! from something that is new, and cannot be written into a list before the crate has a version that may
//! break.

mod changes;
mod expand;
mod signatures;
mod source;
mod surface;
mod tokens;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{compat, packages, repo};
use changes::{Changes, between, may_break};
use source::{CrateSource, root_of};
use surface::{PublicItem, public_items};

/// Where the lists are.
const FOLDER: &str = "skill-sdk/docs/public-api";

/// Says that what a test or check compares with is to be written anew.
const WRITE: &str = "CONJURE_WRITE_FIXTURES";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ask cargo-semver-checks as well, against the commit from which plugins go on loading: it knows
    /// what a list of items does not show. Needs the history of the repository and
    /// `cargo install cargo-semver-checks --locked`
    #[arg(long)]
    semver_checks: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    check()?;
    match args.semver_checks {
        true => semver_checks(),
        false => Ok(()),
    }
}

/// Holds each published crate against its list, or writes the lists where the environment says so.
///
/// # Errors
/// When a list is missing or says something else, with every difference.
pub(crate) fn check() -> Result<()> {
    let writes = std::env::var_os(WRITE).is_some_and(|value| value == "1");
    let mut wrong = Vec::new();
    for package in packages::published()? {
        let found = PublishedCrate::read(&package)?;
        let path = repo::root()
            .join(FOLDER)
            .join(format!("{}.txt", found.name));
        let result = match writes {
            true => found.write(&path),
            false => found.compare(&path),
        };
        match result {
            Ok(()) => eprintln!("{}: {} public items", found.name, found.items.len()),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The features of a package that cargo describes: who depends on it asks for them by name.
fn features(package: &Value) -> Vec<PublicItem> {
    let features = package.get("features").and_then(Value::as_object);
    let feature = |name: &String| PublicItem {
        path: "feature".to_owned(),
        description: name.clone(),
    };
    features
        .into_iter()
        .flat_map(|features| features.keys().map(feature))
        .collect()
}

/// A published crate with its public items and features, of today or of a list.
struct PublishedCrate {
    name: String,
    version: String,
    items: BTreeSet<PublicItem>,
}

impl PublishedCrate {
    /// Reads the source of a package that cargo describes.
    fn read(package: &Value) -> Result<Self> {
        let text = |field: &str| package.get(field).and_then(Value::as_str);
        let name = text("name").context("a package has a name")?;
        let failed = || format!("the public items of {name} cannot be told");
        let source = CrateSource::read(name, &root_of(package)?).with_context(failed)?;
        let mut items = public_items(&source).with_context(failed)?;
        items.extend(features(package));
        Ok(Self {
            name: name.to_owned(),
            version: text("version").unwrap_or_default().to_owned(),
            items,
        })
    }

    /// The text of the list.
    fn list(&self) -> String {
        let mut text = format!("# {} {}\n", self.name, self.version);
        for item in &self.items {
            text.push_str(&format!("{} {}\n", item.path, item.description));
        }
        text
    }

    /// Reads a list.
    fn from_list(text: &str) -> Result<Self> {
        let head = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let head = head.and_then(|head| head.split_once(' '));
        let (name, version) = head.context("its first line is not `# CRATE VERSION`")?;
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            items: text.lines().skip(1).filter_map(PublicItem::read).collect(),
        })
    }

    fn compare(&self, path: &Path) -> Result<()> {
        let listed = Self::read_list(path)?.with_context(|| {
            format!(
                "{} has no list of public items; `{WRITE}=1 cargo xtask api` writes it",
                self.name
            )
        })?;
        let changes = between(&listed.items, &self.items);
        self.check_version(&listed, &changes)?;
        let is_same = changes == Changes::default() && listed.version == self.version;
        let breaks = match changes.breaking.is_empty() {
            true => format!("nothing that compiles against {} breaks", listed.version),
            false => format!(
                "{} may break what {} promised",
                self.version, listed.version
            ),
        };
        ensure!(
            is_same,
            "the list of {} is not that of today, and {breaks}; `{WRITE}=1 cargo xtask api` writes \
             it anew:{}{}",
            self.name,
            lines(&changes.additions),
            lines(&changes.breaking)
        );
        Ok(())
    }

    fn write(&self, path: &Path) -> Result<()> {
        if let Some(listed) = Self::read_list(path)? {
            let changes = between(&listed.items, &self.items);
            self.check_version(&listed, &changes)?;
            for line in changes.breaking.iter().chain(&changes.additions) {
                eprintln!("{line}");
            }
        }
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(path, self.list()))
            .with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Checks that what breaks comes with a version that says so.
    fn check_version(&self, listed: &Self, changes: &Changes) -> Result<()> {
        if changes.breaking.is_empty() || may_break(&listed.version, &self.version) {
            return Ok(());
        }
        let mut message = format!(
            "crates that compile against {} {} break; take it back, or give {} a version that may \
             break, and write the list anew with `{WRITE}=1 cargo xtask api`:{}",
            self.name,
            listed.version,
            self.name,
            lines(&changes.breaking)
        );
        if !changes.additions.is_empty() {
            message.push_str(&format!(
                "\nnothing breaks by:{}",
                lines(&changes.additions)
            ));
        }
        bail!("{message}")
    }

    fn read_list(path: &Path) -> Result<Option<Self>> {
        let failed = || format!("the list `{}`", path.display());
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_list(&text).map(Some).with_context(failed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(failed),
        }
    }
}

/// Each on a line of its own, with a line break in front.
fn lines<'a>(of: impl IntoIterator<Item = &'a String>) -> String {
    of.into_iter().map(|line| format!("\n  {line}")).collect()
}

/// Asks cargo-semver-checks about the libraries; it does not look at procedural macros.
fn semver_checks() -> Result<()> {
    ensure!(
        repo::succeeds(&mut repo::cargo(["semver-checks", "--version"])),
        "cargo-semver-checks is not installed; `cargo install cargo-semver-checks --locked` installs it"
    );
    compat::baseline::check_commit(compat::LATEST_BASELINE)?;
    let mut command = repo::cargo(["semver-checks", "--all-features", "--baseline-rev"]);
    command.arg(compat::LATEST_BASELINE.commit);
    for package in packages::published()? {
        let name = package
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let targets = package.get("targets").and_then(Value::as_array);
        let kinds = targets
            .into_iter()
            .flatten()
            .filter_map(|target| target.get("kind")?.as_array());
        if kinds.flatten().any(|kind| kind == "lib") {
            command.args(["--package", name]);
        }
    }
    repo::run(&mut command)
}
