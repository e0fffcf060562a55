//! Whether the host does for a plugin what it asks for: what its manifest names and the session does not
//! withhold. A refusal says which of the two stands in the way.

use std::sync::Arc;

use conjure_abi::{Fault, code};
use conjure_plugins::{allowed_permissions, covers_host, covers_secret};
use conjure_skill_sdk::protocol::Permissions;

/// What a plugin may ask the host for.
#[derive(Debug, Clone)]
pub(crate) struct PermissionCheck(Arc<CheckedPermissions>);

#[derive(Debug)]
struct CheckedPermissions {
    /// Permissions that the manifest names.
    requested: Permissions,
    /// Permissions, of these, that the session allows.
    allowed: Permissions,
}

impl PermissionCheck {
    /// Check for a manifest that asks for `asked`, in a session that grants it `granted`; all of `asked`
    /// where the session says nothing.
    pub(crate) fn new(requested: &Permissions, granted: Option<&Permissions>) -> Self {
        let allowed = allowed_permissions(requested, granted);
        let asked = requested.clone();
        Self(Arc::new(CheckedPermissions {
            requested: asked,
            allowed,
        }))
    }

    /// Whether it may have the secret of this name.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn secret(&self, plugin: &str, name: &str) -> Result<(), Fault> {
        let fits = |permissions: &Permissions| {
            let mut patterns = permissions.secrets.iter();
            patterns.any(|pattern| covers_secret(pattern, name))
        };
        self.require(plugin, &format!("the secret `{name}`"), "secrets", fits)
    }

    /// Whether it may send requests to this host.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn http(&self, plugin: &str, host: &str) -> Result<(), Fault> {
        let fits = |permissions: &Permissions| {
            let mut patterns = permissions.http.iter();
            patterns.any(|pattern| covers_host(pattern, host))
        };
        self.require(plugin, &format!("the host `{host}`"), "http", fits)
    }

    /// Whether the hosts that it may send requests to are this machine too.
    pub(super) fn reaches_this_machine(&self) -> bool {
        let mut patterns = self.0.allowed.http.iter();
        let here = ["localhost", "127.0.0.1", "::1", "[::1]"];
        patterns.any(|pattern| here.iter().any(|name| covers_host(pattern, name)))
    }

    /// Whether it may ask the session's model.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn sample(&self, plugin: &str) -> Result<(), Fault> {
        self.require(plugin, "`sample`", "sample", |permissions| {
            permissions.sample
        })
    }

    fn require(
        &self,
        plugin: &str,
        what: &str,
        field: &str,
        holds: impl Fn(&Permissions) -> bool,
    ) -> Result<(), Fault> {
        let CheckedPermissions {
            requested: asked,
            allowed,
        } = &*self.0;
        let text = match (holds(allowed), holds(asked)) {
            (true, _) => return Ok(()),
            (false, true) => format!(
                "{what} is not granted: the manifest asks for it, and the session's \
                 `plugins.{plugin}.permissions` leaves it out; who sets the session up grants it there, \
                 in `{field}`"
            ),
            (false, false) => format!(
                "{what} is not in the manifest's `permissions.{field}`; the plugin's author declares it \
                 there"
            ),
        };
        Err(Fault::new(code::DENIED, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_the_manifest_or_the_session_stands_in_the_way() {
        let asked = Permissions {
            secrets: vec!["KEY".to_owned()],
            http: vec!["a.example".to_owned()],
            sample: true,
            ..Permissions::default()
        };
        let nothing = Permissions::default();
        let answers = |asked: &Permissions, granted: Option<&Permissions>| {
            let check = PermissionCheck::new(asked, granted);
            [
                check.secret("p", "KEY"),
                check.http("p", "a.example"),
                check.sample("p"),
            ]
        };
        assert!(answers(&asked, None).iter().all(Result::is_ok));
        assert!(answers(&asked, Some(&asked)).iter().all(Result::is_ok));
        let who = [
            (
                answers(&asked, Some(&nothing)),
                "the session's `plugins.p.permissions`",
            ),
            (answers(&nothing, None), "the plugin's author"),
        ];
        for (answers, to_blame) in who {
            for answer in answers {
                let refused = answer.unwrap_err();
                assert_eq!(refused.code, code::DENIED);
                assert!(refused.text().contains(to_blame), "{}", refused.text());
            }
        }
    }
}
