//! What a client is asked before a call runs, and what is made of its answer.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCall,
};
use conjure_core::turn::ApprovalDecision;
use conjure_runtime::manager::DecisionScope;

use super::updates::Updates;

const ALLOW_ONCE: &str = "allow-once";
const ALLOW_ALWAYS: &str = "allow-always";
const REJECT_ONCE: &str = "reject-once";
const REJECT_ALWAYS: &str = "reject-always";

/// What the person said about a call.
#[derive(Debug, PartialEq)]
pub(crate) enum PermissionAnswer {
    /// A decision, and how far it goes.
    Decided(ApprovalDecision, DecisionScope),
    /// The client ends the turn.
    Cancelled,
}

/// Asks about a call. A client that does not answer as the protocol says has not allowed anything.
pub(crate) async fn ask(updates: &Updates, call: ToolCall, tool: &str) -> PermissionAnswer {
    let request =
        RequestPermissionRequest::new(updates.session().clone(), call.into(), options(tool));
    let answer = updates.client().send_request(request).block_task().await;
    match answer {
        Ok(answer) => read(&answer),
        Err(error) => denied(format!("the editor gave no decision: {}", error.message)),
    }
}

fn options(tool: &str) -> Vec<PermissionOption> {
    let always = format!("Always allow `{tool}` in this session");
    let never = format!("Never allow `{tool}` in this session");
    vec![
        PermissionOption::new(ALLOW_ONCE, "Allow", PermissionOptionKind::AllowOnce),
        PermissionOption::new(ALLOW_ALWAYS, always, PermissionOptionKind::AllowAlways),
        PermissionOption::new(REJECT_ONCE, "Reject", PermissionOptionKind::RejectOnce),
        PermissionOption::new(REJECT_ALWAYS, never, PermissionOptionKind::RejectAlways),
    ]
}

fn read(answer: &RequestPermissionResponse) -> PermissionAnswer {
    let RequestPermissionOutcome::Selected(selected) = &answer.outcome else {
        return PermissionAnswer::Cancelled;
    };
    let no = || ApprovalDecision::Deny {
        reason: String::new(),
    };
    match &*selected.option_id.0 {
        ALLOW_ONCE => PermissionAnswer::Decided(ApprovalDecision::Allow, DecisionScope::Once),
        ALLOW_ALWAYS => PermissionAnswer::Decided(ApprovalDecision::Allow, DecisionScope::Tool),
        REJECT_ONCE => PermissionAnswer::Decided(no(), DecisionScope::Once),
        REJECT_ALWAYS => PermissionAnswer::Decided(no(), DecisionScope::Tool),
        other => denied(format!("the editor chose `{other}`, which was no option")),
    }
}

fn denied(reason: String) -> PermissionAnswer {
    PermissionAnswer::Decided(ApprovalDecision::Deny { reason }, DecisionScope::Once)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::SelectedPermissionOutcome;

    use super::*;

    #[test]
    fn only_an_option_that_was_offered_allows() {
        let selected = |id: &str| {
            let selected = SelectedPermissionOutcome::new(id.to_owned());
            read(&RequestPermissionResponse::new(
                RequestPermissionOutcome::Selected(selected),
            ))
        };
        let allowed = |scope| PermissionAnswer::Decided(ApprovalDecision::Allow, scope);
        assert_eq!(selected(ALLOW_ONCE), allowed(DecisionScope::Once));
        assert_eq!(selected(ALLOW_ALWAYS), allowed(DecisionScope::Tool));
        for other in ["", "allow", "allow-once "] {
            let PermissionAnswer::Decided(ApprovalDecision::Deny { reason }, DecisionScope::Once) =
                selected(other)
            else {
                panic!("`{other}` was taken for a decision");
            };
            assert!(reason.contains("no option"), "{reason}");
        }
    }
}
