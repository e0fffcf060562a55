//! How much a record is to write: by that it is decided what is appended to a log at once.

use conjure_core::chat::{CallAnnounced, Content, Event, OutputPart, Part};
use conjure_core::log::EntryBody;

use conjure_providers::json_size;
use conjure_store::Record;

/// The bytes of the texts and values that may be long, about.
pub(super) fn weight(record: &Record) -> usize {
    match record {
        Record::Event { event, .. } => of_event(event),
        Record::Entry(entry) => match &entry.body {
            EntryBody::Message { message } => message.content.iter().map(of_part).sum(),
            EntryBody::CallEnded { output, meta, .. } => {
                let texts = output.output.iter().map(|part| match part {
                    OutputPart::Text { text } => text.len(),
                    _ => 0,
                });
                texts.sum::<usize>() + meta.as_ref().map_or(0, json_size)
            }
            _ => 0,
        },
        Record::Opened { .. } => 0,
    }
}

fn of_event(event: &Event) -> usize {
    match event {
        Event::Content { delta } | Event::Thinking { delta } => delta.len(),
        Event::FunctionCall { calls } => calls.iter().map(of_call).sum(),
        Event::Approval { call, .. } => of_call(call),
        Event::ToolOutput { chunk, .. } => chunk.len(),
        Event::FunctionCallOutput(result) => result.output.len(),
        Event::Done { text, .. } => text.len(),
        _ => 0,
    }
}

fn of_call(call: &CallAnnounced) -> usize {
    json_size(&call.arguments)
}

fn of_part(part: &Part) -> usize {
    let said = match &part.content {
        Content::Text { text } | Content::Reasoning { text } => text.len(),
        Content::FunctionCall(call) => {
            let text = call.arguments_text.as_ref().map_or(0, String::len);
            text + json_size(&call.arguments)
        }
        Content::ServerItem { item, .. } => json_size(item),
        _ => 0,
    };
    let beside = part.sidecar.as_ref();
    said + beside.map_or(0, |sidecar| json_size(&sidecar.data))
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{EventId, FunctionCall, Message, Role};
    use conjure_core::log::Entry;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_arguments_of_a_call_weigh_wherever_they_are_written() {
        const LONG: usize = 3 << 20;
        let arguments = json!({ "text": "x".repeat(LONG) });
        let announced = || CallAnnounced {
            id: "c".to_owned(),
            name: "write".to_owned(),
            arguments: arguments.clone(),
        };
        let message = Message {
            role: Role::Assistant,
            content: vec![Part::from(Content::FunctionCall(FunctionCall {
                call_id: "c".to_owned(),
                name: "write".to_owned(),
                arguments: arguments.clone(),
                arguments_text: None,
            }))],
            meta: None,
        };
        let entry = Record::Entry(Entry {
            seq: 1,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Message { message },
        });
        let event = |event| Record::Event {
            id: EventId { epoch: 1, seq: 1 },
            event,
        };
        let asked = event(Event::FunctionCall {
            calls: vec![announced()],
        });
        let waits = event(Event::Approval {
            call: announced(),
            reason: "a rule".to_owned(),
        });
        for record in [entry, asked, waits] {
            assert!(weight(&record) >= LONG, "{}", weight(&record));
        }
    }
}
