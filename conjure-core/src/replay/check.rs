//! Runs a cassette's thread again and holds it against the recording.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cassette::{Cassette, CassetteStep, ModelExchange};
use super::diff::{ValueDifference, diff};
use super::drive::{Fact, ReplayMismatch, drive};
use super::exchange::{compile_request, exchange, parse_body};
use super::old_sentences::with_reasons;
use super::record::{call_of, judged_calls};
use super::rules;
use super::setup::Recipient;
use crate::chat::{FunctionCall, Message};
use crate::log::{Entry, EntryBody};
use crate::request::ModelRequest;
use crate::wire::Wire;

/// The most changes that a divergence names.
const MAX_CHANGES: usize = 8;
/// The most problems that a report names, apart from the first of each request.
const MAX_PROBLEMS: usize = 20;

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The thread.
    pub thread: String,
    /// The version of Conjure that recorded it.
    pub recorded_by: String,
    /// The version of Conjure that replays it.
    pub replayed_by: String,
    /// Entries that were gone along.
    pub steps: usize,
    /// Model requests that were made.
    pub requests: usize,
    /// The first thing that is otherwise; nothing where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// Where the recording could not be driven through the turn machine, so nothing was compared
    /// from there to the end of the turn but what would be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreplayed: Vec<Unreplayed>,
    /// What the recording says that it does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How the thread would be sent over another wire, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<OtherWireReport>,
}

/// The first difference between a recording and its replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// The number of the step, which is its entry's.
    pub step: u64,
    /// The turn of the step.
    pub turn: u64,
    /// What the difference is about.
    pub what: DivergenceKind,
    /// The difference in a sentence.
    pub text: String,
    /// Places that differ, with what was recorded and what is there now.
    pub changes: Vec<ValueDifference>,
    /// How many places more differ.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Why it may be.
    pub why: Vec<String>,
}

/// What a divergence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceKind {
    /// A request that the model got.
    Request,
    /// How many tokens a request was expected to have, which decides when a thread is summarised.
    Tokens,
    /// What becomes of a reply's calls by the table and the rules.
    Verdict,
    /// What is written.
    Entry,
    /// The call that a result is of.
    Call,
}

/// A place that was not replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreplayed {
    /// The step where it begins.
    pub step: u64,
    /// The turn of the step.
    pub turn: u64,
    /// Why it was not replayed.
    pub reason: String,
}

/// How a thread would be sent over another wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherWireReport {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The wire.
    pub wire: Wire,
    /// Requests that were encoded for it.
    pub requests: usize,
    /// What would keep requests from being sent; the first of them.
    pub problems: Vec<UnsendableRequest>,
    /// The first problem of each request that `problems` has no room for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_problems: Vec<UnsendableRequest>,
    /// How many problems all requests have together.
    #[serde(default)]
    pub problems_in_all: usize,
    /// Tools that it would not be offered, each with why.
    pub left_out: Vec<String>,
}

/// What would keep a request from being sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsendableRequest {
    /// The step that the request belongs to.
    pub step: u64,
    /// What is wrong.
    pub problem: String,
}

impl OtherWireReport {
    /// The problems that are named for the request of a step.
    pub fn problems_of(&self, step: u64) -> impl Iterator<Item = &UnsendableRequest> {
        let named = self.problems.iter().chain(&self.further_problems);
        named.filter(move |problem| problem.step == step)
    }

    /// Takes in what would keep the request of a step from being sent.
    fn add_problems(&mut self, step: u64, problems: Vec<String>) {
        self.problems_in_all += problems.len();
        for problem in problems {
            let unsendable = UnsendableRequest { step, problem };
            if self.problems.len() < MAX_PROBLEMS {
                self.problems.push(unsendable);
            } else if self.problems_of(step).next().is_none() {
                self.further_problems.push(unsendable);
            }
        }
    }
}

impl ReplayReport {
    /// Whether the thread does now what it did, and could be sent.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let sendable = |other: &OtherWireReport| other.problems.is_empty();
        self.divergence.is_none() && self.elsewhere.as_ref().is_none_or(sendable)
    }
}

