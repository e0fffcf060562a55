//! The resources of a server whose changes sessions want to hear of, and what the server said to
//! that.
//!
//! The sessions that want a resource are a set and no count: one that asks once more wants it no
//! more than before. The connection of the moment asks the server for them; see `resource_subscription`.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;

/// The most resources of one server that are watched; each may be a request after a new connection.
const MAX_WATCHED: usize = 1_000;

/// What a server said when it was asked to tell of a resource: that it does, or why it does not.
pub(crate) type WatchAnswer = Result<(), String>;

/// One resource that somebody wants to hear of.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchedResource {
    sessions: BTreeSet<String>,
    /// Absent until the server was asked over the connection that there is.
    answer: Option<WatchAnswer>,
    /// Whether asking failed without an answer, and waits for its next time.
    is_delayed: bool,
}

/// The resources by URI.
pub(crate) type WatchedUris = BTreeMap<String, WatchedResource>;

/// The sessions that want to hear of a resource, for each resource.
#[derive(Debug, Default)]
pub(crate) struct WatchedResources {
    watched: watch::Sender<WatchedUris>,
}

impl WatchedResources {
    /// A session wants to hear of a resource. What the server refused, and what waits for its next
    /// time, is asked for at once. False where too many are watched.
    pub(crate) fn add(&self, uri: &str, session: &str) -> bool {
        let mut has_room = true;
        self.watched.send_if_modified(|watched| {
            has_room = watched.len() < MAX_WATCHED || watched.contains_key(uri);
            if !has_room {
                return false;
            }
            let resource = watched.entry(uri.to_owned()).or_default();
            resource.answer.take_if(|answer| answer.is_err());
            resource.sessions.insert(session.to_owned());
            let was_delayed = std::mem::take(&mut resource.is_delayed);
            was_delayed || resource.answer.is_none()
        });
        has_room
    }

    /// A session does not want to hear of a resource any more.
    pub(crate) fn remove(&self, uri: &str, session: &str) {
        self.watched.send_if_modified(|watched| {
            let Some(resource) = watched.get_mut(uri) else {
                return false;
            };
            resource.sessions.remove(session);
            let is_last = resource.sessions.is_empty();
            if is_last {
                watched.remove(uri);
            }
            is_last
        });
    }

    /// A session is over.
    pub(crate) fn forget(&self, session: &str) {
        self.watched.send_if_modified(|watched| {
            let before = watched.len();
            watched.retain(|_, resource| {
                resource.sessions.remove(session);
                !resource.sessions.is_empty()
            });
            watched.len() < before
        });
    }

    /// A new connection was asked for nothing yet. Gives back what is watched already, which may
    /// have changed while there was no connection.
    pub(crate) fn begin_connection(&self) -> BTreeSet<String> {
        self.watched.send_modify(|watched| {
            for resource in watched.values_mut() {
                resource.answer = None;
                resource.is_delayed = false;
            }
        });
        self.uris()
    }

    /// Delays resources that could not be asked for until [`Self::retry`], or until somebody wants one
    /// of them once more.
    pub(crate) fn delay(&self, uris: &BTreeSet<String>) {
        // Nobody waits for that.
        self.watched.send_if_modified(|watched| {
            for uri in uris {
                if let Some(resource) = watched.get_mut(uri) {
                    resource.is_delayed = true;
                }
            }
            false
        });
    }

    /// Whatever waits for its next time may be asked for now.
    pub(crate) fn retry(&self) {
        self.watched.send_if_modified(|watched| {
            for resource in watched.values_mut() {
                resource.is_delayed = false;
            }
            false
        });
    }

    /// Notes what the server said of a resource.
    pub(crate) fn answer(&self, uri: &str, answer: WatchAnswer) {
        self.watched.send_if_modified(|watched| {
            let resource = watched.get_mut(uri);
            resource.is_some_and(|resource| resource.answer.replace(answer).is_none())
        });
    }

    /// Waits for what the server says of a resource; nothing where nobody wants to hear of it any
    /// more, so that the server is not asked.
    pub(crate) async fn wait_for_answer(&self, uri: &str) -> Option<WatchAnswer> {
        let mut watched = self.watched.subscribe();
        let is_said = |watched: &WatchedUris| {
            let resource = watched.get(uri);
            resource.is_none_or(|resource| resource.answer.is_some())
        };
        let watched = watched.wait_for(is_said).await.ok()?;
        watched.get(uri).and_then(|known| known.answer.clone())
    }

