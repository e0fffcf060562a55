//! The script that plays the model of a session: whether it is there and can be read, before a session is
//! saved with it.

use std::path::Path;

use conjure_providers::Script;
use conjure_store::{SavedAuth, SavedSession as Row};

use super::{ManagerError, ManagerState};

/// The provider whose model a script plays, and where the tools of a session name it.
const SCRIPTED: &str = "scripted";
pub(super) const SCRIPT: &str = "script";
/// The most bytes of one.
const LONGEST_SCRIPT: u64 = 16 << 20;

impl ManagerState {
    /// Whether the script is there that plays the model, where one does.
    pub(super) async fn check_script(
        &self,
        row: &Row,
        auth: &SavedAuth,
    ) -> Result<(), ManagerError> {
        let name = auth.provider.as_str();
        if name != SCRIPTED || self.host.shared.providers.contains_key(name) {
            return Ok(());
        }
        let script = self.spec_with(row, auth)?.script;
        let problem = match script {
            None => Some(format!(
                "the provider `{SCRIPTED}` needs a script, and `tools` names none: `{SCRIPT}` is the \
                 path of one"
            )),
            Some(path) => tokio::task::spawn_blocking(move || script_problem(&path))
                .await
                .unwrap_or_else(|error| Some(format!("the script was not read: {error}"))),
        };
        match problem {
            None => Ok(()),
            Some(message) => Err(ManagerError::Invalid {
                field: Some("tools"),
                message,
            }),
        }
    }
}

/// Why a script cannot be played. Only a regular file of a bounded size is read: a pipe or a device may
/// have no end.
fn script_problem(path: &Path) -> Option<String> {
    let wrong = |why: &str| {
        let name = path.display();
        Some(format!("the script `{name}` cannot be played: {why}"))
    };
    if matches!(conjure_config::fs::is_file(path), Ok(false)) {
        return wrong("it is no regular file");
    }
    if conjure_config::fs::size(path).is_ok_and(|size| size > LONGEST_SCRIPT) {
        return wrong("it is larger than 16 MiB");
    }
    Script::read(path).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_of_a_bounded_size_is_read_as_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let refused = script_problem(dir.path()).unwrap();
        assert!(refused.contains("no regular file"), "{refused}");
        let long = dir.path().join("long.json");
        let file = conjure_config::fs::create_new(&long).unwrap();
        file.set_len(LONGEST_SCRIPT + 1).unwrap();
        let refused = script_problem(&long).unwrap();
        assert!(refused.contains("larger than"), "{refused}");
        let missing = script_problem(&dir.path().join("missing.json")).unwrap();
        assert!(missing.contains("missing.json"), "{missing}");
    }
}
