//! The head of a conversation: its name with a pencil, new chat and clear, configuration, and the
//! strip of figures.

use conjure_core::chat::Usage;
use conjure_core::foreign_text::clean;
use conjure_store::{Run, RunFilter, StoreError};
use maud::{Markup, html};

use super::context::ConversationContext;
use super::figures;
use super::threads::label;
use crate::PageState;

/// Over how many of the newest turns averages roll.
const ROLLING: u64 = 10;

/// All of it but the strip.
pub(crate) fn head(conversation: &ConversationContext) -> Markup {
    let address = &conversation.address;
    html! {
        header.talk {
            div.title {
                p.crumb { a href=(address.of_session("")) { (clean(&address.name)) } }
                (title(conversation))
            }
            div.row {
                div.split {
                    form method="post" action=(address.of_session("threads/new")) data-swap="" {
                        button #new-chat data-key="g n" { "Start New Chat" }
                    }
                    details.menu #chat-menu {
                        summary.button #chat-more aria-label="More about this chat" { "▾" }
                        div {
                            @if address.thread.is_some() {
                                a.button #find-in-chat href=(address.of_thread("find")) data-dialog="" data-key="g f" { "Find in this chat…" }
                                a.button #summarise-chat href=(address.of_thread("summarise")) data-dialog="" { "Summarise older messages…" }
                                a.button #clear-chat href=(address.of_thread("clear")) data-dialog="" { "Clear Current Chat…" }
                                button #fork-chat form="fork-form" name="at" value="" { "Fork this chat" }
                                a.button #replay-chat href=(address.of_thread("replay")) { "Replay" }
                                @if let Some(thread) = &address.thread {
                                    a.button #export-chat href={ "/api/v1/threads/" (thread) "/export" } download={ (thread) ".jsonl" } { "Export" }
                                    a.button #share-chat href={ "/api/v1/threads/" (thread) "/export/html" } download="" { "Save as HTML" }
                                }
                            }
                            a.button #import-chat href=(address.of_session("import")) data-dialog="" { "Import…" }
                        }
                    }
                }
                a.button #config href=(address.of_session("config")) data-dialog="" { "Config" }
                a.button #routes href=(address.of_session("routes")) { "Routes" }
            }
        }
    }
}

/// The thread's name, which is changed where it stands.
pub(crate) fn title(conversation: &ConversationContext) -> Markup {
    let Some(thread) = &conversation.thread else {
        return html! { div.label #label { h1 { "No chat" } } };
    };
    html! {
        div.label #label {
            div.row #label-shown {
                h1 #thread-label { (label(thread)) }
                button.plain #rename type="button" data-toggle="label-shown rename-form" aria-label="Rename" title="Rename" { "✎" }
            }
            form #rename-form hidden method="post" action=(conversation.address.of_thread("rename"))
                data-swap="" data-escape="label-shown rename-form" {
                input #rename-label name="label" value=(thread.label) maxlength="200" required aria-label="Name of this chat" autocomplete="off";
            }
        }
    }
}

/// The strip. `running` is what the turn that runs took so far, which its run says at its end.
pub(crate) async fn strip(
    app: &PageState,
    conversation: &ConversationContext,
    running: Option<Usage>,
) -> Result<Markup, StoreError> {
    let session = &conversation.session;
    let runs = match &conversation.address.thread {
        Some(thread) => {
            let store = app.manager.store();
            // What waits has spent nothing, and is no turn yet.
            store
                .runs(RunFilter::Started(thread), None, ROLLING)
                .await?
        }
        None => Vec::new(),
    };
    let latest = runs.iter().rev().max_by_key(|run| run.started_at_ms);
    let latest = running.or_else(|| latest.map(|run| run.spent.usage));
    let (tokens, wall) = rolling(&runs);
    let totals = conversation.thread.as_ref().map(|thread| thread.totals);
    let latency = totals.and_then(|totals| totals.latency_ms.checked_div(totals.replies));
    Ok(html! {
        dl.strip #strip tabindex="0" aria-label="Figures" {
            div { dt { "Provider" } dd #strip-provider { (clean(&session.auth.provider)) } }
            div { dt { "Model" } dd #strip-model { (clean(&session.model)) } }
            div { dt { "Auth" } dd #strip-auth { (clean(&session.auth.name)) } }
            div { dt { "Average latency" } dd #strip-latency { @match latency { Some(ms) => (figures::duration(ms)), None => "–" } } }
            div { dt { "Turn" } dd #strip-turn { @match latest { Some(usage) => (figures::tokens(&usage)), None => "–" } } }
            div title={ "Of the newest " (ROLLING) " turns" } {
                dt { "Rolling" }
                dd #strip-rolling { @match tokens { Some(tokens) => { (figures::count(tokens)) " a turn" }, None => "–" } @if let Some(wall) = wall { ", " (figures::duration(wall)) } }
            }
            div { dt { "Chat" } dd #strip-total { @match totals { Some(totals) => (figures::tokens(&totals.usage)), None => "–" } } }
        }
    })
}

/// Tokens and time of a turn that is over, on average.
fn rolling(runs: &[Run]) -> (Option<u64>, Option<u64>) {
    let over: Vec<&Run> = runs.iter().filter(|run| run.state.is_over()).collect();
    let count = u64::try_from(over.len()).unwrap_or(u64::MAX);
    let tokens: u64 = over.iter().map(|run| run.spent.usage.total()).sum();
    let wall = |run: &&Run| {
        let took = run.ended_at_ms? - run.started_at_ms?;
        u64::try_from(took).ok()
    };
    let wall: u64 = over.iter().filter_map(wall).sum();
    (tokens.checked_div(count), wall.checked_div(count))
}
