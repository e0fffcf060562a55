//! What happens in a thread, as pieces of the page: server-sent events that the module puts in place.
//!
//! The number of an event is the last settled entry that the page has. Whoever comes back with it
//! gets what was settled since, and the turn that runs as a whole: nothing is lost and nothing is
//! there twice, also where the server was another one meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event as Sent, Sse};
use axum::response::{IntoResponse as _, Response};
use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};
use conjure_runtime::manager::{Attendant, EventStream, SessionChange, SessionChangeStream};
use conjure_runtime::session::Stamped;
use conjure_store::ThreadId;
use futures_util::stream;
use maud::{Markup, html};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::address::ConversationAddress;
use super::context::{ConversationContext, entries_after};
use super::live::LiveTurn;
use super::model;
use super::{composer, folds, head, render, threads};
use crate::PageState;
use crate::failure::PageFailure;
use crate::fingerprint::fingerprint;
use crate::live::keep_alive;
use crate::respond::{Swap, piece};

/// How long pieces of a text gather before they are sent.
const GATHER: Duration = Duration::from_millis(100);
/// How long what the session says of itself gathers.
const SETTLE: Duration = Duration::from_millis(50);
/// How long changes of other sessions gather: where many pages are open, each is told to all of them.
const OTHER_SESSIONS_DELAY: Duration = Duration::from_millis(500);
/// How often a thread may have been opened since a host ended in the middle of its turn: whoever
/// looks after what was left opens it too.
const OPENINGS: u64 = 8;
/// How long a browser waits before it comes back.
const RETRY: Duration = Duration::from_secs(1);

/// Query of a browser that follows a thread: the point from which it does.
#[derive(Deserialize)]
pub(crate) struct FollowQuery {
    /// The last settled entry that the page has.
    #[serde(default)]
    after: u64,
    /// Up to where the thread was cleared when the page was made; as it is now without.
    cleared: Option<u64>,
}

pub(crate) async fn follow(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    Query(seen): Query<FollowQuery>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let thread = conversation.thread()?.id.clone();
    let place = match (app.follow)(&extensions) {
        Ok(place) => place,
        Err(full) => return Ok(*full),
    };
    let last = headers.get("last-event-id");
    let last = last.and_then(|last| last.to_str().ok()?.parse().ok());
    let mut changes = app.manager.changes();
    changes.ready().await;
    let page = Follower {
        changes,
        events: begin(&app, &thread, last.unwrap_or(seen.after)).await?,
        _attendant: app.manager.attend(Some(&thread)),
        _permit: place,
        cleared: seen.cleared.unwrap_or(conversation.thread()?.cleared_upto),
        last_settled: last.unwrap_or(seen.after),
        turn: None,
        fingerprints: HashMap::new(),
        listed_threads: BTreeSet::new(),
        due: DueUpdates::now(),
        app,
        address: conversation.address,
        thread,
    };
    let begin = stream::iter([Ok::<_, Infallible>(Sent::default().retry(RETRY))]);
    let events = stream::unfold(Some(Box::new(page)), |page| async {
        let mut page = page?;
        let event = page.next().await?;
        let is_last = matches!(event, PageUpdate::Gone);
        Some((Ok(event.into_event()), (!is_last).then_some(page)))
    });
    let all = futures_util::StreamExt::chain(begin, events);
    let mut response = Sse::new(all).keep_alive(keep_alive()).into_response();
    // Whatever stands between must not hold events back.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    Ok(response)
}

/// The events from the beginning of the turn that is not over, whoever runs it, or from now on.
async fn begin(app: &PageState, thread: &ThreadId, seen: u64) -> Result<EventStream, PageFailure> {
    let entries = entries_after(app.manager.store(), thread, seen).await?;
    let known = app.manager.store().thread(thread).await?;
    // What the host had shown of a turn when it ended is in the events of that time.
    if model::open_turn(&entries).is_some() && !known.is_open {
        let before = known.epoch.checked_sub(OPENINGS).map(|epoch| EventId {
            epoch,
            seq: u64::MAX,
        });
        return Ok(app.manager.events(thread, before).await?);
    }
    Ok(app.manager.events_of_turn(thread).await?)
}

