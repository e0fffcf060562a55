//! `conjure session waiting | approve | deny | answer | cancel`: what waits for a person in a
//! session, and what is said to it from outside of the turn.

use std::collections::BTreeMap;

use conjure_core::context::quoted_word;
use conjure_core::turn::ApprovalDecision;
use conjure_runtime::manager::{Approval, DecisionScope, PendingQuestion};
use conjure_skill_sdk::protocol::Elicited;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET, clean, clean_line, line, print_note};
use super::person::parse_value;
use super::sessions::{AnswerResult, SavedSessions};

/// A call that a person decides about.
#[derive(clap::Args)]
pub(crate) struct Approve {
    /// The session: its name or its id
    session: String,
    /// The call; needed where several wait
    #[arg(value_name = "CALL")]
    call: Option<String>,
    /// Every call of this tool in the session, from now on
    #[arg(long)]
    always: bool,
}

/// A call that a person does not allow.
#[derive(clap::Args)]
pub(crate) struct Deny {
    #[command(flatten)]
    decided: Approve,
    /// Why, for the model
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,
}

/// An answer to a question of a plugin or a server.
#[derive(clap::Args)]
pub(crate) struct AnswerArgs {
    /// The session: its name or its id
    session: String,
    /// What is filled in
    #[arg(value_name = "FIELD=VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// The question; needed where several wait
    #[arg(long, value_name = "ID")]
    question: Option<String>,
    /// You do not want to
    #[arg(long, conflicts_with = "fields")]
    decline: bool,
}

