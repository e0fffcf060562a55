//! The models that a provider lists itself.
//!
//! Reads of each list only a model's name and, where they are told, its sizes.

use async_recursion::async_recursion as boxed;
use conjure_core::wire::Wire;
use serde_json::Value;

use super::http::{AttemptError, with_retries};
use super::http_provider::HttpProvider;
use super::sse_reply;
use super::{ProviderError, ReplySink};

/// The most pages of a list.
const PAGES: usize = 20;
/// The most bytes of a page.
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// A model, as its provider lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Name of the model, as a request has it.
    pub name: String,
    /// Tokens of input, where the provider says so.
    pub context: Option<u64>,
    /// The most tokens of one answer, where the provider says so.
    pub max_output: Option<u64>,
}

impl HttpProvider {
    /// Asks the provider for its models, in its own order.
    ///
    /// # Errors
    /// As for a request.
    #[boxed]
    pub async fn models(&self) -> Result<Vec<ListedModel>, ProviderError> {
        let sink = ReplySink::new(|_| {}, |text| tracing::info!("{text}"));
        let mut listed = Vec::new();
        let mut next = None;
        for _ in 0..PAGES {
            let resource = page(self.wire(), next.as_deref());
            let body =
                with_retries(self.retry(), &sink, async || self.page(&resource).await).await?;
            listed.extend(models_of(&body));
            next = next_page(self.wire(), &body);
            if next.is_none() {
                break;
            }
        }
        Ok(listed)
    }

    async fn page(&self, resource: &str) -> Result<Value, AttemptError> {
        let reply = self.get(resource).await?;
        let bounds = sse_reply::ReplyBounds {
            bytes: PAGE_BYTES,
            ..self.bounds()
        };
        let (body, cut) = sse_reply::read_bounded(reply, &bounds).await;
        let value = serde_json::from_slice(&body).ok().filter(|value: &Value| {
            value.get("data").is_some_and(Value::is_array)
                || value.get("models").is_some_and(Value::is_array)
        });
        value.ok_or_else(|| {
            let message = format!("{} sent no list of models.", self.address());
            self.failed_attempt("protocol", message, cut.is_some())
        })
    }
}

fn page(wire: Wire, next: Option<&str>) -> String {
    let escaped = |text: &str| -> String {
        reqwest::Url::parse_with_params("http://x", [("x", text)])
            .ok()
            .and_then(|url| url.query()?.strip_prefix("x=").map(str::to_owned))
            .unwrap_or_default()
    };
    match (wire, next) {
        (Wire::Anthropic, None) => "models?limit=1000".to_owned(),
        (Wire::Anthropic, Some(next)) => format!("models?limit=1000&after_id={}", escaped(next)),
        (Wire::Gemini, None) => "models?pageSize=1000".to_owned(),
        (Wire::Gemini, Some(next)) => format!("models?pageSize=1000&pageToken={}", escaped(next)),
        (Wire::OpenaiResponses | Wire::OpenaiChat, _) => "models".to_owned(),
    }
}

fn next_page(wire: Wire, body: &Value) -> Option<String> {
    let next = match wire {
        Wire::Anthropic if body.get("has_more") == Some(&Value::Bool(true)) => body.get("last_id"),
        Wire::Gemini => body.get("nextPageToken"),
        _ => None,
    };
    let next = next?.as_str()?;
    (!next.is_empty()).then(|| next.to_owned())
}

fn models_of(body: &Value) -> Vec<ListedModel> {
    let listed = body.get("data").or_else(|| body.get("models"));
    let listed = listed.and_then(Value::as_array).into_iter().flatten();
    listed
        .filter_map(|model| {
            let number = |names: &[&str]| names.iter().find_map(|name| model.get(name)?.as_u64());
            let name = model.get("id").or_else(|| model.get("name"))?.as_str()?;
            Some(ListedModel {
                name: name.strip_prefix("models/").unwrap_or(name).to_owned(),
                context: number(&["context_length", "inputTokenLimit", "max_context_length"]),
                max_output: number(&["outputTokenLimit"]),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use conjure_core::wire::Endpoint;
    use conjure_mock_llm::{MockLlm, Script};
    use serde_json::json;

    use super::super::HttpOptions;
    use super::*;

    #[tokio::test]
    async fn each_provider_lists_its_models() {
        let names: Vec<String> = (0..1200).map(|number| format!("model-{number}")).collect();
        for (wire, name) in [
            (Wire::Anthropic, "anthropic"),
            (Wire::OpenaiResponses, "openai"),
            (Wire::OpenaiChat, "mistral"),
            (Wire::Gemini, "gemini"),
        ] {
            let mock = MockLlm::start_blocking(Script::new().models(names.clone())).unwrap();
            let options = HttpOptions::new(mock.base_url());
            let key = Some("a-key-of-nobody".into());
            let provider = HttpProvider::new(wire, Endpoint::new(name), key, options).unwrap();
            let listed = provider.models().await.unwrap();
            let listed: Vec<String> = listed.into_iter().map(|model| model.name).collect();
            assert_eq!(listed, names, "{wire}");
        }
    }

    #[test]
    fn sizes_are_taken_where_they_are_told() {
        let body = json!({"data": [{"id": "a/b", "context_length": 7}, {"no": "name"}]});
        let told = ListedModel {
            name: "a/b".to_owned(),
            context: Some(7),
            max_output: None,
        };
        assert_eq!(models_of(&body), [told]);
        assert_eq!(
            page(Wire::Gemini, Some("a b&c")),
            "models?pageSize=1000&pageToken=a+b%26c"
        );
    }
}
