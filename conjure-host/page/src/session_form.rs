//! The fields of a session, as the dialogs that create one and that configure one have them, and what
//! a form of them asks the API for.

use axum::http::Method;
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::forms::Field;
use crate::json_form::{Tabs, object};
use crate::personas;
use crate::saved::{
    AuthInfo, FormData, FormProblem, PersonaCopyInfo, PersonaInfo, SessionInfo, fetch_all,
    invalid_at, items,
};

/// The members of a session that a problem may name.
pub(crate) const FIELDS: [&str; 9] = [
    "name",
    "auth",
    "model",
    "working_dir",
    "persona",
    "persona_text",
    "version",
    "memory",
    "thread",
];
/// The choice of a persona that is written in the form.
const NEW: &str = "new";
/// The choice of the copy that a session has.
const KEEP: &str = "keep";

/// What the fields choose from.
pub(crate) struct Choices {
    auths: Vec<AuthInfo>,
    personas: Vec<PersonaInfo>,
}

impl Choices {
    pub(crate) async fn read(app: &PageState) -> Result<Self, ApiProblem> {
        let mut auths: Vec<AuthInfo> = fetch_all(&app.api, "/api/v1/auths").await?;
        auths.retain(AuthInfo::is_for_models);
        Ok(Self {
            auths,
            personas: fetch_all(&app.api, "/api/v1/personas").await?,
        })
    }

    /// Whether there is nothing to ask a model with.
    pub(crate) fn has_no_auth(&self) -> bool {
        self.auths.is_empty()
    }

    fn providers(&self) -> Vec<(String, String)> {
        let mut names: Vec<&str> = self
            .auths
            .iter()
            .map(|auth| auth.provider.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let all = [(String::new(), "All providers".to_owned())];
        let named = names
            .iter()
            .map(|name| ((*name).to_owned(), (*name).to_owned()));
        all.into_iter().chain(named).collect()
    }

    /// The auth that a choice leads to: the one that was chosen where the filter lets it, else the
    /// first that it lets.
    pub(crate) fn auth(&self, provider: &str, chosen: &str) -> Option<&AuthInfo> {
        let found = self.of(provider).find(|auth| auth.id == chosen);
        found.or_else(|| self.of(provider).next())
    }

    fn of(&self, provider: &str) -> impl Iterator<Item = &AuthInfo> {
        let is_of = move |auth: &&AuthInfo| provider.is_empty() || auth.provider == provider;
        self.auths.iter().filter(is_of)
    }
}

/// Auth and model, after the choice of a provider or an auth.
pub(crate) struct AuthFields<'a> {
    /// What the ids begin with.
    pub(crate) prefix: &'a str,
    pub(crate) choices: &'a Choices,
    pub(crate) provider: &'a str,
    pub(crate) auth: &'a str,
    pub(crate) model: &'a str,
    /// Where a form without script goes to have the saved auths filtered.
    pub(crate) filter: &'a str,
}

impl AuthFields<'_> {
    /// The fields; they are put in place anew when provider or auth is another one.
    pub(crate) fn show(&self, wrong: &FormProblem<'_>) -> Markup {
        let prefix = self.prefix;
        let chosen = self.choices.auth(self.provider, self.auth);
        let auths = self.choices.of(self.provider).map(|auth| {
            let words = format!("{} ({}, {})", auth.name, auth.provider, auth.kind_label());
            (auth.id.clone(), words)
        });
        let auths: Vec<(String, String)> = auths.collect();
        let changed = format!("/choices/{prefix}");
        html! {
            div #{ (prefix) "-auth-fields" } {
                (changing(&Field::new(&format!("{prefix}-provider"), "provider", "Provider")
                    .hint("Only filters the saved auths"), &changed, self.provider, &self.choices.providers()))
                (changing(&Field::new(&format!("{prefix}-auth"), "auth", "Saved auth").required()
                    .error(wrong.for_field("auth")), &changed, chosen.map_or("", |auth| &auth.id), &auths))
                (model_field(prefix, self.model, wrong.for_field("model"), None))
                @if let Some(auth) = chosen {
                    div data-fetch={ "/choices/" (prefix) "/models?auth=" (segment(&auth.id)) } {}
                }
                noscript { button id={ (prefix) "-filter" } formnovalidate formaction=(self.filter) { "Filter" } }
            }
        }
    }
}

