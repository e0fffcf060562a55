//! What the backends of a session offer, before it has public names: tools for the routing table,
//! and beside each what runs it.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_core::routing::{CallMode, CatalogTool, EffectLevel, Origin, Prefix, command_tools};
use conjure_skill_sdk::protocol::{CatalogReply, Effects as DeclaredEffects, ToolDecl, ToolMode};
use serde_json::{Map, Value};

use super::backend_holds::BackendHolds;
use super::backend_lease::BackendLease;
use super::snapshot::CallTarget;
use conjure_config::BackendSpec;
use conjure_config::skill_folders::LoadedFolder;
use conjure_plugins::{LoadedPlugin, PluginId};

/// The capability of a backend whose skills or servers do not wait for each other.
const INDEPENDENT_SKILLS: &str = "skills.independent/1";

/// A tool with what runs it, before it has a public name.
pub(super) struct OfferedTool {
    pub(super) backend: String,
    pub(super) skill: Option<String>,
    pub(super) version: Option<semver::Version>,
    pub(super) tool: String,
    pub(super) target: OfferTarget,
}

pub(super) enum OfferTarget {
    Skill(Arc<LoadedPlugin>),
    Target(CallTarget),
}

impl OfferedTool {
    /// What tells it from the others.
    pub(super) fn key(&self) -> (&str, Option<&str>, Option<&semver::Version>, &str) {
        (
            &self.backend,
            self.skill.as_deref(),
            self.version.as_ref(),
            &self.tool,
        )
    }
}

/// The tools of the native skills that the backend stands for. `held` is what is held of those that
/// they have at run time.
pub(super) fn native_tools(
    spec: &BackendSpec,
    skills: &[Arc<LoadedPlugin>],
    at_run_time: &HashMap<PluginId, Vec<ToolDecl>>,
    held: &HashMap<PluginId, BackendHolds>,
    tools: &mut Vec<Arc<CatalogTool>>,
    offers: &mut Vec<OfferedTool>,
) {
    for plugin in skills {
        let manifest = plugin.manifest();
        if spec
            .skills
            .as_ref()
            .is_some_and(|names| !names.contains(&manifest.name))
        {
            continue;
        }
        let more = at_run_time.get(plugin.id()).into_iter().flatten();
        // The manifest wins over what comes later.
        let more = more.filter(|tool| manifest.tools.iter().all(|own| own.name != tool.name));
        let held = held.get(plugin.id());
        let reason = |tool: &ToolDecl| held?.skill_reason(&manifest.name, tool);
        let own = manifest.tools.iter().map(|tool| (tool, None));
        let more = more.map(|tool| (tool, reason(tool)));
        for (declared, held) in own
            .chain(more)
            .filter(|(tool, _)| is_offered(spec, &tool.name))
        {
            let mut tool = catalog_tool(declared, Some(&manifest.name), plugin);
            tool.held = held;
            tool.timeout_ms = tool.timeout_ms.or(spec.call_timeout_ms);
            tools.push(Arc::new(tool));
            offers.push(OfferedTool {
                backend: spec.instance().to_owned(),
                skill: Some(manifest.name.clone()),
                version: Some(plugin.id().version.clone()),
                tool: declared.name.clone(),
                target: OfferTarget::Skill(Arc::clone(plugin)),
            });
        }
    }
}

/// Whether the filters let a tool through: exact names, or `prefix*`; `except` wins.
fn is_offered(spec: &BackendSpec, tool: &str) -> bool {
    let fits = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => tool.starts_with(prefix),
        None => pattern == tool,
    };
    (spec.only.is_empty() || spec.only.iter().any(fits)) && !spec.except.iter().any(fits)
}

/// The skill folders that a tool is for.
type Folders = Arc<[Arc<LoadedFolder>]>;

