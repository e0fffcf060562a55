//! What a view of a conversation is made over: the session, the thread that is looked at, and a page
//! of its entries.

use conjure_core::log::{Entry, EntryBody};
use conjure_runtime::manager::SessionView;
use conjure_store::{Run, RunState, Store, StoreError, Thread, ThreadId, Window};

use super::address::ConversationAddress;
use super::model::open_turn;
use crate::PageState;
use crate::failure::PageFailure;

/// Entries of a page.
pub(crate) const PAGE: u64 = 60;
/// The most entries that are read for one page: a turn begins on the page that shows it.
const MAX_ENTRIES: u64 = 240;

/// A session, and the thread that is looked at.
pub(crate) struct ConversationContext {
    pub(crate) session: SessionView,
    pub(crate) thread: Option<Thread>,
    pub(crate) address: ConversationAddress,
}

impl ConversationContext {
    /// By the session's name or id, and the thread, or the session's active one.
    pub(crate) async fn find(
        app: &PageState,
        session: &str,
        thread: Option<&str>,
    ) -> Result<Self, PageFailure> {
        let session = app.manager.get(session).await?;
        let active = session.thread.as_ref().map(|thread| thread.id.clone());
        let id = match thread {
            Some(thread) => Some(ThreadId::parse(thread)?),
            None => active,
        };
        let store = app.manager.store();
        let thread = match &id {
            Some(id) => Some(store.thread(id).await?),
            None => None,
        };
        Ok(Self {
            address: ConversationAddress::of(&session, id),
            session,
            thread,
        })
    }

    /// The thread, where there is one.
    pub(crate) fn thread(&self) -> Result<&Thread, PageFailure> {
        self.thread.as_ref().ok_or_else(|| {
            PageFailure::not_found("the session has no thread; “Start New Chat” begins one")
        })
    }

    /// Whether the thread is the one that the session goes on with.
    pub(crate) fn is_active(&self) -> bool {
        let active = self.session.thread.as_ref().map(|thread| &thread.id);
        active == self.address.thread.as_ref()
    }

    /// Whether a turn runs in the thread, for whichever session.
    pub(crate) async fn runs_here(&self, app: &PageState) -> Result<bool, PageFailure> {
        let thread = &self.thread()?.id;
        Ok(app.manager.runs_in(thread).await?)
    }

    /// The turns of the session that run or wait.
    pub(crate) async fn open_runs(&self, app: &PageState) -> Result<OpenRuns, PageFailure> {
        let runs = app.manager.open_runs(&self.session.id).await?;
        let known = self.session.turn.as_deref();
        let (running, queued): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| {
            // The session knows it a moment earlier than the store.
            run.state != RunState::Queued || Some(run.id.as_str()) == known
        });
        let running = running.into_iter().next();
        Ok(OpenRuns { running, queued })
    }
}

/// The turns of a session that run or wait.
pub(crate) struct OpenRuns {
    pub(crate) running: Option<Run>,
    pub(crate) queued: Vec<Run>,
}

/// A page of entries, from the beginning of a turn.
pub(crate) struct EntryWindow {
    pub(crate) entries: Vec<Entry>,
    pub(crate) has_earlier: bool,
    /// Where the turn begins among them that is not over.
    pub(crate) open: usize,
}

impl EntryWindow {
    /// Entries that are settled: nothing comes to their turns any more.
    pub(crate) fn settled(&self) -> &[Entry] {
        self.entries.get(..self.open).unwrap_or_default()
    }

    /// Entries of the turn that is not over.
    pub(crate) fn unsettled(&self) -> &[Entry] {
        self.entries.get(self.open..).unwrap_or_default()
    }

    /// The last settled entry, or the one before the first; 0 where there are none.
    pub(crate) fn last_settled(&self) -> u64 {
        let last = self.settled().last().map(|entry| entry.seq);
        let first = self.unsettled().first();
        last.or_else(|| first.map(|entry| entry.seq.saturating_sub(1)))
            .unwrap_or_default()
    }
}

/// The newest entries, or the newest of those before one. The newest hold a turn that is not over
/// from its beginning, however long it is: what follows the thread goes on from there.
pub(crate) async fn page(
    store: &Store,
    thread: &ThreadId,
    before: Option<u64>,
) -> Result<EntryWindow, StoreError> {
    let window = before.map_or(Window::Last, Window::Before);
    let mut page = store.entries(thread, window, PAGE).await?;
    if page.has_earlier() && !begins_turn(&page.entries) {
        page = store.entries(thread, window, MAX_ENTRIES).await?;
    }
    let mut has_earlier = page.has_earlier();
    let mut entries = page.entries;
    // A turn runs on a thread that is open only.
    let may_run = before.is_none() && has_earlier && store.thread(thread).await?.is_open;
    while let Some(first) = entries.first()
        && may_run
        && has_earlier
        && !entries.iter().any(is_edge)
    {
        let further = store
            .entries(thread, Window::Before(first.seq), MAX_ENTRIES)
            .await?;
        has_earlier = further.has_earlier();
        entries.splice(0..0, further.entries);
    }
    // It begins with a turn: one that leaves a page, else the first that there is.
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let enough = entries.len().saturating_sub(most);
    let begins = |at: &usize| entries.get(*at).is_some_and(is_begin);
    let first = (0..=enough).rev().find(begins);
    let first = first.or_else(|| (enough..entries.len()).find(begins));
    if let Some(first) = first.filter(|first| *first > 0 && (has_earlier || *first <= enough)) {
        entries.drain(..first);
        has_earlier = true;
    }
    let open = match before {
        None => open_turn(&entries).unwrap_or(entries.len()),
        Some(_) => entries.len(),
    };
    Ok(EntryWindow {
        entries,
        has_earlier,
        open,
    })
}

