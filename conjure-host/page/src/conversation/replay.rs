//! A chat that is run again from its own record: no model is asked and no tool runs. Says step by step
//! what would be sent, which is not compared as the record has no requests, and where calls would go
//! now, which is; and how the chat would be said to another model.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use conjure_core::foreign_text::clean;
use conjure_core::numerals::count;
use conjure_core::replay::{OtherWireReport, Unreplayed};
use conjure_runtime::replay::OtherModel;
use maud::{Markup, html};
use serde::Deserialize;

use super::context::{ConversationContext, PAGE};
use super::replay_rooms::{ReplayKey, ReplayRoomError};
use super::replay_steps::{ReplayedChat, ReplayedStep, StepOutcome};
use super::threads::label;
use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::held_tools::held_mark;
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::saved::{FormProblem, ProviderInfo, invalid, invalid_at, items};

/// The most MiB of requests that are in memory for a replay.
const MAX_MEBIBYTES: u64 = 64;
/// The most things of a list beside the steps.
const MAX_LISTED: usize = 20;

/// What is asked of a replay.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplayQuery {
    provider: String,
    model: String,
    /// Only what differs is shown.
    only: Option<String>,
    /// The entry that the steps begin with.
    from: u64,
}

impl ReplayQuery {
    /// The model that the chat is said to in place of its own.
    fn other_model(&self) -> Result<Option<OtherModel>, ApiProblem> {
        match (self.provider.trim(), self.model.trim()) {
            ("", "") => Ok(None),
            ("", _) => Err(invalid_at("provider", "choose the provider of that model")),
            (_, "") => Err(invalid_at("model", "name a model of that provider")),
            (provider, model) => Ok(Some(OtherModel {
                provider: provider.to_owned(),
                model: model.to_owned(),
            })),
        }
    }

    fn shows(&self, step: &ReplayedStep) -> bool {
        step.seq >= self.from && (self.only.is_none() || step.outcome.may_differ())
    }

    /// Query of the same replay from another entry on.
    fn query_from(&self, seq: u64) -> String {
        let only = if self.only.is_some() { "&only=on" } else { "" };
        format!(
            "?provider={}&model={}{only}&from={seq}",
            segment(&self.provider),
            segment(&self.model)
        )
    }
}

pub(crate) async fn show(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    Query(asked): Query<ReplayQuery>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let thread = conversation.thread()?;
    let providers: Vec<ProviderInfo> = items(&app.api, "/api/v1/providers").await?;
    let replayed = match asked.other_model() {
        Ok(to) => replay(&app, &conversation, to).await,
        Err(problem) => Err(problem),
    };
    let title = format!("Replay of {}", label(thread));
    let chat = conversation.address.with_thread(&thread.id);
    let body = html! {
        header."row spread" {
            h1 { (title) }
            a.button #replay-back href=(chat) { "To the chat" }
        }
        p.muted {
            "The chat is run again from its own record: no model is asked, no tool runs, and nothing is written. "
            "Each step says what would be sent and where calls would go now. Where the calls went and what was "
            "written is compared with the record. The record has no bytes of requests, so these are shown and not compared."
        }
        (form(&conversation.address.of_thread("replay"), &asked, &providers, replayed.as_ref().err()))
        @if let Ok(replayed) = &replayed { (results(&chat, &asked, replayed)) }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Sessions, &title),
        &body,
    ))
}

