//! What a skill has beside tools: resources, templates of them, prompts, completions.
//!
//! An instance is asked for these lists; they are not read from the manifest, so they may depend on
//! its state. The manifest says which operations there are.

use std::collections::BTreeMap;

use conjure_abi::CallContext;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::contents::Contents;
use super::run_time::RunTime;
use super::uri_template::UriTemplate;
use super::{Skill, text_arguments};
use crate::cx::Cx;
use crate::dispatch::{decode, encode, unsupported};
use crate::error::{Error, Result};
use crate::protocol::{
    Complete, Completions, Empty, Prompt, PromptGet, PromptText, Prompts, Resource, ResourceRead,
    ResourceWatch, Resources, op,
};
use crate::spill;

/// The most values that a completion has.
const MAX_VALUES: usize = 100;

type ContentsFn = Box<dyn Fn(&Cx) -> Result<Contents> + Send + Sync>;
type ReadWith = Box<dyn Fn(&Cx, &[(String, String)]) -> Result<Contents> + Send + Sync>;
type PromptTextFn = Box<dyn Fn(&Cx, &BTreeMap<String, String>) -> Result<PromptText> + Send + Sync>;
type CompletionFn = Box<dyn Fn(&Cx, &Complete) -> Result<Completions> + Send + Sync>;
type WatchFn = Box<dyn Fn(&Cx, &str, bool) -> Result<()> + Send + Sync>;

/// Resources whose URIs follow a pattern, such as `note://{day}`.
///
/// In the pattern `{name}` stands for a text without `/`, `{+name}` for any text, and `{?a,b}`
/// at the end for parameters that may be left out.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceTemplate {
    uri: String,
    fields: Map<String, Value>,
}

impl ResourceTemplate {
    /// A template with a name.
    pub fn new(uri_template: &str, name: &str) -> Self {
        let template = Self {
            uri: uri_template.to_owned(),
            fields: Map::new(),
        };
        template
            .field("uriTemplate", json!(uri_template))
            .field("name", json!(name))
    }

    /// What these resources are.
    #[must_use]
    pub fn description(self, description: &str) -> Self {
        self.field("description", json!(description))
    }

    /// The media type that all of them have.
    #[must_use]
    pub fn media_type(self, media_type: &str) -> Self {
        self.field("mimeType", json!(media_type))
    }

    /// Any other member of MCP's resource template, such as `title` or `annotations`.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.to_owned(), value);
        self
    }
}

impl Skill {
    /// Registers a resource, and what reads it.
    #[must_use]
    pub fn resource<C: Into<Contents>>(
        mut self,
        resource: Resource,
        read: impl Fn(&Cx) -> Result<C> + Send + Sync + 'static,
    ) -> Self {
        let read: ContentsFn = Box::new(move |cx| read(cx).map(Into::into));
        self.lists.resources.push((resource, read));
        self
    }

    /// Registers resources that follow a pattern. The variables of the URI become the fields of
    /// the type; those that do not fit are answered with an error that says so.
    #[must_use]
    pub fn resource_template<A: DeserializeOwned, C: Into<Contents>>(
        mut self,
        template: ResourceTemplate,
        read: impl Fn(&Cx, A) -> Result<C> + Send + Sync + 'static,
    ) -> Self {
        let name = template.uri.clone();
        let read: ReadWith = Box::new(move |cx, variables| {
            let variables = variables.iter().map(|(name, value)| (&**name, &**value));
            let variables = text_arguments::read(variables).map_err(|error| {
                Error::invalid(format!("the variables of `{name}` do not fit: {error}"))
            })?;
            read(cx, variables).map(Into::into)
        });
        self.lists.templates.push((template, read));
        self
    }

    /// Registers what is told of resources that a client wants to hear about, and of those that
    /// it does not any more (`false`). Only for a skill to which that makes a difference:
    /// [`Cx::resource_updated`] works without it.
    #[must_use]
    pub fn on_subscribe(
        mut self,
        watch: impl Fn(&Cx, &str, bool) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.lists.watches = Some(Box::new(watch));
        self
    }

    /// Registers a prompt whose arguments are the fields of a type, each a text, a number, a flag
    /// or an enum of words; [`Empty`] for none.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn prompt<A, P>(
        self,
        name: &str,
        description: &str,
        get: impl Fn(&Cx, A) -> Result<P> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + schemars::JsonSchema + 'static,
        P: Into<PromptText>,
    {
        let prompt = Prompt {
            name: name.to_owned(),
            description: Some(description.to_owned()),
            arguments: arguments_of(&super::schema_of::<A>()),
            meta: None,
        };
        let name = name.to_owned();
        self.raw_prompt(prompt, move |cx, arguments| {
            let words = arguments.iter().map(|(name, text)| (&**name, &**text));
            let arguments = text_arguments::read(words).map_err(|error| {
                Error::invalid(format!(
                    "the arguments of the prompt `{name}` do not fit: {error}"
                ))
            })?;
            get(cx, arguments)
        })
    }

