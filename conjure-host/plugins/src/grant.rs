//! What a session grants an instance: its directories, and of what the manifest asks for the part that
//! the session names.
//!
//! A grant only ever takes away. What it names and the manifest does not is refused where the grant is
//! set, and is nothing where an instance is made: another version of the plugin may ask for less.

use std::path::Path;

use conjure_skill_sdk::protocol::Permissions;

use super::LoadedPlugin;
use super::worker::{EnforcedConfinement, InstanceDirs};

/// What a session grants an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceGrant {
    /// The session's directories.
    pub dirs: InstanceDirs,
    /// Part of what its manifest asks for that the instance is allowed; `None` allows all of it.
    pub permissions: Option<Permissions>,
    /// Whether the session withholds its working directory, or changes there: `dirs` does not have it then,
    /// and an instance that nothing would keep from it is not made.
    pub withholds_working_dir: bool,
}

/// Why a session cannot grant a plugin what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The manifest does not ask for it.
    #[error(
        "the session grants `{plugin}` {what}, which its manifest does not ask for; a session grants \
         what the manifest names, in its words, or less, so leave that out"
    )]
    NotRequested {
        /// Name and version.
        plugin: String,
        /// What is granted too much.
        what: String,
    },
    /// Nothing would keep the plugin from it.
    #[error(
        "the session does not grant `{plugin}` {what}, and nothing would keep it from that: only a \
         process of its own is confined, and only on Linux. Let it run in one (`conjure plugin list` says \
         where it runs and why), or grant that too"
    )]
    NotConfined {
        /// Name and version.
        plugin: String,
        /// What it could do all the same.
        what: String,
    },
    /// The kernel would not keep it from it.
    #[error(
        "the session does not grant `{plugin}` {what}, and this kernel keeps no process from that: files \
         take Landlock, connections and programs a filter of system calls, and `conjure doctor` says which \
         of them is missing here. Run the host on a kernel that has both, or grant that too"
    )]
    NotEnforced {
        /// Name and version.
        plugin: String,
        /// What it could do all the same.
        what: String,
    },
}

impl LoadedPlugin {
    /// Whether a session can grant these permissions, and nothing else.
    ///
    /// # Errors
    /// [`GrantError`] names what the manifest does not ask for, or what nothing would keep the plugin
    /// from.
    pub fn check_grant(&self, granted: &Permissions) -> Result<(), GrantError> {
        let allowed = narrowed_permissions(&self.manifest().permissions, granted);
        let too_much = permission_difference(granted, &allowed);
        if too_much != Permissions::default() {
            return Err(GrantError::NotRequested {
                plugin: self.id().to_string(),
                what: permission_phrases(&too_much).join(", "),
            });
        }
        self.check_enforced(&allowed)
    }

    /// Whether a session can withhold its working directory, or changes there.
    ///
    /// # Errors
    /// [`GrantError`] says that nothing would keep the plugin from it.
    pub fn check_working_dir(&self) -> Result<(), GrantError> {
        let plugin = self.id().to_string();
        let what = "the working directory to read and change".to_owned();
        if !self.is_confined() {
            return Err(GrantError::NotConfined { plugin, what });
        }
        match EnforcedConfinement::of_kernel().files {
            true => Ok(()),
            false => Err(GrantError::NotEnforced { plugin, what }),
        }
    }

    /// Whether something keeps an instance to these permissions. The host itself answers for secrets,
    /// requests and questions; for the rest the kernel does, as far as it can, where the plugin is confined.
    pub(super) fn check_enforced(&self, allowed: &Permissions) -> Result<(), GrantError> {
        let withheld = withheld_by_system(&self.manifest().permissions, allowed);
        if withheld == Permissions::default() {
            return Ok(());
        }
        let plugin = self.id().to_string();
        if !self.is_confined() {
            let what = permission_phrases(&withheld).join(", ");
            return Err(GrantError::NotConfined { plugin, what });
        }
        let open = unenforced_permissions(withheld, EnforcedConfinement::of_kernel());
        if open == Permissions::default() {
            return Ok(());
        }
        let what = permission_phrases(&open).join(", ");
        Err(GrantError::NotEnforced { plugin, what })
    }
}

/// Returns the part of what a manifest asks for that a session grants; all where that says nothing.
#[must_use]
pub fn allowed_permissions(asked: &Permissions, granted: Option<&Permissions>) -> Permissions {
    match granted {
        Some(granted) => narrowed_permissions(asked, granted),
        None => asked.clone(),
    }
}

