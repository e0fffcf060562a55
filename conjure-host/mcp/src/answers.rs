//! Errors and results that several requests have in common.

use conjure_skill_sdk::protocol::PromptText;
use rmcp::model::{ErrorData, GetPromptResult, ReadResourceResponse, ReadResourceResult};
use serde_json::{Map, Value, json};

use super::results;
use super::suspended::ResumeError;
use conjure_runtime::backend::readers::ReadError;

pub(super) fn resume_error(error: &ResumeError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}

pub(super) fn read_error(error: &ReadError) -> ErrorData {
    let text = error.to_string();
    match error {
        ReadError::NotFound(_) | ReadError::Invalid(_) => ErrorData::invalid_params(text, None),
        ReadError::Cancelled(_) | ReadError::Failed(_) => ErrorData::internal_error(text, None),
    }
}

pub(super) fn no_resource(uri: &str, text: &str) -> ErrorData {
    ErrorData::resource_not_found(text.to_owned(), Some(json!({ "uri": uri })))
}

pub(super) fn read_result(
    uri: &str,
    contents: &[Value],
) -> Result<ReadResourceResponse, ErrorData> {
    let result = json!({ "resultType": "complete", "contents": contents });
    let result: Option<ReadResourceResult> = results::typed(result);
    let result = result.ok_or_else(|| {
        ErrorData::internal_error(format!("the contents of `{uri}` are none of MCP's"), None)
    })?;
    Ok(result.into())
}

pub(super) fn prompt_result(filled: PromptText) -> Result<GetPromptResult, ErrorData> {
    let mut result = Map::new();
    result.insert("resultType".to_owned(), "complete".into());
    if let Some(text) = filled.description {
        result.insert("description".to_owned(), text.into());
    }
    result.insert("messages".to_owned(), filled.messages.into());
    results::typed(result.into())
        .ok_or_else(|| ErrorData::internal_error("the prompt's messages are none of MCP's", None))
}

pub(super) fn unexpected_answer() -> ErrorData {
    ErrorData::internal_error(
        "the host answered something else; this is a bug of it",
        None,
    )
}

/// An argument of a prompt is a text.
pub(super) fn as_text((name, value): (String, Value)) -> (String, String) {
    match value {
        Value::String(text) => (name, text),
        other => (name, other.to_string()),
    }
}
