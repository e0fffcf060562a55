//! From a snapshot of the other application's canonical chat to entries.
//!
//! A user's message begins a turn, and turns are counted from 1. There, a message of the model
//! carries the calls that came before its text: here they are a message of their own, with their
//! results behind it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use conjure_core::chat::{
    Content, FunctionCall, FunctionCallOutput, Message, Meta, Part, Role, Usage,
};
use conjure_core::log::{CallEnd, EntryBody, TurnOutcome};
use serde_json::{Map, Value as Json};

use super::report::{Left, LeftOut};

#[cfg(test)]
mod tests;

/// Name of the backend under which imported calls are recorded.
const BACKEND: &str = "the-maestro";
/// Text for the model in place of a result that is not known.
const NO_OUTPUT: &str = "The result of this call was not kept by the application that this \
                         conversation was brought from. Check what it did before you call it again.";

/// An entry that is to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    /// Counted from 1; 0 before the first.
    pub(super) turn: u64,
    /// The message of the snapshot that it comes from, counted from 0.
    pub(super) message: usize,
    pub(super) body: EntryBody,
}

/// The entries of a snapshot. `persona` is what the session's persona says, `used` holds ids of
/// calls that are taken.
pub(super) fn drafts(
    chat: &Json,
    persona: &str,
    used: BTreeSet<String>,
    left_out: &mut LeftOut,
) -> Vec<Draft> {
    let mut reader = ChatReader {
        drafts: Vec::new(),
        turn: 0,
        open: None,
        usage: Usage::default(),
        persona,
        used_call_ids: used,
        history: CallHistory::of(chat),
        left_out,
    };
    let timelines = ["events", "threads"].iter().filter(|name| {
        let timeline = chat.get(**name);
        timeline.is_some_and(|timeline| match timeline {
            Json::Array(events) => !events.is_empty(),
            Json::Object(threads) => !threads.is_empty(),
            _ => false,
        })
    });
    let timelines = timelines.count() as u64;
    reader.left_out.add(Left::Timelines, timelines);
    let none = Vec::new();
    let messages = chat.get("messages").and_then(Json::as_array);
    let messages = messages.unwrap_or(&none);
    let mut index = 0;
    while let Some(message) = messages.get(index) {
        let behind = messages.get(index + 1..).unwrap_or_default();
        let results = behind.iter();
        let results = results.take_while(|next| role(next) == Some(Role::Tool));
        let results: Vec<&Json> = results.collect();
        index += reader.message(index, message, &results);
    }
    reader.end(messages.len().saturating_sub(1));
    let unplaced = reader.history.calls.len() as u64;
    reader.left_out.add(Left::UnplacedCalls, unplaced);
    reader.drafts
}

/// Calls and results beside the messages, by the ids of calls.
#[derive(Default)]
struct CallHistory {
    calls: BTreeMap<String, Json>,
    outputs: BTreeMap<String, Json>,
}

impl CallHistory {
    fn of(chat: &Json) -> Self {
        let mut history = Self::default();
        for round in list(chat, "tool_history") {
            for call in list(round, "calls") {
                if let Some(id) = nonempty_text(call, "id") {
                    history.calls.insert(id.to_owned(), call.clone());
                }
            }
            for output in list(round, "outputs") {
                if let (Some(id), Some(said)) = (nonempty_text(output, "id"), output.get("output"))
                {
                    history.outputs.insert(id.to_owned(), said.clone());
                }
            }
        }
        history
    }
}

struct ChatReader<'a> {
    drafts: Vec<Draft>,
    turn: u64,
    /// The open turn's id, and whether the model has answered in it.
    open: Option<(String, bool)>,
    usage: Usage,
    persona: &'a str,
    used_call_ids: BTreeSet<String>,
    history: CallHistory,
    left_out: &'a mut LeftOut,
}

