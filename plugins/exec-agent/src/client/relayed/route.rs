//! A way to a relay, and what is said there before the stream goes on.

use std::io;
use std::time::Duration;

use conjure_process_tree::frame::Frames;
use conjure_skill_sdk::protocol::SkillMount;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::skills;
use super::stream::ResumableStream;
use crate::relay::{RELAY_VERSION, RelayFrame};

/// How long a relay may take to answer, the end of an agent before included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// The way of a session to its relay, for the first connection and all later ones.
pub trait RelayRoute: Send + Sync + 'static {
    /// Carrier of a connection.
    type Carrier: RelayCarrier;

    /// Description of the target, for people.
    fn target(&self) -> &str;

    /// Tells whoever waits for a call of the session, and the log.
    fn notify(&self, text: &str);

    /// Another connection to a stream, and how far that was read over there.
    fn attach(
        &self,
        stream: &ResumableStream,
    ) -> impl Future<Output = Result<(Relayed<Self::Carrier>, u64), RouteFailure>> + Send;

    /// Time for which a lost connection is tried again.
    fn retry_time(&self) -> Duration;

    /// How often the relay is asked whether it is there, where nothing below does that.
    fn probe_interval(&self) -> Option<Duration> {
        None
    }
}

/// Carries bytes to a program over there and back.
pub trait RelayCarrier: Send + 'static {
    /// Writing half of the connection.
    type Input: AsyncWrite + Unpin + Send;
    /// Reading half of the connection.
    type Output: AsyncRead + Unpin + Send;

    /// Both ends; no input where nothing more is to be written.
    fn streams(&mut self) -> (Option<&mut Self::Input>, &mut Self::Output);

    /// Standard error of the carrier, at its end.
    fn into_stderr(self) -> impl Future<Output = String> + Send;
}

/// Reason why a connection was not made.
#[derive(Debug, Clone)]
pub struct RouteFailure {
    /// The words for people.
    pub text: String,
    /// Whether somebody who comes again may find it better.
    pub is_transient: bool,
}

/// A connection over which a stream goes on.
#[derive(Debug)]
pub struct Relayed<C> {
    /// Carrier of the connection.
    pub carrier: C,
    pub(super) frames: Frames,
}

impl<C: RelayCarrier> Relayed<C> {
    /// A connection of which these bytes came already.
    pub fn new(carrier: C, rest: &[u8]) -> Self {
        let mut frames = Frames::default();
        frames.push(rest);
        Self { carrier, frames }
    }

    /// Says who comes, and hears what the relay says to that.
    pub async fn handshake(&mut self, token: &str, stream: &ResumableStream) -> Option<RelayFrame> {
        let hello = RelayFrame::Hello {
            version: RELAY_VERSION,
            token: token.to_owned(),
            stream: stream.number,
            received: stream.received(),
        };
        self.send_frame(&hello).await;
        self.next_reply().await
    }

    /// Sends what a session needs over there, to a relay that is vacant.
    ///
    /// # Errors
    /// When its skills cannot be read or sent.
    pub async fn begin(
        &mut self,
        skills: &[SkillMount],
        working_dir: Option<String>,
    ) -> io::Result<Option<RelayFrame>> {
        if let Err(error) = skills::send(skills, self).await {
            // Whoever refuses what comes says why.
            return match self.next_reply().await {
                Some(refused @ RelayFrame::Refused(_)) => Ok(Some(refused)),
                _ => Err(error),
            };
        }
        self.send_frame(&RelayFrame::Begin(working_dir)).await;
        Ok(self.next_reply().await)
    }

    /// Sends a frame. Where nobody hears it, nothing comes back.
    pub async fn send_frame(&mut self, frame: &RelayFrame) {
        let _ = self.send(&frame.encode()).await;
    }

    /// Sends what was encoded.
    pub(super) async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.carrier.streams().0 {
            Some(input) => input.write_all(frame).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// What the relay answers; nothing when the connection is over or nothing comes.
    pub async fn next_reply(&mut self) -> Option<RelayFrame> {
        let hearing = async {
            loop {
                if let Some(frame) = self.frames.next_frame().ok()? {
                    return RelayFrame::decode(frame).ok();
                }
                let mut buffer = Vec::with_capacity(1024);
                match self.carrier.streams().1.read_buf(&mut buffer).await {
                    Ok(1..) => self.frames.push(&buffer),
                    Ok(0) | Err(_) => return None,
                }
            }
        };
        tokio::time::timeout(ANSWER_TIMEOUT, hearing)
            .await
            .ok()
            .flatten()
    }
}

/// About so long, so that many who wait do not come back together.
#[must_use]
pub fn jittered(time: Duration) -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    let thousandths = u32::try_from(random % 1_000).unwrap_or_default();
    time / 2 + time * thousandths / 1_000
}
