//! A request as the mock received it, with the questions that tests and scripted answers ask of it.
//!
//! The questions have the same answer on every wire. Nothing here judges the request; that is
//! `validate`.

use serde_json::Value;

use crate::wire::Wire;

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
    /// A request as a client of this wire sends it, with the headers that it needs. The model is for
    /// Gemini, whose path names it; a stream there is another path ([`Request::streaming`]).
    #[must_use]
    pub fn to(wire: Wire, model: &str, body: Value) -> Self {
        let headers: &[(&str, &str)] = match wire {
            Wire::Anthropic => &[("x-api-key", "key"), ("anthropic-version", "2023-06-01")],
            Wire::Responses | Wire::Chat => &[("authorization", "Bearer key")],
            Wire::Gemini => &[("x-goog-api-key", "key")],
        };
        Self {
            index: 0,
            method: "POST".to_owned(),
            path: wire.path(model),
            query: String::new(),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            raw_body: body.to_string().into_bytes(),
            body,
        }
    }

    /// Makes the request one for an event stream.
    #[must_use]
    pub fn streaming(mut self) -> Self {
        if self.wire() == Some(Wire::Gemini) {
            self.path = self
                .path
                .replace(":generateContent", ":streamGenerateContent");
            self.query = "alt=sse".to_owned();
        } else {
            if let Some(body) = self.body.as_object_mut() {
                body.insert("stream".to_owned(), Value::Bool(true));
            }
        }
        self
    }

    /// The wire that it speaks, if it asks a model.
    #[must_use]
    pub fn wire(&self) -> Option<Wire> {
        Wire::of(self)
    }

    /// The value of the first header with this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The first value of this name in the query, undecoded.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|it| it.split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| value.to_owned())
    }

    /// Whether the client asked for a stream.
    #[must_use]
    pub fn wants_stream(&self) -> bool {
        if self.wire() == Some(Wire::Gemini) {
            return self.path.ends_with(":streamGenerateContent");
        }
        self.body.get("stream").and_then(Value::as_bool) == Some(true)
    }

    /// The model asked for, or an empty string.
    #[must_use]
    pub fn model(&self) -> &str {
        if self.wire() == Some(Wire::Gemini) {
            let model = self.path.rsplit_once("/models/").map(|(_, rest)| rest);
            return model
                .and_then(|rest| rest.rsplit_once(':'))
                .map_or("", |(model, _)| model);
        }
        self.body
            .get("model")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The names in `tools`, in order.
    #[must_use]
    pub fn tool_names(&self) -> Vec<&str> {
        let tools = array(&self.body, "tools").iter();
        match self.wire() {
            Some(Wire::Chat) => tools
                .filter_map(|tool| tool.get("function")?.get("name")?.as_str())
                .collect(),
            Some(Wire::Gemini) => tools
                .flat_map(|tool| array(tool, "functionDeclarations"))
                .filter_map(|tool| tool.get("name")?.as_str())
                .collect(),
            _ => tools
                .filter_map(|tool| tool.get("name")?.as_str())
                .collect(),
        }
    }

    /// The history: `messages`, `input` (Responses, when it is a list) or `contents` (Gemini), or
    /// nothing when there is no such array.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        array(
            &self.body,
            match self.wire() {
                Some(Wire::Responses) => "input",
                Some(Wire::Gemini) => "contents",
                _ => "messages",
            },
        )
    }

    /// The text of the last message or item, its texts joined by line ends.
    #[must_use]
    pub fn last_text(&self) -> String {
        if let Some(text) = self.body.get("input").and_then(Value::as_str) {
            return text.to_owned();
        }
        let last = self.messages().last();
        let content = last.and_then(|message| {
            let fields = ["content", "parts", "output"];
            fields.iter().find_map(|field| message.get(field))
        });
        content.map(text_of).unwrap_or_default()
    }

    /// The result of a call, wherever in the history it is: the block, item, message or part. The id
    /// is the script's; the one that the wire made of it ([`Wire::call_id`]) is found, too. On Gemini,
    /// whose calls may have no id, the tool's name stands for it.
    #[must_use]
    pub fn tool_result(&self, tool_use_id: &str) -> Option<&Value> {
        let wire = self.wire().unwrap_or(Wire::Anthropic);
        let made = wire.call_id(tool_use_id);
        let is = |value: &Value, key: &str| {
            let found = value.get(key).and_then(Value::as_str);
            found.is_some_and(|found| found == tool_use_id || found == made)
        };
        let kind =
            |value: &Value, kind: &str| value.get("type").and_then(Value::as_str) == Some(kind);
        let mut messages = self.messages().iter();
        match wire {
            Wire::Anthropic => messages
                .flat_map(|message| array(message, "content"))
                .find(|block| kind(block, "tool_result") && is(block, "tool_use_id")),
            Wire::Responses => messages.find(|item| {
                (kind(item, "function_call_output") || kind(item, "custom_tool_call_output"))
                    && is(item, "call_id")
            }),
            Wire::Chat => messages.find(|message| is(message, "tool_call_id")),
            Wire::Gemini => messages
                .flat_map(|content| array(content, "parts"))
                .filter_map(|part| part.get("functionResponse"))
                .find(|response| {
                    is(response, "id") || (response.get("id").is_none() && is(response, "name"))
                }),
        }
    }

    /// The text inside a call's result, its texts joined by line ends. Gemini's results are objects:
    /// of `output`, `result` or `error` the text, else the object as JSON.
    #[must_use]
    pub fn tool_result_text(&self, tool_use_id: &str) -> Option<String> {
        let result = self.tool_result(tool_use_id)?;
        if let Some(response) = result.get("response") {
            let known = ["output", "result", "error"];
            let text = known.iter().find_map(|key| response.get(key)?.as_str());
            return Some(text.map_or_else(|| response.to_string(), str::to_owned));
        }
        let content = result.get("content").or_else(|| result.get("output"));
        Some(content.map(text_of).unwrap_or_default())
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
