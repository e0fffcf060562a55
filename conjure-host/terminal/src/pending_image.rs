//! The image that is read to be shown. What is told after it waits for it, keys do not.

use std::path::PathBuf;

use tokio::task::JoinHandle;

use crate::image::{self, ImageProtocol};
use crate::text::Line;

/// An image on its way to the screen, if there is one.
pub(crate) struct PendingImage {
    /// How the terminal is given images; nothing where it cannot show any.
    protocol: Option<ImageProtocol>,
    reading: Option<JoinHandle<Vec<Line>>>,
}

impl PendingImage {
    pub(crate) fn new(protocol: Option<ImageProtocol>) -> Self {
        Self {
            protocol,
            reading: None,
        }
    }

    /// Reads one aside, for a terminal of so many columns and rows: a disk may be slow.
    pub(crate) fn read(&mut self, name: String, path: PathBuf, size: (usize, usize)) {
        let protocol = self.protocol;
        let read = move || image::lines(&name, &path, protocol, size);
        self.reading = Some(tokio::task::spawn_blocking(read));
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// What there is to be shown of it; for ever where none is read. May be dropped and called again.
    pub(crate) async fn lines(&mut self) -> Vec<Line> {
        let Some(reading) = &mut self.reading else {
            return std::future::pending().await;
        };
        let lines = reading.await.unwrap_or_default();
        self.reading = None;
        lines
    }
}
