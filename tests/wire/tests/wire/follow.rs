//! The request that follows a recorded reply: built out of the decoded reply, it says what the
//! recorded one says.
//!
//! Ids and settings are left out of the comparison, and what another client writes differently
//! without saying something else; each such thing stands in one of the `plain` functions below
//! with its reason.

use conjure_core::chat::{Content, FunctionCallOutput, Message, Part, Response, Role};
use conjure_core::repair::{RepairTarget, repair};
use conjure_core::request::ModelRequest;
use conjure_core::wire::Wire;
use serde_json::{Value, json};

use crate::recordings::{Recorded, exchanges};
use crate::said::{decode, text};

/// How one wire's recorded requests are read.
struct Reader {
    wire: Wire,
    /// The field with the conversation.
    field: &'static str,
    /// Whether an entry of it is the model's.
    is_model: fn(&Value) -> bool,
    /// Any other entry in canonical form, behind this reply.
    canonical: fn(&Value, &Response) -> Vec<Part>,
    /// The entry without what is not compared.
    plain: fn(Value) -> Value,
}

#[test]
fn a_recorded_conversation_goes_on_as_it_was_recorded_over_responses() {
    goes_on(&Reader {
        wire: Wire::OpenaiResponses,
        field: "input",
        is_model: |item| {
            let is_output = item["type"] == "function_call_output";
            item["role"] != "user" && item["role"] != "system" && !is_output
        },
        canonical: |item, _| {
            if item["type"] == "function_call_output" {
                return vec![result(&item["call_id"], &item["output"])];
            }
            let pieces = item["content"].as_array().unwrap().iter();
            pieces
                .map(|piece| Part::text(piece["text"].as_str().unwrap()))
                .collect()
        },
        plain: |mut item| {
            let fields = item.as_object_mut().unwrap();
            // The recording client drops the phase of a message, and gives results a status.
            fields.shift_remove("phase");
            if fields["type"] == "function_call_output" {
                fields.shift_remove("status");
            }
            item
        },
    });
}

#[test]
fn a_recorded_conversation_goes_on_as_it_was_recorded_over_chat() {
    goes_on(&Reader {
        wire: Wire::OpenaiChat,
        field: "messages",
        is_model: |message| message["role"] == "assistant",
        canonical: |message, _| match message["role"].as_str().unwrap() {
            "tool" => vec![result(&message["tool_call_id"], &message["content"])],
            _ => vec![Part::text(message["content"].as_str().unwrap())],
        },
        plain: plain_chat,
    });
}

#[test]
fn a_recorded_conversation_goes_on_as_it_was_recorded_over_gemini() {
    goes_on(&Reader {
        wire: Wire::Gemini,
        field: "contents",
        is_model: |content| content["role"] == "model",
        canonical: |content, reply| {
            let message = Message::new(Role::Assistant, reply.parts.clone());
            let mut calls: Vec<_> = message.calls().collect();
            let parts = content["parts"].as_array().unwrap().iter();
            parts
                .map(|part| {
                    if part["functionResponse"].is_object() {
                        let said = &part["functionResponse"]["response"]["result"];
                        let name = &part["functionResponse"]["name"];
                        let at = calls.iter().position(|call| *name == call.name).unwrap();
                        return result(&calls.remove(at).call_id.as_str().into(), said);
                    }
                    Part::text(part["text"].as_str().unwrap())
                })
                .collect()
        },
        plain: |mut content| {
            // It sends results as they came; here they stand in the order of the calls.
            let parts = content["parts"].as_array_mut().unwrap();
            parts.sort_by_key(|part| text(&part["functionResponse"]["name"]));
            for part in content["parts"].as_array_mut().unwrap() {
                // The recording client says of every part that it is no thought.
                if part["thought"] == false {
                    part.as_object_mut().unwrap().shift_remove("thought");
                }
                // It sends a result as JSON where its text can be read as such.
                if part["functionResponse"].is_object() {
                    let said = &mut part["functionResponse"]["response"]["result"];
                    *said = words(said).into();
                }
            }
            content
        },
    });
}

fn plain_chat(mut message: Value) -> Value {
    let fields = message.as_object_mut().unwrap();
    // An assistant's content: left out, null and empty say the same beside calls, and a list of
    // one text is that text.
    let content = fields.shift_remove("content").unwrap_or_default();
    let only = match content.as_array().map(Vec::as_slice) {
        Some([piece]) if piece["type"] == "text" => piece["text"].clone(),
        _ => content,
    };
    if !only.is_null() && only != "" {
        fields.insert("content".to_owned(), only);
    }
    // Mistral's client says that nothing is to be continued.
    fields.shift_remove("prefix");
    // Beside calls an empty thought says that there was none, which DeepSeek wants to read.
    if fields
        .get("reasoning_content")
        .is_some_and(|thought| thought == "")
    {
        fields.shift_remove("reasoning_content");
    }
    for call in fields
        .get_mut("tool_calls")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let call = call.as_object_mut().unwrap();
        call.shift_remove("index");
        let arguments = call["function"]["arguments"].as_str().unwrap();
        call["function"]["arguments"] = serde_json::from_str(arguments).unwrap();
    }
    let details = fields
        .get_mut("reasoning_details")
        .and_then(Value::as_array_mut);
    for detail in details.into_iter().flatten() {
        let detail = detail.as_object_mut().unwrap();
        // The recording client forgets the format, and the index of a summary.
        detail.shift_remove("format");
        detail.shift_remove("index");
        detail.retain(|_, value| !value.is_null());
    }
    message
}

