//! Rules about who may know whom: the folders that stand beside each other, and the crates of the
//! host.
//!
//! A folder knows the one beside it where a file of it names that by a path from the crate's root or
//! from the folder that both are in, also through what this exports. Names that come in by a macro or
//! a glob go past this.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::manifest_rules::dependencies_of;
use super::tree::{File, Tree};
use super::words::{bracketed, occurrences};

/// The crates of the host and how high each stands: it depends on lower ones only.
const LAYERS: [(&str, u8); 20] = [
    ("conjure-highlight", 0),
    ("conjure-import", 0),
    ("conjure-sdk-source", 0),
    ("conjure-vault", 0),
    ("conjure-config", 1),
    ("conjure-http-server", 2),
    ("conjure-plugins", 2),
    ("conjure-store", 2),
    ("conjure-packages", 3),
    ("conjure-providers", 3),
    ("conjure-runtime", 4),
    ("conjure-acp", 5),
    ("conjure-client", 5),
    ("conjure-host", 5),
    ("conjure-http", 5),
    ("conjure-mcp", 5),
    ("conjure-page", 5),
    ("conjure-plugin-checks", 5),
    ("conjure-terminal", 5),
    ("conjure-cli", 6),
];

/// Where a module of a crate names another one: module, named module, places.
type Edges = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The modules at the top of a crate or in one folder of it, and how they name each other.
struct Modules<'a> {
    /// The folder, as `conjure-core/src/wire/`.
    source: String,
    /// Path of the folder's module, as `crate::wire::`.
    path: String,
    root: Option<&'a File>,
    files: Vec<(&'a File, String)>,
    folders: BTreeSet<String>,
}

pub(crate) fn no_folder_cycles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for modules in module_folders(tree) {
        let edges = modules.edges();
        for circle in cycles(&edges) {
            if circle
                .iter()
                .filter(|name| modules.folders.contains(*name))
                .count()
                < 2
            {
                continue;
            }
            for (from, to, place) in inner_edges(&edges, &circle) {
                let message = format!(
                    "`{from}` knows `{to}`, which knows `{from}` again, directly or through others; \
                     move what both need into a lower one"
                );
                findings.push(Finding::new(place, message));
            }
        }
    }
    findings
}

pub(crate) fn host_layers(tree: &Tree) -> Vec<Finding> {
    let level = |name: &str| LAYERS.iter().find(|(known, _)| *known == name);
    let mut findings = Vec::new();
    for file in tree
        .files
        .iter()
        .filter(|file| file.path.starts_with("conjure-host/") && file.path.ends_with("/Cargo.toml"))
    {
        let name = package(&file.text);
        let Some((_, own)) = level(&name) else {
            let message = format!("`{name}` has no layer; give it one in `LAYERS`");
            findings.push(Finding::new(&file.path, message));
            continue;
        };
        for used in dependencies_of(file) {
            if let Some((_, other)) = level(&used)
                && other >= own
            {
                let message = format!("depends on `{used}`, which stands no lower");
                findings.push(Finding::new(&file.path, message));
            }
        }
    }
    findings
}

/// The most folders beside each other that are in one cycle, and where they are; one where there is
/// no cycle.
pub(crate) fn largest_cycle(tree: &Tree) -> (usize, String) {
    let mut largest = (1, String::from("no crate"));
    for modules in module_folders(tree) {
        for circle in cycles(&modules.edges()) {
            let folders = circle
                .iter()
                .filter(|name| modules.folders.contains(*name))
                .count();
            if folders > largest.0 {
                largest = (folders, modules.source.clone());
            }
        }
    }
    largest
}

fn package(manifest: &str) -> String {
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \""));
    line.and_then(|rest| rest.split('"').next())
        .unwrap_or_default()
        .to_owned()
}

/// The top of each crate, and each folder below it.
fn module_folders(tree: &Tree) -> Vec<Modules<'_>> {
    let manifests = tree
        .files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"));
    let sources = manifests.map(|manifest| manifest.path.replace("Cargo.toml", "src/"));
    sources
        .flat_map(|source| {
            let files = tree.rust();
            let inner = files.filter_map(|file| file.path.strip_prefix(source.as_str()));
            let folders: BTreeSet<&str> = inner.flat_map(folders_above).collect();
            let modules = |folder| modules_of(tree, &source, folder);
            folders.into_iter().map(modules).collect::<Vec<_>>()
        })
        .collect()
}

/// The folders that a file is in, each with its last slash, from the nearest to the crate's top, whose
/// name is empty.
fn folders_above(file: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(file), |&path| {
        let path = path.strip_suffix('/').unwrap_or(path);
        match path.rsplit_once('/') {
            Some((folder, _)) => path.get(..=folder.len()),
            None if path.is_empty() => None,
            None => Some(""),
        }
    })
    .skip(1)
}

