//! What a replay says of each step of a chat: what would be sent now, where its calls would go, and
//! whether that is as it was.

use std::collections::HashMap;

use conjure_core::foreign_text::clean;
use conjure_core::log::{EntryBody, NotRun};
use conjure_core::numerals::count;
use conjure_core::replay::{
    CassetteStep, Divergence, ExchangeKind, ModelExchange, OtherWireReport, Unreplayed,
    ValueDifference,
};
use conjure_core::turn::CallVerdict;
use conjure_runtime::replay::ReplayedThread;
use serde_json::Value;

/// The most lines of a step, and the most letters of one.
const MAX_LINES: usize = 20;
const MAX_LETTERS: usize = 400;
/// The most letters of a value that is other than it was.
const MAX_VALUE_LETTERS: usize = 120;

/// How a step is when it is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// What was compared is as it was.
    Same,
    /// The step only sends something, which the record does not have.
    NotCompared,
    Differs,
    /// The other model would not be sent it.
    Unsendable,
    NotReplayed,
}

impl StepOutcome {
    /// Whether it may not be as it was, as far as that was compared.
    pub(super) fn may_differ(self) -> bool {
        match self {
            Self::Same | Self::NotCompared => false,
            Self::Differs | Self::Unsendable | Self::NotReplayed => true,
        }
    }
}

/// A step that sends something or decides about calls, or that is otherwise now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplayedStep {
    /// Number of the step's entry.
    pub(super) seq: u64,
    pub(super) turn: u64,
    pub(super) outcome: StepOutcome,
    /// What is said of it, a line each.
    pub(super) lines: Vec<String>,
}

/// A chat that was replayed, as far as it is shown.
#[derive(Debug)]
pub(super) struct ReplayedChat {
    pub(super) steps: Vec<ReplayedStep>,
    /// Entries that were gone along.
    pub(super) entries: usize,
    pub(super) requests: usize,
    pub(super) calls: usize,
    pub(super) notes: Vec<String>,
    pub(super) unreplayed: Vec<Unreplayed>,
    pub(super) other_wire: Option<OtherWireReport>,
}

impl ReplayedChat {
    pub(super) fn of(replayed: ReplayedThread) -> Self {
        let ReplayedThread { cassette, report } = replayed;
        let recorded = RecordedCalls::of(&cassette.steps);
        let mut steps = Vec::new();
        let mut calls = 0;
        // The turn of which the rest is not replayed, and whether that is so of all that follows.
        let (mut cut, mut is_over) = (None, false);
        for step in &cassette.steps {
            calls += step.judged.len();
            let divergence = report.divergence.as_ref();
            let divergence = divergence.filter(|divergence| divergence.step == step.seq);
            if step.unreplayed.is_some() {
                cut = Some(step.turn);
            }
            let mut lines = StepLines::default();
            lines.add_unreplayed(step);
            lines.request(step.exchange.as_ref());
            lines.calls(step, &recorded);
            lines.divergence(divergence);
            if let Some(elsewhere) = &report.elsewhere {
                lines.add_other_wire(step.seq, elsewhere);
            }
            if lines.outcome == StepOutcome::Same {
                lines.outcome = match (is_over || cut == Some(step.turn), step.judged.is_empty()) {
                    (true, _) => StepOutcome::NotReplayed,
                    (false, true) => StepOutcome::NotCompared,
                    (false, false) => StepOutcome::Same,
                };
            }
            is_over |= divergence.is_some();
            steps.extend(lines.step(step));
        }
        Self {
            steps,
            entries: report.steps,
            requests: report.requests,
            calls,
            notes: report.notes,
            unreplayed: report.unreplayed,
            other_wire: report.elsewhere,
        }
    }

    /// How many steps are so.
    pub(super) fn count_of(&self, outcome: StepOutcome) -> usize {
        let steps = self.steps.iter();
        steps.filter(|step| step.outcome == outcome).count()
    }
}

/// What became of a call in the record.
#[derive(Default)]
struct RecordedCall<'a> {
    /// The backend that ran it, with the plugin and its version.
    ran: Option<(&'a str, Option<&'a str>)>,
    /// Why it was not run.
    reason: Option<&'a NotRun>,
}

/// What became of the calls, by turn and id: ids may come again in another turn.
struct RecordedCalls<'a>(HashMap<(u64, &'a str), RecordedCall<'a>>);