/// Replays a cassette. With a recipient every request is encoded for it in place of whom it went
/// to, and what is compared is what the turn machine does.
#[must_use]
pub fn replay(cassette: &Cassette, to: Option<&Recipient>) -> ReplayReport {
    let script = with_reasons(cassette.entries());
    let tables = cassette.setup.tables(&script);
    let mut report = ReplayReport {
        thread: cassette.thread.clone(),
        recorded_by: cassette.conjure.clone(),
        replayed_by: env!("CARGO_PKG_VERSION").to_owned(),
        steps: script.len(),
        requests: 0,
        divergence: None,
        unreplayed: Vec::new(),
        notes: cassette.notes.clone(),
        elsewhere: to.map(|to| OtherWireReport {
            provider: to.provider.clone(),
            model: to.model.clone(),
            wire: to.wire,
            requests: 0,
            problems: Vec::new(),
            further_problems: Vec::new(),
            problems_in_all: 0,
            left_out: Vec::new(),
        }),
    };
    let messages = script.iter().filter_map(|entry| match &entry.body {
        EntryBody::Message { message } => Some(message),
        _ => None,
    });
    let calls = messages.flat_map(Message::calls);
    let mut compare = ReplayComparison {
        cassette,
        script: &script,
        next_step: 0,
        recipient: to,
        calls: calls.map(|call| (call.call_id.as_str(), call)).collect(),
        report: &mut report,
    };
    drive(&cassette.setup, &script, &tables, &mut |fact| {
        compare.accept(fact)
    });
    let all = cassette.steps.len();
    compare.check_missed_steps(all);
    report
}

struct ReplayComparison<'a, 'r> {
    cassette: &'a Cassette,
    script: &'a [Entry],
    /// The first step of which it is not known yet whether something is missing.
    next_step: usize,
    recipient: Option<&'a Recipient>,
    calls: HashMap<&'a str, &'a FunctionCall>,
    report: &'r mut ReplayReport,
}

impl ReplayComparison<'_, '_> {
    /// Takes a fact; false when the replay is over.
    fn accept(&mut self, fact: Fact<'_>) -> bool {
        let (Fact::Requested { at, .. } | Fact::Judged { at, .. } | Fact::Mismatch { at, .. }) =
            fact;
        if !self.check_missed_steps(at) {
            return false;
        }
        let Some(step) = self.cassette.steps.get(at) else {
            return false;
        };
        let found = match fact {
            Fact::Requested { request, .. } => {
                self.report.requests += 1;
                self.next_step = at + 1;
                let meta = step.body.meta();
                let (provider, model) = request.settings.provider_and_model(meta);
                let whom = self.cassette.setup.recipient(&provider, &model);
                match self.recipient {
                    Some(to) => {
                        let made = compile_request(&request, self.script, to);
                        self.check_for_recipient(step.seq, &made, to);
                        None
                    }
                    None => {
                        let now = exchange(&request, self.script, &whom);
                        compare_requests(step.exchange.as_ref(), &now)
                    }
                }
            }
            Fact::Judged { verdicts, .. } => {
                let now = judged_calls(verdicts);
                let text = "the routing table and the rules say something else of its calls";
                compare_values(DivergenceKind::Verdict, text, &step.judged, &now)
            }
            Fact::Mismatch { stuck, .. } => match &step.unreplayed {
                Some(reason) => {
                    self.report.unreplayed.push(Unreplayed {
                        step: step.seq,
                        turn: step.turn,
                        reason: reason.clone(),
                    });
                    None
                }
                None => Some(entry_divergence(step, stuck)),
            },
        };
        self.report_divergence(step.seq, step.turn, found)
    }

