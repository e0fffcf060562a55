//! What a thread's requests are compiled with, apart from its entries: settings, tools, rules and
//! who is asked.
//!
//! The log tells what changed on the way; here that is put together for any place of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat::Meta;
use crate::log::{Entry, EntryBody, TableChange};
use crate::repair::RepairTarget;
use crate::request::ModelRequest;
use crate::request::{CompileSettings, Room, compile};
use crate::routing::{CatalogTool, Policy, Route, RoutingTable, ToolName};
use crate::turn::TurnSettings;
use crate::wire::{Endpoint, Wire};

/// What a thread's requests are compiled with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaySetup {
    /// Limits of turns. What the thread itself tells of its limits wins, and so does when it was
    /// summarised.
    pub settings: TurnSettings,
    /// The model's persona; until the thread says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// What the session remembers; until the thread says otherwise.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub memory: Map<String, Value>,
    /// Where the session works; until the thread says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The part of the instructions about skill folders.
    #[serde(default)]
    pub skills_prompt: String,
    /// The part with what backends say about their use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// How much the model may think, in tokens; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_tokens: Option<u32>,
    /// Models that were asked, and how each is spoken to.
    pub recipients: Vec<Recipient>,
    /// The rules about calls.
    pub policy: Policy,
    /// The newest tools, in the order of their table.
    pub tools: Vec<RecordedTool>,
}

/// A model of a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipient {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The wire that it is spoken to over.
    pub wire: Wire,
    /// The address and the settings that it is reached by.
    pub endpoint: Endpoint,
    /// Whether it can look at images.
    pub images: bool,
    /// Whether it can read files.
    pub files: bool,
    /// The most tokens of a reply.
    pub max_tokens: u32,
    /// The model's window in tokens, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
}

/// A tool of the routing table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedTool {
    /// The tool's public name.
    pub name: ToolName,
    /// The backend instance that runs it.
    pub backend: String,
    /// The instance's kind.
    pub kind: String,
    /// What the catalog says of it; without the path of a plugin and the backend's own data.
    pub definition: CatalogTool,
}

impl RecordedTool {
    /// A route, without what concerns only the machine that it is on.
    #[must_use]
    pub fn of(route: &Route) -> Self {
        let mut definition = CatalogTool::clone(&route.definition);
        definition.origin.file = None;
        definition.folder = None;
        definition.meta = None;
        Self {
            name: route.name.clone(),
            backend: route.backend.to_string(),
            kind: route.kind.to_string(),
            definition,
        }
    }
}

impl Recipient {
    /// A model about which nothing is known but the name of its provider.
    #[must_use]
    pub fn of_name(provider: &str, model: &str) -> Self {
        let target = RepairTarget::new(provider, model);
        Self {
            wire: target.wire,
            endpoint: Endpoint::new(provider).with_model(model),
            images: target.images,
            files: target.files,
            max_tokens: 8192,
            window: None,
            provider: target.provider,
            model: target.model,
        }
    }

    /// Target that a conversation is repaired for.
    #[must_use]
    pub fn target(&self) -> RepairTarget {
        RepairTarget {
            provider: self.provider.clone(),
            model: self.model.clone(),
            wire: self.wire,
            images: self.images,
            files: self.files,
        }
    }

    pub(super) fn room(&self) -> Room {
        self.window
            .map_or_else(Room::default, |window| Room::of(window, self.max_tokens))
    }
}

impl ReplaySetup {
    /// A setup without tools and rules, for these settings.
    #[must_use]
    pub fn new(settings: TurnSettings) -> Self {
        Self {
            settings,
            persona: None,
            memory: Map::new(),
            working_dir: None,
            skills_prompt: String::new(),
            instructions: String::new(),
            thinking_tokens: None,
            recipients: Vec::new(),
            policy: Policy::default(),
            tools: Vec::new(),
        }
    }

    /// Every provider and model that a thread's requests went to, and whom the next one would go to.
    /// Settings may name nobody; nothing is known about that.
    #[must_use]
    pub fn requested_models(&self, entries: &[Entry]) -> BTreeSet<(String, String)> {
        let mut settings = EffectiveSettings::new(self);
        let mut asked = BTreeSet::new();
        for entry in entries {
            settings.apply(&entry.body);
            if let Some(meta) = entry.body.meta() {
                asked.insert(settings.provider_and_model(Some(meta)));
            }
        }
        asked.retain(|(provider, _)| !provider.is_empty());
        let next = settings.provider_and_model(None);
        if !next.0.is_empty() && !next.1.is_empty() {
            asked.insert(next);
        }
        asked
    }

    pub(super) fn recipient(&self, provider: &str, model: &str) -> Recipient {
        let same = |known: &&Recipient| known.provider == provider && known.model == model;
        let known = self.recipients.iter().find(same).cloned();
        known.unwrap_or_else(|| Recipient::of_name(provider, model))
    }

