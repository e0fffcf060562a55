//! Messages over two streams, one a line: bounded in length on the way in, and in number on the
//! way out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::Notify;

use super::too_long::{self, IdFinder};

/// Updates that may wait for a client to read them. The library's own queue has no bound.
const MAX_WAITING_UPDATES: usize = 256;
/// How every update is marked on its line; in a text the quotes are escaped.
const UPDATE_MARK: &str = "\"session/update\"";

/// How many updates were given to the library and not yet written.
#[derive(Debug, Default)]
pub(crate) struct Outflow {
    waiting: AtomicUsize,
    written: Notify,
    /// Nobody reads any more.
    closed: AtomicBool,
}

impl Outflow {
    /// Waits until there is room for an update, and takes it.
    pub(crate) async fn reserve(&self) {
        loop {
            let written = self.written.notified();
            let taken = self
                .waiting
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| {
                    (waiting < MAX_WAITING_UPDATES).then_some(waiting + 1)
                });
            if taken.is_ok() {
                return;
            }
            written.await;
        }
    }

    /// Whether the client has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn note_written(&self, line: &str) {
        if line.contains(UPDATE_MARK) {
            let _ = self
                .waiting
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| {
                    waiting.checked_sub(1)
                });
            self.written.notify_waiters();
        }
    }
}

/// Writes lines.
pub(crate) fn outgoing<W>(
    write: W,
    outflow: Arc<Outflow>,
) -> impl Sink<String, Error = io::Error> + Send + 'static
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    sink::unfold(
        (write, outflow),
        async |(mut write, outflow), line: String| {
            let mut bytes = line.into_bytes();
            bytes.push(b'\n');
            let written = async {
                write.write_all(&bytes).await?;
                write.flush().await
            };
            written.await.inspect_err(|error| {
                if error.kind() == io::ErrorKind::BrokenPipe {
                    outflow.closed.store(true, Ordering::Release);
                }
            })?;
            bytes.pop();
            outflow.note_written(&String::from_utf8_lossy(&bytes));
            Ok((write, outflow))
        },
    )
}

/// Reads lines. A request that is longer than `most` bytes is replaced by one that is answered with
/// that, and what is no request by words that are no message.
pub(crate) fn incoming<R>(
    read: R,
    most: usize,
) -> impl Stream<Item = io::Result<String>> + Send + 'static
where
    R: AsyncRead + Send + Unpin + 'static,
{
    stream::try_unfold(BufReader::new(read), move |mut read| async move {
        loop {
            let Some(line) = next_line(&mut read, most).await? else {
                return Ok(None);
            };
            if !line.trim().is_empty() {
                return Ok(Some((line, read)));
            }
        }
    })
}

async fn next_line<R: AsyncRead + Unpin>(
    read: &mut BufReader<R>,
    most: usize,
) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let limit = most as u64 + 1;
    let mut bounded = (&mut *read).take(limit);
    if bounded.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() > most {
        let mut finder = IdFinder::default();
        finder.read(&line);
        drop(line);
        skip_line(read, &mut finder).await?;
        let answered = too_long::replacement_line(&finder.finish(), most);
        return Ok(Some(answered.unwrap_or_else(|| {
            format!("a message of more than {most} bytes")
        })));
    }
    Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
}

/// Reads to the end of a line and keeps nothing of it but its id.
async fn skip_line<R: AsyncRead + Unpin>(
    read: &mut BufReader<R>,
    finder: &mut IdFinder,
) -> io::Result<()> {
    loop {
        let buffered = read.fill_buf().await?;
        if buffered.is_empty() {
            return Ok(());
        }
        let end = buffered.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffered.len(), |end| end + 1);
        finder.read(buffered.get(..taken).unwrap_or_default());
        read.consume(taken);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{SinkExt as _, StreamExt as _};

    use super::*;

    #[tokio::test]
    async fn a_client_that_closed_its_end_is_known_to_be_gone() {
        let outflow = Arc::new(Outflow::default());
        let (ours, theirs) = tokio::io::duplex(64);
        let mut sink = Box::pin(outgoing(ours, Arc::clone(&outflow)));
        sink.send("one".to_owned()).await.unwrap();
        assert!(!outflow.is_closed());
        drop(theirs);
        sink.send("two".to_owned()).await.unwrap_err();
        assert!(outflow.is_closed());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_left_out_and_the_next_one_is_read() {
        let input = "{\"a\":1}\n\n0123456789012345\nlast";
        let lines: Vec<String> = incoming(input.as_bytes(), 10)
            .map(|line| line.unwrap())
            .collect()
            .await;
        assert_eq!(
            lines,
            ["{\"a\":1}", "a message of more than 10 bytes", "last"]
        );
        let input = "{\"params\":\"0123456789\",\"id\":3}\nlast";
        let lines: Vec<String> = incoming(input.as_bytes(), 10)
            .map(|line| line.unwrap())
            .collect()
            .await;
        assert!(lines[0].contains("\"id\":3"), "{lines:?}");
        assert_eq!(lines[1], "last");
    }

    #[tokio::test]
    async fn updates_wait_for_a_client_that_does_not_read() {
        let outflow = Arc::new(Outflow::default());
        for _ in 0..MAX_WAITING_UPDATES {
            outflow.reserve().await;
        }
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let waiting = tokio::spawn({
            let outflow = Arc::clone(&outflow);
            async move { outflow.reserve().await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        let mut out = Box::pin(outgoing(ours, outflow));
        out.send(
            "{\"method\":\"session/request_permission\",\"t\":\"\\\"session/update\\\"\"}"
                .to_owned(),
        )
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        out.send("{\"method\":\"session/update\"}".to_owned())
            .await
            .unwrap();
        tokio::time::timeout(Duration::from_secs(5), waiting)
            .await
            .unwrap()
            .unwrap();
        drop(theirs);
    }
}