/// Returns the part of what is asked for that is granted too.
///
/// Files are granted by the very names that are asked for: one below them may be a link that leads
/// elsewhere.
fn narrowed_permissions(asked: &Permissions, granted: &Permissions) -> Permissions {
    // What may be changed may be read.
    let readable: Vec<String> = asked.read.iter().chain(&asked.write).cloned().collect();
    Permissions {
        secrets: covered_names(&granted.secrets, &asked.secrets, covers_secret),
        http: covered_names(&granted.http, &asked.http, covers_host),
        sample: granted.sample && asked.sample,
        read: covered_names(&granted.read, &readable, covers_file),
        write: covered_names(&granted.write, &asked.write, covers_file),
        network: granted.network && asked.network,
        commands: granted.commands && asked.commands,
    }
}

/// What permissions are, a phrase each.
#[must_use]
pub fn permission_phrases(permissions: &Permissions) -> Vec<String> {
    let Permissions {
        secrets,
        http,
        sample,
        read,
        write,
        network,
        commands,
    } = permissions;
    let each = |what: &str, names: &[String]| -> Vec<String> {
        names.iter().map(|name| format!("{what} {name}")).collect()
    };
    let mut phrases = each("the secret", secrets);
    phrases.extend(each("requests to", http));
    phrases.extend(each("reading", read));
    phrases.extend(each("changing", write));
    for (is_there, what) in [
        (*sample, "questions to the session's model"),
        (*network, "connections of its own"),
        (*commands, "programs that it starts"),
    ] {
        phrases.extend(is_there.then(|| what.to_owned()));
    }
    phrases
}

/// What is asked for and not allowed, of what the system keeps and not the host.
fn withheld_by_system(asked: &Permissions, allowed: &Permissions) -> Permissions {
    let withheld = permission_difference(asked, allowed);
    // What is below a directory that may be changed may be changed too, and read.
    let is_changed_anyway = |name: &String| {
        let mut changed = allowed.write.iter();
        changed.any(|changed| Path::new(name).starts_with(changed))
    };
    let exclude_changeable = |names: Vec<String>| -> Vec<String> {
        let names = names.into_iter();
        names.filter(|name| !is_changed_anyway(name)).collect()
    };
    Permissions {
        secrets: Vec::new(),
        http: Vec::new(),
        sample: false,
        read: exclude_changeable(withheld.read),
        write: exclude_changeable(withheld.write),
        network: withheld.network,
        commands: withheld.commands,
    }
}

/// What of these a kernel that enforces this much keeps nobody from.
fn unenforced_permissions(withheld: Permissions, enforced: EnforcedConfinement) -> Permissions {
    let files = |names: Vec<String>| match enforced.files {
        true => Vec::new(),
        false => names,
    };
    Permissions {
        read: files(withheld.read),
        write: files(withheld.write),
        network: withheld.network && !enforced.calls,
        commands: withheld.commands && !enforced.calls,
        ..Permissions::default()
    }
}

/// What is in these and not in those, by name.
fn permission_difference(these: &Permissions, those: &Permissions) -> Permissions {
    let rest = |these: &[String], those: &[String]| {
        let rest = these.iter().filter(|name| !those.contains(name));
        rest.cloned().collect()
    };
    Permissions {
        secrets: rest(&these.secrets, &those.secrets),
        http: rest(&these.http, &those.http),
        sample: these.sample && !those.sample,
        read: rest(&these.read, &those.read),
        write: rest(&these.write, &those.write),
        network: these.network && !those.network,
        commands: these.commands && !those.commands,
    }
}

fn covered_names(
    granted: &[String],
    asked: &[String],
    covers: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let covered = granted
        .iter()
        .filter(|name| asked.iter().any(|asked| covers(asked, name)));
    covered.cloned().collect()
}

/// Whether a pattern of secrets that is asked for covers a name, or all that fits another pattern:
/// `MCP_*` covers `MCP_GITHUB` and `MCP_A*`. A lone `*` covers nothing but itself: no plugin
/// gets everything.
#[must_use]
pub fn covers_secret(asked: &str, name: &str) -> bool {
    let prefix = asked.strip_suffix('*').filter(|prefix| !prefix.is_empty());
    asked == name || prefix.is_some_and(|prefix| name.starts_with(prefix))
}

/// Whether a pattern of hosts that is asked for covers a host, or all that fits another pattern:
/// `*.example.com` covers `api.example.com` and `*.a.example.com`, and `*` all.
#[must_use]
pub fn covers_host(asked: &str, name: &str) -> bool {
    let is_below = |parent: &str| {
        let head = name.strip_suffix(parent);
        head.is_some_and(|head| head.ends_with('.'))
    };
    asked == "*"
        || asked.eq_ignore_ascii_case(name)
        || asked.strip_prefix("*.").is_some_and(is_below)
}

