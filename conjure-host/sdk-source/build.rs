//! Packs the source of the SDK: the crates `conjure-skill-sdk`, `conjure-abi` and `conjure-skill-macros`
//! without their tests, the file for Python and the schemas of the protocol, with manifests that stand
//! alone. What they inherit from the workspace is written into them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The SDK in the repository, and in it the crates: itself, the binary interface and the attribute.
const SDK: &str = "skill-sdk";
const CRATES: [&str; 3] = ["", "abi", "macros"];
/// What of each crate is packed, beside its manifest.
const PARTS: [&str; 7] = [
    "build.rs",
    "src",
    "docs",
    "examples",
    "protocol",
    "python",
    "CHANGELOG.md",
];
/// The kinds of files that are packed; one without a kind is a text.
const KINDS: [&str; 4] = ["json", "md", "py", "rs"];

fn main() -> Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = manifest(&repository.join("Cargo.toml"))?;
    let mut files = BTreeMap::new();
    for krate in CRATES {
        let dir = repository.join(SDK).join(krate);
        for part in PARTS {
            collect(&dir.join(part), &Path::new(krate).join(part), &mut files)?;
        }
        let mut alone = standalone_manifest(manifest(&dir.join("Cargo.toml"))?, &workspace)?;
        let examples = examples(&files, krate);
        if !examples.is_empty() {
            alone.insert("example".to_owned(), Value::Array(examples));
        }
        let name = Path::new(krate).join("Cargo.toml");
        files.insert(name, toml::to_string(&alone)?.into_bytes());
    }
    let licence = repository.join("LICENSE");
    collect(&licence, Path::new("LICENSE"), &mut files)?;
    let packed = pack(&files)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    fs::write(out.join("sdk.zip"), &packed)?;
    let digest = Sha256::digest(&packed);
    let digest: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    println!("cargo::rustc-env=CONJURE_SDK_DIGEST={digest}");
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

fn manifest(path: &Path) -> Result<Table> {
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(path).with_context(|| format!("read `{}`", path.display()))?;
    toml::from_str(&text).with_context(|| format!("`{}` is no manifest", path.display()))
}

/// Adds a file, or all files of a directory that are source or text, if it is there.
fn collect(from: &Path, name: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    if !from.exists() {
        // Cargo runs a script again and again that waits for what is not there.
        return Ok(());
    }
    println!("cargo::rerun-if-changed={}", from.display());
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            collect(&entry.path(), &name.join(entry.file_name()), files)?;
        }
    } else if from
        .extension()
        .is_none_or(|kind| KINDS.iter().any(|known| kind == *known))
    {
        files.insert(name.to_owned(), fs::read(from)?);
    }
    Ok(())
}

/// A manifest that needs no workspace, and has nothing that only the repository's tests need.
fn standalone_manifest(mut manifest: Table, workspace: &Table) -> Result<Table> {
    for part in ["dev-dependencies", "lints"] {
        manifest.remove(part);
    }
    let of_workspace = |part: &str| {
        let workspace = workspace.get("workspace").and_then(Value::as_table);
        let part = workspace.and_then(|workspace| workspace.get(part)?.as_table());
        part.with_context(|| "the workspace's manifest lacks a part".to_owned())
    };
    let usual = of_workspace("package")?;
    for (name, value) in table(&mut manifest, "package")? {
        if is_inherited(value) {
            *value = usual
                .get(name.as_str())
                .with_context(|| format!("the workspace has no `{name}`"))?
                .clone();
        }
    }
    let usual = of_workspace("dependencies")?;
    for (name, value) in table(&mut manifest, "dependencies")? {
        if is_inherited(value) {
            let usual = usual
                .get(name.as_str())
                .with_context(|| format!("the workspace has no dependency `{name}`"))?;
            *value = Value::Table(dependency(name, usual, value));
        }
    }
    Ok(manifest)
}

/// The examples of a crate. They run what they show in the test kit, which only the repository's tests
/// have without asking for it.
fn examples(files: &BTreeMap<PathBuf, Vec<u8>>, krate: &str) -> Vec<Value> {
    let dir = Path::new(krate).join("examples");
    let files = files.keys().filter(|path| path.starts_with(&dir));
    let names = files.filter_map(|path| path.file_stem()?.to_str());
    let examples = names.map(|name| {
        let features = Value::Array(vec!["testkit".into()]);
        let example = [
            ("name".to_owned(), name.into()),
            ("required-features".to_owned(), features),
        ];
        Value::Table(Table::from_iter(example))
    });
    examples.collect()
}

fn table<'a>(manifest: &'a mut Table, part: &str) -> Result<&'a mut Table> {
    let part_of = manifest.get_mut(part).and_then(Value::as_table_mut);
    part_of.with_context(|| format!("a manifest has no `{part}`"))
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// A dependency as the workspace has it, with what the crate says beside.
fn dependency(name: &str, usual: &Value, own: &Value) -> Table {
    let mut whole = match usual {
        Value::Table(usual) => usual.clone(),
        version => Table::from_iter([("version".to_owned(), version.clone())]),
    };
    if let Some(path) = whole.get_mut("path") {
        let inside = path
            .as_str()
            .and_then(|path| path.strip_prefix("skill-sdk/"));
        *path = inside.unwrap_or(name).into();
    }
    for (key, value) in own.as_table().into_iter().flatten() {
        match (key.as_str(), whole.get_mut(key), value) {
            ("workspace", ..) => {}
            ("features", Some(Value::Array(all)), Value::Array(more)) => {
                all.extend(more.iter().cloned());
            }
            _ => {
                whole.insert(key.clone(), value.clone());
            }
        }
    }
    whole
}

/// The files in their order, without times, so that the same source is the same package. They are one
/// stream, each behind a line with its name and its length: what one has in common with the next is
/// there once.
fn pack(files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_level(Some(9));
    writer.start_file("sdk", options)?;
    for (name, bytes) in files {
        let name = name.to_string_lossy().replace('\\', "/");
        writeln!(writer, "{} {name}", bytes.len())?;
        writer.write_all(bytes)?;
    }
    Ok(writer.finish()?.into_inner())
}
