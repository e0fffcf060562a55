//! How the bytes of an answer reach the socket: chunks, delays, holds, cuts, endings.
//!
//! Turns a rendered answer into a list of [`SocketAction`]s, a pure function that the server then performs.
//! Knows neither providers nor sockets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How an answer is delivered.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// How the body is split into HTTP chunks.
    pub chunks: Chunks,
    /// Splits what goes to the socket, head and framing included, into writes of this many bytes.
    pub writes: Option<usize>,
    /// Milliseconds between two chunks.
    pub delay_ms: u64,
    /// Stops until the test releases them.
    pub holds: Vec<Hold>,
    /// Sends nothing from here on and leaves the connection open.
    pub hang: Option<Position>,
    /// Cuts the connection.
    pub cut: Option<Cut>,
    /// What follows the last byte.
    pub ending: Ending,
    /// How the client learns where the body ends. Default: chunked for a stream or for a body in
    /// several chunks, else by length.
    pub framing: Option<Framing>,
}

/// How a body is split into HTTP chunks.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Chunks {
    /// One chunk an event; a body that is no stream is one event. What [`crate::Bulk`] repeats comes
    /// in chunks of 16 KiB.
    #[default]
    Events,
    /// Everything at once.
    Whole,
    /// One chunk a line.
    Lines,
    /// Chunks of this many bytes, over the borders of events (at least 1).
    Bytes(usize),
}

/// A place in an answer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Before the status line.
    Headers,
    /// Before the event with this number, from 0; a body that is no stream is one event. A number
    /// beyond the last stands for the place between the last event and the end of the body.
    Event(usize),
}

/// A stop until the test releases it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The place in the answer where it stops.
    pub at: Position,
    /// The name under which the test awaits and releases it. A released token stays released.
    pub token: String,
}

/// An end of the connection before its time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The place in the answer where it ends.
    pub at: CutAt,
    /// What the client sees of the end.
    pub how: CutHow,
}

/// Where an answer is cut.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CutAt {
    /// After this many bytes of the body, framing not counted. The chunk in which it falls has been
    /// announced whole, except with [`CutHow::End`].
    Bytes(usize),
    /// After this many events.
    Events(usize),
}

/// How an answer is cut.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CutHow {
    /// The connection is reset.
    Reset,
    /// The connection is closed in order, while the body is not complete.
    Eof,
    /// The body ends in order: correct HTTP around half a stream.
    End,
}

/// What follows the last byte of a body.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The end.
    #[default]
    Done,
    /// Silence: the end never comes and the connection stays open.
    Silence,
    /// More and more: comments in a stream, else spaces.
    Endless,
}

/// How a client learns where a body ends.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// `transfer-encoding: chunked`.
    Chunked,
    /// `content-length`.
    Length,
    /// The connection is closed.
    Close,
}

/// How many bytes of a repeated piece go into one chunk, about.
const BLOCK: usize = 16 * 1024;

/// An answer before delivery.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RenderedAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Events, or one element for any other body.
    pub(crate) body: Vec<Part>,
    pub(crate) stream: bool,
}

/// An event, or a body that is no stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part(pub(crate) Vec<Piece>);

impl Part {
    /// Bytes of the part, without the repetitions.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let pieces = self.0.iter();
        pieces.flat_map(|piece| piece.bytes.clone()).collect()
    }
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![Piece { bytes, times: 1 }])
    }
}

/// Bytes that are written one or many times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) times: u64,
}

impl Piece {
    pub(crate) fn new(bytes: impl AsRef<[u8]>, times: u64) -> Self {
        Self {
            bytes: bytes.as_ref().to_vec(),
            times,
        }
    }

    fn length(&self) -> u64 {
        self.times
            .saturating_mul(u64::try_from(self.bytes.len()).unwrap_or(u64::MAX))
    }
}

/// What the server does next on the socket.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SocketAction {
    Write(Vec<u8>),
    /// Write these again and again, with a pause after each.
    Repeat(Vec<Vec<u8>>, u64, Duration),
    Pause(Duration),
    /// Wait for the release of this token.
    Hold(String),
    /// Wait for the client to go away.
    Hang,
    /// Write this again and again, with a pause, until the client goes away.
    Flood(Vec<u8>, Duration),
    /// Close in order: the answer is complete.
    Close,
    /// Close in order while the answer is not complete.
    Eof,
    Reset,
}

/// The acts that deliver an answer.
pub(crate) fn plan(rendered: &RenderedAnswer, delivery: &Delivery) -> Vec<SocketAction> {
    let framing = delivery
        .framing
        .unwrap_or_else(|| default_framing(rendered, delivery));
    let mut planner = Planner {
        delivery,
        framing,
        actions: Vec::new(),
        sent: 0,
    };
    planner.run(rendered);
    split_writes(planner.actions, delivery.writes)
}

