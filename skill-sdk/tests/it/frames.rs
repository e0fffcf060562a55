//! Frames: bytes there and back, garbage, and ends of a stream that do not behave.

use std::io;
use std::time::Duration;

use conjure_skill_sdk::abi::{
    CallContext, CallCx, CallCx_TO, Fault, FfiFuture, FutureExt as _, PluginObject, RArc, RSlice,
    Reply, TD_Opaque, code,
};
use conjure_skill_sdk::frames::{
    Cancel, Client, Decoder, Frame, FrameError, HEAD_LEN, Kind, MAX_BYTES, Message, PluginRoot,
    Verb, serve,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn messages() -> Vec<Message> {
    let fault = Fault::new(77, "no\u{e9}");
    vec![
        Message::Request {
            verb: Verb::Start,
            instance: 3,
            credit: 9,
            op: b"skill.\xff".to_vec(),
            json: b"{}".to_vec(),
        },
        Message::Request {
            verb: Verb::Manifest,
            instance: 0,
            credit: 0,
            op: Vec::new(),
            json: Vec::new(),
        },
        Message::Reply(Ok(Vec::new())),
        Message::Reply(Ok(b"\x01{}".to_vec())),
        Message::Reply(Err(fault.clone())),
        Message::Emit {
            kind: 9,
            bytes: b"piece".to_vec(),
        },
        Message::Credit { pieces: u32::MAX },
        Message::Cancel(Cancel::Call),
        Message::Cancel(Cancel::Release),
        Message::Cancel(Cancel::HostRequest(5)),
        Message::Log {
            level: 2,
            target: b"t".to_vec(),
            message: b"line".to_vec(),
        },
        Message::HostRequest {
            id: 4,
            op: b"kv.get".to_vec(),
            json: b"{\"key\":\"a\"}".to_vec(),
        },
        Message::HostReply {
            id: 4,
            reply: Ok(b"{}".to_vec()),
        },
        Message::HostReply {
            id: u32::MAX,
            reply: Err(fault),
        },
    ]
}

fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (call_id, message) in (1_u64 << 40..).zip(messages()) {
        message.into_frame(call_id).encode(&mut bytes).unwrap();
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A message field by field, texts and bytes as hexadecimal digits.
fn told(message: &Message) -> Value {
    let reply = |reply: &Result<Vec<u8>, Fault>| match reply {
        Ok(body) => json!({ "body": hex(body) }),
        Err(fault) => json!({ "code": fault.code, "text": hex(&fault.message) }),
    };
    match message {
        Message::Request {
            verb,
            instance,
            credit,
            op,
            json,
        } => json!({
            "kind": "request", "verb": *verb as u8, "instance": instance, "credit": credit,
            "op": hex(op), "body": hex(json),
        }),
        Message::Reply(answer) => json!({ "kind": "reply", "reply": reply(answer) }),
        Message::Emit { kind, bytes } => {
            json!({ "kind": "emit", "of": kind, "bytes": hex(bytes) })
        }
        Message::Credit { pieces } => json!({ "kind": "credit", "pieces": pieces }),
        Message::Cancel(Cancel::Call) => json!({ "kind": "cancel", "what": 0 }),
        Message::Cancel(Cancel::Release) => json!({ "kind": "cancel", "what": 1 }),
        Message::Cancel(Cancel::HostRequest(id)) => {
            json!({ "kind": "cancel", "what": 2, "id": id })
        }
        Message::Log {
            level,
            target,
            message,
        } => json!({
            "kind": "log", "level": level, "target": hex(target), "text": hex(message),
        }),
        Message::HostRequest { id, op, json } => {
            json!({ "kind": "host request", "id": id, "op": hex(op), "body": hex(json) })
        }
        Message::HostReply { id, reply: answer } => {
            json!({ "kind": "host reply", "id": id, "reply": reply(answer) })
        }
    }
}

/// What a plugin in another language speaks. These lines are never changed; new ones may come behind.
#[test]
fn the_bytes_of_each_message_are_pinned() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/abi/protocol/frames.json");
    let numbered = (1_u64 << 40..).zip(messages());
    let expected: Vec<Value> = numbered
        .map(|(call_id, message)| {
            let told = told(&message);
            let mut bytes = Vec::new();
            message.into_frame(call_id).encode(&mut bytes).unwrap();
            json!({ "call_id": call_id, "message": told, "frame": hex(&bytes) })
        })
        .collect();
    let text = serde_json::to_string_pretty(&expected).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn every_message_reads_back_whatever_the_pieces_are() {
    let bytes = bytes();
    for size in [1, 2, 3, 7, 64, bytes.len()] {
        let mut decoder = Decoder::new();
        let mut read = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame().unwrap() {
                assert_eq!(frame.call_id, (1 << 40) + read.len() as u64);
                read.push(Message::from_frame(frame).unwrap());
            }
        }
        decoder.finish().unwrap();
        assert_eq!(read, messages());
    }
}

#[test]
fn a_stream_cut_anywhere_gives_whole_frames_and_says_that_it_was_cut() {
    let bytes = bytes();
    for length in 0..bytes.len() {
        let mut decoder = Decoder::new();
        decoder.push(&bytes[..length]);
        let mut behind = 0;
        while let Some(frame) = decoder.next_frame().unwrap() {
            behind += HEAD_LEN + frame.bytes.len();
        }
        match decoder.finish() {
            Ok(()) => assert_eq!(behind, length),
            Err(FrameError::Cut { missing }) => assert!(missing > 0 && behind < length),
            Err(other) => panic!("{other}"),
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    decoder.next_frame()
}

#[test]
fn garbage_is_a_typed_error_from_the_head_alone() {
    let head = |len: u32, kind: u8| {
        let mut head = len.to_le_bytes().to_vec();
        head.push(kind);
        head
    };
    assert!(matches!(
        decode(&head(u32::MAX, 1)),
        Err(FrameError::TooLarge { .. })
    ));
    assert!(matches!(
        decode(&head(8, 1)),
        Err(FrameError::TooShort { len: 8 })
    ));
    assert!(matches!(
        decode(&head(9, 99)),
        Err(FrameError::UnknownKind { kind: 99 })
    ));
    assert!(matches!(
        decode(b"HTTP/1.1 400 Bad Request\n\nno"),
        Err(FrameError::Text { line }) if line == "HTTP/1.1 400 Bad Request"
    ));
    let large = Frame {
        kind: Kind::Reply,
        call_id: 1,
        bytes: vec![0; MAX_BYTES + 1],
    };
    let mut out = Vec::new();
    assert!(matches!(
        large.encode(&mut out),
        Err(FrameError::TooLarge { .. })
    ));
    assert_eq!(out, b"");
}

#[test]
fn every_frame_cut_short_or_with_bytes_behind_it_is_malformed_or_another_message() {
    for message in messages() {
        let frame = message.clone().into_frame(1);
        for length in 0..frame.bytes.len() {
            let cut = Frame {
                bytes: frame.bytes[..length].to_vec(),
                ..frame.clone()
            };
            match Message::from_frame(cut) {
                Ok(other) => assert_ne!(other, message),
                Err(FrameError::Malformed { kind, .. }) => assert_eq!(kind, frame.kind),
                Err(other) => panic!("{other}"),
            }
        }
    }
    for kind in [Kind::Credit, Kind::Cancel] {
        let bytes = vec![0; 5];
        let frame = Frame {
            kind,
            call_id: 1,
            bytes,
        };
        assert!(matches!(
            Message::from_frame(frame),
            Err(FrameError::Malformed { .. })
        ));
    }
}

/// A plugin that is never asked for anything.
struct Nothing;

impl PluginRoot for Nothing {
    fn manifest(&self) -> Result<Vec<u8>, Fault> {
        panic!("a root that does not catch its panics");
    }

    fn create(
        &self,
        _create: &[u8],
        _cx: conjure_skill_sdk::abi::CallContext,
    ) -> Result<PluginObject, Fault> {
        Err(Fault::new(code::FAILED, "never"))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let result = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(30), future)
            .await
            .unwrap()
    });
    runtime.shutdown_background();
    result
}

/// What `serve` says to these bytes.
fn served(bytes: &[u8]) -> Result<(), FrameError> {
    block_on(async {
        let (mut here, there) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(there);
        let served = tokio::spawn(serve(Nothing, reader, writer));
        here.write_all(bytes).await.unwrap();
        // A stream with an answer on it is read to its end.
        here.shutdown().await.unwrap();
        let _ = here.read_to_end(&mut Vec::new()).await;
        served.await.unwrap()
    })
}

fn encoded(message: Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.into_frame(1).encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_worker_ends_with_a_typed_error_when_its_host_sends_garbage() {
    served(b"").unwrap();
    assert!(matches!(
        served(b"GET / HTTP/1.1\r\n\r\n"),
        Err(FrameError::Text { line }) if line == "GET / HTTP/1.1"
    ));
    assert!(matches!(
        served(b"\x09\0\0\0"),
        Err(FrameError::Cut { missing: 9 })
    ));
    assert!(matches!(
        served(&encoded(Message::Reply(Ok(Vec::new())))),
        Err(FrameError::Unexpected { kind: Kind::Reply })
    ));
    let request = encoded(Message::Request {
        verb: Verb::Create,
        instance: 0,
        credit: 1,
        op: Vec::new(),
        json: Vec::new(),
    });
    // Messages for calls that do not exist are no error: they may just have ended.
    let mut stray = encoded(Message::Credit { pieces: 1 });
    stray.extend(encoded(Message::Cancel(Cancel::Release)));
    stray.extend(encoded(Message::HostReply {
        id: 1,
        reply: Ok(Vec::new()),
    }));
    stray.extend(request);
    served(&stray).unwrap();
}

#[test]
fn a_root_that_panics_or_refuses_is_a_fault() {
    block_on(async {
        let (here, there) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(there);
        tokio::spawn(serve(Nothing, reader, writer));
        let (reader, writer) = tokio::io::split(here);
        let client = Client::connect(reader, writer);
        let fault = tokio::task::spawn_blocking(move || client.manifest())
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(fault.code, code::PANIC);
        assert!(
            fault
                .text()
                .ends_with("a root that does not catch its panics")
        );
    });
}

/// What a client says when the other end writes these bytes after its first request.
fn answered(bytes: Vec<u8>) -> Fault {
    block_on(async {
        let (here, mut there) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(here);
        let client = Client::connect(reader, writer);
        tokio::spawn(async move {
            there.read_exact(&mut [0; HEAD_LEN]).await?;
            there.write_all(&bytes).await?;
            Ok::<_, io::Error>(())
        });
        tokio::task::spawn_blocking(move || client.manifest())
            .await
            .unwrap()
            .unwrap_err()
    })
}

#[test]
fn a_host_whose_worker_dies_or_sends_garbage_gets_a_fault_for_what_is_under_way() {
    for (bytes, reason) in [
        (Vec::new(), "the plugin's end of the stream was closed"),
        (b"\x09\0".to_vec(), "the stream ended inside a frame"),
        (
            b"thread 'main' panicked".to_vec(),
            "it printed \"thread 'main' panicked\"",
        ),
        (b"hi\n".to_vec(), "it printed \"hi\""),
        (
            encoded(Message::Credit { pieces: 1 }),
            "a Credit frame came from the wrong side",
        ),
        (
            encoded(Message::Emit {
                kind: 0,
                bytes: b"x".to_vec(),
            })
            .repeat(33),
            "call 1 sent more output than it had credits for",
        ),
    ] {
        let fault = answered(bytes);
        assert_eq!(fault.code, code::GONE, "{}", fault.text());
        assert!(fault.text().contains(reason), "{}", fault.text());
    }
}

/// The context of a call whose host operations never end, and whose host is to be asked for small ones
/// only.
#[derive(Clone)]
struct Unanswered;

impl CallCx for Unanswered {
    fn emit(&self, _kind: u32, _bytes: RSlice<'_, u8>) -> u32 {
        0
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn host(&self, _op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        assert!(json.as_slice().len() <= 1024 * 1024);
        std::future::pending::<Reply>().into_ffi()
    }

    fn log(&self, _level: u32, _target: RSlice<'_, u8>, _message: RSlice<'_, u8>) {}
}

fn host_request(id: u32, json: Vec<u8>) -> Vec<u8> {
    encoded(Message::HostRequest {
        id,
        op: b"call.cancelled".to_vec(),
        json,
    })
}

/// The other end of a client.
struct OtherEnd {
    stream: tokio::io::DuplexStream,
    decoder: Decoder,
}

impl OtherEnd {
    /// Where an instance was asked for, and what becomes of that.
    async fn asked_for_an_instance() -> (Self, tokio::task::JoinHandle<Fault>) {
        let (here, stream) = tokio::io::duplex(4 * 1024 * 1024);
        let (reader, writer) = tokio::io::split(here);
        let client = Client::connect(reader, writer);
        let made = tokio::spawn(async move {
            let cx: CallContext = CallCx_TO::from_ptr(RArc::new(Unanswered), TD_Opaque);
            client.create_instance(b"{}", cx).await.err().unwrap()
        });
        let decoder = Decoder::new();
        let mut other_end = Self { stream, decoder };
        let asked = other_end.next_message().await;
        assert!(matches!(asked, Message::Request { .. }), "{asked:?}");
        (other_end, made)
    }

    async fn next_message(&mut self) -> Message {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Message::from_frame(frame).unwrap();
            }
            let mut piece = [0; 1024];
            let count = self.stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "the client closed the stream");
            self.decoder.push(&piece[..count]);
        }
    }
}

