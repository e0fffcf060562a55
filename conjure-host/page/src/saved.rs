//! What is saved, as far as the views read it, and what forms send.
//!
//! Here and in the views a type `…Info` is what the page reads of an answer of the API: the members that
//! it shows, and no others.

use std::borrow::Cow;

use axum::extract::{Form, FromRequest, Request};
use axum::response::Response;
use conjure_core::foreign_text::clean;
use conjure_runtime::manager::SessionState;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::client::{ApiClient, ApiProblem, segment};

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct ListPage<T> {
    pub(crate) items: Vec<T>,
    /// Where the next one begins.
    pub(crate) next: Option<String>,
}

/// A saved auth.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AuthInfo {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) provider: String,
    pub(crate) kind: String,
    pub(crate) base_url: Option<String>,
    pub(crate) created_at_ms: i64,
}

impl AuthInfo {
    /// The auth's kind in words.
    pub(crate) fn kind_label(&self) -> &str {
        kind_label(&self.kind)
    }

    /// Whether a model can be asked with it: a secret of an MCP server is none.
    pub(crate) fn is_for_models(&self) -> bool {
        self.provider != "mcp"
    }
}

/// The kind of a saved auth in words.
pub(crate) fn kind_label(kind: &str) -> &str {
    match kind {
        "api_key" => "API key",
        "bearer_token" => "Bearer token",
        "custom_headers" => "Custom headers",
        "base_url" => "Base URL",
        other => other,
    }
}

/// A provider that is known by name.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ProviderInfo {
    pub(crate) name: String,
    pub(crate) base_url: Option<String>,
}

/// A persona.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PersonaInfo {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) persona_text: String,
    pub(crate) updated_at_ms: i64,
}

/// An MCP server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct McpServerInfo {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) settings: Map<String, Value>,
    pub(crate) enabled: bool,
}

/// A session.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SessionInfo {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) auth: SessionAuthInfo,
    pub(crate) model: String,
    pub(crate) working_dir: String,
    pub(crate) persona: PersonaCopyInfo,
    pub(crate) memory: Map<String, Value>,
    pub(crate) tools: Map<String, Value>,
    pub(crate) mcps: Map<String, Value>,
    pub(crate) thread: Option<SessionThreadInfo>,
    pub(crate) state: SessionState,
    pub(crate) queued: usize,
    pub(crate) updated_at_ms: i64,
}

/// The saved auth of a session.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SessionAuthInfo {
    pub(crate) id: String,
    pub(crate) provider: String,
    pub(crate) name: String,
}

/// The persona of a session.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct PersonaCopyInfo {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) persona_text: String,
}

impl PersonaCopyInfo {
    /// As a form asks for it.
    pub(crate) fn as_value(&self) -> Value {
        json!({
            "name": self.name,
            "version": self.version,
            "persona_text": self.persona_text,
        })
    }
}

/// The thread of a session.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SessionThreadInfo {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) turns: u64,
    pub(crate) updated_at_ms: i64,
}

impl SessionInfo {
    /// The name that people see.
    pub(crate) fn shown_name(&self) -> Cow<'_, str> {
        clean(self.name.as_deref().unwrap_or(&self.id))
    }

    /// Address of the session in the page; by its id where its name could be read as another address.
    pub(crate) fn url(&self) -> String {
        let word = self.name.as_deref().unwrap_or(&self.id);
        let word = if matches!(word, "." | "..") {
            &self.id
        } else {
            word
        };
        format!("/sessions/{}", segment(word))
    }

    /// Address of the session in the API.
    pub(crate) fn api(&self) -> String {
        format!("/api/v1/sessions/{}", segment(&self.id))
    }

    /// When it was changed or its thread grew, whichever was later.
    pub(crate) fn used_at_ms(&self) -> i64 {
        let thread = self.thread.as_ref().map(|thread| thread.updated_at_ms);
        self.updated_at_ms.max(thread.unwrap_or_default())
    }

    /// Whether a turn runs.
    pub(crate) fn is_active(&self) -> bool {
        self.state != SessionState::Idle
    }
}

/// A thread.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ThreadInfo {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) last_seq: u64,
}

impl ThreadInfo {
    /// The name that people see.
    pub(crate) fn shown_name(&self) -> Cow<'_, str> {
        match self.label.is_empty() {
            true => Cow::Borrowed(&self.id),
            false => clean(&self.label),
        }
    }
}

/// Everything in a list of the API.
pub(crate) async fn fetch_all<T: DeserializeOwned>(
    api: &ApiClient,
    path: &str,
) -> Result<Vec<T>, ApiProblem> {
    Ok(fetch_first(api, path, usize::MAX).await?.items)
}