    /// The routing tables of the thread, the first one first: one more than it has changes. And
    /// the tools of each that are not known any more.
    pub(super) fn tables(&self, entries: &[Entry]) -> Vec<(RoutingTable, Vec<String>)> {
        let changes: Vec<&TableChange> = entries
            .iter()
            .filter_map(|entry| match &entry.body {
                EntryBody::TableChanged(change) => Some(change),
                _ => None,
            })
            .collect();
        let mut names: BTreeSet<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let mut tables = vec![self.table(changes.last().map_or(1, |last| last.version), &names)];
        for (at, change) in changes.iter().enumerate().rev() {
            for added in &change.added {
                names.remove(added.as_str());
            }
            names.extend(change.removed.iter().map(String::as_str));
            let before = at.checked_sub(1).and_then(|at| changes.get(at));
            let first = change.version.saturating_sub(1);
            tables.push(self.table(before.map_or(first, |change| change.version), &names));
        }
        tables.reverse();
        tables
    }

    fn table(&self, version: u64, names: &BTreeSet<&str>) -> (RoutingTable, Vec<String>) {
        let known = self.tools.iter();
        let known = known.filter(|tool| names.contains(tool.name.as_str()));
        let routes = known.map(|tool| Route {
            name: tool.name.clone(),
            backend: tool.backend.as_str().into(),
            kind: tool.kind.as_str().into(),
            definition: Arc::new(tool.definition.clone()),
        });
        let table = RoutingTable::of_routes(version, routes.collect());
        let unknown = names.iter().filter(|name| table.route(name).is_none());
        let unknown = unknown.map(|name| (*name).to_owned()).collect();
        (table, unknown)
    }
}

/// The settings that hold at a place of a thread.
#[derive(Debug, Clone)]
pub(super) struct EffectiveSettings<'a> {
    setup: &'a ReplaySetup,
    /// Whether the thread itself has told its settings.
    is_from_thread: bool,
    provider: String,
    model: String,
    persona: Option<String>,
    memory: Map<String, Value>,
    working_dir: Option<String>,
}

impl<'a> EffectiveSettings<'a> {
    pub(super) fn new(setup: &'a ReplaySetup) -> Self {
        Self {
            setup,
            is_from_thread: false,
            provider: setup.settings.provider.clone(),
            model: setup.settings.model.clone(),
            persona: setup.persona.clone(),
            memory: setup.memory.clone(),
            working_dir: setup.working_dir.clone(),
        }
    }

    /// Takes the next entry in.
    pub(super) fn apply(&mut self, body: &EntryBody) {
        let EntryBody::SettingsChanged { settings, .. } = body else {
            return;
        };
        let text = |name: &str| {
            settings
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let (Some(provider), Some(model)) = (text("provider"), text("model")) else {
            return;
        };
        self.is_from_thread = true;
        self.provider = provider;
        self.model = model;
        self.persona = text("persona");
        self.working_dir = text("working_dir").or(self.working_dir.take());
        let memory = settings.get("memory").and_then(Value::as_object);
        self.memory = memory.cloned().unwrap_or_default();
    }

    /// Provider and model that were asked for the reply that came about like this.
    pub(super) fn provider_and_model(&self, reply: Option<&Meta>) -> (String, String) {
        let own = (self.provider.clone(), self.model.clone());
        let Some(meta) = reply.filter(|meta| !meta.provider.is_empty()) else {
            return own;
        };
        let is_alias = !self.model.is_empty() && meta.model.starts_with(&self.model);
        if meta.provider == self.provider
            && (self.is_from_thread || is_alias || meta.model.is_empty())
        {
            own
        } else {
            (meta.provider.clone(), meta.model.clone())
        }
    }

    /// The settings of turns.
    pub(super) fn turn_settings(&self, like: &TurnSettings) -> TurnSettings {
        TurnSettings {
            provider: self.provider.clone(),
            model: self.model.clone(),
            ..like.clone()
        }
    }

    /// The request that asks the model to go on behind these entries.
    pub(super) fn request(
        &self,
        entries: &[Entry],
        table: &RoutingTable,
        recipient: &Recipient,
    ) -> ModelRequest {
        let settings = CompileSettings {
            persona: self.persona.clone(),
            memory: self.memory.clone(),
            max_tokens: recipient.max_tokens,
            thinking_tokens: self.setup.thinking_tokens,
            working_dir: self.working_dir.clone(),
            skills_prompt: self.setup.skills_prompt.clone(),
            instructions: self.setup.instructions.clone(),
            ..CompileSettings::new(recipient.target())
        };
        compile(entries, table, &settings)
    }
}
