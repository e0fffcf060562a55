//! `conjure plugin pack`: a package out of libraries, a program, or a skill folder.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::fs;
use conjure_packages::{LICENSE_FILE, Package, PackageBuilder, SBOM_FILE, sbom};
use conjure_plugins::{
    ANY_TARGET, Isolation, LibraryTarget, PluginFile, SkillArchive, is_description,
};
use conjure_skill_sdk::protocol::Manifest;
use serde_json::json;
use toml::{Table, Value};

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET};
use super::plugin::{load_and_try, report_refusal};
use super::plugin_package::signing_key;

/// How much of what a skill folder's package leaves out is named.
const MAX_SHOWN_OMISSIONS: usize = 10;

/// Number of directories above a library that are looked at: those of its profile, of its target, of all
/// targets, of the crate, and one more.
const LEVELS: usize = 5;

/// What the text of a licence is called.
const TEXTS: [&str; 5] = [
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "LICENSE-MIT",
    "COPYING",
];

/// What to pack.
#[derive(Args)]
pub(crate) struct PackArgs {
    /// The plugin's library for each machine, one of them for this one; or a program: its directory,
    /// description or bundle; or a skill folder or `.skill` package
    #[arg(required = true, value_name = "PLUGIN")]
    libraries: Vec<PathBuf>,
    /// The licence, an SPDX expression [default: the crate's]
    #[arg(long, value_name = "EXPRESSION")]
    license: Option<String>,
    /// The licence's text [default: the crate's LICENSE]
    #[arg(long, value_name = "FILE")]
    license_file: Option<PathBuf>,
    /// The SBOM, a CycloneDX document [default: made from the crate's Cargo.lock]
    #[arg(long, value_name = "FILE")]
    sbom: Option<PathBuf>,
    /// Sign the package with this secret key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The directory to put the package in
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

/// Makes a package.
pub(crate) async fn pack(global: &Global, args: &PackArgs) -> Result<Exit, CliError> {
    if let [skill] = args.libraries.as_slice()
        && is_skill(skill)
    {
        return pack_skill(global, args, skill).await;
    }
    let here = LibraryTarget::here();
    let mut libraries = Vec::new();
    let mut native = None;
    for path in &args.libraries {
        let path = match find_description(path) {
            Ok(path) => path,
            Err(reason) => return Ok(report_refusal(global, path, &reason)),
        };
        let bytes = match is_description(&path) {
            false => read(&path)?,
            true => match PluginFile::read(&path, true) {
                Ok(file) => file.bytes,
                Err(error) => return Ok(report_refusal(global, &path, &error.to_string())),
            },
        };
        let target = match LibraryTarget::is_program(&bytes) {
            true => LibraryTarget::of_program(&bytes).ok(),
            false => LibraryTarget::of(&bytes),
        };
        let target = target.map(|library| library.target);
        let is_here = target.is_some_and(|target| target == here || target == ANY_TARGET);
        if native.is_none() && is_here {
            native = Some(path.clone());
        }
        libraries.push((path, bytes));
    }
    let Some(native) = native else {
        let reason = format!(
            "no library of a plugin is for this machine ({here}), and the manifest is read from that one"
        );
        let first = args
            .libraries
            .first()
            .map_or(Path::new(""), PathBuf::as_path);
        return Ok(report_refusal(global, first, &reason));
    };
    let plugin = match load_and_try(global, &native, Some(Isolation::Process)).await? {
        Ok(plugin) => plugin,
        Err(reason) => return Ok(report_refusal(global, &native, &reason)),
    };
    let mut package = PackageBuilder::new(Manifest::clone(plugin.manifest()));
    for (path, bytes) in libraries {
        package.library(&display_path(&path), bytes)?;
    }
    let home = match is_description(&native) {
        true => native.parent().map(CrateHome::of),
        false => Some(CrateHome::of_library(&native, &plugin.manifest().name)),
    };
    finish(global, args, package, home.unwrap_or_default(), &[]).await
}

/// Makes a package of a skill folder.
async fn pack_skill(global: &Global, args: &PackArgs, path: &Path) -> Result<Exit, CliError> {
    let skill = match SkillArchive::read(path) {
        Ok(skill) => skill,
        Err(error) => return Ok(report_refusal(global, path, &error.to_string())),
    };
    let left_out: Vec<String> = skill.left_out.iter().map(ToString::to_string).collect();
    let package = PackageBuilder::of_skill(&display_path(path), skill)?;
    let home = match path.is_dir() {
        true => CrateHome::of(path),
        false => CrateHome::default(),
    };
    finish(global, args, package, home, &left_out).await
}

/// Adds licence and SBOM, signs, and writes the package.
async fn finish(
    global: &Global,
    args: &PackArgs,
    mut package: PackageBuilder,
    home: CrateHome,
    left_out: &[String],
) -> Result<Exit, CliError> {
    if let Some(license) = args.license.as_ref().or(home.license.as_ref()) {
        package.license(license);
    }
    if let Some(path) = args.license_file.as_ref().or(home.license_file.as_ref()) {
        package.file(LICENSE_FILE, read(path)?);
    }
    let parts = match (&args.sbom, &home.cargo_lock, &home.name) {
        (Some(path), _, _) => Some(read(path)?),
        (None, Some(path), Some(name)) => {
            let lock = String::from_utf8_lossy(&read(path)?).into_owned();
            let manifest = package.manifest();
            sbom(&manifest.name, &manifest.version, name, &lock).map(String::into_bytes)
        }
        (None, _, _) => None,
    };
    let has_sbom = parts.is_some();
    if let Some(parts) = parts {
        package.file(SBOM_FILE, parts);
    }
    let bytes = package.build()?;
    let mut package = Package::read("the package", bytes)?;
    if let Some(key) = &args.key {
        let signed = package.signed(&signing_key(key).await?)?;
        package = Package::read("the package", signed)?;
    }
    let path = args.out.join(package.file_name());
    fs::write_atomic_for_all(&path, package.bytes())
        .map_err(|error| CliError::host_from(error).context(display_path(&path)))?;
    report(global, &package, &path, has_sbom, left_out);
    Ok(Exit::Success)
}

fn report(global: &Global, package: &Package, path: &Path, has_sbom: bool, left_out: &[String]) {
    let description = package.description();
    let size = package.bytes().len() as u64;
    if global.json {
        output::json(&json!({
            "package": path,
            "sha256": package.sha256(),
            "size": size,
            "description": description,
            "left_out": left_out,
        }));
        return;
    }
    let targets: Vec<&str> = description
        .libraries
        .iter()
        .map(|library| library.target.as_str())
        .chain(description.skill.as_ref().map(|_| ANY_TARGET))
        .collect();
    output::line(format_args!(
        "{BOLD}{}{RESET} for {}: {} ({})",
        output::clean(&description.id()),
        targets.join(", "),
        display_path(path),
        output::size(size)
    ));
    let has_text = description
        .files
        .iter()
        .any(|file| file.path == LICENSE_FILE);
    let missing: Vec<&str> = [
        (description.license.is_some(), "the licence (`--license`)"),
        (has_text, "the licence's text (`--license-file`)"),
        (has_sbom, "an SBOM (`--sbom`)"),
        (
            description.signer.is_some(),
            "a signature (`conjure plugin sign`)",
        ),
    ]
    .into_iter()
    .filter_map(|(is_there, what)| (!is_there).then_some(what))
    .collect();
    if !missing.is_empty() {
        output::line(format_args!("  without {}", missing.join(", ")));
    }
    for what in left_out.iter().take(MAX_SHOWN_OMISSIONS) {
        output::line(format_args!("  left out: {}", output::clean(what)));
    }
    if let Some(more) = left_out.len().checked_sub(MAX_SHOWN_OMISSIONS + 1) {
        output::line(format_args!("  left out: {} more", more + 1));
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|error| CliError::usage_from(error).context(display_path(path)))
}

/// Whether this is a skill folder, or a package of one.
fn is_skill(path: &Path) -> bool {
    let is_package = path.extension().is_some_and(|it| it == "skill") && path.is_file();
    is_package || path.join("SKILL.md").is_file()
}

/// Finds the one description of a program in a directory; returns any other path as it is.
fn find_description(path: &Path) -> Result<PathBuf, String> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let mut found = fs::entries(path).map_err(|error| error.to_string())?;
    found.retain(|path| is_description(path));
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!(
            "{} has neither a description of a program (`plugin.toml`) nor a SKILL.md",
            display_path(path)
        )),
        _ => Err(format!(
            "{} has several descriptions of programs; name one of them",
            display_path(path)
        )),
    }
}

