//! Sessions in one call, for a program that needs no host of its own: the plugins are those of
//! the usual places, and the session keeps its host.

use crate::host::{Host, HostError};
use crate::session::{Session, SessionError};
use conjure_config::{BackendSpec, SessionSpec};

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Session {
    /// Opens a session of several backends. `options` is everything else of a session file; its
    /// own backends are not looked at.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn hybrid(
        backends: impl IntoIterator<Item = BackendSpec>,
        options: SessionSpec,
    ) -> Result<Self, OpenError> {
        let host = Host::builder().default_plugins().build().await?;
        let mut session = host.hybrid(backends, options).await?;
        session.keep_alive(Box::new(host));
        Ok(session)
    }

    /// Opens a session of native skills, by name.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn native<S: Into<String>>(
        skills: impl IntoIterator<Item = S>,
        options: SessionSpec,
    ) -> Result<Self, OpenError> {
        Self::hybrid([BackendSpec::native(skills)], options).await
    }

    /// Opens a session of skill folders on this machine's shell.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn local<S: Into<String>>(
        skills: impl IntoIterator<Item = S>,
        options: SessionSpec,
    ) -> Result<Self, OpenError> {
        Self::hybrid([BackendSpec::local(skills)], options).await
    }

    /// Opens a session of skill folders in a container; needs a plugin `docker`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn docker<S: Into<String>>(
        skills: impl IntoIterator<Item = S>,
        options: SessionSpec,
    ) -> Result<Self, OpenError> {
        Self::hybrid([BackendSpec::docker(skills)], options).await
    }

    /// Opens a session of hosted skills; needs a plugin `anthropic`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn anthropic<S: Into<String>>(
        skills: impl IntoIterator<Item = S>,
        options: SessionSpec,
    ) -> Result<Self, OpenError> {
        Self::hybrid([BackendSpec::anthropic(skills)], options).await
    }
}
