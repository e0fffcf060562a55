//! What a server lists: tools, resources, prompts, item by item.
//!
//! An item that cannot be used costs only itself.

use std::collections::{BTreeMap, HashSet};

use conjure_skill_sdk::protocol::{Effects, Prompt, Resource, ToolDecl, ToolMode};
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::config::{RequestLimits, ServerConfig};
use crate::connection::{Connection, Era};
use crate::headers;
use crate::pages::Pages;
use crate::request_failure::RequestFailure;
use crate::secrets::beginning;
use crate::server::Server;

/// The most bytes of a schema, and how deep it may go.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
const MAX_SCHEMA_DEPTH: usize = 64;
/// The most bytes of a name or a title, and of a description.
const MAX_NAME_BYTES: usize = 1_024;
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;
/// The most bytes of a server's instructions; every request to the model has them.
const MAX_INSTRUCTIONS_BYTES: usize = 4 * 1024;
/// How many hidden resources are named, and the most bytes of each.
const MAX_SHOWN_URIS: usize = 3;
const MAX_SHOWN: usize = 200;
/// Key of `_meta` under which a tool states its mode.
const MODE_KEY: &str = "dev.conjure/mode";

/// Everything that a server lists, in a stable order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<Tool>,
    pub(crate) quarantined: Vec<Quarantined>,
    /// Whether it has resources at all; it may have some that it does not list.
    pub(crate) serves_resources: bool,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<Value>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) instructions: Option<String>,
}

/// A tool that can be called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) decl: ToolDecl,
    /// Whether a call may be repeated when nobody knows whether it took effect.
    pub(crate) idempotent: bool,
    pub(crate) limits: RequestLimits,
}

/// The lists of a server as it sent them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CachedLists {
    tools: Vec<Value>,
    instructions: Option<String>,
    serves_resources: bool,
    resources: Vec<Value>,
    templates: Vec<Value>,
    prompts: Vec<Value>,
}

/// An item that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Quarantined {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Quarantined {
    /// Resources of a server that are not seen, since another server lists their URIs too: by the
    /// first one that does. They are few lines whatever their number is.
    pub(crate) fn hidden(resources: &[(&str, &str)]) -> Vec<Self> {
        let mut by_server: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (uri, first) in resources {
            by_server.entry(first).or_default().push(uri);
        }
        let told = by_server.into_iter().map(|(first, uris)| {
            let shown = uris.iter().take(MAX_SHOWN_URIS);
            let shown = shown.map(|uri| format!("`{}`", beginning((*uri).to_owned(), MAX_SHOWN)));
            let shown = shown.collect::<Vec<_>>().join(", ");
            let name = match uris.len() {
                few if few <= MAX_SHOWN_URIS => format!("{shown} of its resources"),
                all => format!("{shown} and more of its resources, {all} in all,"),
            };
            let why = format!(
                "the MCP server `{first}` lists the same URI, and a list of resources has only \
                 that server's. Without a link of one of the two it is read from neither; set \
                 `resources = false` for one of them"
            );
            Self { name, why }
        });
        told.collect()
    }
}