    /// Looks whether the steps before this one have what the replay did not make, and results of
    /// other calls.
    fn check_missed_steps(&mut self, until: usize) -> bool {
        if self.report.divergence.is_some() {
            return false;
        }
        while self.next_step < until {
            let at = self.next_step;
            self.next_step += 1;
            let Some(step) = self.cassette.steps.get(at) else {
                return false;
            };
            let found = match &step.exchange {
                Some(exchange) if self.recipient.is_none() => Some(UnplacedDivergence::new(
                    DivergenceKind::Request,
                    "the recording has a request here, and none is made now",
                    vec![ValueDifference {
                        path: "resource".to_owned(),
                        recorded: Some(exchange.resource.clone().into()),
                        now: None,
                    }],
                )),
                _ => self.other_call(step),
            };
            if !self.report_divergence(step.seq, step.turn, found) {
                return false;
            }
        }
        true
    }

    /// Whether a result is of another call than the recording says.
    fn other_call(&self, step: &CassetteStep) -> Option<UnplacedDivergence> {
        let EntryBody::CallEnded { output, .. } = &step.body else {
            return None;
        };
        let calls = self.calls.get(output.call_id.as_str());
        let now = calls.map(|call| call_of(call));
        let text = "the result is of another call than the one that was recorded";
        compare_values(DivergenceKind::Call, text, &step.call, &now)
    }

    fn report_divergence(
        &mut self,
        step: u64,
        turn: u64,
        found: Option<UnplacedDivergence>,
    ) -> bool {
        let Some(mut found) = found else {
            return true;
        };
        let more = found.changes.len().saturating_sub(MAX_CHANGES);
        let why = self.possible_causes(&found);
        found.changes.truncate(MAX_CHANGES);
        self.report.divergence = Some(Divergence {
            step,
            turn,
            what: found.kind,
            text: found.text,
            changes: found.changes,
            more,
            why,
        });
        false
    }

    fn check_for_recipient(&mut self, step: u64, request: &ModelRequest, to: &Recipient) {
        let endpoint = to.endpoint.clone().with_model(&to.model);
        let encoded = to.wire.encode(request, &endpoint);
        let problems = rules::problems(request, to, &parse_body(&encoded.body));
        let Some(elsewhere) = &mut self.report.elsewhere else {
            return;
        };
        elsewhere.requests += 1;
        elsewhere.add_problems(step, problems);
        for tool in &encoded.quarantined {
            let text = format!("{}: {}", tool.tool, tool.reason);
            if !elsewhere.left_out.contains(&text) {
                elsewhere.left_out.push(text);
            }
        }
    }

    fn possible_causes(&self, found: &UnplacedDivergence) -> Vec<String> {
        let mut why = Vec::new();
        let report = &self.report;
        if report.recorded_by != report.replayed_by {
            why.push(format!(
                "recorded by Conjure {} and replayed by {}",
                report.recorded_by, report.replayed_by
            ));
        }
        let in_path = |words: &[&str]| {
            let named =
                |change: &ValueDifference| words.iter().any(|word| change.path.starts_with(word));
            found.changes.iter().any(named)
        };
        match found.kind {
            DivergenceKind::Request => {
                if in_path(&["tools"]) {
                    why.push("a tool's definition, or which tools there are".to_owned());
                }
                if in_path(&["system", "instructions", "systemInstruction"]) {
                    why.push(
                        "the persona, the memory, the working directory or the list of skills"
                            .to_owned(),
                    );
                }
                if in_path(&["messages", "input", "contents"]) {
                    why.push(
                        "how a conversation is repaired, compiled or encoded for this wire"
                            .to_owned(),
                    );
                }
                if in_path(&["provider", "model", "wire", "resource"]) {
                    why.push("who is asked, or over which wire".to_owned());
                }
            }
            DivergenceKind::Tokens => {
                why.push("how the size of a conversation is estimated".to_owned());
            }
            DivergenceKind::Verdict => {
                why.push("the policy, or a tool's backend, plugin, effects or mode".to_owned());
            }
            DivergenceKind::Entry => why.push("the turn machine, or a limit of turns".to_owned()),
            DivergenceKind::Call => why.push("the cassette was edited".to_owned()),
        }
        if why.is_empty() {
            why.push("a setting of requests, such as limits on output".to_owned());
        }
        why
    }
}

/// A divergence without its place.
struct UnplacedDivergence {
    kind: DivergenceKind,
    text: String,
    changes: Vec<ValueDifference>,
}

