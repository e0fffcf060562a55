//! Performs an answer on the socket, act by act.
//!
//! Decides nothing: the acts come from `delivery`. While it waits it watches the client, so that a
//! client which leaves is noticed.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::delivery::SocketAction;
use crate::state::{Ledger, Outcome};

/// Performs an answer. True when the connection can serve another.
pub(crate) async fn perform(
    stream: &mut TcpStream,
    acts: Vec<SocketAction>,
    ledger: &Ledger,
) -> (Outcome, bool) {
    for act in acts {
        let interrupted = match act {
            SocketAction::Write(bytes) => write(stream, &bytes, ledger).await,
            SocketAction::Repeat(writes, times, pause) => {
                repeat(stream, &writes, times, pause, ledger).await
            }
            SocketAction::Pause(time) => wait(stream, tokio::time::sleep(time), ledger).await,
            SocketAction::Hold(token) => {
                ledger.change(|state| state.gate(&token).reached = true);
                let released = ledger.wait(|state| state.is_released(&token).then_some(()));
                wait(stream, released, ledger).await
            }
            SocketAction::Hang => wait(stream, std::future::pending(), ledger).await,
            SocketAction::Flood(bytes, pause) => {
                repeat(stream, &[bytes], u64::MAX, pause, ledger).await
            }
            SocketAction::Close => return (Outcome::Delivered, false),
            SocketAction::Eof => return (Outcome::Cut, false),
            SocketAction::Reset => {
                let _set = stream.set_zero_linger();
                return (Outcome::Cut, false);
            }
        };
        if let Some(outcome) = interrupted {
            return (outcome, false);
        }
    }
    (Outcome::Delivered, true)
}

async fn write(stream: &mut TcpStream, bytes: &[u8], ledger: &Ledger) -> Option<Outcome> {
    tokio::select! {
        () = ledger.until_closing() => Some(Outcome::ShutDown),
        written = stream.write_all(bytes) => written.is_err().then_some(Outcome::ClientGone),
    }
}

async fn repeat(
    stream: &mut TcpStream,
    writes: &[Vec<u8>],
    times: u64,
    pause: Duration,
    ledger: &Ledger,
) -> Option<Outcome> {
    for _ in 0..times {
        for bytes in writes {
            if let Some(outcome) = write(stream, bytes, ledger).await {
                return Some(outcome);
            }
        }
        // A timer takes at least a millisecond. Without a pause, a client that is gone is noticed by
        // the next write.
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else if let Some(outcome) = wait(stream, tokio::time::sleep(pause), ledger).await {
            return Some(outcome);
        }
    }
    None
}

/// Waits, unless the client goes away or the mock is shut down first.
async fn wait(
    stream: &TcpStream,
    what: impl Future<Output = ()>,
    ledger: &Ledger,
) -> Option<Outcome> {
    tokio::select! {
        () = what => None,
        () = wait_for_close(stream) => Some(Outcome::ClientGone),
        () = ledger.until_closing() => Some(Outcome::ShutDown),
    }
}

/// Resolves when the client has closed the connection. A client that sends its next request early
/// is not gone, and cannot be watched further.
async fn wait_for_close(stream: &TcpStream) {
    if let Ok(1..) = stream.peek(&mut [0]).await {
        std::future::pending::<()>().await;
    }
}
