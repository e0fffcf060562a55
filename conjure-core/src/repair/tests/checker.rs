//! A strict reader of what is to be sent. It shares no code with the repair.

use std::collections::HashSet;

use crate::chat::{Content, Message, OutputPart, Part, Role};
use crate::repair::{RepairTarget, Sendable};

/// Panics at the first thing that a provider would reject.
pub(crate) fn check(sendable: &Sendable, target: &RepairTarget) {
    let messages = sendable.messages();
    let shown = || format!("{messages:#?}");
    assert_eq!(
        messages.first().map(|m| m.role),
        Some(Role::User),
        "{}",
        shown()
    );
    let last = messages.last().unwrap();
    let last_is_paused = pauses(last, target);
    assert!(
        last.role != Role::Assistant || last_is_paused,
        "{}",
        shown()
    );

    let mut ids = HashSet::new();
    let mut owed: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &messages[at]);
        let after = messages.get(at + 1);
        assert!(
            !message.content.is_empty(),
            "empty message {at}: {}",
            shown()
        );
        assert!(
            before.is_none_or(|b| b.role != message.role),
            "{at}: {}",
            shown()
        );
        match message.role {
            Role::System => panic!("a system message: {}", shown()),
            Role::User => {
                assert!(owed.is_empty(), "{owed:?} is owed at {at}: {}", shown());
                assert!(
                    before.is_none_or(|b| b.calls().next().is_none()),
                    "{}",
                    shown()
                );
            }
            Role::Assistant => {
                let calls: Vec<&str> = message.calls().map(|c| c.call_id.as_str()).collect();
                for id in &calls {
                    assert!(!id.is_empty() && ids.insert(*id), "id {id}: {}", shown());
                }
                let answers: Vec<&str> = after
                    .filter(|after| after.role == Role::Tool)
                    .map(|after| after.content.iter().map(answered).collect())
                    .unwrap_or_default();
                assert_eq!(calls, answers, "at {at}: {}", shown());
                let thinks_last = matches!(
                    message.content.last().unwrap().content,
                    Content::Reasoning { .. }
                );
                let may = after.is_none() && last_is_paused;
                assert!(!thinks_last || may, "ends with a thought: {}", shown());
            }
            Role::Tool => {
                let calls = before.map_or(0, |b| b.calls().count());
                assert_eq!(calls, message.content.len(), "{}", shown());
            }
        }
        for part in &message.content {
            check_part(part, message, target, &mut owed);
        }
    }
    let open_end = last.role == Role::Tool || last_is_paused;
    assert!(owed.is_empty() || open_end, "{owed:?} is owed: {}", shown());
}

fn check_part<'a>(
    part: &'a Part,
    message: &Message,
    target: &RepairTarget,
    owed: &mut Vec<&'a str>,
) {
    let by_model = message.role == Role::Assistant;
    if let Some(own) = &part.sidecar {
        assert_eq!(own.provider, target.provider);
        assert!(target.model.starts_with(&own.model_family), "{own:?}");
    }
    match &part.content {
        Content::Text { text } => assert!(!text.trim().is_empty()),
        Content::Reasoning { .. } => assert!(by_model && part.sidecar.is_some()),
        Content::FunctionCall(call) => assert!(by_model && call.arguments.is_object()),
        Content::FunctionCallOutput(output) => {
            assert_eq!(message.role, Role::Tool);
            assert!(!output.is_error || !output.output.is_empty());
            for piece in &output.output {
                match piece {
                    OutputPart::Text { text } => assert!(!text.trim().is_empty()),
                    OutputPart::Image { .. } => assert!(target.images),
                    OutputPart::File { .. } => assert!(target.files),
                }
            }
        }
        Content::Image { .. } => assert!(target.images && message.role != Role::Tool),
        Content::File { .. } => assert!(target.files && message.role != Role::Tool),
        Content::ServerItem { provider, item } => {
            assert_eq!(*provider, target.provider);
            assert!(message.role != Role::Tool);
            let id = |name: &str| item.get(name).and_then(|id| id.as_str());
            if let Some(id) = id("tool_use_id") {
                assert!(by_model);
                let at = owed.iter().position(|owed| *owed == id);
                owed.remove(at.unwrap_or_else(|| panic!("the result {id} has no use")));
            } else if item["type"]
                .as_str()
                .unwrap_or_default()
                .ends_with("tool_use")
            {
                assert!(by_model);
                owed.push(id("id").unwrap());
            }
        }
    }
}

fn answered(part: &Part) -> &str {
    match &part.content {
        Content::FunctionCallOutput(output) => &output.call_id,
        other => panic!("{other:?} among the results"),
    }
}

fn pauses(message: &Message, target: &RepairTarget) -> bool {
    message.role == Role::Assistant
        && message.meta.as_ref().is_some_and(|meta| {
            meta.provider == target.provider
                && meta.stop_reason.as_deref() == Some("pause_turn")
                && !meta.partial
        })
}
