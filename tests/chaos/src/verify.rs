//! What must hold after a kill, compared from four sides: what a follower saw, what the log holds,
//! what the ledger says, and the file to which each call appended a line.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use conjure_core::chat::Event;
use conjure_core::log::EntryBody;
use conjure_host::store::{CallState, Log as _, Record, Store};
use serde_json::Value;

use crate::calls::{key_of, noted};
use crate::chain::Chain;
use crate::observed_thread::ObservedThread;

/// Compares one thread, which must have been opened again after the last kill. Gives the keys of
/// its calls, and adds a sentence for everything that is wrong.
pub(crate) async fn thread(
    store: &Store,
    watched: &ObservedThread,
    ran: &HashMap<String, usize>,
    wrong: &mut Vec<String>,
) -> Result<Vec<String>> {
    let records = store.read(&watched.thread).await?;
    events(watched, &records, wrong)?;
    runs(store, watched, wrong).await?;
    let calls = Calls::of(&records);
    let ledger: HashMap<String, CallState> = store
        .tool_calls(&watched.thread)
        .await?
        .into_iter()
        .map(|call| (call.call_id, call.state))
        .collect();
    for (id, call) in &calls.0 {
        let times = ran.get(&call.key).copied().unwrap_or_default();
        let state = ledger.get(id).copied();
        if let Some(problem) = call.problem(times, state) {
            wrong.push(format!("call {id} ({}): {problem}", call.key));
        }
    }
    for (_, event) in &watched.events {
        check_seen_call(event, &calls, &ledger, wrong);
    }
    Ok(calls.0.into_values().map(|call| call.key).collect())
}

/// What a follower saw is what the log begins with: no hole, nothing twice, nothing else.
fn events(watched: &ObservedThread, records: &[Record], wrong: &mut Vec<String>) -> Result<()> {
    let mut kept = Vec::new();
    for record in records {
        if let Record::Event { id, event } = record {
            kept.push((*id, serde_json::to_value(event)?));
        }
    }
    if let Some(pair) = kept.array_windows().find(|[one, next]| one.0 >= next.0) {
        let [one, next] = pair;
        wrong.push(format!("event {} stands behind {}", next.0, one.0));
    }
    let mut chain = Chain::default();
    for (id, event) in kept.iter().take(watched.events.len()) {
        chain.add(*id, event);
    }
    if chain == watched.chain {
        return Ok(());
    }
    let differs = watched
        .events
        .iter()
        .enumerate()
        .find(|(place, seen)| kept.get(*place) != Some(seen));
    if let Some((place, (id, event))) = differs {
        let kept = kept.get(place).map_or_else(
            || "the log ends before it".to_owned(),
            |(id, event)| format!("the log has {id} {event}"),
        );
        wrong.push(format!("event {id} {event} was acknowledged, and {kept}"));
    }
    Ok(())
}

/// Every turn that was taken in is there, and over; one that was seen to be over is what it was.
async fn runs(store: &Store, watched: &ObservedThread, wrong: &mut Vec<String>) -> Result<()> {
    for (id, turn) in watched.turns.iter().filter(|(_, turn)| turn.is_accepted) {
        let run = match store.run(id).await {
            Ok(run) => run,
            Err(error) => {
                wrong.push(format!("turn {id} was taken in: {error}"));
                continue;
            }
        };
        let state = run.state.as_str();
        if !run.state.is_over() {
            wrong.push(format!("turn {id} is still {state}"));
        }
        if let Some((seen, _)) = turn.end.as_ref().filter(|(seen, _)| seen != state) {
            wrong.push(format!("turn {id} was seen {seen} and is {state}"));
        }
    }
    Ok(())
}

