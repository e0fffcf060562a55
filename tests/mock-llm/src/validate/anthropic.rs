//! What the Messages API would refuse.
//!
//! Judges one request alone and keeps no history of its own.

mod fields;
mod history;
mod tools;

use super::{Findings, Rule};
use crate::request::Request;

/// The rules of this wire.
pub(super) const RULES: &[Rule] = &[
    Rule::Authentication,
    Rule::Version,
    Rule::Body,
    Rule::UnknownField,
    Rule::Model,
    Rule::MaxTokens,
    Rule::Messages,
    Rule::System,
    Rule::Role,
    Rule::FirstIsUser,
    Rule::Content,
    Rule::Block,
    Rule::BlockRole,
    Rule::BlockField,
    Rule::EmptyText,
    Rule::TrailingSpace,
    Rule::Signature,
    Rule::ThinkingKept,
    Rule::ThinkingOff,
    Rule::ThinkingBudget,
    Rule::ThinkingChoice,
    Rule::ToolName,
    Rule::ToolNameUnique,
    Rule::ToolSchema,
    Rule::StrictSchema,
    Rule::ToolChoice,
    Rule::ToolId,
    Rule::ToolIdUnique,
    Rule::ToolInput,
    Rule::ToolResultMissing,
    Rule::ToolResultOrphan,
    Rule::ToolResultTwice,
    Rule::ToolResultFirst,
    Rule::MixedTurn,
    Rule::ServerResultOrphan,
    Rule::CacheControl,
    Rule::Container,
    Rule::Format,
];

pub(super) fn judge(request: &Request, findings: &mut Findings) {
    fields::headers(request, findings);
    if !findings.is_object(&request.body) {
        return;
    }
    fields::body(&request.body, findings);
    tools::tools(&request.body, findings);
    history::messages(&request.body, findings);
}
