//! `conjure plugin install`: plugins out of packages.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::fs;
use conjure_packages::{
    FetchedPackage, Package, PackageError, PackageSource, SignerKey, redacted_location,
};
use conjure_plugins::{
    InstalledPlugins, Isolation, LOCK_FILE, LockedPlugin, PluginFile, PluginLock, Sha256,
};
use serde_json::{Value, json};

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, RESET, YELLOW};
use super::person::ask_yes_no;
use super::plugin::{load_and_try, loader};
use super::plugin_args::signers;
use super::plugin_fetch_report::{FetchFailure, FetchReport};
use super::plugin_install::{OfferedBuild, describe_change, other_copies};
use super::plugin_package::{IndexArgs, public_key, signer_name};
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

/// Conditions under which a package is accepted.
#[derive(Default)]
pub(crate) struct AcceptedPackage {
    /// The only signer that is accepted.
    pub(crate) signer: Option<SignerKey>,
    /// Whether a package that nobody signed is accepted.
    pub(crate) unsigned: bool,
    /// Whether a signer that nobody here has named is accepted: the person agreed to a lock that does.
    pub(crate) accepts_lock_signer: bool,
    /// Whether the plugin was installed here before, by what the data directory's own lock says.
    pub(crate) is_own: bool,
    /// Whether a package is accepted whatever it asks for.
    pub(crate) yes: bool,
}

impl AcceptedPackage {
    /// Whether the library was allowed when it was installed, and is only put back.
    fn is_restored(&self, before: Option<&LockedPlugin>, library: &Sha256) -> bool {
        self.is_own && before.is_some_and(|before| before.contains(library))
    }
}

/// Installs packages, or what a lock names.
pub(crate) async fn install(global: &Global, args: &InstallArgs) -> Result<Exit, CliError> {
    let accepted = AcceptedPackage {
        signer: args.signer.as_deref().map(public_key).transpose()?,
        unsigned: args.unsigned,
        yes: args.yes,
        ..AcceptedPackage::default()
    };
    if args.packages.is_empty() {
        return Box::pin(from_lock(global, args, accepted)).await;
    }
    if let Some(lock) = &args.lock {
        check_lock_writable(lock)?;
    }
    let mut outcome = FetchReport::default();
    for place in &args.packages {
        let fetched = match PackageSource::read(place) {
            Ok(source) => Box::pin(source.fetch(&args.indexes.locations())).await,
            Err(error) => Err(error),
        };
        let installed = match fetched {
            Ok(fetched) => {
                outcome.add_unread_of(global, &fetched);
                Box::pin(install_one(global, &fetched, &accepted)).await
            }
            Err(error) => Err(error.into()),
        };
        match installed {
            Ok((locked, json)) => {
                outcome.add_installed(json);
                if let Some(lock) = &args.lock
                    && let Err(error) = record_in_lock(global, lock, locked)
                {
                    let why = format!(
                        "it is installed, and {} does not say so: {error}",
                        display_path(lock)
                    );
                    outcome.add_failure(global, place, &FetchFailure::Host(why));
                }
            }
            Err(failure) => outcome.add_failure(global, place, &failure),
        }
    }
    Ok(outcome.finish(global))
}

/// Looks whether a lock is one, and whether it and its directory can be written to, before anything is
/// installed that is to be noted in it.
fn check_lock_writable(lock: &Path) -> Result<(), CliError> {
    let there = PluginLock::of_project(lock);
    there.plugins().map_err(CliError::usage_from)?;
    let dir = match lock.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let written = tempfile::tempfile_in(dir).map(drop);
    let written = written.and_then(|()| there.check_writable());
    written.map_err(|error| {
        let what = format!(
            "{} cannot be written, so nothing was installed",
            display_path(lock)
        );
        CliError::usage_from(error).context(what)
    })
}

/// Notes what is installed in a lock of the person's own.
fn record_in_lock(global: &Global, lock: &Path, locked: LockedPlugin) -> Result<(), CliError> {
    // One at a time, of all that this user starts.
    let dir = global.data_dir();
    let _alone = fs::lock(dir.join("plugin-history").join("note.lock"));
    let name = locked.name.clone();
    let set = PluginLock::of_project(lock).set(&name, Some(locked));
    set.map_err(CliError::host_from)
}

