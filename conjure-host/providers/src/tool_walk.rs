//! The provider `tool-walk`: calls every tool once, with arguments made from its schema.
//!
//! To try a set of plugins without a key. Thinks nothing: the arguments fit the schema, and whether
//! they make sense is the tool's affair. The same tools give the same calls.

mod arguments;

use std::collections::BTreeSet;

use conjure_core::chat::{
    Content, FunctionCall, FunctionCallOutput, Message, Part, Response, Role, Stop, StopReason,
    StreamEvent,
};
use conjure_core::request::ModelRequest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{Provider, ProviderError, ReplySink};

/// The name of the provider.
pub(crate) const NAME: &str = "tool-walk";

/// Calls in one reply; what is left follows in the next.
const CALLS_PER_REPLY: usize = 16;

/// The provider `tool-walk`.
#[derive(Debug, Default)]
pub struct ToolWalk;

impl Provider for ToolWalk {
    fn name(&self) -> &str {
        NAME
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        let response = answer(request);
        for part in &response.parts {
            match &part.content {
                Content::Text { text } => sink.push(StreamEvent::Content {
                    delta: text.clone(),
                }),
                Content::FunctionCall(call) => {
                    sink.push(StreamEvent::CallStarted {
                        call_id: call.call_id.clone(),
                        name: call.name.clone(),
                    });
                    sink.push(StreamEvent::Call {
                        call_id: call.call_id.clone(),
                    });
                }
                _ => {}
            }
        }
        std::future::ready(Ok(response)).boxed()
    }

    fn notice(&self) -> Option<String> {
        Some(
            "No model answers: the provider `tool-walk` calls every tool once, with arguments made \
             from its schema."
                .to_owned(),
        )
    }
}

/// The calls that are left since the person spoke; a report when none is.
fn answer(request: &ModelRequest) -> Response {
    let messages = request.messages.messages();
    let spoke = messages.iter().rposition(|message| {
        message.role == Role::User && !message.content.iter().any(|part| result_of(part).is_some())
    });
    let turn = messages.get(spoke.unwrap_or(0)..).unwrap_or_default();
    let calls: Vec<&FunctionCall> = turn.iter().flat_map(Message::calls).collect();
    let called: BTreeSet<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    let made = messages.iter().flat_map(Message::calls).count();
    let parts: Vec<Part> = request
        .tools
        .iter()
        .filter(|tool| !called.contains(tool.name.as_str()))
        .take(CALLS_PER_REPLY)
        .zip(made + 1..)
        .map(|(tool, number)| {
            Content::FunctionCall(FunctionCall {
                call_id: format!("walk_{number}"),
                name: tool.name.clone(),
                arguments: arguments::generate(&tool.input_schema),
                arguments_text: None,
            })
            .into()
        })
        .collect();
    let (parts, reason, raw) = if parts.is_empty() {
        let text = report(&calls, turn);
        (vec![Part::text(text)], StopReason::EndTurn, "end_turn")
    } else {
        (parts, StopReason::ToolUse, "tool_use")
    };
    Response {
        model: request.model.clone(),
        parts,
        stop: Some(Stop {
            reason,
            raw: raw.to_owned(),
            sequence: None,
        }),
        complete: true,
        ..Response::default()
    }
}

/// Report of the calls: how many worked, and what the others said.
fn report(calls: &[&FunctionCall], turn: &[Message]) -> String {
    if calls.is_empty() {
        return "There are no tools.".to_owned();
    }
    let results: Vec<&FunctionCallOutput> = turn
        .iter()
        .flat_map(|message| &message.content)
        .filter_map(result_of)
        .collect();
    let mut lines = Vec::new();
    let mut worked = 0;
    for call in calls {
        let result = results.iter().find(|result| result.call_id == call.call_id);
        match result {
            Some(result) if !result.is_error => {
                worked += 1;
                lines.push(format!("- {}: ok", call.name));
            }
            Some(result) => {
                let said = result.joined_text();
                lines.push(format!("- {}: failed: {}", call.name, summary_line(&said)));
            }
            None => lines.push(format!("- {}: no result", call.name)),
        }
    }
    format!(
        "{worked} of {} tools gave a result that is no error.\n{}",
        calls.len(),
        lines.join("\n")
    )
}