/// Replays a chat with the settings that its session has now, or takes what that found a moment ago.
async fn replay(
    app: &PageState,
    conversation: &ConversationContext,
    to: Option<OtherModel>,
) -> Result<Arc<ReplayedChat>, ApiProblem> {
    let wrong = |error: &dyn std::fmt::Display| {
        invalid(format!(
            "The chat is not replayed: {}",
            clean(&error.to_string())
        ))
    };
    let in_room = |error: ReplayRoomError| wrong(&error);
    let Some(thread) = &conversation.thread else {
        return Err(invalid("the session has no chat"));
    };
    let (host, rooms) = (app.manager.host().clone(), &app.replays);
    let held = app.held_tools.list().await;
    let key = ReplayKey {
        session: conversation.session.id.clone(),
        thread: thread.id.clone(),
        last_seq: thread.last_seq,
        settings: conversation.session.updated_at_ms,
        generation: *host.registry().subscribe().borrow(),
        held: held.as_deref().map_or(0, held_mark),
        to: to.clone(),
    };
    if let Some(kept) = rooms.cached(&key) {
        return Ok(kept);
    }
    let spec = app.manager.spec(&conversation.session.id).await;
    let spec = spec.map_err(|error| wrong(&error))?;
    let (opener, thread) = (host.clone(), thread.id.clone());
    let opening = async move {
        let preparing = opener.prepare_replay(spec, &thread, to.as_ref(), MAX_MEBIBYTES);
        Box::pin(preparing).await
    };
    let prepared = rooms.open(opening).await.map_err(in_room)?;
    let prepared = prepared.map_err(|error| wrong(&error))?;
    let replaying = async move {
        let replayed = Box::pin(host.replay(prepared)).await;
        // All requests of a long chat are large also to look through and to let go.
        tokio::task::spawn_blocking(move || replayed.map(ReplayedChat::of)).await
    };
    let replayed = rooms.replay(replaying).await.map_err(in_room)?;
    let replayed = replayed.map_err(|error| wrong(&error))?;
    let replayed = Arc::new(replayed.map_err(|error| wrong(&error))?);
    rooms.insert(key, &replayed);
    Ok(replayed)
}

fn form(
    at: &str,
    asked: &ReplayQuery,
    providers: &[ProviderInfo],
    problem: Option<&ApiProblem>,
) -> Markup {
    let wrong = FormProblem::of(problem, &["provider", "model"]);
    let mut choices = vec![(String::new(), "As it was".to_owned())];
    let names = providers.iter().map(|known| known.name.clone());
    choices.extend(names.map(|name| (name.clone(), name)));
    if !choices.iter().any(|(name, _)| *name == asked.provider) {
        let name = asked.provider.clone();
        choices.push((name.clone(), clean(&name).into_owned()));
    }
    html! {
        (form_error(wrong.general()))
        form #replay-form method="get" action=(at) aria-label="Another model" {
            div.columns {
                (Field::new("replay-provider", "provider", "Provider").error(wrong.for_field("provider"))
                    .select(&asked.provider, &choices))
                (Field::new("replay-model", "model", "Model").error(wrong.for_field("model"))
                    .hint("With another provider: its model, for which all requests are encoded.")
                    .input("text", &asked.model))
            }
            (Field::new("replay-only", "only", "Only steps that are not as they were")
                .checkbox(asked.only.is_some()))
            div.row { button.primary #replay-go { "Replay" } }
        }
    }
}

/// What was found, below the form.
fn results(chat: &str, asked: &ReplayQuery, replayed: &ReplayedChat) -> Markup {
    let shown: Vec<&ReplayedStep> = replayed
        .steps
        .iter()
        .filter(|step| asked.shows(step))
        .collect();
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let rest = shown.get(most..).unwrap_or_default();
    html! {
        p #replay-summary role="status" { (summary(replayed)) }
        @if let Some(elsewhere) = &replayed.other_wire { (other_wire_section(elsewhere)) }
        @if !replayed.unreplayed.is_empty() { (unreplayed_section(chat, &replayed.unreplayed)) }
        @if !replayed.notes.is_empty() {
            section aria-labelledby="replay-notes" {
                h2 #replay-notes { "What the record does not hold" }
                ul { @for note in replayed.notes.iter().take(MAX_LISTED) { li.break { (clean(note)) } } }
                (further(replayed.notes.len()))
            }
        }
        section aria-labelledby="replay-steps-title" {
            h2 #replay-steps-title { "Step by step" }
            @if shown.is_empty() {
                p.empty { "There is no such step." }
            } @else {
                section.scroll tabindex="0" aria-label="Steps" {
                    table.table #replay-steps {
                        thead { tr {
                            th scope="col" { "Entry" } th.number scope="col" { "Turn" }
                            th scope="col" { "Now" } th scope="col" { "What" }
                        } }
                        tbody { @for step in shown.iter().take(most) { (row(chat, step)) } }
                    }
                }
            }
            @if let Some(next) = rest.first() {
                p.more.row {
                    a.button #replay-later href={ (chat) "/replay" (asked.query_from(next.seq)) } { "Later steps" }
                    span.muted #replay-rest { (count(rest.len() as u64, "step")) " more" }
                }
            }
        }
    }
}

