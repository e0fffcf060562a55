//! What a plugin says on the way, one method each and one for asynchronous code.
//!
//! In a call's context it is about the call; in that of `create`, or of `backend.watch`, about the
//! instance while no call runs.

use serde_json::Value;

use super::Cx;
use crate::block_on::block_on;
use crate::error::Result;
use crate::protocol::{List, Message, MessageLevel, PluginEvent, Progress};

impl Cx {
    /// Says how far the call is.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub fn progress(&self, done: f64, total: Option<f64>, message: &str) -> Result<()> {
        block_on(self.progress_async(done, total, message))
    }

    /// [`Cx::progress`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn progress_async(&self, done: f64, total: Option<f64>, message: &str) -> Result<()> {
        self.event_async(&PluginEvent::Progress(Progress {
            done,
            total,
            message: (!message.is_empty()).then(|| message.to_owned()),
        }))
        .await
    }

    /// Sends a message to whoever asked for the call, if they want such messages; data of any
    /// kind, or a text. [`Cx::log`] is for the host's operator instead.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub fn message(&self, level: MessageLevel, data: impl Into<Value>) -> Result<()> {
        self.event(&message(level, data.into()))
    }

    /// [`Cx::message`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn message_async(&self, level: MessageLevel, data: impl Into<Value>) -> Result<()> {
        self.event_async(&message(level, data.into())).await
    }

    /// Says that lists of this instance are others now: the host asks for them again.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub fn catalog_changed(&self, lists: &[List]) -> Result<()> {
        self.event(&change_event(lists))
    }

    /// [`Cx::catalog_changed`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn catalog_changed_async(&self, lists: &[List]) -> Result<()> {
        self.event_async(&change_event(lists)).await
    }

    /// Says that a resource says something else now.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub fn resource_updated(&self, uri: &str) -> Result<()> {
        self.event(&updated(uri))
    }

    /// [`Cx::resource_updated`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn resource_updated_async(&self, uri: &str) -> Result<()> {
        self.event_async(&updated(uri)).await
    }
}

fn message(level: MessageLevel, data: Value) -> PluginEvent {
    PluginEvent::Log(Message {
        level: level.as_str().to_owned(),
        logger: None,
        data,
    })
}

fn change_event(lists: &[List]) -> PluginEvent {
    PluginEvent::CatalogChanged {
        sessions: Vec::new(),
        what: lists.iter().map(|list| list.as_str().to_owned()).collect(),
    }
}

fn updated(uri: &str) -> PluginEvent {
    PluginEvent::ResourceUpdated {
        uri: uri.to_owned(),
        sessions: Vec::new(),
    }
}
