//! A call's arguments out of the text that a model wrote.

use serde_json::{Map, Value};

use crate::exact_numbers::inexact_number;

/// The arguments, and their text where they are not a JSON object, may be cut off, or have a number
/// that would be another one here.
///
/// `is_complete`: whether all of the text has come. Nothing at all, and `null`, are an empty object:
/// calls without arguments come like that.
pub(super) fn parsed(text: &str, is_complete: bool) -> (Value, Option<String>) {
    let empty = || Value::Object(Map::new());
    if !is_complete {
        return (empty(), Some(text.to_owned()));
    }
    if matches!(text.trim(), "" | "null") {
        return (empty(), None);
    }
    match serde_json::from_str(text) {
        Ok(arguments @ Value::Object(_)) if inexact_number(text).is_none() => (arguments, None),
        _ => (empty(), Some(text.to_owned())),
    }
}

/// The arguments as an object, whatever they are: what is none is wrapped into one, so that the
/// model sees what it wrote.
pub(super) fn as_object(arguments: &Value, text: Option<&str>) -> Value {
    match text {
        Some("") | None if arguments.is_object() => arguments.clone(),
        Some("") | None => Value::Object(Map::new()),
        Some(text) => serde_json::json!({ "arguments_text": text }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w38_nothing_and_null_are_an_empty_object_and_other_values_stay_text() {
        for text in ["", " ", "null", "{}", " {} "] {
            assert_eq!(parsed(text, true), (json!({}), None), "{text:?}");
        }
        assert_eq!(parsed(r#"{"a":1}"#, true), (json!({"a": 1}), None));
        for text in [
            "[1]",
            "1",
            "\"a\"",
            "{\"a\":",
            "{\"a\":123456789012345678901}",
        ] {
            assert_eq!(parsed(text, true), (json!({}), Some(text.to_owned())));
        }
    }

    #[test]
    fn w31_what_may_be_cut_off_is_no_object_even_if_it_could_be_read() {
        assert_eq!(parsed("{}", false), (json!({}), Some("{}".to_owned())));
    }
}