fn covers_file(asked: &str, name: &str) -> bool {
    asked == name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn asked() -> Permissions {
        Permissions {
            secrets: names(&["KEY", "MCP_*"]),
            http: names(&["*.example.com", "other.example"]),
            sample: true,
            read: names(&["~/notes"]),
            write: names(&["/srv/out"]),
            network: true,
            commands: false,
        }
    }

    #[test]
    fn a_grant_takes_away_and_never_adds() {
        let granted = Permissions {
            secrets: names(&["MCP_GITHUB", "MCP_A*", "KEYS", "*"]),
            http: names(&["api.example.com", "*.a.example.com", "example.com", "*"]),
            sample: false,
            read: names(&["/srv/out", "~/notes/sub", "~/"]),
            write: names(&["~/notes"]),
            network: true,
            commands: true,
        };
        let expected = Permissions {
            secrets: names(&["MCP_GITHUB", "MCP_A*"]),
            http: names(&["api.example.com", "*.a.example.com"]),
            read: names(&["/srv/out"]),
            network: true,
            ..Permissions::default()
        };
        assert_eq!(narrowed_permissions(&asked(), &granted), expected);
        assert_eq!(narrowed_permissions(&asked(), &asked()), asked());
        let nothing = Permissions::default();
        assert_eq!(narrowed_permissions(&asked(), &nothing), nothing);
        assert_eq!(narrowed_permissions(&nothing, &asked()), nothing);
    }

    #[test]
    fn what_goes_beyond_others_is_named() {
        let granted = Permissions {
            read: names(&["~/notes", "~/other"]),
            network: true,
            commands: true,
            ..Permissions::default()
        };
        let too_much = Permissions {
            read: names(&["~/other"]),
            commands: true,
            ..Permissions::default()
        };
        assert_eq!(permission_difference(&granted, &asked()), too_much);
        let withheld = Permissions {
            write: names(&["/srv/out"]),
            ..Permissions::default()
        };
        assert_eq!(withheld_by_system(&asked(), &granted), withheld);
    }

    #[test]
    fn what_may_be_changed_is_read_anyway() {
        let asked = Permissions {
            read: names(&["/srv/out", "/srv/out/in", "/srv/other"]),
            write: names(&["/srv/out"]),
            ..Permissions::default()
        };
        let granted = Permissions {
            write: names(&["/srv/out"]),
            ..Permissions::default()
        };
        let withheld = Permissions {
            read: names(&["/srv/other"]),
            ..Permissions::default()
        };
        assert_eq!(withheld_by_system(&asked, &granted), withheld);
    }

    #[test]
    fn what_is_below_a_directory_that_may_be_changed_is_changed_anyway() {
        let asked = Permissions {
            write: names(&["/srv/out", "/srv/out/in", "/srv/outer"]),
            ..Permissions::default()
        };
        let granted = Permissions {
            write: names(&["/srv/out"]),
            ..Permissions::default()
        };
        let withheld = Permissions {
            write: names(&["/srv/outer"]),
            ..Permissions::default()
        };
        assert_eq!(withheld_by_system(&asked, &granted), withheld);
    }

    #[test]
    fn a_kernel_keeps_what_it_enforces_and_nothing_else() {
        let withheld = Permissions {
            read: names(&["~/notes"]),
            write: names(&["/srv/out"]),
            network: true,
            commands: true,
            ..Permissions::default()
        };
        let open = |files, calls| {
            let enforced = EnforcedConfinement { files, calls };
            permission_phrases(&unenforced_permissions(withheld.clone(), enforced))
        };
        let files = ["reading ~/notes", "changing /srv/out"];
        let calls = ["connections of its own", "programs that it starts"];
        assert_eq!(open(true, true), [""; 0]);
        assert_eq!(open(false, true), files);
        assert_eq!(open(true, false), calls);
        assert_eq!(open(false, false), [files, calls].concat());
    }

    #[test]
    fn who_says_nothing_of_a_plugin_grants_what_it_asks_for() {
        assert_eq!(allowed_permissions(&asked(), None), asked());
        let nothing = Permissions::default();
        assert_eq!(allowed_permissions(&asked(), Some(&nothing)), nothing);
    }

    #[test]
    fn a_pattern_of_secrets_is_a_prefix_and_never_everything() {
        assert!(covers_secret("KEY", "KEY") && !covers_secret("KEY", "KEYS"));
        assert!(covers_secret("MCP_*", "MCP_GITHUB") && !covers_secret("MCP_*", "GITHUB"));
        assert!(!covers_secret("*", "KEY") && !covers_secret("", "KEY"));
    }

    #[test]
    fn who_asks_for_every_host_is_granted_any() {
        assert!(covers_host("*", "*.example.com") && covers_host("*", "localhost"));
        assert!(covers_host("API.example.com", "api.example.com"));
        assert!(!covers_host("*.example.com", "evilexample.com"));
        assert!(!covers_host("*.example.com", "*"));
    }

    #[test]
    fn each_permission_has_a_phrase_that_names_it() {
        let expected = [
            "the secret KEY",
            "the secret MCP_*",
            "requests to *.example.com",
            "requests to other.example",
            "reading ~/notes",
            "changing /srv/out",
            "questions to the session's model",
            "connections of its own",
        ];
        assert_eq!(permission_phrases(&asked()), expected);
    }
}
