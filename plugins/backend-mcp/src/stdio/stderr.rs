//! What a server wrote to its standard error: drained always, and the end of it kept.
//!
//! A pipe that nobody reads stops the server that writes to it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::secrets::Secrets;

/// The most lines that are kept, and the most bytes of one.
const MAX_LINES: usize = 100;
const MAX_LINE_BYTES: usize = 2 * 1024;
/// The most bytes that are shown of a line from elsewhere.
const MAX_NOTED_BYTES: usize = 200;

/// The last lines of a server's standard error.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrTail {
    lines: Arc<Mutex<VecDeque<String>>>,
    secrets: Secrets,
}

impl StderrTail {
    /// An empty tail that shows none of these.
    pub(crate) fn with_secrets(secrets: Secrets) -> Self {
        Self {
            lines: Arc::default(),
            secrets,
        }
    }

    /// The last lines, the oldest first.
    pub(crate) fn last_lines(&self, lines: usize) -> Vec<String> {
        let kept = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let from = kept.len().saturating_sub(lines);
        kept.iter().skip(from).cloned().collect()
    }

    /// A reason with the last words of the server.
    pub(crate) fn annotate(&self, why: &str, lines: usize) -> String {
        let lines = self.last_lines(lines);
        if lines.is_empty() {
            return why.to_owned();
        }
        format!("{why}; it wrote: {}", lines.join(" | "))
    }

    /// The beginning of a line that the server wrote elsewhere, behind a word of the host's own.
    pub(crate) fn push_excerpt(&self, what: &str, line: &[u8]) {
        let shown = line.get(..MAX_NOTED_BYTES).unwrap_or(line);
        let text = format!("{what} {}", String::from_utf8_lossy(shown));
        self.push(&text, shown.len() < line.len());
    }

    /// Reads until the end.
    pub(crate) async fn drain(self, mut from: impl AsyncRead + Unpin) {
        let mut piece = vec![0; 8 * 1024];
        let mut line = Vec::new();
        let mut is_cut = false;
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            for byte in piece.get(..read).unwrap_or_default() {
                if *byte == b'\n' {
                    self.push(&String::from_utf8_lossy(&line), is_cut);
                    line.clear();
                    is_cut = false;
                } else if line.len() < MAX_LINE_BYTES {
                    line.push(*byte);
                } else {
                    is_cut = true;
                }
            }
        }
        if !line.is_empty() {
            self.push(&String::from_utf8_lossy(&line), is_cut);
        }
    }

    fn push(&self, line: &str, is_cut: bool) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let text = if is_cut {
            self.secrets.redact_truncated(line.to_owned())
        } else {
            self.secrets.redact(line.to_owned())
        };
        let mut kept = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_LINES {
            kept.pop_front();
        }
        kept.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_is_kept_and_secrets_are_not() {
        let tail = StderrTail::with_secrets(Secrets::new(["hunter2"]));
        let mut text: String = (0..1_000).map(|n| format!("line {n}\n")).collect();
        text.push_str("the key is hunter2, without a line break");
        tail.clone().drain(text.as_bytes()).await;
        let last = tail.last_lines(2);
        assert_eq!(
            last,
            ["line 999", "the key is [secret], without a line break"]
        );
        assert_eq!(tail.last_lines(1_000).len(), MAX_LINES);
    }

    #[tokio::test]
    async fn half_a_secret_at_the_end_of_a_line_that_is_cut_is_none() {
        let tail = StderrTail::with_secrets(Secrets::new(["hunter2-hunter2"]));
        let long = format!("{}hunter2-hunter2", "x".repeat(MAX_LINE_BYTES - 9));
        tail.clone().drain(long.as_bytes()).await;
        let long = format!("{}hunter2-hunter2", "x".repeat(MAX_NOTED_BYTES - 9));
        tail.push_excerpt("[noted]", long.as_bytes());
        for line in tail.last_lines(2) {
            assert!(line.ends_with("xx[secret]"), "{line}");
        }
    }
}
