//! `conjure plugin pack`: a package out of libraries.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::fs;
use conjure_packages::{LICENSE_FILE, Package, PackageBuilder, SBOM_FILE, sbom};
use conjure_plugins::{Isolation, LibraryTarget};
use conjure_skill_sdk::protocol::Manifest;
use serde::Deserialize;
use serde_json::json;

use super::args::{Global, shown};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET};
use super::plugin::{load_and_try, refused};
use super::plugin_package::signing_key;

/// What to pack.
#[derive(Args)]
pub(crate) struct PackArgs {
    /// The plugin's library for each machine; one has to be for this one
    #[arg(required = true, value_name = "LIBRARY")]
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
    let here = LibraryTarget::here();
    let mut libraries = Vec::new();
    let mut native = None;
    for path in &args.libraries {
        let bytes = read(path)?;
        let target = LibraryTarget::of(&bytes).map(|library| library.target);
        if native.is_none() && target.as_deref() == Some(&here) {
            native = Some(path);
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
    let plugin = match load_and_try(global, native, Some(Isolation::Process)).await? {
        Ok(plugin) => plugin,
        Err(reason) => return Ok(refused(global, native, &reason)),
    };
    let mut package = PackageBuilder::new(Manifest::clone(plugin.manifest()));
    for (path, bytes) in libraries {
        package.library(&shown(path), bytes)?;
    }
    let home = native.parent().map(CrateHome::around).unwrap_or_default();
    if let Some(license) = args.license.as_ref().or(home.license.as_ref()) {
        package.license(license);
    }
    if let Some(path) = args.license_file.as_ref().or(home.license_file.as_ref()) {
        package.file(LICENSE_FILE, read(path)?);
    }
    let manifest = plugin.manifest();
    let parts = match (&args.sbom, &home.cargo_lock) {
        (Some(path), _) => Some(read(path)?),
        (None, Some(path)) => {
            let lock = String::from_utf8_lossy(&read(path)?).into_owned();
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
    report(global, &package, &path, has_sbom);
    Ok(Exit::Fine)
}

fn report(global: &Global, package: &Package, path: &Path, has_sbom: bool) {
    let description = package.description();
    let size = package.bytes().len() as u64;
    if global.json {
        output::json(&json!({
            "package": path,
            "sha256": package.sha256(),
            "size": size,
            "description": description,
        }));
        return;
    }
    let targets: Vec<&str> = description
        .libraries
        .iter()
        .map(|library| library.target.as_str())
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
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|error| CliError::usage_from(error).context(shown(path)))
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
        let Some(home) = home else {
            return Self::default();
        };
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
