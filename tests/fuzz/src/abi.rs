//! What crosses between a host and a plugin: the header of a file, and the buffers of calls.
//!
//! With the address sanitizer that cargo-fuzz builds with, this looks at the `unsafe` of the SDK and
//! of the ABI as well: every buffer and object here is made on one side and freed on the other.

use conjure_abi::{
    CallContext, CallCx, CallCx_TO, Fault, FfiFuture, FutureExt as _, HeaderFields, RArc, RResult,
    RSlice, Reply, TD_Opaque, code,
};
use conjure_skill_sdk::export::create_linked;
use conjure_skill_sdk::protocol::{Execute, Modify, Read, Write};
use conjure_skill_sdk::{Json, Skill};
use schemars::JsonSchema;
use serde::Deserialize;

/// A header is read or refused.
pub fn header(input: &[u8]) {
    let _ = HeaderFields::read(input);
    // Behind a right beginning there is more to read.
    let mut behind = conjure_abi::HEADER_MAGIC.to_vec();
    behind.extend_from_slice(input);
    let _ = HeaderFields::read(&behind);
}

/// A plugin is made of any configuration and answers any operation with any request in JSON or with
/// a fault, and no panic reaches it. The first byte says how long the operation's name is, and whether
/// the bytes behind are a configuration too.
pub fn buffers(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let length = usize::from(first & 0x3f).min(rest.len());
    let (op, json) = rest.split_at(length);
    if first & 0x80 != 0 {
        let _ = create_linked(skill, json, Silent::context());
    }
    let create = br#"{"host": {"name": "fuzz", "version": "1"}, "config": {}}"#;
    let Ok(plugin) = create_linked(skill, create, Silent::context()) else {
        panic!("the skill was not made");
    };
    // A name of the fuzzer's, and each that there is.
    let known = [
        "skill.execute",
        "skill.read",
        "skill.write",
        "skill.modify",
        "skill.tool.add",
    ];
    let known = known.iter().map(|name| name.as_bytes());
    for op in std::iter::once(op).chain(known) {
        match plugin.call(op.into(), json.into(), Silent::context()) {
            RResult::ROk(reply) => {
                let reply = serde_json::from_slice::<serde_json::Value>(&reply);
                assert!(reply.is_ok(), "a reply that is no JSON");
            }
            RResult::RErr(fault) => {
                assert_ne!(fault.code, code::PANIC, "{}", fault.text());
            }
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    left: i64,
    #[serde(default)]
    right: Option<String>,
}

fn skill() -> Skill {
    Skill::new("fuzzed", "Takes anything")
        .execute("anything", |_cx, call: Execute| call.command)
        .read("anything", |_cx, read: Read| format!("{read:?}"))
        .write("anything", |_cx, write: Write| format!("{write:?}"))
        .modify("anything", |_cx, modify: Modify| format!("{modify:?}"))
        .tool("add", "Adds", |_cx, add: Add| Json((add.left, add.right)))
}

/// A context that says nothing and has no operations.
#[derive(Clone)]
struct Silent;

impl Silent {
    fn context() -> CallContext {
        CallCx_TO::from_ptr(RArc::new(Self), TD_Opaque)
    }
}

impl CallCx for Silent {
    fn emit(&self, _kind: u32, _bytes: RSlice<'_, u8>) -> u32 {
        0
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn host(&self, _op: RSlice<'_, u8>, _json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        let reply: Reply = RResult::RErr(Fault::new(code::UNSUPPORTED, "no such operation"));
        std::future::ready(reply).into_ffi()
    }

    fn log(&self, _level: u32, _target: RSlice<'_, u8>, _message: RSlice<'_, u8>) {}
}
