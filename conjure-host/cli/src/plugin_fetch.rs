//! `conjure plugin install` and `upgrade`: plugins out of packages.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::fs;
use conjure_core::log::VersionStep;
use conjure_packages::{FetchedPackage, Package, PackageError, PackageSource, SignerKey};
use conjure_plugins::{
    InstallError, InstalledPlugins, Isolation, LOCK_FILE, LockedPlugin, PluginFile, PluginLock,
    Sha256,
};
use conjure_runtime::{PluginDifference, version_step};
use serde_json::{Value, json};

use super::args::{Global, shown};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, RED, RESET, YELLOW};
use super::person::agrees;
use super::plugin::{load_and_try, loader};
use super::plugin_args::signers;
use super::plugin_install::{elsewhere, told};
use super::plugin_package::{IndexArgs, is_refusal, public_key, who};
use super::plugin_skill;

/// What to install.
#[derive(Args)]
pub(crate) struct InstallArgs {
    /// Files, addresses, `oci://HOST/NAME:VERSION`, or `NAME[@VERSION]` of an index
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Take this signer, and no other: the public key, or the file of it
    #[arg(long, value_name = "KEY|FILE", conflicts_with = "unsigned")]
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
    /// The only signer that is.
    signer: Option<SignerKey>,
    /// Also where nobody signed it.
    unsigned: bool,
    /// Also a signer that nobody here has named, since the person agreed to a lock that does.
    as_locked: bool,
    /// Whatever it asks for.
    yes: bool,
}

/// Why a package was not installed.
pub(crate) enum FetchFailure {
    /// It is not taken.
    Refused(String),
    /// It cannot be had.
    Missing(String),
}

impl From<PackageError> for FetchFailure {
    fn from(error: PackageError) -> Self {
        match is_refusal(&error) {
            true => Self::Refused(error.to_string()),
            false => Self::Missing(error.to_string()),
        }
    }
}

/// What came of several packages; shown as it goes, for programs at the end.
#[derive(Default)]
struct FetchReport {
    installed: Vec<Value>,
    refused: Vec<Value>,
    is_missing: bool,
}

impl FetchReport {
    fn failed(&mut self, global: &Global, place: &str, failure: &FetchFailure) {
        let (word, reason) = match failure {
            FetchFailure::Refused(reason) => ("refused", reason),
            FetchFailure::Missing(reason) => ("failed", reason),
        };
        self.is_missing |= matches!(failure, FetchFailure::Missing(_));
        self.refused
            .push(json!({ "source": place, "reason": reason }));
        if !global.json {
            output::line(format_args!(
                "{RED}{word}:{RESET} {}",
                output::clean(reason)
            ));
        }
    }

    fn end(self, global: &Global) -> Exit {
        if global.json {
            let (installed, refused) = (&self.installed, &self.refused);
            output::json(&json!({ "installed": installed, "refused": refused }));
        }
        match (self.refused.is_empty(), self.is_missing) {
            (true, _) => Exit::Fine,
            (false, false) => Exit::No,
            (false, true) => Exit::Usage,
        }
    }
}

/// Installs packages, or what a lock names.
pub(crate) async fn install(global: &Global, args: &InstallArgs) -> Result<Exit, CliError> {
    let accepted = Accepted {
        signer: args.signer.as_deref().map(public_key).transpose()?,
        unsigned: args.unsigned,
        as_locked: false,
        yes: args.yes,
    };
    if args.packages.is_empty() {
        return from_lock(global, args, accepted).await;
    }
    let mut outcome = FetchReport::default();
    for place in &args.packages {
        let fetched = match PackageSource::read(place) {
            Ok(source) => Box::pin(source.fetch(&args.indexes.places())).await,
            Err(error) => Err(error),
        };
        let installed = match fetched {
            Ok(fetched) => one(global, &fetched, &accepted).await?,
            Err(error) => Err(error.into()),
        };
        match installed {
            Ok((locked, json)) => {
                if let Some(lock) = &args.lock {
                    note(global, lock, locked)?;
                }
                outcome.installed.push(json);
            }
            Err(failure) => outcome.failed(global, place, &failure),
        }
    }
    Ok(outcome.end(global))
}

/// Notes what is installed in a lock of the person's own.
fn note(global: &Global, lock: &Path, locked: LockedPlugin) -> Result<(), CliError> {
    // One at a time, of all that this user starts.
    let dir = global.data_dir();
    let _alone = fs::lock(dir.join("plugin-history").join("note.lock"));
    let name = locked.name.clone();
    let set = PluginLock::at(lock).set(&name, Some(locked));
    set.map_err(CliError::host_from)
}

