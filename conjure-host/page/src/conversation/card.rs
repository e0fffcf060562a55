//! The card of a call: who runs it, with what, what it says, how it ended, what it made. And the
//! decision that it waits for.

use conjure_core::chat::ArtifactRef;
use conjure_core::foreign_text::clean;
use conjure_core::log::{CallEnd, NotRun};
use maud::{Markup, html};
use serde_json::Value;

use super::address::{ConversationAddress, SharedPictures, element_id};
use super::code;
use super::figures;
use super::model::{CallCard, CallProgress};
use super::render::is_image;

/// The most bytes of an output that a card shows at once.
pub(crate) const MAX_SHOWN_BYTES: usize = 8 * 1024;
/// The most bytes of what a call says while it runs that a card shows.
pub(crate) const MAX_LIVE_BYTES: usize = 64 * 1024;

/// The card.
pub(crate) fn call(address: &ConversationAddress, call: &CallCard) -> Markup {
    let id = element_id("call", &call.id);
    let asks = matches!(call.state, CallProgress::Asks { .. });
    html! {
        div.entry.call-entry id=(id) {
            details.call id={ (id) "-card" } open[asks] {
                summary id={ (id) "-summary" } {
                    (state(call))
                    span.name { (clean(&call.name)) }
                    span.brief { (main_argument(call)) }
                    span.by {
                        @if let Some(backend) = &call.backend { (clean(backend)) }
                        @if let Some(plugin) = &call.plugin { " · " (clean(plugin)) }
                        @if call.duration_ms > 0 { " · " (figures::duration(call.duration_ms)) }
                    }
                }
                (arguments(call, &id))
                (output(address, call, &id))
            }
            @if let (CallProgress::Asks { reason }, false) = (&call.state, address.is_shared()) { (decision(address, call, reason, &id)) }
            (files(address, &id, &call.files))
        }
    }
}

/// Badge with the state of a call, in a word or two.
fn state(call: &CallCard) -> Markup {
    let (class, words) = match &call.state {
        CallProgress::Announced => ("", "Waits"),
        CallProgress::Asks { .. } => ("warn", "Asks you"),
        CallProgress::Decided { allowed: true } => ("", "Allowed, waits for others"),
        CallProgress::Decided { allowed: false } => ("", "Denied"),
        CallProgress::Runs => ("active", "Runs"),
        CallProgress::Over(CallEnd::Done) if call.is_error => ("bad", "Failed"),
        CallProgress::Over(CallEnd::Done) => ("good", "Done"),
        CallProgress::Over(CallEnd::Failed) => ("bad", "Failed"),
        CallProgress::Over(CallEnd::Refused) => ("bad", "Not run"),
        CallProgress::Over(CallEnd::Cancelled) => ("", "Cancelled"),
        CallProgress::Over(CallEnd::TimedOut) => ("bad", "Timed out"),
        CallProgress::Over(CallEnd::Indeterminate) => ("warn", "Unknown"),
    };
    html! { span class={ "badge " (class) } { (words) } }
}

/// The first argument that says what is done, in one line.
fn main_argument(call: &CallCard) -> String {
    let Some(arguments) = call.arguments.as_object() else {
        return String::new();
    };
    let named = ["command", "path", "query", "url", "file"];
    let named = named.iter().find_map(|name| arguments.get(*name));
    let value = named.or_else(|| arguments.values().find(|value| value.is_string()));
    let text = value.and_then(Value::as_str).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    clean(line).chars().take(90).collect()
}

fn arguments(call: &CallCard, id: &str) -> Markup {
    let text = match &call.arguments_text {
        Some(text) => text.clone(),
        None if call.arguments.is_null() => return html! {},
        None => serde_json::to_string_pretty(&call.arguments).unwrap_or_default(),
    };
    let end = text.floor_char_boundary(MAX_SHOWN_BYTES);
    let (first, rest) = text.split_at(end);
    html! {
        figure.code {
            figcaption {
                span { "Arguments" }
                button.plain type="button" id={ (id) "-copy-arguments" } data-copy="" { "Copy" }
            }
            pre tabindex="0" { code { (code::highlight_html("json", &clean(first))) } }
        }
        @if !rest.is_empty() { p.muted { (figures::size(rest.len() as u64)) " more are not shown" } }
    }
}

