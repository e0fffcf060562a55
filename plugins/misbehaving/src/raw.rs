//! The modes that no author could write with the SDK: replies and events that are lies.
//!
//! Stands in front of the SDK's object and answers these by hand; the rest goes through.

use conjure_skill_sdk::abi::{
    CallContext, EmitKind, Fault, FfiFuture, LogLevel, Plugin, PluginObject, RResult, RSlice, RVec,
    Reply, code,
};
use conjure_skill_sdk::protocol::op;
use serde_json::{Value, json};

use crate::after_return::park_forever;
use crate::load;
use crate::modes;
use crate::skill::number;

/// Bytes that are no UTF-8.
const INVALID: &[u8] = b"before \xff\xfe\x80 after";

/// An instance.
pub(crate) struct Misbehaving {
    /// What the SDK makes of the skill.
    pub(crate) inner: PluginObject,
}

impl Plugin for Misbehaving {
    fn call(&self, name: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> Reply {
        if name.as_slice() == op::PING.as_bytes() && load::is("never-pings") {
            park_forever();
        }
        if name.as_slice() == op::SKILL_EXECUTE.as_bytes() {
            let request: Value = serde_json::from_slice(json.as_slice()).unwrap_or_default();
            if let Some(reply) = misleading_reply(&request, &cx) {
                return reply;
            }
        }
        self.inner.call(name, json, cx)
    }

    fn start(
        &self,
        name: RSlice<'_, u8>,
        json: RSlice<'_, u8>,
        cx: CallContext,
    ) -> FfiFuture<Reply> {
        self.inner.start(name, json, cx)
    }
}

/// The reply of a mode that lies.
fn misleading_reply(request: &Value, cx: &CallContext) -> Option<Reply> {
    let command = request.pointer("/body/command")?.as_str()?;
    let (mode, argument) = modes::split(command);
    Some(match mode {
        "flood-reply" => match number(argument) {
            Ok(megabytes) => {
                let text = "x".repeat(usize::try_from(megabytes).unwrap_or(0) * 1024 * 1024);
                ok(&json!({ "content": [{ "type": "text", "text": text }] }))
            }
            Err(error) => RResult::RErr(Fault::new(code::INVALID, error.message())),
        },
        "invalid-utf8" => {
            emit(cx, EmitKind::Stdout as u32, INVALID);
            emit(cx, EmitKind::Stderr as u32, INVALID);
            emit(cx, EmitKind::Event as u32, INVALID);
            emit(cx, EmitKind::Event as u32, b"this is no JSON {");
            cx.log(
                LogLevel::Warn as u32,
                RSlice::from_slice(INVALID),
                RSlice::from_slice(INVALID),
            );
            done_reply(mode)
        }
        "invalid-utf8-reply" => {
            let mut reply = br#"{"content":[{"type":"text","text":""#.to_vec();
            reply.extend_from_slice(INVALID);
            reply.extend_from_slice(br#""}]}"#);
            RResult::ROk(RVec::from(reply))
        }
        "lie-json" => RResult::ROk(RVec::from(b"this is no JSON {".to_vec())),
        "lie-schema" => ok(&json!({
            "content": "a text instead of parts",
            "is_error": "maybe",
            "files": 7,
        })),
        "lie-files" => ok(&misleading_files(request)),
        "lie-fault" => RResult::RErr(Fault {
            code: 4_000_000_000,
            message: RVec::from(INVALID.to_vec()),
        }),
        "wrong-call" => {
            emit(cx, 77, b"a kind that nobody knows");
            let event = json!({
                "event": "file",
                "call_id": "somebody-else",
                "session": "somebody-else",
                "file": { "name": "theirs", "path": "/etc/passwd" },
            });
            emit(cx, EmitKind::Event as u32, event.to_string().as_bytes());
            ok(&json!({
                "call_id": "somebody-else",
                "session": "somebody-else",
                "content": [{ "type": "text", "text": "the result of another call" }],
            }))
        }
        _ => return None,
    })
}

/// Files that are elsewhere, nowhere, or not what they are said to be.
fn misleading_files(request: &Value) -> Value {
    let dir = request.get("working_dir").and_then(Value::as_str);
    let dir = dir.unwrap_or("/nowhere");
    let true_file = format!("{dir}/misbehaving.txt");
    // If it cannot be written it is one more that does not exist.
    let _ = std::fs::write(&true_file, "12 bytes big");
    let path = |path: &str| json!({ "name": path.rsplit('/').next(), "path": path });
    json!({
        "content": [{ "type": "file", "file": path("/etc/shadow") }],
        "files": [
            path("/etc/passwd"),
            path("../../etc/passwd"),
            path(&format!("{dir}/../../../../../../etc/passwd")),
            path(&format!("{dir}/does-not-exist")),
            path(dir),
            path("/dev/zero"),
            path(""),
            { "name": "../../etc/passwd", "path": true_file, "size": 12 },
            { "name": "huge", "path": true_file, "size": u64::MAX },
            { "name": "hash", "path": true_file, "sha256": "0".repeat(64) },
            { "name": "nul\0", "path": format!("{dir}/nul\0") },
            { "name": "lazy", "id": "../../etc/passwd" },
            { "name": "nothing" },
        ],
    })
}

fn emit(cx: &CallContext, kind: u32, bytes: &[u8]) {
    let _ = cx.emit(kind, RSlice::from_slice(bytes));
}

fn done_reply(mode: &str) -> Reply {
    ok(&json!({ "content": [{ "type": "text", "text": format!("{mode}: done") }] }))
}

fn ok(reply: &Value) -> Reply {
    RResult::ROk(RVec::from(reply.to_string().into_bytes()))
}
