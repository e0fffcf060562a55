//! Entries that come as plain text lines: a time, a level and a message in their usual orders.

use crate::access::from_access;
use crate::entry::{LogEntry, LogSeverity};
use crate::structured::{from_logfmt, host_and_service};
use crate::timestamp;

/// How many words may stand between the time and the level: host, service, thread.
const MAX_WORDS_BETWEEN: usize = 3;

/// The entry of a line: a request to a web server, logfmt, or text with a time or a level in it.
pub(crate) fn from_line(line: &str) -> Option<LogEntry> {
    let line = line.trim();
    if let Some(entry) = from_access(line).or_else(|| from_logfmt(line)) {
        return Some(entry);
    }
    let mut entry = if let Some(entry) = from_priority(line) {
        entry
    } else if let Some((time, rest)) = timestamp::split(line) {
        let entry = match time.as_bytes().first() {
            Some(letter) if letter.is_ascii_alphabetic() => from_syslog(rest),
            _ => after_time(rest),
        };
        LogEntry {
            timestamp: Some(time),
            ..entry
        }
    } else {
        from_klog(line).or_else(|| from_level(line))?
    };
    if let (Some(message), true) = (
        &entry.message,
        entry.host.is_none() || entry.service.is_none(),
    ) {
        let (host, service) = host_and_service(message);
        entry.host = entry.host.or(host);
        entry.service = entry.service.or(service);
    }
    entry.is_readable().then_some(entry)
}

/// `LEVEL …`, `[LEVEL] …`, `LEVEL: …`, with a time after it or none at all.
fn from_level(line: &str) -> Option<LogEntry> {
    let (word, rest) = next_word(line)?;
    let level = level_word(word, true)?;
    let rest = separator(rest);
    let (timestamp, rest) = match timestamp::split(rest) {
        Some((time, rest)) => (Some(time), separator(rest)),
        None => (None, rest),
    };
    let (service, message) = bracketed(rest);
    Some(LogEntry {
        timestamp,
        level: Some(level),
        service,
        message: message_of(message),
        ..LogEntry::default()
    })
}

/// What follows a time: `[thread] LEVEL message`, `- logger - LEVEL - message`,
/// `host service LEVEL message`, or a message alone.
fn after_time(rest: &str) -> LogEntry {
    let rest = separator(rest);
    let mut names = Vec::new();
    let mut between = 0;
    let mut ahead = rest;
    while between <= MAX_WORDS_BETWEEN {
        let Some((next, after)) = next_word(ahead) else {
            break;
        };
        // The first word may be a level in small letters too; later on it may be prose.
        if let Some(level) = level_word(next, between > 0) {
            let (host, service) = match names.as_slice() {
                [] => (None, None),
                [service] => (None, Some(*service)),
                [host, service, ..] => (Some(*host), Some(*service)),
            };
            let (named, message) = bracketed(separator(after));
            return LogEntry {
                level: Some(level),
                host: host.map(str::to_owned),
                service: service.map(str::to_owned).or(named),
                message: message_of(message),
                ..LogEntry::default()
            };
        }
        if is_name(next) && !next.bytes().all(|byte| byte.is_ascii_digit()) {
            names.push(next);
        }
        between += usize::from(!matches!(next, "-" | "--" | "---" | "|"));
        ahead = after.trim_start();
    }
    LogEntry {
        message: message_of(rest),
        ..LogEntry::default()
    }
}

/// What follows the time of a syslog line: `host prog[pid]: message`.
fn from_syslog(rest: &str) -> LogEntry {
    let rest = rest.trim_start();
    let by_words = || after_time(rest);
    let Some((host, after)) = next_word(rest) else {
        return by_words();
    };
    let after = after.trim_start();
    let Some((tag, message)) = after.split_once(':') else {
        return by_words();
    };
    let program = tag.split_once('[').map_or(tag, |(program, _)| program);
    if !is_name(host) || !is_name(program) || level_word(host, true).is_some() {
        return by_words();
    }
    let message = message.trim_start();
    let level = next_word(message).and_then(|(first, _)| {
        let marked = first.ends_with(':') || first.starts_with(['[', '<', '(']);
        level_word(first, !marked)
    });
    LogEntry {
        level,
        host: Some(host.to_owned()),
        service: Some(program.to_owned()),
        message: message_of(message),
        ..LogEntry::default()
    }
}

