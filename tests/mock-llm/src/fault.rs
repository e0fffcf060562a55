//! What goes wrong among the events of a stream: errors in the middle, bad JSON, a second start.
//!
//! Works on a finished list of events and knows no provider. Faults of the connection (cuts, delays,
//! chunk sizes) are `delivery`'s.

use serde::{Deserialize, Serialize};

/// Faults of a stream, applied in the order of the fields.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Events left out, by their name (`message_stop`, `content_block_stop`).
    pub leave_out: Vec<String>,
    /// A second first event.
    pub second_start: Option<SecondStart>,
    /// Pings in between.
    pub pings: Pings,
    /// The data of this event (from 0) is cut in half, so that it is no JSON.
    pub bad_json_at: Option<usize>,
    /// An error event, and nothing after it.
    pub error: Option<StreamError>,
}

/// A second first event in one stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SecondStart {
    /// It becomes the event with this number (at least 1).
    pub at: usize,
    /// `None`: the same message again. Otherwise the id of another message: a splice.
    #[serde(default)]
    pub id: Option<String>,
}

/// How many pings a stream has.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pings {
    /// None at all.
    None,
    /// One after the first block's start, as the provider does.
    #[default]
    Once,
    /// One after each event.
    Every,
}

/// An error event in a stream that began with status 200.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamError {
    /// How many events come before it.
    pub after: usize,
    /// The provider's type, for instance `overloaded_error`.
    pub kind: String,
    /// The text.
    pub message: String,
}

/// A server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        format!("event: {}\ndata: {}\n\n", self.name, self.data).into_bytes()
    }
}

/// The events that only a wire can write.
pub(crate) struct WireEvents {
    pub(crate) second_start: Option<Event>,
    pub(crate) ping: Event,
    /// The event after which the ordinary ping comes.
    pub(crate) ping_after: &'static str,
    pub(crate) error: Option<Event>,
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
    match faults.pings {
        Pings::None => {}
        Pings::Once => {
            if let Some(at) = events
                .iter()
                .position(|event| event.name == wire.ping_after)
            {
                events.insert(at + 1, wire.ping);
            }
        }
        Pings::Every => {
            events = events
                .into_iter()
                .flat_map(|event| [event, wire.ping.clone()])
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
    if let (Some(fault), Some(error)) = (&faults.error, wire.error) {
        events.truncate(fault.after);
        events.push(error);
    }
    events
}
