//! Rules about who depends on whom, read from the packages' manifests.

use toml::{Table, Value};

use super::{
    Finding,
    links::joined,
    tree::{File, Tree},
    words::occurrences,
};

/// What conjure-core must not use: runtimes, network, files, processes, randomness.
const NOT_IN_CORE: [&str; 22] = [
    "async-std",
    "axum",
    "bollard",
    "conjure-host",
    "dirs",
    "fastrand",
    "getrandom",
    "hyper",
    "libloading",
    "mio",
    "notify",
    "rand",
    "rand_core",
    "reqwest",
    "rmcp",
    "rustix",
    "smol",
    "socket2",
    "sqlx",
    "tempfile",
    "tokio",
    "ureq",
];

/// What conjure-abi may use; the ABI's containers and futures, and nothing else.
const ABI_USES: [&str; 2] = ["abi_stable", "async-ffi"];

pub(crate) fn core_dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in manifests(tree, |path| path == "conjure-core/Cargo.toml") {
        for name in dependencies(file, &["dependencies", "build-dependencies"]) {
            if NOT_IN_CORE.contains(&name.as_str()) {
                let message = format!(
                    "conjure-core depends on `{name}`; the host performs what core asks for"
                );
                findings.push(Finding::new(&file.path, message));
            }
        }
    }
    findings
}

pub(crate) fn sdk_stands_alone(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = ["dependencies", "build-dependencies", "dev-dependencies"];
    for file in manifests(tree, |path| {
        path.starts_with("skill-sdk/") || path.starts_with("plugins/")
    }) {
        let in_sdk = file.path.starts_with("skill-sdk/");
        for name in dependencies(file, &all) {
            if name == "conjure-host" || (in_sdk && name == "conjure-core") {
                let message = format!(
                    "depends on `{name}`; only what crosses the ABI is shared with the host"
                );
                findings.push(Finding::new(&file.path, message));
            }
        }
    }
    findings
}

pub(crate) fn abi_is_small(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in manifests(tree, |path| path == "skill-sdk/abi/Cargo.toml") {
        for name in dependencies(file, &["dependencies", "build-dependencies"]) {
            if !ABI_USES.contains(&name.as_str()) {
                let message = format!(
                    "conjure-abi depends on `{name}`; it may use {} only",
                    ABI_USES.join(" and ")
                );
                findings.push(Finding::new(&file.path, message));
            }
        }
    }
    findings
}

pub(crate) fn dependencies_are_used(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let members: Vec<&File> = manifests(tree, |path| path != "Cargo.toml").collect();
    let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
    let taken: Vec<String> = members
        .iter()
        .flat_map(|file| keys(file, &sections))
        .collect();
    for file in manifests(tree, |path| path == "Cargo.toml") {
        let workspace = file.text.parse::<Table>().unwrap_or_default();
        let declared = workspace
            .get("workspace")
            .and_then(|workspace| workspace.get("dependencies"))
            .and_then(Value::as_table);
        for name in declared.into_iter().flat_map(Table::keys) {
            if !taken.contains(name) {
                let message =
                    format!("declares `{name}`, which no package depends on; take it out");
                findings.push(Finding::new(&file.path, message));
            }
        }
    }
    // Fuzz targets are made of macros and of sources that are somewhere else.
    for file in members
        .into_iter()
        .filter(|file| file.path != "tests/fuzz/Cargo.toml")
    {
        let directory = file.path.trim_end_matches("Cargo.toml");
        let sources: Vec<&File> = tree
            .rust()
            .filter(|source| source.path.starts_with(directory))
            .collect();
        let pages: Vec<&File> = sources
            .iter()
            .flat_map(|source| included_pages(tree, source))
            .collect();
        for name in keys(file, &sections) {
            let ident = name.replace('-', "_");
            let page_text = pages.iter().map(|page| &page.text);
            let mut code = sources.iter().map(|source| &source.code).chain(page_text);
            // The runner of a fuzz target is named by a macro's expansion only.
            if ident != "libfuzzer_sys"
                && !code.any(|code| occurrences(code, &ident).next().is_some())
            {
                let message =
                    format!("depends on `{name}`, which no code of it names; take it out");
                findings.push(Finding::new(&file.path, message));
            }
        }
    }
    findings
}

/// The pages whose examples are compiled as documentation of `source`.
fn included_pages<'t>(tree: &'t Tree, source: &File) -> Vec<&'t File> {
    let directory = source.path.rsplit_once('/').map_or("", |(at, _)| at);
    let included = source.text.split("#[doc = include_str!(\"").skip(1);
    included
        .filter_map(|rest| rest.split_once('"'))
        .map(|(page, _)| joined(directory, page))
        .filter_map(|path| tree.files.iter().find(|file| file.path == path))
        .collect()
}

pub(crate) fn readme_names_rust(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let readme = tree.files.iter().find(|file| file.path == "README.md");
    for file in manifests(tree, |path| path == "Cargo.toml") {
        let manifest = file.text.parse::<Table>().unwrap_or_default();
        let version = ["workspace", "package", "rust-version"]
            .iter()
            .try_fold(&Value::Table(manifest), |value, key| value.get(key))
            .and_then(|version| version.as_str().map(str::to_owned));
        let Some(version) = version else {
            let message = "no workspace.package.rust-version; say which Rust is needed";
            findings.push(Finding::new(&file.path, message));
            continue;
        };
        let sentence = format!("Rust {version} or newer");
        if !readme.is_some_and(|readme| readme.text.contains(&sentence)) {
            let message = format!("does not say `{sentence}`, as Cargo.toml has it");
            findings.push(Finding::new("README.md", message));
        }
    }
    findings
}

