//! The context of a call: who asks, where to work, and the way back to the host.
//!
//! Methods without a suffix block the calling thread and are for skills and other blocking code;
//! those that end in `_async` are for executors and backends.

mod events;
mod host;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use conjure_abi::{CallContext, EmitKind, EmitStatus, LogLevel, RResult, RSlice, code};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::block_on::block_on;
use crate::envelope::{Envelope, EnvelopeField};
use crate::error::{Error, Result, from_fault};
use crate::protocol::{Empty, INLINE_LIMIT, PluginEvent, Request, ServedClient, host_op};

/// The context of a call. Cloning it is cheap, and a clone may outlive the call; then everything
/// that it does fails with [`conjure_abi::code::GONE`].
#[derive(Clone)]
pub struct Cx {
    raw: CallContext,
    envelope: Envelope,
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("envelope", &self.envelope)
            .finish_non_exhaustive()
    }
}

impl Cx {
    pub(crate) fn new(raw: CallContext, envelope: Envelope) -> Self {
        Self { raw, envelope }
    }

    /// The session that asks.
    pub fn session(&self) -> Option<&str> {
        self.envelope.get(EnvelopeField::Session)
    }

    /// The tool call that this is for.
    pub fn call_id(&self) -> Option<&str> {
        self.envelope.get(EnvelopeField::CallId)
    }

    /// The session's working directory.
    pub fn working_dir(&self) -> Option<&Path> {
        self.envelope.get(EnvelopeField::WorkingDir).map(Path::new)
    }

    /// The directory of the skill that the call is for.
    pub fn skill_dir(&self) -> Option<&Path> {
        self.envelope.get(EnvelopeField::SkillDir).map(Path::new)
    }

    /// Where payloads over 64 KiB cross as files.
    pub fn exchange_dir(&self) -> Option<&Path> {
        self.envelope.get(EnvelopeField::ExchangeDir).map(Path::new)
    }

    /// What was left of the call's time when it began.
    pub fn time_limit(&self) -> Option<Duration> {
        (self.envelope.deadline_ms > 0).then(|| Duration::from_millis(self.envelope.deadline_ms))
    }

    /// The program on the other side of the session, such as an MCP client that the host serves.
    pub fn client(&self) -> Option<ServedClient> {
        self.envelope.client
    }

    /// The whole envelope, as the protocol has it.
    pub fn envelope(&self) -> Request<()> {
        self.envelope.to_request()
    }

    /// Whether the call was cancelled.
    pub fn cancelled(&self) -> bool {
        self.raw.cancelled()
    }

    /// Fails when the call was cancelled: `cx.check()?` in a loop.
    ///
    /// # Errors
    /// [`conjure_abi::code::CANCELLED`].
    pub fn check(&self) -> Result<()> {
        if self.cancelled() {
            Err(Error::cancelled())
        } else {
            Ok(())
        }
    }

    /// Becomes ready when the call is cancelled or over.
    pub async fn until_cancelled(&self) {
        let _ = self
            .host_async::<_, Empty>(host_op::CALL_CANCELLED, &Empty {})
            .await;
    }

    /// Hands over bytes of standard output, and waits while the host is busy with earlier ones.
    ///
    /// # Errors
    /// [`conjure_abi::code::CANCELLED`] when nobody wants them any more.
    pub fn stdout(&self, bytes: &[u8]) -> Result<()> {
        block_on(self.stdout_async(bytes))
    }

    /// Hands over bytes of standard error.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub fn stderr(&self, bytes: &[u8]) -> Result<()> {
        block_on(self.stderr_async(bytes))
    }

    /// Hands over an event.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub fn event(&self, event: &PluginEvent) -> Result<()> {
        block_on(self.event_async(event))
    }

    /// [`Cx::stdout`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn stdout_async(&self, bytes: &[u8]) -> Result<()> {
        self.emit_async(EmitKind::Stdout, bytes).await
    }

    /// [`Cx::stderr`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn stderr_async(&self, bytes: &[u8]) -> Result<()> {
        self.emit_async(EmitKind::Stderr, bytes).await
    }

    /// [`Cx::event`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn event_async(&self, event: &PluginEvent) -> Result<()> {
        self.emit_async(EmitKind::Event, &serde_json::to_vec(event)?)
            .await
    }

    /// Hands over output of any kind and waits while the host is busy with earlier pieces. Bytes
    /// of standard output and error go in pieces of at most 64 KiB; an event goes whole.
    ///
    /// # Errors
    /// As [`Cx::stdout`].
    pub async fn emit_async(&self, kind: EmitKind, bytes: &[u8]) -> Result<()> {
        match kind {
            EmitKind::Event => self.emit_piece(kind, bytes).await,
            EmitKind::Stdout | EmitKind::Stderr => {
                for piece in bytes.chunks(INLINE_LIMIT) {
                    self.emit_piece(kind, piece).await?;
                }
                Ok(())
            }
        }
    }

    async fn emit_piece(&self, kind: EmitKind, bytes: &[u8]) -> Result<()> {
        loop {
            match self.try_emit(kind, bytes) {
                EmitStatus::Ok => return Ok(()),
                EmitStatus::Cancelled => return Err(Error::cancelled()),
                EmitStatus::Full => {
                    match self
                        .host_async::<_, Empty>(host_op::CALL_WRITABLE, &Empty {})
                        .await
                    {
                        Ok(_) => {}
                        Err(error) if error.code() == code::GONE => return Err(Error::cancelled()),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Hands over a piece of output without waiting.
    pub fn try_emit(&self, kind: EmitKind, bytes: &[u8]) -> EmitStatus {
        EmitStatus::from_number(self.raw.emit(kind as u32, RSlice::from_slice(bytes)))
    }

    /// Writes a line to the host's log.
    pub fn log(&self, level: LogLevel, message: impl AsRef<str>) {
        self.raw.log(
            level as u32,
            RSlice::from_slice(b""),
            RSlice::from_slice(message.as_ref().as_bytes()),
        );
    }

    /// Asks for a host operation and waits for it.
    ///
    /// # Errors
    /// The host's fault, or [`conjure_abi::code::INVALID`] when request or reply do not fit.
    pub fn host<Q: Serialize, R: DeserializeOwned>(&self, op: &str, request: &Q) -> Result<R> {
        block_on(self.host_async(op, request))
    }

    /// Asks for a host operation.
    ///
    /// # Errors
    /// As [`Cx::host`].
    pub async fn host_async<Q: Serialize, R: DeserializeOwned>(
        &self,
        op: &str,
        request: &Q,
    ) -> Result<R> {
        let json = serde_json::to_vec(request)?;
        let pending = self
            .raw
            .host(RSlice::from_slice(op.as_bytes()), RSlice::from_slice(&json));
        match pending.await {
            RResult::ROk(reply) => serde_json::from_slice(&reply)
                .map_err(|e| Error::invalid(format!("the host's reply to {op} does not fit: {e}"))),
            RResult::RErr(fault) => Err(from_fault(&fault)),
        }
    }
}