/// The first of a list of the API, at least `most` of them where there are more; `next` is there where
/// something is left.
pub(crate) async fn fetch_first<T: DeserializeOwned>(
    api: &ApiClient,
    path: &str,
    most: usize,
) -> Result<ListPage<T>, ApiProblem> {
    let mut found: Vec<T> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let from = cursor.map_or_else(String::new, |cursor| {
            format!("&cursor={}", segment(&cursor))
        });
        let page: ListPage<T> = api.get(&format!("{path}?limit=200{from}")).await?;
        found.extend(page.items);
        cursor = page.next;
        if cursor.is_none() || found.len() >= most {
            return Ok(ListPage {
                items: found,
                next: cursor,
            });
        }
    }
}

/// What is in a list of the API that has no pages.
pub(crate) async fn items<T: DeserializeOwned>(
    api: &ApiClient,
    path: &str,
) -> Result<Vec<T>, ApiProblem> {
    let page: ListPage<T> = api.get(path).await?;
    Ok(page.items)
}

/// A session by its id or its name.
pub(crate) async fn session(api: &ApiClient, name: &str) -> Result<SessionInfo, ApiProblem> {
    api.get(&format!("/api/v1/sessions/{}", segment(name)))
        .await
}

/// What a form sent: names and values, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct FormData(Vec<(String, String)>);

impl FormData {
    /// What was sent under a name; empty where nothing was. Line ends are those of this system.
    pub(crate) fn text(&self, name: &str) -> String {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map_or_else(String::new, |(_, value)| value.replace("\r\n", "\n"))
    }

    /// Like [`Self::text`], without blanks around the value.
    pub(crate) fn line(&self, name: &str) -> String {
        self.text(name).trim().to_owned()
    }

    /// Whether anything was sent under a name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// Everything that was sent under a name.
    pub(crate) fn all_values(&self, name: &str) -> Vec<&str> {
        let found = self.0.iter().filter(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// The lines of what was sent under a name that say anything.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

impl<const N: usize> From<[(&str, String); N]> for FormData {
    fn from(pairs: [(&str, String); N]) -> Self {
        Self(pairs.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

impl<S: Send + Sync> FromRequest<S> for FormData {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let sent = Form::<Vec<(String, String)>>::from_request(request, state).await;
        let Form(sent) = sent.map_err(axum::response::IntoResponse::into_response)?;
        Ok(Self(sent))
    }
}

/// The field of a form that a problem is about.
fn wrong_field<'a>(problem: &ApiProblem, fields: &[&'a str]) -> Option<&'a str> {
    let named = problem.field()?;
    fields.iter().find(|field| **field == named).copied()
}

/// A problem beside the field that it is about.
pub(crate) struct FormProblem<'a> {
    problem: Option<&'a ApiProblem>,
    field: Option<&'a str>,
}

impl<'a> FormProblem<'a> {
    /// Assigns a problem to the field of the form that it is about.
    pub(crate) fn of(problem: Option<&'a ApiProblem>, fields: &[&'a str]) -> Self {
        let field = problem.and_then(|problem| wrong_field(problem, fields));
        Self { problem, field }
    }

    /// What is wrong with a field.
    pub(crate) fn for_field(&self, field: &str) -> Option<&'a str> {
        let problem = self.problem.filter(|_| self.field == Some(field))?;
        Some(&problem.detail)
    }

    /// What is wrong with no field of its own.
    pub(crate) fn general(&self) -> Option<&'a str> {
        let problem = self.problem.filter(|_| self.field.is_none())?;
        Some(&problem.detail)
    }
}

/// A problem that this form found itself with one of its fields.
pub(crate) fn invalid_at(field: &str, detail: impl Into<String>) -> ApiProblem {
    let mut problem = invalid(detail);
    problem.more.insert("field".to_owned(), field.into());
    problem
}

/// A problem that this form found itself.
pub(crate) fn invalid(detail: impl Into<String>) -> ApiProblem {
    ApiProblem {
        title: "Invalid".to_owned(),
        status: 422,
        detail: detail.into(),
        more: Box::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_at_the_field_that_it_has_as_data_whatever_its_words_are() {
        let problem = invalid_at("model", "`name` and the working directory are fine");
        let wrong = FormProblem::of(Some(&problem), &["name", "working_dir", "model"]);
        assert_eq!(wrong.for_field("model"), Some(problem.detail.as_str()));
        assert_eq!((wrong.for_field("name"), wrong.general()), (None, None));
        // A field that this form has not: it stands above the form.
        let wrong = FormProblem::of(Some(&problem), &["name"]);
        assert_eq!(wrong.for_field("name"), None);
        assert!(wrong.general().is_some());
    }

    #[test]
    fn a_form_gives_texts_lines_and_lists() {
        let pairs = [("a", " x \r\n\r\n y"), ("b", "1"), ("b", "2")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let sent = FormData(pairs.to_vec());
        assert_eq!(sent.text("a"), " x \n\n y");
        assert_eq!(sent.lines("a"), ["x", "y"]);
        assert_eq!(sent.all_values("b"), ["1", "2"]);
        assert!(sent.has("b") && !sent.has("c"));
    }
}