    /// Registers a prompt with arguments described by hand, in MCP's form.
    #[must_use]
    pub fn raw_prompt<P: Into<PromptText>>(
        mut self,
        prompt: Prompt,
        get: impl Fn(&Cx, &BTreeMap<String, String>) -> Result<P> + Send + Sync + 'static,
    ) -> Self {
        let get: PromptTextFn = Box::new(move |cx, arguments| get(cx, arguments).map(Into::into));
        self.lists.prompts.push((prompt, get));
        self
    }

    /// Registers what completes an argument of a prompt, or a variable of a resource template,
    /// which is named by its URI. A completion has at most 100 values; what is beyond is cut.
    #[must_use]
    pub fn complete<V: Into<Completions>>(
        mut self,
        of: &str,
        argument: &str,
        complete: impl Fn(&Cx, &Complete) -> Result<V> + Send + Sync + 'static,
    ) -> Self {
        let complete: CompletionFn = Box::new(move |cx, asked| complete(cx, asked).map(Into::into));
        let of = (of.to_owned(), argument.to_owned());
        self.lists.completions.push((of, complete));
        self
    }
}

#[cfg(feature = "schema")]
fn arguments_of(schema: &Value) -> Vec<Value> {
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.map_or(&[][..], Vec::as_slice);
    let properties = schema.get("properties").and_then(Value::as_object);
    let arguments = properties.into_iter().flatten().map(|(name, property)| {
        let mut argument = Map::new();
        argument.insert("name".to_owned(), json!(name));
        for kept in ["title", "description"] {
            if let Some(text) = property.get(kept) {
                argument.insert(kept.to_owned(), text.clone());
            }
        }
        let required = required.contains(&json!(name));
        argument.insert("required".to_owned(), json!(required));
        Value::Object(argument)
    });
    arguments.collect()
}

/// What a skill has beside tools.
#[derive(Default)]
pub(super) struct SkillLists {
    resources: Vec<(Resource, ContentsFn)>,
    templates: Vec<(ResourceTemplate, ReadWith)>,
    watches: Option<WatchFn>,
    prompts: Vec<(Prompt, PromptTextFn)>,
    completions: Vec<((String, String), CompletionFn)>,
}

