//! How two JSON values differ, shortly: where, what was recorded, what it is now.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most characters of a text that a change shows.
const MAX_SHOWN_CHARS: usize = 120;
/// Characters in front of the first that differs.
const LEADING_CHARS: usize = 20;

/// One place at which two values differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValueDifference {
    /// The place, such as `messages[2].content`; empty for the whole.
    pub path: String,
    /// The value that was recorded, shortened; absent where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Value>,
    /// The value as it is now, shortened; absent where there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Value>,
}

/// Where two values differ, in order; objects by their fields, arrays by their places.
#[must_use]
pub fn diff(recorded: &Value, now: &Value) -> Vec<ValueDifference> {
    let mut changes = Vec::new();
    compare(String::new(), Some(recorded), Some(now), &mut changes);
    changes
}

fn compare(
    path: String,
    recorded: Option<&Value>,
    now: Option<&Value>,
    out: &mut Vec<ValueDifference>,
) {
    match (recorded, now) {
        (Some(one), Some(two)) if one == two => {}
        (Some(Value::Object(one)), Some(Value::Object(two))) => {
            let fresh = two.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(fresh) {
                let below = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                compare(below, one.get(name), two.get(name), out);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(two))) => {
            for at in 0..one.len().max(two.len()) {
                compare(format!("{path}[{at}]"), one.get(at), two.get(at), out);
            }
        }
        (Some(Value::String(one)), Some(Value::String(two))) => {
            let same = one.chars().zip(two.chars()).take_while(|(a, b)| a == b);
            let from = same.count().saturating_sub(LEADING_CHARS);
            out.push(ValueDifference {
                path,
                recorded: Some(window(one, from).into()),
                now: Some(window(two, from).into()),
            });
        }
        (one, two) => out.push(ValueDifference {
            path,
            recorded: one.map(shortened),
            now: two.map(shortened),
        }),
    }
}

fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) => window(text, 0).into(),
        Value::Object(_) | Value::Array(_) => {
            let text = value.to_string();
            if text.chars().count() > MAX_SHOWN_CHARS {
                window(&text, 0).into()
            } else {
                value.clone()
            }
        }
        other => other.clone(),
    }
}

/// A piece of a text, with marks where more of it is.
fn window(text: &str, from: usize) -> String {
    let mut rest = text.chars().skip(from);
    let shown: String = rest.by_ref().take(MAX_SHOWN_CHARS).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if rest.next().is_some() { "…" } else { "" };
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_that_differs_is_named() {
        let one = json!({"a": [1, {"b": "x"}], "c": 1, "same": [1]});
        let two = json!({"a": [1, {"b": "y"}, 3], "d": null, "same": [1]});
        let changes: Vec<String> = diff(&one, &two)
            .iter()
            .map(|change| {
                let shown = |value: &Option<Value>| {
                    value
                        .as_ref()
                        .map_or("nothing".to_owned(), Value::to_string)
                };
                let (one, two) = (shown(&change.recorded), shown(&change.now));
                format!("{}: {one} now {two}", change.path)
            })
            .collect();
        assert_eq!(
            changes,
            [
                "a[1].b: \"x\" now \"y\"",
                "a[2]: nothing now 3",
                "c: 1 now nothing",
                "d: nothing now null",
            ]
        );
    }

    #[test]
    fn a_long_text_is_shown_where_it_differs() {
        let text =
            |middle: &str| Value::from(format!("{}{middle}{}", "é".repeat(500), "z".repeat(500)));
        let changes = diff(&text("one"), &text("two"));
        let shown = changes[0].recorded.as_ref().unwrap().as_str().unwrap();
        assert!(shown.starts_with("…é") && shown.contains("one") && shown.ends_with("z…"));
        assert!(shown.chars().count() <= MAX_SHOWN_CHARS + 2);
    }

    #[test]
    fn equal_values_do_not_differ() {
        let value = json!({"a": [1, 2.5, "x", null, {"b": []}]});
        assert_eq!(diff(&value, &value), []);
    }
}