/// The modules in a folder of a crate, `wire/` or empty for the top.
fn modules_of<'a>(tree: &'a Tree, crate_source: &str, folder: &str) -> Modules<'a> {
    let source = format!("{crate_source}{folder}");
    // A folder's own module is in it, or beside it under its name.
    let beside = source.trim_end_matches('/').to_owned() + ".rs";
    let is_top = folder.is_empty();
    let mut modules = Modules {
        path: format!("crate::{}", folder.replace('/', "::")),
        source,
        root: None,
        files: Vec::new(),
        folders: BTreeSet::new(),
    };
    for file in tree.rust() {
        let Some(inner) = file.path.strip_prefix(&modules.source) else {
            if !is_top && file.path == beside {
                modules.root = Some(file);
            }
            continue;
        };
        let is_root = match is_top {
            true => matches!(inner, "lib.rs" | "main.rs"),
            false => inner == "mod.rs",
        };
        if is_root {
            modules.root = Some(file);
            continue;
        }
        let is_test = file.is_test() || inner.contains("tests/") || inner.ends_with("tests.rs");
        let name = match inner.split_once('/') {
            Some((folder, _)) => {
                modules.folders.insert(folder.to_owned());
                folder
            }
            None => inner.trim_end_matches(".rs"),
        };
        if !is_test {
            modules.files.push((file, name.to_owned()));
        }
    }
    modules
}

impl Modules<'_> {
    /// What the root exports, by name, and in which module each is.
    fn exports(&self, known: &BTreeSet<&str>) -> BTreeMap<String, String> {
        let mut exports = BTreeMap::new();
        let code = self
            .root
            .map(|root| root.shipped.as_str())
            .unwrap_or_default();
        for at in occurrences(code, "use ") {
            let path = code.get(at + 4..).unwrap_or_default();
            let path = path.split(';').next().unwrap_or_default();
            let Some((module, names)) = path.split_once("::") else {
                continue;
            };
            if known.contains(module.trim()) {
                for name in names.split(|sign: char| !(sign.is_alphanumeric() || sign == '_')) {
                    exports.insert(name.to_owned(), module.trim().to_owned());
                }
            }
        }
        exports
    }

    fn edges(&self) -> Edges {
        let known: BTreeSet<&str> = self.files.iter().map(|(_, name)| name.as_str()).collect();
        let exports = self.exports(&known);
        let mut edges = Edges::new();
        for (file, own) in &self.files {
            for (at, name) in named_modules(file, &self.source, &self.path) {
                let name = exports.get(&name).map_or(name.as_str(), String::as_str);
                if name != own && known.contains(name) {
                    let to = edges.entry(own.clone()).or_default();
                    to.entry(name.to_owned())
                        .or_default()
                        .push(file.location(at));
                }
            }
        }
        edges
    }
}

/// What a file names by a path from the folder of this source and path: where, and the first name
/// behind that.
fn named_modules(file: &File, source: &str, path: &str) -> Vec<(usize, String)> {
    let inner = file.path.strip_prefix(source).unwrap_or_default();
    let is_root_of_folder = inner.ends_with("/mod.rs");
    let depth = inner.matches('/').count() + usize::from(!is_root_of_folder);
    let from_below = "super::".repeat(depth);
    let mut found = Vec::new();
    for start in [path, from_below.as_str()] {
        for at in occurrences(&file.shipped, start) {
            // A longer chain leads elsewhere, and `a::super::` is none.
            if file
                .shipped
                .get(..at)
                .is_some_and(|before| before.ends_with("::"))
            {
                continue;
            }
            let behind = at + start.len();
            let rest = file.shipped.get(behind..).unwrap_or_default();
            let texts = if rest.starts_with('{') {
                first_level(bracketed(&file.shipped, behind))
            } else {
                vec![rest]
            };
            for text in texts {
                let end = text.find(|sign: char| !(sign.is_alphanumeric() || sign == '_'));
                let name = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
                if !matches!(name, "" | "super" | "self") {
                    found.push((at, name.to_owned()));
                }
            }
        }
    }
    found
}

