//! The saved sessions, for verbs that look at them or run them.

use std::time::Duration;

use conjure_host::auths::{AuthError, Auths};
use conjure_host::env;
use conjure_host::manager::{Manager, ManagerError, Options};

use super::args::Global;
use super::exit::{Exit, Failure};
use super::person::Terminal;

/// How long what runs may take to come to its end when the program does.
const ENDING: Duration = Duration::from_secs(5);

/// The saved sessions of a data directory.
pub(crate) struct Sessions {
    manager: Manager,
}

impl Sessions {
    /// Opens the store and makes the plugins ready.
    pub(crate) async fn open(global: &Global) -> Result<Self, Failure> {
        let store = global.store().await?;
        let host = global
            .host()
            .auths(Auths::over(store.clone(), env::keys(global.data_dir())))
            .log(store.clone())
            .asker(Terminal)
            .watch(true)
            .build()
            .await
            .map_err(|error| Failure::host(error.to_string()))?;
        let manager = Manager::start(host, store, Options::default()).await?;
        Ok(Self { manager })
    }

    /// Whoever runs them.
    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Ends what runs here.
    pub(crate) async fn close(self) {
        self.manager.shutdown(ENDING).await;
    }
}

impl From<ManagerError> for Failure {
    fn from(error: ManagerError) -> Self {
        let exit = match error {
            ManagerError::Session(error) => return error.into(),
            ManagerError::Store(error) => return error.into(),
            ManagerError::Auth(AuthError::Store(error)) => return error.into(),
            ManagerError::NotFound { .. }
            | ManagerError::Invalid { .. }
            | ManagerError::Conflict { .. }
            | ManagerError::Auth(_) => Exit::Usage,
            ManagerError::Full { .. } => Exit::Limit,
            ManagerError::Closing => Exit::Host,
        };
        Self::new(exit, error.to_string())
    }
}