/// What is found about the crate that a library was built in. Another crate's licence is not taken,
/// however near it is.
#[derive(Debug, Default, PartialEq, Eq)]
struct CrateHome {
    /// The crate's name, as its lock has it.
    name: Option<String>,
    license: Option<String>,
    license_file: Option<PathBuf>,
    cargo_lock: Option<PathBuf>,
}

impl CrateHome {
    /// The crate whose library this is, of those around it and of their workspaces. It has the plugin's
    /// name, or its library has the file's.
    fn of_library(library: &Path, plugin: &str) -> Self {
        let Ok(library) = library.canonicalize() else {
            return Self::default();
        };
        let stem = library.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.unwrap_or_default();
        let stem = stem.strip_prefix("lib").unwrap_or(stem);
        let is_its =
            |dir: &PathBuf| manifest(dir).is_some_and(|it| builds_library(&it, plugin, stem));
        for dir in library.ancestors().skip(1).take(LEVELS) {
            let mut crates = vec![dir.to_owned()];
            crates.extend(members(dir));
            if let Some(home) = crates.into_iter().find(&is_its) {
                return Self::of(&home);
            }
        }
        Self::default()
    }

    /// The crate in a directory, or what else there is in it.
    fn of(home: &Path) -> Self {
        let own = manifest(home).unwrap_or_default();
        let is_crate = own.contains_key("package");
        let root = is_crate.then(|| workspace_of(home)).flatten();
        let said = |key: &str| text(&own, &["package", key]);
        let inherits = value(&own, &["package", "license", "workspace"]).is_some();
        let inherited = || {
            let root = root.as_deref().filter(|_| inherits)?;
            text(&manifest(root)?, &["workspace", "package", "license"])
        };
        let dirs = || [Some(home), root.as_deref()].into_iter().flatten();
        let first = |names: &[&str]| {
            let mut paths = dirs().flat_map(|dir| names.iter().map(move |name| dir.join(name)));
            paths.find(|path| path.is_file())
        };
        Self {
            name: said("name"),
            license: said("license").or_else(inherited),
            license_file: said("license-file")
                .map(|file| home.join(file))
                .or_else(|| first(&TEXTS)),
            cargo_lock: first(&["Cargo.lock"]),
        }
    }
}

