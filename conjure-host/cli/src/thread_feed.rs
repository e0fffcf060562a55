//! The events of a saved session's thread for as long as a chat shows it: in the chat's own turns all of
//! them, in those that somebody else began what waits for a person.

use std::time::Duration;

use conjure_core::chat::Event;
use conjure_store::ThreadId;
use tokio::time::Instant;

use super::announced_server::EventFeed;
use super::error::CliError;
use super::session_follower::position_before_new_turn;
use super::sessions::SavedSessions;

/// How often it is looked where the session has gone.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The pause before a thread that could not be followed is tried again, and the longest one.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);

/// Follows one thread. Whoever decides about its calls is there for as long as this is.
pub(crate) struct ThreadFeed {
    thread: ThreadId,
    events: EventFeed,
    /// Time of the next look at where the session has gone.
    poll_at: Instant,
    /// Time at which following began.
    since: Instant,
    /// Number of failures to follow before it, in a row.
    failures: u32,
}

/// Before following is tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowPause {
    failures: u32,
    until: Instant,
}

impl FollowPause {
    /// Where nothing can be followed yet: the session is in no thread.
    pub(crate) fn before_look() -> Self {
        Self {
            failures: 0,
            until: Instant::now() + POLL_INTERVAL,
        }
    }

    /// After it failed so often in a row: the longer, the oftener.
    pub(crate) fn after(failures: u32) -> Self {
        let pause = RETRY_DELAY * 2_u32.saturating_pow(failures.saturating_sub(1).min(10));
        Self {
            failures,
            until: Instant::now() + pause.min(MAX_RETRY_DELAY),
        }
    }

    /// Waits for its end. Safe to drop and call again.
    pub(crate) async fn wait(self) {
        tokio::time::sleep_until(self.until).await;
    }
}

/// Whether a chat follows its thread.
pub(crate) enum Following {
    /// Not yet, or not since it goes on with another thread.
    No,
    Yes(Box<ThreadFeed>),
    /// Following fails for now, and is paused.
    Paused(FollowPause),
}

impl Following {
    /// The feed of this thread.
    pub(crate) fn of(&mut self, thread: &ThreadId) -> Option<&mut ThreadFeed> {
        match self {
            Self::Yes(feed) if feed.thread == *thread => Some(feed),
            _ => None,
        }
    }

    /// How often following failed in a row. What went well for longer than any pause has not failed; events
    /// alone say nothing, as they are told again each time.
    pub(crate) fn failures(&self) -> u32 {
        match self {
            Self::No => 0,
            Self::Paused(pause) => pause.failures,
            Self::Yes(feed) if feed.since.elapsed() > MAX_RETRY_DELAY => 0,
            Self::Yes(feed) => feed.failures,
        }
    }
}

impl ThreadFeed {
    /// Follows from where the turn that runs began, or from now on where none does; after it failed so
    /// often in a row. A server tells again all since the thread was opened, so what an event asks may be
    /// settled long ago.
    pub(crate) async fn from_now(
        sessions: &SavedSessions,
        thread: &ThreadId,
        failures: u32,
    ) -> Result<Self, CliError> {
        let events = sessions.events_of_turn(thread).await?;
        Ok(Self::new(thread, events, failures))
    }

    /// Follows from before whatever a turn shows that was just begun.
    pub(crate) async fn from_turn(
        sessions: &SavedSessions,
        thread: &ThreadId,
    ) -> Result<Self, CliError> {
        let after = position_before_new_turn(sessions, thread).await?;
        let events = sessions.events(thread, after, true).await?;
        Ok(Self::new(thread, events, 0))
    }

    fn new(thread: &ThreadId, events: EventFeed, failures: u32) -> Self {
        let now = Instant::now();
        Self {
            thread: thread.clone(),
            events,
            poll_at: now + POLL_INTERVAL,
            since: now,
            failures,
        }
    }

    /// The thread that it follows.
    pub(crate) fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Time of the next look at where the session has gone.
    pub(crate) fn poll_at(&self) -> Instant {
        self.poll_at
    }

    /// Notes that a look found the session where it was.
    pub(crate) fn mark_polled(&mut self) {
        self.poll_at = Instant::now() + POLL_INTERVAL;
    }

    /// The next event; nothing when none comes any more. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, CliError> {
        let next = self.events.next().await?;
        Ok(next.map(|stamped| stamped.event))
    }
}

/// Whether an event of somebody else's turn says that something waits for a person, or no longer does.
pub(crate) fn concerns_person(event: &Event) -> bool {
    matches!(
        event,
        Event::Approval { .. }
            | Event::ApprovalOver { .. }
            | Event::Question(_)
            | Event::QuestionOver { .. }
            | Event::CallStarted { .. }
            | Event::FunctionCallOutput(_)
            | Event::Done { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_pause_before_another_try_grows_to_a_minute() {
        let begun = Instant::now();
        let pauses = [1, 2, 3, 9, u32::MAX].map(|failures| {
            let pause = FollowPause::after(failures);
            assert_eq!(Following::Paused(pause).failures(), failures);
            pause.until.duration_since(begun)
        });
        assert!(pauses.is_sorted(), "{pauses:?}");
        for (pause, least) in pauses.iter().zip([1, 2, 4, 60, 60]) {
            assert!(*pause >= Duration::from_secs(least), "{pauses:?}");
        }
        assert_eq!(Following::Paused(FollowPause::before_look()).failures(), 0);
    }
}
