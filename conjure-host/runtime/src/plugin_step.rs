//! What somebody has to agree to of a build that is to take the place of another, and how the two
//! differ: the same whoever asks, and whichever way the build comes.

use conjure_core::log::VersionStep;
use conjure_plugins::{BuildStep, InstallError, InstalledPlugins, InstalledVersion, Loader};
use conjure_skill_sdk::protocol::Manifest;

use super::PluginDifference;
use super::plugin_rollback::rollback_asks_for;

/// The step to a build that comes from elsewhere. `from` is the version that is there, `old` what is
/// known of it.
pub fn offered_step(
    from: Option<&str>,
    old: Option<&Manifest>,
    new: &Manifest,
) -> (BuildStep, PluginDifference) {
    let difference = PluginDifference::of(old, new);
    let is_downgrade =
        |from: &str| VersionStep::between(from, &new.version) == VersionStep::Downgrade;
    let step = BuildStep {
        more: difference.more.clone(),
        shows_other_tools: difference.shows_other_tools(),
        is_unknown: from.is_some() && old.is_none(),
        is_downgrade: from.is_some_and(is_downgrade),
    };
    (step, difference)
}

/// The step to a build that was there before. Going back is what was asked for, and the first of its
/// name was allowed when it came.
///
/// # Errors
/// [`InstallError`] where nobody knows what is there.
pub fn rollback_step(
    installed: &InstalledPlugins,
    loader: &Loader,
    name: &str,
    build: &InstalledVersion,
) -> Result<(BuildStep, PluginDifference), InstallError> {
    let there = installed.file(name)?;
    let there = there.and_then(|there| loader.kept_manifest(&there.sha256));
    let difference = match (&there, loader.kept_manifest(&build.sha256)) {
        (Some(there), Some(back)) => PluginDifference::of(Some(there), &back),
        _ => PluginDifference::default(),
    };
    let step = BuildStep {
        more: rollback_asks_for(installed, loader, name, build)?,
        shows_other_tools: difference.shows_other_tools(),
        ..BuildStep::default()
    };
    Ok((step, difference))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_there_and_not_known_is_taken_for_the_worst() {
        let manifest = |version: &str| -> Manifest {
            serde_json::from_value(json!({
                "manifest": 1, "kind": "skill", "name": "s", "version": version,
                "description": "", "capabilities": [], "permissions": { "http": ["a.example"] },
            }))
            .unwrap()
        };
        let (one, two) = (manifest("1.0.0"), manifest("2.0.0"));
        let (first, difference) = offered_step(None, None, &one);
        assert_eq!(first.more, ["requests to a.example"]);
        assert_eq!(first.more, difference.more);
        assert!(!first.is_unknown && !first.is_downgrade);
        let (same, _) = offered_step(Some("1.0.0"), Some(&one), &two);
        assert_eq!(same, BuildStep::default());
        assert!(offered_step(Some("2.0.0"), Some(&two), &one).0.is_downgrade);
        assert!(offered_step(Some("1.0.0"), None, &two).0.is_unknown);
    }
}
