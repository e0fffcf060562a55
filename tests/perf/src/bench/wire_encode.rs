//! From a log to the body of a request: how the cost grows with the conversation.

use std::hint::black_box;

use anyhow::{Result, ensure};
use conjure_core::chat::{
    Content, FunctionCall, FunctionCallOutput, Message, Meta, Part, Role, Sidecar,
};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_core::repair::RepairTarget;
use conjure_core::request::{CompileSettings, compile};
use conjure_core::routing::{Naming, RoutingTable};
use conjure_core::wire::{Endpoint, Wire, model_family};
use serde_json::json;

use crate::figure::{Figure, TIMES, short};
use crate::samples::{Samples, ms, timed};
use crate::shipped::BenchArtifacts;

/// Turns of the shorter conversation; the longer one has twice as many.
const TURNS: u64 = 100;

/// How often as much as the shorter one the longer one may cost.
const TARGET: f64 = 2.2;

pub(super) fn run(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    let targets = [
        RepairTarget::new("anthropic", "claude-sonnet-4-5"),
        RepairTarget::new("openai", "gpt-5"),
        RepairTarget::new("deepseek", "deepseek-chat"),
        RepairTarget::new("gemini", "gemini-2.5-pro"),
    ];
    targets.iter().map(measure).collect()
}

fn measure(target: &RepairTarget) -> Result<Figure> {
    let wire = target.wire;
    let endpoint = Endpoint::new(&target.provider).with_model(&target.model);
    let table = RoutingTable::build(1, &[], &Naming::default())?;
    let settings = CompileSettings::new(target.clone());
    let (short_log, long_log) = (log(target, TURNS), log(target, 2 * TURNS));
    let encode = |log: &[Entry]| {
        let (body, took) = timed(|| {
            let request = compile(black_box(log), &table, &settings);
            wire.encode(&request, &endpoint).body
        });
        (body.len(), ms(took))
    };
    let (mut once, mut twice) = (Samples::default(), Samples::default());
    let mut sizes = (0, 0);
    for round in 0..220 {
        let (small, one) = encode(&short_log);
        let (large, two) = encode(&long_log);
        if round >= 20 {
            once.push(one);
            twice.push(two);
        }
        sizes = (small, large);
    }
    ensure!(sizes.1 > sizes.0, "the longer conversation is not longer");
    let name = format!("wire_encode_{}", wire_name(wire));
    let method = "compile and Wire::encode at turn 200 over the same at turn 100, taken in turn; a \
                  turn is a question, a signed thought, a call, its result and an answer.";
    Ok(Figure::new(&name, TIMES, &twice.ratios_to(&once), method)
        .at_most(TARGET)
        .note(format!(
            "Turn 100: {} ms, {} KiB; turn 200: {} ms, {} KiB.",
            short(once.median()),
            sizes.0 / 1024,
            short(twice.median()),
            sizes.1 / 1024
        )))
}

fn wire_name(wire: Wire) -> String {
    wire.as_str().replace('-', "_")
}

fn log(target: &RepairTarget, turns: u64) -> Vec<Entry> {
    let bodies = (1..=turns).flat_map(|turn| {
        let end = bodies(target, turn);
        end.into_iter().map(move |body| (turn, body))
    });
    (1..)
        .zip(bodies)
        .map(|(seq, (turn, body))| Entry {
            seq,
            turn,
            at_ms: 0,
            body,
        })
        .collect()
}

fn bodies(target: &RepairTarget, turn: u64) -> Vec<EntryBody> {
    let sidecar = |data| {
        Some(Sidecar {
            provider: target.provider.clone(),
            model_family: model_family(&target.model),
            data,
        })
    };
    let thought = Part {
        content: Content::Reasoning {
            text: "The log of the host should tell what failed. ".repeat(4),
        },
        sidecar: sidecar(json!({
            "type": "thinking",
            "thinking": "The log of the host should tell what failed. ".repeat(4),
            "signature": "c2lnbmF0dXJl".repeat(20)
        })),
    };
    let call_id = format!("call_{turn}");
    let call = Content::FunctionCall(FunctionCall {
        call_id: call_id.clone(),
        name: "log-fetcher_execute".to_owned(),
        arguments: json!({"command": format!("tail -n {turn} /var/log/host.log"), "timeout": 10}),
        arguments_text: None,
    });
    let model = |parts: Vec<Part>| EntryBody::Message {
        message: Message {
            meta: Some(Meta {
                provider: target.provider.clone(),
                model: target.model.clone(),
                ..Meta::default()
            }),
            ..Message::new(Role::Assistant, parts)
        },
    };
    let output = "2026-01-01 00:00:00 WARN a \"quoted\" line\nand another one\n".repeat(20);
    vec![
        EntryBody::Message {
            message: Message::user(format!("What went wrong at {turn}? Look into the log.")),
        },
        model(vec![thought, call.into()]),
        EntryBody::CallEnded {
            output: FunctionCallOutput::text(call_id, output, false),
            end: CallEnd::Done,
            reason: None,
            duration_ms: 1,
            meta: None,
        },
        model(vec![Part::text(
            "The disk was full, so nothing could be written. ".repeat(6),
        )]),
    ]
}