/// The line of a failure that says most: the first one that is no heading, such as `[stderr]`.
fn summary_line(said: &str) -> &str {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_heading = |line: &&str| line.starts_with('[') && line.ends_with(']');
    let words = lines().find(|line| !is_heading(line));
    words.or_else(|| lines().next()).unwrap_or_default()
}

fn result_of(part: &Part) -> Option<&FunctionCallOutput> {
    match &part.content {
        Content::FunctionCallOutput(output) => Some(output),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::repair::RepairTarget;
    use conjure_core::request::ToolDefinition;
    use serde_json::json;

    use super::*;

    fn asked(messages: Vec<Message>, tools: usize) -> Response {
        let mut request = ModelRequest::bare(&RepairTarget::new(NAME, "walk"), messages);
        request.tools = (0..tools)
            .map(|number| ToolDefinition {
                name: format!("tool_{number}"),
                description: String::new(),
                input_schema: json!({"type": "object"}),
            })
            .collect();
        answer(&request)
    }

    /// The conversation after the calls of a reply, every second of which fails.
    fn after(mut messages: Vec<Message>, reply: Response) -> Vec<Message> {
        let results = reply.parts.iter().filter_map(Part::as_call).enumerate();
        let results = results
            .map(|(number, call)| {
                let failed = number % 2 == 1;
                let text = if failed { "broken\nmore" } else { "fine" };
                let output = FunctionCallOutput::text(&call.call_id, text, failed);
                Content::FunctionCallOutput(output).into()
            })
            .collect();
        messages.push(Message::new(Role::Assistant, reply.parts));
        messages.push(Message::new(Role::Tool, results));
        messages
    }

    #[test]
    fn every_tool_is_called_once_a_turn_and_then_there_is_a_report() {
        let mut messages = vec![Message::user("Go.")];
        for turn in 1..=2 {
            let mut names = Vec::new();
            loop {
                let reply = asked(messages.clone(), 20);
                let calls = reply.parts.iter().filter_map(Part::as_call);
                let before = names.len();
                names.extend(calls.map(|call| call.name.clone()));
                if names.len() == before {
                    let text = reply.parts[0].as_text().unwrap().to_owned();
                    assert!(text.starts_with("10 of 20 tools gave a result"), "{text}");
                    assert!(text.contains("- tool_1: failed: broken\n"), "{text}");
                    messages.push(Message::assistant(text));
                    messages.push(Message::user("Again."));
                    break;
                }
                assert!(names.len() - before <= CALLS_PER_REPLY);
                messages = after(messages, reply);
            }
            let all: Vec<String> = (0..20).map(|number| format!("tool_{number}")).collect();
            assert_eq!(names, all, "turn {turn}");
        }
        let mut ids: Vec<&str> = messages
            .iter()
            .flat_map(Message::calls)
            .map(|call| call.call_id.as_str())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 40);
    }

    #[test]
    fn a_failure_is_told_by_its_words_and_not_by_a_heading() {
        let said = "\n[stderr]\nsh: 1: nothing: not found\n[exit code 127]\n";
        assert_eq!(summary_line(said), "sh: 1: nothing: not found");
        assert_eq!(summary_line("[exit code 1]\n"), "[exit code 1]");
        assert_eq!(summary_line(" \n"), "");
    }

    #[test]
    fn without_tools_it_says_so() {
        let reply = asked(vec![Message::user("Go.")], 0);
        assert_eq!(reply.parts, [Part::text("There are no tools.")]);
    }
}
