//! What is to be written: each thread's own entries, and where forks begin.
//!
//! There, a fork's snapshots hold what came before it once more, or nothing of it. Here a fork shares
//! its parent's entries: as far as both begin alike, or up to the entry that it says it begins
//! behind.

use std::collections::{BTreeMap, BTreeSet};

use conjure_core::chat::Role;
use conjure_core::log::{Entry, EntryBody, TurnOutcome, call_ids};

use crate::{Store, StoreError, ThreadId, Window};

use super::Maestro;
use super::chat::{Draft, drafts};
use super::report::{Left, LeftOut};
use super::settings::MaestroSettings;
use super::threads::MaestroThread;

/// Entries that are read at once.
const PAGE_ENTRIES: u64 = 1_000;

/// A thread that is to be made.
pub(super) struct ThreadImport<'a> {
    pub(super) thread: &'a MaestroThread,
    /// The thread that it is a fork of, and behind which entry.
    pub(super) fork: Option<(ThreadId, u64)>,
    /// Entries of the thread itself.
    pub(super) entries: Vec<Entry>,
    pub(super) left_out: LeftOut,
}

/// The entries that a thread shows, imported now or here before.
struct PlannedThread {
    drafts: Vec<Draft>,
    /// Whether drafts know their messages: not those of a thread that was here before.
    knows_messages: bool,
}

/// Threads that are not here yet, parents before their forks.
pub(super) async fn plan<'a>(
    maestro: &'a Maestro,
    settings: &[MaestroSettings],
    store: &Store,
) -> Result<(Vec<ThreadImport<'a>>, usize), StoreError> {
    let personas: BTreeMap<&str, &str> = settings
        .iter()
        .map(|session| (session.id.as_str(), session.persona_text()))
        .collect();
    let parents: BTreeSet<&ThreadId> = maestro
        .threads
        .iter()
        .filter_map(|thread| thread.parent.as_ref())
        .collect();
    let mut shown: BTreeMap<ThreadId, PlannedThread> = BTreeMap::new();
    let mut planned = Vec::new();
    let mut known = 0;
    for (thread, parent) in in_order(&maestro.threads) {
        let is_parent = parents.contains(&thread.id);
        if thread_exists(store, &thread.id).await? {
            known += 1;
            if is_parent && let Some(of_here) = read(store, &thread.id).await? {
                shown.insert(thread.id.clone(), of_here);
            }
            continue;
        }
        let session = thread.session.as_deref();
        let persona = session.and_then(|id| personas.get(id)).copied();
        let persona = persona.unwrap_or_default();
        let mut left_out = thread.left_out.clone();
        let own = drafts(&thread.chat, persona, BTreeSet::new(), &mut left_out);
        let mut all = PlannedThread {
            drafts: own,
            knows_messages: true,
        };
        let mut fork = None;
        if let Some(of_parent) = parent.and_then(|parent| shown.get(parent)) {
            fork = common_prefix(of_parent, &all);
            if fork.is_none() {
                let behind = thread
                    .fork_at
                    .and_then(|at| with_parent_entries(of_parent, thread, persona, at));
                if let Some((from, with_parent)) = behind {
                    all.drafts = with_parent;
                    fork = Some(from);
                }
            }
        }
        if thread.parent.is_some() && fork.is_none() {
            left_out.count(Left::BrokenForks);
        }
        let from = fork.unwrap_or_default();
        let own = all.drafts.iter().zip(1..).skip(from);
        let entries = own.map(|(draft, seq)| Entry {
            seq,
            turn: draft.turn,
            at_ms: thread.at_ms(draft.message),
            body: draft.body.clone(),
        });
        planned.push(ThreadImport {
            thread,
            entries: entries.collect(),
            fork: fork.and_then(|from| Some((parent?.clone(), from as u64))),
            left_out,
        });
        if is_parent {
            shown.insert(thread.id.clone(), all);
        }
    }
    Ok((planned, known))
}

/// Threads, each behind its parent. One whose parents lead back to itself has none, as has one whose
/// parent is not there.
fn in_order(threads: &[MaestroThread]) -> Vec<(&MaestroThread, Option<&ThreadId>)> {
    let by_id: BTreeMap<&ThreadId, &MaestroThread> = threads.iter().map(|t| (&t.id, t)).collect();
    let mut done: BTreeSet<&ThreadId> = BTreeSet::new();
    let mut ordered = Vec::with_capacity(threads.len());
    for thread in threads {
        let mut path: Vec<(&MaestroThread, Option<&ThreadId>)> = Vec::new();
        let mut on_path = BTreeSet::new();
        let mut next = Some(thread);
        while let Some(thread) = next.filter(|thread| !done.contains(&thread.id)) {
            on_path.insert(&thread.id);
            let parent = thread.parent.as_ref();
            let parent = parent.filter(|parent| !on_path.contains(parent));
            next = parent.and_then(|parent| by_id.get(parent).copied());
            path.push((thread, next.map(|parent| &parent.id)));
        }
        done.extend(path.iter().map(|(thread, _)| &thread.id));
        ordered.extend(path.into_iter().rev());
    }
    ordered
}

