//! A call about files on an agent, as an executor sees it: what goes in as far as there is room, what
//! comes out, and an end with its call, its session or its time.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::FileRef;

use super::command::{CANCEL_MARGIN, END_MARGIN, cancelled};
use super::{AgentLink, RemoteCall};
use crate::error::AgentError;
use crate::frame::AgentFrame;
use crate::message::{AgentReply, AgentRequest};
use crate::{PIECE, WINDOW};

/// Bytes that go in.
pub type ByteSource<'s> = Option<Box<dyn Read + Send + 's>>;

/// Reasons why a call about files has no reply.
#[derive(Debug)]
pub enum TransferError {
    /// The agent could not do it.
    Fault(AgentError),
    /// The time of the call was over.
    TimedOut,
    /// A file on this side could not be read or written.
    File(io::Error),
    /// The agent went.
    AgentGone,
    /// The agent says nothing although the time of the call is over.
    Stuck,
    /// The call was cancelled, and the agent has not said in time that it is over.
    CancelUnconfirmed,
}

/// Makes a call to its end, which comes early with the call's cancel, when `over` is ready, or at
/// `until`. What `source` has goes in, and what comes out goes to `to`.
///
/// # Errors
/// When there is no reply.
pub async fn transfer(
    cx: &Cx,
    link: &Arc<AgentLink>,
    request: &AgentRequest,
    source: ByteSource<'_>,
    mut to: Option<&mut File>,
    over: impl Future<Output = ()>,
    until: Instant,
) -> Result<AgentReply, TransferError> {
    let mut call = link.call(request);
    let mut sending = Sending {
        source,
        credit: WINDOW as usize,
    };
    let ending = async {
        tokio::select! {
            () = cancelled(cx) => {}
            () = over => {}
        }
    };
    let mut ending = std::pin::pin!(ending);
    let mut limit = std::pin::pin!(tokio::time::sleep_until(until.into()));
    // Whether it was told to stop, and whether its time was over then.
    let (mut told, mut late) = (false, false);
    loop {
        sending.send(&call).map_err(TransferError::File)?;
        let is_late = tokio::select! {
            frame = call.next() => match frame {
                Some(AgentFrame::Credit(more)) => {
                    sending.credit += more as usize;
                    continue;
                }
                Some(AgentFrame::Data(bytes)) => {
                    if let Some(file) = &mut to {
                        let written = tokio::task::block_in_place(|| file.write_all(&bytes));
                        written.map_err(TransferError::File)?;
                    }
                    continue;
                }
                Some(AgentFrame::Reply(bytes)) => {
                    let reply = AgentReply::decode(&bytes);
                    return reply.map_err(|error| TransferError::Fault(error.into()));
                }
                Some(AgentFrame::Fault(_)) if late => return Err(TransferError::TimedOut),
                Some(AgentFrame::Fault(error)) => return Err(TransferError::Fault(error)),
                Some(_) => continue,
                None => return Err(TransferError::AgentGone),
            },
            () = &mut ending, if !told => false,
            () = &mut limit => true,
        };
        if told {
            return Err(if late {
                TransferError::Stuck
            } else {
                TransferError::CancelUnconfirmed
            });
        }
        (told, late) = (true, is_late);
        call.send(&AgentFrame::Cancel);
        let ending = if late { END_MARGIN } else { CANCEL_MARGIN };
        limit.as_mut().reset((Instant::now() + ending).into());
    }
}

/// Bytes that are sent, as far as there is credit.
struct Sending<'s> {
    source: ByteSource<'s>,
    credit: usize,
}

impl Sending<'_> {
    fn send(&mut self, call: &RemoteCall) -> io::Result<()> {
        while let Some(source) = &mut self.source
            && self.credit > 0
        {
            let mut piece = vec![0; self.credit.min(PIECE)];
            let length = tokio::task::block_in_place(|| source.read(&mut piece))?;
            if length == 0 {
                self.source = None;
                call.send(&AgentFrame::End);
            } else {
                piece.truncate(length);
                self.credit -= length;
                call.send(&AgentFrame::Data(piece));
            }
        }
        Ok(())
    }
}

/// A file that is where the agent is, to be fetched when somebody asks for it. One that changed is
/// another one than the one that may have been fetched, also by an earlier session on the thread; and
/// whoever finds it in the same `state` finds the same. Without that it is one of its own.
#[must_use]
pub fn remote_file(path: &str, state: Option<u64>) -> FileRef {
    static STARTED_AT: LazyLock<u128> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_millis()
    });
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = match state {
        Some(state) => state.to_string(),
        None => format!("{}{:06}", *STARTED_AT, NEXT.fetch_add(1, Ordering::Relaxed)),
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    FileRef::lazy(format!("{number}:{path}"), name)
}

/// The path that the id of such a file names.
#[must_use]
pub fn remote_path(id: &str) -> &str {
    match id.split_once(':') {
        Some((number, path)) if number.bytes().all(|byte| byte.is_ascii_digit()) => path,
        _ => id,
    }
}
