//! The way to the agent.
//!
//! What the stream takes at once is written by whoever sends it, on whatever thread that is: a call
//! then reaches the agent without a change of thread. The rest waits here for the task that writes
//! it, and so does all that is sent behind it.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use super::link::AgentInput;

/// Frames on their way out.
pub(super) struct Outgoing {
    stream: Mutex<OutgoingStream>,
    /// Wakes the task that sends.
    wake_sender: Notify,
}

struct OutgoingStream {
    /// Nothing once it broke, which whoever reads from the agent finds out.
    input: Option<AgentInput>,
    /// What was not taken. It is bounded: a call sends its request, what it has credit for, and a
    /// word or two.
    leftover: VecDeque<u8>,
    /// Whether the stream is the task's, until all of the rest is out.
    owned_by_task: bool,
}

impl Outgoing {
    pub(super) fn new(input: AgentInput) -> Self {
        Self {
            stream: Mutex::new(OutgoingStream {
                input: Some(input),
                leftover: VecDeque::new(),
                owned_by_task: false,
            }),
            wake_sender: Notify::new(),
        }
    }

    /// Sends a frame, whole and behind those before it.
    pub(super) fn send(&self, frame: &[u8]) {
        let mut stream = self.lock();
        if stream.input.is_none() {
            return;
        }
        stream.leftover.extend(frame);
        if !stream.owned_by_task {
            // Nobody is woken by this: what is left is the task's from then on.
            let mut nobody = Context::from_waker(Waker::noop());
            stream.owned_by_task = stream.poll_out(&mut nobody).is_pending();
            if stream.owned_by_task {
                self.wake_sender.notify_one();
            }
        }
    }

    /// Waits until something is left, and writes it.
    pub(super) async fn write_rest(&self) {
        if !self.lock().owned_by_task {
            self.wake_sender.notified().await;
        }
        poll_fn(|cx| {
            let mut stream = self.lock();
            ready!(stream.poll_out(cx));
            stream.owned_by_task = false;
            Poll::Ready(())
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, OutgoingStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutgoingStream {
    /// Writes the rest as far as it is taken; pending when some is left.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(input) = &mut self.input else {
            return Poll::Ready(());
        };
        let written = poll_all(input.as_mut(), &mut self.leftover, cx);
        if ready!(written).is_err() {
            self.input = None;
            self.leftover = VecDeque::new();
        }
        Poll::Ready(())
    }
}

fn poll_all(
    mut input: Pin<&mut (dyn AsyncWrite + Send)>,
    rest: &mut VecDeque<u8>,
    cx: &mut Context<'_>,
) -> Poll<std::io::Result<()>> {
    while !rest.is_empty() {
        let (bytes, _) = rest.as_slices();
        match ready!(input.as_mut().poll_write(cx, bytes))? {
            0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
            count => drop(rest.drain(..count)),
        }
    }
    input.poll_flush(cx)
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_fits_is_written_at_once_and_the_rest_by_the_task_in_order() {
        let (input, mut output) = tokio::io::duplex(4);
        let outgoing = Outgoing::new(Box::pin(input));
        outgoing.send(b"abc");
        // Nobody else has run since.
        assert_eq!(output.read_u8().await.unwrap(), b'a');
        outgoing.send(b"defg");
        outgoing.send(b"h");
        assert!(outgoing.lock().owned_by_task);
        let mut read = [0; 7];
        let (_, all) = tokio::join!(outgoing.write_rest(), output.read_exact(&mut read));
        all.unwrap();
        assert_eq!(&read, b"bcdefgh");
        assert!(!outgoing.lock().owned_by_task);
        outgoing.send(b"i");
        assert_eq!(output.read_u8().await.unwrap(), b'i');
    }

    #[tokio::test]
    async fn the_task_hears_of_the_rest_and_goes_on_whatever_is_sent_meanwhile() {
        let (input, mut output) = tokio::io::duplex(4);
        let outgoing = Arc::new(Outgoing::new(Box::pin(input)));
        let writes = Arc::clone(&outgoing);
        let task = tokio::spawn(async move {
            loop {
                writes.write_rest().await;
            }
        });
        // It waits for something to do, and then for room.
        yield_now().await;
        outgoing.send(b"abcdefghij");
        let reading = async {
            let (mut begin, mut rest) = ([0; 5], [0; 6]);
            output.read_exact(&mut begin).await.unwrap();
            yield_now().await;
            outgoing.send(b"k");
            output.read_exact(&mut rest).await.unwrap();
            (begin, rest)
        };
        let read = timeout(Duration::from_secs(30), reading).await;
        assert_eq!(read, Ok((*b"abcde", *b"fghijk")));
        task.abort();
    }

    #[tokio::test]
    async fn nothing_waits_for_a_stream_that_broke() {
        let (input, output) = tokio::io::duplex(4);
        let outgoing = Outgoing::new(Box::pin(input));
        outgoing.send(b"abcdef");
        drop(output);
        outgoing.write_rest().await;
        outgoing.send(b"x");
        let stream = outgoing.lock();
        assert!(stream.input.is_none() && stream.leftover.is_empty() && !stream.owned_by_task);
    }
}
