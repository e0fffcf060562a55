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
    #[serde(default)]
    machine: String,
    /// The directory and those that it is in, the nearest first, as they are numbered there. Empty
    /// where they are not told apart.
    #[serde(default)]
    dirs: Vec<String>,
}

impl CallLocation {
    /// The location that an event tells, if it tells one.
    pub(crate) fn from_event(event: PluginEvent) -> Option<Self> {
        let PluginEvent::Other(value) = event else {
            return None;
        };
        if value.get("event")?.as_str()? != "location" {
            return None;
        }
        let mut location: Self = serde_json::from_value(value).unwrap_or_default();
        location.dirs.truncate(MAX_DIRS);
        Some(location)
    }

    /// Whether what is written at one of the two may be seen at the other.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        if self.machine.is_empty() || other.machine.is_empty() {
            return true;
        }
        let holds = |outer: &Self, inner: &Self| {
            let own = outer.dirs.first();
            own.is_none_or(|own| inner.dirs.contains(own))
        };
        self.machine == other.machine && (holds(self, other) || holds(other, self))
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
            (location("m", &[]), true),
            (location("", &[]), true),
        ] {
            assert_eq!(here.may_be(&other), is_one, "{other:?}");
            assert_eq!(other.may_be(&here), is_one, "{other:?}");
        }
    }

    #[test]
    fn an_event_of_another_kind_tells_no_location() {
        let odd = json!({ "event": "location", "dirs": 5 });
        let odd = CallLocation::from_event(PluginEvent::Other(odd));
        assert_eq!(odd, Some(CallLocation::default()));
        let other = json!({ "event": "place", "machine": "m" });
        assert_eq!(CallLocation::from_event(PluginEvent::Other(other)), None);
    }
}