fn output(address: &ConversationAddress, call: &CallCard, id: &str) -> Markup {
    let is_over = matches!(call.state, CallProgress::Over(_));
    let text = if is_over { &call.output } else { &call.live };
    let end = text.floor_char_boundary(if is_over {
        MAX_SHOWN_BYTES
    } else {
        MAX_LIVE_BYTES
    });
    let (first, rest) = text.split_at(end);
    html! {
        @if let Some(reason) = &call.reason { p.hint { (not_run_text(reason)) } }
        @if call.state == CallProgress::Over(CallEnd::Indeterminate) {
            p.hint { "It was started and its result was never seen. It is not run again by itself." }
        }
        figure.code hidden[first.is_empty() && is_over] {
            figcaption {
                span { @if is_over { "Result" } @else { "Output so far" } }
                button.plain type="button" id={ (id) "-copy" } data-copy="" { "Copy" }
            }
            pre.wrap.output id={ (id) "-live" } tabindex="0" { (clean(first)) }
        }
        @if !rest.is_empty() && address.is_shared() {
            details.rest id={ (id) "-rest" } {
                summary id={ (id) "-rest-show" } { "The other " (figures::size(rest.len() as u64)) }
                pre.wrap { (clean(rest)) }
            }
        } @else if !rest.is_empty() {
            p.muted {
                (figures::size(rest.len() as u64)) " more. "
                @if let Some(seq) = call.ended_seq {
                    a id={ (id) "-all" } href=(address.of_thread(&format!("output/{seq}"))) data-dialog="" { "Show all" }
                }
            }
        }
    }
}

/// Why a call was not run, and what to do.
fn not_run_text(reason: &NotRun) -> String {
    match reason {
        NotRun::NoSuchTool => "The session has no tool of this name.".to_owned(),
        NotRun::BadArguments => "The arguments do not fit the tool.".to_owned(),
        NotRun::Denied => "The session's policy denies it; Config has the rules.".to_owned(),
        NotRun::NobodyToAsk => "It asks, and nobody was there to decide.".to_owned(),
        NotRun::PersonRefused { said } if said.is_empty() => "You refused it.".to_owned(),
        NotRun::PersonRefused { said } => format!("You refused it: {}", clean(said)),
        NotRun::TurnEnded => "The turn ended first.".to_owned(),
        NotRun::SettingsChanged => "The settings changed first.".to_owned(),
        NotRun::ReplyCutShort => "The reply that asked for it was cut short.".to_owned(),
        NotRun::ReplyBrokeOff => "The reply that asked for it broke off.".to_owned(),
        NotRun::OverLimit { limit, value } => {
            format!("The limit {} of {value} is reached.", clean(limit))
        }
        NotRun::NotReady => "What it needs is not there, such as its plugin.".to_owned(),
        NotRun::Busy => "Too much was going on at once.".to_owned(),
        NotRun::HostEnded => "The host ended first.".to_owned(),
        NotRun::Other => String::new(),
    }
}

/// The decision that a call waits for. What is written says why not: it is in a form of its own,
/// where Enter refuses.
fn decision(address: &ConversationAddress, call: &CallCard, reason: &str, id: &str) -> Markup {
    let action = address.of_session(&format!("approvals/{}", crate::client::segment(&call.id)));
    html! {
        div.ask id={ (id) "-ask" } {
            p { strong { "May it run?" } " " span.muted { (clean(reason)) } }
            form.row method="post" action=(action) data-swap="" {
                button.primary id={ (id) "-allow" } name="decision" value="allow" { "Allow" }
                button id={ (id) "-allow-tool" } name="decision" value="allow-tool" { "Always allow this tool" }
            }
            form.row method="post" action=(action) data-swap="" {
                input type="hidden" name="decision" value="deny";
                button.danger id={ (id) "-deny" } { "Deny" }
                input.grow id={ (id) "-why" } name="reason" placeholder="Why not (the model reads it)" aria-label="Why not" autocomplete="off";
            }
        }
    }
}

