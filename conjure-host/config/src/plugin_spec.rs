//! What a session says of single plugins: the setting `plugins`.
//!
//! The manifest decides what a plugin can be granted, and is not known here.

use serde::{Deserialize, Serialize};

/// What a session says of one plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginSpec {
    /// What the plugin may do in this session: of what its manifest asks for, what is named here and
    /// nothing else. All of that without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<PermissionsSpec>,
    /// What the plugin may do with files of the session's working directory; [`WorkingDirAccess::Write`]
    /// without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<WorkingDirAccess>,
}

/// What a plugin may do with files of a session's working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkingDirAccess {
    /// The files are out of its reach.
    None,
    /// The plugin reads them.
    Read,
    /// The plugin reads and changes them.
    Write,
}

/// Permissions of a plugin in a session, in the words of a manifest. An empty table grants nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionsSpec {
    /// Secrets that it may ask for; one that ends in `*` stands for all that begin so.
    pub secrets: Vec<String>,
    /// Hosts that `http.send` reaches, such as `api.example.com` or `*.example.com`.
    pub http: Vec<String>,
    /// Whether it asks the session's model.
    pub sample: bool,
    /// Files and directories outside the session that it reads: absolute, or `~/…`.
    pub read: Vec<String>,
    /// Files and directories outside the session that it reads and changes: absolute, or `~/…`.
    pub write: Vec<String>,
    /// Whether it opens connections itself.
    pub network: bool,
    /// Whether it starts programs.
    pub commands: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionSpec;

    fn read(text: &str) -> Result<Option<PermissionsSpec>, String> {
        let spec = SessionSpec::from_toml(text).map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&spec.plugins).unwrap();
        assert_eq!(
            serde_json::from_value::<std::collections::BTreeMap<String, PluginSpec>>(written)
                .unwrap(),
            spec.plugins
        );
        let of_notes = spec.plugins.get("notes").cloned().unwrap_or_default();
        Ok(of_notes.permissions)
    }

    #[test]
    fn a_table_of_permissions_grants_what_it_names_and_none_grants_all() {
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("[plugins.notes]"), Ok(None));
        let nothing = PermissionsSpec::default();
        assert_eq!(
            read("[plugins.notes]\npermissions = {}"),
            Ok(Some(nothing.clone()))
        );
        let some = PermissionsSpec {
            read: vec!["~/notes".to_owned()],
            network: true,
            ..nothing
        };
        let text = "[plugins.notes.permissions]\nread = [\"~/notes\"]\nnetwork = true";
        assert_eq!(read(text), Ok(Some(some)));
    }

    #[test]
    fn the_working_directory_is_granted_by_a_word() {
        let text = "[plugins.notes]\nworking_dir = \"read\"";
        let spec = SessionSpec::from_toml(text).unwrap();
        let granted = spec.plugins["notes"].working_dir;
        assert_eq!(granted, Some(WorkingDirAccess::Read));
        let said = read("[plugins.notes]\nworking_dir = true").unwrap_err();
        assert!(said.contains("working_dir"), "{said}");
    }

    #[test]
    fn a_word_that_no_manifest_has_is_refused() {
        for text in [
            "[plugins.notes]\npermission = {}",
            "[plugins.notes.permissions]\nnetworks = true",
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains("unknown field"), "{text}: {said}");
        }
    }
}
