//! Lists of models: `GET /v1/models` as Anthropic or as `OpenAI`, `GET /v1beta/models` as Gemini.
//!
//! Anthropic and `OpenAI` have one path; a client of Anthropic's says so with `anthropic-version`. Pages
//! work as each provider's do. Which models there are is the script's affair.

use serde_json::{Value, json};

use super::Wire;
use super::text::put;
use crate::delivery::RenderedAnswer;
use crate::reply::ErrorReply;
use crate::request::Request;

/// The list, or one model of it, if the request asks for either. `None`: it asks for something else.
pub(crate) fn list(
    models: &[String],
    request: &Request,
) -> Option<Result<RenderedAnswer, (Wire, ErrorReply)>> {
    if request.method != "GET" {
        return None;
    }
    let path = request.path.trim_end_matches('/');
    let (base, one) = match path.split_once("/models/") {
        Some((base, one)) => (base, Some(one)),
        None => (path.strip_suffix("/models")?, None),
    };
    let wire = match base {
        base if base.ends_with("/v1beta") => Wire::Gemini,
        _ if request.header("anthropic-version").is_some() => Wire::Anthropic,
        _ => Wire::Chat,
    };
    if !wire.has_credential(request) {
        return Some(Err((wire, ErrorReply::new(401))));
    }
    let body = match one {
        None => page(wire, models, request),
        Some(one) if models.iter().any(|model| model == one) => entry(wire, one),
        Some(one) => {
            let text = format!("The model '{one}' does not exist.");
            return Some(Err((wire, ErrorReply::new(404).message(text))));
        }
    };
    Some(Ok(RenderedAnswer {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: vec![body.to_string().into_bytes().into()],
        stream: false,
    }))
}

fn page(wire: Wire, models: &[String], request: &Request) -> Value {
    let number = |name: &str, default: usize| {
        let value = request.query_value(name).and_then(|it| it.parse().ok());
        value.unwrap_or(default).max(1)
    };
    let all = |models: &[String]| -> Vec<Value> {
        models.iter().map(|model| entry(wire, model)).collect()
    };
    match wire {
        Wire::Responses | Wire::Chat => json!({"object": "list", "data": all(models)}),
        Wire::Anthropic => {
            let after = request.query_value("after_id");
            let start = after
                .and_then(|id| models.iter().position(|model| *model == id))
                .map_or(0, |at| at + 1);
            let rest = models.get(start..).unwrap_or_default();
            let shown = rest.get(..number("limit", 20)).unwrap_or(rest);
            json!({
                "data": all(shown),
                "has_more": shown.len() < rest.len(),
                "first_id": shown.first(),
                "last_id": shown.last(),
            })
        }
        Wire::Gemini => {
            let token = request.query_value("pageToken");
            let start = token.and_then(|it| it.parse().ok()).unwrap_or(0);
            let rest = models.get(start..).unwrap_or_default();
            let shown = rest.get(..number("pageSize", 50)).unwrap_or(rest);
            let mut page = json!({"models": all(shown)});
            if shown.len() < rest.len() {
                put(
                    &mut page,
                    "nextPageToken",
                    json!((start + shown.len()).to_string()),
                );
            }
            page
        }
    }
}

fn entry(wire: Wire, model: &str) -> Value {
    match wire {
        Wire::Anthropic => json!({
            "type": "model",
            "id": model,
            "display_name": model,
            "created_at": "2025-01-01T00:00:00Z",
        }),
        Wire::Responses | Wire::Chat => json!({
            "id": model,
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": "mock",
        }),
        Wire::Gemini => json!({
            "name": format!("models/{model}"),
            "version": "001",
            "displayName": model,
            "description": "A scripted model.",
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }),
    }
}