/// Installs the very packages that a lock names.
async fn from_lock(
    global: &Global,
    args: &InstallArgs,
    mut accepted: AcceptedPackage,
) -> Result<Exit, CliError> {
    if let Some(lock) = args.lock.as_ref().filter(|lock| !lock.exists()) {
        let message = format!("there is no lock {}", display_path(lock));
        return Err(CliError::usage(message)
            .hint("name a package as well: what is installed of it is noted in a new one"));
    }
    let own = InstalledPlugins::of(&global.data_dir()).lock().clone();
    let here = PathBuf::from(LOCK_FILE);
    let (lock, is_own) = match &args.lock {
        Some(lock) => (PluginLock::at(lock), false),
        None if here.is_file() => (PluginLock::at(here), false),
        None => (own, true),
    };
    let plugins = lock.plugins().map_err(CliError::usage_from)?;
    if plugins.is_empty() {
        let message = format!("{} names no plugin", display_path(lock.path()));
        return Err(CliError::usage(message)
            .hint("name a package: a file, an address, `oci://HOST/NAME:VERSION`"));
    }
    // What this data directory has was agreed to when it was installed.
    if !is_own && !confirm_lock(global, lock.path(), &plugins, accepted.yes).await {
        return Err(CliError::usage(format!(
            "the signers that {} names were not agreed to; nothing was installed",
            display_path(lock.path())
        ))
        .hint("`--yes` agrees to them"));
    }
    accepted.accepts_lock_signer = true;
    accepted.is_own = is_own;
    let mut outcome = FetchReport::default();
    for locked in plugins {
        accepted.unsigned = args.unsigned || (is_own && locked.signer.is_none());
        let indexes = lock_locations(&args.indexes, &locked);
        let fetched = match PackageSource::read(&locked.source) {
            Ok(source) => Box::pin(source.fetch_locked(&indexes, &locked.sha256)).await,
            Err(error) => Err(error),
        };
        let installed = match fetched {
            Ok(fetched) => {
                outcome.add_unread_of(global, &fetched);
                match check_matches_lock(&fetched, &locked, lock.path()) {
                    Ok(()) => Box::pin(install_one(global, &fetched, &accepted)).await,
                    Err(failure) => Err(failure),
                }
            }
            Err(error) => Err(error.into()),
        };
        match installed {
            Ok((_, json)) => outcome.add_installed(json),
            Err(failure) => outcome.add_failure(global, &locked.source, &failure),
        }
    }
    Ok(outcome.finish(global))
}

/// Where a name of a lock is looked up: in the index that the lock says, then in those that are named.
fn lock_locations(named: &IndexArgs, locked: &LockedPlugin) -> Vec<String> {
    let mut places = named.locations();
    if let Some(index) = &locked.index {
        // One that is named may say the password as well, which no lock does.
        let named = places
            .iter()
            .position(|place| redacted_location(place) == *index);
        let first = match named {
            Some(at) => places.remove(at),
            None => index.clone(),
        };
        places.insert(0, first);
    }
    places
}

/// Where something newer is looked for: in the indexes that are named, then in the one of before.
pub(crate) fn upgrade_locations(named: &IndexArgs, locked: &LockedPlugin) -> Vec<String> {
    let mut places = named.locations();
    let is_named = |index: &String| {
        places
            .iter()
            .any(|place| redacted_location(place) == *index)
    };
    let index = locked.index.clone().filter(|index| !is_named(index));
    places.extend(index);
    places
}