fn manifest(dir: &Path) -> Option<Table> {
    let text = fs::read_to_string(dir.join("Cargo.toml")).ok()?;
    toml::from_str(&text).ok()
}

/// Whether a crate makes the library of a plugin: it is called like one of the two.
fn builds_library(manifest: &Table, plugin: &str, library: &str) -> bool {
    let name = text(manifest, &["package", "name"]);
    let Some(name) = name else { return false };
    let own = text(manifest, &["lib", "name"]);
    name == plugin || own.unwrap_or_else(|| name.replace('-', "_")) == library
}

/// The directories of a workspace's crates, where there is a workspace in this one.
fn members(dir: &Path) -> Vec<PathBuf> {
    let manifest = manifest(dir).unwrap_or_default();
    let members = list(&manifest, &["workspace", "members"]);
    let dirs = members
        .iter()
        .flat_map(|member| match member.strip_suffix("/*") {
            Some(parent) => fs::entries(dir.join(parent)).unwrap_or_default(),
            None => vec![dir.join(member)],
        });
    dirs.collect()
}

/// The workspace that a crate is in: the nearest one above, unless that leaves it out.
fn workspace_of(home: &Path) -> Option<PathBuf> {
    for dir in home.ancestors() {
        let manifest = manifest(dir).unwrap_or_default();
        if !manifest.contains_key("workspace") {
            continue;
        }
        let left_out = list(&manifest, &["workspace", "exclude"]);
        let is_in = !left_out.iter().any(|out| home.starts_with(dir.join(out)));
        return is_in.then(|| dir.to_owned());
    }
    None
}