/// Installs the very packages that a lock names.
async fn from_lock(
    global: &Global,
    args: &InstallArgs,
    mut accepted: Accepted,
) -> Result<Exit, CliError> {
    let own = InstalledPlugins::of(&global.data_dir()).lock().clone();
    let here = PathBuf::from(LOCK_FILE);
    let (lock, is_own) = match &args.lock {
        Some(lock) => (PluginLock::at(lock), false),
        None if here.is_file() => (PluginLock::at(here), false),
        None => (own, true),
    };
    let plugins = lock.plugins().map_err(CliError::usage_from)?;
    if plugins.is_empty() {
        let message = format!("{} names no plugin", shown(lock.path()));
        return Err(CliError::usage(message)
            .hint("name a package: a file, an address, `oci://HOST/NAME:VERSION`"));
    }
    // What this data directory has was agreed to when it was installed.
    if !is_own && !agreed_to_lock(global, lock.path(), &plugins, accepted.yes).await {
        return Err(CliError::usage(format!(
            "the signers that {} names were not agreed to; nothing was installed",
            shown(lock.path())
        ))
        .hint("`--yes` agrees to them"));
    }
    accepted.as_locked = true;
    let mut outcome = FetchReport::default();
    for locked in plugins {
        accepted.unsigned = args.unsigned || (is_own && locked.signer.is_none());
        let indexes = places(&args.indexes, &locked);
        let fetched = match PackageSource::read(&locked.source) {
            Ok(source) => Box::pin(source.fetch(&indexes)).await,
            Err(error) => Err(error),
        };
        let installed = match fetched {
            Ok(fetched) => match as_locked(&fetched, &locked, lock.path()) {
                Ok(()) => one(global, &fetched, &accepted).await?,
                Err(failure) => Err(failure),
            },
            Err(error) => Err(error.into()),
        };
        match installed {
            Ok((_, json)) => outcome.installed.push(json),
            Err(failure) => outcome.failed(global, &locked.source, &failure),
        }
    }
    Ok(outcome.end(global))
}

/// Where names are looked up: in the indexes that are named, else in the one of before.
fn places(named: &IndexArgs, locked: &LockedPlugin) -> Vec<String> {
    let mut places = named.places();
    if places.is_empty() {
        places.extend(locked.index.clone());
    }
    places
}

/// Whether a package is the one that a lock names.
fn as_locked(
    fetched: &FetchedPackage,
    locked: &LockedPlugin,
    lock: &Path,
) -> Result<(), FetchFailure> {
    fetched.is(&locked.sha256)?;
    let found = fetched.locked();
    let differs = |what: &str| {
        FetchFailure::Refused(format!(
            "{} says another {what} of {} than its package has",
            shown(lock),
            locked.name
        ))
    };
    if (&found.name, &found.version) != (&locked.name, &locked.version) {
        return Err(differs("name or version"));
    }
    if found.signer != locked.signer {
        return Err(differs("signer"));
    }
    if (&found.libraries, found.skill) != (&locked.libraries, locked.skill) {
        return Err(differs("library"));
    }
    Ok(())
}

