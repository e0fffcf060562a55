//! Whether a call may run, as the rules of the session file have it.
//!
//! A client decides about calls itself, so a call that no rule fits runs. What a rule asks about the
//! person at the client is asked, where the client can do that, and else it is denied.

use conjure_core::chat::FunctionCall;
use conjure_core::context::CallFailureKind;
use conjure_core::routing::PolicyDecision;
use serde_json::json;

use super::session::RequestWork;
use conjure_runtime::backend::ToolSnapshot;
use conjure_runtime::backend::questions::{
    ClientQuestion, QuestionKind, QuestionSource, SessionClient as _,
};

/// The most characters of a call's arguments that a question shows.
const MAX_ARGUMENTS_CHARS: usize = 1000;

/// Reasons why a call may not run.
pub(super) enum CallDenial {
    /// A rule denies it, or nobody can be asked.
    Rule(&'static str),
    /// Whoever was asked did not permit it.
    Person,
    /// Asking failed.
    Question(String),
}

impl CallDenial {
    /// Kind of the denial, for whoever reads the result.
    pub(super) fn kind(&self) -> CallFailureKind<'_> {
        match self {
            Self::Rule(reason) => CallFailureKind::Denied { reason },
            Self::Person => CallFailureKind::PersonRefused { reason: "" },
            Self::Question(reason) => CallFailureKind::NotReady { reason },
        }
    }
}

/// Lets a call run.
///
/// # Errors
/// Why it may not.
pub(super) async fn authorize(
    work: &RequestWork,
    snapshot: &ToolSnapshot,
    call: &FunctionCall,
) -> Result<(), CallDenial> {
    match work.calls.rule_for(snapshot, &call.name, &call.arguments) {
        None | Some(PolicyDecision::Allow) => Ok(()),
        Some(PolicyDecision::Deny) => Err(CallDenial::Rule("a rule of the server denies it")),
        Some(PolicyDecision::Ask) => ask_permission(work, call).await,
    }
}

async fn ask_permission(work: &RequestWork, call: &FunctionCall) -> Result<(), CallDenial> {
    let arguments: String = call
        .arguments
        .to_string()
        .chars()
        .take(MAX_ARGUMENTS_CHARS)
        .collect();
    let by = QuestionSource {
        plugin: "conjure".to_owned(),
        call_id: Some(std::sync::Arc::clone(&work.id)),
    };
    let question = ClientQuestion {
        key: Some("permission".to_owned()),
        kind: QuestionKind::Elicit,
        body: json!({ "message": format!("May `{}` run with {arguments}?", call.name) }),
    };
    let answer = work.questions.ask(by, vec![question]).await.pop().flatten();
    match answer {
        Some(Ok(answer))
            if answer
                .get("action")
                .is_some_and(|action| action == "accept") =>
        {
            Ok(())
        }
        Some(Ok(_)) => Err(CallDenial::Person),
        Some(Err(fault)) => Err(CallDenial::Question(fault.text().to_string())),
        None => Err(CallDenial::Rule(
            "a rule of the server asks a person about it, and this client cannot ask one; who \
             runs the server can allow it in the session file",
        )),
    }
}
