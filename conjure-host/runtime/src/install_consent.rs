//! What somebody has to agree to before a build of a plugin is taken, and how it differs from the one
//! whose place it takes. One rule for every way that a build comes in: as a file, in a package, over
//! HTTP, and where it is put back.

use conjure_core::log::VersionStep;
use conjure_plugins::{InstalledState, InstalledVersion, Loader, LockedPlugin, PluginFile};
use conjure_skill_sdk::protocol::Manifest;

use super::PluginDifference;

/// What a person has to agree to before a build takes the place of the one that is there, if one is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallConsent {
    /// What it asks for beyond the one that is there, a phrase each; of the first of its name all that
    /// it asks for.
    pub added_requests: Vec<String>,
    /// Whether a model sees tools that are new, or look otherwise than before.
    pub changes_tools: bool,
    /// Whether it is not known any more what the one that is there asks for and shows.
    pub is_unknown: bool,
    /// Whether its version is older, and nobody has said yet that it may be.
    pub is_downgrade: bool,
}

impl InstallConsent {
    /// What somebody has to agree to, a phrase each that goes on after "it asks for"; nothing where the
    /// build is taken without a question.
    pub fn phrases(&self) -> Vec<String> {
        let others = [
            (
                self.changes_tools,
                "to show a model tools that are new or look otherwise",
            ),
            (
                self.is_unknown,
                "to take the place of one of which it is not known any more what it asks for and shows",
            ),
            (self.is_downgrade, "to go back to an older version"),
        ];
        let others = others.into_iter().filter(|(holds, _)| *holds);
        let others = others.map(|(_, phrase)| phrase.to_owned());
        self.added_requests.iter().cloned().chain(others).collect()
    }
}

/// What a build asks to be allowed that comes from elsewhere. `from` is the version that is there, `old`
/// what is known of it.
pub fn consent_to_add(
    from: Option<&str>,
    old: Option<&Manifest>,
    new: &Manifest,
) -> (InstallConsent, PluginDifference) {
    let difference = PluginDifference::of(old, new);
    let is_downgrade =
        |from: &str| VersionStep::between(from, &new.version) == VersionStep::Downgrade;
    let consent = InstallConsent {
        added_requests: difference.added_requests.clone(),
        changes_tools: difference.changes_tools(),
        is_unknown: from.is_some() && old.is_none(),
        is_downgrade: from.is_some_and(is_downgrade),
    };
    (consent, difference)
}

/// What a build asks to be allowed that was there before. Going back is what was asked for, and the first
/// of its name was allowed when it came. `there` is the file that is there, `state` what was read with
/// it.
pub fn consent_to_roll_back(
    loader: &Loader,
    installed: Option<&PluginFile>,
    state: &InstalledState,
    build: &InstalledVersion,
) -> (InstallConsent, PluginDifference) {
    let known = installed.and_then(|there| loader.stored_manifest(&there.sha256));
    let back = loader.stored_manifest(&build.sha256);
    let difference = match (&known, &back) {
        (Some(known), Some(back)) => PluginDifference::of(Some(known), back),
        _ => PluginDifference::default(),
    };
    let mut more = match installed {
        Some(_) => added_requests(known.as_ref(), back.as_ref()),
        None => Vec::new(),
    };
    more.extend(signer_change(state.locked(), build.package.as_deref()));
    let consent = InstallConsent {
        added_requests: more,
        changes_tools: difference.changes_tools(),
        is_unknown: installed.is_some() && known.is_none(),
        is_downgrade: false,
    };
    (consent, difference)
}

/// What one build asks for beyond another. Of one that is there and not known any more nobody can say
/// that it asks for anything.
fn added_requests(there: Option<&Manifest>, back: Option<&Manifest>) -> Vec<String> {
    match back {
        Some(back) => PluginDifference::of(there, back).added_requests,
        None => vec!["anything, since what it asks for is not known any more".to_owned()],
    }
}

/// Where what is there is signed, and what would be put back is not signed by the same: that it is so.
fn signer_change(there: Option<&LockedPlugin>, back: Option<&LockedPlugin>) -> Option<String> {
    let there = there?.signer.as_deref()?;
    match back.and_then(|back| back.signer.as_deref()) {
        Some(back) if back == there => None,
        Some(back) => Some(format!("to be signed by {back} instead of {there}")),
        None => Some(format!("to be without the signature of {there}")),
    }
}

#[cfg(test)]
mod tests {
    use conjure_plugins::Sha256;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_nobody_has_allowed_yet_is_asked_for() {
        assert_eq!(InstallConsent::default().phrases(), [""; 0]);
        let first = InstallConsent {
            added_requests: vec!["connections of its own".to_owned()],
            ..InstallConsent::default()
        };
        assert_eq!(first.phrases(), ["connections of its own"]);
        let all = InstallConsent {
            changes_tools: true,
            is_unknown: true,
            is_downgrade: true,
            ..first
        };
        assert_eq!(all.phrases().len(), 4);
    }

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
        let (first, difference) = consent_to_add(None, None, &one);
        assert_eq!(first.added_requests, ["requests to a.example"]);
        assert_eq!(first.added_requests, difference.added_requests);
        assert!(!first.is_unknown && !first.is_downgrade);
        let (same, _) = consent_to_add(Some("1.0.0"), Some(&one), &two);
        assert_eq!(same, InstallConsent::default());
        assert!(
            consent_to_add(Some("2.0.0"), Some(&two), &one)
                .0
                .is_downgrade
        );
        assert!(consent_to_add(Some("1.0.0"), None, &two).0.is_unknown);
    }

    fn asking(hosts: &[&str]) -> Manifest {
        serde_json::from_value(json!({
            "manifest": 1, "kind": "skill", "name": "s", "version": "1.0.0", "description": "",
            "capabilities": [], "permissions": { "http": hosts },
        }))
        .unwrap()
    }

    #[test]
    fn what_nobody_knows_any_more_is_taken_for_the_worst() {
        let (none, one) = (asking(&[]), asking(&["a.example"]));
        assert_eq!(added_requests(Some(&one), Some(&none)), [""; 0]);
        assert_eq!(added_requests(Some(&one), Some(&one)), [""; 0]);
        let more = ["requests to a.example"];
        assert_eq!(added_requests(Some(&none), Some(&one)), more);
        assert_eq!(added_requests(None, Some(&one)), more);
        assert_eq!(added_requests(None, Some(&none)), [""; 0]);
        for there in [None, Some(&none)] {
            let unknown = added_requests(there, None);
            assert!(unknown[0].contains("not known"), "{unknown:?}");
        }
    }

    #[test]
    fn another_signer_is_not_called_none() {
        let package = |signer: Option<&str>| LockedPlugin {
            name: "s".to_owned(),
            version: "1.0.0".to_owned(),
            source: "s".to_owned(),
            index: None,
            sha256: Sha256::of(b"s"),
            signer: signer.map(str::to_owned),
            manifest: None,
            skill: None,
            libraries: [].into(),
        };
        let (one, two, nobody) = (package(Some("K1")), package(Some("K2")), package(None));
        let of = |there: &LockedPlugin, back: Option<&LockedPlugin>| {
            signer_change(Some(there), back).unwrap_or_default()
        };
        assert_eq!(of(&two, Some(&one)), "to be signed by K1 instead of K2");
        assert_eq!(of(&two, Some(&nobody)), "to be without the signature of K2");
        assert_eq!(of(&two, None), "to be without the signature of K2");
        assert_eq!(of(&two, Some(&two)), "");
        assert_eq!(of(&nobody, Some(&one)), "");
    }
}
