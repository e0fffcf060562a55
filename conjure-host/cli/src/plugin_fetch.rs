//! `conjure plugin install` and `upgrade`: plugins out of packages.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_packages::{FetchedPackage, Package, PackageError, PackageSource, SignerKey};
use conjure_plugins::{
    InstalledPlugins, Isolation, LOCK_FILE, LockedPlugin, PluginFile, PluginLock,
};
use conjure_runtime::{PluginDifference, version_step};
use serde_json::{Value, json};

use super::args::{Global, shown};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, RESET, YELLOW};
use super::person::agrees;
use super::plugin::{load_and_try, loader};
use super::plugin_args::signers;
use super::plugin_install::told;
use super::plugin_package::{IndexArgs, public_key, refused, who};

/// What to install.
#[derive(Args)]
pub(crate) struct InstallArgs {
    /// Files, addresses, `oci://HOST/NAME:VERSION`, or `NAME[@VERSION]` of an index
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Take this signer: the public key, or the file of it
    #[arg(long, value_name = "KEY|FILE")]
    signer: Option<String>,
    /// Take packages that nobody signed
    #[arg(long)]
    unsigned: bool,
    /// Allow what it asks for, and its tools, without being asked
    #[arg(long)]
    yes: bool,
    /// Note what is installed in this lock too; without packages install what it names
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    #[command(flatten)]
    indexes: IndexArgs,
}

/// What to upgrade.
#[derive(Args)]
pub(crate) struct UpgradeArgs {
    /// The plugins; without any all that came in packages
    names: Vec<String>,
    /// Allow what they ask for, and their tools, without being asked
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    indexes: IndexArgs,
}

/// What is accepted of a package.
struct Accepted {
    /// A signer that the person named.
    signer: Option<SignerKey>,
    /// Also where nobody signed it.
    unsigned: bool,
    /// Whatever it asks for.
    yes: bool,
}

/// What came of one package.
struct Installed {
    json: Value,
    locked: Option<LockedPlugin>,
}

/// Installs packages, or what a lock names.
pub(crate) async fn install(global: &Global, args: &InstallArgs) -> Result<Exit, CliError> {
    let accepted = Accepted {
        signer: args.signer.as_deref().map(public_key).transpose()?,
        unsigned: args.unsigned,
        yes: args.yes,
    };
    if args.packages.is_empty() {
        return from_lock(global, args, &accepted).await;
    }
    let mut done = Vec::new();
    for place in &args.packages {
        let source = PackageSource::read(place)?;
        let fetched = Box::pin(source.fetch(&args.indexes.places())).await;
        let installed = match fetched {
            Ok(fetched) => one(global, &fetched, &accepted).await?,
            Err(error) => Err(error.to_string()),
        };
        match installed {
            Ok(installed) => {
                if let (Some(lock), Some(locked)) = (&args.lock, installed.locked) {
                    let name = locked.name.clone();
                    let set = PluginLock::at(lock).set(&name, Some(locked));
                    set.map_err(CliError::host_from)?;
                }
                done.push(installed.json);
            }
            Err(reason) => return Ok(super::plugin::refused(global, Path::new(place), &reason)),
        }
    }
    if global.json {
        output::json(&json!({ "installed": done }));
    }
    Ok(Exit::Fine)
}

/// Installs the very packages that a lock names.
async fn from_lock(
    global: &Global,
    args: &InstallArgs,
    accepted: &Accepted,
) -> Result<Exit, CliError> {
    let here = PathBuf::from(LOCK_FILE);
    let lock = match &args.lock {
        Some(lock) => PluginLock::at(lock),
        None if here.is_file() => PluginLock::at(here),
        None => InstalledPlugins::of(&global.data_dir()).lock().clone(),
    };
    let plugins = lock.plugins().map_err(CliError::usage_from)?;
    if plugins.is_empty() {
        let message = format!("{} names no plugin", shown(lock.path()));
        return Err(CliError::usage(message)
            .hint("name a package: a file, an address, `oci://HOST/NAME:VERSION`"));
    }
    let mut done = Vec::new();
    for locked in plugins {
        let source = PackageSource::read(&locked.source)?;
        let fetched = Box::pin(source.fetch(&args.indexes.places())).await?;
        if let Err(error) = fetched.is(&locked.sha256) {
            return Ok(refused(global, &locked.source, &error));
        }
        // The lock says whose it is, as whoever wrote it found out.
        let signer = match &locked.signer {
            Some(signer) => Some(SignerKey::read(signer)?),
            None => None,
        };
        let is_same = fetched.package.description().signer == signer
            && fetched.package.locked("").libraries == locked.libraries;
        if !is_same {
            let reason = format!(
                "{} says other libraries or another signer of {} than its package has",
                shown(lock.path()),
                locked.name
            );
            return Ok(super::plugin::refused(global, lock.path(), &reason));
        }
        let accepted = Accepted {
            unsigned: signer.is_none(),
            signer: signer.or_else(|| accepted.signer.clone()),
            yes: accepted.yes,
        };
        match one(global, &fetched, &accepted).await? {
            Ok(installed) => done.push(installed.json),
            Err(reason) => {
                return Ok(super::plugin::refused(
                    global,
                    Path::new(&locked.source),
                    &reason,
                ));
            }
        }
    }
    if global.json {
        output::json(&json!({ "installed": done }));
    }
    Ok(Exit::Fine)
}

