//! A request as the mock received it, with the questions that tests and scripted answers ask of it.
//!
//! Nothing here judges the request; that is `validate`.

use serde_json::Value;

/// One request, kept from the moment its body was complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Place in the order of arrival, from 0.
    pub index: usize,
    /// The method, upper case.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// What follows `?`, undecoded; empty if there was none.
    pub query: String,
    /// Names in lower case, in the order sent.
    pub headers: Vec<(String, String)>,
    /// The body as JSON; [`Value::Null`] when it is not JSON.
    pub body: Value,
    /// The body as it came.
    pub raw_body: Vec<u8>,
}

impl Request {
    /// The value of the first header with this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Whether the client asked for an event stream.
    #[must_use]
    pub fn wants_stream(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool) == Some(true)
    }

    /// The model asked for, or an empty string.
    #[must_use]
    pub fn model(&self) -> &str {
        self.body
            .get("model")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The names in `tools`, in order.
    #[must_use]
    pub fn tool_names(&self) -> Vec<&str> {
        array(&self.body, "tools")
            .iter()
            .filter_map(|tool| tool.get("name")?.as_str())
            .collect()
    }

    /// `messages`, or nothing when there is no such array.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        array(&self.body, "messages")
    }

    /// The text of the last message, its text blocks joined by line ends.
    #[must_use]
    pub fn last_text(&self) -> String {
        self.messages()
            .last()
            .and_then(|message| message.get("content"))
            .map(text_of)
            .unwrap_or_default()
    }

    /// The `tool_result` block for a call, wherever in the history it is.
    #[must_use]
    pub fn tool_result(&self, tool_use_id: &str) -> Option<&Value> {
        self.messages()
            .iter()
            .flat_map(|message| array(message, "content"))
            .find(|block| {
                block.get("type").and_then(Value::as_str) == Some("tool_result")
                    && block.get("tool_use_id").and_then(Value::as_str) == Some(tool_use_id)
            })
    }

    /// The text inside a call's result, its text blocks joined by line ends.
    #[must_use]
    pub fn tool_result_text(&self, tool_use_id: &str) -> Option<String> {
        self.tool_result(tool_use_id)
            .map(|block| block.get("content").map(text_of).unwrap_or_default())
    }
}

/// The array under `key`, or an empty one.
pub(crate) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A content field is a string or a list of blocks.
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let texts: Vec<&str> = content
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|block| block.get("text")?.as_str())
        .collect();
    texts.join("\n")
}
