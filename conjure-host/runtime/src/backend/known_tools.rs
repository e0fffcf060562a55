//! What is known of the tools of one server: the definitions that somebody approved, and those that
//! wait for that.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use conjure_plugins::Sha256;
use conjure_skill_sdk::protocol::{Effects, ToolDecl};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Definitions of one tool that are kept: several sessions may see several.
const MAX_DEFINITIONS_PER_TOOL: usize = 8;
/// Tools of a server that are approved since they are new. What was approved is never forgotten: a
/// server could list others until it is, and come back with another definition. So a further one needs
/// a person.
const MAX_TOOLS: usize = 10_000;
/// Tools with one description that a new one is compared with.
const MAX_COMPARED: usize = 16;
/// Members of a peer's own definition that are for programs, and that no model reads. They may be other
/// ones with each version of the protocol, and each time.
const PROGRAM_MEMBERS: [&str; 3] = ["_meta", "execution", "icons"];
/// Members that a declaration has as they are served.
const DECLARED_MEMBERS: [&str; 4] = ["name", "title", "description", "inputSchema"];
/// Further members that are longer are kept, and shown, by their digest.
const FURTHER_BYTES: usize = 16 * 1024;
/// What a server says about its use stands among its tools, under a name that none can have.
const INSTRUCTIONS: &str = "";

/// A tool that is held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldTool {
    /// What tells it from everything else that was ever held.
    pub digest: String,
    /// The kind of the backend that offers it, such as `mcp`.
    pub backend: String,
    /// The server, where the backend has several.
    pub server: Option<String>,
    /// The tool's own name; `None` for what the server says about its use, which is held as a tool is.
    pub tool: Option<String>,
    /// What differs from what was approved, in words.
    pub changed: Vec<String>,
    /// What was approved last.
    pub approved: KnownDefinition,
    /// What is there now.
    pub now: KnownDefinition,
}

/// What a model and a person go by when they let a tool run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KnownDefinition {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the model is told about it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What it changes.
    #[serde(default)]
    pub effects: Effects,
    /// What it says of itself, such as MCP's annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// The further members that its source has, which MCP clients are served too, as JSON; of many their
    /// digest. Nothing where it was noted before these were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<String>,
}

/// What a server offers now.
#[derive(Default)]
pub(super) struct ServerOffer<'a> {
    pub(super) tools: Vec<&'a ToolDecl>,
    /// What it says about its use.
    pub(super) instructions: &'a str,
}

/// What is known of the tools of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownTools {
    pub(super) backend: String,
    pub(super) server: Option<String>,
    /// What was approved, the newest last.
    approved: BTreeMap<String, Vec<KnownDefinition>>,
    /// What waits for approval.
    #[serde(default)]
    held: BTreeMap<String, Vec<HeldDefinition>>,
    /// What the server listed the last time.
    #[serde(default)]
    listed: BTreeSet<String>,
}

/// What waits for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct HeldDefinition {
    /// The name that it was approved under, where it has another one now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    now: KnownDefinition,
}

/// What a session finds: each tool that is held, and what changed of it. A name that is empty stands
/// for what the server says about its use.
pub(super) type HeldChanges = BTreeMap<String, Vec<String>>;

impl KnownTools {
    /// What is offered when a server is seen for the first time is approved by that.
    pub(super) fn first(backend: &str, server: Option<&str>, offered: &ServerOffer<'_>) -> Self {
        let approved = offered.definitions();
        let approved = approved.map(|(name, definition)| (name.to_owned(), vec![definition]));
        Self {
            backend: backend.to_owned(),
            server: server.map(str::to_owned),
            approved: approved.collect(),
            held: BTreeMap::new(),
            listed: offered.names(),
        }
    }