/// Upgrades what came in packages.
pub(crate) async fn upgrade(global: &Global, args: &UpgradeArgs) -> Result<Exit, CliError> {
    let installed = InstalledPlugins::of(&global.data_dir());
    let locked = installed.lock().plugins().map_err(CliError::host_from)?;
    for name in &args.names {
        if locked.iter().all(|known| known.name != *name) {
            let names: Vec<&str> = locked.iter().map(|known| known.name.as_str()).collect();
            let there = match names.is_empty() {
                true => "none did".to_owned(),
                false => format!("these did: {}", names.join(", ")),
            };
            let message = format!("`{name}` came in no package; {there}");
            return Err(CliError::usage(message));
        }
    }
    let accepted = Accepted {
        signer: None,
        unsigned: false,
        yes: args.yes,
    };
    let mut done = Vec::new();
    let mut exit = Exit::Fine;
    let wanted = locked
        .into_iter()
        .filter(|locked| args.names.is_empty() || args.names.contains(&locked.name));
    for locked in wanted {
        match Box::pin(newer(&locked, &args.indexes.places())).await {
            Ok(None) => {
                if !global.json {
                    output::line(format_args!(
                        "{}: nothing newer",
                        output::clean(&locked.name)
                    ));
                }
            }
            Ok(Some(fetched)) => match one(global, &fetched, &accepted).await? {
                Ok(installed) => done.push(installed.json),
                Err(reason) => {
                    exit = super::plugin::refused(global, Path::new(&fetched.source), &reason);
                }
            },
            // One place that cannot be reached holds up no other.
            Err(error) => exit = refused(global, &locked.source, &error),
        }
    }
    if global.json && matches!(exit, Exit::Fine) {
        output::json(&json!({ "installed": done }));
    }
    Ok(exit)
}

/// The newest package of where a plugin came from, if it is newer.
async fn newer(
    locked: &LockedPlugin,
    indexes: &[String],
) -> Result<Option<FetchedPackage>, PackageError> {
    let source = PackageSource::read(&locked.source)?;
    let Some(source) = source.newer(&locked.version, indexes).await? else {
        return Ok(None);
    };
    let fetched = source.fetch(indexes).await?;
    let found = fetched.package.description();
    if found.name != locked.name {
        return Err(PackageError::Other {
            place: fetched.source.clone(),
            found: found.id(),
            wanted: format!("a newer {}", locked.name),
        });
    }
    let version = |text: &str| semver::Version::parse(text).ok();
    let is_newer = version(&found.version) > version(&locked.version);
    Ok(is_newer.then_some(fetched))
}

