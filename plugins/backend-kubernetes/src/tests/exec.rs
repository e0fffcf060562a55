//! A program in a pod over a WebSocket: the channels of Kubernetes in frames of RFC 6455.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Ends a channel, in the fifth version.
const CLOSE: u8 = 255;

const BINARY: u8 = 0x2;
const CLOSING: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Runs the program to its end, or to that of the connection, with which its input ends.
pub(super) async fn run(stream: TcpStream, mut program: Command) {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let (from, mut to) = stream.into_split();
    let (sender, mut frames) = mpsc::channel::<Vec<u8>>(4);
    let reading = tokio::spawn(read(from, input, sender.clone()));
    let writing = tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            if to.write_all(&frame).await.is_err() {
                return;
            }
        }
        let _ = to.write_all(&frame(CLOSING, &[])).await;
    });
    let out = tokio::spawn(copy(STDOUT, child.stdout.take().unwrap(), sender.clone()));
    let err = tokio::spawn(copy(STDERR, child.stderr.take().unwrap(), sender.clone()));
    let status = child.wait().await.unwrap();
    let _ = (out.await, err.await);
    let said = [
        vec![STATUS],
        status_of(status.code()).to_string().into_bytes(),
    ]
    .concat();
    let _ = sender.send(frame(BINARY, &said)).await;
    reading.abort();
    drop(sender);
    let _ = (reading.await, writing.await);
}

fn status_of(code: Option<i32>) -> Value {
    if code == Some(0) {
        return json!({ "metadata": {}, "status": "Success" });
    }
    let code = code.unwrap_or(137).to_string();
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": { "causes": [{ "reason": "ExitCode", "message": code }] },
    })
}

async fn copy(channel: u8, mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let piece = [&[channel], &buffer[..length]].concat();
        if to.send(frame(BINARY, &piece)).await.is_err() {
            // As a container runtime does: what nobody takes is thrown away.
            continue;
        }
    }
}

/// Hands over what comes for the program's input, until that or the connection ends.
async fn read(mut from: OwnedReadHalf, input: ChildStdin, to: mpsc::Sender<Vec<u8>>) {
    let mut input = Some(input);
    while let Some((kind, bytes)) = next(&mut from).await {
        match (kind, bytes.as_slice()) {
            (PING, _) => {
                let _ = to.send(frame(PONG, &bytes)).await;
            }
            (CLOSING, _) => return,
            (_, [STDIN, piece @ ..]) => {
                if let Some(input) = &mut input
                    && input.write_all(piece).await.is_err()
                {
                    continue;
                }
            }
            (_, [CLOSE, STDIN]) => input = None,
            _ => {}
        }
    }
}

/// The next frame of a client.
async fn next(from: &mut OwnedReadHalf) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    from.read_exact(&mut head).await.ok()?;
    let length = match head[1] & 0x7f {
        126 => u64::from(from.read_u16().await.ok()?),
        127 => from.read_u64().await.ok()?,
        length => u64::from(length),
    };
    assert!(head[1] & 0x80 != 0, "a client masks what it sends");
    let mut mask = [0; 4];
    from.read_exact(&mut mask).await.ok()?;
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut bytes).await.ok()?;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[at % 4];
    }
    Some((head[0] & 0x0f, bytes))
}

fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | kind];
    match u16::try_from(bytes.len()) {
        Ok(length @ 0..126) => frame.push(length as u8),
        Ok(length) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        Err(_) => {
            frame.push(127);
            frame.extend((bytes.len() as u64).to_be_bytes());
        }
    }
    frame.extend(bytes);
    frame
}