    /// Compares what is offered with what was approved, and takes note of what differs. What is
    /// new is approved. `is_new`: the server has listed it just now; else only the verdict is looked
    /// at again, and what others hold is left alone.
    pub(super) fn compare(&mut self, offered: &ServerOffer<'_>, is_new: bool) -> HeldChanges {
        let names = offered.names();
        let mut verdict = HeldChanges::new();
        for (name, now, state) in self.approval_states(offered, &names) {
            let was = match state {
                ApprovalState::Nothing => continue,
                ApprovalState::Approved => {
                    self.adopt_further(name, &now);
                    self.drop_held(name, is_new);
                    continue;
                }
                ApprovalState::New if name == INSTRUCTIONS || self.approved.len() < MAX_TOOLS => {
                    self.approved.insert(name.to_owned(), vec![now]);
                    self.drop_held(name, is_new);
                    continue;
                }
                ApprovalState::New | ApprovalState::Changed => None,
                ApprovalState::Renamed(was) => Some(was),
            };
            let held = HeldDefinition { was, now };
            verdict.insert(name.to_owned(), self.describe_changes(name, &held));
            let all = self.held.entry(name.to_owned()).or_default();
            match all.iter_mut().find(|known| known.now.is_same(&held.now)) {
                // It was noted before further members were compared, and is approved with those of now.
                Some(known) if known.now.further.is_none() => known.now.further = held.now.further,
                Some(_) => {}
                None => push(all, held),
            }
        }
        // A server without tools for a while has renamed none.
        if is_new && !names.is_empty() {
            self.listed = names;
        }
        self.drop_unlisted();
        verdict
    }

    /// Nothing of a tool waits any more, where the server has listed it just now.
    fn drop_held(&mut self, name: &str, is_new: bool) {
        if is_new {
            self.held.remove(name);
        }
    }

