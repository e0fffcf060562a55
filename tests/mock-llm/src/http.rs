//! Reading HTTP/1.1 requests from a socket: head, body by length or in chunks, keep-alive.
//!
//! By hand, because the answers need the bare socket: a library that owns the connection would not
//! let half a chunk out. Only what clients of a provider send is understood.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::request::Request;

/// The largest head that is read.
const MAX_HEAD: usize = 64 * 1024;
/// The largest body that is read; the provider's own limit is 32 MB.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// A connection and what was read beyond the last request.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

/// A request, and whether the client wants to go on after it.
pub(crate) struct Incoming {
    pub(crate) request: Request,
    pub(crate) keep_alive: bool,
}

/// Why a request could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the connection broke: {source}")]
    Broken {
        #[from]
        source: std::io::Error,
    },
    #[error("this is not an HTTP/1.1 request: {reason}")]
    Malformed { reason: String },
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next request; `None` when the client has closed the connection between two.
    pub(crate) async fn read(&mut self) -> Result<Option<Incoming>, ReadError> {
        let Some(head) = self.head().await? else {
            return Ok(None);
        };
        if head.expects_continue {
            self.stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        let raw_body = match head.length {
            Length::Known(length) => self.take(length).await?,
            Length::Chunked => self.chunked().await?,
        };
        let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
        Ok(Some(Incoming {
            request: Request {
                index: 0,
                method: head.method,
                path: path.to_owned(),
                query: query.to_owned(),
                body: serde_json::from_slice(&raw_body).unwrap_or_default(),
                headers: head.headers,
                raw_body,
            },
            keep_alive: head.keep_alive,
        }))
    }

    async fn head(&mut self) -> Result<Option<Head>, ReadError> {
        loop {
            if let Some((head, used)) = parse_head(&self.buffer)? {
                self.buffer.drain(..used);
                return Ok(Some(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(malformed("its head is larger than 64 KiB"));
            }
            if self.fill().await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(malformed("the connection ended inside its head"))
                };
            }
        }
    }

    /// Exactly `length` bytes.
    async fn take(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        if length > MAX_BODY {
            return Err(malformed("its body is larger than 64 MiB"));
        }
        while self.buffer.len() < length {
            if self.fill().await? == 0 {
                return Err(malformed("the connection ended inside its body"));
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    async fn chunked(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16)
                .map_err(|_| malformed("a chunk without a size"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            if body.len() + size > MAX_BODY {
                return Err(malformed("its body is larger than 64 MiB"));
            }
            body.extend(self.take(size).await?);
            self.line().await?;
        }
    }

    async fn line(&mut self) -> Result<String, ReadError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.take(end + 2).await?;
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.buffer.len() > MAX_HEAD || self.fill().await? == 0 {
                return Err(malformed("a line that does not end"));
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, ReadError> {
        Ok(self.stream.read_buf(&mut self.buffer).await?)
    }
}

struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    length: Length,
    keep_alive: bool,
    expects_continue: bool,
}

enum Length {
    Known(usize),
    Chunked,
}

fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, ReadError> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Request::new(&mut fields);
    let used = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(malformed(error.to_string())),
    };
    let headers: Vec<(String, String)> = parsed
        .headers
        .iter()
        .map(|field| {
            let value = String::from_utf8_lossy(field.value).into_owned();
            (field.name.to_ascii_lowercase(), value)
        })
        .collect();
    let is = |name: &str, wanted: &str| {
        headers
            .iter()
            .any(|(key, value)| key == name && value.eq_ignore_ascii_case(wanted))
    };
    let length = match headers.iter().find(|(key, _)| key == "content-length") {
        _ if is("transfer-encoding", "chunked") => Length::Chunked,
        Some((_, value)) => Length::Known(
            value
                .parse()
                .map_err(|_| malformed("its content-length is no number"))?,
        ),
        None => Length::Known(0),
    };
    let head = Head {
        method: parsed.method.unwrap_or_default().to_owned(),
        target: parsed.path.unwrap_or_default().to_owned(),
        length,
        keep_alive: parsed.version == Some(1) && !is("connection", "close"),
        expects_continue: is("expect", "100-continue"),
        headers,
    };
    Ok(Some((head, used)))
}

fn malformed(reason: impl Into<String>) -> ReadError {
    ReadError::Malformed {
        reason: reason.into(),
    }
}