/// A choice that others depend on.
fn changing(field: &Field<'_>, url: &str, chosen: &str, all: &[(String, String)]) -> Markup {
    let said =
        (field.error.is_some() || !field.hint.is_empty()).then(|| format!("{}-words", field.id));
    html! {
        div.field {
            label for=(field.id) { (field.label) }
            select id=(field.id) name=(field.name) data-change=(url) required[field.required]
                aria-invalid=[field.error.map(|_| "true")] aria-describedby=[said.as_deref()]
                autofocus[field.error.is_some()] {
                @for (value, words) in all {
                    option value=(value) selected[value == chosen] { (words) }
                }
            }
            @if let Some(id) = &said {
                p.hint.wrong[field.error.is_some()] id=(id) { (field.error.unwrap_or(field.hint)) }
            }
        }
    }
}

/// The model: any name, with those that the provider lists proposed.
fn model_field(
    prefix: &str,
    value: &str,
    error: Option<&str>,
    listed: Option<&Result<Vec<String>, ApiProblem>>,
) -> Markup {
    let (id, list) = (format!("{prefix}-model"), format!("{prefix}-models"));
    html! {
        div.field {
            label for=(id) { "Model" }
            input id=(id) name="model" type="text" value=(value) list=(list) required autocomplete="off"
                spellcheck="false" aria-invalid=[error.map(|_| "true")] aria-describedby={ (id) "-words" }
                autofocus[error.is_some()];
            (model_list(prefix, error, listed))
        }
    }
}

/// The models that are proposed, and what is said of them.
fn model_list(
    prefix: &str,
    error: Option<&str>,
    listed: Option<&Result<Vec<String>, ApiProblem>>,
) -> Markup {
    html! {
        div id={ (prefix) "-model-list" } {
            datalist id={ (prefix) "-models" } {
                @if let Some(Ok(models)) = listed {
                    @for model in models { option value=(model) {} }
                }
            }
            p.hint.wrong[error.is_some()] id={ (prefix) "-model-words" } {
                @match (error, listed) {
                    (Some(error), _) => (error),
                    (None, Some(Ok(models))) if models.len() == 1 => "One model of this provider",
                    (None, Some(Ok(models))) => { (models.len()) " models of this provider" },
                    (None, Some(Err(problem))) => { "Type its name; the provider gave no list: " (problem.detail) },
                    (None, None) => "As the provider names it",
                }
            }
        }
    }
}

/// The models that the provider of an auth lists, for the field of the model.
pub(crate) async fn models(app: &PageState, prefix: &str, auth: &str) -> Markup {
    #[derive(serde::Deserialize)]
    struct ModelInfo {
        model: String,
    }
    let path = format!("/api/v1/auths/{}/models", segment(auth));
    let listed = items::<ModelInfo>(&app.api, &path).await;
    let listed = listed.map(|models| models.into_iter().map(|model| model.model).collect());
    model_list(prefix, None, Some(&listed))
}

/// The working directory.
pub(crate) fn working_dir(prefix: &str, value: &str, wrong: &FormProblem<'_>) -> Markup {
    let id = format!("{prefix}-dir");
    let field = Field::new(&id, "working_dir", "Working dir").required();
    let hint = "Where tools work: an absolute path on the server's machine";
    field
        .error(wrong.for_field("working_dir"))
        .hint(hint)
        .input("text", value)
}

/// The persona: one of the list, the copy that the session has, or one that is added to the list here.
pub(crate) fn persona(
    prefix: &str,
    choices: &Choices,
    sent: &FormData,
    kept: Option<&PersonaCopyInfo>,
    wrong: &FormProblem<'_>,
) -> Markup {
    let kept = kept.filter(|kept| !kept.name.is_empty() || !kept.persona_text.is_empty());
    let mut all: Vec<(String, String)> = Vec::new();
    if let Some(kept) = kept {
        let name = if kept.name.is_empty() {
            "unnamed"
        } else {
            &kept.name
        };
        all.push((
            KEEP.to_owned(),
            clean(&format!("As it is: {name} {}", kept.version)).into_owned(),
        ));
    }
    all.push((String::new(), "None".to_owned()));
    let listed = choices.personas.iter();
    all.extend(listed.map(|one| {
        (
            one.id.clone(),
            clean(&format!("{} {}", one.name, one.version)).into_owned(),
        )
    }));
    all.push((NEW.to_owned(), "Add a new one…".to_owned()));
    let chosen = match sent.has("persona") {
        true => sent.text("persona"),
        false if kept.is_some() => KEEP.to_owned(),
        false => String::new(),
    };
    let id = format!("{prefix}-persona");
    // What is wrong with a new one stands beside its own fields.
    let at_choice = wrong.for_field("persona").filter(|_| chosen != NEW);
    html! {
        fieldset.persona {
            legend { "Persona" }
            (Field::new(&id, "persona", "Which").error(at_choice).select(&chosen, &all))
            @if let Some(kept) = kept {
                details.kept id={ (id) "-kept" } { summary id={ (id) "-kept-show" } { "Its text" } pre.said { (clean(&kept.persona_text)) } }
            }
            div.added { (personas::fields(&id, sent, wrong, true)) }
        }
    }
}