/// A page that follows a thread. Of the session it holds where that is and no more: persona, memory and
/// tools are read where they are shown, and a page that waits has no copy of them.
struct Follower {
    app: PageState,
    address: ConversationAddress,
    thread: ThreadId,
    events: EventStream,
    changes: SessionChangeStream,
    _attendant: Attendant,
    _permit: Box<dyn std::any::Any + Send + Sync>,
    /// Up to where the thread was cleared when the page was made.
    cleared: u64,
    /// The last settled entry that the page has.
    last_settled: u64,
    turn: Option<LiveTurn>,
    /// What was sent last of what is sent as a whole, by its fingerprint.
    fingerprints: HashMap<&'static str, u64>,
    /// The threads in its sidebar.
    listed_threads: BTreeSet<ThreadId>,
    due: DueUpdates,
}

/// What is to be sent, and when.
struct DueUpdates {
    /// Everything that is settled, and the turn as a whole.
    full: bool,
    /// The state of the session.
    state: bool,
    /// The lists of sessions and threads.
    lists: bool,
    /// What the turn did.
    turn: bool,
    at: Option<Instant>,
    /// When other sessions are told of, where one of them changed.
    other_sessions_at: Option<Instant>,
}

impl DueUpdates {
    fn now() -> Self {
        Self {
            full: true,
            state: true,
            lists: true,
            turn: false,
            // What happened of a turn so far comes first.
            at: Some(Instant::now() + SETTLE),
            other_sessions_at: None,
        }
    }

    /// When the first of it is due.
    fn first_due(&self) -> Option<Instant> {
        self.at.into_iter().chain(self.other_sessions_at).min()
    }

    fn within(&mut self, time: Duration) {
        let at = Instant::now() + time;
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
    }
}

/// What a page is told.
enum PageUpdate {
    Pieces {
        html: String,
        last_settled: u64,
    },
    /// The page shows something that is no more.
    Gone,
}

impl PageUpdate {
    fn into_event(self) -> Sent {
        match self {
            Self::Pieces {
                html,
                last_settled: seen,
            } => Sent::default().id(seen.to_string()).data(html),
            Self::Gone => Sent::default().event("gone").data("gone"),
        }
    }
}

impl Follower {
    /// What is to be told next; nothing at the end.
    async fn next(&mut self) -> Option<PageUpdate> {
        loop {
            let at = self.due.first_due();
            let due = async {
                match at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.app.shutdown.cancelled() => return None,
                // Boxed: it is large, and a page that only waits has no room for it.
                () = due => match Box::pin(self.flush()).await {
                    Ok(None) => {}
                    Ok(told) => return told,
                    // The browser comes back and goes on where it was.
                    Err(failure) => {
                        tracing::warn!("a page ends to follow: {}", failure.detail);
                        return None;
                    }
                },
                event = self.events.next() => match event {
                    Ok(Some(event)) => self.take(&event),
                    // The server ends, or the thread is no more.
                    Ok(None) => return self.is_gone().await.then_some(PageUpdate::Gone),
                    Err(error) => {
                        tracing::warn!("a page ends to follow: {error}");
                        return None;
                    }
                },
                change = self.changes.next() => self.take_change(&change?),
            }
        }
    }

    /// Whether the thread was removed.
    async fn is_gone(&self) -> bool {
        let thread = self.app.manager.store().thread(&self.thread).await;
        matches!(thread, Err(conjure_store::StoreError::NoThread { .. }))
    }

    /// Takes a change in of something that the page shows: of the session, of a thread that is among
    /// those in its sidebar, or of another session, of which it says there how it is.
    fn take_change(&mut self, change: &SessionChange) {
        let is_here = match change {
            SessionChange::State { session, .. }
            | SessionChange::Saved { session }
            | SessionChange::Deleted { session } => *session == self.address.session,
            SessionChange::Thread { thread, .. } => {
                *thread == self.thread || self.listed_threads.contains(thread)
            }
            SessionChange::Missed => true,
        };
        if is_here {
            self.due.state = true;
            self.due.lists = true;
            self.due.within(SETTLE);
        } else if !matches!(change, SessionChange::Thread { .. }) {
            let at = Instant::now() + OTHER_SESSIONS_DELAY;
            self.due.other_sessions_at.get_or_insert(at);
        }
    }