impl ChatReader<'_> {
    /// Takes a message with the results behind it; how many messages these are.
    fn message(&mut self, index: usize, message: &Json, results: &[&Json]) -> usize {
        let Some(role) = role(message) else {
            self.left_out.count(Left::MalformedMessages);
            return 1;
        };
        let parts = self.parts(message);
        match role {
            Role::User => {
                if parts.is_empty() {
                    self.left_out.count(Left::EmptyMessages);
                } else {
                    self.end(index.saturating_sub(1));
                    self.begin(index);
                    self.push_message(index, Message::new(role, parts));
                }
                1
            }
            Role::System => {
                let said = Message::new(role, parts);
                if said.content.is_empty() {
                    self.left_out.count(Left::EmptyMessages);
                } else if said.text().trim() == self.persona.trim() {
                    self.left_out.count(Left::PersonaMessages);
                } else {
                    self.push_message(index, said);
                }
                1
            }
            Role::Tool => {
                self.left_out.count(Left::OutputsWithoutCall);
                1
            }
            Role::Assistant => {
                if self.open.is_none() {
                    self.begin(index);
                }
                let more = results.len();
                self.answer(index, message, parts, results);
                1 + more
            }
        }
    }

    fn answer(&mut self, index: usize, message: &Json, parts: Vec<Part>, results: &[&Json]) {
        let meta = message.get("_meta").and_then(Json::as_object).map(meta);
        let mut outputs: BTreeMap<&str, VecDeque<Json>> = BTreeMap::new();
        for result in results {
            if let Some(id) = nonempty_text(result, "tool_call_id") {
                let said = Json::String(self.text(result));
                outputs.entry(id).or_default().push_back(said);
            } else {
                self.left_out.count(Left::OutputsWithoutCall);
            }
        }
        let mut calls: Vec<(String, Json)> = Vec::new();
        for call in list(message, "tool_calls") {
            let id = nonempty_text(call, "id").unwrap_or_default().to_owned();
            calls.push((id, call.clone()));
        }
        let told: BTreeSet<String> = calls.iter().map(|(id, _)| id.clone()).collect();
        for id in &told {
            self.history.calls.remove(id);
        }
        for id in outputs.keys().filter(|id| !told.contains(**id)) {
            if let Some(call) = self.history.calls.remove(*id) {
                calls.push(((*id).to_owned(), call));
            }
        }
        let mut asked = Vec::new();
        let mut ended = Vec::new();
        for (id, call) in calls {
            let Some(call) = self.call(index, &id, &call) else {
                self.left_out.count(Left::MalformedMessages);
                continue;
            };
            let output = outputs.get_mut(id.as_str()).and_then(VecDeque::pop_front);
            let output = output.or_else(|| self.history.outputs.remove(&id));
            if output.is_none() {
                self.left_out.count(Left::CallsWithoutOutput);
            }
            ended.push((call.call_id.clone(), output));
            asked.push(Part::from(Content::FunctionCall(call)));
        }
        let orphans: usize = outputs.values().map(VecDeque::len).sum();
        self.left_out.add(Left::OutputsWithoutCall, orphans as u64);
        if asked.is_empty() && parts.is_empty() {
            self.left_out.count(Left::EmptyMessages);
            return;
        }
        if let Some(meta) = &meta {
            self.usage += meta.usage;
        }
        // What the reply cost is told once.
        let with_meta = |content: Vec<Part>, meta: Option<Meta>| Message {
            meta,
            ..Message::new(Role::Assistant, content)
        };
        if asked.is_empty() {
            self.push_message(index, with_meta(parts, meta));
        } else {
            let alone = parts.is_empty();
            self.push_message(index, with_meta(asked, meta.clone().filter(|_| alone)));
            self.results(index, ended);
            if !alone {
                self.push_message(index, with_meta(parts, meta));
            }
        }
        if let Some((_, answered)) = &mut self.open {
            *answered = true;
        }
    }

    fn results(&mut self, index: usize, ended: Vec<(String, Option<Json>)>) {
        for (call_id, output) in ended {
            self.draft(
                index,
                EntryBody::CallStarted {
                    call_id: call_id.clone(),
                    backend: BACKEND.to_owned(),
                    plugin: None,
                },
            );
            let (output, end) = match output {
                Some(said) => {
                    let (text, failed) = tool_output(&said);
                    let end = if failed {
                        CallEnd::Failed
                    } else {
                        CallEnd::Done
                    };
                    (FunctionCallOutput::text(call_id, text, failed), end)
                }
                None => (
                    FunctionCallOutput::text(call_id, NO_OUTPUT, true),
                    CallEnd::Indeterminate,
                ),
            };
            self.draft(
                index,
                EntryBody::CallEnded {
                    output,
                    end,
                    reason: None,
                    duration_ms: 0,
                    meta: None,
                },
            );
        }
    }

    /// A call, with an id that no other has.
    fn call(&mut self, index: usize, id: &str, call: &Json) -> Option<FunctionCall> {
        let inner = call.get("function").unwrap_or(call);
        let name = nonempty_text(inner, "name").or_else(|| nonempty_text(call, "name"))?;
        let (arguments, arguments_text) = match inner.get("arguments") {
            None | Some(Json::Null) => (Json::Object(Map::new()), None),
            Some(object @ Json::Object(_)) => (object.clone(), None),
            Some(Json::String(text)) if text.trim().is_empty() => (Json::Object(Map::new()), None),
            Some(Json::String(text)) => match serde_json::from_str(text) {
                Ok(object @ Json::Object(_)) => (object, None),
                _ => (Json::Object(Map::new()), Some(text.clone())),
            },
            Some(other) => (Json::Object(Map::new()), Some(other.to_string())),
        };
        let base = match id {
            "" => format!("call-{index}"),
            id => id.to_owned(),
        };
        let mut call_id = base.clone();
        let mut next = 2;
        while !self.used_call_ids.insert(call_id.clone()) {
            call_id = format!("{base}-{next}");
            next += 1;
        }
        Some(FunctionCall {
            call_id,
            name: name.to_owned(),
            arguments,
            arguments_text,
        })
    }

    /// The text parts of a message that say something.
    fn parts(&mut self, message: &Json) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut push = |text: &str| {
            if !text.trim().is_empty() {
                parts.push(Part::text(text));
            }
        };
        match message.get("content") {
            None | Some(Json::Null) => {}
            Some(Json::String(text)) => push(text),
            Some(Json::Array(list)) => {
                for part in list {
                    match part.as_str().or_else(|| part.get("text")?.as_str()) {
                        Some(text) => push(text),
                        None => self.left_out.count(Left::Parts),
                    }
                }
            }
            Some(_) => self.left_out.count(Left::Parts),
        }
        parts
    }

    fn text(&mut self, message: &Json) -> String {
        let parts = self.parts(message);
        let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
        texts.join("\n")
    }

    fn begin(&mut self, index: usize) {
        self.turn += 1;
        // The same in every branch of a conversation, so that what they share can be told.
        let turn_id = format!("{BACKEND}-{}", self.turn);
        self.open = Some((turn_id.clone(), false));
        self.draft(index, EntryBody::TurnStarted { turn_id });
    }

    fn end(&mut self, index: usize) {
        let usage = std::mem::take(&mut self.usage);
        let Some((turn_id, answered)) = self.open.take() else {
            return;
        };
        let outcome = match answered {
            true => TurnOutcome::Completed,
            false => TurnOutcome::Interrupted,
        };
        self.draft(
            index,
            EntryBody::TurnEnded {
                turn_id,
                outcome,
                usage,
                stop_reason: None,
            },
        );
    }

    fn push_message(&mut self, index: usize, message: Message) {
        self.draft(index, EntryBody::Message { message });
    }

    fn draft(&mut self, message: usize, body: EntryBody) {
        self.drafts.push(Draft {
            turn: self.turn,
            message,
            body,
        });
    }
}

