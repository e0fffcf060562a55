//! The reader of session files, taken from the host's source.

#[path = "../../../conjure-host/src/session/spec.rs"]
mod spec;

pub use spec::SessionSpec;

mod derived {
    use conjure_core::routing::Policy;

    use super::SessionSpec;

    /// What the policy warns of is not looked at here.
    pub(super) fn policy(_spec: &SessionSpec) -> Policy {
        Policy::default()
    }
}
