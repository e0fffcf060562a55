//! What putting a build of a plugin back would allow that the one that is there is not allowed.

use conjure_plugins::{InstallError, InstalledPlugins, InstalledVersion, Loader, LockedPlugin};
use conjure_skill_sdk::protocol::Manifest;

use super::PluginDifference;

/// What a build that is put back asks for beyond the one that is there, a phrase each; that it is not
/// known, where nobody knows any more what it asks for. What is the first of its name again asks for
/// nothing beyond another.
///
/// # Errors
/// [`InstallError`] where nobody knows what is there.
pub(crate) fn rollback_asks_for(
    installed: &InstalledPlugins,
    loader: &Loader,
    name: &str,
    back: &InstalledVersion,
) -> Result<Vec<String>, InstallError> {
    let mut more = match installed.file(name)? {
        Some(there) => {
            let there = loader.kept_manifest(&there.sha256);
            asked_beyond(there.as_ref(), loader.kept_manifest(&back.sha256).as_ref())
        }
        None => Vec::new(),
    };
    let locked = installed.lock().plugin(name)?;
    more.extend(signed_otherwise(locked.as_ref(), back.package.as_deref()));
    Ok(more)
}

/// What one build asks for beyond another. Of one that is there and not known any more nobody can say
/// that it asks for anything.
fn asked_beyond(there: Option<&Manifest>, back: Option<&Manifest>) -> Vec<String> {
    match back {
        Some(back) => PluginDifference::of(there, back).more,
        None => vec!["anything, since what it asks for is not known any more".to_owned()],
    }
}

/// Where what is there is signed, and what would be put back is not signed by the same: that it is so.
fn signed_otherwise(there: Option<&LockedPlugin>, back: Option<&LockedPlugin>) -> Option<String> {
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
        assert_eq!(asked_beyond(Some(&one), Some(&none)), [""; 0]);
        assert_eq!(asked_beyond(Some(&one), Some(&one)), [""; 0]);
        let more = ["requests to a.example"];
        assert_eq!(asked_beyond(Some(&none), Some(&one)), more);
        assert_eq!(asked_beyond(None, Some(&one)), more);
        assert_eq!(asked_beyond(None, Some(&none)), [""; 0]);
        for there in [None, Some(&none)] {
            let unknown = asked_beyond(there, None);
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
            signed_otherwise(Some(there), back).unwrap_or_default()
        };
        assert_eq!(of(&two, Some(&one)), "to be signed by K1 instead of K2");
        assert_eq!(of(&two, Some(&nobody)), "to be without the signature of K2");
        assert_eq!(of(&two, None), "to be without the signature of K2");
        assert_eq!(of(&two, Some(&two)), "");
        assert_eq!(of(&nobody, Some(&one)), "");
    }
}
