//! Every recorded stream, cut at every byte.
//!
//! Short streams are decoded whole for every cut. For long ones that would read each byte a hundred
//! thousand times, so each cut is made inside its event: the decoder goes on from the event before
//! and must be, at the event's end, what it is without the cut.

use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_core::wire::Wire;

use crate::recordings::{Recorded, exchanges};
use crate::said::decode;

/// Streams up to this size are decoded whole for every cut.
const SHORT: usize = 1_536;

#[test]
fn a_stream_of_anthropic_cut_at_any_byte_decodes_to_the_same() {
    every_stream(Wire::Anthropic);
}

#[test]
fn a_stream_of_responses_cut_at_any_byte_decodes_to_the_same() {
    every_stream(Wire::OpenaiResponses);
}

#[test]
fn a_stream_of_chat_cut_at_any_byte_decodes_to_the_same() {
    every_stream(Wire::OpenaiChat);
}

#[test]
fn a_stream_of_gemini_cut_at_any_byte_decodes_to_the_same() {
    every_stream(Wire::Gemini);
}

fn every_stream(wire: Wire) {
    let Some(exchanges) = exchanges(wire) else {
        return;
    };
    let streams: Vec<&Recorded> = exchanges
        .iter()
        .filter(|recorded| {
            let then = &recorded.exchange.then;
            then.is_stream() && then.status == 200
        })
        .collect();
    let next = AtomicUsize::new(0);
    let cuts = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(recorded) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
                    cuts.fetch_add(every_cut(recorded), Ordering::Relaxed);
                }
            });
        }
    });
    println!(
        "{wire}: {} streams, {} cuts",
        streams.len(),
        cuts.into_inner()
    );
    assert!(!streams.is_empty(), "{wire}");
}

/// Cuts one stream at every byte; gives back how many cuts there were.
fn every_cut(recorded: &Recorded) -> usize {
    let name = format!("{} #{}", recorded.name, recorded.index);
    let bytes = recorded.exchange.reply().as_bytes();
    let whole = decode(recorded, &[bytes]);
    let each: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(recorded, &each), whole, "{name}, byte by byte");
    if bytes.len() <= SHORT {
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(
                decode(recorded, &[first, second]),
                whole,
                "{name}, cut at {at}"
            );
        }
        return bytes.len() + 1;
    }
    let mut decoder = recorded.wire.decoder(&recorded.endpoint());
    let mut told = Vec::new();
    let mut begin = 0;
    while begin < bytes.len() {
        let rest = &bytes[begin..];
        let end = ["\n\n", "\r\n\r\n"].iter().filter_map(|blank| {
            let blank = blank.as_bytes();
            let at = rest.windows(blank.len()).position(|bytes| bytes == blank)?;
            Some(at + blank.len())
        });
        let event = &rest[..end.min().unwrap_or(rest.len())];
        let before = decoder.fork();
        let so_far = told.len();
        decoder.push(event, &mut told);
        let mut last = Vec::new();
        let here = decoder.fork().finish(&mut last);
        for at in 0..event.len() {
            let mut cut = before.fork();
            let mut events = Vec::new();
            cut.push(&event[..at], &mut events);
            cut.push(&event[at..], &mut events);
            assert_eq!(events, told[so_far..], "{name}, cut at {}", begin + at);
            let mut end = Vec::new();
            assert_eq!(cut.finish(&mut end), here, "{name}, cut at {}", begin + at);
            assert_eq!(end, last, "{name}, cut at {}", begin + at);
        }
        begin += event.len();
    }
    let decoded = decoder.finish(&mut told);
    assert_eq!((decoded, told), whole, "{name}");
    bytes.len()
}
