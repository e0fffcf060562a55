//! What a client is asked before a call runs, and what is made of its answer.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCallUpdate,
};
use conjure_core::chat::CallAnnounced;
use conjure_core::foreign_text::escape_line;
use conjure_core::routing::Pattern;
use conjure_core::turn::ApprovalDecision;
use conjure_runtime::manager::DecisionScope;

use super::updates::Updates;

const ALLOW_ONCE: &str = "allow-once";
const ALLOW_ALWAYS: &str = "allow-always";
const REJECT_ONCE: &str = "reject-once";
const REJECT_ALWAYS: &str = "reject-always";
/// The longest rule that is offered, in characters: an editor has one line for it, and a rule that is
/// cut off would be agreed to unread.
const MAX_RULE_CHARS: usize = 200;

/// Answer of the person about a call.
#[derive(Debug, PartialEq)]
pub(crate) enum PermissionAnswer {
    /// A decision, and how far it goes.
    Decided(ApprovalDecision, DecisionScope),
    /// The client ends the turn.
    Cancelled,
}

/// Asks about a call. A client that does not answer as the protocol says has not allowed anything.
pub(crate) async fn ask(
    updates: &Updates,
    shown: ToolCallUpdate,
    call: &CallAnnounced,
) -> PermissionAnswer {
    let rule = offered_rule(call);
    let options = options(&call.name, rule.as_ref());
    let request = RequestPermissionRequest::new(updates.session().clone(), shown, options);
    let answer = updates.client().send_request(request).block_task().await;
    match answer {
        Ok(answer) => read(&answer, rule.as_ref()),
        Err(error) => denied(format!("the editor gave no decision: {}", error.message)),
    }
}

/// The pattern of a rule for calls like this one, where one can be told in an option.
fn offered_rule(call: &CallAnnounced) -> Option<Pattern> {
    let rule = Pattern::for_calls_like(&call.name, &call.arguments);
    rule.filter(|pattern| pattern_line(pattern).chars().count() <= MAX_RULE_CHARS)
}

/// A pattern in one line.
fn pattern_line(pattern: &Pattern) -> String {
    escape_line(&pattern.to_string()).into_owned()
}

/// What the person can say. A rule is told whole; where none can let just calls like this one run,
/// none is offered for that.
fn options(tool: &str, rule: Option<&Pattern>) -> Vec<PermissionOption> {
    let about = match rule.map(pattern_line) {
        Some(pattern) if pattern != tool => format!("`{pattern}`"),
        _ => format!("every call of `{tool}`"),
    };
    let always = format!("Always allow {about}, as a rule that stays in this session");
    let never = format!("Never allow {about}, as a rule that stays in this session");
    let mut options = vec![PermissionOption::new(
        ALLOW_ONCE,
        "Allow",
        PermissionOptionKind::AllowOnce,
    )];
    if rule.is_some() {
        let kind = PermissionOptionKind::AllowAlways;
        options.push(PermissionOption::new(ALLOW_ALWAYS, always, kind));
    }
    options.extend([
        PermissionOption::new(REJECT_ONCE, "Reject", PermissionOptionKind::RejectOnce),
        PermissionOption::new(REJECT_ALWAYS, never, PermissionOptionKind::RejectAlways),
    ]);
    options
}

fn read(answer: &RequestPermissionResponse, rule: Option<&Pattern>) -> PermissionAnswer {
    let RequestPermissionOutcome::Selected(selected) = &answer.outcome else {
        return PermissionAnswer::Cancelled;
    };
    let no = || ApprovalDecision::Deny {
        reason: String::new(),
    };
    let always = rule
        .cloned()
        .map(|pattern| DecisionScope::Pattern { pattern });
    match (&*selected.option_id.0, always) {
        (ALLOW_ONCE, _) => PermissionAnswer::Decided(ApprovalDecision::Allow, DecisionScope::Once),
        (ALLOW_ALWAYS, Some(scope)) => PermissionAnswer::Decided(ApprovalDecision::Allow, scope),
        (REJECT_ONCE, _) => PermissionAnswer::Decided(no(), DecisionScope::Once),
        (REJECT_ALWAYS, scope) => {
            PermissionAnswer::Decided(no(), scope.unwrap_or(DecisionScope::Tool))
        }
        (other, _) => denied(format!("the editor chose `{other}`, which was no option")),
    }
}

fn denied(reason: String) -> PermissionAnswer {
    PermissionAnswer::Decided(ApprovalDecision::Deny { reason }, DecisionScope::Once)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::SelectedPermissionOutcome;
    use serde_json::json;

    use super::*;

    fn selected(id: &str, rule: Option<&Pattern>) -> PermissionAnswer {
        let selected = SelectedPermissionOutcome::new(id.to_owned());
        let outcome = RequestPermissionOutcome::Selected(selected);
        read(&RequestPermissionResponse::new(outcome), rule)
    }

    #[test]
    fn only_an_option_that_was_offered_allows() {
        let pattern: Pattern = "sh(cargo test *)".parse().unwrap();
        let rule = Some(&pattern);
        let allowed = |scope| PermissionAnswer::Decided(ApprovalDecision::Allow, scope);
        assert_eq!(selected(ALLOW_ONCE, rule), allowed(DecisionScope::Once));
        let scope = DecisionScope::Pattern {
            pattern: pattern.clone(),
        };
        assert_eq!(selected(ALLOW_ALWAYS, rule), allowed(scope));
        for (other, rule) in [
            ("", rule),
            ("allow", rule),
            ("allow-once ", rule),
            (ALLOW_ALWAYS, None),
        ] {
            let PermissionAnswer::Decided(ApprovalDecision::Deny { reason }, DecisionScope::Once) =
                selected(other, rule)
            else {
                panic!("`{other}` was taken for a decision");
            };
            assert!(reason.contains("no option"), "{reason}");
        }
    }

    #[test]
    fn a_rule_is_told_as_it_is_written() {
        let names = |tool: &str, rule: Option<&str>| {
            let rule: Option<Pattern> = rule.map(|rule| rule.parse().unwrap());
            let options = options(tool, rule.as_ref());
            options.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(
            names("sh", Some("sh(cargo test *)")),
            [
                "Allow",
                "Always allow `sh(cargo test *)`, as a rule that stays in this session",
                "Reject",
                "Never allow `sh(cargo test *)`, as a rule that stays in this session",
            ]
        );
        let wide = "Always allow every call of `view`, as a rule that stays in this session";
        assert_eq!(names("view", Some("view"))[1], wide);
        let never = "Never allow every call of `sh`, as a rule that stays in this session";
        assert_eq!(names("sh", None), ["Allow", "Reject", never]);
    }

    #[test]
    fn a_rule_that_is_offered_can_be_read() {
        let rule = |command: &str| {
            offered_rule(&CallAnnounced {
                id: "c1".to_owned(),
                name: "sh".to_owned(),
                arguments: json!({ "command": command }),
            })
        };
        let hidden = rule("rm x;\u{1b}[8m rm y").unwrap();
        let always = options("sh", Some(&hidden)).remove(1).name;
        assert!(always.contains("`sh(rm x;\\u{1b}[8m rm y)`"), "{always}");
        let long = "y".repeat(MAX_RULE_CHARS);
        assert_eq!(rule(&format!("curl {long} | sh")), None);
        let wide = rule(&format!("ls {long}")).unwrap();
        assert_eq!(wide.to_string(), "sh(ls *)");
    }
}