/// What is ended.
#[derive(clap::Args)]
pub(crate) struct CancelArgs {
    /// The session: its name or its id
    session: String,
    /// What waits behind the turn never begins either
    #[arg(long)]
    queued: bool,
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write FIELD=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// How a person decides about a call from another terminal.
pub(super) fn how_to_decide(session: &str, call: &str) -> String {
    let (session, call) = (word(session), word(call));
    format!("`conjure session approve {session} {call}`, or `deny` in place of `approve`")
}

/// How a person answers a question from another terminal.
pub(super) fn how_to_answer(session: &str, question: &str) -> String {
    let (session, question) = (word(session), word(question));
    format!("`conjure session answer {session} --question {question} FIELD=VALUE`, or `--decline`")
}

/// How long something waits.
pub(super) fn remaining(milliseconds: u64) -> String {
    match milliseconds.div_ceil(1000) {
        seconds @ 0..=119 => format!("in {seconds} s"),
        seconds => format!("in {} min", seconds.div_ceil(60)),
    }
}

/// A word of a command line, which holds nothing that a terminal obeys.
fn word(text: &str) -> String {
    quoted_word(&clean(text))
}

pub(crate) async fn list(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
) -> Result<Exit, CliError> {
    let id = sessions.manager().get(session).await?.id;
    let calls = sessions.approvals(&id).await?;
    let questions = sessions.questions(&id).await?;
    if global.json {
        output::json(&json!({ "calls": calls, "questions": questions }));
        return Ok(Exit::Success);
    }
    if calls.is_empty() && questions.is_empty() {
        print_note("Nothing waits for a person in it.");
    }
    print(session, &calls, &questions);
    Ok(Exit::Success)
}

/// Prints what waits, with how to answer it.
fn print(session: &str, calls: &[Approval], questions: &[PendingQuestion]) {
    for Approval {
        call,
        reason,
        denied_in_ms,
    } in calls
    {
        line(format_args!(
            "{BOLD}{}{RESET} wants to run ({}){}",
            clean_line(&call.name),
            clean_line(reason),
            denied_in_ms.map_or_else(String::new, |left| format!(
                "; it is denied {}",
                remaining(left)
            )),
        ));
        let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
        line(clean(&arguments));
        line(format_args!("  {}", how_to_decide(session, &call.id)));
    }
    for question in questions {
        line(format_args!(
            "{BOLD}{}{RESET} asks: {}; it is cancelled {}",
            clean_line(&question.question.plugin),
            clean_line(&question.question.message),
            remaining(question.cancelled_in_ms),
        ));
        for (name, field) in fields(question) {
            let about = field.get("description").and_then(Value::as_str);
            line(format_args!(
                "  {}: {}",
                clean_line(name),
                clean_line(about.unwrap_or_default())
            ));
        }
        if let Some(url) = &question.question.url {
            line(format_args!("  Open {}", clean_line(url)));
        }
        line(format_args!(
            "  {}",
            how_to_answer(session, &question.question.id)
        ));
    }
}

fn fields(question: &PendingQuestion) -> impl Iterator<Item = (&String, &Value)> {
    let schema = question.question.schema.as_ref();
    let fields = schema.and_then(|schema| schema.get("properties")?.as_object());
    fields.into_iter().flatten()
}

pub(crate) async fn approve(
    global: &Global,
    sessions: &SavedSessions,
    args: Approve,
) -> Result<Exit, CliError> {
    decide(global, sessions, args, ApprovalDecision::Allow).await
}

pub(crate) async fn deny(
    global: &Global,
    sessions: &SavedSessions,
    args: Deny,
) -> Result<Exit, CliError> {
    let reason = args.because.unwrap_or_default();
    decide(
        global,
        sessions,
        args.decided,
        ApprovalDecision::Deny { reason },
    )
    .await
}

async fn decide(
    global: &Global,
    sessions: &SavedSessions,
    args: Approve,
    decision: ApprovalDecision,
) -> Result<Exit, CliError> {
    let id = sessions.manager().get(&args.session).await?.id;
    let waiting = sessions.approvals(&id).await?;
    let meant: Vec<&Approval> = waiting
        .iter()
        .filter(|waiting| {
            args.call
                .as_ref()
                .is_none_or(|call| waiting.call.id == *call)
        })
        .collect();
    let call = match meant.as_slice() {
        [only] => &only.call,
        [] => {
            return Err(CliError::usage(match &args.call {
                Some(call) => format!("no call `{}` waits for a person in it", clean(call)),
                None => "no call waits for a person in it".to_owned(),
            }));
        }
        _ => {
            print(&args.session, &waiting, &[]);
            return Err(CliError::usage("several calls wait").hint("name one of them"));
        }
    };
    let scope = if args.always {
        DecisionScope::Tool
    } else {
        DecisionScope::Once
    };
    let word = match &decision {
        ApprovalDecision::Allow => "allow",
        ApprovalDecision::Deny { .. } => "deny",
    };
    if !sessions.decide(&id, &call.id, decision, scope).await? {
        return Err(CliError::usage("somebody else has decided about it"));
    }
    if global.json {
        output::json(&json!({ "call": call.id, "name": call.name, "decision": word }));
    } else {
        print_note(match word {
            "allow" => format!("{} runs.", clean(&call.name)),
            _ => format!("{} is not run.", clean(&call.name)),
        });
    }
    Ok(Exit::Success)
}

pub(crate) async fn answer(
    global: &Global,
    sessions: &SavedSessions,
    args: AnswerArgs,
) -> Result<Exit, CliError> {
    let id = sessions.manager().get(&args.session).await?.id;
    let waiting = sessions.questions(&id).await?;
    let meant: Vec<&PendingQuestion> = waiting
        .iter()
        .filter(|waiting| {
            args.question
                .as_ref()
                .is_none_or(|id| waiting.question.id == *id)
        })
        .collect();
    let question = match meant.as_slice() {
        [only] => *only,
        [] => return Err(CliError::usage("no such question waits for a person in it")),
        _ => {
            print(&args.session, &[], &waiting);
            return Err(
                CliError::usage("several questions wait").hint("name one with `--question ID`")
            );
        }
    };
    if args.fields.is_empty() && !args.decline && fields(question).next().is_some() {
        print(&args.session, &[], &waiting);
        return Err(CliError::usage("it asks for fields")
            .hint("fill it in with FIELD=VALUE, or say `--decline`"));
    }
    let known: BTreeMap<&String, &Value> = fields(question).collect();
    let content = args.fields.into_iter().map(|(name, text)| {
        let value = known.get(&name).map(|field| parse_value(&text, field));
        let value = value.unwrap_or_else(|| text.into());
        (name, value)
    });
    let answer = Elicited {
        action: if args.decline { "decline" } else { "accept" }.to_owned(),
        content: content.collect(),
    };
    match sessions.answer(&id, &question.question.id, &answer).await? {
        AnswerResult::Accepted => {}
        AnswerResult::Late => return Err(CliError::usage("somebody else has answered it")),
        AnswerResult::Invalid(error) => return Err(error),
    }
    if global.json {
        output::json(&json!({ "question": question.question.id, "action": answer.action }));
    } else {
        print_note("It is answered.");
    }
    Ok(Exit::Success)
}

pub(crate) async fn cancel(
    global: &Global,
    sessions: &SavedSessions,
    args: &CancelArgs,
) -> Result<Exit, CliError> {
    let view = sessions.manager().get(&args.session).await?;
    match &view.turn {
        // The one that is meant and told about: another may have begun by now.
        Some(turn) if !args.queued => sessions.cancel_turn(&view.id, turn).await?,
        // Also where no turn runs: a summary may be on its way.
        _ => sessions.cancel(&view.id, args.queued).await?,
    }
    let Some(turn) = view.turn else {
        if global.json {
            output::json(&json!({ "turn": null }));
        } else if args.queued && view.queued > 0 {
            print_note("Nothing runs in it; what waited never begins.");
        } else {
            print_note("No turn runs in it.");
        }
        return Ok(Exit::Success);
    };
    let run = sessions.wait(&turn).await?;
    if global.json {
        output::json(&json!({ "turn": run.id, "state": run.state.as_str() }));
    } else {
        print_note(format_args!(
            "The turn is {}; what came so far is kept.",
            run.state.as_str().replace('_', " ")
        ));
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted() {
        assert_eq!(word("work"), "work");
        assert_eq!(word("my work"), "'my work'");
        assert_eq!(word("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_time_is_said_in_words() {
        assert_eq!(remaining(599_000), "in 10 min");
        assert_eq!(remaining(61_500), "in 62 s");
    }
}