/// The memory: as a text with its name, or whole as JSON.
pub(crate) fn memory(
    prefix: &str,
    sent: &FormData,
    memory: &Map<String, Value>,
    wrong: &FormProblem<'_>,
) -> Markup {
    let tabs = Tabs::new(prefix, "memory", "Memory", sent);
    let id = |what: &str| format!("{prefix}-memory-{what}");
    let text = |name: &str, member: &str| match sent.has("memory_mode") {
        true => sent.text(name),
        false => memory
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
    };
    let form = html! {
        (Field::new(&id("name"), "memory_name", "Name").input("text", &text("memory_name", "name")))
        (Field::new(&id("version"), "memory_version", "Version")
            .input("text", &text("memory_version", "version")))
        (Field::new(&id("text"), "memory_text", "Text").hint("What the model remembers")
            .textarea(4, &text("memory_text", "memory_text")))
    };
    tabs.show(
        &form,
        "Any object; the model reads memory_text as it is and the rest as JSON",
        memory,
        wrong.for_field("memory"),
    )
}

/// The memory that a form asks for. A form of the text keeps the other members.
fn memory_of(
    sent: &FormData,
    before: &Map<String, Value>,
) -> Result<Map<String, Value>, ApiProblem> {
    if sent.text("memory_mode") == "json" {
        return object("memory", &sent.text("memory_json"));
    }
    let mut memory = before.clone();
    for (name, member) in [
        ("memory_name", "name"),
        ("memory_version", "version"),
        ("memory_text", "memory_text"),
    ] {
        let text = sent.text(name);
        if text.is_empty() {
            memory.remove(member);
        } else {
            memory.insert(member.to_owned(), text.into());
        }
    }
    Ok(memory)
}

/// What a form of these fields asks for: the members of a new session, or of a change.
pub(crate) struct SessionDraft {
    pub(crate) members: Map<String, Value>,
}

impl SessionDraft {
    /// Reads what a form sent. A persona that is written in it is saved first.
    pub(crate) async fn read(
        app: &PageState,
        sent: &FormData,
        before: Option<&SessionInfo>,
    ) -> Result<Self, ApiProblem> {
        let mut members = Map::new();
        for name in ["name", "auth", "model", "working_dir"] {
            members.insert(name.to_owned(), sent.line(name).into());
        }
        let nothing = Map::new();
        let memory = memory_of(sent, before.map_or(&nothing, |before| &before.memory))?;
        members.insert("memory".to_owned(), memory.into());
        if let Some(persona) = persona_of(app, sent).await? {
            members.insert("persona".to_owned(), persona);
        }
        Ok(Self { members })
    }
}

/// The copy of the persona that a form chose; nothing where the session's own stays.
async fn persona_of(app: &PageState, sent: &FormData) -> Result<Option<Value>, ApiProblem> {
    let choice = sent.text("persona");
    let copy = match choice.as_str() {
        KEEP => return Ok(None),
        "" => PersonaCopyInfo::default(),
        id => {
            let persona: PersonaInfo = if id == NEW {
                let body = personas::body(sent);
                let made = app.api.send(Method::POST, "/api/v1/personas", &body);
                match made.await {
                    Ok(persona) => persona,
                    // It was saved with a form whose rest was refused then.
                    Err(problem) => matching_persona(app, &body)
                        .await?
                        .ok_or_else(|| of_persona(&problem))?,
                }
            } else {
                app.api
                    .get(&format!("/api/v1/personas/{}", segment(id)))
                    .await?
            };
            PersonaCopyInfo {
                name: persona.name,
                version: persona.version,
                persona_text: persona.persona_text,
            }
        }
    };
    Ok(Some(copy.as_value()))
}

/// The persona of the list that is just this one.
async fn matching_persona(
    app: &PageState,
    body: &Value,
) -> Result<Option<PersonaInfo>, ApiProblem> {
    let listed: Vec<PersonaInfo> = fetch_all(&app.api, "/api/v1/personas").await?;
    let is_it = |one: &PersonaInfo| {
        *body
            == json!({ "name": one.name, "version": one.version, "persona_text": one.persona_text })
    };
    Ok(listed.into_iter().find(is_it))
}

/// A problem with a persona that is to be saved, at the choice of the persona.
fn of_persona(problem: &ApiProblem) -> ApiProblem {
    let detail = format!("`persona` could not be saved: {}", problem.detail);
    invalid_at("persona", detail)
}
