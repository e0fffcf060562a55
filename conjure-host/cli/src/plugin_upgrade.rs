//! `conjure plugin upgrade`: newer versions of what came in packages.

use clap::Args;
use conjure_packages::{FetchedPackage, NewerPackage, PackageError, PackageSource};
use conjure_plugins::{InstalledPlugins, LockedPlugin};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::plugin_fetch::{AcceptedPackage, install_one, upgrade_locations};
use super::plugin_fetch_report::FetchReport;
use super::plugin_package::IndexArgs;

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
    if locked.is_empty() && !global.json {
        output::line("No plugin here came in a package; `conjure plugin install` takes one.");
    }
    let mut outcome = FetchReport::default();
    let wanted = locked
        .into_iter()
        .filter(|locked| args.names.is_empty() || args.names.contains(&locked.name));
    for locked in wanted {
        let accepted = AcceptedPackage {
            unsigned: locked.signer.is_none(),
            yes: args.yes,
            ..AcceptedPackage::default()
        };
        // One place that cannot be reached holds up no other.
        let found = match Box::pin(newer(&locked, &args.indexes)).await {
            Ok(found) => found,
            Err(error) => {
                outcome.add_failure(global, &locked.source, &error.into());
                continue;
            }
        };
        outcome.add_unread(global, &found.unread);
        let Some(mut fetched) = found.fetched else {
            if !global.json {
                let name = output::clean_line(&locked.name);
                output::line(format_args!("{name}: nothing newer"));
            }
            continue;
        };
        outcome.add_unread_of(global, &fetched);
        // One of them may have a newer one by somebody else: it is asked about as where it is installed.
        let known: Vec<String> = fetched
            .index_errors
            .iter()
            .map(ToString::to_string)
            .collect();
        let unread = found.unread.into_iter();
        let unread = unread.filter(|error| !known.contains(&error.to_string()));
        fetched.index_errors.extend(unread);
        match Box::pin(install_one(global, &fetched, &accepted)).await {
            Ok((_, json)) => outcome.add_installed(json),
            Err(failure) => outcome.add_failure(global, &fetched.source, &failure),
        }
    }
    Ok(outcome.finish(global))
}

/// The newest package of a plugin, if it is newer.
async fn newer(locked: &LockedPlugin, indexes: &IndexArgs) -> Result<UpgradeLookup, PackageError> {
    let NewerPackage { source, unread } = Box::pin(newer_source(locked, indexes)).await?;
    let Some(source) = source else {
        return Ok(UpgradeLookup {
            fetched: None,
            unread,
        });
    };
    let fetched = Box::pin(source.fetch(&upgrade_locations(indexes, locked))).await?;
    let found = fetched.package.description();
    if found.name != locked.name {
        return Err(PackageError::Mismatch {
            location: fetched.source.clone(),
            found: found.id(),
            wanted: format!("a newer {}", locked.name),
        });
    }
    let version = |text: &str| semver::Version::parse(text).ok();
    let is_newer = match (version(&found.version), version(&locked.version)) {
        (Some(found), Some(locked)) => found.cmp_precedence(&locked).is_gt(),
        _ => false,
    };
    Ok(UpgradeLookup {
        fetched: is_newer.then_some(fetched),
        unread,
    })
}

/// What came of looking for a newer package.
struct UpgradeLookup {
    /// The package, if there is one.
    fetched: Option<FetchedPackage>,
    /// Why indexes could not be looked at, which may have a newer one.
    unread: Vec<PackageError>,
}

/// Where a newer package may be: in an index that the command names, if it has the plugin, else where the
/// plugin came from.
async fn newer_source(
    locked: &LockedPlugin,
    indexes: &IndexArgs,
) -> Result<NewerPackage, PackageError> {
    let source = PackageSource::read(&locked.source)?;
    let is_indexed = matches!(source, PackageSource::Indexed { .. });
    let mut passed = Vec::new();
    if !is_indexed && !indexes.explicit_indexes().is_empty() {
        let by_name = PackageSource::Indexed {
            name: locked.name.clone(),
            version: None,
        };
        match Box::pin(by_name.newer(&locked.version, indexes.explicit_indexes())).await {
            Err(PackageError::Unknown { .. }) => {}
            Err(error) if error.is_of_index() => passed.push(error),
            found => return found,
        }
    }
    let found =
        Box::pin(source.newer(&locked.version, &upgrade_locations(indexes, locked))).await?;
    passed.extend(found.unread);
    Ok(NewerPackage {
        unread: passed,
        ..found
    })
}