/// All of it in a sentence.
fn summary(replayed: &ReplayedChat) -> String {
    let replayed_parts = format!(
        "{}, {} and {} replayed",
        count(replayed.entries as u64, "entry"),
        count(replayed.requests as u64, "request"),
        count(replayed.calls as u64, "call")
    );
    let differ = replayed.count_of(StepOutcome::Differs);
    let unsendable = replayed.count_of(StepOutcome::Unsendable);
    let places = replayed.unreplayed.len();
    let mut found = Vec::new();
    if differ > 0 {
        found.push(format!("{} otherwise", count(differ as u64, "step")));
    }
    if unsendable > 0 {
        found.push(format!(
            "{} would not be sent",
            count(unsendable as u64, "request")
        ));
    }
    if places > 0 {
        found.push(format!(
            "{} could not be replayed",
            count(places as u64, "place")
        ));
    }
    match found.is_empty() {
        true => format!("{replayed_parts}: nothing is otherwise."),
        false => format!("{replayed_parts}: {}.", found.join(", ")),
    }
}

fn other_wire_section(elsewhere: &OtherWireReport) -> Markup {
    let problems = elsewhere.problems_in_all;
    html! {
        section aria-labelledby="replay-elsewhere" {
            h2 #replay-elsewhere { "Said to " (clean(&elsewhere.provider)) "/" (clean(&elsewhere.model)) }
            p {
                (count(elsewhere.requests as u64, "request")) " encoded over " (elsewhere.wire) ": "
                @if problems == 0 { "all of them could be sent." }
                @else { (count(problems as u64, "problem")) ", named at the steps below." }
            }
            @if !elsewhere.left_out.is_empty() {
                p { "Tools that it would not be offered:" }
                ul #replay-left-out {
                    @for tool in elsewhere.left_out.iter().take(MAX_LISTED) { li.break { (clean(tool)) } }
                }
                (further(elsewhere.left_out.len()))
            }
        }
    }
}

fn unreplayed_section(chat: &str, places: &[Unreplayed]) -> Markup {
    html! {
        section aria-labelledby="replay-unreplayed" {
            h2 #replay-unreplayed { "Not replayed" }
            ul {
                @for place in places.iter().take(MAX_LISTED) {
                    li.break {
                        "From entry " (entry(chat, place.step)) " to the end of turn " (place.turn) ": " (clean(&place.reason))
                    }
                }
            }
            (further(places.len()))
        }
    }
}

/// How many of a list are not shown.
fn further(all: usize) -> Markup {
    let more = all.saturating_sub(MAX_LISTED);
    html! { @if more > 0 { p.muted { "and " (more) " more" } } }
}

/// Leads to an entry of the chat.
fn entry(chat: &str, seq: u64) -> Markup {
    html! { a href={ (chat) "?at=" (seq) "#e" (seq) } { "#" (seq) } }
}

