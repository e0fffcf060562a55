//! Pieces of the conversation as HTML: articles, notices, ends of turns.

use conjure_core::chat::{ArtifactRef, Meta, Usage};
use conjure_core::foreign_text::clean;
use conjure_core::log::{TableChange, TurnOutcome};
use maud::{Markup, html};
use serde_json::Value;

use super::address::{ConversationAddress, thought_id};
use super::card;
use super::figures;
use super::folds;
use super::markdown;
use super::model::{ConversationItem, ItemContent, ModelMessage};
use crate::timestamps;

/// The most bytes of what a person said that are shown at once.
const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// Items in a part of the conversation.
const CHUNK: usize = 12;

/// All of these, in their order.
pub(crate) fn items(address: &ConversationAddress, items: &[ConversationItem]) -> Markup {
    html! { @for one in items { (item(address, one)) } }
}

/// Like [`items`], in parts that are small enough to be put away while nobody sees them.
pub(crate) fn chunks(address: &ConversationAddress, all: &[ConversationItem]) -> Markup {
    html! {
        @for some in all.chunks(CHUNK) { div.chunk data-chunk="" { (items(address, some)) } }
    }
}

fn item(address: &ConversationAddress, item: &ConversationItem) -> Markup {
    let seq = item.seq;
    match &item.content {
        ItemContent::Person { text, files } => html! {
            article.entry.person id={ "e" (seq) } {
                (speaker_header("You", seq, item.at_ms))
                (message_text(text, seq))
                (card::files(address, &format!("e{seq}"), files))
                @if !address.is_shared() { footer.tools {
                    a.button.plain id={ "edit-" (seq) } href=(address.of_thread(&format!("edit/{seq}"))) data-dialog="" { "Edit and fork" }
                    (tools(address, seq))
                } }
            }
        },
        ItemContent::Host(text) => html! {
            article.entry.host id={ "e" (seq) } {
                details id={ "host-" (seq) } { summary id={ "host-" (seq) "-summary" } { "Conjure told the model" } (message_text(text, seq)) }
            }
        },
        ItemContent::Model(message) => model(address, seq, item.at_ms, message),
        ItemContent::Call(call) => card::call(address, call),
        ItemContent::File(file) => html! {
            div.entry.loose id={ "e" (seq) } { (card::files(address, &format!("e{seq}"), std::slice::from_ref(file))) }
        },
        ItemContent::Notice(text) => notice(text),
        ItemContent::Settings(summary) => html! {
            div.entry.mark id={ "e" (seq) } { p { "Settings: " (clean(summary)) } }
        },
        ItemContent::Tools(change) => table_change(seq, change),
        ItemContent::Compacted {
            summary,
            is_standing,
        } => html! {
            div.entry.mark id={ "e" (seq) } {
                details id={ "folded-" (seq) } {
                    summary id={ "folded-" (seq) "-show" } { "What is above is summarised for the model from here on" }
                    div.text { (markdown::render(summary)) }
                }
                (folds::take_back_form(address, seq, *is_standing))
            }
        },
        ItemContent::Unfolded => html! {
            div.entry.mark id={ "e" (seq) } { p { "The summary was taken back; the model reads again what it hid" } }
        },
        ItemContent::End {
            outcome,
            usage,
            stop_reason,
        } => end(address, seq, outcome, usage, stop_reason.as_deref()),
    }
}

/// What an entry says, as text.
fn message_text(text: &str, seq: u64) -> Markup {
    let text = clean(text);
    let end = text.floor_char_boundary(MAX_MESSAGE_BYTES);
    let (first, rest) = text.split_at(end);
    html! {
        div.text.said { (first) }
        @if !rest.is_empty() {
            details id={ "rest-" (seq) } {
                summary id={ "rest-" (seq) "-show" } { "The other " (figures::size(rest.len() as u64)) }
                div.text.said { (rest) }
            }
        }
    }
}

fn model(address: &ConversationAddress, seq: u64, at_ms: i64, message: &ModelMessage) -> Markup {
    let meta = &message.meta;
    html! {
        article.entry.model id={ "e" (seq) } {
            @if !message.reasoning.trim().is_empty() {
                (reasoning(&thought(seq, message), &message.reasoning, false))
            }
            (speaker_header(&name_of(meta), seq, at_ms))
            div.text { (markdown::render(&message.text)) }
            @for (at, item) in message.server_items.iter().enumerate() { (server_item(item, seq, at)) }
            (card::files(address, &format!("e{seq}"), &message.files))
            @if meta.superseded {
                p.muted { "This reply was begun again with other settings; the model does not read it." }
            } @else if meta.partial {
                p.muted { "This is what had come when the reply ended." }
            }
            footer.tools {
                (tools(address, seq))
                @if !address.is_shared() {
                    button.plain type="button" id={ "copy-" (seq) } data-copy="" aria-label={ "Copy entry " (seq) } { "Copy" }
                }
                span.figures { (figures_of(meta)) }
            }
        }
    }
}

fn thought(seq: u64, message: &ModelMessage) -> String {
    match &message.reply {
        Some((turn, reply)) => thought_id(turn, *reply),
        None => format!("r{seq}"),
    }
}

