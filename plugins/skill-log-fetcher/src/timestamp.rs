//! Finds the time at the beginning of a line, in its usual forms.
//!
//! A time is recognised, not understood: it is kept as it stands. Only numbers, which nobody can
//! read, and the times of access logs, which sort by their day, are turned into RFC 3339.

use jiff::Timestamp;
use jiff::civil::DateTime;

/// The time of an access log, without its zone.
const ACCESS: &str = "%d/%b/%Y:%H:%M:%S";

/// Splits a time off the beginning of a line.
pub(crate) fn split(line: &str) -> Option<(String, &str)> {
    let (inner, bracketed) = match line.strip_prefix('[') {
        Some(inner) => (inner, true),
        None => (line, false),
    };
    let length = date(inner)
        .or_else(|| syslog(inner))
        .or_else(|| access(inner))
        .or_else(|| clock(inner, false));
    let (time, rest) = match length {
        Some(length) => {
            let (time, rest) = inner.split_at_checked(length)?;
            (time.to_owned(), rest)
        }
        None => epoch(inner)?,
    };
    let rest = match bracketed {
        true => rest.strip_prefix(']')?,
        false => rest,
    };
    // A number that goes on is no time.
    if rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    Some((time, rest))
}

/// A number of seconds, milliseconds, microseconds or nanoseconds since 1970, told by its size.
pub(crate) fn from_number(number: f64) -> Option<String> {
    let milliseconds = match number {
        n if n < 1e8 => return None,
        n if n < 1e11 => n * 1e3,
        n if n < 1e14 => n,
        n if n < 1e17 => n / 1e3,
        n => n / 1e6,
    };
    // What is still too large is refused by jiff.
    let time = Timestamp::from_millisecond(milliseconds.round() as i64).ok()?;
    Some(time.to_string())
}

/// The time of an access log without its brackets, `15/Jan/2024:10:30:00 +0000`, as RFC 3339: as it
/// stands it could not be put in order.
pub(crate) fn from_access(time: &str) -> Option<String> {
    let parsed = DateTime::strptime(ACCESS, time.get(..20)?).ok()?;
    let zone = time.get(20..)?;
    let hours = zone
        .get(1..4)
        .filter(|_| matches(zone, " +dddd") || matches(zone, " -dddd"))?;
    let minutes = zone.get(4..).filter(|minutes| minutes.len() == 2)?;
    Some(format!(
        "{}{hours}:{minutes}",
        parsed.strftime("%Y-%m-%dT%H:%M:%S")
    ))
}

/// `2024-01-15`, `2024/01/15`, with a clock after `T` or a blank.
fn date(text: &str) -> Option<usize> {
    if !(matches(text, "dddd-dd-dd") || matches(text, "dddd/dd/dd")) {
        return None;
    }
    let after = text.get(10..)?;
    let clock = after
        .strip_prefix(['T', 't', ' '])
        .and_then(|after| clock(after, true));
    Some(clock.map_or(10, |length| 11 + length))
}

/// `Jan 15 10:30:00`, `Jan  5 10:30:00`.
fn syslog(text: &str) -> Option<usize> {
    if !text.get(..3).is_some_and(is_month) {
        return None;
    }
    let after = text.get(3..)?;
    let day = ["  d ", " dd ", " d "]
        .into_iter()
        .find(|form| matches(after, form))?;
    let clock = clock(after.get(day.len()..)?, false)?;
    Some(3 + day.len() + clock)
}

/// `15/Jan/2024:10:30:00 +0000`, as web servers write it.
fn access(text: &str) -> Option<usize> {
    let fits = matches(text, "dd/")
        && text.get(3..6).is_some_and(is_month)
        && text.get(6..).is_some_and(|rest| matches(rest, "/dddd:"));
    fits.then(|| clock(text.get(12..)?, true).map(|length| 12 + length))?
}