/// The command tools of an executor: a set a skill folder, or one set.
pub(super) fn executor_tools(
    spec: &BackendSpec,
    lease: &Arc<BackendLease>,
    folders: &[Arc<LoadedFolder>],
    tools: &mut Vec<Arc<CatalogTool>>,
    offers: &mut Vec<OfferedTool>,
) {
    let as_one = folders.is_empty() || spec.prefix == Prefix::Backend;
    let sets: Vec<(Option<&Arc<LoadedFolder>>, Folders)> = if as_one {
        vec![(None, Arc::from(folders))]
    } else {
        let own = |folder| -> (Option<&Arc<LoadedFolder>>, Folders) {
            (Some(folder), Arc::from([Arc::clone(folder)]))
        };
        folders.iter().map(own).collect()
    };
    for (folder, folders) in sets {
        let skill = folder.map(|folder| folder.folder.name.as_str().to_owned());
        for tool in command_tools(&spec.only, &spec.except) {
            let mut tool = match &skill {
                Some(name) => tool.of_skill(name.clone(), None),
                None => tool,
            };
            if let Some(folder) = folder {
                tool = tool.in_folder(folder.dir.display().to_string());
            }
            tool.origin = origin(&lease.plugin);
            tool.timeout_ms = tool.timeout_ms.or(spec.call_timeout_ms);
            offers.push(OfferedTool {
                backend: spec.instance().to_owned(),
                skill: skill.clone(),
                version: None,
                tool: tool.tool.clone(),
                target: OfferTarget::Target(CallTarget::Executor(
                    Arc::clone(lease),
                    Arc::clone(&folders),
                )),
            });
            tools.push(Arc::new(tool));
        }
    }
}

/// The tools of a backend's catalog.
pub(super) fn backend_tools(
    spec: &BackendSpec,
    lease: &Arc<BackendLease>,
    catalog: &CatalogReply,
    held: &BackendHolds,
    tools: &mut Vec<Arc<CatalogTool>>,
    offers: &mut Vec<OfferedTool>,
) {
    let is_independent = lease.plugin.manifest().has(INDEPENDENT_SKILLS);
    for declared in &catalog.tools {
        if !is_offered(spec, &declared.name) {
            continue;
        }
        let mut tool = catalog_tool(declared, declared.skill.as_deref(), &lease.plugin);
        tool.skill_version = None;
        tool.is_independent = is_independent;
        tool.held = held.reason(spec.instance(), declared);
        tool.timeout_ms = tool.timeout_ms.or(spec.call_timeout_ms);
        tools.push(Arc::new(tool));
        offers.push(OfferedTool {
            backend: spec.instance().to_owned(),
            skill: declared.skill.clone(),
            version: None,
            tool: declared.name.clone(),
            target: OfferTarget::Target(CallTarget::Backend(Arc::clone(lease))),
        });
    }
}

fn catalog_tool(declared: &ToolDecl, skill: Option<&str>, plugin: &LoadedPlugin) -> CatalogTool {
    let effects = match declared.effects {
        DeclaredEffects::Read => EffectLevel::Read,
        DeclaredEffects::Write => EffectLevel::Write,
        DeclaredEffects::Destructive => EffectLevel::Destructive,
    };
    let mut tool = CatalogTool::new(&declared.name, &declared.op, effects);
    if let Some(skill) = skill {
        tool = tool.of_skill(skill, Some(plugin.id().version.clone()));
    }
    tool.title.clone_from(&declared.title);
    tool.description.clone_from(&declared.description);
    tool.input_schema.clone_from(&declared.input_schema);
    tool.output_schema.clone_from(&declared.output_schema);
    tool.mode = match declared.mode {
        ToolMode::Stateful => CallMode::Stateful,
        ToolMode::Stateless => CallMode::Stateless,
    };
    tool.in_place = declared.in_place;
    tool.timeout_ms = declared.timeout_ms;
    tool.meta = meta(declared);
    tool.origin = origin(plugin);
    tool
}

/// What a tool says about itself in the form of its source. Annotations stand beside it, unless
/// they are in it already.
fn meta(declared: &ToolDecl) -> Option<Value> {
    let Some(annotations) = &declared.annotations else {
        return declared.meta.clone();
    };
    let mut meta = match &declared.meta {
        Some(Value::Object(meta)) => meta.clone(),
        Some(other) => return Some(other.clone()),
        None => Map::new(),
    };
    if !meta.contains_key("mcp") {
        meta.insert("annotations".to_owned(), annotations.clone());
    }
    Some(Value::Object(meta))
}

fn origin(plugin: &LoadedPlugin) -> Origin {
    Origin {
        plugin: Some(plugin.id().name.to_string()),
        version: Some(plugin.id().version.to_string()),
        file: plugin
            .source()
            .path()
            .map(|path| path.display().to_string()),
        build: plugin.id().sha256.map(|hash| hash.to_string()),
    }
}
