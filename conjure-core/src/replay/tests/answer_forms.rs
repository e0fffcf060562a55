//! Turns whose answers had to fit a schema.

use std::collections::HashMap;

use super::super::{ReplaySetup, record, replay};
use crate::chat::{Message, Meta, Part, Role, Usage};
use crate::log::{Entry, EntryBody, TurnOutcome};
use crate::turn::TurnSettings;

/// A turn whose answers had to fit a schema: these did not, and the last one ended it so.
fn asked_again(answers: &[&str], outcome: TurnOutcome) -> Vec<Entry> {
    let usage = Usage {
        input: 10,
        output: 5,
        ..Usage::default()
    };
    let stop_reason = Some("end_turn".to_owned());
    let mut bodies = vec![
        EntryBody::TurnStarted {
            turn_id: "t1".to_owned(),
        },
        EntryBody::Message {
            message: Message::user("Where?"),
        },
    ];
    let mut all = Usage::default();
    for (at, answer) in answers.iter().enumerate() {
        all += usage;
        if at > 0 {
            let message = Message::user("Not what was asked for: once more.");
            bodies.push(EntryBody::Message { message });
        }
        bodies.push(EntryBody::Message {
            message: Message {
                role: Role::Assistant,
                content: vec![Part::text(*answer)],
                meta: Some(Meta {
                    provider: "anthropic".to_owned(),
                    model: "claude-x".to_owned(),
                    usage,
                    stop_reason: stop_reason.clone(),
                    ..Meta::default()
                }),
            },
        });
    }
    bodies.push(EntryBody::TurnEnded {
        turn_id: "t1".to_owned(),
        outcome,
        usage: all,
        stop_reason,
    });
    let entry = |(seq, body)| Entry {
        seq,
        turn: 1,
        at_ms: 0,
        body,
    };
    (1..).zip(bodies).map(entry).collect()
}

#[test]
fn answers_that_had_to_fit_a_schema_replay() {
    let never_fits = TurnOutcome::Failed {
        error: "It never fitted.".to_owned(),
        kind: "unfit_answer".to_owned(),
    };
    for (entries, requests) in [
        (
            asked_again(&["Oslo.", "{}"], TurnOutcome::Completed),
            vec![3, 5],
        ),
        (
            asked_again(&["Oslo.", "In Oslo.", "It is Oslo."], never_fits),
            vec![3, 5, 7],
        ),
    ] {
        let setup = ReplaySetup::new(TurnSettings::new("anthropic", "claude-x"));
        let cassette = record("where", &entries, setup, &HashMap::new());
        let steps = cassette.steps.iter();
        let asked = steps.filter(|step| step.exchange.is_some());
        let asked: Vec<u64> = asked.map(|step| step.seq).collect();
        assert_eq!(asked, requests);
        let stuck = cassette.steps.iter().find(|step| step.unreplayed.is_some());
        assert_eq!(stuck, None);
        let told = cassette.notes.iter().any(|note| note.contains("a schema"));
        assert!(told, "{:?}", cassette.notes);
        let report = replay(&cassette, None);
        assert!(report.is_clean(), "{report:#?}");
    }
}