/// Name of the model that answered, or `Model` where that is not known.
pub(crate) fn name_of(meta: &Meta) -> String {
    match meta.model.is_empty() {
        true => "Model".to_owned(),
        false => clean(&meta.model).into_owned(),
    }
}

fn figures_of(meta: &Meta) -> Markup {
    let is_known = meta.usage != Usage::default();
    html! {
        @if is_known { (figures::tokens(&meta.usage)) }
        @if meta.latency_ms > 0 {
            @if is_known { ", " }
            (figures::duration(meta.latency_ms))
        }
    }
}

/// Header of an article: the speaker's name, with a link to the entry.
fn speaker_header(name: &str, seq: u64, at_ms: i64) -> Markup {
    html! {
        header.who {
            strong { (name) }
            a.seq href={ "#e" (seq) } title=(timestamps::timestamp_text(at_ms)) aria-label={ "Entry " (seq) } { "#" (seq) }
        }
    }
}

fn tools(address: &ConversationAddress, seq: u64) -> Markup {
    html! {
        @if !address.is_shared() { button.plain id={ "fork-" (seq) } form="fork-form" name="at" value=(seq) { "Fork from here" } }
    }
}

/// What the model thought, folded.
pub(crate) fn reasoning(id: &str, text: &str, runs: bool) -> Markup {
    html! {
        details.reasoning id=(id) {
            summary id={ (id) "-summary" } { @if runs { "Thinking…" } @else { "Thoughts" } }
            div.text.said id={ (id) "-text" } { (clean(text)) }
        }
    }
}

/// What ran at the provider, the first in an entry being 0.
fn server_item(item: &Value, seq: u64, at: usize) -> Markup {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("item");
    let text = serde_json::to_string_pretty(item).unwrap_or_default();
    let end = text.floor_char_boundary(card::MAX_SHOWN_BYTES);
    let (first, _) = text.split_at(end);
    html! {
        details.call id={ "hosted-" (seq) "-" (at) } {
            summary id={ "hosted-" (seq) "-" (at) "-show" } { span.name { (clean(kind)) } span.muted { "at the provider" } }
            pre.wrap { (clean(first)) }
        }
    }
}

/// Something that a person should know.
pub(crate) fn notice(text: &str) -> Markup {
    html! { div.entry.notice role="note" { p { (clean(text)) } } }
}

/// A turn that nobody runs any more and that is not closed.
pub(crate) fn abandoned_notice() -> Markup {
    notice(
        "The host ended in the middle of this turn. What had come is kept. Say something, or “Go on”.",
    )
}

/// Something that failed, with what to do in its words.
pub(crate) fn error(kind: &str, text: &str) -> Markup {
    html! {
        div.entry.error role="alert" {
            p { strong { "The turn failed" } " (" (clean(kind)) ")" }
            p { (clean(text)) }
        }
    }
}

fn table_change(seq: u64, change: &TableChange) -> Markup {
    let some = |names: &[String]| {
        let first: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
        let more = names.len().saturating_sub(first.len());
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        clean(&format!("{}{more}", first.join(", "))).into_owned()
    };
    html! {
        div.entry.mark id={ "e" (seq) } {
            p {
                "Tools changed."
                @if !change.added.is_empty() { " New: " (some(&change.added)) "." }
                @if !change.removed.is_empty() { " Gone: " (some(&change.removed)) "." }
                @if !change.changed.is_empty() { " Changed: " (some(&change.changed)) "." }
            }
        }
    }
}

fn end(
    address: &ConversationAddress,
    seq: u64,
    outcome: &TurnOutcome,
    usage: &Usage,
    stop_reason: Option<&str>,
) -> Markup {
    html! {
        @match outcome {
            TurnOutcome::Failed { error: text, kind } => (error(kind, text)),
            TurnOutcome::Limit { limit, value } => {
                div.entry.error role="note" {
                    p { "The limit " code { (clean(limit)) } " of " (value) " ended the turn. Say “go on” to let it continue, or change the limit in Config." }
                }
            }
            TurnOutcome::CutShort => {
                div.entry.error role="note" {
                    p { "The provider cut the answer short"
                        @if let Some(reason) = stop_reason { " (" (clean(reason)) ")" } "." }
                }
            }
            TurnOutcome::Cancelled => (notice("Stopped. What had come is kept.")),
            TurnOutcome::Interrupted => (notice("The host ended in the middle of this turn. What had come is kept; nothing was repeated.")),
            TurnOutcome::Completed => {}
        }
        div.turn-end id={ "e" (seq) } {
            span { "Turn: " (figures::tokens(usage)) }
            @if usage.cache_read > 0 { span { (figures::count(usage.cache_read)) " from the cache" } }
            (tools(address, seq))
        }
    }
}

/// Images and other files that were said or made, for `card.rs` and the articles.
pub(crate) fn is_image(file: &ArtifactRef) -> bool {
    // No SVG: it can say more than a picture.
    let kinds = [
        "image/png",
        "image/jpeg",
        "image/gif",
        "image/webp",
        "image/avif",
    ];
    kinds.contains(&file.media_type.as_str())
}
