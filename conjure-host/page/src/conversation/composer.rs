//! Where the person writes, what waits to be said, and how it is with the turn.

use conjure_core::foreign_text::clean;
use conjure_store::Run;
use maud::{Markup, html};

use super::address::element_id;
use super::context::{ConversationContext, OpenRuns};
use crate::client::segment;

/// The most characters of a follow-up that are shown while it waits.
const MAX_FOLLOW_UP_CHARS: usize = 300;

/// All of it. `follows`: the page is told what comes of its forms. One that is not, since it shows
/// older entries, is led to the newest by each of them.
pub(crate) fn composer(
    conversation: &ConversationContext,
    runs: &OpenRuns,
    follows: bool,
) -> Markup {
    let address = &conversation.address;
    let thread = address.thread.as_ref().map(ToString::to_string);
    let thread = thread.unwrap_or_default();
    let is_new = conversation
        .thread
        .as_ref()
        .is_none_or(|thread| thread.last_turn == 0);
    html! {
        div.composer {
            (queue(conversation, runs, follows))
            (state(conversation, runs, false, follows))
            form #composer method="post" action=(address.of_session("say")) data-swap="reset" {
                input type="hidden" name="thread" value=(thread);
                (form_id())
                @if !follows { input type="hidden" name="elsewhere" value="on"; }
                div.attached #attached data-clear="" {}
                label.button.plain for="attach" title="Attach files; they can be dropped or pasted too" {
                    span aria-hidden="true" { "+" } span.unseen { "Attach files" }
                }
                input.unseen #attach type="file" multiple data-attach="/attachments";
                textarea #message name="text" rows="1" autofocus[is_new] data-enter="" data-key="/" data-draft={ "draft-" (thread) }
                    placeholder="Say something" aria-label="Message" enterkeyhint="send" {}
                button.primary #send { "Send" }
            }
            button.plain #to-end type="button" data-end="" { "↓ To the end" }
        }
    }
}

/// What tells a message that is sent again, since its answer was lost, from another one.
pub(crate) fn form_id() -> Markup {
    html! { input #message-form type="hidden" name="form" value=(uuid::Uuid::now_v7()); }
}

/// Whether a turn runs, and what can be done about it. `waits`: it waits for the person.
pub(crate) fn state(
    conversation: &ConversationContext,
    runs: &OpenRuns,
    waits: bool,
    follows: bool,
) -> Markup {
    let address = &conversation.address;
    let swap = follows.then_some("");
    let here = address.thread.as_ref();
    html! {
        div.turn-state #turn-state {
            @match &runs.running {
                Some(run) => {
                    @if Some(&run.thread) == here {
                        span.pulse aria-hidden="true" {}
                        span { @if waits { "Waits for you" } @else { "Works" } }
                    } @else {
                        span { "A turn runs in " a href=(address.with_thread(&run.thread)) { "another chat" } " of this session" }
                    }
                    form method="post" action=(address.of_session("stop")) data-swap=[swap] {
                        input type="hidden" name="turn" value=(run.id);
                        button #stop { "Stop" }
                    }
                }
                None => {
                    @if !conversation.is_active() && here.is_some() {
                        span.muted { "The session goes on in another chat. What you say here makes this one the active one." }
                    }
                    @if conversation.thread.as_ref().is_some_and(|thread| thread.last_turn > 0) {
                        form method="post" action=(address.of_session("say")) data-swap=[swap] {
                            input type="hidden" name="thread" value=(here.map(ToString::to_string).unwrap_or_default());
                            input type="hidden" name="go_on" value="on";
                            button.plain #go-on title="The model goes on with nothing new said" { "Go on" }
                        }
                    }
                }
            }
        }
    }
}

/// The follow-ups that wait.
pub(crate) fn queue(conversation: &ConversationContext, runs: &OpenRuns, follows: bool) -> Markup {
    html! {
        ol.queue #queue aria-label="Follow-ups that wait" {
            @for run in &runs.queued { (follow_up(conversation, run, follows)) }
        }
    }
}

fn follow_up(conversation: &ConversationContext, run: &Run, follows: bool) -> Markup {
    let said = run.message.as_ref().map(conjure_core::chat::Message::text);
    let said = said.unwrap_or_else(|| "Go on".to_owned());
    let mut short: String = clean(&said).chars().take(MAX_FOLLOW_UP_CHARS).collect();
    if short.len() < said.len() {
        short.push('…');
    }
    let at = conversation
        .address
        .of_session(&format!("queue/{}", segment(&run.id)));
    let id = element_id("queued", &run.id);
    html! {
        li id=(id) {
            span.said { (short) }
            a.button.plain id={ (id) "-edit" } href=(at) data-dialog="" { "Edit" }
            form method="post" action={ (at) "/remove" } data-swap=[follows.then_some("")] {
                button.plain id={ (id) "-remove" } { "Remove" }
            }
        }
    }
}