/// How many entries two threads begin with alike; nothing where no message of the conversation is
/// among them: what the host says is in each.
fn common_prefix(parent: &PlannedThread, fork: &PlannedThread) -> Option<usize> {
    let both = parent.drafts.iter().zip(&fork.drafts);
    let alike = both.take_while(|(one, other)| (one.turn, &one.body) == (other.turn, &other.body));
    let mut count = 0;
    let mut has_message = false;
    for ((draft, _), number) in alike.zip(1..) {
        has_message |= matches!(
            &draft.body,
            EntryBody::Message { message } if message.role != Role::System
        );
        // What begins something goes with what comes of it.
        let begins = matches!(
            draft.body,
            EntryBody::TurnStarted { .. } | EntryBody::CallStarted { .. }
        );
        if !begins {
            count = number;
        }
    }
    has_message.then_some(count)
}

/// A fork that holds nothing of what is before it: its parent's entries up to so many messages, how
/// many these are, and its own behind them.
fn with_parent_entries(
    parent: &PlannedThread,
    fork: &MaestroThread,
    persona: &str,
    messages: usize,
) -> Option<(usize, Vec<Draft>)> {
    if !parent.knows_messages {
        return None;
    }
    let before = parent
        .drafts
        .iter()
        .filter(|draft| draft.message < messages);
    // For a fork of the fork they are before all of its messages.
    let mut all: Vec<Draft> = before
        .map(|draft| Draft {
            message: 0,
            ..draft.clone()
        })
        .collect();
    let from = all.len();
    if from == 0 {
        return None;
    }
    let open = all.iter().rev().find_map(|draft| match &draft.body {
        EntryBody::TurnStarted { turn_id } => Some(Some(turn_id.clone())),
        EntryBody::TurnEnded { .. } => Some(None),
        _ => None,
    });
    let turn = all.last().map_or(0, |draft| draft.turn);
    if let Some(Some(turn_id)) = open {
        all.push(Draft {
            turn,
            message: 0,
            body: EntryBody::TurnEnded {
                turn_id,
                outcome: TurnOutcome::Interrupted,
                usage: conjure_core::chat::Usage::default(),
                stop_reason: None,
            },
        });
    }
    let entries: Vec<Entry> = all.iter().map(as_entry).collect();
    let used = call_ids(&entries).map(str::to_owned).collect();
    let has = |draft: &Draft| all.iter().any(|before| before.body == draft.body);
    // What is left out of it was counted already.
    let own = drafts(&fork.chat, persona, used, &mut LeftOut::default());
    let own = own.into_iter();
    // What the host said at the beginning is said already.
    let own: Vec<Draft> = own
        .skip_while(|draft| draft.turn == 0 && has(draft))
        .collect();
    all.extend(own.into_iter().map(|draft| Draft {
        turn: if draft.turn == 0 {
            turn
        } else {
            draft.turn + turn
        },
        body: shift_turn(draft.body, turn),
        ..draft
    }));
    Some((from, all))
}

fn as_entry(draft: &Draft) -> Entry {
    Entry {
        seq: 0,
        turn: draft.turn,
        at_ms: 0,
        body: draft.body.clone(),
    }
}

/// With the id of a turn that comes behind so many.
fn shift_turn(body: EntryBody, turns: u64) -> EntryBody {
    let new = |turn_id: String| match turn_id.rsplit_once('-') {
        Some((before, number)) => match number.parse::<u64>() {
            Ok(number) => format!("{before}-{}", number + turns),
            Err(_) => turn_id,
        },
        None => turn_id,
    };
    match body {
        EntryBody::TurnStarted { turn_id } => EntryBody::TurnStarted {
            turn_id: new(turn_id),
        },
        EntryBody::TurnEnded {
            turn_id,
            outcome,
            usage,
            stop_reason,
        } => EntryBody::TurnEnded {
            turn_id: new(turn_id),
            outcome,
            usage,
            stop_reason,
        },
        other => other,
    }
}

/// Whether a thread is here, or was here and is still needed.
async fn thread_exists(store: &Store, thread: &ThreadId) -> Result<bool, StoreError> {
    let sql = "SELECT id FROM threads WHERE id = $1";
    Ok(store.one(sql, [thread.as_str().into()]).await?.is_some())
}

/// What a thread shows that is here; nothing where its beginning was cleared.
async fn read(store: &Store, thread: &ThreadId) -> Result<Option<PlannedThread>, StoreError> {
    let mut drafts = Vec::new();
    let mut after = 0;
    loop {
        let page = match store
            .entries(thread, Window::After(after), PAGE_ENTRIES)
            .await
        {
            Err(StoreError::NoThread { .. }) => return Ok(None),
            page => page?,
        };
        if page.first_seq != 1 {
            return Ok(None);
        }
        let Some(last) = page.entries.last() else {
            break;
        };
        after = last.seq;
        drafts.extend(page.entries.into_iter().map(|entry| Draft {
            turn: entry.turn,
            message: 0,
            body: entry.body,
        }));
    }
    Ok(Some(PlannedThread {
        drafts,
        knows_messages: false,
    }))
}
