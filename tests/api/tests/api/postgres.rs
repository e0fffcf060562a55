//! A private server of PostgreSQL, and a server of ours on it.

use conjure_kit::{Postgres, Workspace};

use crate::server::Server;
use crate::stage::Stage;

/// A server of PostgreSQL; it ends with this value.
pub(crate) struct Database(pub(crate) Postgres);

impl Database {
    /// Begins it; where PostgreSQL is not installed the test is left out, and says so.
    pub(crate) fn begin() -> Option<Self> {
        let begun = Postgres::begin().unwrap();
        if begun.is_none() {
            println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
        }
        begun.map(Self)
    }

    /// A server of ours on it, with the local executor.
    pub(crate) fn stage(&self) -> Stage {
        let workspace = Workspace::new().unwrap();
        workspace.add_plugin("conjure-backend-local").unwrap();
        let database = [("CONJURE_DATABASE", self.0.url())];
        Stage::on(Server::with(&workspace, "", &database))
    }
}
