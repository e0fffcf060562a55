//! Tells those who follow the sessions what other processes that share the store do: sessions that were
//! made, changed or deleted, and turns that began, ended or wait for a person. Nobody looks while nobody
//! follows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ManagerState;
use super::changes::{OwnSaves, SessionChange};
use super::view::SessionState;
use conjure_store::{SessionMark, SessionMarks};

/// How often the sessions are looked at without word of a write: a word may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest and the longest time from one look to the next. A word after a while is followed at
/// once; but there is one of every write of another process to an SQLite file, and all sessions are
/// looked at each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(750);
/// How many times as long as a look the pause after it is: what looks may take of a processor.
const PAUSE_PER_POLL: u32 = 50;

/// Looks for as long as a manager is there.
pub(super) async fn watch_sessions(inner: Weak<ManagerState>) {
    let Some((mut followers, word)) = inner.upgrade().map(|inner| {
        let word = Arc::clone(&inner.sessions_changed);
        (inner.states.followers(), word)
    }) else {
        return;
    };
    while wait_for_followers(&mut followers, |count| count > 0).await {
        let mut known = None;
        while *followers.borrow() > 0 {
            let Some(inner) = inner.upgrade() else { return };
            let begun = Instant::now();
            inner.poll_sessions(&mut known).await;
            let pause = (begun.elapsed() * PAUSE_PER_POLL).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            let next = Instant::now() + pause;
            inner.states.set_watching(known.is_some());
            drop(inner);
            tokio::select! {
                is_known = wait_for_followers(&mut followers, |count| count == 0) => if !is_known { return },
                () = word.notified() => tokio::time::sleep_until(next).await,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        let Some(inner) = inner.upgrade() else { return };
        inner.states.set_watching(false);
    }
}

/// Waits until there are so many followers; whether that may still be.
async fn wait_for_followers(
    followers: &mut watch::Receiver<usize>,
    is_meant: impl Fn(usize) -> bool,
) -> bool {
    followers.wait_for(|count| is_meant(*count)).await.is_ok()
}

impl ManagerState {
    /// Tells what is otherwise than it was known to be.
    async fn poll_sessions(&self, known: &mut Option<SessionMarks>) {
        // Before the marks are read: all of it is in them.
        let mut own = self.states.take_own_saves();
        let mut marks = match self.store.session_marks().await {
            Ok(marks) => marks,
            Err(error) => {
                tracing::debug!("what other processes do in sessions is not known: {error}");
                self.states.restore_own_saves(own);
                return;
            }
        };
        // What is noted as saved only now may be in the marks already, or in the next ones.
        let late = self.states.take_own_saves();
        own.extend(late.clone());
        self.states.restore_own_saves(late);
        if let Some(before) = known.as_ref() {
            for change in differences(before, &marks) {
                match &change {
                    // What goes on here is told as it does, and what goes on elsewhere when it is over.
                    SessionChange::State { session, .. } if self.states.is_known(session) => {
                        clear_activity(session, &mut marks);
                    }
                    change if is_own_change(&own, &marks, change) => {}
                    _ => self.states.notify(change),
                }
            }
        }
        *known = Some(marks);
    }
}

/// Takes no turn of another process in a session as known, so that one that goes on is told later.
fn clear_activity(session: &str, now: &mut SessionMarks) {
    if let Some(mark) = now.get_mut(session) {
        mark.running = None;
        mark.queued = 0;
    }
}

/// Whether this process did that, and told it as it did.
fn is_own_change(own: &OwnSaves, marks: &SessionMarks, change: &SessionChange) -> bool {
    match change {
        SessionChange::Saved { session } => {
            let saved = own.get(session).copied().flatten();
            saved.is_some() && saved == marks.get(session).map(|mark| mark.updated_at_ms)
        }
        SessionChange::Deleted { session } => own.get(session) == Some(&None),
        _ => false,
    }
}

fn differences(before: &SessionMarks, now: &SessionMarks) -> Vec<SessionChange> {
    let mut changes = Vec::new();
    for (session, mark) in now {
        let known = before.get(session);
        if known.is_none_or(|known| known.updated_at_ms != mark.updated_at_ms) {
            changes.push(SessionChange::Saved {
                session: session.clone(),
            });
        }
        let is_idle = mark.running.is_none() && mark.queued == 0;
        let is_same = known.map_or(is_idle, |known| {
            known.running == mark.running && known.queued == mark.queued
        });
        if !is_same {
            changes.push(state_change(session, mark));
        }
    }
    let gone = before.keys().filter(|session| !now.contains_key(*session));
    changes.extend(gone.map(|session| SessionChange::Deleted {
        session: session.clone(),
    }));
    changes
}

fn state_change(session: &str, mark: &SessionMark) -> SessionChange {
    let running = mark.running.as_ref();
    SessionChange::State {
        session: session.to_owned(),
        state: match running {
            Some(turn) if turn.is_waiting => SessionState::Waiting,
            Some(_) => SessionState::Running,
            None => SessionState::Idle,
        },
        turn: running.map(|turn| turn.id.clone()),
        thread: running.map(|turn| turn.thread.clone()),
        queued: mark.queued,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_store::{ForeignTurn, ThreadId};

    fn mark(updated_at_ms: i64, running: Option<bool>) -> SessionMark {
        SessionMark {
            updated_at_ms,
            running: running.map(|is_waiting| ForeignTurn {
                id: "turn".to_owned(),
                thread: ThreadId::parse("t").unwrap(),
                is_waiting,
            }),
            queued: 0,
        }
    }

    fn marks(all: &[(&str, SessionMark)]) -> SessionMarks {
        let all = all.iter().cloned();
        all.map(|(session, mark)| (session.to_owned(), mark))
            .collect()
    }

    #[test]
    fn each_change_is_told_once_and_what_stays_is_not() {
        let before = marks(&[
            ("gone", mark(1, None)),
            ("idle", mark(1, None)),
            ("runs", mark(1, Some(false))),
            ("saved", mark(1, Some(true))),
        ]);
        let now = marks(&[
            ("idle", mark(1, None)),
            ("made", mark(1, None)),
            ("runs", mark(1, Some(true))),
            ("saved", mark(2, Some(true))),
        ]);
        let session = |session: &str| session.to_owned();
        assert_eq!(
            differences(&before, &now),
            [
                SessionChange::Saved {
                    session: session("made")
                },
                SessionChange::State {
                    session: session("runs"),
                    state: SessionState::Waiting,
                    turn: Some("turn".to_owned()),
                    thread: Some(ThreadId::parse("t").unwrap()),
                    queued: 0,
                },
                SessionChange::Saved {
                    session: session("saved")
                },
                SessionChange::Deleted {
                    session: session("gone")
                },
            ]
        );
        assert_eq!(differences(&now, &now), []);
    }

    #[test]
    fn what_is_held_back_is_told_at_the_next_look() {
        let mut now = marks(&[("a", mark(2, Some(false))), ("made", mark(1, Some(true)))]);
        let later = now.clone();
        clear_activity("a", &mut now);
        clear_activity("made", &mut now);
        assert_eq!(now, marks(&[("a", mark(2, None)), ("made", mark(1, None))]));
        let told = differences(&now, &later);
        assert_eq!(
            told,
            [
                state_change("a", &later["a"]),
                state_change("made", &later["made"])
            ]
        );
    }

    #[test]
    fn what_this_process_saved_or_deleted_is_not_told_again() {
        let now = marks(&[("own", mark(2, None)), ("since", mark(3, None))]);
        let own = [("own", Some(2)), ("since", Some(2)), ("gone", None)];
        let own = own.map(|(session, saved)| (session.to_owned(), saved));
        let own = OwnSaves::from(own);
        let saved = |session: &str| SessionChange::Saved {
            session: session.to_owned(),
        };
        let deleted = |session: &str| SessionChange::Deleted {
            session: session.to_owned(),
        };
        assert!(is_own_change(&own, &now, &saved("own")));
        assert!(is_own_change(&own, &now, &deleted("gone")));
        for other in [saved("since"), saved("other"), deleted("other")] {
            assert!(!is_own_change(&own, &now, &other));
        }
    }
}
