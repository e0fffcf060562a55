//! The part of the system prompt that tells the model what the session remembers.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The member of a memory that is prose.
const TEXT: &str = "memory_text";
/// Members that say which memory it is, and nothing of what is remembered.
const LABELS: [&str; 2] = ["name", "version"];

/// The prompt part for a memory, which may be any JSON object: its `memory_text` as it is, and what
/// else is in it as JSON. The empty string where nothing is remembered; its `name` and `version`
/// alone are nothing.
#[must_use]
pub fn memory(memory: &Map<String, Value>) -> String {
    let text = memory.get(TEXT).and_then(Value::as_str);
    let others: Map<String, Value> = memory
        .iter()
        .filter(|(key, _)| !LABELS.contains(&key.as_str()))
        .filter(|(key, _)| *key != TEXT || text.is_none())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let text = text.map(str::trim).unwrap_or_default();
    if text.is_empty() && others.is_empty() {
        return String::new();
    }
    let mut prompt = "What you remember from before this conversation:\n".to_owned();
    if !text.is_empty() {
        let _ = write!(prompt, "\n{text}\n");
    }
    if !others.is_empty() {
        let _ = write!(prompt, "\n{}\n", Value::Object(others));
    }
    prompt
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(value: &Value) -> String {
        memory(value.as_object().unwrap())
    }

    #[test]
    fn prose_is_told_as_it_is_and_the_rest_as_json() {
        let both = told(&json!({
            "name": "work", "version": "2", "memory_text": " Ada likes short answers. ",
            "projects": ["conjure"], "since": 2024,
        }));
        assert_eq!(
            both,
            "What you remember from before this conversation:\n\nAda likes short answers.\n\n\
             {\"projects\":[\"conjure\"],\"since\":2024}\n"
        );
        assert!(
            told(&json!({ "memory_text": ["a list"] })).contains("{\"memory_text\":[\"a list\"]}")
        );
    }

    #[test]
    fn a_memory_of_nothing_is_not_mentioned() {
        for nothing in [
            json!({}),
            json!({ "name": "n", "version": "1", "memory_text": " \n" }),
        ] {
            assert_eq!(told(&nothing), "");
        }
    }
}