/// Whether the person agrees to whom a lock of somebody's names.
async fn agreed_to_lock(global: &Global, lock: &Path, plugins: &[LockedPlugin], yes: bool) -> bool {
    let installed = InstalledPlugins::of(&global.data_dir());
    let known = installed.lock().plugins().unwrap_or_default();
    let is_known = |plugin: &&LockedPlugin| {
        let is_trusted = |signer: &String| signers(global).holds(signer);
        let is_same =
            |known: &LockedPlugin| (&known.name, &known.signer) == (&plugin.name, &plugin.signer);
        plugin.signer.as_ref().is_some_and(is_trusted) || known.iter().any(is_same)
    };
    let new: Vec<&LockedPlugin> = plugins.iter().filter(|it| !is_known(it)).collect();
    if new.is_empty() || yes {
        return true;
    }
    if global.json {
        return false;
    }
    output::aside(format_args!("{} names:", shown(lock)));
    for plugin in new {
        output::aside(format_args!(
            "  {BOLD}{}{RESET} {} of {}, signed by {}",
            output::clean(&plugin.name),
            output::clean(&plugin.version),
            output::clean(&plugin.source),
            output::clean(plugin.signer.as_deref().unwrap_or("nobody")),
        ));
    }
    let question = format!("{YELLOW}?{RESET} Are these whom you want to have it from?");
    matches!(agrees(&question).await, Ok(true))
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
    let mut outcome = FetchReport::default();
    let wanted = locked
        .into_iter()
        .filter(|locked| args.names.is_empty() || args.names.contains(&locked.name));
    for locked in wanted {
        let accepted = Accepted {
            signer: None,
            unsigned: locked.signer.is_none(),
            as_locked: false,
            yes: args.yes,
        };
        // One place that cannot be reached holds up no other.
        match Box::pin(newer(&locked, &places(&args.indexes, &locked))).await {
            Ok(None) if global.json => {}
            Ok(None) => output::line(format_args!(
                "{}: nothing newer",
                output::clean(&locked.name)
            )),
            Ok(Some(fetched)) => match one(global, &fetched, &accepted).await? {
                Ok((_, json)) => outcome.installed.push(json),
                Err(failure) => outcome.failed(global, &fetched.source, &failure),
            },
            Err(error) => outcome.failed(global, &locked.source, &error.into()),
        }
    }
    Ok(outcome.end(global))
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
    let is_newer = match (version(&found.version), version(&locked.version)) {
        (Some(found), Some(locked)) => found.cmp_precedence(&locked).is_gt(),
        _ => false,
    };
    Ok(is_newer.then_some(fetched))
}