/// The acts that deliver bytes as they are. Event numbers make no sense here: only a hold or hang at
/// the headers, a cut by bytes, `chunks` by bytes and `writes` apply.
pub(crate) fn plan_raw(bytes: &[u8], delivery: &Delivery) -> Vec<SocketAction> {
    let rendered = RenderedAnswer {
        status: 0,
        headers: Vec::new(),
        body: vec![bytes.to_vec().into()],
        stream: false,
    };
    let mut planner = Planner {
        delivery,
        framing: Framing::Close,
        actions: Vec::new(),
        sent: 0,
    };
    if planner.pass(Position::Headers) {
        planner.body(&rendered);
    }
    split_writes(planner.actions, delivery.writes)
}

fn default_framing(rendered: &RenderedAnswer, delivery: &Delivery) -> Framing {
    let whole = matches!(delivery.chunks, Chunks::Events | Chunks::Whole);
    if rendered.stream || !whole || delivery.ending == Ending::Endless {
        Framing::Chunked
    } else {
        Framing::Length
    }
}

struct Planner<'a> {
    delivery: &'a Delivery,
    framing: Framing,
    actions: Vec<SocketAction>,
    /// Bytes of the body so far.
    sent: usize,
}

impl Planner<'_> {
    fn run(&mut self, rendered: &RenderedAnswer) {
        if !self.pass(Position::Headers) {
            return;
        }
        let pieces = rendered.body.iter().flat_map(|part| &part.0);
        let length = pieces.map(Piece::length).fold(0, u64::saturating_add);
        self.actions
            .push(SocketAction::Write(self.head(rendered, length)));
        self.body(rendered);
    }

    fn head(&self, rendered: &RenderedAnswer, length: u64) -> Vec<u8> {
        let mut head = format!(
            "HTTP/1.1 {} {}\r\n",
            rendered.status,
            reason(rendered.status)
        );
        for (name, value) in &rendered.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.framing {
            Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
            Framing::Length => head.push_str(&format!("content-length: {length}\r\n")),
            Framing::Close => head.push_str("connection: close\r\n"),
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn body(&mut self, rendered: &RenderedAnswer) {
        // Events between two barriers are one run: only inside a run may a chunk cross a border.
        let mut run = Vec::new();
        for (number, event) in rendered.body.iter().enumerate() {
            if self.is_barrier(number)
                && (!self.flush(&mut run) || !self.pass(Position::Event(number)))
            {
                return;
            }
            for piece in &event.0 {
                if piece.times == 1 {
                    run.extend_from_slice(&piece.bytes);
                } else if !self.flush(&mut run) || !self.repeat(piece) {
                    return;
                }
            }
            if self.delivery.chunks == Chunks::Events && !self.flush(&mut run) {
                return;
            }
        }
        let events = rendered.body.len();
        if self.flush(&mut run) && self.pass_end(events) {
            self.end(rendered);
        }
    }

    fn is_barrier(&self, number: usize) -> bool {
        let here = Position::Event(number);
        self.delivery.hang == Some(here)
            || self.delivery.holds.iter().any(|hold| hold.at == here)
            || matches!(self.delivery.cut, Some(Cut { at: CutAt::Events(n), .. }) if n == number)
    }

    /// Holds, hang and cut at a position. False when nothing comes after.
    fn pass(&mut self, here: Position) -> bool {
        self.pass_if(|at| at == here, |events| Position::Event(events) == here)
    }

    /// As [`Self::pass`], for the end of the body and everything beyond it.
    fn pass_end(&mut self, events: usize) -> bool {
        let beyond = move |at| matches!(at, Position::Event(number) if number >= events);
        if !self.pass_if(beyond, |number| number >= events) {
            return false;
        }
        if let Some(Cut {
            at: CutAt::Bytes(_),
            how,
        }) = self.delivery.cut
        {
            self.cut(how);
            return false;
        }
        true
    }

    fn pass_if(
        &mut self,
        here: impl Fn(Position) -> bool,
        cut_here: impl Fn(usize) -> bool,
    ) -> bool {
        for hold in self.delivery.holds.iter().filter(|hold| here(hold.at)) {
            self.actions.push(SocketAction::Hold(hold.token.clone()));
        }
        if self.delivery.hang.is_some_and(&here) {
            self.actions.push(SocketAction::Hang);
            return false;
        }
        if let Some(Cut {
            at: CutAt::Events(events),
            how,
        }) = self.delivery.cut
            && cut_here(events)
        {
            self.cut(how);
            return false;
        }
        true
    }

    /// Sends a run in pieces. False when a cut fell into it.
    fn flush(&mut self, run: &mut Vec<u8>) -> bool {
        let run = std::mem::take(run);
        for piece in self.split_chunks(&run) {
            if self.sent > 0 && self.delivery.delay_ms > 0 {
                self.actions.push(SocketAction::Pause(self.delay()));
            }
            if let Some(Cut {
                at: CutAt::Bytes(limit),
                how,
            }) = self.delivery.cut
                && let Some(before) = piece
                    .get(..limit.saturating_sub(self.sent))
                    .filter(|part| part.len() < piece.len())
            {
                self.cut_inside(piece.len(), before, how);
                return false;
            }
            self.sent = self.sent.saturating_add(piece.len());
            let framed = self.frame(piece);
            self.actions.push(SocketAction::Write(framed));
        }
        true
    }

    /// The HTTP chunks of a run.
    fn split_chunks<'b>(&self, run: &'b [u8]) -> Vec<&'b [u8]> {
        let mut chunks: Vec<&[u8]> = match self.delivery.chunks {
            Chunks::Events | Chunks::Whole => vec![run],
            Chunks::Lines => run.split_inclusive(|byte| *byte == b'\n').collect(),
            Chunks::Bytes(size) => run.chunks(size.max(1)).collect(),
        };
        chunks.retain(|chunk| !chunk.is_empty());
        chunks
    }

    /// Sends a piece that is repeated, several repetitions in a chunk. False when a cut fell into it.
    fn repeat(&mut self, piece: &Piece) -> bool {
        let unit = u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX);
        if unit == 0 || piece.times == 0 {
            return true;
        }
        let left = match self.delivery.cut {
            Some(Cut {
                at: CutAt::Bytes(limit),
                ..
            }) => u64::try_from(limit.saturating_sub(self.sent)).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        if left >= piece.length() {
            self.repeat_whole(&piece.bytes, piece.times);
            return true;
        }
        self.repeat_whole(&piece.bytes, left / unit);
        self.flush(&mut piece.bytes.clone())
    }

    fn repeat_whole(&mut self, unit: &[u8], times: u64) {
        let delay = self.delay();
        let in_block = if delay.is_zero() {
            u64::try_from(BLOCK / unit.len().max(1)).unwrap_or(1).max(1)
        } else {
            1
        };
        for (units, blocks) in [(in_block, times / in_block), (times % in_block, 1)] {
            let block = unit.repeat(usize::try_from(units).unwrap_or(1));
            let chunks: Vec<Vec<u8>> = self
                .split_chunks(&block)
                .into_iter()
                .map(|chunk| self.frame(chunk))
                .collect();
            if !chunks.is_empty() && blocks > 0 {
                self.actions
                    .push(SocketAction::Repeat(chunks, blocks, delay));
            }
        }
        let bytes = u64::try_from(unit.len())
            .unwrap_or(u64::MAX)
            .saturating_mul(times);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.sent = self.sent.saturating_add(bytes);
    }

    fn cut_inside(&mut self, announced: usize, before: &[u8], how: CutHow) {
        let bytes = match (self.framing, how) {
            (Framing::Chunked, CutHow::End) if before.is_empty() => Vec::new(),
            (Framing::Chunked, CutHow::End) => self.frame(before),
            (Framing::Chunked, _) => {
                let mut bytes = format!("{announced:x}\r\n").into_bytes();
                bytes.extend_from_slice(before);
                bytes
            }
            _ => before.to_vec(),
        };
        if !bytes.is_empty() {
            self.actions.push(SocketAction::Write(bytes));
        }
        self.cut(how);
    }

    fn cut(&mut self, how: CutHow) {
        match how {
            CutHow::Reset => self.actions.push(SocketAction::Reset),
            CutHow::Eof => self.actions.push(SocketAction::Eof),
            // A promised length that is not kept can only end with the connection.
            CutHow::End if self.framing == Framing::Length => self.actions.push(SocketAction::Eof),
            CutHow::End => self.terminate(),
        }
    }

    fn end(&mut self, rendered: &RenderedAnswer) {
        match self.delivery.ending {
            Ending::Done => self.terminate(),
            Ending::Silence => self.actions.push(SocketAction::Hang),
            Ending::Endless => {
                let filler: &[u8] = if rendered.stream {
                    b": more\n\n"
                } else {
                    b"        "
                };
                let framed = self.frame(filler);
                self.actions.push(SocketAction::Flood(framed, self.delay()));
            }
        }
    }

    fn terminate(&mut self) {
        match self.framing {
            Framing::Chunked => self
                .actions
                .push(SocketAction::Write(b"0\r\n\r\n".to_vec())),
            Framing::Length => {}
            Framing::Close => self.actions.push(SocketAction::Close),
        }
    }

    fn frame(&self, piece: &[u8]) -> Vec<u8> {
        if self.framing != Framing::Chunked {
            return piece.to_vec();
        }
        let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.delivery.delay_ms)
    }
}

fn split_writes(acts: Vec<SocketAction>, size: Option<usize>) -> Vec<SocketAction> {
    let Some(size) = size else { return acts };
    acts.into_iter()
        .flat_map(|act| match act {
            SocketAction::Write(bytes) => bytes
                .chunks(size.max(1))
                .map(|part| SocketAction::Write(part.to_vec()))
                .collect(),
            SocketAction::Repeat(writes, times, pause) => {
                let parts = writes.iter().flat_map(|bytes| bytes.chunks(size.max(1)));
                let parts = parts.map(<[u8]>::to_vec).collect();
                vec![SocketAction::Repeat(parts, times, pause)]
            }
            other => vec![other],
        })
        .collect()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Scripted",
    }
}
