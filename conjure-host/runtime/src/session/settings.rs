//! The settings of a session that can change while it runs.

use conjure_config::{BackendSpec, SessionSpec};

/// Settings that can change while a session runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionSettings {
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The backends: those that are named and were not there are attached, those that are not named
    /// any more are let go.
    pub backends: Option<Vec<BackendSpec>>,
}

impl SessionSettings {
    /// A specification with these settings in place of its own.
    pub(super) fn applied_to(&self, spec: &SessionSpec) -> SessionSpec {
        SessionSpec {
            provider: self.provider.clone().or_else(|| spec.provider.clone()),
            model: self.model.clone().or_else(|| spec.model.clone()),
            backends: match &self.backends {
                Some(backends) => backends.clone(),
                None => spec.backends.clone(),
            },
            ..spec.clone()
        }
    }
}
