//! Entries of web servers' access logs, as nginx and Apache write them.
//!
//! Takes the common form, the combined form (with the referrer and the user agent), and both with
//! the virtual host ahead. A request has no level of its own: its status gives one.

use crate::entry::{LogEntry, LogSeverity, WebClient};
use crate::timestamp;

/// The fields before the time: client, identity, user, and a virtual host ahead of them.
const MIN_FIELDS_BEFORE: usize = 3;

/// The entry of a line such as
/// `192.0.2.7 - ada [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8.5"`.
pub(crate) fn from_access(line: &str) -> Option<LogEntry> {
    let (ahead, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let timestamp = timestamp::from_access(time)?;
    let ahead: Vec<&str> = ahead.split(' ').collect();
    // A name of a user may hold blanks, so there may be more fields than these.
    let (host, client) = match ahead.as_slice() {
        fields if fields.len() < MIN_FIELDS_BEFORE => return None,
        // The identity is `-` in practice; where the third field is, something stands ahead.
        [host, client, "-", _, ..] => (Some(*host), *client),
        [client, ..] => (None, *client),
        [] => return None,
    };
    let (request, rest) = quoted_text(rest)?;
    let mut fields = rest.trim_start().splitn(3, ' ');
    let status = fields.next().and_then(status)?;
    let bytes = fields.next()?;
    if bytes != "-" && bytes.parse::<u64>().is_err() {
        return None;
    }
    let (referrer, agent) = referrer_and_agent(fields.next().unwrap_or_default());
    Some(LogEntry {
        timestamp: Some(timestamp),
        level: Some(level_of(status)),
        host: host.map(|host| without_port(host).to_owned()),
        service: None,
        message: Some(message(&request, status)),
        client: Some(Box::new(WebClient {
            address: client.to_owned(),
            referrer,
            agent,
        })),
    })
}

/// The referrer and the user agent of the combined form; `-` stands for none.
fn referrer_and_agent(rest: &str) -> (Option<String>, Option<String>) {
    let mut rest = rest.trim_start();
    let mut next = || {
        let (text, after) = quoted_text(rest.strip_prefix('"')?)?;
        rest = after.trim_start();
        Some(text)
    };
    let (referrer, agent) = (next(), next());
    let given = |text: Option<String>| text.filter(|text| !text.is_empty() && text != "-");
    (given(referrer), given(agent))
}

/// What was asked for, and how that ended. The reason stands beside the number, because whoever
/// groups messages may leave numbers out.
fn message(request: &str, status: u16) -> String {
    let request = match request {
        "" | "-" => "no request",
        request => request,
    };
    match reason(status) {
        Some(reason) => format!("{request}: {status} {reason}"),
        None => format!("{request}: {status}"),
    }
}

fn level_of(status: u16) -> LogSeverity {
    match status {
        500.. => LogSeverity::Error,
        400..=499 => LogSeverity::Warn,
        _ => LogSeverity::Info,
    }
}

fn status(text: &str) -> Option<u16> {
    let status = text.parse().ok()?;
    (text.len() == 3 && (100..=599).contains(&status)).then_some(status)
}

/// The text up to the closing quote, and what is behind that. A backslash hides a quote.
fn quoted_text(text: &str) -> Option<(String, &str)> {
    let mut hidden = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !hidden => {
                let rest = text.get(at + 1..)?;
                return Some((text.get(..at)?.replace("\\\"", "\""), rest));
            }
            b'\\' => hidden = !hidden,
            _ => hidden = false,
        }
    }
    None
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The names of the statuses that logs are full of (RFC 9110, and 499 of nginx).
fn reason(status: u16) -> Option<&'static str> {
    Some(match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        414 => "URI Too Long",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        499 => "Client Closed Request",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timestamp, level, host, message, client, referrer, agent; empty for none.
    fn parts(line: &str) -> Option<[String; 7]> {
        let entry = from_access(line)?;
        let client = entry.client.unwrap();
        Some([
            entry.timestamp.unwrap_or_default(),
            entry.level.unwrap().as_str().to_owned(),
            entry.host.unwrap_or_default(),
            entry.message.unwrap_or_default(),
            client.address,
            client.referrer.unwrap_or_default(),
            client.agent.unwrap_or_default(),
        ])
    }

    #[test]
    fn the_common_and_the_combined_form_are_read() {
        let utc = "2024-01-15T10:30:00+00:00";
        for (line, expected) in [
            (
                r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET /a?b=c HTTP/1.1" 200 512"#,
                [
                    utc,
                    "INFO",
                    "",
                    "GET /a?b=c HTTP/1.1: 200 OK",
                    "192.0.2.7",
                    "",
                    "",
                ],
            ),
            (
                r#"2001:db8::7 - ada l [15/Jan/2024:10:30:00 -0130] "PUT / HTTP/2.0" 404 - "https://example.org/" "Agent/1.0 (x; \"y\")""#,
                [
                    "2024-01-15T10:30:00-01:30",
                    "WARN",
                    "",
                    "PUT / HTTP/2.0: 404 Not Found",
                    "2001:db8::7",
                    "https://example.org/",
                    "Agent/1.0 (x; \"y\")",
                ],
            ),
            (
                r#"shop.example:443 192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 502 157 "-" "curl/8.5" rt=0.2"#,
                [
                    utc,
                    "ERROR",
                    "shop.example",
                    "GET / HTTP/1.1: 502 Bad Gateway",
                    "192.0.2.7",
                    "",
                    "curl/8.5",
                ],
            ),
            (
                r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "-" 400 0 "-" "-""#,
                [
                    utc,
                    "WARN",
                    "",
                    "no request: 400 Bad Request",
                    "192.0.2.7",
                    "",
                    "",
                ],
            ),
            (
                r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "\x16\x03\x01" 599 0 "-"#,
                [utc, "ERROR", "", r"\x16\x03\x01: 599", "192.0.2.7", "", ""],
            ),
        ] {
            assert_eq!(parts(line), Some(expected.map(str::to_owned)), "{line}");
        }
    }

    #[test]
    fn what_is_no_request_is_left_alone() {
        for line in [
            "",
            "192.0.2.7 - -",
            r#"192.0.2.7 - - [15/Jan/2024:10:3"#,
            r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET / HT"#,
            r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1""#,
            r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 200"#,
            r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 2000 1"#,
            r#"192.0.2.7 - - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 200 many"#,
            r#"192.0.2.7 - - [99/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 200 1"#,
            r#"192.0.2.7 - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 200 1"#,
        ] {
            assert_eq!(from_access(line), None, "{line}");
        }
    }
}
