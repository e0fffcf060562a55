//! Several calls inside one: models sometimes call a function named `parallel` that nobody offered.

use serde_json::Value;

use crate::chat::FunctionCall;

/// The calls that such a call stands for; none when it is an ordinary one.
///
/// Ids of the inner calls are the outer call's own with a number, so that each has its result.
pub(in crate::wire) fn unwrapped(call: &FunctionCall) -> Option<Vec<FunctionCall>> {
    let name = call.name.rsplit('.').next().unwrap_or_default();
    if name != "parallel" || call.arguments_text.is_some() {
        return None;
    }
    let uses = call.arguments.get("tool_uses")?.as_array()?;
    let calls: Option<Vec<FunctionCall>> = uses
        .iter()
        .enumerate()
        .map(|(at, inner)| {
            let name = inner.get("recipient_name")?.as_str()?;
            let arguments = inner.get("parameters").cloned().unwrap_or_default();
            let is_object = arguments.is_object();
            Some(FunctionCall {
                call_id: format!("{}_{}", call.call_id, at + 1),
                name: name.strip_prefix("functions.").unwrap_or(name).to_owned(),
                arguments_text: (!is_object && !arguments.is_null()).then(|| arguments.to_string()),
                arguments: if is_object {
                    arguments
                } else {
                    Value::Object(serde_json::Map::new())
                },
            })
        })
        .collect();
    calls.filter(|calls| !calls.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w27_a_call_named_parallel_is_the_calls_inside_it() {
        let call = |name: &str, arguments: Value| FunctionCall {
            call_id: "call_1".to_owned(),
            name: name.to_owned(),
            arguments,
            arguments_text: None,
        };
        let inner = json!({"tool_uses": [
            {"recipient_name": "functions.read", "parameters": {"path": "a"}},
            {"recipient_name": "list", "parameters": null},
        ]});
        for name in ["parallel", "multi_tool_use.parallel"] {
            let calls = unwrapped(&call(name, inner.clone())).unwrap();
            let told: Vec<_> = calls
                .iter()
                .map(|call| (call.call_id.as_str(), call.name.as_str(), &call.arguments))
                .collect();
            assert_eq!(
                told,
                [
                    ("call_1_1", "read", &json!({"path": "a"})),
                    ("call_1_2", "list", &json!({})),
                ]
            );
        }
        // A tool of that name with arguments of its own is left alone.
        assert_eq!(unwrapped(&call("parallel", json!({"tool_uses": 3}))), None);
        assert_eq!(
            unwrapped(&call("parallel", json!({"tool_uses": [{}]}))),
            None
        );
        assert_eq!(unwrapped(&call("other", inner)), None);
    }
}