fn value<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(table.get(*first)?, |value, key| value.get(*key))
}

fn text(table: &Table, path: &[&str]) -> Option<String> {
    value(table, path)?.as_str().map(str::to_owned)
}

fn list(table: &Table, path: &[&str]) -> Vec<String> {
    let items = value(table, path).and_then(Value::as_array);
    let texts = items.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of an author's, and a built library.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn home(dir: &tempfile::TempDir, library: &str, plugin: &str) -> CrateHome {
        CrateHome::of_library(&dir.path().join(library), plugin)
    }

    #[test]
    fn another_crates_licence_is_not_taken() {
        let dir = tree(&[
            (
                "Cargo.toml",
                "[package]\nname = \"other\"\nlicense = \"GPL-3.0\"\n",
            ),
            ("Cargo.lock", "version = 4\n"),
            ("LICENSE", "Theirs."),
            ("target/release/libmine.so", ""),
        ]);
        let library = "target/release/libmine.so";
        assert_eq!(home(&dir, library, "mine"), CrateHome::default());
        assert_eq!(home(&dir, library, "other").license.unwrap(), "GPL-3.0");
    }

    #[test]
    fn a_crate_of_a_workspace_inherits_what_it_says_so_of() {
        let dir = tree(&[
            (
                "Cargo.toml",
                "[workspace]\nmembers = [\"plugins/*\", \"tool\"]\n[workspace.package]\nlicense = \"MIT\"\n",
            ),
            ("Cargo.lock", "version = 4\n"),
            ("LICENSE", "Ours."),
            (
                "tool/Cargo.toml",
                "[package]\nname = \"tool\"\nlicense = \"GPL-3.0\"\n",
            ),
            (
                "plugins/skill-mine/Cargo.toml",
                "[package]\nname = \"skill-mine\"\nlicense.workspace = true\n",
            ),
            ("target/release/libskill_mine.so", ""),
            ("target/release/libtool.so", ""),
        ]);
        let root = dir.path().canonicalize().unwrap();
        let expected = CrateHome {
            name: Some("skill-mine".to_owned()),
            license: Some("MIT".to_owned()),
            license_file: Some(root.join("LICENSE")),
            cargo_lock: Some(root.join("Cargo.lock")),
        };
        let library = "target/release/libskill_mine.so";
        assert_eq!(home(&dir, library, "mine"), expected);
        let tool = home(&dir, "target/release/libtool.so", "tool");
        assert_eq!(tool.license.as_deref(), Some("GPL-3.0"));
    }

    #[test]
    fn a_crate_that_its_workspace_leaves_out_has_nothing_of_it() {
        let dir = tree(&[
            ("Cargo.toml", "[workspace]\nexclude = [\"mine\"]\n"),
            ("LICENSE", "Theirs."),
            ("mine/Cargo.toml", "[package]\nname = \"mine\"\n"),
            ("mine/target/debug/libmine.so", ""),
        ]);
        let found = home(&dir, "mine/target/debug/libmine.so", "mine");
        assert_eq!((found.license_file, found.cargo_lock), (None, None));
    }
}