    /// The sessions that want to hear of a resource.
    pub(crate) fn sessions(&self, uri: &str) -> Vec<String> {
        let watched = self.watched.borrow();
        let sessions = watched.get(uri).into_iter();
        let sessions = sessions.flat_map(|resource| &resource.sessions);
        sessions.cloned().collect()
    }

    /// The resources that somebody wants to hear of.
    pub(crate) fn uris(&self) -> BTreeSet<String> {
        self.watched.borrow().keys().cloned().collect()
    }

    /// Resources that the server has not refused.
    pub(crate) fn not_refused(&self) -> BTreeSet<String> {
        self.uris_where(|resource| !matches!(resource.answer, Some(Err(_))))
    }

    /// Resources of which the server has said nothing yet.
    pub(crate) fn unanswered(&self) -> BTreeSet<String> {
        self.uris_where(|resource| resource.answer.is_none())
    }

    /// Resources that wait for their next time.
    pub(crate) fn delayed(&self) -> BTreeSet<String> {
        self.uris_where(|resource| resource.is_delayed)
    }

    /// Sees each change of these, answers too.
    pub(crate) fn changes(&self) -> watch::Receiver<WatchedUris> {
        self.watched.subscribe()
    }

    fn uris_where(&self, fits: impl Fn(&WatchedResource) -> bool) -> BTreeSet<String> {
        let watched = self.watched.borrow();
        let fitting = watched.iter().filter(|(_, known)| fits(known));
        fitting.map(|(uri, _)| uri.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(uris: &[&str]) -> BTreeSet<String> {
        uris.iter().map(|uri| (*uri).to_owned()).collect()
    }

    #[test]
    fn a_resource_is_watched_until_nobody_wants_it() {
        let watched = WatchedResources::default();
        for (uri, session) in [("a", "one"), ("a", "one"), ("a", "two"), ("b", "two")] {
            assert!(watched.add(uri, session));
        }
        assert_eq!(watched.sessions("a"), ["one", "two"]);
        watched.remove("c", "one");
        watched.remove("a", "one");
        assert_eq!(watched.sessions("a"), ["two"], "twice is no more than once");
        watched.remove("a", "two");
        assert_eq!(watched.uris(), set(&["b"]));
        watched.forget("two");
        assert!(watched.uris().is_empty());
    }

    #[tokio::test]
    async fn an_answer_counts_until_the_next_connection_and_a_refusal_until_the_next_wish() {
        let watched = WatchedResources::default();
        for uri in ["a", "b"] {
            assert!(watched.add(uri, "one"));
        }
        assert_eq!(watched.unanswered(), set(&["a", "b"]));
        watched.answer("a", Ok(()));
        watched.answer("b", Err("no".to_owned()));
        assert_eq!(watched.wait_for_answer("a").await, Some(Ok(())));
        assert_eq!(
            watched.wait_for_answer("b").await,
            Some(Err("no".to_owned()))
        );
        assert_eq!(watched.not_refused(), set(&["a"]));
        for uri in ["a", "b"] {
            assert!(watched.add(uri, "two"));
        }
        assert_eq!(watched.unanswered(), set(&["b"]));
        assert_eq!(watched.begin_connection(), set(&["a", "b"]));
        assert_eq!(watched.unanswered(), set(&["a", "b"]));
        assert_eq!(watched.wait_for_answer("nobodys").await, None);
    }

    #[test]
    fn what_waits_for_its_next_time_is_asked_for_at_once_for_a_new_wish() {
        let watched = WatchedResources::default();
        for uri in ["a", "b"] {
            assert!(watched.add(uri, "one"));
        }
        watched.delay(&set(&["a", "b", "nobodys"]));
        assert_eq!(watched.delayed(), set(&["a", "b"]));
        let changes = watched.changes();
        assert!(watched.add("a", "one"));
        assert_eq!(watched.delayed(), set(&["b"]));
        assert!(changes.has_changed().unwrap());
        watched.retry();
        assert!(watched.delayed().is_empty());
        watched.delay(&set(&["b"]));
        watched.begin_connection();
        assert!(watched.delayed().is_empty());
    }

    #[test]
    fn only_so_many_are_watched() {
        let watched = WatchedResources::default();
        for number in 0..MAX_WATCHED {
            assert!(watched.add(&number.to_string(), "one"));
        }
        assert!(!watched.add("more", "one"));
        assert!(watched.add("0", "two"));
    }
}
