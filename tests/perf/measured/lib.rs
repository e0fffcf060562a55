//! The skill that the benchmarks call: it does nothing, so that only the way to it is measured.
//!
//! Takes the place of `src/lib.rs` in a crate that `conjure plugin create skill` made, and is built
//! there as a third party's skill is.

use conjure_skill_sdk::abi::{
    CallContext, FfiFuture, FutureExt, Plugin, PluginObject, Plugin_TO, RResult, RSlice, RVec, Reply,
    TD_Opaque,
};
use conjure_skill_sdk::protocol::{Execute, Manifest, Write};
use conjure_skill_sdk::{export_skill, Exported, Result, Setup, Skill, ToolOptions};
use std::time::{Duration, Instant};

fn skill() -> Measured {
    let quick = ToolOptions::new().read_only().stateless().in_place();
    Measured(
        Skill::new("measured", "Does nothing, to be measured")
            .execute("anything", |_cx, request: Execute| request.command)
            .with(quick.clone())
            .write("anything", |_cx, request: Write| request.content)
            .raw_tool("nothing", "Nothing", Default::default(), quick, |_cx, _| "nothing")
            .raw_tool(
                "nap",
                "Takes 100 ms, and says how many nanoseconds it really were",
                Default::default(),
                ToolOptions::new().read_only(),
                |_cx, _| {
                    let begun = Instant::now();
                    std::thread::sleep(Duration::from_millis(100));
                    begun.elapsed().as_nanos().to_string()
                },
            ),
    )
}

export_skill!(skill, name = "measured");

/// A skill, and beside it an operation that returns before any code of the SDK runs.
struct Measured(Skill);

impl Exported for Measured {
    fn plugin_name(&self) -> String {
        self.0.plugin_name()
    }

    fn plugin_manifest(&self, name: &str, version: &str) -> Result<Manifest> {
        self.0.plugin_manifest(name, version)
    }

    fn into_plugin(self, setup: Setup) -> Result<PluginObject> {
        let object = Object(self.0.into_plugin(setup)?);
        Ok(Plugin_TO::from_value(object, TD_Opaque))
    }
}

struct Object(PluginObject);

impl Plugin for Object {
    fn call(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> Reply {
        if op.as_slice() == b"skill.tool.nothing" {
            drop(cx);
            // An ordinary call must answer with JSON.
            let reply = if json.as_slice() == b"{}" { RVec::new() } else { b"{}".to_vec().into() };
            return RResult::ROk(reply);
        }
        self.0.call(op, json, cx)
    }

    fn start(&self, _: RSlice<'_, u8>, _: RSlice<'_, u8>, _: CallContext) -> FfiFuture<Reply> {
        std::future::pending().into_ffi()
    }
}
