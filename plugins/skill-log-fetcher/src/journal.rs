//! Entries of the systemd journal, as `journalctl -o json` writes them.
//!
//! The fields are those of systemd.journal-fields(7). Every value is a string, but for what is
//! no text (an array of bytes), too long (null) or there more than once (an array of values).

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::entry::{LogEntry, LogSeverity};

/// Every entry has it, whichever fields were asked for.
const RECEIVED_FIELD: &str = "__REALTIME_TIMESTAMP";
/// When the sender says it happened, which is a little earlier.
const SENT_FIELD: &str = "_SOURCE_REALTIME_TIMESTAMP";
/// Stands for a message that journalctl left out.
const TOO_LONG: &str = "(a message that is too long for `journalctl -o json`; `--all` shows it)";

/// The entry of an object, if the object is one of the journal.
pub(crate) fn from_journal(object: &Map<String, Value>) -> Option<LogEntry> {
    let received = object.get(RECEIVED_FIELD)?;
    let timestamp = object
        .get(SENT_FIELD)
        .and_then(time)
        .or_else(|| time(received));
    let level = field(object, "PRIORITY").and_then(|priority| priority.parse().ok());
    let service = ["SYSLOG_IDENTIFIER", "_SYSTEMD_UNIT", "_COMM"]
        .into_iter()
        .find_map(|name| field(object, name));
    let message = match object.get("MESSAGE") {
        Some(Value::Null) => Some(TOO_LONG.to_owned()),
        Some(value) => text(value),
        None => None,
    };
    let entry = LogEntry {
        timestamp,
        level: level.map(LogSeverity::of_syslog),
        host: field(object, "_HOSTNAME"),
        service,
        message: message.map(|message| message.trim_end().to_owned()),
        client: None,
    };
    entry.is_readable().then_some(entry)
}

fn field(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name).and_then(text)
}

/// A text, a text as bytes, or the first of several.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(values) if values.iter().all(Value::is_number) => {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Option<Vec<u8>> = values.iter().map(byte).collect();
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        }
        Value::Array(values) => values.first().and_then(text),
        _ => None,
    }
}

/// Microseconds since 1970, in a string.
fn time(value: &Value) -> Option<String> {
    let microseconds = text(value)?.parse().ok()?;
    let time = Timestamp::from_microsecond(microseconds).ok()?;
    Some(time.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(value: &Value) -> Option<LogEntry> {
        from_journal(value.as_object().unwrap())
    }

    #[test]
    fn the_fields_of_the_journal_are_read() {
        let given = json!({
            "__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": "1705314600123999",
            "_SOURCE_REALTIME_TIMESTAMP": "1705314600123456", "PRIORITY": "3",
            "_HOSTNAME": "web-1", "SYSLOG_IDENTIFIER": "sshd", "_SYSTEMD_UNIT": "ssh.service",
            "_COMM": "sshd", "MESSAGE": "it broke",
        });
        let some = |text: &str| Some(text.to_owned());
        let expected = LogEntry {
            timestamp: some("2024-01-15T10:30:00.123456Z"),
            level: Some(LogSeverity::Error),
            host: some("web-1"),
            service: some("sshd"),
            message: some("it broke"),
            client: None,
        };
        assert_eq!(entry(&given), Some(expected));
    }

    #[test]
    fn messages_of_every_kind_are_read() {
        for (message, expected) in [
            (json!("text\n"), "text"),
            (json!([104, 105, 255]), "hi\u{fffd}"),
            (json!(["first", "second"]), "first"),
            (json!([[104, 105], "second"]), "hi"),
            (json!(null), TOO_LONG),
        ] {
            let given = json!({ RECEIVED_FIELD: "1705314600123456", "MESSAGE": message });
            assert_eq!(entry(&given).unwrap().message.unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_not_of_the_journal_or_says_nothing_is_no_entry() {
        for given in [
            json!({ "MESSAGE": "text", "PRIORITY": "3" }),
            json!({ RECEIVED_FIELD: "1705314600123456" }),
            json!({ RECEIVED_FIELD: "soon", "PRIORITY": "3" }),
        ] {
            assert_eq!(entry(&given), None, "{given}");
        }
    }
}