/// Installs one package, or says why not; what a lock of the person's own says of it, and for programs.
async fn one(
    global: &Global,
    fetched: &FetchedPackage,
    accepted: &Accepted,
) -> Result<Result<(LockedPlugin, Value), FetchFailure>, CliError> {
    let refused = |reason: String| Ok(Err(FetchFailure::Refused(reason)));
    let installed = InstalledPlugins::of(&global.data_dir());
    let package = &fetched.package;
    let description = package.description();
    let name = &description.name;
    let before = installed.lock().plugin(name).map_err(CliError::host_from)?;
    if let Err(error) = judge_signer(global, package, before.as_ref(), accepted) {
        return Ok(Err(error.into()));
    }
    match package.skill() {
        Ok(None) => {}
        Ok(Some(archive)) => {
            return plugin_skill::install(global, fetched, &archive, before, accepted.yes).await;
        }
        Err(error) => return Ok(Err(error.into())),
    }
    let (library, bytes) = match package.library_here() {
        Ok(found) => found,
        Err(error) => return Ok(Err(error.into())),
    };
    let elsewhere = elsewhere(global, &installed, name);
    let is_twin = |file: &&PluginFile| file.header.version == description.version;
    if let Some(twin) = elsewhere.iter().find(is_twin) {
        return refused(format!(
            "{} is in {} already, and a host takes one of a name and version",
            description.id(),
            shown(&twin.path)
        ));
    }
    let there = installed.file(name)?;
    // Where none is installed, one that sessions have from elsewhere, such as with the program.
    let known = there.as_ref().or(elsewhere.first());
    let old = match known {
        Some(known) => loader(global)?.kept_manifest(&known.sha256),
        None => None,
    };
    let is_there = there.as_ref().map(|there| there.sha256) == Some(library.file.sha256);
    let step = PackageStep {
        from: known.map(|known| known.header.version.clone()),
        is_unknown: known.is_some() && old.is_none(),
        difference: PluginDifference::of(old.as_ref(), &description.manifest),
    };
    if !is_there && !agreed(global, package, &step, accepted.yes).await {
        let mut lines = step.difference.lines();
        if lines.is_empty() {
            lines.push("what the one that is there asks for and shows is not known".to_owned());
        }
        return refused(format!(
            "what it asks for and shows was not allowed: {}. `--yes` allows it",
            lines.join("; ")
        ));
    }
    // A directory of nobody else's, from which the library is judged as any other is.
    let dir = tempfile::tempdir().map_err(CliError::host_from)?;
    let file_name = Path::new(&library.file.path).file_name();
    let path = dir.path().join(file_name.unwrap_or_default());
    fs::write(&path, &bytes).map_err(CliError::host_from)?;
    let file = match PluginFile::read(&path, true) {
        Ok(file) if file.sha256 == library.file.sha256 => file,
        Ok(_) => return refused("its library changed while it was looked at".to_owned()),
        Err(error) => return refused(error.to_string()),
    };
    let signer = description.signer.as_ref();
    let is_trusted = signer.is_some_and(|signer| signers(global).holds(signer.as_str()));
    let isolation = match is_trusted {
        true => Isolation::InProcess,
        false => Isolation::Process,
    };
    let tried = match load_and_try(global, &path, Some(isolation)).await? {
        Ok(plugin) => plugin,
        Err(reason) => return refused(reason),
    };
    let is_it = tried.id().sha256 == Some(file.sha256);
    if !is_it || **tried.manifest() != description.manifest {
        return refused(format!(
            "the manifest of its library is not the one that {} says, which was shown and allowed",
            package.place()
        ));
    }
    let locked = fetched.locked();
    let allowed = loader(global)?.store().manifest(&file.sha256);
    let own = LockedPlugin {
        manifest: allowed.map(|json| Sha256::of(&json)),
        ..locked.clone()
    };
    let change = match installed.install(&file, own, before.as_ref()) {
        Ok(change) => change,
        Err(error @ (InstallError::Overtaken { .. } | InstallError::InTheWay { .. })) => {
            return refused(error.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let json = json!({
        "plugin": name,
        "source": fetched.source,
        "signer": description.signer,
        "change": change,
        "difference": step.difference.json(),
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
    Ok(Ok((locked, json)))
}

/// Whether whoever signed a package is one whose packages are taken.
fn judge_signer(
    global: &Global,
    package: &Package,
    before: Option<&LockedPlugin>,
    accepted: &Accepted,
) -> Result<(), PackageError> {
    let before = before.and_then(|before| before.signer.as_deref());
    let name = &package.description().name;
    let found = package.description().signer.as_ref();
    let refused = |why: String| {
        Err(PackageError::Signer {
            place: package.place().to_owned(),
            found: found.map_or_else(|| "nobody".to_owned(), ToString::to_string),
            why,
        })
    };
    if let Some(wanted) = &accepted.signer {
        return match found == Some(wanted) {
            true => Ok(()),
            false => refused(format!("{wanted} was asked for; nothing of it was used")),
        };
    }
    let Some(found) = found else {
        return match before {
            _ if !accepted.unsigned => package.signer().map(drop),
            Some(before) if !accepted.yes => refused(format!(
                "the {name} that is there by {before}: somebody else may have made it. `--unsigned \
                 --yes` takes it all the same"
            )),
            _ => Ok(()),
        };
    };
    match before {
        Some(before) if before == found.as_str() => Ok(()),
        Some(before) => refused(format!(
            "the {name} that is there by {before}. Where its author has said so, `conjure plugin \
             install … --signer {found}` takes the new key"
        )),
        None if accepted.as_locked || signers(global).holds(found.as_str()) => Ok(()),
        None => refused(format!(
            "nobody here has said yet that this key is its author's. Compare it with what the author \
             says, then install with `--signer {found}`"
        )),
    }
}

/// The step from the version that is installed to that of a package.
struct PackageStep {
    /// The version that is there.
    from: Option<String>,
    /// Nobody knows what that one asks for and shows.
    is_unknown: bool,
    difference: PluginDifference,
}

/// Whether the person allows what a package asks for and shows, which is told first.
async fn agreed(global: &Global, package: &Package, step: &PackageStep, yes: bool) -> bool {
    let description = package.description();
    let difference = &step.difference;
    let (from, to) = (step.from.as_deref(), &description.version);
    let is_downgrade =
        from.is_some_and(|from| VersionStep::between(from, to) == VersionStep::Downgrade);
    let is_upgrade = from.is_some();
    if !global.json {
        output::aside(format_args!(
            "{BOLD}{}{RESET} {}",
            output::clean(&description.name),
            from.map_or_else(|| to.clone(), |from| version_step(from, to))
        ));
        for line in difference.lines() {
            output::aside(format_args!("  {}", output::clean(&line)));
        }
        for line in difference.details() {
            output::aside(format_args!("    {DIM}{}{RESET}", output::clean(line)));
        }
        if !is_upgrade || step.is_unknown {
            for tool in &description.manifest.tools {
                output::aside(format_args!(
                    "  tool {}: {}",
                    output::clean(&tool.name),
                    output::clean(&tool.description)
                ));
            }
        }
    }
    let is_other = is_upgrade && (difference.shows_other_tools() || step.is_unknown);
    if yes || !(difference.asks_for_more() || is_other || is_downgrade) {
        return true;
    }
    if global.json {
        return false;
    }
    let question = format!("{YELLOW}?{RESET} Install it?");
    matches!(agrees(&question).await, Ok(true))
}