    fn take(&mut self, event: &Arc<Stamped>) {
        match &event.event {
            Event::TurnStarted { turn_id } => {
                self.turn = Some(LiveTurn::new(turn_id));
                self.due.full = true;
                self.due.state = true;
                self.due.within(SETTLE);
            }
            Event::Done { .. } => {
                self.turn = None;
                self.due.full = true;
                self.due.state = true;
                self.due.within(SETTLE);
            }
            // Between two turns it tells what is written, such as a summary.
            Event::Notice { .. } if self.turn.is_none() => {
                self.due.full = true;
                self.due.within(SETTLE);
            }
            event => {
                if matches!(event, Event::Usage(_) | Event::Cost { .. }) {
                    self.due.state = true;
                }
                let is_answer = matches!(
                    event,
                    Event::Approval { .. }
                        | Event::ApprovalOver { .. }
                        | Event::Question(_)
                        | Event::QuestionOver { .. }
                );
                if is_answer {
                    self.due.state = true;
                }
                if let Some(turn) = &mut self.turn {
                    turn.apply(event);
                }
                self.due.turn = true;
                self.due.within(GATHER);
            }
        }
    }

    async fn flush(&mut self) -> Result<Option<PageUpdate>, PageFailure> {
        self.due.at = None;
        let is_due = |at: &mut Instant| *at <= Instant::now();
        let elsewhere = self.due.other_sessions_at.take_if(is_due).is_some() && !self.due.lists;
        let mut pieces: Vec<Markup> = Vec::new();
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.lacks_ends()) {
            let after = self.last_settled.max(turn.ends_read_to());
            let entries = entries_after(self.app.manager.store(), &self.thread, after).await?;
            turn.take_ends(&entries);
            self.due.turn = true;
        }
        if std::mem::take(&mut self.due.full) {
            self.due.turn = false;
            self.settle(&mut pieces).await?;
        } else if std::mem::take(&mut self.due.turn)
            && let Some(turn) = &mut self.turn
        {
            pieces.extend(turn.changes(&self.address));
        }
        if std::mem::take(&mut self.due.state) && !self.push_state(&mut pieces).await? {
            return Ok(Some(PageUpdate::Gone));
        }
        if elsewhere {
            let sessions = threads::sessions(&self.app, &self.address).await;
            pieces.extend(self.if_changed("other-sessions", &sessions));
        }
        if pieces.is_empty() {
            return Ok(None);
        }
        let html: String = pieces.into_iter().map(Markup::into_string).collect();
        Ok(Some(PageUpdate::Pieces {
            html,
            last_settled: self.last_settled,
        }))
    }

    /// Entries that are settled now, and the turn that runs.
    async fn settle(&mut self, pieces: &mut Vec<Markup>) -> Result<(), PageFailure> {
        let entries =
            entries_after(self.app.manager.store(), &self.thread, self.last_settled).await?;
        let open = model::open_turn(&entries);
        if open.is_none() {
            // Its end is written, and told in a moment.
            self.turn = None;
        }
        let open = open.unwrap_or(entries.len());
        let (settled, unsettled) = entries.split_at(open);
        let address = &self.address;
        if let Some(last) = settled.last() {
            let mut items = model::items(settled);
            folds::mark_standing(&self.app.api, &self.thread, &mut items).await?;
            pieces.push(piece(Swap::Remove, "empty", &html! {}));
            let shown = render::chunks(address, &items);
            pieces.push(piece(Swap::Append, "entries", &shown));
            let forms = folds::fresh_take_back_forms(&self.app.api, address, &self.thread, settled);
            pieces.extend(forms.await?);
            self.last_settled = last.seq;
        }
        // What the model said and did of an open turn is in its events.
        let said: Vec<Entry> = match &self.turn {
            Some(_) => {
                let first = unsettled.iter().take_while(|entry| is_before(entry));
                first.cloned().collect()
            }
            None => unsettled.to_vec(),
        };
        let is_dead = !unsettled.is_empty() && !self.app.manager.runs_in(&self.thread).await?;
        let mut before = match is_dead {
            true => model::abandoned_items(&said),
            false => model::items(&said),
        };
        folds::mark_standing(&self.app.api, &self.thread, &mut before).await?;
        if !before.is_empty() {
            pieces.push(piece(Swap::Remove, "empty", &html! {}));
        }
        if let Some(turn) = self.turn.as_mut().filter(|_| is_dead) {
            turn.abandon();
        }
        let items = self.turn.as_mut().map(|turn| turn.render_full(address));
        let live = html! {
            (render::items(address, &before))
            div #live-items { @if let Some(items) = items { (items) } }
            @if is_dead { (render::abandoned_notice()) }
        };
        pieces.push(piece(Swap::Inner, "live", &live));
        Ok(())
    }

    /// Tells the state of the session: the strip, the queue, the state of the turn, names and threads.
    /// `false`, and no piece, where what the page shows is there no more.
    async fn push_state(&mut self, pieces: &mut Vec<Markup>) -> Result<bool, PageFailure> {
        let thread = self.thread.to_string();
        let found =
            ConversationContext::find(&self.app, &self.address.session, Some(&thread)).await;
        let conversation = match found {
            Ok(conversation) => conversation,
            Err(failure) if failure.status == axum::http::StatusCode::NOT_FOUND => {
                return Ok(false);
            }
            Err(failure) => return Err(failure),
        };
        if conversation.thread()?.cleared_upto != self.cleared {
            return Ok(false);
        }
        let runs = conversation.open_runs(&self.app).await?;
        let waits = self.turn.as_ref().is_some_and(LiveTurn::is_waiting);
        let runs_here = match runs
            .running
            .as_ref()
            .filter(|run| run.thread == self.thread)
        {
            None => "Nothing runs.",
            Some(_) if waits => "The model waits for you.",
            Some(_) => "The model works.",
        };
        let usage = self.turn.as_ref().and_then(|turn| turn.usage);
        let mut whole = vec![
            ("strip", head::strip(&self.app, &conversation, usage).await?),
            (
                "turn-state",
                composer::state(&conversation, &runs, waits, true),
            ),
            ("queue", composer::queue(&conversation, &runs, true)),
            ("label", head::title(&conversation)),
        ];
        if std::mem::take(&mut self.due.lists) {
            let sessions = threads::sessions(&self.app, &conversation.address).await;
            let tree = threads::tree(&self.app, &conversation).await?;
            self.listed_threads = tree.thread_ids;
            whole.push(("threads", tree.markup));
            whole.push(("other-sessions", sessions));
        }
        self.address = conversation.address;
        for (target, what) in whole {
            pieces.extend(self.if_changed(target, &what));
        }
        // How it is when a page begins is not news.
        let now = fingerprint(runs_here);
        let before = self.fingerprints.insert("announce", now);
        if before.is_some_and(|before| before != now) {
            pieces.push(piece(Swap::Inner, "announce", &html! { (runs_here) }));
        }
        Ok(true)
    }

    /// The piece for something that is sent as a whole, where it is another one than was sent last.
    fn if_changed(&mut self, target: &'static str, what: &Markup) -> Option<Markup> {
        let now = fingerprint(&what.0);
        let is_other = self.fingerprints.insert(target, now) != Some(now);
        is_other.then(|| piece(Swap::Outer, target, what))
    }
}

/// Whether an entry of a turn is before what the model says in it.
fn is_before(entry: &Entry) -> bool {
    match &entry.body {
        EntryBody::Message { message } => message.meta.is_none(),
        EntryBody::File { source, .. } => source == conjure_runtime::uploads::SOURCE,
        EntryBody::CallStarted { .. } | EntryBody::CallEnded { .. } => false,
        _ => true,
    }
}