#[test]
fn a_host_request_with_the_number_of_one_that_is_under_way_ends_the_stream() {
    let fault = block_on(async {
        let (mut other_end, made) = OtherEnd::asked_for_an_instance().await;
        let mut bytes = host_request(9, b"{}".to_vec());
        // One that is not wanted any more has given its number back.
        bytes.extend(encoded(Message::Cancel(Cancel::HostRequest(9))));
        bytes.extend(host_request(9, b"{}".to_vec()).repeat(2));
        other_end.stream.write_all(&bytes).await.unwrap();
        made.await.unwrap()
    });
    assert_eq!(fault.code, code::GONE, "{}", fault.text());
    let reason = "a HostRequest frame is malformed: its number is that of one that is under way";
    assert!(fault.text().contains(reason), "{}", fault.text());
}

#[test]
fn a_host_request_that_is_too_large_is_refused_before_the_host_has_it() {
    let answer = block_on(async {
        let (mut other_end, _made) = OtherEnd::asked_for_an_instance().await;
        let bytes = host_request(9, vec![b' '; 1024 * 1024 + 1]);
        other_end.stream.write_all(&bytes).await.unwrap();
        other_end.next_message().await
    });
    let Message::HostReply { id: 9, reply } = answer else {
        panic!("{answer:?}");
    };
    let fault = reply.unwrap_err();
    assert_eq!(fault.code, code::INVALID, "{}", fault.text());
    assert!(fault.text().contains("1 MiB"), "{}", fault.text());
}
