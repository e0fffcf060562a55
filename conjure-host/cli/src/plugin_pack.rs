//! `conjure plugin pack`: a package out of libraries, a program, or a skill folder.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::fs;
use conjure_packages::{LICENSE_FILE, Package, PackageBuilder, SBOM_FILE, sbom};
use conjure_plugins::{
    ANY_TARGET, Isolation, LibraryTarget, PluginFile, SkillArchive, is_description,
};
use conjure_skill_sdk::protocol::Manifest;
use serde::Deserialize;
use serde_json::json;

use super::args::{Global, shown};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET};
use super::plugin::{load_and_try, refused};
use super::plugin_package::signing_key;

/// How much of what a skill folder's package leaves out is named.
const SHOWN_LEFT_OUT: usize = 10;

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
    /// What it is made of, a CycloneDX document [default: made from the crate's Cargo.lock]
    #[arg(long, value_name = "FILE")]
    sbom: Option<PathBuf>,
    /// Sign it with this secret key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where to put it
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
        let path = match described_in(path) {
            Ok(path) => path,
            Err(reason) => return Ok(refused(global, path, &reason)),
        };
        let bytes = match is_description(&path) {
            false => read(&path)?,
            true => match PluginFile::read(&path, true) {
                Ok(file) => file.bytes,
                Err(error) => return Ok(refused(global, &path, &error.to_string())),
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
        return Ok(refused(global, first, &reason));
    };
    let plugin = match load_and_try(global, &native, Some(Isolation::Process)).await? {
        Ok(plugin) => plugin,
        Err(reason) => return Ok(refused(global, &native, &reason)),
    };
    let mut package = PackageBuilder::new(Manifest::clone(plugin.manifest()));
    for (path, bytes) in libraries {
        package.library(&shown(&path), bytes)?;
    }
    let home = match is_description(&native) {
        true => native.parent().map(CrateHome::of),
        false => native.parent().map(CrateHome::around),
    };
    finish(global, args, package, home.unwrap_or_default(), &[]).await
}

/// Makes a package of a skill folder.
async fn pack_skill(global: &Global, args: &PackArgs, path: &Path) -> Result<Exit, CliError> {
    let skill = match SkillArchive::read(path) {
        Ok(skill) => skill,
        Err(error) => return Ok(refused(global, path, &error.to_string())),
    };
    let left_out = skill.left_out.clone();
    let package = PackageBuilder::of_skill(&shown(path), skill)?;
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
    let parts = match (&args.sbom, &home.cargo_lock) {
        (Some(path), _) => Some(read(path)?),
        (None, Some(path)) => {
            let lock = String::from_utf8_lossy(&read(path)?).into_owned();
            let manifest = package.manifest();
            sbom(&manifest.name, &manifest.version, &lock).map(String::into_bytes)
        }
        (None, None) => None,
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
        .map_err(|error| CliError::host_from(error).context(shown(&path)))?;
    report(global, &package, &path, has_sbom, left_out);
    Ok(Exit::Fine)
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
        shown(path),
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
    for what in left_out.iter().take(SHOWN_LEFT_OUT) {
        output::line(format_args!("  left out: {}", output::clean(what)));
    }
    if let Some(more) = left_out.len().checked_sub(SHOWN_LEFT_OUT + 1) {
        output::line(format_args!("  left out: {} more", more + 1));
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|error| CliError::usage_from(error).context(shown(path)))
}

/// Whether this is a skill folder, or a package of one.
fn is_skill(path: &Path) -> bool {
    let is_package = path.extension().is_some_and(|it| it == "skill") && path.is_file();
    is_package || path.join("SKILL.md").is_file()
}

/// Of a directory the one description of a program in it; anything else is itself.
fn described_in(path: &Path) -> Result<PathBuf, String> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let mut found = fs::entries(path).map_err(|error| error.to_string())?;
    found.retain(|path| is_description(path));
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!(
            "{} has neither a description of a program (`plugin.toml`) nor a SKILL.md",
            shown(path)
        )),
        _ => Err(format!(
            "{} has several descriptions of programs; name one of them",
            shown(path)
        )),
    }
}

/// What is found about the crate that a library was built in.
#[derive(Default)]
struct CrateHome {
    license: Option<String>,
    license_file: Option<PathBuf>,
    cargo_lock: Option<PathBuf>,
}

#[derive(Deserialize)]
struct CargoManifest {
    package: Option<CargoPackage>,
}

#[derive(Deserialize)]
struct CargoPackage {
    license: Option<toml::Value>,
}

impl CrateHome {
    /// Looks in the directories above a library for the one with `Cargo.toml`.
    fn around(dir: &Path) -> Self {
        let Ok(dir) = dir.canonicalize() else {
            return Self::default();
        };
        let home = dir.ancestors().find(|dir| dir.join("Cargo.toml").is_file());
        home.map(Self::of).unwrap_or_default()
    }

    /// What there is in a directory itself.
    fn of(home: &Path) -> Self {
        let manifest = fs::read_to_string(home.join("Cargo.toml")).unwrap_or_default();
        let manifest = toml::from_str::<CargoManifest>(&manifest).ok();
        let license = manifest.and_then(|manifest| manifest.package?.license);
        let there = |name: &&str| home.join(name).is_file();
        let texts = [
            "LICENSE",
            "LICENSE.txt",
            "LICENSE.md",
            "LICENSE-MIT",
            "COPYING",
        ];
        Self {
            license: license.and_then(|license| license.as_str().map(str::to_owned)),
            license_file: texts
                .iter()
                .find(|name| there(name))
                .map(|name| home.join(name)),
            cargo_lock: there(&"Cargo.lock").then(|| home.join("Cargo.lock")),
        }
    }
}
