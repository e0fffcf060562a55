//! What every builder of a plugin is told, whatever kind of plugin it builds: the parts of the
//! manifest that no operation hangs on.

use serde_json::Value;

use crate::protocol::{Example, Manifest, Permissions, Requires, StateScope, ToolDecl};

/// Parts of the manifest that builders of skills, executors and backends share.
pub(crate) struct ManifestBase {
    pub(crate) name: String,
    description: String,
    pub(crate) config_schema: Option<Value>,
    requires: Vec<String>,
    pub(crate) permissions: Permissions,
    examples: Vec<Example>,
}

/// Parts of the manifest that differ from kind to kind.
pub(crate) struct ManifestKind {
    /// As in [`Manifest::kind`].
    pub(crate) kind: &'static str,
    /// The operations and features, with their versions.
    pub(crate) capabilities: Vec<String>,
    pub(crate) state: StateScope,
    pub(crate) tools: Vec<ToolDecl>,
}

impl ManifestBase {
    pub(crate) fn new(name: String, description: String) -> Self {
        Self {
            name,
            description,
            config_schema: None,
            requires: Vec::new(),
            permissions: Permissions::default(),
            examples: Vec::new(),
        }
    }

    /// Adds a host operation that the plugin cannot do without.
    pub(crate) fn require(&mut self, operation: &str) {
        self.requires.push(operation.to_owned());
    }

    /// Adds an example of a call: `result` is in what comes out.
    pub(crate) fn add_example(&mut self, tool: &str, arguments: Value, result: &str) {
        self.examples.push(Example::new(tool, arguments, result));
    }

    /// Adds an example of a call that fails: `says` is in what it says.
    pub(crate) fn add_failing_example(&mut self, tool: &str, arguments: Value, says: &str) {
        self.examples.push(Example::failing(tool, arguments, says));
    }

    /// The manifest under the name and version that the library is exported with.
    pub(crate) fn manifest(&self, name: &str, version: &str, of: ManifestKind) -> Manifest {
        Manifest {
            manifest: 1,
            kind: of.kind.to_owned(),
            name: name.to_owned(),
            version: version.to_owned(),
            description: self.description.clone(),
            requires: Requires {
                host: self.requires.clone(),
            },
            capabilities: of.capabilities,
            permissions: self.permissions.clone(),
            config_schema: self.config_schema.clone(),
            state: of.state,
            tools: of.tools,
            examples: self.examples.clone(),
        }
    }
}

/// The methods with which every builder of a plugin fills its [`ManifestBase`]: `$kind` is what it
/// builds, and `$operation` a host operation that one may require.
macro_rules! manifest_methods {
    ($kind:literal, $operation:literal) => {
        /// JSON Schema of the configuration.
        #[must_use]
        pub fn config_schema(mut self, schema: ::serde_json::Value) -> Self {
            self.base.config_schema = Some(schema);
            self
        }

        /// An example of a call, for people and for tests: `result` is in what comes out.
        /// `conjure plugin test` runs it in a session of its own.
        #[must_use]
        pub fn example(
            mut self,
            tool: &str,
            arguments: ::serde_json::Value,
            result: &str,
        ) -> Self {
            self.base.add_example(tool, arguments, result);
            self
        }

        /// An example of a call that fails: `says` is in what it says.
        #[must_use]
        pub fn failing_example(
            mut self,
            tool: &str,
            arguments: ::serde_json::Value,
            says: &str,
        ) -> Self {
            self.base.add_failing_example(tool, arguments, says);
            self
        }

        #[doc = concat!(
            "A host operation that the ", $kind, " cannot do without, such as `", $operation, "`."
        )]
        #[must_use]
        pub fn requires(mut self, operation: &str) -> Self {
            self.base.require(operation);
            self
        }

        #[doc = concat!("What the ", $kind, " asks to be allowed.")]
        #[must_use]
        pub fn permissions(mut self, permissions: $crate::protocol::Permissions) -> Self {
            self.base.permissions = permissions;
            self
        }
    };
}

pub(crate) use manifest_methods;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_has_all_that_the_builder_was_told() {
        let mut base = ManifestBase::new("inside".to_owned(), "Does it".to_owned());
        base.config_schema = Some(json!({ "type": "object" }));
        base.require("kv.get/1");
        base.add_example("one", json!({}), "done");
        base.add_failing_example("one", json!({ "x": 1 }), "not that");
        let manifest = base.manifest(
            "outside",
            "1.2.3",
            ManifestKind {
                kind: "backend",
                capabilities: vec!["start/1".to_owned()],
                state: StateScope::Shared,
                tools: Vec::new(),
            },
        );
        let expected = Manifest {
            manifest: 1,
            kind: "backend".to_owned(),
            name: "outside".to_owned(),
            version: "1.2.3".to_owned(),
            description: "Does it".to_owned(),
            requires: Requires {
                host: vec!["kv.get/1".to_owned()],
            },
            capabilities: vec!["start/1".to_owned()],
            permissions: Permissions::default(),
            config_schema: Some(json!({ "type": "object" })),
            state: StateScope::Shared,
            tools: Vec::new(),
            examples: vec![
                Example::new("one", json!({}), "done"),
                Example::failing("one", json!({ "x": 1 }), "not that"),
            ],
        };
        assert_eq!(manifest, expected);
    }
}