fn role(message: &Json) -> Option<Role> {
    match message.get("role")?.as_str()? {
        "user" | "human" => Some(Role::User),
        "assistant" | "model" => Some(Role::Assistant),
        "system" | "developer" => Some(Role::System),
        "tool" | "function" => Some(Role::Tool),
        _ => None,
    }
}

fn list<'a>(of: &'a Json, name: &str) -> impl Iterator<Item = &'a Json> {
    of.get(name).and_then(Json::as_array).into_iter().flatten()
}

fn nonempty_text<'a>(of: &'a Json, name: &str) -> Option<&'a str> {
    let text = of.get(name).and_then(Json::as_str);
    text.filter(|text| !text.is_empty())
}

/// What a tool said, and whether it failed. It may be JSON in a text in JSON.
fn tool_output(output: &Json) -> (String, bool) {
    let text = match output {
        Json::String(text) => match serde_json::from_str(text) {
            Ok(Json::String(inner)) => inner,
            _ => text.clone(),
        },
        other => other.to_string(),
    };
    let told: Option<Json> = serde_json::from_str(&text).ok();
    let code = told
        .as_ref()
        .and_then(|told| told.pointer("/metadata/exit_code"));
    let failed = code.and_then(Json::as_i64).is_some_and(|code| code != 0);
    (text, failed)
}

fn meta(of: &Map<String, Json>) -> Meta {
    let text = |name: &str| of.get(name).and_then(Json::as_str).map(str::to_owned);
    let number = |of: Option<&Json>, names: &[&str]| {
        let found = names.iter().find_map(|name| of?.get(*name)?.as_u64());
        // What could overflow a sum is no count of tokens.
        found.filter(|n| *n < 1 << 40).unwrap_or_default()
    };
    let usage = of.get("usage");
    Meta {
        provider: text("provider").unwrap_or_default(),
        model: text("model").unwrap_or_default(),
        auth_type: text("auth_type"),
        auth_name: text("auth_name"),
        usage: Usage {
            input: number(usage, &["prompt_tokens", "input_tokens"]),
            output: number(usage, &["completion_tokens", "output_tokens"]),
            ..Usage::default()
        },
        latency_ms: of
            .get("latency_ms")
            .and_then(Json::as_u64)
            .filter(|ms| *ms < 1 << 40)
            .unwrap_or_default(),
        ..Meta::default()
    }
}