/// Files of the element with the id `of`, each with what it is; pictures are shown.
pub(crate) fn files(address: &ConversationAddress, of: &str, files: &[ArtifactRef]) -> Markup {
    if let Some(pictures) = &address.shared {
        return shared_files(pictures, files);
    }
    html! {
        @if !files.is_empty() {
            ul.files {
                @for (at, file) in files.iter().enumerate() {
                    @let url = address.file(&file.id);
                    @let name = clean(&file.name);
                    li {
                        @if is_image(file) {
                            a href=(url) { img src=(url) alt=(name) loading="lazy"; }
                        }
                        a href=(url) download=(name) { (name) }
                        span.muted {
                            (clean(&file.media_type))
                            @if let Some(bytes) = file.size { ", " (figures::size(bytes)) }
                        }
                        @if is_text(file) {
                            a id={ (of) "-preview-" (at) } href=(address.of_thread(&format!("file/{}", crate::client::segment(&file.id)))) data-dialog="" { "Preview" }
                        }
                    }
                }
            }
        }
    }
}

/// The files of a call in a file that is shared: its pictures, and the names of the rest.
fn shared_files(pictures: &SharedPictures, files: &[ArtifactRef]) -> Markup {
    html! {
        @if !files.is_empty() {
            ul.files {
                @for file in files {
                    @let name = clean(&file.name);
                    li {
                        @if let Some(picture) = pictures.get(&file.id) { img src=(picture) alt=(name); }
                        span { (name) }
                        span.muted {
                            (clean(&file.media_type))
                            @if let Some(bytes) = file.size { ", " (figures::size(bytes)) }
                            @if !pictures.contains_key(&file.id) { ", not in this file" }
                        }
                    }
                }
            }
        }
    }
}

/// Whether a file can be previewed as text.
fn is_text(file: &ArtifactRef) -> bool {
    let kind = file.media_type.as_str();
    kind.starts_with("text/")
        || ["json", "xml", "yaml", "toml", "javascript", "x-sh"]
            .iter()
            .any(|known| kind.contains(known))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn address() -> ConversationAddress {
        ConversationAddress {
            session: "s".to_owned(),
            name: "s".to_owned(),
            thread: None,
            shared: None,
        }
    }

    #[test]
    fn a_card_says_who_ran_what_and_shows_hostile_text_as_text() {
        let mut one = CallCard::new(
            "c\"1",
            "bash<script>",
            json!({ "command": "ls </pre><script>" }),
        );
        one.backend = Some("local".to_owned());
        one.plugin = Some("backend-local 0.1.0".to_owned());
        one.output = "</pre><img src=x onerror=alert(1)>".to_owned();
        one.state = CallProgress::Over(CallEnd::Failed);
        one.duration_ms = 1_200;
        let shown = call(&address(), &one).into_string();
        for part in ["local", "backend-local 0.1.0", "1.2 s", "Failed"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("<script>"), "{shown}");
        assert!(!shown.contains("<img"), "{shown}");
    }

    #[test]
    fn a_call_that_asks_has_a_form_and_a_long_output_a_link() {
        let mut one = CallCard::new("c1", "bash", json!({}));
        one.state = CallProgress::Asks {
            reason: "ask bash".to_owned(),
        };
        let shown = call(&address(), &one).into_string();
        assert!(shown.contains("/sessions/s/approvals/c1"), "{shown}");
        // What says why not is sent with nothing that allows.
        let forms: Vec<&str> = shown.split("<form").collect();
        let why: Vec<&&str> = forms.iter().filter(|form| form.contains("-why")).collect();
        assert_eq!(why.len(), 1, "{shown}");
        assert!(!why.iter().any(|form| form.contains("allow")), "{shown}");
        assert!(why.iter().all(|form| form.contains("deny")), "{shown}");
        one.state = CallProgress::Over(CallEnd::Done);
        one.output = "é".repeat(MAX_SHOWN_BYTES);
        one.ended_seq = Some(7);
        let shown = call(&address(), &one).into_string();
        assert!(shown.contains("output/7"), "{shown}");
    }
}
