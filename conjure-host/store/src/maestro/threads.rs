//! Rows of the history as threads: which belong together, which is the newest snapshot, and where a
//! thread was forked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::{StoreError, ThreadId};

use super::report::{Left, LeftOut};
use super::source::{Fields, MaestroSource, SourceTable};

const HISTORY: SourceTable = SourceTable {
    table: "chat_history",
    columns: &[
        "id",
        "session_id",
        "thread_id",
        "parent_thread_id",
        "fork_from_entry_id",
        "thread_label",
        "turn_index",
        "inserted_at",
    ],
};
/// How many messages a snapshot has; nothing when they cannot be read.
const MESSAGE_COUNT: (&str, &str) = (
    "messages",
    "CASE jsonb_typeof(combined_chat -> 'messages') WHEN 'array' THEN \
     CAST(jsonb_array_length(combined_chat -> 'messages') AS TEXT) END",
);
/// The longest label, in characters.
const MAX_LABEL_CHARS: usize = 200;

/// A thread of Maestro.
pub(super) struct MaestroThread {
    /// Id of the thread there, or one made of its session's.
    pub(super) id: ThreadId,
    /// The session that it was used in last.
    pub(super) session: Option<String>,
    /// Newest label of the thread.
    pub(super) label: Option<String>,
    /// The thread that it was forked from.
    pub(super) parent: Option<ThreadId>,
    /// Number of messages of that thread before the fork, if known.
    pub(super) fork_at: Option<usize>,
    /// The newest snapshot that can be read.
    pub(super) chat: Json,
    /// How many messages there were, and when, in milliseconds since 1970; in order.
    times: Vec<(usize, i64)>,
    /// Ids of its rows.
    pub(super) rows: BTreeSet<String>,
    pub(super) left_out: LeftOut,
}

impl MaestroThread {
    /// When a message was said, in milliseconds since 1970.
    pub(super) fn at_ms(&self, message: usize) -> i64 {
        let said = self.times.iter().find(|(messages, _)| *messages > message);
        said.or(self.times.last()).map_or(0, |(_, at_ms)| *at_ms)
    }

    /// When it began and when it last grew, in milliseconds since 1970.
    pub(super) fn span_ms(&self) -> Option<(i64, i64)> {
        let times = || self.times.iter().map(|(_, at_ms)| *at_ms);
        Some((times().min()?, times().max()?))
    }
}

/// Reads all threads.
pub(super) async fn read(source: &MaestroSource) -> Result<Vec<MaestroThread>, StoreError> {
    let rows = source.table_with(HISTORY, &[MESSAGE_COUNT]).await?;
    let mut groups: BTreeMap<ThreadId, Vec<&Fields>> = BTreeMap::new();
    // Where a fork can begin: the thread of a row, and its messages.
    let mut points: BTreeMap<&str, (ThreadId, usize)> = BTreeMap::new();
    for row in &rows {
        let (Some(thread), Some(id)) = (thread_of(row), row.text("id")) else {
            continue;
        };
        if let Some(messages) = messages(row) {
            points.insert(id, (thread.clone(), messages));
        }
        groups.entry(thread).or_default().push(row);
    }
    let mut threads = Vec::with_capacity(groups.len());
    for (id, mut rows) in groups {
        let order = |row: &&Fields| {
            let at_ms = row.number("inserted_at").unwrap_or_default();
            (turn_index(row), at_ms, row.text("id").map(str::to_owned))
        };
        rows.sort_by_key(order);
        let mut left_out = LeftOut::default();
        let unreadable = rows.iter().filter(|row| messages(row).is_none()).count();
        left_out.add(Left::UnreadableSnapshots, unreadable as u64);
        if has_gaps_or_doubles(&rows) {
            left_out.count(Left::GapsAndDoubles);
        }
        let newest = rows.iter().rev().find(|row| messages(row).is_some());
        let shrunk = newest.is_some_and(|newest| {
            let most = rows.iter().filter_map(|row| messages(row)).max();
            most > messages(newest)
        });
        if shrunk {
            left_out.count(Left::ShrunkThreads);
        }
        let chat = match newest.and_then(|row| row.text("id")) {
            Some(row) => source.chat(row).await?,
            None => None,
        };
        let newest_of = |column: &str| {
            let by_time = |row: &&&Fields| row.number("inserted_at");
            let said = rows.iter().filter(|row| row.nonblank(column).is_some());
            said.max_by_key(by_time)
                .and_then(|row| row.nonblank(column))
        };
        let (parent, fork_at) = lineage(&id, &rows, &points);
        threads.push(MaestroThread {
            session: newest_of("session_id").map(str::to_owned),
            label: newest_of("thread_label").map(|label| shorten(label, MAX_LABEL_CHARS)),
            parent,
            fork_at,
            chat: chat.unwrap_or_default(),
            times: message_times(&rows),
            rows: rows
                .iter()
                .filter_map(|row| row.text("id"))
                .map(str::to_owned)
                .collect(),
            left_out,
            id,
        });
    }
    Ok(threads)
}

/// The thread of a row: its own, else one that is made of its session, else one of its own.
fn thread_of(row: &Fields) -> Option<ThreadId> {
    let own = row
        .nonblank("thread_id")
        .and_then(|id| ThreadId::parse(id).ok());
    own.or_else(|| of_session(row.nonblank("session_id").or(row.text("id"))?))
}

/// The thread of a session's rows that name none.
pub(super) fn of_session(session: &str) -> Option<ThreadId> {
    ThreadId::parse(&format!("the-maestro-{session}")).ok()
}

fn messages(row: &Fields) -> Option<usize> {
    row.text("messages")?.parse().ok()
}

fn turn_index(row: &Fields) -> i64 {
    row.number("turn_index").unwrap_or(i64::MIN)
}

fn has_gaps_or_doubles(rows: &[&Fields]) -> bool {
    let (rows, behind) = (rows.iter(), rows.iter().skip(1));
    rows.zip(behind)
        .any(|(row, next)| turn_index(row).checked_add(1) != Some(turn_index(next)))
}

/// Where a thread was forked: from which, and behind how many messages. The application marks the
/// row that a fork begins at with that row's own id, which makes it no fork.
fn lineage(
    id: &ThreadId,
    rows: &[&Fields],
    points: &BTreeMap<&str, (ThreadId, usize)>,
) -> (Option<ThreadId>, Option<usize>) {
    let parent = |row: &&Fields| ThreadId::parse(row.nonblank("parent_thread_id")?).ok();
    let parent = rows.iter().filter_map(parent).find(|parent| parent != id);
    let point = |row: &&Fields| points.get(row.nonblank("fork_from_entry_id")?);
    let mut points = rows
        .iter()
        .filter_map(point)
        .filter(|(thread, _)| thread != id);
    match parent {
        Some(parent) => {
            let at = points.find(|(thread, _)| *thread == parent);
            (Some(parent), at.map(|(_, messages)| *messages))
        }
        None => points.next().map_or((None, None), |(thread, messages)| {
            (Some(thread.clone()), Some(*messages))
        }),
    }
}

/// When how many messages were there, for the first time.
fn message_times(rows: &[&Fields]) -> Vec<(usize, i64)> {
    let mut times: Vec<(usize, i64)> = Vec::new();
    for row in rows {
        if let Some(at_ms) = row.number("inserted_at") {
            times.push((messages(row).unwrap_or_default(), at_ms));
        }
    }
    times
}

/// A text of one line, at most so long.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let line = text.replace(char::is_control, " ");
    let short: String = line.trim().chars().take(most).collect();
    short.trim_end().to_owned()
}
