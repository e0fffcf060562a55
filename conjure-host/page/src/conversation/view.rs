//! The views of a conversation: a whole page, and a page of earlier entries.

use axum::extract::{Path, Query, State};
use axum::response::Response;
use conjure_core::log::Entry;
use maud::{Markup, html};
use serde::Deserialize;

use super::composer;
use super::context::{self, ConversationContext, EntryWindow};
use super::folds;
use super::head;
use super::model::{self, ConversationItem};
use super::render;
use super::threads;
use crate::PageState;
use crate::failure::PageFailure;
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::respond::{Swap, piece, pieces};

/// How many entries are shown behind one that is looked for.
const CONTEXT_ENTRIES: u64 = context::PAGE / 2;

/// Query of a view: the entries that it shows.
#[derive(Deserialize)]
pub(crate) struct EntryPageQuery {
    /// Number of an entry: those before it are shown.
    before: Option<u64>,
    /// Number of an entry: those around it are shown.
    at: Option<u64>,
}

pub(crate) async fn session(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    full_page(&app, &request, &conversation, None).await
}

pub(crate) async fn thread(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    Query(which): Query<EntryPageQuery>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    if request.pieces
        && let Some(before) = which.before
    {
        let entries = context::page(
            app.manager.store(),
            &conversation.thread()?.id,
            Some(before),
        )
        .await?;
        let settled = items(&app, &conversation, entries.settled()).await?;
        let settled = render::chunks(&conversation.address, &settled);
        let earlier = html! { (older(&conversation, &entries)) (settled) };
        return Ok(pieces(piece(Swap::Outer, "older", &earlier)));
    }
    let before = match (which.before, which.at) {
        (None, Some(at)) => page_around_entry(&app, &conversation, at).await?,
        (before, _) => before,
    };
    full_page(&app, &request, &conversation, before).await
}

/// Where the page ends that shows an entry; nothing where that is the newest page, which goes on with
/// what happens.
async fn page_around_entry(
    app: &PageState,
    conversation: &ConversationContext,
    at: u64,
) -> Result<Option<u64>, PageFailure> {
    let thread = conversation.thread()?;
    let before = at.saturating_add(CONTEXT_ENTRIES);
    let before = Some(before).filter(|before| *before <= thread.last_seq);
    let page = context::page(app.manager.store(), &thread.id, before).await?;
    let is_shown = page.entries.iter().any(|entry| entry.seq == at);
    // A page begins with a turn where it can: of one that is long, and another behind it, it would
    // show the other.
    // What was cleared is on no page.
    let is_left_out = !is_shown && at > thread.cleared_upto && at <= thread.last_seq;
    Ok(if is_left_out {
        Some(at.saturating_add(1))
    } else {
        before
    })
}

async fn full_page(
    app: &PageState,
    request: &PageRequest,
    conversation: &ConversationContext,
    before: Option<u64>,
) -> Result<Response, PageFailure> {
    let address = &conversation.address;
    let entries = match &address.thread {
        Some(thread) => context::page(app.manager.store(), thread, before).await?,
        None => EntryWindow {
            entries: Vec::new(),
            has_earlier: false,
            open: 0,
        },
    };
    let later = match (before, &conversation.thread) {
        (Some(before), Some(thread)) => {
            context::page_end_after(app.manager.store(), thread, before).await?
        }
        _ => None,
    };
    let runs = conversation.open_runs(app).await?;
    let is_dead = !entries.unsettled().is_empty() && !conversation.runs_here(app).await?;
    let live = match is_dead {
        true => model::abandoned_items(entries.unsettled()),
        false => items(app, conversation, entries.unsettled()).await?,
    };
    let settled = items(app, conversation, entries.settled()).await?;
    let is_newest = before.is_none();
    let follows = is_newest && address.thread.is_some();
    let cleared = conversation
        .thread
        .as_ref()
        .map(|thread| thread.cleared_upto);
    let cleared = cleared.unwrap_or_default();
    let stream = follows.then(|| address.of_thread(&format!("live?cleared={cleared}")));
    let body = html! {
        (head::head(conversation))
        (head::strip(app, conversation, None).await?)
        div.conversation #conversation data-follow=[is_newest.then_some("")] data-stream=[stream] data-seen=(entries.last_settled()) {
            div #entries {
                (older(conversation, &entries))
                (render::chunks(address, &settled))
                @if entries.entries.is_empty() { (empty(conversation)) }
            }
            @if is_newest {
                div #live {
                    (render::items(address, &live))
                    div #live-items {}
                    @if is_dead { (render::abandoned_notice()) }
                }
            } @else {
                (newer(conversation, later))
            }
        }
        form #fork-form method="post" action=(address.of_thread("fork")) data-swap="" {}
        (composer::composer(conversation, &runs, is_newest))
    };
    let mut view = PageFrame::new(Nav::Sessions, &address.name);
    view.class = "talk";
    view.keys = &[
        ("g n", "Start a new chat"),
        ("g f", "Find in this chat"),
        ("Enter", "Send"),
        ("Shift+Enter", "A new line"),
    ];
    let tree = threads::tree(app, conversation).await?;
    view.side = Some(html! { (threads::sessions(app, address).await) (tree.markup) });
    Ok(layout(request, &view, &body))
}

fn thread_of(conversation: &ConversationContext) -> String {
    let thread = conversation.address.thread.as_ref();
    thread.map(ToString::to_string).unwrap_or_default()
}

fn empty(conversation: &ConversationContext) -> Markup {
    html! {
        div.empty #empty {
            @if conversation.thread.is_some() {
                p { "Nothing was said here yet." }
                p.muted { "It works in " code { (conversation.session.working_dir.display()) } "." }
            } @else {
                p { "The session has no chat. Start a new one." }
            }
        }
    }
}

/// What these entries show.
async fn items(
    app: &PageState,
    conversation: &ConversationContext,
    entries: &[Entry],
) -> Result<Vec<ConversationItem>, PageFailure> {
    let mut items = model::items(entries);
    if let Some(thread) = &conversation.address.thread {
        folds::mark_standing(&app.api, thread, &mut items).await?;
    }
    Ok(items)
}

/// What leads to the entries behind those that are shown: those before `later`, where these are not the
/// newest.
fn newer(conversation: &ConversationContext, later: Option<u64>) -> Markup {
    let newest = conversation
        .address
        .of_session(&format!("threads/{}", thread_of(conversation)));
    html! {
        p.row {
            @if let Some(later) = later { a #later href={ (newest) "?before=" (later) } { "Later entries" } }
            a #newest href=(newest) { "The newest entries" }
        }
    }
}

/// What leads to the entries before these.
fn older(conversation: &ConversationContext, entries: &EntryWindow) -> Markup {
    let first = entries.entries.first().filter(|_| entries.has_earlier);
    html! {
        @if let Some(first) = first {
            @let url = conversation.address.of_session(&format!("threads/{}?before={}", thread_of(conversation), first.seq));
            p #older data-fetch=(url) { a href=(url) { "Earlier entries" } }
        }
    }
}
