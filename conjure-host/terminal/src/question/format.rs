//! The formats of texts that a form may ask for: `email`, `uri`, `date` and `date-time`.
//!
//! A person who mistypes is asked again at once. Whoever asked may still be stricter.

use serde_json::Value;

/// A format that a text is checked for.
pub(super) struct TextFormat {
    name: &'static str,
    /// What fits it, with an example.
    pub(super) description: &'static str,
    /// Whether a text fits it.
    pub(super) matches: fn(&str) -> bool,
}

static FORMATS: [TextFormat; 4] = [
    TextFormat {
        name: "email",
        description: "an e-mail address, such as ada@example.org",
        matches: is_email,
    },
    TextFormat {
        name: "uri",
        description: "an address with its scheme, such as https://example.org/",
        matches: is_uri,
    },
    TextFormat {
        name: "date",
        description: "a date, such as 2026-01-31",
        matches: is_date,
    },
    TextFormat {
        name: "date-time",
        description: "a date and a time with its zone, such as 2026-01-31T18:00:00Z",
        matches: is_date_time,
    },
];

/// The format that a schema names; nothing where it is none that is checked.
pub(super) fn text_format(schema: &Value) -> Option<&'static TextFormat> {
    let name = schema.get("format").and_then(Value::as_str)?;
    FORMATS.iter().find(|format| format.name == name)
}

fn is_email(text: &str) -> bool {
    let Some((person, host)) = text.rsplit_once('@') else {
        return false;
    };
    let is_host = !host.is_empty() && !host.starts_with('.') && !host.ends_with('.');
    is_host && !person.is_empty() && !text.contains(char::is_whitespace)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme && !rest.is_empty() && !rest.contains(char::is_whitespace)
}

fn is_date(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-') else {
        return false;
    };
    let Some((month, day)) = rest.split_once('-') else {
        return false;
    };
    match (digits(year, 4), digits(month, 2), digits(day, 2)) {
        (Some(year), Some(month), Some(day)) => (1..=days(year, month)).contains(&day),
        _ => false,
    }
}

/// How many days a month has; 0 where there is no such month.
fn days(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}

/// As RFC 3339 has it, which JSON Schema refers to.
fn is_date_time(text: &str) -> bool {
    let parts = text.split_once(['T', 't']);
    parts.is_some_and(|(date, time)| is_date(date) && is_time(time))
}

fn is_time(text: &str) -> bool {
    let clock = match text.strip_suffix(['Z', 'z']) {
        Some(clock) => clock,
        None => match text.rsplit_once(['+', '-']) {
            Some((clock, offset)) if is_hour_and_minute(offset) => clock,
            _ => return false,
        },
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let Some((minute, second)) = clock.rsplit_once(':') else {
        return false;
    };
    // A leap second is second 60.
    is_fraction && is_hour_and_minute(minute) && digits(second, 2).is_some_and(|is| is <= 60)
}

fn is_hour_and_minute(text: &str) -> bool {
    let Some((hour, minute)) = text.split_once(':') else {
        return false;
    };
    digits(hour, 2).is_some_and(|hour| hour < 24)
        && digits(minute, 2).is_some_and(|minute| minute < 60)
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<u32> {
    if text.len() != count || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_fits_its_format_or_does_not() {
        for (format, fitting, others) in [
            (
                "email",
                &["ada@example.org", "a.b+c@localhost"][..],
                &["ada", "@example.org", "ada@", "a b@c.de", "a@.de"][..],
            ),
            (
                "uri",
                &["https://example.org/a?b", "urn:isbn:1", "mailto:a@b.c"][..],
                &["example.org", "https:", "1a:b", ":a", "https://a b"][..],
            ),
            (
                "date",
                &["2026-01-31", "2024-02-29", "2000-02-29"][..],
                &[
                    "2026-02-29",
                    "1900-02-29",
                    "2026-13-01",
                    "2026-1-1",
                    "soon",
                    "2026-01-00",
                ][..],
            ),
            (
                "date-time",
                &["2026-01-31T18:00:00Z", "2026-01-31t18:00:00.25+01:30"][..],
                &[
                    "2026-01-31",
                    "2026-01-31T18:00Z",
                    "2026-01-31T18:00:00",
                    "2026-01-31T25:00:00Z",
                ][..],
            ),
        ] {
            let schema = json!({ "format": format });
            let known = text_format(&schema).unwrap();
            for text in fitting {
                assert!((known.matches)(text), "{format}: {text}");
            }
            for text in others {
                assert!(!(known.matches)(text), "{format}: {text}");
            }
        }
        assert!(text_format(&json!({ "format": "password" })).is_none());
    }
}