/// What an event said about a call still holds.
fn check_seen_call(
    event: &Value,
    calls: &Calls,
    ledger: &HashMap<String, CallState>,
    wrong: &mut Vec<String>,
) {
    match serde_json::from_value::<Event>(event.clone()) {
        Ok(Event::CallStarted { call_id, .. }) if !ledger.contains_key(&call_id) => {
            wrong.push(format!("call {call_id} was seen to start and has no row"));
        }
        Ok(Event::FunctionCallOutput(output)) => {
            let text = calls.0.get(&output.call_id).map(|call| &call.result);
            let shown = Some(&output.output);
            if text.is_none_or(|text| text.as_ref() != shown) {
                wrong.push(format!(
                    "the result of {} was shown as {shown:?} and is {text:?}",
                    output.call_id
                ));
            }
        }
        _ => {}
    }
}

/// The calls that a thread's messages ask for, by their ids.
struct Calls(BTreeMap<String, Call>);

struct Call {
    key: String,
    result: Option<String>,
    results: usize,
}

impl Calls {
    fn of(records: &[Record]) -> Self {
        let mut calls = BTreeMap::new();
        for record in records {
            let Record::Entry(entry) = record else {
                continue;
            };
            match &entry.body {
                EntryBody::Message { message } => {
                    for call in message.calls() {
                        let command = call.arguments.get("command").and_then(Value::as_str);
                        if let Some(key) = command.and_then(key_of) {
                            let call_of = Call {
                                key: key.to_owned(),
                                result: None,
                                results: 0,
                            };
                            calls.insert(call.call_id.clone(), call_of);
                        }
                    }
                }
                EntryBody::CallEnded { output, .. } => {
                    if let Some(call) = calls.get_mut(&output.call_id) {
                        call.result = Some(output.joined_text());
                        call.results += 1;
                    }
                }
                _ => {}
            }
        }
        Self(calls)
    }
}

impl Call {
    /// What is wrong with a call that ran so often, by its own line in the file.
    fn problem(&self, times: usize, state: Option<CallState>) -> Option<String> {
        if times > 1 {
            return Some(format!("it ran {times} times"));
        }
        if self.results > 1 {
            return Some(format!("it has {} results", self.results));
        }
        // Behind the first line stand the files that the call changed.
        let said = self.result.as_deref().and_then(|text| text.lines().next());
        let has_result = said == Some(&noted(&self.key));
        match (state, times) {
            (None, 0) if self.results == 0 => None,
            (None, _) => Some("it is not in the ledger".to_owned()),
            (Some(CallState::Done), 1) if has_result => None,
            (Some(CallState::Done), 1) => Some(format!("its result is {:?}", self.result)),
            (Some(CallState::Done), _) => Some("it is done and never ran".to_owned()),
            (Some(CallState::Indeterminate), _) if !has_result => None,
            (Some(CallState::Refused | CallState::Cancelled), 0) => None,
            (Some(state), times) => Some(format!(
                "it is {} with the result {:?}, and ran {times} times",
                state.as_str(),
                self.result
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(result: Option<&str>) -> Call {
        Call {
            key: "k".to_owned(),
            result: result.map(str::to_owned),
            results: usize::from(result.is_some()),
        }
    }

    #[test]
    fn what_may_be_after_a_kill() {
        let done = Some(CallState::Done);
        let unknown = Some(CallState::Indeterminate);
        assert_eq!(call(Some("noted k")).problem(1, done), None);
        assert_eq!(call(Some("nobody knows")).problem(1, unknown), None);
        assert_eq!(call(Some("nobody knows")).problem(0, unknown), None);
        assert_eq!(
            call(Some("not run")).problem(0, Some(CallState::Refused)),
            None
        );
        assert_eq!(call(None).problem(0, None), None);
    }

    #[test]
    fn what_must_not_be_after_a_kill() {
        let done = Some(CallState::Done);
        for (result, times, state) in [
            (Some("noted k"), 2, done),
            (Some("noted k"), 0, done),
            (Some("something else"), 1, done),
            (None, 1, None),
            (Some("noted k"), 1, Some(CallState::Indeterminate)),
            (Some("not run"), 1, Some(CallState::Refused)),
            (None, 1, Some(CallState::Running)),
        ] {
            let problem = call(result).problem(times, state);
            assert!(problem.is_some(), "{result:?} {times} {state:?}");
        }
    }
}