/// `10:30`, `10:30:00`, `10:30:00,123`, and a zone after it when it follows a date.
fn clock(text: &str, zone: bool) -> Option<usize> {
    let mut length = match () {
        () if matches(text, "dd:dd:dd") => 8,
        () if zone && matches(text, "dd:dd") => 5,
        () => return None,
    };
    let rest = |length| text.get(length..).unwrap_or_default();
    if rest(length).starts_with(['.', ',']) {
        let digits = count_digits(rest(length + 1));
        if digits > 0 {
            length += 1 + digits;
        }
    }
    if zone {
        length += zone_length(rest(length));
    }
    Some(length)
}

fn zone_length(text: &str) -> usize {
    let blank = usize::from(text.starts_with(' '));
    let text = text.get(blank..).unwrap_or_default();
    let signed = text.starts_with(['+', '-']);
    let digits = text.get(1..).unwrap_or_default();
    match () {
        () if blank == 0 && text.starts_with(['Z', 'z']) => 1,
        () if signed && matches(digits, "dd:dd") => blank + 6,
        () if signed && matches(digits, "dddd") && count_digits(digits) == 4 => blank + 5,
        () if signed && blank == 0 && count_digits(digits) == 2 => 3,
        () if blank == 1 && (text.starts_with("UTC") || text.starts_with("GMT")) => 4,
        () => 0,
    }
}

/// Ten digits or more, with a fraction or without.
fn epoch(text: &str) -> Option<(String, &str)> {
    let whole = count_digits(text);
    if !matches!(whole, 10 | 13 | 16 | 19) {
        return None;
    }
    let after = text.get(whole..)?;
    let fraction = match after.strip_prefix('.').map(count_digits) {
        None | Some(0) => 0,
        Some(digits) => 1 + digits,
    };
    let (number, rest) = text.split_at_checked(whole + fraction)?;
    Some((from_number(number.parse().ok()?)?, rest))
}

fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn is_month(name: &str) -> bool {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    MONTHS.contains(&name)
}

/// Whether a text begins in a form, where `d` stands for a digit.
fn matches(text: &str, form: &str) -> bool {
    let mut bytes = text.bytes();
    form.bytes().all(|wanted| match (wanted, bytes.next()) {
        (b'd', Some(byte)) => byte.is_ascii_digit(),
        (wanted, Some(byte)) => byte == wanted,
        (_, None) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_form_is_found_and_kept() {
        for time in [
            "2024-01-15T10:30:00Z",
            "2024-01-15T10:30:00.123456Z",
            "2024-01-15T10:30:00+02:00",
            "2024-01-15T10:30:00+0200",
            "2024-01-15 10:30:00",
            "2024-01-15 10:30:00,123",
            "2024-01-15 10:30:00.123 +0200",
            "2024-01-15 10:30:00 UTC",
            "2024/01/15 10:30:00",
            "2024-01-15 10:30",
            "2024-01-15",
            "Jan 15 10:30:00",
            "Jan  5 10:30:00",
            "15/Jan/2024:10:30:00 +0000",
            "10:30:00",
            "10:30:00.123",
        ] {
            let line = format!("{time} rest");
            assert_eq!(split(&line), Some((time.to_owned(), " rest")), "{time}");
            let line = format!("[{time}] rest");
            assert_eq!(split(&line), Some((time.to_owned(), " rest")), "[{time}]");
        }
    }

    #[test]
    fn numbers_become_readable() {
        let expected = Some(("2024-01-15T10:30:00Z".to_owned(), " x"));
        assert_eq!(split("1705314600 x"), expected);
        assert_eq!(split("1705314600000 x"), expected);
        assert_eq!(split("1705314600000000 x"), expected);
        assert_eq!(
            split("1705314600.5 x"),
            Some(("2024-01-15T10:30:00.5Z".to_owned(), " x"))
        );
    }

    #[test]
    fn what_is_no_time_is_left_alone() {
        for line in [
            "",
            "hello",
            "2024",
            "12345 requests",
            "10:30 is when we meet",
            "Jan is here",
            "2024-01-15abc",
            "[2024-01-15 10:30:00",
            "١٢:٣٠:٠٠",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
