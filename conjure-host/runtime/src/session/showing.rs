//! What a session shows while a turn runs: pieces of the reply, output of calls, files.

use conjure_abi::EmitKind;
use conjure_core::chat::{Event, StreamEvent};
use conjure_core::log::EntryBody;

use super::actor::Actor;
use super::model::Piece;
use crate::artifacts::Artifact;

/// Bytes of live output of one call that subscribers see; the result holds more.
pub(super) const LIVE_BYTES: usize = 256 * 1024;

impl Actor {
    pub(super) fn file(&mut self, artifact: &Artifact, source: &str, call_id: Option<&str>) {
        let call_id = call_id.map(str::to_owned);
        self.recorder.entry(EntryBody::File {
            artifact: artifact.reference(),
            source: source.to_owned(),
            call_id: call_id.clone(),
            place: artifact
                .path
                .as_ref()
                .map(|path| path.display().to_string()),
            remote: artifact.remote.clone(),
        });
        self.recorder.event(Event::File {
            artifact: artifact.reference(),
            source: source.to_owned(),
            call_id,
        });
    }

    pub(super) fn output(&mut self, call_id: String, kind: EmitKind, bytes: &[u8]) {
        let shown = self.live.entry(call_id.clone()).or_default();
        if *shown >= LIVE_BYTES {
            return;
        }
        *shown += bytes.len();
        let end = if *shown >= LIVE_BYTES {
            "\n[more output is not shown live]\n"
        } else {
            ""
        };
        let stream = match kind {
            EmitKind::Stdout => "stdout",
            EmitKind::Stderr => "stderr",
            EmitKind::Event => "progress",
        };
        self.recorder.event(Event::ToolOutput {
            call_id,
            stream: stream.to_owned(),
            chunk: format!("{}{end}", String::from_utf8_lossy(bytes)),
        });
    }

    /// Shows what came of the running reply.
    pub(super) fn take_pieces(&mut self) {
        let Some(request) = &self.request else { return };
        for piece in request.pieces().take() {
            match piece {
                Piece::Stream(StreamEvent::Content { delta }) => {
                    self.recorder.event(Event::Content { delta });
                }
                Piece::Stream(StreamEvent::Thinking { delta }) => {
                    self.recorder.event(Event::Thinking { delta });
                }
                Piece::Stream(_) => {}
                Piece::Notice(text) => self.recorder.event(Event::Notice { text }),
            }
        }
    }
}
