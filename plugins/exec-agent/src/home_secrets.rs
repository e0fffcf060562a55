//! Where a person's keys, passwords, tokens and histories usually lie: what commands in a sandbox do not
//! see, though they may read everything else.

use std::path::{Path, PathBuf};

/// Below a home directory.
const IN_HOME: [&str; 32] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/chromium",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/op",
    ".docker/config.json",
    ".gem/credentials",
    ".gemini/oauth_creds.json",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".psql_history",
    ".pypirc",
    ".python_history",
    ".ssh",
    ".terraform.d/credentials.tfrc.json",
    ".zsh_history",
];
/// Secrets of the system; only root can read them.
const SYSTEM_SECRETS: [&str; 2] = ["/etc/gshadow", "/etc/shadow"];

/// The secrets of a home directory and of the system that are there, but for what is granted by name.
#[must_use]
pub fn home_secrets(home: Option<&Path>, granted: &[PathBuf]) -> Vec<PathBuf> {
    let in_home = home
        .into_iter()
        .flat_map(|home| IN_HOME.map(|name| home.join(name)));
    let all = in_home.chain(SYSTEM_SECRETS.map(PathBuf::from));
    let is_granted = |path: &Path| granted.iter().any(|granted| path.starts_with(granted));
    all.filter(|path| path.exists() && !is_granted(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_hidden_unless_it_is_granted() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path();
        for dir in [".ssh", ".kube", ".config/gh"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        let secrets = |granted: &[PathBuf]| {
            let all = home_secrets(Some(home), granted).into_iter();
            let own = all.filter(|path| path.starts_with(home));
            own.collect::<Vec<_>>()
        };
        let [gh, kube, ssh] = [".config/gh", ".kube", ".ssh"].map(|name| home.join(name));
        assert_eq!(secrets(&[]), [gh.clone(), kube.clone(), ssh]);
        assert_eq!(secrets(&[home.join(".ssh")]), [gh, kube]);
        assert!(secrets(&[home.to_owned()]).is_empty());
    }
}