    /// How everything that is offered stands to what was approved.
    fn approval_states<'o>(
        &self,
        offered: &'o ServerOffer<'_>,
        names: &BTreeSet<String>,
    ) -> Vec<(&'o str, KnownDefinition, ApprovalState)> {
        let gone = self.removed_tools(names);
        let state = |(name, now): (&'o str, KnownDefinition)| {
            let state = match self.approved.get(name) {
                Some(approved) if approved.iter().any(|known| known.is_same(&now)) => {
                    ApprovalState::Approved
                }
                // There is nothing that a model could read.
                Some(_) if name == INSTRUCTIONS && now.description.is_empty() => {
                    ApprovalState::Nothing
                }
                Some(_) => ApprovalState::Changed,
                None => {
                    let was = gone
                        .find_same(&now)
                        .or_else(|| self.approved_name(name, names));
                    was.map_or(ApprovalState::New, |was| {
                        ApprovalState::Renamed(was.to_owned())
                    })
                }
            };
            (name, now, state)
        };
        offered.definitions().map(state).collect()
    }

    /// The name that a tool was approved under, where it is held for having another one and that one
    /// is still gone.
    fn approved_name<'a>(&'a self, name: &str, names: &BTreeSet<String>) -> Option<&'a str> {
        let mut waiting = self.held.get(name)?.iter();
        let was = waiting.find_map(|held| held.was.as_deref())?;
        (!names.contains(was)).then_some(was)
    }

    /// An approved definition that was noted before further members were compared takes on those that
    /// are there now.
    fn adopt_further(&mut self, name: &str, now: &KnownDefinition) {
        let all = self.approved.get_mut(name).into_iter().flatten();
        let mut fitting: Vec<_> = all.filter(|known| known.is_same(now)).collect();
        if fitting.iter().any(|known| known.further == now.further) {
            return;
        }
        if let Some(known) = fitting.first_mut() {
            known.further.clone_from(&now.further);
        }
    }

    /// Forgets what waits of tools that are not there, where it is too much. What was approved of them
    /// stays, so they are held again when they come back.
    fn drop_unlisted(&mut self) {
        if self.held.len() > MAX_TOOLS {
            let listed = &self.listed;
            self.held
                .retain(|name, _| name == INSTRUCTIONS || listed.contains(name));
        }
    }

    /// The tools that were listed the last time and are not any more.
    fn removed_tools<'a>(&'a self, names: &'a BTreeSet<String>) -> RemovedTools<'a> {
        let mut gone = RemovedTools::default();
        for name in self.listed.difference(names) {
            // One that is held for its new name is the one that was approved.
            let name = self.approved_name(name, names).unwrap_or(name);
            let approved = self.approved.get(name).and_then(|known| known.last());
            if let Some(approved) = approved.filter(|known| !known.description.is_empty()) {
                let alike = gone.0.entry(&approved.description).or_default();
                if alike.len() < MAX_COMPARED {
                    alike.push((name, approved));
                }
            }
        }
        gone
    }

    /// Approves these, where they still wait; whether any did.
    pub(super) fn approve(&mut self, digests: &BTreeSet<&str>, id: &str) -> Vec<HeldTool> {
        let mut meant = self.held_tools(id);
        meant.retain(|held| digests.contains(held.digest.as_str()));
        for held in &meant {
            let name = held.tool.as_deref().unwrap_or(INSTRUCTIONS);
            if let Some(all) = self.held.get_mut(name) {
                all.retain(|waiting| waiting.now != held.now);
                if all.is_empty() {
                    self.held.remove(name);
                }
            }
            push(
                self.approved.entry(name.to_owned()).or_default(),
                held.now.clone(),
            );
        }
        meant
    }

    /// What waits for approval; `id` is the server's.
    pub(super) fn held_tools(&self, id: &str) -> Vec<HeldTool> {
        let all = self.held.iter();
        let all = all.flat_map(|(name, all)| all.iter().map(move |held| (name, held)));
        let held = all.map(|(name, held)| {
            let digest = serde_json::json!([id, name, held]).to_string();
            let approved = self.approved_definition(name, held).cloned();
            HeldTool {
                digest: Sha256::of(digest.as_bytes()).to_string(),
                backend: self.backend.clone(),
                server: self.server.clone(),
                tool: (name != INSTRUCTIONS).then(|| name.clone()),
                changed: self.describe_changes(name, held),
                approved: approved.unwrap_or_default(),
                now: held.now.clone(),
            }
        });
        held.collect()
    }

    /// Whether something waits for approval.
    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    fn approved_definition(&self, name: &str, held: &HeldDefinition) -> Option<&KnownDefinition> {
        let name = held.was.as_deref().unwrap_or(name);
        self.approved.get(name)?.last()
    }

    /// What is another one than it was approved as, in words.
    fn describe_changes(&self, name: &str, held: &HeldDefinition) -> Vec<String> {
        if name == INSTRUCTIONS {
            return vec!["instructions".to_owned()];
        }
        let mut changed = match self.approved_definition(name, held) {
            Some(approved) => approved.differences(&held.now),
            None if held.was.is_none() => vec![too_many()],
            None => Vec::new(),
        };
        if let Some(was) = &held.was {
            changed.push(format!("name (it was `{was}`)"));
        }
        changed
    }
}

/// How something that is offered stands to what was approved.
enum ApprovalState {
    Approved,
    /// The definition is another one than was approved.
    Changed,
    /// The definition is that of a tool that is gone, whose name this is.
    Renamed(String),
    New,
    /// The server says nothing about its use any more.
    Nothing,
}

/// What is said of a new tool of a server that has too many, as of a change.
pub(super) fn too_many() -> String {
    format!("new (more than {MAX_TOOLS} tools of this server are approved already)")
}

/// Tools that are gone, by their descriptions.
#[derive(Default)]
struct RemovedTools<'a>(HashMap<&'a str, Vec<(&'a str, &'a KnownDefinition)>>);

impl<'a> RemovedTools<'a> {
    /// The one that was the same but for its name.
    fn find_same(&self, now: &KnownDefinition) -> Option<&'a str> {
        let alike = self.0.get(now.description.as_str())?;
        alike
            .iter()
            .find(|(_, known)| known.is_same(now))
            .map(|(name, _)| *name)
    }
}