/// `<34>Oct 11 22:14:15 host prog: message`, and the newer
/// `<34>1 2003-10-11T22:14:15Z host prog pid id - message`.
fn from_priority(line: &str) -> Option<LogEntry> {
    let (priority, rest) = line.strip_prefix('<')?.split_once('>')?;
    let priority: u64 = priority.parse().ok().filter(|priority| *priority < 192)?;
    let level = LogSeverity::of_syslog(priority % 8);
    let (timestamp, entry) = match rest.strip_prefix("1 ") {
        Some(rest) => {
            let mut words = rest.splitn(6, ' ');
            let mut next = || words.next().filter(|word| *word != "-").map(str::to_owned);
            let (timestamp, host, service) = (next(), next(), next());
            let (_pid, _id) = (next(), next());
            let message = words.next().map(without_data).and_then(message_of);
            let entry = LogEntry {
                host,
                service,
                message,
                ..LogEntry::default()
            };
            (timestamp, entry)
        }
        None => {
            let (time, rest) = timestamp::split(rest)?;
            (Some(time), from_syslog(rest))
        }
    };
    Some(LogEntry {
        timestamp,
        level: Some(level),
        ..entry
    })
}

/// Drops the structured data of a newer syslog line.
fn without_data(text: &str) -> &str {
    if let Some(rest) = text.strip_prefix('-') {
        return rest.trim_start();
    }
    let mut rest = text;
    while rest.starts_with('[') {
        match rest.split_once(']') {
            Some((_, after)) => rest = after,
            None => break,
        }
    }
    rest.trim_start()
}

/// `E0115 10:30:00.123456    1234 file.go:12] message`, as Kubernetes writes it.
fn from_klog(line: &str) -> Option<LogEntry> {
    let level = match line.bytes().next()? {
        b'I' => LogSeverity::Info,
        b'W' => LogSeverity::Warn,
        b'E' | b'F' => LogSeverity::Error,
        _ => return None,
    };
    let rest = line.get(1..)?;
    let digits = rest.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (clock, rest) = timestamp::split(rest.get(4..)?.strip_prefix(' ')?)?;
    let (place, message) = rest.split_once("] ")?;
    Some(LogEntry {
        timestamp: Some(format!("{digits} {clock}")),
        level: Some(level),
        service: place.split_whitespace().next_back().map(str::to_owned),
        message: message_of(message),
        ..LogEntry::default()
    })
}

/// The level that a word is: in brackets, with a colon, or bare. A bare one must be in capitals
/// when `strict`, because prose may begin with `error` as well.
fn level_word(word: &str, strict: bool) -> Option<LogSeverity> {
    let bare = word.trim_matches(['[', ']', '<', '>', '(', ')', ':', '|', ',', '-']);
    let level = LogSeverity::parse(bare)?;
    let marked = bare.len() != word.len();
    let capitals = bare.bytes().all(|byte| byte.is_ascii_uppercase());
    (marked || capitals || !strict).then_some(level)
}

/// The next word, and what follows it. A text in brackets is one word, as `[my thread]`.
fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    let blank = || text.find(char::is_whitespace).unwrap_or(text.len());
    let end = match text.strip_prefix('[').and_then(|inner| inner.find(']')) {
        Some(end) => {
            let after = text.get(end + 2..).unwrap_or_default();
            end + 2 + usize::from(after.starts_with(':'))
        }
        None => blank(),
    };
    text.split_at_checked(end)
}

/// Drops what stands between parts: blanks, dashes, bars, colons.
fn separator(text: &str) -> &str {
    let text = text.trim_start();
    for mark in ["- ", "-- ", "--- ", "| ", ": ", "— "] {
        if let Some(rest) = text.strip_prefix(mark) {
            return rest.trim_start();
        }
    }
    text
}

/// A service in brackets in front of a message: `[payments] refused`.
fn bracketed(text: &str) -> (Option<String>, &str) {
    let parts = text
        .strip_prefix('[')
        .and_then(|inner| inner.split_once(']'));
    match parts {
        Some((name, message)) if is_name(name) && !message.trim().is_empty() => {
            (Some(name.to_owned()), separator(message))
        }
        _ => (None, text),
    }
}

/// Whether a word can be the name of a host or a service.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphanumeric())
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || "._-/@:".contains(c))
        && !word.ends_with(':')
}