fn manifests(tree: &Tree, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = &File> {
    tree.files
        .iter()
        .filter(move |file| file.path.ends_with("Cargo.toml") && wanted(&file.path))
}

/// What a package needs to be built.
pub(super) fn dependencies_of(file: &File) -> Vec<String> {
    dependencies(file, &["dependencies", "build-dependencies"])
}

/// The names in these sections, as the code of the package knows them.
fn keys(file: &File, sections: &[&str]) -> Vec<String> {
    let manifest = file.text.parse::<Table>().unwrap_or_default();
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    let tables = std::iter::once(&manifest).chain(targets.filter_map(Value::as_table));
    let mut names = Vec::new();
    for table in tables {
        for section in sections {
            let section = table.get(*section).and_then(Value::as_table);
            names.extend(section.into_iter().flat_map(Table::keys).cloned());
        }
    }
    names
}

/// The packages in these sections, also those for one target only, by their real names.
fn dependencies(file: &File, sections: &[&str]) -> Vec<String> {
    let Ok(manifest) = file.text.parse::<Table>() else {
        return Vec::new(); // cargo says it better
    };
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    let mut names = Vec::new();
    for table in std::iter::once(&manifest).chain(targets) {
        for section in sections {
            for (name, value) in table
                .get(*section)
                .and_then(Value::as_table)
                .into_iter()
                .flatten()
            {
                let real = value.get("package").and_then(Value::as_str);
                names.push(real.unwrap_or(name).to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_may_not_do_io_even_under_another_name() {
        let manifest = "[dependencies]\nserde = \"1\"\nruntime = { package = \"tokio\", version = \"1\" }\n[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n[dev-dependencies]\ntempfile = \"3\"\n";
        let tree = Tree::of(&[("conjure-core/Cargo.toml", manifest)]);
        let messages: Vec<_> = core_dependencies(&tree)
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(
            messages,
            [
                "conjure-core depends on `tokio`; the host performs what core asks for",
                "conjure-core depends on `rustix`; the host performs what core asks for",
            ]
        );
    }

    #[test]
    fn a_plugin_may_use_the_core_but_not_the_host_and_the_sdk_neither() {
        let tree = Tree::of(&[
            (
                "plugins/a/Cargo.toml",
                "[dependencies]\nconjure-core.workspace = true\nconjure-host.workspace = true\n",
            ),
            (
                "skill-sdk/Cargo.toml",
                "[dev-dependencies]\nconjure-core.workspace = true\n",
            ),
        ]);
        let places: Vec<_> = sdk_stands_alone(&tree)
            .into_iter()
            .map(|finding| finding.location)
            .collect();
        assert_eq!(places, ["plugins/a/Cargo.toml", "skill-sdk/Cargo.toml"]);
    }

    #[test]
    fn a_dependency_that_nothing_uses_is_found() {
        let tree = Tree::of(&[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nserde = \"1\"\ntoml = \"1\"\nidle-one = \"1\"\n",
            ),
            (
                "x/Cargo.toml",
                "[dependencies]\nserde.workspace = true\n[target.'cfg(unix)'.dependencies]\ntoml.workspace = true\n\
                 [dev-dependencies]\ninsta = \"1\"\n[build-dependencies]\nprost = \"1\"\n",
            ),
            ("x/src/lib.rs", "//! toml\nuse serde::Serialize;\n"),
        ]);
        let messages: Vec<_> = dependencies_are_used(&tree)
            .into_iter()
            .map(|finding| (finding.location, finding.message))
            .collect();
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert!(messages[0].0 == "Cargo.toml" && messages[0].1.contains("`idle-one`"));
        assert!(
            messages[1..]
                .iter()
                .all(|(place, _)| place == "x/Cargo.toml")
        );
        for name in ["`toml`", "`insta`", "`prost`"] {
            assert!(
                messages.iter().any(|(_, said)| said.contains(name)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_readme_and_the_manifest_name_one_rust() {
        let manifest = "[workspace.package]\nrust-version = \"1.95\"\n";
        let tree = |manifest, readme| Tree::of(&[("Cargo.toml", manifest), ("README.md", readme)]);
        let findings = |manifest, readme| readme_names_rust(&tree(manifest, readme));
        assert!(findings(manifest, "You need Rust 1.95 or newer.").is_empty());
        assert_eq!(
            findings(manifest, "You need Rust 1.88 or newer."),
            [Finding::new(
                "README.md",
                "does not say `Rust 1.95 or newer`, as Cargo.toml has it"
            )]
        );
        assert_eq!(findings("[workspace]\n", "Rust").len(), 1);
    }

    #[test]
    fn the_abi_has_a_closed_list() {
        let tree = Tree::of(&[(
            "skill-sdk/abi/Cargo.toml",
            "[dependencies]\nabi_stable = \"0.11\"\nserde = \"1\"\n",
        )]);
        assert_eq!(abi_is_small(&tree).len(), 1);
    }
}