impl ServerOffer<'_> {
    fn names(&self) -> BTreeSet<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Each name with its definition, and what the server says about its use.
    fn definitions(&self) -> impl Iterator<Item = (&str, KnownDefinition)> {
        let tools = self.tools.iter().filter(|tool| tool.name != INSTRUCTIONS);
        let tools = tools.map(|tool| (tool.name.as_str(), KnownDefinition::of(tool)));
        let instructions = KnownDefinition {
            description: self.instructions.to_owned(),
            ..KnownDefinition::default()
        };
        tools.chain([(INSTRUCTIONS, instructions)])
    }
}

impl KnownDefinition {
    fn of(tool: &ToolDecl) -> Self {
        Self {
            title: tool.title.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
            effects: tool.effects,
            annotations: tool.annotations.clone(),
            further: Some(further_members(tool)),
        }
    }

    /// Whether it says the same.
    fn is_same(&self, other: &Self) -> bool {
        self == other || self.differences(other).is_empty()
    }

    /// What is another one in `now`, in words.
    fn differences(&self, now: &Self) -> Vec<String> {
        let differ = |one: Option<&Value>, other: Option<&Value>| {
            one != other && one.map(normalized) != other.map(normalized)
        };
        let parts = [
            ("title", self.title != now.title),
            ("description", self.description != now.description),
            (
                "schema of arguments",
                differ(Some(&self.input_schema), Some(&now.input_schema)),
            ),
            (
                "schema of results",
                differ(self.output_schema.as_ref(), now.output_schema.as_ref()),
            ),
            (
                "annotations",
                self.effects != now.effects
                    || differ(self.annotations.as_ref(), now.annotations.as_ref()),
            ),
            (
                "further members",
                matches!((&self.further, &now.further), (Some(one), Some(other)) if one != other),
            ),
        ];
        let changed = parts.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(part, _)| part.to_owned()).collect()
    }
}

/// What MCP clients are served of a tool beside what its declaration has, and that a model may read, as
/// JSON; what is long by its digest. Always there, so that a member that comes later is a change.
fn further_members(tool: &ToolDecl) -> String {
    let meta = tool.meta.as_ref();
    let raw = meta.and_then(|meta| meta.get("mcp")?.as_object());
    let members = raw.or_else(|| meta?.as_object());
    let is_served = |name: &str, value: &Value| match name {
        "annotations" => tool.annotations.as_ref() != Some(value),
        // Of another source only its annotations are served.
        _ if raw.is_none() => false,
        "outputSchema" => tool.output_schema.as_ref() != Some(value),
        _ => !DECLARED_MEMBERS.contains(&name) && !PROGRAM_MEMBERS.contains(&name),
    };
    let members = members.into_iter().flatten();
    let served =
        members.filter(|&(name, value)| !value.is_null() && is_served(name.as_str(), value));
    let served: BTreeMap<&str, Value> = served
        .map(|(name, value)| {
            let mut value = value.clone();
            value.sort_all_objects();
            (name.as_str(), normalized(&value))
        })
        .collect();
    let text = serde_json::json!(served).to_string();
    match text.len() <= FURTHER_BYTES {
        true => text,
        false => format!(
            "{} bytes, SHA-256 {}",
            text.len(),
            Sha256::of(text.as_bytes())
        ),
    }
}

/// The schema with every list in order that is a set: servers make them in any order.
fn normalized(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let mut value = normalized(value);
                if let ("required" | "type" | "enum", Value::Array(items)) =
                    (name.as_str(), &mut value)
                {
                    items.sort_by_key(Value::to_string);
                }
                (name.clone(), value)
            });
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(normalized).collect()),
        other => other.clone(),
    }
}

/// Adds one; the oldest make room.
fn push<T>(all: &mut Vec<T>, one: T) {
    all.push(one);
    let more = all.len().saturating_sub(MAX_DEFINITIONS_PER_TOOL);
    all.drain(..more);
}

#[cfg(test)]
mod tests;