/// Where the page ends that goes on behind the entries before this one; nothing where that is the
/// newest. A page begins with a turn where it can: where that would leave something out, it ends
/// before that turn.
pub(crate) async fn page_end_after(
    store: &Store,
    thread: &Thread,
    before: u64,
) -> Result<Option<u64>, StoreError> {
    let end = Some(before.saturating_add(PAGE)).filter(|end| *end <= thread.last_seq);
    let following = page(store, &thread.id, end).await?;
    let first = following.entries.first().map(|entry| entry.seq);
    Ok(first.filter(|first| *first > before).or(end))
}

/// All entries behind one, in pages that are put together.
pub(crate) async fn entries_after(
    store: &Store,
    thread: &ThreadId,
    after: u64,
) -> Result<Vec<Entry>, StoreError> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut after = after;
    loop {
        let page = store.entries(thread, Window::After(after), 200).await?;
        let has_later = page.has_later();
        entries.extend(page.entries);
        match entries.last() {
            Some(last) if has_later => after = last.seq,
            _ => return Ok(entries),
        }
    }
}

fn begins_turn(entries: &[Entry]) -> bool {
    entries.first().is_some_and(is_begin)
}

fn is_begin(entry: &Entry) -> bool {
    matches!(entry.body, EntryBody::TurnStarted { .. })
}

/// Whether a turn begins or ends with it: behind it is known whether one is open.
fn is_edge(entry: &Entry) -> bool {
    is_begin(entry) || matches!(entry.body, EntryBody::TurnEnded { .. })
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Message, Usage};
    use conjure_core::log::TurnOutcome;
    use conjure_store::{Location, Log as _, Options, Record};

    use super::*;

    fn record(seq: u64, turn: u64, body: EntryBody) -> Record {
        Record::Entry(Entry {
            seq,
            turn,
            at_ms: 5,
            body,
        })
    }

    #[tokio::test]
    async fn the_newest_page_holds_an_open_turn_from_its_beginning_however_long_it_is() {
        let store = Store::open(&Location::Memory, &Options::default()).await;
        let store = store.unwrap();
        let thread = ThreadId::parse("t").unwrap();
        let begin = |turn: u64| EntryBody::TurnStarted {
            turn_id: format!("turn-{turn}"),
        };
        let said = |text: &str| EntryBody::Message {
            message: Message::assistant(text),
        };
        let mut records = vec![record(1, 1, begin(1)), record(2, 1, said("before"))];
        records.push(record(3, 1, ended()));
        records.push(record(4, 2, begin(2)));
        records.extend((5..=704).map(|seq| record(seq, 2, said("x"))));
        let mut log = store.open(&thread).await.unwrap();
        log.append(&records, true).await.unwrap();
        let newest = page(&store, &thread, None).await.unwrap();
        let shown: Vec<u64> = newest.entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(shown, (4..=704).collect::<Vec<_>>());
        assert_eq!(
            (newest.open, newest.has_earlier, newest.last_settled()),
            (0, true, 3)
        );
        // Over, it comes in pages.
        log.append(&[record(705, 2, ended())], true).await.unwrap();
        let newest = page(&store, &thread, None).await.unwrap();
        assert!(newest.entries.len() <= 240, "{}", newest.entries.len());
        assert_eq!((newest.unsettled().len(), newest.has_earlier), (0, true));
        // Earlier ones too, and none of them is open.
        let earlier = page(&store, &thread, Some(600)).await.unwrap();
        assert!(earlier.entries.len() <= 240 && earlier.unsettled().is_empty());
    }

    #[tokio::test]
    async fn later_entries_follow_one_another_also_in_a_turn_that_is_longer_than_a_page() {
        let store = Store::open(&Location::Memory, &Options::default()).await;
        let store = store.unwrap();
        let thread = ThreadId::parse("t").unwrap();
        let begin = |turn: u64| EntryBody::TurnStarted {
            turn_id: format!("turn-{turn}"),
        };
        let said = || EntryBody::Message {
            message: Message::assistant("x"),
        };
        let mut records = vec![record(1, 1, begin(1))];
        records.extend((2..=699).map(|seq| record(seq, 1, said())));
        records.extend([record(700, 1, ended()), record(701, 2, begin(2))]);
        records.extend((702..=719).map(|seq| record(seq, 2, said())));
        records.push(record(720, 2, ended()));
        let mut log = store.open(&thread).await.unwrap();
        log.append(&records, true).await.unwrap();
        let whole = store.thread(&thread).await.unwrap();
        // From page to page, each begins no later than the one before it ended.
        let mut before = Some(61);
        let mut ends = Vec::new();
        while let Some(end) = before {
            ends.push(end);
            before = page_end_after(&store, &whole, end).await.unwrap();
            let next = page(&store, &thread, before).await.unwrap();
            let first = next.entries.first().unwrap().seq;
            assert!(first <= end, "{end} to {first} is on no page: {ends:?}");
        }
        assert!(ends.contains(&701), "{ends:?}");
        let newest = page(&store, &thread, None).await.unwrap();
        assert_eq!(newest.entries.last().unwrap().seq, 720);
    }

    fn ended() -> EntryBody {
        EntryBody::TurnEnded {
            turn_id: "turn".to_owned(),
            outcome: TurnOutcome::Completed,
            usage: Usage::default(),
            stop_reason: None,
        }
    }
}
