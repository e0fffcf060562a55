//! A backend of a session: what it was made of, what is behind it now, and how that is told.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::backend_catalog::BackendCatalog;
use super::backend_lease::BackendLease;
use conjure_config::BackendSpec;
use conjure_config::skill_folders::LoadedFolder;

/// A backend that was attached to the session.
pub(super) struct AttachedBackend {
    pub(super) name: String,
    pub(super) spec: BackendSpec,
    /// What it was made with, which may differ while another one is made ready.
    pub(super) active_spec: BackendSpec,
    pub(super) kind: BackendKind,
    /// The number of the transition that made it; 0 is its attaching.
    pub(super) transition_number: u64,
}

/// What is behind a backend of a session now.
pub(super) enum BackendKind {
    /// Native skills: those named, or all.
    Native,
    /// An executor with its skill folders.
    Executor {
        lease: Arc<BackendLease>,
        folders: Vec<Arc<LoadedFolder>>,
    },
    /// A backend with what it offers now.
    Backend {
        lease: Arc<BackendLease>,
        catalog: BackendCatalog,
    },
    /// A backend without a plugin: it offers nothing for now.
    Missing {
        /// Why there is no plugin.
        reason: String,
        /// Time since when there is none.
        since: SystemTime,
    },
}

impl BackendKind {
    /// Without a plugin from now on.
    pub(super) fn missing(reason: impl Into<String>) -> Self {
        Self::Missing {
            reason: reason.into(),
            since: SystemTime::now(),
        }
    }

    /// What the session has of a plugin, if one is behind it.
    pub(super) fn lease(&self) -> Option<&Arc<BackendLease>> {
        match self {
            Self::Executor { lease, .. } | Self::Backend { lease, .. } => Some(lease),
            Self::Native | Self::Missing { .. } => None,
        }
    }
}

impl AttachedBackend {
    pub(super) fn new(spec: &BackendSpec, kind: BackendKind) -> Self {
        Self {
            name: spec.instance().to_owned(),
            spec: spec.clone(),
            active_spec: spec.clone(),
            kind,
            transition_number: 0,
        }
    }

    /// Whether it stands for this native skill.
    pub(super) fn has_skill(&self, skill: &str) -> bool {
        let named = self.spec.skills.as_ref();
        named.is_none_or(|names| names.iter().any(|name| name == skill))
    }
}

/// State of a backend of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendStatus {
    /// The instance's name.
    pub name: String,
    /// Kind of the backend.
    pub kind: String,
    /// The plugin and its version, when one plugin is behind it.
    pub plugin: Option<String>,
    /// Why it is unavailable, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Time since when it is unavailable, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Whether it is being made ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_starting: bool,
}