impl Listing {
    /// Asks for all lists that the server has.
    ///
    /// # Errors
    /// When the tools cannot be listed. Resources and prompts are only missing then.
    pub(crate) async fn load(
        connection: &Connection,
        server: &Server,
    ) -> Result<Self, RequestFailure> {
        let mut listing = Self {
            instructions: instructions(connection.info.instructions.clone(), server),
            ..Self::default()
        };
        let limits = server.config.limits();
        let raw = Pages::read(connection, &server.name, limits, "tools", |params| {
            ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params))
        });
        let raw = raw.await?;
        let raw = listing.without_left_out(raw);
        listing.take_tools(raw, server, connection.era);
        let capabilities = &connection.info.capabilities;
        listing.serves_resources = capabilities.resources.is_some() && server.config.resources;
        if listing.serves_resources {
            let raw = Pages::read(connection, &server.name, limits, "resources", |params| {
                ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params))
            });
            let raw = listing.without_left_out(raw.await.unwrap_or_default());
            listing.resources = raw.iter().filter_map(|r| resource(r, server)).collect();
            let raw = Pages::read(
                connection,
                &server.name,
                limits,
                "resourceTemplates",
                |params| {
                    let request = ListResourceTemplatesRequest::with_param(params);
                    ClientRequest::ListResourceTemplatesRequest(request)
                },
            );
            listing.templates = listing.without_left_out(raw.await.unwrap_or_default());
        }
        if capabilities.prompts.is_some() {
            let raw = Pages::read(connection, &server.name, limits, "prompts", |params| {
                ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params))
            });
            let raw = listing.without_left_out(raw.await.unwrap_or_default());
            listing.prompts = raw.iter().filter_map(|p| prompt(p, server)).collect();
        }
        Ok(listing)
    }

    /// Lists that were read at an earlier time.
    pub(crate) fn from_cache(kept: CachedLists, server: &Server, era: Era) -> Self {
        let mut listing = Self {
            instructions: instructions(kept.instructions, server),
            serves_resources: kept.serves_resources && server.config.resources,
            ..Self::default()
        };
        listing.take_tools(kept.tools, server, era);
        if listing.serves_resources {
            let resources = kept.resources.iter();
            listing.resources = resources.filter_map(|r| resource(r, server)).collect();
            listing.templates = kept.templates;
        }
        let prompts = kept.prompts.iter();
        listing.prompts = prompts.filter_map(|p| prompt(p, server)).collect();
        listing
    }

    /// What of it is worth being remembered.
    pub(crate) fn to_cached(&self) -> CachedLists {
        let raw = |meta: Option<&Value>| meta?.get("mcp").cloned();
        let tools = self.tools.iter();
        let resources = self.resources.iter();
        let prompts = self.prompts.iter();
        CachedLists {
            tools: tools
                .filter_map(|tool| raw(tool.decl.meta.as_ref()))
                .collect(),
            instructions: self.instructions.clone(),
            serves_resources: self.serves_resources,
            resources: resources.filter_map(|one| raw(one.meta.as_ref())).collect(),
            templates: self.templates.clone(),
            prompts: prompts.filter_map(|one| raw(one.meta.as_ref())).collect(),
        }
    }

    /// A tool by its own name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.decl.name == name)
    }

    /// The items of a list; what was left out of it is told with the tools that were.
    fn without_left_out(&mut self, pages: Pages) -> Vec<Value> {
        self.quarantined.extend(pages.omitted);
        pages.items
    }

    fn take_tools(&mut self, raw: Vec<Value>, server: &Server, era: Era) {
        let mut names = HashSet::new();
        for (at, raw) in raw.into_iter().enumerate() {
            let name = raw.get("name").and_then(Value::as_str);
            let shown = name.map(|name| truncate(name.to_owned(), MAX_NAME_BYTES));
            let shown =
                shown.map_or_else(|| format!("tool {}", at + 1), |name| format!("`{name}`"));
            let tool = tool(&raw, server, era).and_then(|tool| {
                if names.insert(tool.decl.name.clone()) {
                    Ok(tool)
                } else {
                    Err("the server has another tool of this name".to_owned())
                }
            });
            match tool {
                Ok(tool) => self.tools.push(tool),
                Err(why) => self.quarantined.push(Quarantined { name: shown, why }),
            }
        }
        // A server's own order may change from list to list.
        self.tools.sort_by(|a, b| a.decl.name.cmp(&b.decl.name));
    }
}