impl UnplacedDivergence {
    fn new(what: DivergenceKind, text: &str, changes: Vec<ValueDifference>) -> Self {
        Self {
            kind: what,
            text: text.to_owned(),
            changes,
        }
    }
}

fn compare_requests(
    recorded: Option<&ModelExchange>,
    now: &ModelExchange,
) -> Option<UnplacedDivergence> {
    let Some(recorded) = recorded else {
        let text = "a request is made now, and the recording has none here";
        let change = ValueDifference {
            path: "resource".to_owned(),
            recorded: None,
            now: Some(now.resource.clone().into()),
        };
        return Some(UnplacedDivergence::new(
            DivergenceKind::Request,
            text,
            vec![change],
        ));
    };
    // The order of fields counts too: a prompt cache goes by bytes.
    let text = |exchange: &ModelExchange| exchange.body.to_string();
    if text(recorded) != text(now) {
        let mut changes = diff(&recorded.body, &now.body);
        if changes.is_empty() {
            changes.push(ValueDifference {
                path: String::new(),
                recorded: Some("fields in another order".into()),
                now: None,
            });
        }
        let text = "the request to the model is another one";
        return Some(UnplacedDivergence::new(
            DivergenceKind::Request,
            text,
            changes,
        ));
    }
    let without_body = |exchange: &ModelExchange| ModelExchange {
        body: Value::Null,
        tokens: 0,
        ..exchange.clone()
    };
    let text = "the request goes elsewhere or is told otherwise";
    let (one, two) = (without_body(recorded), without_body(now));
    compare_values(DivergenceKind::Request, text, &one, &two).or_else(|| {
        let text = "the request was expected to have another size";
        compare_values(DivergenceKind::Tokens, text, &recorded.tokens, &now.tokens)
    })
}

fn entry_divergence(step: &CassetteStep, stuck: ReplayMismatch) -> UnplacedDivergence {
    let recorded = serde_json::to_value(&step.body).unwrap_or_default();
    let changes = match stuck.actual_entry {
        Some(made) => diff(&recorded, &serde_json::to_value(made).unwrap_or_default()),
        None => vec![ValueDifference {
            path: "entry".to_owned(),
            recorded: recorded.get("entry").cloned(),
            now: None,
        }],
    };
    UnplacedDivergence::new(DivergenceKind::Entry, &stuck.reason, changes)
}

fn compare_values<T: Serialize + PartialEq>(
    what: DivergenceKind,
    text: &str,
    recorded: &T,
    now: &T,
) -> Option<UnplacedDivergence> {
    if recorded == now {
        return None;
    }
    let value = |it: &T| serde_json::to_value(it).unwrap_or_default();
    Some(UnplacedDivergence::new(
        what,
        text,
        diff(&value(recorded), &value(now)),
    ))
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elsewhere() -> OtherWireReport {
        OtherWireReport {
            provider: "gemini".to_owned(),
            model: "another".to_owned(),
            wire: Wire::Gemini,
            requests: 0,
            problems: Vec::new(),
            further_problems: Vec::new(),
            problems_in_all: 0,
            left_out: Vec::new(),
        }
    }

    #[test]
    fn every_request_that_cannot_be_sent_is_named_however_many_there_are() {
        let mut report = elsewhere();
        for step in 1..=100 {
            report.add_problems(step, vec!["first".to_owned(), "second".to_owned()]);
        }
        assert_eq!(report.problems.len(), MAX_PROBLEMS);
        assert_eq!(report.problems_in_all, 200);
        for step in 1..=100 {
            assert!(report.problems_of(step).next().is_some(), "step {step}");
        }
        assert_eq!(report.problems_of(1).count(), 2);
        assert_eq!(report.problems_of(100).count(), 1);
    }

    #[test]
    fn a_report_of_an_earlier_version_is_read() {
        let mut written = serde_json::to_value(elsewhere()).unwrap();
        let fields = written.as_object_mut().unwrap();
        assert!(fields.remove("problems_in_all").is_some());
        let read: OtherWireReport = serde_json::from_value(written).unwrap();
        assert_eq!(read, elsewhere());
    }
}
