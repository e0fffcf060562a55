//! What stands in the blocks of a reply: files that were made, commands that ran.

use serde_json::{Map, Value, json};

use crate::PROVIDER;

/// Ids of the files that blocks say were made, in order, each once.
pub(crate) fn files<'a>(items: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in items {
        let outputs = item
            .get("content")
            .and_then(|content| content.get("content"))
            .and_then(Value::as_array);
        for output in outputs.into_iter().flatten() {
            let is_output = text(output, "type").ends_with("_output");
            let id = text(output, "file_id");
            if is_output && is_id(id) && !found.iter().any(|known| known == id) {
                found.push(id.to_owned());
            }
        }
    }
    found
}

/// The id of a container, as a reply has it: an object or a text.
pub(crate) fn container(value: Option<&Value>) -> Option<String> {
    let value = value?;
    let id = value
        .as_str()
        .or_else(|| value.get("id").and_then(Value::as_str))?;
    (!id.is_empty()).then(|| id.to_owned())
}

/// What a person would see of a call that the provider runs: a line.
pub(crate) fn progress_line(item: &Value) -> Option<String> {
    if text(item, "type") != "server_tool_use" {
        return None;
    }
    let input = item.get("input").unwrap_or(&Value::Null);
    let what = ["command", "path", "code", "query"]
        .iter()
        .map(|name| text(input, name))
        .find(|text| !text.is_empty());
    let what = what.unwrap_or_default().lines().next().unwrap_or_default();
    Some(format!("[{}] {what}\n", text(item, "name")))
}

/// The most bytes of one text, and of all items, that are kept for people.
const MAX_TEXT_BYTES: usize = 16 * 1024;
const MAX_ITEMS_BYTES: usize = 256 * 1024;

/// What ran at the provider, as data beside a result, which people read and the model does not: of
/// long texts the beginning, and the first items where they are too many.
pub(crate) fn display_items(items: &[Value]) -> Option<Map<String, Value>> {
    let mut size = 0;
    let kept = items.iter().cloned().map(|mut item| {
        clip(&mut item);
        item
    });
    let kept: Vec<Value> = kept
        .take_while(|item| {
            size += item.to_string().len();
            size <= MAX_ITEMS_BYTES
        })
        .collect();
    if kept.is_empty() {
        return None;
    }
    let told = json!({ "provider": PROVIDER, "items": kept });
    Some(Map::from_iter([("server_items".to_owned(), told)]))
}

/// Cuts the long texts in a value.
fn clip(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            let end = text.floor_char_boundary(MAX_TEXT_BYTES);
            text.truncate(end);
            text.push('…');
        }
        Value::Array(all) => all.iter_mut().for_each(clip),
        Value::Object(members) => members.values_mut().for_each(clip),
        _ => {}
    }
}

/// Whether an id can stand in a URL as it is.
pub(crate) fn is_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=256).contains(&id.len()) && id.bytes().all(fits)
}

/// Whether an error is about a container that is there no more.
pub(crate) fn is_expired_container(message: &str) -> bool {
    let message = message.to_lowercase();
    // What is handed to a container and missing says nothing about the container.
    if ["container_upload", "container.skills"]
        .iter()
        .any(|part| message.contains(part))
    {
        return false;
    }
    let over = ["expired", "not found", "does not exist", "no longer"];
    message.contains("container") && over.iter().any(|word| message.contains(word))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(items: &[Value]) -> Option<Vec<Value>> {
        let told = display_items(items)?;
        assert_eq!(told["server_items"]["provider"], PROVIDER);
        told["server_items"]["items"].as_array().cloned()
    }

    #[test]
    fn of_what_ran_people_are_kept_the_beginning() {
        assert_eq!(kept(&[]), None);
        // A letter of two bytes stands across the limit.
        let text = format!("{}é and more", "x".repeat(MAX_TEXT_BYTES - 1));
        let cut = kept(&[json!({ "content": { "stdout": text } })]).unwrap();
        let stdout = cut[0]["content"]["stdout"].as_str().unwrap();
        assert_eq!(stdout, format!("{}…", "x".repeat(MAX_TEXT_BYTES - 1)));
        let many: Vec<Value> = (0..40)
            .map(|number| json!({ "id": number, "text": "y".repeat(MAX_TEXT_BYTES) }))
            .collect();
        let first = kept(&many).unwrap();
        assert!((1..40).contains(&first.len()), "{}", first.len());
        assert_eq!(first[0]["id"], 0);
    }
}
