//! What is inside: the crates that program and plugins are made of, as a CycloneDX document.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{PLUGINS, PROGRAM};
use crate::repo;

/// A crate of somebody else.
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    /// Where its source is.
    pub(super) folder: PathBuf,
}

/// The crates of other people that are compiled in, in the order of their names. What only runs
/// while it is built, or only in tests, is not inside.
pub(super) fn crates() -> Result<Vec<Crate>> {
    let mut tree = repo::cargo([
        "tree",
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
    ]);
    tree.arg("{p}").arg("--package").arg(PROGRAM);
    for plugin in PLUGINS {
        tree.args(["--package", plugin]);
    }
    let tree = repo::text_of(&mut tree)?;
    let inside: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    let metadata = repo::text_of(&mut repo::cargo([
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let mut crates: Vec<Crate> = packages
        .context("cargo metadata names no packages")?
        .iter()
        .filter(|package| {
            package
                .get("source")
                .is_some_and(|source| !source.is_null())
        })
        .filter_map(of_package)
        .filter(|one| inside.contains(&(&*one.name, &*one.version)))
        .collect();
    crates.sort_by(|one, two| (&one.name, &one.version).cmp(&(&two.name, &two.version)));
    Ok(crates)
}

/// Reads `name v1.2.3`. `None` for `(proc-macro)`: a macro runs during the build and is not inside.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    (words.next() != Some("(proc-macro)")).then_some((name, version))
}

fn of_package(package: &Value) -> Option<Crate> {
    let text = |member: &str| Some(package.get(member)?.as_str()?.to_owned());
    Some(Crate {
        name: text("name")?,
        version: text("version")?,
        licence: text("license").unwrap_or_default(),
        folder: PathBuf::from(text("manifest_path")?).parent()?.to_owned(),
    })
}

/// The document, in version 1.5 of the form.
pub(super) fn document(crates: &[Crate]) -> Result<String> {
    let component = |one: &Crate| {
        json!({
            "type": "library",
            "name": one.name,
            "version": one.version,
            "purl": format!("pkg:cargo/{}@{}", one.name, one.version),
            "licenses": [{ "expression": one.licence.replace('/', " OR ") }],
        })
    };
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "conjure",
            "version": env!("CARGO_PKG_VERSION"),
        }},
        "components": crates.iter().map(component).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_macro_is_not_inside_and_a_crate_is() {
        assert_eq!(name_and_version("syn v2.0.1"), Some(("syn", "2.0.1")));
        assert_eq!(name_and_version("serde_derive v1.0.1 (proc-macro)"), None);
        assert_eq!(name_and_version("syn v2.0.1 (*)"), Some(("syn", "2.0.1")));
        assert_eq!(name_and_version(""), None);
    }

    #[test]
    fn every_crate_has_a_licence_and_its_source_is_there() {
        let crates = crates().unwrap();
        assert!(crates.iter().any(|one| one.name == "tokio"));
        assert!(!crates.iter().any(|one| one.name == "serde_derive"));
        for one in &crates {
            assert!(
                !one.licence.is_empty() && one.folder.is_dir(),
                "{}",
                one.name
            );
        }
    }
}