fn message_of(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "2024-01-15T10:30:00Z";

    /// Timestamp, level, host, service, message; empty for none.
    fn parts(line: &str) -> Option<[String; 5]> {
        let entry = from_line(line)?;
        let level = entry.level.map(|level| level.as_str().to_owned());
        Some(
            [
                entry.timestamp,
                level,
                entry.host,
                entry.service,
                entry.message,
            ]
            .map(Option::unwrap_or_default),
        )
    }

    #[test]
    fn usual_lines_are_read() {
        let u = "2024-01-15 10:30:00,123";
        for (line, expected) in [
            (
                format!("{T} ERROR it broke"),
                [T, "ERROR", "", "", "it broke"],
            ),
            (
                format!("{T} [ERROR] it broke"),
                [T, "ERROR", "", "", "it broke"],
            ),
            (
                format!("[{T}] [error] it broke"),
                [T, "ERROR", "", "", "it broke"],
            ),
            (
                format!("[{T}] warning: it may break"),
                [T, "WARN", "", "", "it may break"],
            ),
            (
                format!("{T} | INFO | it works"),
                [T, "INFO", "", "", "it works"],
            ),
            (
                format!("{T} info it works"),
                [T, "INFO", "", "", "it works"],
            ),
            (
                format!("{u} - app.db - CRITICAL - it broke"),
                [u, "ERROR", "", "app.db", "it broke"],
            ),
            (
                format!("{u} [main] DEBUG com.x.Y - it runs"),
                [u, "DEBUG", "", "", "com.x.Y - it runs"],
            ),
            (
                format!("{T} web-1 payments WARN it is slow"),
                [T, "WARN", "web-1", "payments", "it is slow"],
            ),
            (
                format!("{T} ERROR [payments] it broke"),
                [T, "ERROR", "", "payments", "it broke"],
            ),
            (
                format!("{T} ERROR it broke host=web-1 service=pay"),
                [
                    T,
                    "ERROR",
                    "web-1",
                    "pay",
                    "it broke host=web-1 service=pay",
                ],
            ),
            (
                format!("[ERROR] {T} it broke"),
                [T, "ERROR", "", "", "it broke"],
            ),
            (
                format!("WARN {T} - it is slow"),
                [T, "WARN", "", "", "it is slow"],
            ),
            (
                "[WARN] it is slow".into(),
                ["", "WARN", "", "", "it is slow"],
            ),
            ("ERROR: it broke".into(), ["", "ERROR", "", "", "it broke"]),
            ("FATAL it broke".into(), ["", "ERROR", "", "", "it broke"]),
            (
                "Jan 15 10:30:00 web-1 sshd[123]: it works".into(),
                ["Jan 15 10:30:00", "", "web-1", "sshd", "it works"],
            ),
            (
                "Jan  5 10:30:00 web-1 sshd[123]: error: it broke".into(),
                [
                    "Jan  5 10:30:00",
                    "ERROR",
                    "web-1",
                    "sshd",
                    "error: it broke",
                ],
            ),
            (
                "Jan 15 10:30:00 web-1 kernel: [12.5] it works".into(),
                ["Jan 15 10:30:00", "", "web-1", "kernel", "[12.5] it works"],
            ),
            (
                "Jan 15 10:30:00 ERROR it: broke".into(),
                ["Jan 15 10:30:00", "ERROR", "", "", "it: broke"],
            ),
            (
                "<11>Jan 15 10:30:00 web-1 app: it broke".into(),
                ["Jan 15 10:30:00", "ERROR", "web-1", "app", "it broke"],
            ),
            (
                format!("<12>1 {T} web-1 app 12 - [x y=\"1\"] it is slow"),
                [T, "WARN", "web-1", "app", "it is slow"],
            ),
            (
                "E0115 10:30:00.5    1 node.go:12] it broke".into(),
                ["0115 10:30:00.5", "ERROR", "", "node.go:12", "it broke"],
            ),
            (
                format!("time={T} level=warn msg=\"it is slow\" host=web-1"),
                [T, "WARN", "web-1", "", "it is slow"],
            ),
            (
                format!("{T} nothing is known about this"),
                [T, "", "", "", "nothing is known about this"],
            ),
            (
                format!("{T} this is not yet an ERROR at all"),
                [T, "", "", "", "this is not yet an ERROR at all"],
            ),
            (
                format!("{T} 4711 ERROR it broke"),
                [T, "ERROR", "", "", "it broke"],
            ),
            (
                "1705314600 INFO it works".into(),
                [T, "INFO", "", "", "it works"],
            ),
        ] {
            assert_eq!(parts(&line), Some(expected.map(str::to_owned)), "{line}");
        }
    }

    #[test]
    fn prose_is_no_entry() {
        for line in [
            "",
            "   ",
            "hello world",
            "error opening the file",
            "  at com.x.Y(Y.java:12)",
            "-----",
            "Traceback (most recent call last):",
        ] {
            assert_eq!(from_line(line), None, "{line}");
        }
    }
}
