//! What the end-to-end tests share: deadlines, working directories, built artifacts, the command line.
//!
//! Everything here is for tests that go through a real boundary. It knows cargo and processes, and
//! nothing of the host's inside.

mod artifact;
mod cli;
mod engine;
mod error;
mod guard;
mod image_registry;
mod mock_mcp;
mod model;
mod postgres;
mod redact;
mod relay;
mod search;
mod small_disk;
mod sshd;
mod terminal;
mod threads;
mod tmux;
mod workspace;

use std::future::Future;
use std::net::TcpListener;
use std::time::Duration;

pub use artifact::{Cargo, build_bin, build_example, build_plugin, conjure_bin, repo_root};
pub use cli::{Cli, Output, ProgramHandle, Signal, cli};
pub use engine::{Engine, static_busybox};
pub use error::KitError;
pub use guard::Guard;
pub use image_registry::ImageRegistry;
pub use mock_mcp::{MockMcp, visit};
pub use model::Model;
pub use postgres::Postgres;
pub use redact::Redactor;
pub use relay::TokenRelay;
pub use search::{Search, search};
pub use small_disk::SmallDisk;
pub use sshd::{Network, Sshd};
pub use threads::{thread_ids, thread_log};
pub use tmux::Tmux;
pub use workspace::{SHIPPED_PLUGINS, Workspace};

/// Awaits a future for at most `limit`.
///
/// # Errors
/// [`KitError::Deadline`] when the limit passes first.
pub async fn deadline<F: Future>(limit: Duration, future: F) -> Result<F::Output, KitError> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| KitError::Deadline {
            what: "the future that the test awaits".to_owned(),
            limit,
            seen: String::new(),
        })
}

/// A port of loopback that nothing has now.
fn free_port() -> Result<u16, KitError> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    let address = address.map_err(KitError::file("a free port"));
    address.map(|address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_that_never_ends_meets_its_deadline() {
        let error = deadline(Duration::from_secs(5), std::future::pending::<()>())
            .await
            .unwrap_err();
        assert!(matches!(error, KitError::Deadline { .. }));
        assert_eq!(
            deadline(Duration::from_secs(5), async { 7 }).await.unwrap(),
            7
        );
    }
}