/// Whether a package is the one that a lock names.
fn check_matches_lock(
    fetched: &FetchedPackage,
    locked: &LockedPlugin,
    lock: &Path,
) -> Result<(), FetchFailure> {
    fetched.check_digest(&locked.sha256)?;
    let found = fetched.lock_entry();
    let differs = |what: &str| {
        FetchFailure::Refused(format!(
            "{} says another {what} of {} than its package has",
            display_path(lock),
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
async fn confirm_lock(global: &Global, lock: &Path, plugins: &[LockedPlugin], yes: bool) -> bool {
    let installed = InstalledPlugins::of(&global.data_dir());
    let known = installed.lock().plugins().unwrap_or_default();
    let is_known = |plugin: &&LockedPlugin| {
        let is_trusted = |signer: &String| signers(global).contains(signer);
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
    output::print_note(format_args!("{} names:", display_path(lock)));
    for plugin in new {
        output::print_note(format_args!(
            "  {BOLD}{}{RESET} {} of {}, signed by {}",
            output::clean_line(&plugin.name),
            output::clean_line(&plugin.version),
            output::clean_line(&plugin.source),
            output::clean_line(plugin.signer.as_deref().unwrap_or("nobody")),
        ));
    }
    let question = format!("{YELLOW}?{RESET} Are these whom you want to have it from?");
    matches!(ask_yes_no(&question).await, Ok(true))
}

/// Installs one package, or says why not, also where it is this host that cannot: others may be installed
/// all the same.
pub(crate) async fn install_one(
    global: &Global,
    fetched: &FetchedPackage,
    accepted: &AcceptedPackage,
) -> Result<(LockedPlugin, Value), FetchFailure> {
    let installed = Box::pin(try_install(global, fetched, accepted)).await;
    let installed = installed.unwrap_or_else(|error| Err(FetchFailure::Host(error.to_string())));
    installed.map(|(locked, mut json)| {
        let unread = fetched.index_errors.iter().chain(&fetched.left_out);
        let unread: Vec<String> = unread.map(ToString::to_string).collect();
        if let Some(fields) = json.as_object_mut().filter(|_| !unread.is_empty()) {
            fields.insert("unread".to_owned(), unread.into());
        }
        (locked, json)
    })
}

/// Installs one package, or says why not; what a lock of the person's own says of it, and for programs.
async fn try_install(
    global: &Global,
    fetched: &FetchedPackage,
    accepted: &AcceptedPackage,
) -> Result<Result<(LockedPlugin, Value), FetchFailure>, CliError> {
    let refused = |reason: String| Ok(Err(FetchFailure::Refused(reason)));
    let installed = InstalledPlugins::of(&global.data_dir());
    let package = &fetched.package;
    let description = package.description();
    let name = &description.name;
    // Before anything else is read that it is judged by.
    let (state, there) = installed.state_and_file(name)?;
    let before = state.locked();
    if let Err(error) = check_signer(global, package, before, accepted) {
        return Ok(Err(error.into()));
    }
    if !is_pinned(global, package, before, accepted)
        && let Err(reason) = confirm_unread(global, fetched).await
    {
        return refused(reason);
    }
    match package.skill() {
        Ok(None) => {}
        Ok(Some(archive)) => {
            let installed =
                plugin_skill::install(global, fetched, &archive, &state, accepted.yes).await;
            return Ok(installed);
        }
        Err(error) => return Ok(Err(error.into())),
    }
    let (library, bytes) = match package.local_library() {
        Ok(found) => found,
        Err(error) => return Ok(Err(error.into())),
    };
    let elsewhere = other_copies(global, &installed, name);
    let is_twin = |file: &&PluginFile| file.header.version == description.version;
    if let Some(twin) = elsewhere.iter().find(is_twin) {
        return refused(format!(
            "{} is in {} already, and a host takes one of a name and version",
            description.id(),
            display_path(&twin.path)
        ));
    }
    // Where none is installed, one that sessions have from elsewhere, such as with the program.
    let known = there.as_ref().or(elsewhere.first());
    let old = match known {
        Some(known) => loader(global)?.stored_manifest(&known.sha256),
        None => None,
    };
    let is_there = there.as_ref().map(|there| there.sha256) == Some(library.file.sha256);
    let offered = OfferedBuild::new(known, old.as_ref(), &description.manifest);
    let is_known = is_there || accepted.is_restored(before, &library.file.sha256);
    if !is_known {
        if !global.json {
            offered.print();
        }
        if let Err(reason) = offered.confirm(global, accepted.yes, "Install it?").await {
            return Ok(Err(FetchFailure::NotAllowed {
                reason: format!("{reason}. `--yes` allows it"),
                difference: offered.difference().json(),
            }));
        }
    }
    // A directory of nobody else's, from which the library is judged as any other is.
    let file_name = Path::new(&library.file.path).file_name();
    let judged = installed.judging_dir().and_then(|dir| {
        let path = dir.path().join(file_name.unwrap_or_default());
        fs::write(&path, &bytes).map(|()| (dir, path))
    });
    let (_dir, path) = match judged {
        Ok(judged) => judged,
        Err(error) => return Ok(Err(FetchFailure::of_install(global, &error.into()))),
    };
    // Where it lies meanwhile says nothing to the person.
    let named = |reason: &str| {
        let name = format!("the library in {}", package.location());
        reason.replace(&path.display().to_string(), &name)
    };
    let file = match PluginFile::read(&path, true) {
        Ok(file) if file.sha256 == library.file.sha256 => file,
        Ok(_) => return refused("its library changed while it was looked at".to_owned()),
        Err(error) => return refused(named(&error.to_string())),
    };
    let signer = description.signer.as_ref();
    let is_trusted = signer.is_some_and(|signer| signers(global).contains(signer.as_str()));
    let isolation = match is_trusted {
        true => Isolation::InProcess,
        false => Isolation::Process,
    };
    let tried = match load_and_try(global, &path, Some(isolation)).await {
        Ok(Ok(plugin)) => plugin,
        Ok(Err(reason)) => return refused(named(&reason)),
        Err(error) => return Ok(Err(FetchFailure::Host(named(&error.to_string())))),
    };
    let is_it = tried.id().sha256 == Some(file.sha256);
    if !is_it || **tried.manifest() != description.manifest {
        return refused(format!(
            "the manifest of its library is not the one that {} says, which was shown and allowed",
            package.location()
        ));
    }
    let locked = fetched.lock_entry();
    let allowed = loader(global)?.store().manifest(&file.sha256);
    let own = LockedPlugin {
        manifest: allowed.map(|json| Sha256::of(&json)),
        ..locked.clone()
    };
    let change = match installed.install(&file, own, &state) {
        Ok(change) => change,
        Err(error) => return Ok(Err(FetchFailure::of_install(global, &error))),
    };
    let json = json!({
        "plugin": name,
        "source": fetched.source,
        "signer": description.signer,
        "change": change,
        "difference": offered.difference().json(),
    });
    if !global.json {
        match &change {
            Some(change) => output::line(describe_change(change)),
            None => output::line(format_args!(
                "{name} {}: this very build is installed already",
                description.version
            )),
        }
        let signed =
            signer.map_or_else(|| "nobody".to_owned(), |signer| signer_name(global, signer));
        output::line(format_args!(
            "  {DIM}signed by {}{RESET}",
            output::clean_line(&signed)
        ));
    }
    Ok(Ok((locked, json)))
}

/// Whether nobody else can have made a package, whichever index named it: it is the very one that is there
/// or that a lock names, or it has a signer whom the person named or trusts, or who signed the one before.
fn is_pinned(
    global: &Global,
    package: &Package,
    before: Option<&LockedPlugin>,
    accepted: &AcceptedPackage,
) -> bool {
    let is_known = package.description().signer.as_ref().is_some_and(|found| {
        let before = before.and_then(|before| before.signer.as_deref());
        before == Some(found.as_str()) || signers(global).contains(found.as_str())
    });
    let is_same = before.is_some_and(|before| before.sha256 == package.sha256());
    is_known || is_same || accepted.signer.is_some() || accepted.accepts_lock_signer
}

/// Whether a package is taken though an index before the one that names it could not be read: that may name
/// another one, whose place somebody else's would take. `--yes` was not said of that.
async fn confirm_unread(global: &Global, fetched: &FetchedPackage) -> Result<(), String> {
    let unread: Vec<String> = fetched
        .index_errors
        .iter()
        .map(ToString::to_string)
        .collect();
    if unread.is_empty() {
        return Ok(());
    }
    let index = fetched.index.as_deref().unwrap_or(&fetched.source);
    let question = format!(
        "{YELLOW}?{RESET} It may be another one there. Take {} of {} all the same?",
        output::clean_line(&fetched.source),
        output::clean_line(index)
    );
    if !global.json && matches!(ask_yes_no(&question).await, Ok(true)) {
        return Ok(());
    }
    Err(format!(
        "{} of {index} may be another one than is meant, since an index that goes before could not be \
         read: {}. Try again later, name its signer with `--signer`, or with `--index` only the index \
         that it is to come from",
        fetched.source,
        unread.join("; ")
    ))
}

/// Whether whoever signed a package is one whose packages are taken.
fn check_signer(
    global: &Global,
    package: &Package,
    before: Option<&LockedPlugin>,
    accepted: &AcceptedPackage,
) -> Result<(), PackageError> {
    let before = before.and_then(|before| before.signer.as_deref());
    let name = &package.description().name;
    let found = package.description().signer.as_ref();
    let refused = |why: String| {
        Err(PackageError::Signer {
            location: package.location().to_owned(),
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
        None if accepted.accepts_lock_signer || signers(global).contains(found.as_str()) => Ok(()),
        None => refused(format!(
            "nobody here has said yet that this key is its author's. Compare it with what the author \
             says, then install with `--signer {found}`"
        )),
    }
}
