//! Completing an argument of a prompt or of a resource template.

use conjure_skill_sdk::protocol::Complete;
use rmcp::model::{CompleteRequestParams, CompleteResult, ErrorData};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::answers::read_error;
use super::session::ClientSession;
use super::{lists, results};
use conjure_runtime::session::ToolSession;

/// The most values of one answer, as the protocol has it.
const MAX_VALUES: usize = 100;

/// Asks whoever has the prompt or the template.
///
/// # Errors
/// When there is no such prompt, or whoever has it fails.
pub(super) async fn complete(
    session: &ClientSession,
    calls: &ToolSession,
    cancel: &CancellationToken,
    request: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let mut reference = serde_json::to_value(&request.r#ref).unwrap_or_default();
    let mut source = None;
    let asked = reference
        .get("name")
        .and_then(Value::as_str)
        .map(str::to_owned);
    if let (Some(name), true) = (asked, reference.get("uri").is_none()) {
        let served = lists::prompt(session, calls, cancel, &name).await?;
        if let Some(fields) = reference.as_object_mut() {
            fields.insert("name".to_owned(), served.source_name.into());
        }
        source = Some(served.source);
    }
    let filled_in = request.context.and_then(|context| context.arguments);
    let body = Complete {
        reference,
        argument: request.argument.name,
        value: request.argument.value,
        context: filled_in.unwrap_or_default().into_iter().collect(),
    };
    let snapshot = calls.snapshot();
    let live = lists::discard_output();
    let with = lists::silent_call(&snapshot, cancel, &live);
    let reader = calls.reader(None, &with);
    let said = reader.complete(source.as_deref(), body).await;
    let said = said.map_err(|error| read_error(&error))?;
    let values = said.get("values").and_then(Value::as_array);
    let values: Vec<Value> = values
        .into_iter()
        .flatten()
        .take(MAX_VALUES)
        .cloned()
        .collect();
    let mut completion = json!({
        "values": values,
        "hasMore": said.get("more").and_then(Value::as_bool).unwrap_or(false),
    });
    if let (Some(total), Some(fields)) = (
        said.get("total").filter(|total| total.is_u64()),
        completion.as_object_mut(),
    ) {
        fields.insert("total".to_owned(), total.clone());
    }
    let result = json!({ "resultType": "complete", "completion": completion });
    results::typed(result)
        .ok_or_else(|| ErrorData::internal_error("the completion is none of MCP's", None))
}
