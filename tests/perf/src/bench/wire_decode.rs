//! From the bytes of recorded replies to canonical events: how fast, and with how many allocations.
//!
//! The recordings are not in the repository; where `CONJURE_CASSETTES` does not say where they are,
//! this is left out and says so.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use conjure_core::wire::sse::SseDecoder;
use conjure_core::wire::{Endpoint, Wire};
use conjure_wire_tests::{VARIABLE, recorded};
use serde::Deserialize;

use crate::figure::Figure;
use crate::samples::{Samples, timed};
use crate::shipped::BenchArtifacts;

/// Million events a second that must be decoded at the least.
const SPEED: f64 = 1.0;

/// Allocations that an event may take at the median.
const ALLOCATIONS: f64 = 2.0;

/// Bytes of a piece, about what a connection gives at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// Events of one sample at the least: a clock reading must not count.
const SAMPLE: usize = 20_000;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) else {
        crate::report_progress(&format!("LEFT OUT: cassettes: {VARIABLE} is not set"));
        return Ok(Vec::new());
    };
    let mut figures = Vec::new();
    let mut all = Vec::new();
    for wire in Wire::ALL {
        let streams = streams(folder.as_ref(), wire)?;
        figures.push(decode_figure(
            &name("decode", wire.as_str()),
            wire.as_str(),
            &streams,
        ));
        all.extend(streams);
    }
    figures.push(decode_figure("wire_decode_all", "all wires", &all));
    figures.extend(allocations(shipped.allocations()?)?);
    Ok(figures)
}

/// A recorded stream, ready to be decoded.
struct Stream {
    wire: Wire,
    endpoint: Endpoint,
    body: String,
    events: usize,
}

fn streams(folder: &Path, wire: Wire) -> Result<Vec<Stream>> {
    let mut streams = Vec::new();
    for found in recorded(folder, wire)? {
        if found.streams() {
            let body = found.exchange.reply().to_owned();
            let mut events = Vec::new();
            SseDecoder::default().push(body.as_bytes(), &mut events)?;
            streams.push(Stream {
                wire,
                endpoint: found.endpoint(),
                events: events.len(),
                body,
            });
        }
    }
    ensure!(!streams.is_empty(), "no recorded stream of {wire}");
    Ok(streams)
}

fn decode_figure(name: &str, what: &str, streams: &[Stream]) -> Figure {
    let events: usize = streams.iter().map(|stream| stream.events).sum();
    let passes = SAMPLE.div_ceil(events.max(1));
    let mut out = Vec::new();
    let mut samples = Samples::default();
    for round in 0..110 {
        let ((), took) = timed(|| (0..passes).for_each(|_| decode(streams, &mut out)));
        if round >= 10 {
            samples.push((events * passes) as f64 / took.as_secs_f64() / 1e6);
        }
    }
    let method = "Decoder::push of recorded replies in pieces of 16 KiB, with making and finishing \
                  the decoder of each, on one core; an event is one of the stream.";
    let bytes: usize = streams.iter().map(|stream| stream.body.len()).sum();
    Figure::new(name, "M events/s", &samples, method)
        .at_least(SPEED)
        .note(format!(
            "{what}: {} streams, {events} events of {} bytes on average.",
            streams.len(),
            bytes / events.max(1)
        ))
}

fn decode(streams: &[Stream], out: &mut Vec<conjure_core::chat::StreamEvent>) {
    for stream in streams {
        let mut decoder = stream.wire.decoder(&stream.endpoint);
        for piece in stream.body.as_bytes().chunks(CHUNK_BYTES) {
            out.clear();
            decoder.push(black_box(piece), out);
        }
        black_box(decoder.finish(out));
        out.clear();
    }
}

/// What the program that counts says of one wire.
#[derive(Deserialize)]
struct EventCounts {
    wire: Wire,
    counts: Vec<u32>,
}

fn allocations(program: &Path) -> Result<Vec<Figure>> {
    let output = Command::new(program)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("the program that counts allocations could not be started")?;
    ensure!(
        output.status.success(),
        "the program that counts allocations ended with {}",
        output.status
    );
    let mut all = Samples::default();
    let mut figures = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let counted: EventCounts =
            serde_json::from_str(line).context("its counts cannot be read")?;
        let samples: Samples = counted.counts.iter().copied().map(f64::from).collect();
        all.extend(&samples);
        let mut by_count = BTreeMap::new();
        for count in counted.counts {
            *by_count.entry(count).or_insert(0_u32) += 1;
        }
        let told: Vec<String> = by_count
            .iter()
            .map(|(count, events)| format!("{count}: {events}"))
            .collect();
        let name = name("allocations", counted.wire.as_str());
        figures
            .push(counts(&name, &samples).note(format!("Events by count: {}.", told.join(", "))));
    }
    figures.push(counts("wire_allocations_all", &all));
    Ok(figures)
}

fn counts(name: &str, samples: &Samples) -> Figure {
    let method = "Allocations and reallocations of Decoder::push for each event of recorded \
                  replies, with the strings of the events that come of it.";
    Figure::new(name, "an event", samples, method).at_most(ALLOCATIONS)
}

fn name(what: &str, wire: &str) -> String {
    format!("wire_{what}_{}", wire.replace('-', "_"))
}
