//! Figures of the plugin loader: a load, a call in place, an ordinary call.
//!
//! `cargo run --release -p conjure-plugin-tests --example figures`. Medians over many rounds on
//! the calling thread; nothing here fails when a figure is bad.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a program for people, which ends when something does not work"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_host::plugin::{CallOptions, Instance, NoServices};
use conjure_plugin_tests::{Bench, Plugin, Versions, envelope};
use serde_json::json;

const SOURCE: &str = r#"
use conjure_skill_sdk::abi::{
    CallContext, FfiFuture, FutureExt, Plugin, PluginObject, Plugin_TO, RResult, RSlice, Reply,
    TD_Opaque,
};
use conjure_skill_sdk::export::Exported;
use conjure_skill_sdk::protocol::{Execute, Manifest};
use conjure_skill_sdk::{export_skill, Result, Setup, Skill, ToolOptions};

/// A skill, and beside it an operation that does nothing at all.
struct Measured(Skill);

struct Object(PluginObject);

impl Plugin for Object {
    fn call(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> Reply {
        if op.as_slice() == b"skill.tool.nothing" {
            drop(cx);
            return RResult::ROk(b"{}".to_vec().into());
        }
        self.0.call(op, json, cx)
    }
    fn start(&self, _: RSlice<'_, u8>, _: RSlice<'_, u8>, _: CallContext) -> FfiFuture<Reply> {
        std::future::pending().into_ffi()
    }
}

impl Exported for Measured {
    fn plugin_name(&self) -> String {
        self.0.plugin_name()
    }
    fn plugin_manifest(&self, name: &str, version: &str) -> Result<Manifest> {
        self.0.plugin_manifest(name, version)
    }
    fn into_plugin(self, setup: Setup) -> Result<PluginObject> {
        Ok(Plugin_TO::from_value(Object(self.0.into_plugin(setup)?), TD_Opaque))
    }
}

fn skill() -> Measured {
    let options = ToolOptions::new().read_only().stateless().in_place();
    Measured(
        Skill::new("measured", "For measuring")
            .execute("anything", |_cx, c: Execute| c.command)
            .with(options)
            .raw_tool("nothing", "Nothing", Default::default(), options, |_cx, _| "nothing"),
    )
}

export_skill!(skill, name = "measured");
"#;

#[tokio::main]
async fn main() {
    let library = Plugin {
        profile: "opt-level = 3\nlto = \"thin\"\ndebug = false\nstrip = true\n",
        ..Plugin::new("measured", SOURCE)
    }
    .build();
    let bench = Bench::new();
    println!(
        "library: {} KiB",
        std::fs::metadata(&library).unwrap().len() / 1024
    );
    loads(&bench, &library);
    let plugin = bench.load(&library);
    let create = Instant::now();
    let instance = plugin
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap();
    println!("instance made and pinged: {:?}", create.elapsed());
    let nothing = b"{}".to_vec();
    let command = envelope(&json!({ "command": "x".repeat(100) }));
    ordinary(
        &instance,
        "skill.tool.nothing",
        &nothing,
        "ordinary call, nothing done",
    )
    .await;
    ordinary(
        &instance,
        "skill.execute",
        &command,
        "ordinary call, 100-byte command",
    )
    .await;
    in_place(
        &instance,
        "skill.tool.nothing",
        &nothing,
        "boundary alone, in place",
    )
    .await;
    in_place(
        &instance,
        "skill.execute",
        &command,
        "100-byte command in place, JSON in the skill",
    )
    .await;
}

fn loads(bench: &Bench, library: &std::path::Path) {
    const LOADS: u64 = 300;
    let versions = Versions::of_header(library);
    let registry = bench.registry();
    let path = bench.put("libmeasured.so", versions.original());
    registry.add(&path, false).unwrap();
    let before = own_memory();
    let mut times = Vec::new();
    for number in 0..LOADS {
        bench.put("libmeasured.so", &versions.number(number + 1));
        let begun = Instant::now();
        registry.add(&path, false).unwrap();
        times.push(begun.elapsed());
    }
    let grown = own_memory().saturating_sub(before);
    println!(
        "load, checks included: {:?} median; memory growth a load {} KiB",
        median(&mut times),
        grown / LOADS
    );
    let mut again = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        registry.add(&path, false).unwrap();
        again.push(begun.elapsed());
    }
    println!(
        "load of contents that are open already: {:?} median",
        median(&mut again)
    );
}

async fn ordinary(instance: &Instance, op: &str, json: &[u8], what: &str) {
    let mut times = Vec::new();
    for _ in 0..20_000 {
        let json = json.to_vec();
        let begun = Instant::now();
        instance
            .request(op, json, CallOptions::default())
            .await
            .unwrap();
        times.push(begun.elapsed());
    }
    println!("{what}: {:?} median", median(&mut times));
}

async fn in_place(instance: &Instance, op: &str, json: &[u8], what: &str) {
    const BATCH: u32 = 1_000;
    let mut times = Vec::new();
    'batch: for _ in 0..1_000 {
        let begun = Instant::now();
        for _ in 0..BATCH {
            let Some(reply) = instance.request_in_place(op, json) else {
                // A busy machine held a call up; it is earned again, and the batch left out.
                println!("(taken back once)");
                ordinary(instance, op, json, "earning it again").await;
                continue 'batch;
            };
            std::hint::black_box(reply.unwrap());
        }
        times.push(begun.elapsed() / BATCH);
    }
    println!("{what}: {:?} median", median(&mut times));
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Kilobytes that are the process's own: resident and not backed by a file.
fn own_memory() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
