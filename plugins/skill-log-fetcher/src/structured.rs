//! Entries that come as keys and values: JSON objects and logfmt lines.

use serde_json::{Map, Value};

use crate::entry::{LogEntry, LogSeverity};
use crate::journal::from_journal;
use crate::timestamp;

const TIMESTAMP: &[&str] = &[
    "timestamp",
    "time",
    "ts",
    "@timestamp",
    "datetime",
    "date",
    "t",
];
const LEVEL: &[&str] = &["level", "severity", "lvl", "levelname", "log.level"];
const HOST: &[&str] = &["host", "hostname", "host.name", "node"];
const SERVICE: &[&str] = &[
    "service",
    "app",
    "service.name",
    "application",
    "logger",
    "program",
    "component",
];
const MESSAGE: &[&str] = &["message", "msg", "text", "event", "error", "err"];

/// The entry of a JSON object.
pub(crate) fn from_json(object: &Map<String, Value>) -> Option<LogEntry> {
    if let Some(entry) = from_journal(object) {
        return Some(entry);
    }
    let entry = LogEntry {
        timestamp: find(object, TIMESTAMP).and_then(time),
        level: find(object, LEVEL).and_then(level),
        host: find(object, HOST).and_then(text),
        service: find(object, SERVICE).and_then(text),
        message: find(object, MESSAGE).and_then(text),
        client: None,
    };
    entry.is_readable().then_some(entry)
}

/// The entry of a line such as `ts=2024-01-15T10:30:00Z level=info msg="it works"`.
pub(crate) fn from_logfmt(line: &str) -> Option<LogEntry> {
    let whole = is_logfmt(line);
    // Where there are other words too, a message with a `=` in it is not yet logfmt.
    let named = |names| has_name(line, names);
    if !whole && !(named(LEVEL) && (named(MESSAGE) || named(TIMESTAMP))) {
        return None;
    }
    let mut pairs = pairs(line);
    if whole && find(&pairs, MESSAGE).is_none() {
        // What happened is then in the other keys: `level=info method=GET status=200`.
        pairs.insert("message".to_owned(), Value::String(line.to_owned()));
    }
    from_json(&pairs)
}

/// Whether a line is nothing but keys with values, of which one is a level, a time or a message.
fn is_logfmt(line: &str) -> bool {
    let mut rest = line.trim();
    let mut count = 0;
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            return false;
        };
        let is_key = |c: char| c.is_alphanumeric() || "_.@/-".contains(c);
        if key.is_empty() || !key.chars().all(is_key) {
            return false;
        }
        let (_, after) = value(after);
        if !(after.is_empty() || after.starts_with(char::is_whitespace)) {
            return false;
        }
        rest = after.trim_start();
        count += 1;
    }
    count > 1
        && [LEVEL, MESSAGE, TIMESTAMP]
            .iter()
            .any(|names| has_name(line, names))
}

/// Whether one of these keys is in a line.
fn has_name(line: &str, names: &[&str]) -> bool {
    names.iter().any(|name| {
        line.match_indices(name).any(|(at, _)| {
            let before = line.get(..at).unwrap_or_default();
            let after = line.get(at + name.len()..).unwrap_or_default();
            after.starts_with('=') && (before.is_empty() || before.ends_with(' '))
        })
    })
}

/// The values of certain keys in a line of text, `host=web-1` among other words.
pub(crate) fn host_and_service(line: &str) -> (Option<String>, Option<String>) {
    if !line.contains('=') {
        return (None, None);
    }
    let pairs = pairs(line);
    (
        find(&pairs, HOST).and_then(text),
        find(&pairs, SERVICE).and_then(text),
    )
}

/// The keys and values of a line; words without a `=` are passed over.
fn pairs(line: &str) -> Map<String, Value> {
    let mut pairs = Map::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            rest = after.trim_start();
            continue;
        };
        let (value, after) = value(after);
        if !key.is_empty() {
            pairs.insert(key.to_owned(), Value::String(value));
        }
        rest = after.trim_start();
    }
    pairs
}

/// A value up to the next blank, or in double quotes with backslashes.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, other)) => value.push(other),
                None => value.push('\\'),
            },
            c => value.push(c),
        }
    }
    (value, "")
}

/// The value of the first of some keys that is there.
fn find<'a>(object: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().find_map(|key| {
        object.get(*key).or_else(|| {
            let mut others = object.iter();
            others
                .find(|(name, _)| name.eq_ignore_ascii_case(key))
                .map(|(_, value)| value)
        })
    })
}

fn time(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let readable = timestamp::from_number(number.as_f64()?);
            Some(readable.unwrap_or_else(|| number.to_string()))
        }
        Value::String(text) => {
            let number = text.parse().ok().and_then(timestamp::from_number);
            number.or_else(|| (!text.is_empty()).then(|| text.clone()))
        }
        _ => None,
    }
}