/// The parts of a group between its outermost commas.
fn first_level(group: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    let group = group.trim_start_matches('{').trim_end_matches('}');
    for (at, sign) in group.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(group.get(start..at).unwrap_or_default().trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(group.get(start..).unwrap_or_default().trim());
    parts
}

fn reachable<'a>(edges: &'a Edges, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

/// The largest sets of modules of which each leads to each.
fn cycles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for module in edges.keys() {
        let reached = reachable(edges, module);
        if !reached.contains(module.as_str()) || circles.iter().any(|one| one.contains(module)) {
            continue;
        }
        let back = reached
            .into_iter()
            .filter(|other| reachable(edges, other).contains(module.as_str()));
        circles.push(back.map(str::to_owned).collect());
    }
    circles
}

/// The first place of each edge inside a circle.
fn inner_edges<'a>(
    edges: &'a Edges,
    circle: &'a BTreeSet<String>,
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    circle.iter().flat_map(move |from| {
        let to = edges.get(from).into_iter().flatten();
        to.filter(|(to, _)| circle.contains(*to))
            .filter_map(move |(to, places)| {
                Some((from.as_str(), to.as_str(), places.first()?.as_str()))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_know_each_other_are_found_also_through_a_file_and_an_export() {
        let tree = Tree::of(&[
            ("x/Cargo.toml", "[package]\nname = \"x\"\n"),
            (
                "x/src/lib.rs",
                "//! X.\nmod a;\nmod b;\nmod c;\npub use c::Thing;\n",
            ),
            ("x/src/a/mod.rs", "//! A.\nuse crate::{c, Thing};\n"),
            ("x/src/b/mod.rs", "//! B.\nuse super::a::One;\n"),
            (
                "x/src/c.rs",
                "//! C.\nfn f() -> crate::b::Two {}\n#[cfg(test)]\nmod tests { use crate::d; }\n",
            ),
            ("x/src/d/mod.rs", "//! D.\nuse crate::a;\n"),
        ]);
        let places: Vec<String> = no_folder_cycles(&tree)
            .into_iter()
            .map(|finding| finding.location)
            .collect();
        assert_eq!(
            places,
            ["x/src/a/mod.rs:2", "x/src/b/mod.rs:2", "x/src/c.rs:2"]
        );
        assert_eq!(largest_cycle(&tree), (2, "x/src/".to_owned()));
    }

    #[test]
    fn folders_in_a_folder_that_know_each_other_are_found_too() {
        let tree = Tree::of(&[
            ("x/Cargo.toml", "[package]\nname = \"x\"\n"),
            ("x/src/lib.rs", "//! X.\nmod wire;\n"),
            (
                "x/src/wire/mod.rs",
                "//! W.\nmod a;\nmod b;\nmod target;\npub use target::Target;\n",
            ),
            ("x/src/wire/a/mod.rs", "//! A.\nuse super::Target;\n"),
            (
                "x/src/wire/target.rs",
                "//! T.\nuse super::b::part::Part;\n",
            ),
            ("x/src/wire/b/mod.rs", "//! B.\nmod part;\n"),
            (
                "x/src/wire/b/part.rs",
                "//! P.\nuse crate::wire::{a::One, c};\n",
            ),
            ("x/src/wire/c/mod.rs", "//! C.\nuse super::a;\n"),
        ]);
        let places: Vec<String> = no_folder_cycles(&tree)
            .into_iter()
            .map(|finding| finding.location)
            .collect();
        assert_eq!(
            places,
            [
                "x/src/wire/a/mod.rs:2",
                "x/src/wire/b/part.rs:2",
                "x/src/wire/b/part.rs:2",
                "x/src/wire/c/mod.rs:2",
                "x/src/wire/target.rs:2"
            ]
        );
        assert_eq!(largest_cycle(&tree), (3, "x/src/wire/".to_owned()));
    }

    #[test]
    fn a_crate_of_the_host_depends_on_lower_ones_only() {
        let manifest = |name: &str, used: &str| {
            format!("[package]\nname = \"{name}\"\n[dependencies]\n{used}.workspace = true\n")
        };
        let tree = Tree::of(&[
            (
                "conjure-host/store/Cargo.toml",
                &manifest("conjure-store", "conjure-runtime"),
            ),
            (
                "conjure-host/http/Cargo.toml",
                &manifest("conjure-http", "conjure-mcp"),
            ),
            (
                "conjure-host/cli/Cargo.toml",
                &manifest("conjure-cli", "conjure-http"),
            ),
            (
                "conjure-host/new/Cargo.toml",
                &manifest("conjure-new", "conjure-core"),
            ),
        ]);
        let places: Vec<String> = host_layers(&tree)
            .into_iter()
            .map(|finding| finding.location)
            .collect();
        assert_eq!(
            places,
            [
                "conjure-host/store/Cargo.toml",
                "conjure-host/http/Cargo.toml",
                "conjure-host/new/Cargo.toml"
            ]
        );
    }
}