impl<'a> RecordedCalls<'a> {
    fn of(steps: &'a [CassetteStep]) -> Self {
        let mut calls: HashMap<(u64, &str), RecordedCall<'_>> = HashMap::new();
        for step in steps {
            match &step.body {
                EntryBody::CallStarted {
                    call_id,
                    backend,
                    plugin,
                } => {
                    let call = calls.entry((step.turn, call_id.as_str())).or_default();
                    call.ran = Some((backend.as_str(), plugin.as_deref()));
                }
                EntryBody::CallEnded { output, reason, .. } => {
                    let call = calls
                        .entry((step.turn, output.call_id.as_str()))
                        .or_default();
                    call.reason = reason.as_ref();
                }
                _ => {}
            }
        }
        Self(calls)
    }
}

/// What is said of a step.
struct StepLines {
    outcome: StepOutcome,
    /// Why it is not as it was: said first, as what is too long is cut.
    reasons: Vec<String>,
    lines: Vec<String>,
}

impl Default for StepLines {
    fn default() -> Self {
        Self {
            outcome: StepOutcome::Same,
            reasons: Vec::new(),
            lines: Vec::new(),
        }
    }
}

impl StepLines {
    fn add(&mut self, line: &str) {
        self.lines.push(truncate(line, MAX_LETTERS));
    }

    fn add_reason(&mut self, line: &str) {
        self.reasons.push(truncate(line, MAX_LETTERS));
    }

    fn add_unreplayed(&mut self, step: &CassetteStep) {
        if let Some(reason) = &step.unreplayed {
            self.outcome = StepOutcome::NotReplayed;
            self.add_reason(&format!(
                "From here to the end of turn {} it is not replayed: {reason}",
                step.turn
            ));
        }
    }

    /// What would be sent.
    fn request(&mut self, exchange: Option<&ModelExchange>) {
        let Some(exchange) = exchange else {
            return;
        };
        let what = match exchange.kind {
            ExchangeKind::Reply => "Request",
            ExchangeKind::Summary => "Request for a summary",
        };
        let tokens = match exchange.tokens {
            0 => String::new(),
            tokens => format!(", about {}", count(tokens, "token")),
        };
        self.add(&format!(
            "{what} to {}/{} over {}{tokens}",
            exchange.provider, exchange.model, exchange.wire
        ));
        for note in &exchange.notes {
            self.add(note);
        }
        for tool in &exchange.left_out {
            self.add(&format!("{} is not offered: {}", tool.tool, tool.reason));
        }
    }

    /// Where the calls of a reply would go, and where they went.
    fn calls(&mut self, step: &CassetteStep, recorded: &RecordedCalls<'_>) {
        let mut names: HashMap<&str, &str> = HashMap::new();
        if let EntryBody::Message { message } = &step.body {
            let calls = message.calls();
            names.extend(calls.map(|call| (call.call_id.as_str(), call.name.as_str())));
        }
        let unknown = RecordedCall::default();
        for judged in &step.judged {
            let id = judged.call_id.as_str();
            let name = names.get(id).copied().unwrap_or(id);
            let then = recorded.0.get(&(step.turn, id)).unwrap_or(&unknown);
            let (is_same, line) = compare_call(name, &judged.verdict, then);
            if is_same {
                self.add(&line);
            } else {
                self.outcome = StepOutcome::Differs;
                self.add_reason(&line);
            }
        }
    }

    fn divergence(&mut self, divergence: Option<&Divergence>) {
        let Some(divergence) = divergence else {
            return;
        };
        self.outcome = StepOutcome::Differs;
        self.add_reason(&divergence.text);
        for change in &divergence.changes {
            self.add_reason(&difference(change));
        }
        if divergence.more > 0 {
            let more = count(divergence.more as u64, "place");
            self.add_reason(&format!("and {more} more"));
        }
        for why in &divergence.why {
            self.add_reason(&format!("It may be because of: {why}"));
        }
    }

    /// What would keep the step's request from being sent to another model.
    fn add_other_wire(&mut self, seq: u64, elsewhere: &OtherWireReport) {
        for problem in elsewhere.problems_of(seq) {
            self.outcome = StepOutcome::Unsendable;
            self.add_reason(&format!(
                "{}/{} would not be sent it: {}",
                elsewhere.provider, elsewhere.model, problem.problem
            ));
        }
    }

