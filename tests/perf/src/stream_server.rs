//! A provider in a process of its own that streams at a given pace: what it needs counts for
//! nobody else. Each delta says when it was sent, by a clock that all processes share.
//!
//! Speaks the Anthropic wire, as far as a plain answer goes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// The most bytes of a request.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Nanoseconds since some moment, the same in every process of this machine.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// What a person says to get so many deltas, so far apart.
pub(crate) fn ask(deltas: usize, apart: Duration) -> String {
    format!("[{deltas} deltas every {} us]", apart.as_micros())
}

/// When the deltas in a text were sent.
pub(crate) fn sent_ns(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.split_whitespace().filter_map(|sent| sent.parse().ok())
}

/// The server as a process. It ends with this value.
pub(crate) struct StreamServer {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(crate) url: String,
}

impl StreamServer {
    pub(crate) fn start() -> Result<Self> {
        let own = std::env::current_exe().context("this program has no path")?;
        let mut child = Command::new(own)
            .arg("--stream-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the streaming server could not be started")?;
        let stdout = child.stdout.take().context("it has no output")?;
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url)?;
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            url: url.trim().to_owned(),
        })
    }
}

impl Drop for StreamServer {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.spawn(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        {
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "http://{}", listener.local_addr()?)?;
            stdout.flush()?;
        }
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(connection(stream));
        }
        #[expect(unreachable_code, reason = "the type of the errors above")]
        anyhow::Ok(())
    });
    let mut nothing = String::new();
    std::io::stdin().read_line(&mut nothing)?;
    runtime.shutdown_background();
    Ok(())
}

/// A connection with one request after the other.
async fn connection(mut stream: TcpStream) -> Result<()> {
    let mut read = Vec::new();
    loop {
        let Some(body) = request(&mut stream, &mut read).await? else {
            return Ok(());
        };
        answer(&mut stream, &String::from_utf8_lossy(&body)).await?;
    }
}

/// The body of the next request; nothing when there is none any more.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
    let mut part = vec![0; 16 * 1024];
    loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(read.get(..end).unwrap_or_default()).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
                .unwrap_or(0_usize);
            if read.len() >= end + 4 + length {
                let rest = read.split_off(end + 4 + length);
                let whole = std::mem::replace(read, rest);
                return Ok(whole.get(end + 4..).map(<[u8]>::to_vec));
            }
        }
        let count = stream.read(&mut part).await?;
        if count == 0 {
            return Ok(None);
        }
        read.extend_from_slice(part.get(..count).unwrap_or_default());
        anyhow::ensure!(read.len() < MAX_REQUEST_BYTES, "the request is too large");
    }
}

/// How many deltas the newest message asks for, and how far apart.
fn parse_deltas(body: &str) -> (u64, Duration) {
    let newest = body
        .rsplit_once(" deltas every ")
        .and_then(|(before, after)| {
            let (_, deltas) = before.rsplit_once('[')?;
            let (apart, _) = after.split_once(" us]")?;
            Some((deltas.parse().ok()?, apart.parse().ok()?))
        });
    let (deltas, apart) = newest.unwrap_or((1, 0));
    (deltas, Duration::from_micros(apart))
}

async fn answer(stream: &mut TcpStream, body: &str) -> Result<()> {
    let (deltas, apart) = parse_deltas(body);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let text = json!({ "type": "text", "text": "" });
    let mut begin = event(&json!({ "type": "message_start", "message": message }));
    begin.push_str(&event(&json!({
        "type": "content_block_start", "index": 0, "content_block": text,
    })));
    stream.write_all(begin.as_bytes()).await?;
    let begun = Instant::now();
    for number in 0..deltas {
        if !apart.is_zero() {
            let at = apart * u32::try_from(number).unwrap_or(u32::MAX);
            sleep_until(begun + at).await;
        }
        let delta = json!({ "type": "text_delta", "text": format!("{} ", now_ns()) });
        let delta = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
        stream.write_all(event(&delta).as_bytes()).await?;
    }
    let mut end = event(&json!({ "type": "content_block_stop", "index": 0 }));
    end.push_str(&event(&json!({
        "type": "message_delta",
        "delta": { "stop_reason": "end_turn", "stop_sequence": null },
        "usage": { "output_tokens": deltas },
    })));
    end.push_str(&event(&json!({ "type": "message_stop" })));
    end.push_str("0\r\n\r\n");
    stream.write_all(end.as_bytes()).await?;
    Ok(())
}

/// An event as one chunk.
fn event(data: &Value) -> String {
    let kind = data.get("type").and_then(Value::as_str).unwrap_or_default();
    let event = format!("event: {kind}\ndata: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_says_the_pace() {
        let apart = Duration::from_micros(33_333);
        let body = format!("{} then {}", ask(1, Duration::ZERO), ask(300, apart));
        assert_eq!(parse_deltas(&body), (300, apart));
        assert_eq!(sent_ns("123 456 ").collect::<Vec<_>>(), [123, 456]);
    }
}
