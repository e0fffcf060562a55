//! The tools of a session as an MCP client sees them.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_core::routing::{CallMode, EffectLevel, PolicyDecision, Route};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use super::meta_tools;
use super::names;
use super::options::MetaTools;
use super::whole;
use conjure_runtime::backend::ToolSnapshot;
use conjure_runtime::session::ToolSession;

/// Key of a tool's `_meta` with the mode of its calls: `stateful` or `stateless`.
const MODE: &str = "dev.conjure/mode";

/// The served tools of one snapshot.
pub(super) struct ServedTools {
    pub(super) snapshot: Arc<ToolSnapshot>,
    tools: Vec<ServedTool>,
    by_name: HashMap<String, usize>,
    meta: MetaTools,
}

/// A tool with the route behind it.
pub(super) struct ServedTool {
    /// The routing table's name of it.
    pub(super) public: String,
    /// Calls in one lane run one after the other; nothing when they need no order.
    pub(super) lane: Option<String>,
    pub(super) tool: Tool,
    /// All that its source says of it, where the SDK's type has no place for some.
    whole: Option<Value>,
}

impl ServedTool {
    /// Definition of the tool, as JSON.
    pub(super) fn definition(&self) -> Value {
        match &self.whole {
            Some(whole) => whole.clone(),
            None => serde_json::to_value(&self.tool).unwrap_or_default(),
        }
    }
}

impl ServedTools {
    /// Those of a snapshot, without what the session's rules deny whatever the arguments are.
    pub(super) fn of(calls: &ToolSession, snapshot: Arc<ToolSnapshot>, meta: MetaTools) -> Self {
        let own: &[&str] = match meta {
            MetaTools::Off => &[],
            MetaTools::Beside | MetaTools::Instead => &meta_tools::NAMES,
        };
        let names = names::served_names(snapshot.table(), own);
        let routes = snapshot.table().routes().iter();
        let mut tools: Vec<ServedTool> = routes
            .zip(names)
            .filter(|(route, _)| {
                let rule = calls.rule_for(&snapshot, route.name.as_str(), &json!({}));
                rule != Some(PolicyDecision::Deny)
            })
            .filter_map(|(route, name)| serve_tool(route, &name))
            .collect();
        tools.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
        let by_name = tools.iter().enumerate();
        let by_name = by_name.map(|(at, served)| (served.tool.name.to_string(), at));
        let by_name = by_name.collect();
        Self {
            snapshot,
            tools,
            by_name,
            meta,
        }
    }

    /// The tools that a list shows, ready to be sent.
    pub(super) fn listed(&self) -> Vec<Value> {
        let routed = self.tools.iter();
        let routed = routed.map(|served| whole::tool_json(&served.tool, served.whole.as_ref()));
        let own = meta_tools::tools();
        let own = own.iter().map(|tool| whole::tool_json(tool, None));
        match self.meta {
            MetaTools::Off => routed.collect(),
            MetaTools::Beside => routed.chain(own).collect(),
            MetaTools::Instead => own.collect(),
        }
    }

    /// All routed tools.
    pub(super) fn all(&self) -> &[ServedTool] {
        &self.tools
    }

    /// A routed tool by its served name.
    pub(super) fn find(&self, name: &str) -> Option<&ServedTool> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// Whether the name is one of the server's own tools.
    pub(super) fn is_meta(&self, name: &str) -> bool {
        self.meta != MetaTools::Off && meta_tools::NAMES.contains(&name)
    }
}

fn serve_tool(route: &Route, name: &str) -> Option<ServedTool> {
    let mut raw = raw(route, name);
    let tool = serde_json::from_value(raw.clone()).or_else(|_| {
        // What a peer wrote into these costs only themselves.
        if let Some(fields) = raw.as_object_mut() {
            for field in ["annotations", "icons", "title", "outputSchema"] {
                fields.remove(field);
            }
        }
        serde_json::from_value(raw.clone())
    });
    let tool: Tool = tool
        .inspect_err(|error| tracing::warn!(tool = name, "is not served: {error}"))
        .ok()?;
    let definition = &route.definition;
    let lane = (definition.mode == CallMode::Stateful).then(|| match route.skill() {
        // A native skill is one lane; of a backend the whole instance is.
        Some(skill) if &*route.kind == "native" => format!("{}\n{skill}", route.backend),
        _ => route.backend.to_string(),
    });
    let is_all = serde_json::to_value(&tool).is_ok_and(|typed| typed == raw);
    Some(ServedTool {
        public: route.name.as_str().to_owned(),
        lane,
        tool,
        whole: (!is_all).then_some(raw),
    })
}

/// The tool as JSON: what its source says of it where it speaks MCP, else what is declared.
fn raw(route: &Route, name: &str) -> Value {
    let definition = &route.definition;
    let said = definition.meta.as_ref();
    let mut fields: Map<String, Value> = match said.and_then(|meta| meta.get("mcp")) {
        Some(Value::Object(raw)) => raw.clone(),
        _ => {
            let mut fields = Map::new();
            let declared = said.and_then(|meta| meta.get("annotations"));
            let mut annotations = effects(definition.effects);
            if let (Some(ours), Some(Value::Object(theirs))) =
                (annotations.as_object_mut(), declared)
            {
                ours.extend(theirs.clone());
            }
            fields.insert("annotations".to_owned(), annotations);
            if let Some(title) = &definition.title {
                fields.insert("title".to_owned(), title.as_str().into());
            }
            fields.insert(
                "description".to_owned(),
                definition.description.as_str().into(),
            );
            if let Some(schema) = &definition.output_schema {
                fields.insert("outputSchema".to_owned(), schema.clone());
            }
            fields
        }
    };
    fields.insert("name".to_owned(), name.into());
    fields.insert("inputSchema".to_owned(), definition.input_schema.clone());
    if definition.output_schema.is_none() {
        fields.remove("outputSchema");
    }
    let mode = match definition.mode {
        CallMode::Stateful => "stateful",
        CallMode::Stateless => "stateless",
    };
    match fields.get_mut("_meta") {
        Some(Value::Object(meta)) => {
            meta.entry(MODE).or_insert_with(|| mode.into());
        }
        _ => {
            fields.insert("_meta".to_owned(), json!({ MODE: mode }));
        }
    }
    Value::Object(fields)
}

fn effects(effects: EffectLevel) -> Value {
    match effects {
        EffectLevel::Read => json!({ "readOnlyHint": true }),
        EffectLevel::Write => json!({ "readOnlyHint": false, "destructiveHint": false }),
        EffectLevel::Destructive => json!({ "readOnlyHint": false, "destructiveHint": true }),
    }
}
