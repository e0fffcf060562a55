//! Whole numbers that a JSON value cannot hold.
//!
//! A value has 64 bits for a number. A whole number beyond them becomes the nearest one of 17 digits,
//! and an account or an amount would be another one without anybody seeing it. Whoever reads JSON
//! that a call is made of looks here first. Fractions are approximate by nature, and are not judged.

/// The first whole number of a JSON text that would be another one as a value; nothing where all can
/// be kept.
#[must_use]
pub fn inexact_number(json: &str) -> Option<&str> {
    let is_begin = |c: char| c == '"' || c == '-' || c.is_ascii_digit();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
    let mut rest = json;
    loop {
        let found = rest.get(rest.find(is_begin)?..)?;
        if let Some(text) = found.strip_prefix('"') {
            rest = after_string(text);
            continue;
        }
        let end = found.find(|c| !is_part(c)).unwrap_or(found.len());
        let (number, behind) = found.split_at(end);
        if is_integer(number) && !is_exact(number) {
            return Some(number);
        }
        rest = behind;
    }
}

/// What follows a text whose first quote is left out.
fn after_string(text: &str) -> &str {
    let mut is_escaped = false;
    let end = text.find(|c: char| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
}

fn is_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.chars().all(|c| c.is_ascii_digit())
}

/// Whether a value says the same number, maybe in another way: `1e30` has thirty noughts.
fn is_exact(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let Ok(nearest) = number.parse::<f64>() else {
        return true;
    };
    let shortest = format!("{:e}", nearest.abs());
    let (shortest, _) = shortest.split_once('e').unwrap_or((&shortest, ""));
    let digits = number.trim_start_matches('-').trim_end_matches('0');
    shortest.replace('.', "") == digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_that_would_be_others_are_found() {
        for (json, number) in [
            (r#"{"id": 123456789012345678901}"#, "123456789012345678901"),
            (
                r#"{"a":["1\"",-98765432109876543210],"b":1}"#,
                "-98765432109876543210",
            ),
            ("18446744073709551617", "18446744073709551617"),
        ] {
            assert_eq!(inexact_number(json), Some(number), "{json}");
            let value: serde_json::Value = serde_json::from_str(json).unwrap();
            assert!(!value.to_string().contains(number), "{value}");
        }
    }

    #[test]
    fn what_a_value_holds_is_no_such_number() {
        for json in [
            "{}",
            "",
            r#"{"max": 18446744073709551615, "min": -9223372036854775808}"#,
            r#"{"text": "123456789012345678901", "\"12345678901234567890123": 0}"#,
            r#"{"far": 1000000000000000000000000000000, "zero": -0}"#,
            r#"{"part": 0.12345678901234567890123, "power": 123456789012345678901e2}"#,
            r#"{"open": "\"#,
        ] {
            assert_eq!(inexact_number(json), None, "{json}");
        }
    }
}