fn row(chat: &str, step: &ReplayedStep) -> Markup {
    html! {
        tr id={ "replay-step-" (step.seq) } {
            th scope="row" { (entry(chat, step.seq)) }
            td.number { (step.turn) }
            td {
                @match step.outcome {
                    StepOutcome::Same => span.badge.good { "as it was" },
                    StepOutcome::NotCompared => span.badge { "not compared" },
                    StepOutcome::Differs => span.badge.bad { "otherwise" },
                    StepOutcome::Unsendable => span.badge.bad { "would not be sent" },
                    StepOutcome::NotReplayed => span.badge.warn { "not replayed" },
                }
            }
            td { @for line in &step.lines { p.said { (line) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(seq: u64, outcome: StepOutcome) -> ReplayedStep {
        ReplayedStep {
            seq,
            turn: 1,
            outcome,
            lines: vec!["<b>sent</b>".to_owned()],
        }
    }

    fn replayed(steps: Vec<ReplayedStep>) -> ReplayedChat {
        ReplayedChat {
            entries: 300,
            requests: steps.len(),
            calls: 0,
            steps,
            notes: Vec::new(),
            unreplayed: Vec::new(),
            other_wire: None,
        }
    }

    #[test]
    fn a_page_of_steps_is_shown_with_how_many_follow() {
        let all = (1..=100).map(|seq| step(seq, StepOutcome::Same)).collect();
        let chat = "/sessions/s/threads/t";
        let replayed = replayed(all);
        let shown = results(chat, &ReplayQuery::default(), &replayed).into_string();
        assert_eq!(shown.matches("<tr id=").count(), 60, "{shown}");
        assert!(shown.contains("40 steps more"), "{shown}");
        assert!(shown.contains("&amp;from=61\""), "{shown}");
        assert!(shown.contains("&lt;b&gt;sent"), "{shown}");
        assert!(shown.contains("href=\"/sessions/s/threads/t?at=1#e1\""));
        let last = ReplayQuery {
            from: 61,
            ..ReplayQuery::default()
        };
        let shown = results(chat, &last, &replayed).into_string();
        assert_eq!(shown.matches("<tr id=").count(), 40, "{shown}");
        assert!(!shown.contains("replay-later"), "{shown}");
    }

    #[test]
    fn what_differs_is_counted_and_can_be_shown_alone() {
        let replayed = replayed(vec![
            step(1, StepOutcome::Same),
            step(2, StepOutcome::Differs),
            step(3, StepOutcome::Unsendable),
            step(4, StepOutcome::NotCompared),
        ]);
        assert_eq!(
            summary(&replayed),
            "300 entries, 4 requests and 0 calls replayed: 1 step otherwise, 1 request would not be sent."
        );
        let only = ReplayQuery {
            only: Some("on".to_owned()),
            ..ReplayQuery::default()
        };
        let shown = results("/c", &only, &replayed).into_string();
        assert!(!shown.contains("replay-step-1\""), "{shown}");
        assert!(!shown.contains("replay-step-4\""), "{shown}");
        assert!(shown.contains("replay-step-2\"") && shown.contains("replay-step-3\""));
    }

    #[test]
    fn another_model_is_a_provider_with_a_model_of_its_own() {
        let asked = |provider: &str, model: &str| ReplayQuery {
            provider: provider.to_owned(),
            model: model.to_owned(),
            ..ReplayQuery::default()
        };
        assert_eq!(asked("", " ").other_model(), Ok(None));
        let chosen = asked("openai", "gpt-5").other_model().unwrap().unwrap();
        assert_eq!(chosen.provider, "openai");
        assert_eq!(chosen.model, "gpt-5");
        for (given, field) in [(asked("openai", ""), "model"), (asked("", "x"), "provider")] {
            let problem = given.other_model().unwrap_err();
            assert_eq!(problem.field(), Some(field));
            let shown = form("/replay", &given, &[], Some(&problem)).into_string();
            assert!(shown.contains("aria-invalid=\"true\""), "{shown}");
        }
    }
}