/// Installs one package, or says why not.
async fn one(
    global: &Global,
    fetched: &FetchedPackage,
    accepted: &Accepted,
) -> Result<Result<Installed, String>, CliError> {
    let installed = InstalledPlugins::of(&global.data_dir());
    let package = &fetched.package;
    let description = package.description();
    let name = &description.name;
    let before = installed.lock().plugin(name).map_err(CliError::host_from)?;
    if let Err(error) = judge_signer(global, package, before.as_ref(), accepted) {
        return Ok(Err(error.to_string()));
    }
    let (library, bytes) = match package.library_here() {
        Ok(found) => found,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let there = installed.file(name)?;
    let old = match &there {
        Some(there) => loader(global)?.kept_manifest(&there.sha256),
        None => None,
    };
    let is_there = there.as_ref().map(|there| there.sha256) == Some(library.file.sha256);
    let difference = PluginDifference::of(old.as_ref(), &description.manifest);
    let from = there.as_ref().map(|there| there.header.version.clone());
    if !is_there && !agreed(global, package, &difference, from.as_deref(), accepted.yes).await {
        return Ok(Err(format!(
            "what it asks for and shows was not allowed: {}. `--yes` allows it",
            difference.lines().join("; ")
        )));
    }
    // A directory of nobody else's, from which the library is judged as any other is.
    let dir = tempfile::tempdir().map_err(CliError::host_from)?;
    let path = dir.path().join(
        Path::new(&library.file.path)
            .file_name()
            .unwrap_or_default(),
    );
    conjure_config::fs::write(&path, &bytes).map_err(CliError::host_from)?;
    let file = match PluginFile::read(&path, true) {
        Ok(file) if file.sha256 == library.file.sha256 => file,
        Ok(_) => return Ok(Err("its library changed while it was looked at".to_owned())),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let signer = description.signer.as_ref();
    let is_trusted = signer.is_some_and(|signer| signers(global).holds(signer.as_str()));
    let isolation = (!is_trusted).then_some(Isolation::Process);
    let tried = match load_and_try(global, &path, isolation).await? {
        Ok(plugin) => plugin,
        Err(reason) => return Ok(Err(reason)),
    };
    if **tried.manifest() != description.manifest {
        return Ok(Err(format!(
            "the manifest of its library is not the one that {} says, which was shown and allowed",
            package.place()
        )));
    }
    let locked = package.locked(&fetched.source);
    let change = installed.install(&file, Some(locked.clone()))?;
    let json = json!({
        "plugin": name,
        "source": fetched.source,
        "signer": description.signer,
        "change": change,
        "difference": difference.json(),
    });
    if !global.json {
        match &change {
            Some(change) => output::line(told(change)),
            None => output::line(format_args!(
                "{name} {}: this very build is installed already",
                description.version
            )),
        }
        let signed = signer.map_or_else(|| "nobody".to_owned(), |signer| who(global, signer));
        output::line(format_args!(
            "  {DIM}signed by {}{RESET}",
            output::clean(&signed)
        ));
    }
    Ok(Ok(Installed {
        json,
        locked: Some(locked),
    }))
}

/// Whether whoever signed a package is one whose packages are taken.
fn judge_signer(
    global: &Global,
    package: &Package,
    before: Option<&LockedPlugin>,
    accepted: &Accepted,
) -> Result<(), PackageError> {
    let before = before.and_then(|before| before.signer.as_deref());
    let place = package.place().to_owned();
    let name = &package.description().name;
    let Some(found) = &package.description().signer else {
        return match (accepted.unsigned, before) {
            (true, None) => Ok(()),
            (true, Some(before)) if !accepted.yes => Err(PackageError::Signer {
                place,
                found: "nobody".to_owned(),
                why: format!(
                    "the {name} that is there by {before}: somebody else may have made it. \
                     `--unsigned --yes` takes it all the same"
                ),
            }),
            (true, Some(_)) => Ok(()),
            (false, _) => package.signer().map(drop),
        };
    };
    let refused = |why: String| {
        Err(PackageError::Signer {
            place: place.clone(),
            found: found.to_string(),
            why,
        })
    };
    if let Some(wanted) = &accepted.signer {
        return match wanted == found {
            true => Ok(()),
            false => refused(format!("{wanted} was asked for; nothing of it was used")),
        };
    }
    match before {
        Some(before) if before == found.as_str() => Ok(()),
        Some(before) => refused(format!(
            "the {name} that is there by {before}. Where its author has said so, `--signer {found}` \
             takes the new key"
        )),
        None if signers(global).holds(found.as_str()) => Ok(()),
        None => refused(format!(
            "nobody here has said yet that this key is its author's. Compare it with what the author \
             says, then install with `--signer {found}`"
        )),
    }
}

/// Whether the person allows what a package asks for and shows, which is told first.
async fn agreed(
    global: &Global,
    package: &Package,
    difference: &PluginDifference,
    from: Option<&str>,
    yes: bool,
) -> bool {
    let description = package.description();
    let step = from.map(|from| version_step(from, &description.version));
    let is_downgrade = step.as_ref().is_some_and(|step| step.contains("downgrade"));
    let is_upgrade = from.is_some();
    if !global.json {
        output::aside(format_args!(
            "{BOLD}{}{RESET} {}",
            output::clean(&description.name),
            step.unwrap_or_else(|| description.version.clone())
        ));
        let lines = difference.lines();
        for line in lines.iter().map(String::as_str) {
            output::aside(format_args!("  {}", output::clean(line)));
        }
        for line in difference.details() {
            output::aside(format_args!("    {DIM}{}{RESET}", output::clean(line)));
        }
        if !is_upgrade {
            for tool in &description.manifest.tools {
                output::aside(format_args!(
                    "  tool {}: {}",
                    output::clean(&tool.name),
                    output::clean(&tool.description)
                ));
            }
        }
    }
    let is_other = is_upgrade && difference.shows_other_tools();
    if yes || !(difference.asks_for_more() || is_other || is_downgrade) {
        return true;
    }
    if global.json {
        return false;
    }
    let question = format!("{YELLOW}?{RESET} Install it?");
    matches!(agrees(&question).await, Ok(true))
}
