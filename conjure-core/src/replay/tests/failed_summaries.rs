//! Summaries that failed: what is tried today is not what older versions tried.

use std::collections::HashMap;

use super::talked;
use crate::chat::Usage;
use crate::log::{Entry, EntryBody, NoticeReason, TurnOutcome};
use crate::replay::{ReplaySetup, record, replay};
use crate::turn::TurnSettings;

#[test]
fn a_summary_that_an_older_version_tried_in_each_turn_replays() {
    let (talk, _) = talked();
    let turn = |id: &str| {
        let begins = EntryBody::TurnStarted {
            turn_id: id.to_owned(),
        };
        let failed = EntryBody::Notice {
            text: "The conversation could not be summarised: no".to_owned(),
            reason: Some(NoticeReason::NotSummarised {
                error: "no".to_owned(),
            }),
        };
        let ended = EntryBody::TurnEnded {
            turn_id: id.to_owned(),
            outcome: TurnOutcome::Completed,
            usage: Usage {
                input: 10,
                output: 5,
                ..Usage::default()
            },
            stop_reason: Some("end_turn".to_owned()),
        };
        let (asked, answered) = (talk[1].body.clone(), talk[6].body.clone());
        [begins, asked, failed, answered, ended]
    };
    let bodies = ["t1", "t2"].map(turn).into_iter().zip(1..);
    let bodies = bodies.flat_map(|(bodies, turn)| bodies.map(|body| (body, turn)));
    let entry = |(seq, (body, turn))| Entry {
        seq,
        turn,
        at_ms: 0,
        body,
    };
    let entries: Vec<Entry> = (1..).zip(bodies).map(entry).collect();
    let setup = ReplaySetup::new(TurnSettings::new("anthropic", "claude-x"));
    let cassette = record("failing", &entries, setup, &HashMap::new());
    let stuck = cassette.steps.iter().find(|step| step.unreplayed.is_some());
    assert_eq!(stuck, None);
    let report = replay(&cassette, None);
    assert!(report.is_clean(), "{report:#?}");
}