fn level(value: &Value) -> Option<LogSeverity> {
    match value {
        Value::String(name) => LogSeverity::parse(name.trim()),
        // 0 to 7 are those of syslog, 10 to 60 those of the loggers of Node.js.
        Value::Number(number) => match number.as_u64()? {
            severity @ 0..=7 => Some(LogSeverity::of_syslog(severity)),
            8..=14 => Some(LogSeverity::Trace),
            15..=24 => Some(LogSeverity::Debug),
            25..=34 => Some(LogSeverity::Info),
            35..=44 => Some(LogSeverity::Warn),
            _ => Some(LogSeverity::Error),
        },
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // Some write `"host": {"name": "web-1"}`.
        Value::Object(object) => match object.get("name") {
            Some(Value::String(name)) => Some(name.clone()),
            _ => Some(value.to_string()),
        },
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(parts: [&str; 4], level: Option<LogSeverity>) -> LogEntry {
        let [timestamp, host, service, message] =
            parts.map(|part| (!part.is_empty()).then(|| part.to_owned()));
        LogEntry {
            timestamp,
            level,
            host,
            service,
            message,
            client: None,
        }
    }

    fn json_entry(value: &Value) -> Option<LogEntry> {
        from_json(value.as_object().unwrap())
    }

    #[test]
    fn keys_have_many_names() {
        let expected = entry(
            ["2024-01-15T10:30:00Z", "h", "s", "m"],
            Some(LogSeverity::Warn),
        );
        for value in [
            json!({ "timestamp": "2024-01-15T10:30:00Z", "level": "WARN", "host": "h", "service": "s", "message": "m" }),
            json!({ "time": "2024-01-15T10:30:00Z", "severity": "warning", "hostname": "h", "app": "s", "msg": "m" }),
            json!({ "ts": 1_705_314_600, "lvl": "wrn", "hostname": "h", "logger": "s", "msg": "m" }),
            json!({ "@timestamp": "2024-01-15T10:30:00Z", "log.level": "warn", "host": { "name": "h" }, "service": { "name": "s" }, "message": "m" }),
            json!({ "time": 1_705_314_600_000_u64, "level": 40, "hostname": "h", "app": "s", "msg": "m" }),
            json!({ "Timestamp": "2024-01-15T10:30:00Z", "Level": "Warning", "Host": "h", "Service": "s", "Message": "m" }),
        ] {
            assert_eq!(json_entry(&value), Some(expected.clone()), "{value}");
        }
    }

    #[test]
    fn an_object_that_says_nothing_is_no_entry() {
        for value in [json!({}), json!({ "a": 1 }), json!({ "level": "INFO" })] {
            assert_eq!(json_entry(&value), None, "{value}");
        }
        let unknown = json!({ "level": "loud", "message": { "a": 1 } });
        assert_eq!(
            json_entry(&unknown),
            Some(entry(["", "", "", "{\"a\":1}"], None))
        );
    }

    #[test]
    fn logfmt_is_read() {
        assert_eq!(
            from_logfmt(r#"ts=2024-01-15T10:30:00Z level=err host=h app=s msg="say \"hi\" = ok""#),
            Some(entry(
                ["2024-01-15T10:30:00Z", "h", "s", "say \"hi\" = ok"],
                Some(LogSeverity::Error)
            ))
        );
        assert_eq!(
            from_logfmt("10:30:00 ERROR retry level=3 is too much"),
            None
        );
    }

    #[test]
    fn logfmt_with_few_keys_or_others_is_read() {
        for (line, expected) in [
            (
                "t=2024-01-15T10:30:00Z msg=\"it works\"",
                entry(["2024-01-15T10:30:00Z", "", "", "it works"], None),
            ),
            (
                "level=error err=\"it broke\" caller=main.go:12",
                entry(["", "", "", "it broke"], Some(LogSeverity::Error)),
            ),
            (
                "time=2024-01-15T10:30:00Z method=GET path=/a=b status=200 note=",
                entry(
                    [
                        "2024-01-15T10:30:00Z",
                        "",
                        "",
                        "time=2024-01-15T10:30:00Z method=GET path=/a=b status=200 note=",
                    ],
                    None,
                ),
            ),
        ] {
            assert_eq!(from_logfmt(line), Some(expected), "{line}");
        }
        for line in [
            "a=1",
            "a=1 b=2",
            "msg=alone",
            "time=1 and more",
            "level=\"a\"b c=d",
            "=1 msg=x",
        ] {
            assert_eq!(from_logfmt(line), None, "{line}");
        }
    }
}
