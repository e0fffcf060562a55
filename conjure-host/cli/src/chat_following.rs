//! What others do in a saved session while its chat says nothing: what waits for a person in the turns
//! that they begin, and where they take the session. A thread that cannot be followed is tried again.

use conjure_core::chat::Event;
use conjure_runtime::manager::Manager;
use conjure_store::ThreadId;

use super::chat_session::SavedChat;
use super::error::CliError;
use super::thread_feed::{FollowPause, Following, ThreadFeed, concerns_person};

/// News of what others do in a session.
pub(crate) enum OthersUpdate {
    /// An event of a turn that they began, as far as it concerns a person.
    Event(Box<Event>),
    /// The others took the session to another thread.
    Moved,
    /// Following fails for now, with the reason; it is tried again.
    Unfollowed(CliError),
}

/// Result of a step of following.
enum FollowStep {
    /// An event that concerns a person.
    Told(Box<Event>),
    /// The session goes on with another thread.
    Moved,
    /// The state of following from here on.
    Next(Following),
}

/// What happens next in turns that others begin. That it cannot be followed is told once, until it can.
/// May be dropped and called again.
pub(crate) async fn next_others_update(saved: &mut SavedChat) -> OthersUpdate {
    loop {
        match step(saved).await {
            Ok(FollowStep::Told(event)) => return OthersUpdate::Event(event),
            Ok(FollowStep::Moved) => {
                saved.following = Following::No;
                saved.shown_thread = None;
                return OthersUpdate::Moved;
            }
            Ok(FollowStep::Next(following)) => saved.following = following,
            Err(error) => {
                let failures = saved.following.failures();
                saved.following = Following::Paused(FollowPause::after(failures + 1));
                if failures == 0 {
                    return OthersUpdate::Unfollowed(error);
                }
            }
        }
    }
}

async fn step(saved: &mut SavedChat) -> Result<FollowStep, CliError> {
    match &mut saved.following {
        Following::Yes(feed) => {
            let manager = saved.sessions.manager();
            return next_relevant_event(feed, manager, &saved.id).await;
        }
        Following::Paused(pause) => pause.wait().await,
        Following::No => {}
    }
    follow(saved).await
}

/// Follows the thread that a saved session is in, unless the person sees another; looks again later where
/// it is in none.
async fn follow(saved: &SavedChat) -> Result<FollowStep, CliError> {
    let view = saved.sessions.manager().get(&saved.id).await?;
    let Some(thread) = view.thread else {
        let pause = FollowPause::before_look();
        return Ok(FollowStep::Next(Following::Paused(pause)));
    };
    if saved.shows_another(&thread.id) {
        return Ok(FollowStep::Moved);
    }
    let failures = saved.following.failures();
    let feed = ThreadFeed::from_now(&saved.sessions, &thread.id, failures).await?;
    Ok(FollowStep::Next(Following::Yes(Box::new(feed))))
}

/// Waits for what concerns a person, and looks meanwhile whether the session is still in the thread.
async fn next_relevant_event(
    feed: &mut ThreadFeed,
    manager: &Manager,
    session: &str,
) -> Result<FollowStep, CliError> {
    loop {
        let look_at = feed.poll_at();
        tokio::select! {
            biased;
            event = feed.next() => match event? {
                Some(event) if concerns_person(&event) => {
                    return Ok(FollowStep::Told(Box::new(event)));
                }
                Some(_) => {}
                // The thread was removed, or the program ends.
                None => {
                    let pause = FollowPause::before_look();
                    return Ok(FollowStep::Next(Following::Paused(pause)));
                }
            },
            () = tokio::time::sleep_until(look_at) => {
                if has_moved(manager, session, feed.thread()).await {
                    return Ok(FollowStep::Moved);
                }
                feed.mark_polled();
            }
        }
    }
}

/// Whether a session goes on with another thread; not where that cannot be told now.
async fn has_moved(manager: &Manager, session: &str, thread: &ThreadId) -> bool {
    let now = manager.get(session).await.ok().and_then(|view| view.thread);
    now.is_some_and(|now| now.id != *thread)
}
