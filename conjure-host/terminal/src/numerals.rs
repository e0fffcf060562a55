//! Numbers in words.

use std::time::{Duration, Instant};

/// `1 line`, `12 lines`.
pub(crate) fn lines(count: usize) -> String {
    match count {
        1 => "1 line".to_owned(),
        count => format!("{count} lines"),
    }
}

/// `35 ms`, `1.2 s`, `2 min 5 s`.
pub(crate) fn duration(time: Duration) -> String {
    let milliseconds = time.as_millis();
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..60_000 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// How long it has taken, in whole seconds, with this before it; nothing for less than one.
pub(crate) fn time_since(began: Instant, before: &str) -> String {
    match began.elapsed().as_secs() {
        0 => String::new(),
        seconds => format!("{before}{}", duration(Duration::from_secs(seconds))),
    }
}

/// `950`, `12.3k`, `1.2M`.
pub(crate) fn count(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        1000..1_000_000 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}
