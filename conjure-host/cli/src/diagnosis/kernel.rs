//! What this kernel has to confine plugins in workers and local commands: Landlock and seccomp, which
//! are tried out, and user namespaces, of which the system's settings are read.

use std::path::Path;

use conjure_config::fs;

use super::HealthFinding;

/// Mounts and much else: the number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Looks at all of it.
pub(super) fn examine() -> Vec<HealthFinding> {
    let mut findings = vec![confinement(), orphan_finding(cfg!(target_os = "linux"))];
    if cfg!(target_os = "linux") {
        findings.push(UserNamespaces::read(Path::new("/proc")).finding());
    }
    findings
}

/// Whether plugins in processes of their own and commands in a sandbox can be confined.
fn confinement() -> HealthFinding {
    let version = conjure_plugins::landlock_version();
    let version = version.map_or_else(
        || "no Landlock".to_owned(),
        |version| format!("Landlock {version}"),
    );
    let whole = format!("{version} and seccomp, whole");
    let finding = HealthFinding::well("worker", "confinement", whole);
    let gaps = match conjure_plugins::confinement_gaps() {
        Ok(gaps) => gaps,
        Err(error) => return finding.note(error.to_string(), ""),
    };
    let found = match (gaps.files, gaps.calls) {
        (false, false) => return finding,
        (true, false) => {
            "this kernel cannot keep plugins in workers from all files that are not theirs, nor \
             commands in a sandbox from writing to all others"
        }
        (false, true) => {
            "this kernel cannot keep plugins in workers from programs and sockets, nor commands in a \
             sandbox from the network"
        }
        (true, true) => {
            "this kernel cannot keep plugins in workers, nor commands in a sandbox, from anything"
        }
    };
    finding.note(
        format!("{found} ({version})"),
        "Linux 6.12 or newer has Landlock with all that is made use of; until then trust a plugin \
         before you install it",
    )
}

/// What becomes of programs that plugins start. A kernel that adopts is Linux.
fn orphan_finding(adopts: bool) -> HealthFinding {
    let found = "what plugins start ends with them";
    let finding = HealthFinding::well("worker", "left behind", found);
    match adopts {
        true => finding,
        false => finding.note(
            "this system adopts no orphans: what a plugin starts and leaves its process group goes on \
             without it",
            "",
        ),
    }
}

/// What decides whether a command gets a user namespace, in which the host's files and keys are hidden.
#[derive(Debug, Default)]
struct UserNamespaces {
    /// The host may mount as it is and needs none.
    may_mount: bool,
    /// How many of them there may be.
    limit: Option<u64>,
    /// `AppArmor` lets them do nothing.
    is_restricted: bool,
    /// Only root makes one.
    is_roots: bool,
}

impl UserNamespaces {
    fn read(proc: &Path) -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(proc.join("sys").join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let status = fs::read_to_string(proc.join("self/status")).unwrap_or_default();
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
        Self {
            may_mount: effective.is_some_and(|effective| effective >> SYS_ADMIN & 1 == 1),
            limit: number("user/max_user_namespaces"),
            is_restricted: number("kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            is_roots: number("kernel/unprivileged_userns_clone") == Some(0),
        }
    }

    fn finding(&self) -> HealthFinding {
        let finding = HealthFinding::well("sandbox", "user namespaces", "this user may make them");
        if self.may_mount {
            return HealthFinding {
                found: "not needed: the host may mount as it is".to_owned(),
                ..finding
            };
        }
        let (why, remedy) = match self {
            Self { limit: None, .. } => ("the kernel has none", ""),
            Self { limit: Some(0), .. } => (
                "user.max_user_namespaces is 0",
                "sysctl user.max_user_namespaces=10000",
            ),
            Self { is_roots: true, .. } => (
                "kernel.unprivileged_userns_clone is 0",
                "sysctl kernel.unprivileged_userns_clone=1",
            ),
            Self {
                is_restricted: true,
                ..
            } => (
                "kernel.apparmor_restrict_unprivileged_userns is 1",
                "an AppArmor profile for `conjure` with the rule `userns,`, or sysctl \
                 kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            _ => return finding,
        };
        let found = format!(
            "this user makes none ({why}): local commands see the host's own files and, in a sandbox, the \
             user's keys, and change modes and times of files elsewhere"
        );
        finding.note(found, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Health;

    /// What is said of a system with these settings.
    fn of(capabilities: &str, settings: &[(&str, &str)]) -> HealthFinding {
        let proc = tempfile::tempdir().unwrap();
        let status = format!("Name:\tconjure\nCapEff:\t{capabilities}\nSeccomp:\t0\n");
        for (name, text) in settings.iter().chain(&[("../self/status", &*status)]) {
            let file = proc.path().join("sys").join(name);
            std::fs::create_dir_all(proc.path().join("sys/kernel")).unwrap();
            std::fs::create_dir_all(proc.path().join("sys/user")).unwrap();
            std::fs::create_dir_all(proc.path().join("self")).unwrap();
            std::fs::write(file, text).unwrap();
        }
        UserNamespaces::read(proc.path()).finding()
    }

    #[test]
    fn what_goes_on_without_its_plugin_is_said_where_nothing_adopts_it() {
        assert_eq!(orphan_finding(true).state, Health::Well);
        let elsewhere = orphan_finding(false);
        assert_eq!(elsewhere.state, Health::Note);
        assert!(elsewhere.found.contains("no orphans"), "{elsewhere:?}");
    }

    #[test]
    fn each_setting_that_forbids_user_namespaces_is_named_with_what_to_do() {
        let none = "0000000000000000";
        let limit = ("user/max_user_namespaces", "96365\n");
        assert_eq!(of(none, &[limit]).state, Health::Well);
        for (settings, name) in [
            (
                vec![("user/max_user_namespaces", "0\n")],
                "user.max_user_namespaces",
            ),
            (
                vec![limit, ("kernel/unprivileged_userns_clone", "0\n")],
                "kernel.unprivileged_userns_clone",
            ),
            (
                vec![
                    limit,
                    ("kernel/apparmor_restrict_unprivileged_userns", "1\n"),
                ],
                "kernel.apparmor_restrict_unprivileged_userns",
            ),
        ] {
            let finding = of(none, &settings);
            assert_eq!(finding.state, Health::Note, "{finding:?}");
            assert!(finding.found.contains(name), "{finding:?}");
            assert!(finding.remedy.unwrap().contains(name));
            // Who may mount needs none.
            assert_eq!(of("000001ffffffffff", &settings).state, Health::Well);
        }
        let allowed = [
            limit,
            ("kernel/unprivileged_userns_clone", "1\n"),
            ("kernel/apparmor_restrict_unprivileged_userns", "0\n"),
        ];
        assert_eq!(of(none, &allowed).state, Health::Well);
        assert_eq!(of(none, &[]).state, Health::Note);
    }
}