fn tool(raw: &Value, server: &Server, era: Era) -> Result<Tool, String> {
    let config = &server.config;
    let name = match raw.get("name") {
        Some(Value::String(name)) if !name.is_empty() && name.len() <= MAX_NAME_BYTES => {
            name.clone()
        }
        Some(Value::String(_)) => {
            return Err(format!("its name has not 1 to {MAX_NAME_BYTES} bytes"));
        }
        _ => return Err("its name is no text".to_owned()),
    };
    let input_schema = schema(raw.get("inputSchema"))?;
    if config.url.is_some() && era == Era::Modern {
        headers::check(&input_schema)?;
    }
    let output_schema = match raw.get("outputSchema") {
        None | Some(Value::Null) => None,
        // A bad one costs only itself.
        other => schema(other).ok(),
    };
    let text = |field: &str| raw.get(field).and_then(Value::as_str).map(str::to_owned);
    let annotations = raw.get("annotations").filter(|value| value.is_object());
    let hint = |name: &str| {
        let hint = annotations.and_then(|annotations| annotations.get(name));
        hint.and_then(Value::as_bool)
    };
    let description = truncate(
        text("description").unwrap_or_default(),
        MAX_DESCRIPTION_BYTES,
    );
    let mut decl = ToolDecl::new(&name, description, input_schema);
    let title = annotations.and_then(|a| a.get("title")?.as_str().map(str::to_owned));
    let title = text("title").or(title);
    decl.title = title.map(|title| truncate(title, MAX_NAME_BYTES));
    decl.skill = Some(server.name.clone());
    decl.output_schema = output_schema;
    decl.annotations = annotations.cloned();
    let reads_only = hint("readOnlyHint") == Some(true);
    decl.effects = if reads_only && config.trust_annotations {
        Effects::Read
    } else if !reads_only && hint("destructiveHint") == Some(true) {
        Effects::Destructive
    } else {
        Effects::Write
    };
    decl.mode = mode(&name, raw, config, era);
    let limits = config.limits_of(&name);
    // The host's own limit is for a plugin that keeps to none.
    let most = limits.total + limits.idle + std::time::Duration::from_secs(5);
    decl.timeout_ms = u64::try_from(most.as_millis()).ok();
    let own = config.tools.get(&name).and_then(|own| own.idempotent);
    let idempotent = own.unwrap_or(reads_only || hint("idempotentHint") == Some(true));
    decl.meta = Some(json!({ "mcp": raw }));
    Ok(Tool {
        decl,
        idempotent,
        limits,
    })
}

/// What is configured for the tool, what it says itself, what is configured for the server, and
/// then the era.
fn mode(name: &str, raw: &Value, config: &ServerConfig, era: Era) -> ToolMode {
    let own = config.tools.get(name).and_then(|own| own.mode);
    let said = raw
        .get("_meta")
        .and_then(|meta| meta.get(MODE_KEY)?.as_str());
    let said = said.and_then(|mode| match mode {
        "stateless" => Some(ToolMode::Stateless),
        "stateful" => Some(ToolMode::Stateful),
        _ => None,
    });
    own.or(said).or(config.mode).unwrap_or(match era {
        Era::Legacy => ToolMode::Stateful,
        Era::Modern => ToolMode::Stateless,
    })
}

/// A schema that a request can have.
fn schema(raw: Option<&Value>) -> Result<Value, String> {
    let Some(Value::Object(fields)) = raw else {
        return Err("its `inputSchema` is no object".to_owned());
    };
    match fields.get("type") {
        None => {
            let mut fields: Map<String, Value> = fields.clone();
            fields.insert("type".to_owned(), "object".into());
            return check_bounds(Value::Object(fields));
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(format!("its `inputSchema` is of type {other}, not object")),
    }
    check_bounds(Value::Object(fields.clone()))
}

fn check_bounds(schema: Value) -> Result<Value, String> {
    if schema.to_string().len() > MAX_SCHEMA_BYTES {
        return Err(format!("its schema has more than {MAX_SCHEMA_BYTES} bytes"));
    }
    if depth(&schema) > MAX_SCHEMA_DEPTH {
        return Err(format!(
            "its schema is deeper than {MAX_SCHEMA_DEPTH} levels"
        ));
    }
    Ok(schema)
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or_default()
}

/// What a server says about its use, if that is wanted; the end of a long text is left out.
fn instructions(text: Option<String>, server: &Server) -> Option<String> {
    let text = text.filter(|text| server.config.instructions && !text.trim().is_empty())?;
    Some(truncate(text.trim().to_owned(), MAX_INSTRUCTIONS_BYTES))
}

fn truncate(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(" [cut]");
    }
    text
}

fn resource(raw: &Value, server: &Server) -> Option<Resource> {
    let text = |field: &str| raw.get(field).and_then(Value::as_str).map(str::to_owned);
    let uri = text("uri")?;
    Some(Resource {
        name: text("name").unwrap_or_else(|| uri.clone()),
        uri,
        description: text("description"),
        media_type: text("mimeType"),
        meta: Some(json!({ "server": server.name, "mcp": raw })),
    })
}

fn prompt(raw: &Value, server: &Server) -> Option<Prompt> {
    let text = |field: &str| raw.get(field).and_then(Value::as_str).map(str::to_owned);
    let arguments = raw.get("arguments").and_then(Value::as_array);
    Some(Prompt {
        name: text("name")?,
        description: text("description"),
        arguments: arguments.cloned().unwrap_or_default(),
        meta: Some(json!({ "server": server.name, "mcp": raw })),
    })
}
