//! The threads of a session as a tree: each fork under what it was forked from.

use std::collections::{BTreeMap, BTreeSet};

use conjure_core::foreign_text::clean;
use conjure_runtime::manager::{SessionState, SessionView};
use conjure_store::{RunFilter, Store, StoreError, Thread, ThreadId};
use maud::{Markup, html};

use super::address::{ConversationAddress, element_id};
use super::context::ConversationContext;
use crate::PageState;
use crate::client::segment;

/// Turns that are looked through for the threads that they were in.
const RUNS: u64 = 300;
/// The newest threads of all, which are looked through for those that were only named.
const NEWEST: u64 = 200;
/// The most of those that are looked at: each is asked for the sessions that go on with it.
const MAX_NAMED: usize = 12;
/// The most threads that are listed.
const MAX_THREADS: usize = 60;
/// How deep forks are moved in; deeper ones stand where these do.
const MAX_INDENT: usize = 5;
/// The most other sessions that are listed.
const SESSIONS: u64 = 12;

/// The threads of a session, as its sidebar shows them.
pub(crate) struct ThreadTree {
    pub(crate) markup: Markup,
    /// Ids of the threads in the tree.
    pub(crate) thread_ids: BTreeSet<ThreadId>,
}

/// The threads of the session, for the sidebar.
pub(crate) async fn tree(
    app: &PageState,
    conversation: &ConversationContext,
) -> Result<ThreadTree, StoreError> {
    let (threads, are_all) = of_session(app, conversation).await?;
    let listed: BTreeSet<ThreadId> = threads.iter().map(|thread| thread.id.clone()).collect();
    let mut below: BTreeMap<Option<&ThreadId>, Vec<&Thread>> = BTreeMap::new();
    for thread in &threads {
        let parent = thread.parent.as_ref().filter(|id| listed.contains(*id));
        below.entry(parent).or_default().push(thread);
    }
    let shown = html! {
        nav.threads #threads aria-label="Threads" {
            h2 { "Threads" }
            (branch(conversation, &below, None, 0))
            @if !are_all {
                p.hint { "Others are found by " a href="/search" { "searching" } "." }
            }
        }
    };
    Ok(ThreadTree {
        markup: shown,
        thread_ids: listed,
    })
}

/// The name of a thread.
pub(crate) fn label(thread: &Thread) -> String {
    match (thread.label.is_empty(), &thread.parent) {
        (false, _) => clean(&thread.label).into_owned(),
        (true, Some(_)) => format!("Fork behind {}", thread.fork_from_seq),
        (true, None) => "New chat".to_owned(),
    }
}

fn branch(
    conversation: &ConversationContext,
    below: &BTreeMap<Option<&ThreadId>, Vec<&Thread>>,
    of: Option<&ThreadId>,
    depth: usize,
) -> Markup {
    let Some(threads) = below.get(&of) else {
        return html! {};
    };
    let active = conversation
        .session
        .thread
        .as_ref()
        .map(|thread| &thread.id);
    html! {
        ul.flat[depth >= MAX_INDENT] {
            @for thread in threads {
                @let is_here = conversation.address.thread.as_ref() == Some(&thread.id);
                li {
                    a id={ "thread-" (thread.id) } href=(conversation.address.with_thread(&thread.id))
                        aria-current=[is_here.then_some("page")] {
                        @if thread.parent.is_some() {
                            span.fork title={ "Forked behind entry " (thread.fork_from_seq) } { "↳ " }
                        }
                        (label(thread))
                        @if active == Some(&thread.id) { " " span.badge { "active" } }
                    }
                    (branch(conversation, below, Some(&thread.id), depth + 1))
                }
            }
        }
    }
}

/// The threads that the session's turns were in, the active one, the one that is looked at, and what
/// these were forked from and into; where there is room, those that were only named. The newest first.
/// And whether that is all of them.
async fn of_session(
    app: &PageState,
    conversation: &ConversationContext,
) -> Result<(Vec<Thread>, bool), StoreError> {
    let store = app.manager.store();
    let runs = store
        .runs(RunFilter::Session(&conversation.session.id), None, RUNS)
        .await?;
    let active = conversation
        .session
        .thread
        .as_ref()
        .map(|thread| thread.id.clone());
    let mut waiting: Vec<ThreadId> = runs.into_iter().rev().map(|run| run.thread).collect();
    waiting.extend(active);
    waiting.extend(conversation.address.thread.clone());
    let mut known: BTreeMap<ThreadId, Thread> = BTreeMap::new();
    let mut are_all = true;
    while let Some(id) = waiting.pop() {
        if known.contains_key(&id) {
            continue;
        }
        if known.len() >= MAX_THREADS {
            are_all = false;
            break;
        }
        let thread = match store.thread(&id).await {
            Ok(thread) => thread,
            // It was removed.
            Err(StoreError::NoThread { .. }) => continue,
            Err(error) => return Err(error),
        };
        let forks = store.forks(&id).await?;
        let around = forks
            .into_iter()
            .map(|fork| fork.id)
            .chain(thread.parent.clone());
        for id in around {
            waiting.insert(0, id);
        }
        known.insert(id, thread);
    }
    let named = match known.len() < MAX_THREADS {
        true => empty_named_threads(store).await?,
        false => Vec::new(),
    };
    are_all &= known.len() < MAX_THREADS;
    for thread in named {
        if known.contains_key(&thread.id) {
            continue;
        }
        if known.len() >= MAX_THREADS {
            are_all = false;
            break;
        }
        known.insert(thread.id.clone(), thread);
    }
    let mut threads: Vec<Thread> = known.into_values().collect();
    threads.sort_by_key(|thread| std::cmp::Reverse((thread.created_at_ms, thread.id.clone())));
    Ok((threads, are_all))
}

/// The threads that somebody named and that nothing was said in, the newest first. A thread is of the
/// session that speaks in it, so these may be of any, but for those that one goes on with.
async fn empty_named_threads(store: &Store) -> Result<Vec<Thread>, StoreError> {
    let newest = store.thread_page(None, NEWEST).await?;
    let is_only_named = |thread: &Thread| {
        thread.last_turn == 0 && thread.parent.is_none() && !thread.label.is_empty()
    };
    let mut named = Vec::new();
    for thread in newest.into_iter().filter(is_only_named).take(MAX_NAMED) {
        if store.thread_sessions(&thread.id).await?.is_empty() {
            named.push(thread);
        }
    }
    Ok(named)
}

/// The sessions that were used last, and the one that is looked at, for the sidebar.
pub(crate) async fn sessions(app: &PageState, here: &ConversationAddress) -> Markup {
    let recent = app.manager.recent("", None, SESSIONS).await;
    let mut sessions: Vec<SessionView> = recent
        .unwrap_or_default()
        .into_iter()
        .map(|(session, _)| session)
        .collect();
    if !sessions.iter().any(|session| session.id == here.session)
        && let Ok(session) = app.manager.get(&here.session).await
    {
        sessions.push(session);
    }
    html! {
        nav.threads #other-sessions aria-label="Sessions" {
            h2 { "Sessions" }
            ul {
                @for session in &sessions {
                    @let name = session.name.as_deref().unwrap_or(&session.id);
                    li {
                        a id=(element_id("other-session", &session.id)) href={ "/sessions/" (segment(name)) } aria-current=[(session.id == here.session).then_some("true")] {
                            (clean(name))
                            @if session.state != SessionState::Idle {
                                " " span.badge.active {
                                    @if session.state == SessionState::Waiting { "ASKS" } @else { "ACTIVE" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
