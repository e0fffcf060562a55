//! Recorded replies of real providers as threads: driven through the turn machine, recorded as
//! cassettes, and replayed on every wire.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use conjure_core::chat::{FunctionCall, FunctionCallOutput, Message, Meta, Response};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_core::replay::{Cassette, Recipient, ReplaySetup, record, replay};
use conjure_core::turn::recover;
use conjure_core::turn::{CallVerdict, HostAction, Machine, TurnInput, TurnSettings};
use conjure_core::wire::{Endpoint, Wire};
use conjure_wire_tests::{Recorded, recorded};

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os(conjure_wire_tests::VARIABLE).map(PathBuf::from);
    if folder.is_none() {
        println!(
            "LEFT OUT: replay of recorded exchanges: {} is not set",
            conjure_wire_tests::VARIABLE
        );
    }
    folder
}

/// A thread that the turn machine writes, with whole replies and a result for each call.
struct Thread {
    machine: Machine,
    entries: Vec<Entry>,
    turn: u64,
}

impl Thread {
    fn new(provider: &str, model: &str) -> Self {
        Self {
            machine: Machine::new(TurnSettings::new(provider, model), 1, &[]),
            entries: Vec::new(),
            turn: 0,
        }
    }

    /// Gives an input; the number of the request that the machine makes then, and calls to run.
    fn input(&mut self, input: TurnInput) -> (Option<u64>, Vec<FunctionCall>) {
        let judge = |_: &FunctionCall| CallVerdict::Run {
            backend: "recorded".to_owned(),
            plugin: None,
            lane: None,
        };
        let (mut request, mut calls) = (None, Vec::new());
        let mut observed = 0;
        for action in self.machine.handle(input, &judge) {
            match action {
                HostAction::Write(body) => self.write(body),
                HostAction::Request {
                    request: number, ..
                } => request = Some(number),
                HostAction::RunCall { call, .. } => calls.push(call),
                HostAction::Observe { .. } => observed += 1,
                _ => {}
            }
        }
        for _ in 0..observed {
            let (next, more) = self.input(TurnInput::Observed);
            request = request.or(next);
            calls.extend(more);
        }
        (request, calls)
    }

    fn write(&mut self, body: EntryBody) {
        self.turn += u64::from(matches!(body, EntryBody::TurnStarted { .. }));
        self.entries.push(Entry {
            seq: self.entries.len() as u64 + 1,
            turn: self.turn,
            at_ms: 0,
            body,
        });
    }

    /// A reply, in the turn that is open or in one of its own, and results of its calls.
    fn replied(
        &mut self,
        open: Option<u64>,
        response: Response,
        endpoint: &Endpoint,
    ) -> Option<u64> {
        let request = open.or_else(|| {
            self.input(TurnInput::User {
                turn_id: format!("turn {}", self.turn + 1),
                message: Message::user("Go on."),
            })
            .0
        })?;
        let meta = Meta {
            provider: endpoint.provider.clone(),
            model: endpoint.model.clone().unwrap_or_default(),
            usage: response.usage,
            ..Meta::default()
        };
        let (mut next, calls) = self.input(TurnInput::ModelDone {
            request,
            response,
            meta,
        });
        for call in calls {
            let done = TurnInput::CallDone {
                output: FunctionCallOutput::text(&call.call_id, "Done.", false),
                end: CallEnd::Done,
                duration_ms: 1,
                meta: None,
            };
            next = self.input(done).0.or(next);
        }
        next
    }
}

fn response(recorded: &Recorded) -> Option<Response> {
    if recorded.exchange.then.status != 200 {
        return None;
    }
    let endpoint = recorded.endpoint();
    let bytes = recorded.exchange.reply().as_bytes();
    let decoded = if recorded.exchange.then.is_stream() {
        let mut decoder = recorded.wire.decoder(&endpoint);
        let mut events = Vec::new();
        decoder.push(bytes, &mut events);
        decoder.finish(&mut events)
    } else {
        recorded.wire.decode_body(&endpoint, bytes)
    };
    let is_reply = decoded.error.is_none() && decoded.response.complete;
    (is_reply && !decoded.response.parts.is_empty()).then_some(decoded.response)
}

#[test]
fn recorded_exchanges_become_threads_that_replay_on_every_wire() {
    let Some(folder) = folder() else { return };
    for wire in Wire::ALL {
        let all = recorded(&folder, wire).unwrap();
        let mut files: BTreeMap<&str, Vec<&Recorded>> = BTreeMap::new();
        for exchange in &all {
            files.entry(&exchange.name).or_default().push(exchange);
        }
        let (mut replies, mut threads) = (0, 0);
        for (name, exchanges) in files {
            let endpoint = exchanges[0].endpoint();
            let model = endpoint.model.clone().unwrap_or_else(|| "m".to_owned());
            let mut thread = Thread::new(&endpoint.provider, &model);
            let mut open = None;
            let before = replies;
            for response in exchanges.iter().filter_map(|exchange| response(exchange)) {
                open = thread.replied(open, response, &endpoint);
                replies += 1;
            }
            if replies == before {
                continue;
            }
            threads += 1;
            for body in recover(&thread.entries) {
                thread.write(body);
            }
            let mut setup = ReplaySetup::new(TurnSettings::new(&endpoint.provider, &model));
            let mut whom = Recipient::of_name(&endpoint.provider, &model);
            whom.wire = wire;
            setup.recipients.push(whom);
            let cassette = record(name, &thread.entries, setup, &HashMap::new());
            let text = cassette.to_text().unwrap();
            let cassette = Cassette::read(text.as_bytes()).unwrap();
            let report = replay(&cassette, None);
            assert!(report.is_clean(), "{name}: {report:#?}");
            assert!(report.unreplayed.is_empty(), "{name}: {report:#?}");
            assert!(report.requests >= replies - before, "{name}");
            for wire in Wire::ALL {
                let mut to = Recipient::of_name("elsewhere", "m");
                to.wire = wire;
                let report = replay(&cassette, Some(&to));
                assert!(report.is_clean(), "{name} over {wire}: {report:#?}");
            }
        }
        println!("{wire}: {replies} replies in {threads} threads");
        assert!(replies > 0, "{wire}: no recorded reply was looked at");
    }
}
