//! Calls that wait for a person, and what is decided about them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use conjure_core::turn::ApprovalDecision;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::extract::{JsonBody, PathParams, Ref, text};
use super::operations::{Operations, routes};
use super::pages::Page;
use super::problem::Problem;
use super::state::App;
use conjure_config::json::object_with_kind;
use conjure_runtime::manager;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(decide))
}

/// A call that waits for a decision.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Approval)]
pub(super) struct ApprovalView {
    call: WaitingCallView,
    /// The rule that asks.
    reason: String,
    /// Milliseconds after which the call is denied; null: it waits on.
    denied_in_ms: Option<u64>,
}

/// A call, as the model asked for it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WaitingCall)]
struct WaitingCallView {
    id: String,
    /// The tool's public name.
    name: String,
    #[schema(value_type = Object)]
    arguments: Value,
}

/// Decision about a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Decision)]
struct DecisionBody {
    decision: ApprovalVerdict,
    /// Reason that the model is told of a call that is denied.
    reason: Option<String>,
    /// Scope of the decision; without it, only this call.
    #[serde(default, deserialize_with = "object_with_kind")]
    scope: DecisionScopeBody,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Verdict)]
enum ApprovalVerdict {
    /// The call runs.
    Allow,
    /// The call does not run.
    Deny,
}

/// Scope of a decision. One that is wider than the call is saved with the session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "an object with its `kind`"
)]
#[schema(as = DecisionScope)]
enum DecisionScopeBody {
    /// Only this call.
    Once {},
    /// Every call of this tool in the session, from now on.
    Tool {},
    /// Every call in the session that fits a pattern, from now on.
    Pattern {
        /// A tool's name, `backend:NAME`, or `NAME(arguments)`, with `*`.
        pattern: String,
    },
}

impl Default for DecisionScopeBody {
    fn default() -> Self {
        Self::Once {}
    }
}

/// List the calls of a session that wait for a decision
#[utoipa::path(get, path = "/api/v1/sessions/{session}/approvals", operation_id = "list_approvals",
    tag = "turns", params(("session" = String, Path, description = "The session's id or name")),
    responses((status = 200, description = "All of them", body = Page<ApprovalView>)))]
async fn list(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
) -> Result<Json<Page<ApprovalView>>, Problem> {
    let _client = app.presence_in_session(&id).await;
    let items = waiting(&app, &id).await?;
    Ok(Json(Page { items, next: None }))
}

/// The calls of a session that wait.
pub(super) async fn waiting(app: &App, session: &str) -> Result<Vec<ApprovalView>, Problem> {
    let approvals = app.manager.approvals(session).await?;
    let views = approvals.into_iter().map(|approval| ApprovalView {
        call: WaitingCallView {
            id: approval.call.id,
            name: approval.call.name,
            arguments: approval.call.arguments,
        },
        reason: approval.reason,
        denied_in_ms: approval.denied_in_ms,
    });
    Ok(views.collect())
}

/// Decide about a call that waits; the first decision counts
#[utoipa::path(post, path = "/api/v1/sessions/{session}/approvals/{call}",
    operation_id = "decide_approval", tag = "turns",
    params(("session" = String, Path, description = "The session's id or name"),
        ("call" = String, Path, description = "The call's id")),
    request_body = DecisionBody, responses((status = 204, description = "It is decided")))]
async fn decide(
    State(app): State<App>,
    PathParams((Ref(id), Ref(call))): PathParams<(Ref, Ref)>,
    JsonBody(body): JsonBody<DecisionBody>,
) -> Result<StatusCode, Problem> {
    let decision = match body.decision {
        ApprovalVerdict::Allow => ApprovalDecision::Allow,
        ApprovalVerdict::Deny => ApprovalDecision::Deny {
            reason: text("reason", body.reason.as_deref().unwrap_or_default())?.to_owned(),
        },
    };
    let scope = match body.scope {
        DecisionScopeBody::Once {} => manager::DecisionScope::Once,
        DecisionScopeBody::Tool {} => manager::DecisionScope::Tool,
        DecisionScopeBody::Pattern { pattern } => manager::DecisionScope::Pattern {
            pattern: pattern
                .parse()
                .map_err(|error: conjure_core::routing::PatternError| {
                    Problem::invalid(format!("`scope.pattern`: {error}")).at("scope")
                })?,
        },
    };
    app.manager.decide(&id, &call, decision, scope).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scope_takes_no_member_that_it_does_not_know() {
        let read = |value| serde_json::from_value::<DecisionScopeBody>(value);
        assert!(read(json!({ "kind": "tool" })).is_ok());
        for kind in ["once", "tool"] {
            let error = read(json!({ "kind": kind, "pattern": "*" })).unwrap_err();
            assert!(error.to_string().contains("unknown field"), "{error}");
        }
    }
}
