//! What goes wrong among the events of a stream: errors in the middle, bad JSON, a second start.
//!
//! Works on a finished list of events and knows no provider. Faults of the connection (cuts, delays,
//! chunk sizes) are `delivery`'s.

use serde::{Deserialize, Serialize};

use crate::bulk::Bulk;

/// Faults of a stream, applied in the order of the fields.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Events left out, by their name: that of the event (`message_stop`, `response.completed`), or on
    /// the wires whose events have none `role`, `reasoning`, `content`, `tool_calls`, `finish`,
    /// `usage`, `done` (Chat) and `chunk`, `finish` (Gemini).
    pub leave_out: Vec<String>,
    /// A second first event.
    pub second_start: Option<SecondStart>,
    /// Pings in between.
    pub pings: Pings,
    /// The data of this event (from 0) is cut in half, so that it is no JSON.
    pub bad_json_at: Option<usize>,
    /// An error event, and nothing after it.
    pub error: Option<StreamError>,
    /// Far too much of something, or bytes that are no text.
    pub bulk: Option<Bulk>,
}

/// A second first event in one stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SecondStart {
    /// Number of the event that the second start becomes (at least 1).
    pub at: usize,
    /// `None`: the same message again. Otherwise the id of another message: a splice.
    #[serde(default)]
    pub id: Option<String>,
}

/// How many pings a stream has.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pings {
    /// No pings.
    None,
    /// One after the first block's start, on the wire whose provider does so: Anthropic's.
    #[default]
    Once,
    /// One after each event; a comment line where the wire has no event for it.
    Every,
}

/// An error event in a stream that began with status 200.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamError {
    /// How many events come before it.
    pub after: usize,
    /// Anthropic's type, for instance `overloaded_error`: the other wires tell their own word for it,
    /// and any text they do not know as it is.
    pub kind: String,
    /// The text.
    pub message: String,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) form: Form,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// With a line that names it.
    Named,
    /// Only the data.
    Data,
    /// As a comment line.
    Comment,
    /// As it is: an element of a JSON list.
    Bare,
}

impl Event {
    pub(crate) fn comment(text: &str) -> Self {
        Self {
            name: "comment".to_owned(),
            data: text.to_owned(),
            form: Form::Comment,
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let Self { name, data, form } = self;
        match form {
            Form::Named => format!("event: {name}\ndata: {data}\n\n"),
            Form::Data => format!("data: {data}\n\n"),
            Form::Comment => format!(": {data}\n\n"),
            Form::Bare => data,
        }
        .into_bytes()
    }
}

/// The events that only a wire can write.
#[derive(Default)]
pub(crate) struct WireEvents {
    pub(crate) second_start: Option<Event>,
    /// The event that says that the stream lives, if it can have one.
    pub(crate) ping: Option<Event>,
    /// The event after which the ordinary ping comes, if the provider has any.
    pub(crate) ping_after: Option<&'static str>,
    pub(crate) error: Vec<Event>,
}

/// Puts the faults into a stream.
pub(crate) fn apply(mut events: Vec<Event>, faults: &Faults, wire: WireEvents) -> Vec<Event> {
    events.retain(|event| !faults.leave_out.contains(&event.name));
    if let (Some(fault), Some(start)) = (&faults.second_start, wire.second_start) {
        events.insert(
            fault.at.clamp(1, events.len().max(1)).min(events.len()),
            start,
        );
    }
    let first = |events: &[Event]| {
        let name = wire.ping_after?;
        events.iter().position(|event| event.name == name)
    };
    match (faults.pings, wire.ping) {
        (Pings::None, _) | (_, None) => {}
        (Pings::Once, Some(ping)) => {
            if let Some(at) = first(&events) {
                events.insert(at + 1, ping);
            }
        }
        (Pings::Every, Some(ping)) => {
            events = events
                .into_iter()
                .flat_map(|event| [event, ping.clone()])
                .collect();
        }
    }
    if let Some(event) = faults.bad_json_at.and_then(|at| events.get_mut(at)) {
        event.data = event
            .data
            .chars()
            .take(event.data.chars().count() / 2)
            .collect();
    }
    if let Some(fault) = &faults.error {
        events.truncate(fault.after);
        events.extend(wire.error);
    }
    events
}
