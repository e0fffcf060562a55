//! Locations where calls work, as their executors tell them: commands of several executors may meet in
//! one directory, and on this machine it has no path.

use conjure_skill_sdk::protocol::PluginEvent;
use serde::Deserialize;

/// The most directories of a location that are kept.
const MAX_DIRS: usize = 256;

/// Location of the directory that a call works in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(crate) struct CallLocation {
    /// The machine, as its system names it. Empty where it is not known.
    machine: String,
    /// The directory and those that it is in, the nearest first, as they are numbered there. Empty
    /// where they are not told apart.
    dirs: Vec<String>,
}

impl CallLocation {
    /// The location that an event tells; nothing where it has another name or other members.
    pub(crate) fn from_event(event: PluginEvent) -> Option<Self> {
        let PluginEvent::Other(value) = event else {
            return None;
        };
        if value.get("event")?.as_str()? != "location" {
            return None;
        }
        let mut location: Self = serde_json::from_value(value).ok()?;
        location.dirs.truncate(MAX_DIRS);
        Some(location)
    }

    /// Whether what is written at one of the two may be seen at the other.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        if !self.has_machine() || !other.has_machine() {
            return true;
        }
        let holds = |outer: &Self, inner: &Self| {
            let own = outer.dirs.first();
            own.is_none_or(|own| inner.dirs.contains(own))
        };
        self.machine == other.machine && (holds(self, other) || holds(other, self))
    }

    /// Whether both are known, and what is written at one of them is seen at the other.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        let is_known = |one: &Self| one.has_machine() && !one.dirs.is_empty();
        is_known(self) && is_known(other) && self.may_be(other)
    }

    /// Whether the machine is known.
    pub(crate) fn has_machine(&self) -> bool {
        !self.machine.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn location(machine: &str, dirs: &[&str]) -> CallLocation {
        let event = json!({ "event": "location", "machine": machine, "dirs": dirs });
        CallLocation::from_event(PluginEvent::Other(event)).unwrap()
    }

    #[test]
    fn locations_are_one_where_the_machine_is_and_a_directory_holds_the_other() {
        let here = location("m", &["1:5", "1:2"]);
        for (other, is_one) in [
            (location("m", &["1:5", "7:1"]), true),
            (location("m", &["1:2"]), true),
            (location("m", &["1:9", "1:5", "1:2"]), true),
            (location("m", &["1:6", "1:2"]), false),
            (location("n", &["1:5", "1:2"]), false),
        ] {
            assert_eq!(here.may_be(&other), is_one, "{other:?}");
            assert_eq!(other.may_be(&here), is_one, "{other:?}");
            assert_eq!(here.is_one_with(&other), is_one, "{other:?}");
        }
        for unknown in [
            location("m", &[]),
            location("", &[]),
            location("", &["1:5"]),
        ] {
            assert!(
                here.may_be(&unknown) && unknown.may_be(&here),
                "{unknown:?}"
            );
            assert!(!here.is_one_with(&unknown), "{unknown:?}");
            assert!(!unknown.is_one_with(&unknown), "{unknown:?}");
        }
    }

    #[test]
    fn an_event_of_another_kind_tells_no_location() {
        for other in [
            json!({ "event": "location", "machine": "m", "dirs": 5 }),
            json!({ "event": "location", "machine": 5, "dirs": [] }),
            json!({ "event": "location", "machine": "m" }),
            json!({ "event": "location", "dirs": [] }),
            json!({ "event": "location", "city": "Ulm" }),
            json!({ "event": "place", "machine": "m", "dirs": [] }),
        ] {
            let location = CallLocation::from_event(PluginEvent::Other(other.clone()));
            assert_eq!(location, None, "{other}");
        }
    }
}