impl SkillLists {
    /// The operations that there are.
    pub(super) fn operations(&self, more: &RunTime) -> impl Iterator<Item = &'static str> + use<> {
        let resources =
            !self.resources.is_empty() || !self.templates.is_empty() || more.resources.is_some();
        let prompts = !self.prompts.is_empty() || more.prompts.is_some();
        let watches = self.watches.is_some();
        [
            (op::RESOURCE_LIST, resources),
            (op::RESOURCE_READ, resources),
            (op::RESOURCE_SUBSCRIBE, watches),
            (op::RESOURCE_UNSUBSCRIBE, watches),
            (op::PROMPT_LIST, prompts),
            (op::PROMPT_GET, prompts),
            (op::COMPLETE, !self.completions.is_empty()),
        ]
        .into_iter()
        .filter_map(|(op, there)| there.then_some(op))
    }

    /// What is wrong with them.
    pub(super) fn validate(&self) -> Result<()> {
        for (template, _) in &self.templates {
            UriTemplate::read(&template.uri)?;
        }
        let resources = self.resources.iter().map(|(resource, _)| &resource.uri);
        check_unique("resources have the URI", resources)?;
        let templates = self.templates.iter().map(|(template, _)| &template.uri);
        check_unique("resource templates are", templates)?;
        let prompts = self.prompts.iter().map(|(prompt, _)| &prompt.name);
        check_unique("prompts are called", prompts)?;
        for ((of, argument), _) in &self.completions {
            let known = self.prompts.iter().any(|(prompt, _)| prompt.name == *of)
                || self
                    .templates
                    .iter()
                    .any(|(template, _)| template.uri == *of);
            if !known {
                return Err(Error::invalid(format!(
                    "`{argument}` of `{of}` is completed, but there is no such prompt or resource \
                     template: register it, or mend the name"
                )));
            }
        }
        Ok(())
    }

    /// Answers one of [`SkillLists::operations`].
    pub(super) fn answer(
        &self,
        more: &RunTime,
        name: &str,
        json: &[u8],
        raw: CallContext,
    ) -> Result<Vec<u8>> {
        match name {
            op::RESOURCE_LIST => {
                let (Empty {}, envelope) = decode(name, json)?;
                encode(&self.resources(more, &Cx::new(raw, envelope))?)
            }
            op::RESOURCE_READ => {
                let (ResourceRead { uri }, envelope) = decode(name, json)?;
                let cx = Cx::new(raw, envelope);
                let (contents, media_type) = self.read(more, &cx, &uri)?;
                let dir = cx.exchange_dir();
                let reply = contents.reply(&uri, media_type.as_deref(), dir);
                Ok(spill::encode(reply, dir)?)
            }
            op::RESOURCE_SUBSCRIBE | op::RESOURCE_UNSUBSCRIBE => {
                let (ResourceWatch { uri }, envelope) = decode(name, json)?;
                if let Some(watch) = &self.watches {
                    let on = name == op::RESOURCE_SUBSCRIBE;
                    watch(&Cx::new(raw, envelope), &uri, on)?;
                }
                encode(&Empty {})
            }
            op::PROMPT_LIST => {
                let (Empty {}, envelope) = decode(name, json)?;
                encode(&self.prompts(more, &Cx::new(raw, envelope))?)
            }
            op::PROMPT_GET => {
                let (request, envelope) = decode(name, json)?;
                encode(&self.get(more, &Cx::new(raw, envelope), &request)?)
            }
            op::COMPLETE => {
                let (request, envelope) = decode(name, json)?;
                encode(&self.run_completion(&Cx::new(raw, envelope), &request)?)
            }
            _ => Err(unsupported(name)),
        }
    }

    fn resources(&self, more: &RunTime, cx: &Cx) -> Result<Resources> {
        let known = self.resources.iter().map(|(resource, _)| resource.clone());
        let mut resources: Vec<Resource> = known.collect();
        if let Some(more) = &more.resources {
            resources.extend((more.list)(cx)?);
        }
        let templates = self.templates.iter();
        Ok(Resources {
            resources,
            resource_templates: templates
                .map(|(template, _)| Value::Object(template.fields.clone()))
                .collect(),
        })
    }

    fn read(&self, more: &RunTime, cx: &Cx, uri: &str) -> Result<(Contents, Option<String>)> {
        if let Some((resource, read)) = self.resources.iter().find(|(known, _)| known.uri == uri) {
            return Ok((read(cx)?, resource.media_type.clone()));
        }
        for (template, read) in &self.templates {
            if let Some(variables) = UriTemplate::read(&template.uri)?.matches(uri) {
                let media_type = template.fields.get("mimeType").and_then(Value::as_str);
                return Ok((read(cx, &variables)?, media_type.map(str::to_owned)));
            }
        }
        let Some(more) = &more.resources else {
            return Err(Error::not_found(format!("there is no resource `{uri}`")));
        };
        let contents = (more.read)(cx, uri)?;
        // Only for its media type, which is not worth losing the contents.
        let listed = (more.list)(cx).unwrap_or_default();
        let listed = listed.into_iter().find(|known| known.uri == uri);
        Ok((contents, listed.and_then(|resource| resource.media_type)))
    }

    fn prompts(&self, more: &RunTime, cx: &Cx) -> Result<Prompts> {
        let known = self.prompts.iter().map(|(prompt, _)| prompt.clone());
        let mut prompts: Vec<Prompt> = known.collect();
        if let Some(more) = &more.prompts {
            prompts.extend((more.list)(cx)?);
        }
        Ok(Prompts { prompts })
    }

    fn get(&self, more: &RunTime, cx: &Cx, request: &PromptGet) -> Result<PromptText> {
        let PromptGet { name, arguments } = request;
        match self.prompts.iter().find(|(known, _)| known.name == *name) {
            Some((prompt, get)) => {
                let mut text = get(cx, arguments)?;
                text.description = text.description.or_else(|| prompt.description.clone());
                Ok(text)
            }
            None => match &more.prompts {
                Some(more) => (more.get)(cx, name, arguments),
                None => Err(Error::not_found(format!("there is no prompt `{name}`"))),
            },
        }
    }

    fn run_completion(&self, cx: &Cx, request: &Complete) -> Result<Completions> {
        let named = |member: &str| request.reference.get(member).and_then(Value::as_str);
        let of = named("name").or_else(|| named("uri")).unwrap_or_default();
        let known = self
            .completions
            .iter()
            .find(|((known, argument), _)| known == of && *argument == request.argument);
        let mut completions = match known {
            Some((_, complete)) => complete(cx, request)?,
            None => Completions::default(),
        };
        if completions.values.len() > MAX_VALUES {
            let all = u64::try_from(completions.values.len()).ok();
            completions.total = completions.total.or(all);
            completions.more = true;
            completions.values.truncate(MAX_VALUES);
        }
        Ok(completions)
    }
}

fn check_unique<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::invalid(format!("two {what} `{name}`: rename one")));
        }
    }
    Ok(())
}