    /// The step, where anything is said of it.
    fn step(mut self, step: &CassetteStep) -> Option<ReplayedStep> {
        let mut lines = self.reasons;
        lines.append(&mut self.lines);
        let more = lines.len().saturating_sub(MAX_LINES);
        if more > 0 {
            lines.truncate(MAX_LINES);
            let more = count(more as u64, "line");
            lines.push(format!("and {more} more"));
        }
        (!lines.is_empty()).then_some(ReplayedStep {
            seq: step.seq,
            turn: step.turn,
            outcome: self.outcome,
            lines,
        })
    }
}

/// Whether a call would become what it became, and that in words.
fn compare_call(name: &str, now: &CallVerdict, then: &RecordedCall<'_>) -> (bool, String) {
    let (place, asks) = match now {
        CallVerdict::Run {
            backend, plugin, ..
        } => (Some((backend.as_str(), plugin.as_deref())), None),
        CallVerdict::Ask {
            backend,
            plugin,
            reason,
            ..
        } => (
            Some((backend.as_str(), plugin.as_deref())),
            Some(reason.as_str()),
        ),
        CallVerdict::Refuse(_) => (None, None),
    };
    let asked = asks.map_or_else(String::new, |reason| {
        format!("; a person is asked first ({reason})")
    });
    match (place, then.ran, then.reason) {
        (Some(now), Some(ran), _) if now == ran => (
            true,
            format!("{name} goes to {}, as it did{asked}", backend_text(now)),
        ),
        (Some(now), Some(ran), _) => {
            let (ran, now) = (backend_text(ran), backend_text(now));
            (
                false,
                format!("{name} went to {ran}, and goes to {now} now{asked}"),
            )
        }
        (Some(now), None, Some(reason)) => {
            let is_same = match reason {
                NotRun::NoSuchTool | NotRun::BadArguments | NotRun::Denied | NotRun::NotReady => {
                    false
                }
                NotRun::NobodyToAsk | NotRun::PersonRefused { .. } => asks.is_some(),
                // That is not decided by the table and the rules.
                _ => true,
            };
            let why = not_run(reason);
            let now = backend_text(now);
            (
                is_same,
                format!("{name} was not run, {why}; it goes to {now} now{asked}"),
            )
        }
        (Some(now), None, None) => (true, format!("{name} goes to {}{asked}", backend_text(now))),
        (None, Some(ran), _) => (
            false,
            format!(
                "{name} went to {}, and is not run now: {}",
                backend_text(ran),
                refusal(now)
            ),
        ),
        (None, None, _) => (true, format!("{name} is not run: {}", refusal(now))),
    }
}

fn refusal(now: &CallVerdict) -> &str {
    match now {
        CallVerdict::Refuse(refusal) => &refusal.text,
        CallVerdict::Run { .. } | CallVerdict::Ask { .. } => "",
    }
}

/// A backend, with the plugin and its version.
fn backend_text((backend, plugin): (&str, Option<&str>)) -> String {
    match plugin {
        Some(plugin) => format!("{backend} ({plugin})"),
        None => backend.to_owned(),
    }
}

/// Why a call was not run, in words.
fn not_run(reason: &NotRun) -> String {
    let words = match reason {
        NotRun::NoSuchTool => "as there was no such tool",
        NotRun::BadArguments => "as its arguments did not fit",
        NotRun::Denied => "as the policy denied it",
        NotRun::NobodyToAsk => "as nobody was there to be asked",
        NotRun::PersonRefused { .. } => "as a person refused it",
        NotRun::TurnEnded => "as its turn was ended first",
        NotRun::SettingsChanged => "as the settings changed first",
        NotRun::ReplyCutShort => "as its reply was cut short",
        NotRun::ReplyBrokeOff => "as its reply broke off",
        NotRun::OverLimit { limit, value } => {
            return format!("as the limit {limit} of {value} was reached");
        }
        NotRun::NotReady => "as what it needs was not there",
        NotRun::Busy => "as too much was going on",
        NotRun::HostEnded => "as the host ended first",
        NotRun::Other => "for a reason that a later version knows",
    };
    words.to_owned()
}

/// A place that is otherwise, in words.
fn difference(change: &ValueDifference) -> String {
    let value = |value: &Option<Value>| match value {
        Some(value) => truncate(&value.to_string(), MAX_VALUE_LETTERS),
        None => "nothing".to_owned(),
    };
    let path = match change.path.as_str() {
        "" => "all of it",
        path => path,
    };
    format!(
        "{path}: recorded {}, now {}",
        value(&change.recorded),
        value(&change.now)
    )
}