/// Builds every recorded request that goes on where a recorded reply ended.
fn goes_on(reader: &Reader) {
    let Some(exchanges) = exchanges(reader.wire) else {
        return;
    };
    let (mut compared, mut elsewhere) = (0, 0);
    for pair in exchanges.windows(2) {
        let [before, after] = pair else { continue };
        // There the recorder put another tool's name into the history on purpose.
        let altered = after.name.contains("repair_renames_tool_call");
        if !after.is_after(before) || before.exchange.then.status != 200 || altered {
            continue;
        }
        let Some(rest) = went_on(reader, before, after) else {
            elsewhere += 1;
            continue;
        };
        let built = built(reader, before, &rest);
        let rest: Vec<Value> = rest.into_iter().map(reader.plain).collect();
        assert_eq!(
            with_counted_ids(&built),
            with_counted_ids(&rest),
            "{} #{}: left is built, right is recorded",
            after.name,
            after.index
        );
        compared += 1;
    }
    println!(
        "{}: {compared} follow-up requests compared; {elsewhere} pairs are not one conversation",
        reader.wire
    );
    assert!(compared > 0);
}

/// The entries behind those of the request before, when the reply is the first of them.
fn went_on(reader: &Reader, before: &Recorded, after: &Recorded) -> Option<Vec<Value>> {
    let list = |recorded: &Recorded| {
        recorded.exchange.request()[reader.field]
            .as_array()
            .cloned()
    };
    let (old, new) = (list(before)?, list(after)?);
    let rest = new.strip_prefix(old.as_slice())?;
    let said = decode(before, &[before.exchange.reply().as_bytes()])
        .0
        .response;
    let goes_on = rest.first().is_some_and(reader.is_model) && !said.parts.is_empty();
    goes_on.then(|| rest.to_vec())
}

/// Builds the same entries from the decoded reply.
fn built(reader: &Reader, before: &Recorded, rest: &[Value]) -> Vec<Value> {
    let reply = decode(before, &[before.exchange.reply().as_bytes()])
        .0
        .response;
    let model = before.endpoint().model.unwrap_or_default();
    let mut messages = vec![
        Message::user("q"),
        Message::new(Role::Assistant, reply.parts.clone()),
    ];
    for entry in rest.iter().filter(|entry| !(reader.is_model)(entry)) {
        let parts = (reader.canonical)(entry, &reply);
        let is_result = |part: &Part| matches!(part.content, Content::FunctionCallOutput(_));
        let role = if parts.iter().any(is_result) {
            Role::Tool
        } else {
            Role::User
        };
        messages.push(Message::new(role, parts));
    }
    let target = RepairTarget::new(before.provider, model).with_wire(reader.wire);
    let request = ModelRequest {
        messages: repair(messages, &target),
        ..ModelRequest::empty(&target)
    };
    let body = reader.wire.encode(&request, &before.endpoint()).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    let entries = body[reader.field].as_array().unwrap()[1..].to_vec();
    entries.into_iter().map(reader.plain).collect()
}

/// Ids replaced by their number in the order in which they come: servers want different ones.
fn with_counted_ids(entries: &[Value]) -> Vec<Value> {
    fn walk(value: &mut Value, ids: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if !matches!(name.as_str(), "id" | "call_id" | "tool_call_id") {
                        walk(value, ids);
                        continue;
                    }
                    let Some(id) = value.as_str().map(str::to_owned) else {
                        continue;
                    };
                    let at = ids.iter().position(|known| *known == id);
                    let at = at.unwrap_or_else(|| {
                        ids.push(id);
                        ids.len() - 1
                    });
                    *value = at.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, ids)),
            _ => {}
        }
    }
    let mut entries = entries.to_vec();
    // The order of fields decides the numbers, so it has to be the same.
    let mut ids = Vec::new();
    for entry in &mut entries {
        entry.sort_all_objects();
        walk(entry, &mut ids);
    }
    entries
}

fn result(id: &Value, said: &Value) -> Part {
    let output = FunctionCallOutput::text(id.as_str().unwrap(), words(said), false);
    Content::FunctionCallOutput(output).into()
}

fn words(said: &Value) -> String {
    match said {
        Value::String(text) => text.clone(),
        other => json!(other).to_string(),
    }
}
