//! A catalog together with what it was asked for.

use std::sync::Arc;

use conjure_skill_sdk::protocol::{CatalogReply, CatalogRequest};

/// What a backend offers a session.
#[derive(Debug, Clone)]
pub(crate) struct BackendCatalog {
    /// The session's provider and model when the backend was asked. After a switch the session talks
    /// to another one until the catalog is renewed.
    pub(crate) request: CatalogRequest,
    pub(crate) reply: Arc<CatalogReply>,
}