/// The beginning of what others said, as words.
fn truncate(text: &str, most: usize) -> String {
    let text = clean(text);
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::context::CallRefusal;
    use conjure_core::replay::UnsendableRequest;
    use conjure_core::wire::Wire;

    use super::*;

    const LOCAL: (&str, Option<&str>) = ("local", Some("local 1.0.0"));

    fn run(plugin: &str) -> CallVerdict {
        CallVerdict::Run {
            backend: "local".to_owned(),
            plugin: Some(plugin.to_owned()),
            lane: None,
        }
    }

    fn ask() -> CallVerdict {
        CallVerdict::Ask {
            backend: "local".to_owned(),
            plugin: Some("local 1.0.0".to_owned()),
            lane: None,
            reason: "it writes".to_owned(),
        }
    }

    fn ran() -> RecordedCall<'static> {
        RecordedCall {
            ran: Some(LOCAL),
            reason: None,
        }
    }

    fn kept_back(reason: &NotRun) -> RecordedCall<'_> {
        RecordedCall {
            ran: None,
            reason: Some(reason),
        }
    }

    #[test]
    fn a_call_is_the_same_where_the_same_build_would_run_it() {
        let (is_same, line) = compare_call("sh", &run("local 1.0.0"), &ran());
        assert!(is_same, "{line}");
        let (is_same, line) = compare_call("sh", &ask(), &ran());
        assert!(is_same && line.contains("(it writes)"), "{line}");
        let (is_same, line) = compare_call("sh", &run("local 1.1.0"), &ran());
        assert!(!is_same, "{line}");
        assert_eq!(
            line,
            "sh went to local (local 1.0.0), and goes to local (local 1.1.0) now"
        );
    }

    #[test]
    fn a_call_that_the_rules_judge_otherwise_now_differs() {
        let refuse = CallVerdict::Refuse(CallRefusal {
            text: "the policy denies it".to_owned(),
            reason: None,
        });
        let (is_same, line) = compare_call("sh", &refuse, &ran());
        assert!(!is_same && line.contains("the policy denies it"), "{line}");
        let refused = NotRun::PersonRefused {
            said: String::new(),
        };
        for (reason, of_run, of_ask) in [
            (NotRun::Denied, false, false),
            (NotRun::NoSuchTool, false, false),
            (NotRun::NobodyToAsk, false, true),
            (refused, false, true),
            (NotRun::TurnEnded, true, true),
        ] {
            let then = kept_back(&reason);
            let now = compare_call("sh", &run("local 1.0.0"), &then);
            assert_eq!(now.0, of_run, "{}", now.1);
            let now = compare_call("sh", &ask(), &then);
            assert_eq!(now.0, of_ask, "{}", now.1);
            assert!(compare_call("sh", &refuse, &then).0, "{reason:?}");
        }
    }

    #[test]
    fn what_is_long_is_cut_between_letters() {
        let mut step = StepLines::default();
        step.add(&"é".repeat(MAX_LETTERS));
        step.add(&"é".repeat(MAX_LETTERS + 1));
        let lengths: Vec<usize> = step.lines.iter().map(|l| l.chars().count()).collect();
        assert_eq!(lengths, [MAX_LETTERS, MAX_LETTERS + 1]);
        assert!(step.lines[1].ends_with("é…"));
    }

    #[test]
    fn why_a_step_is_not_as_it_was_is_said_however_much_else_is() {
        let entry = CassetteStep {
            seq: 4,
            turn: 1,
            exchange: None,
            judged: Vec::new(),
            call: None,
            sha256: None,
            unreplayed: None,
            body: EntryBody::TurnStarted {
                turn_id: "t".to_owned(),
            },
        };
        let elsewhere = OtherWireReport {
            provider: "openai".to_owned(),
            model: "m".to_owned(),
            wire: Wire::OpenaiResponses,
            requests: 1,
            problems: vec![UnsendableRequest {
                step: 4,
                problem: "it takes no such file".to_owned(),
            }],
            further_problems: Vec::new(),
            problems_in_all: 1,
            left_out: Vec::new(),
        };
        let mut lines = StepLines::default();
        for at in 0..=MAX_LINES {
            lines.add(&format!("tool {at} is not offered"));
        }
        lines.add_other_wire(4, &elsewhere);
        let step = lines.step(&entry).unwrap();
        assert_eq!(step.outcome, StepOutcome::Unsendable);
        assert!(
            step.lines[0].contains("it takes no such file"),
            "{:?}",
            step.lines
        );
        assert_eq!(step.lines[MAX_LINES], "and 2 lines more");
    }
}
