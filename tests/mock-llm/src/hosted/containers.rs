//! Containers: which there are, what ran in them, and that a conversation goes on in its own.

use serde_json::{Value, json};

use super::Hosted;
use crate::message::{Block, Message};
use crate::request::{Request, array};
use crate::validate::{Rule, Violation, text};

/// A turn that was paused: what came of it, and what it was asked with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PausedTurn {
    tools: Value,
    container: Option<String>,
    content: Vec<Value>,
}

/// The id of a container, as a request or a reply has it.
fn id_of(container: &Value) -> Option<&str> {
    container
        .as_str()
        .or_else(|| container.get("id").and_then(Value::as_str))
}

impl Hosted {
    /// What the provider would refuse in a request of the Messages API, knowing what was before.
    pub(crate) fn violations(&self, request: &Request) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut add = |rule, message: String| {
            found.push(Violation {
                request: request.index,
                rule,
                message,
            });
        };
        let body = &request.body;
        let container = body.get("container").unwrap_or(&Value::Null);
        let named = id_of(container);
        match named.map(|id| (id, self.containers.get(id))) {
            Some((id, None)) => add(
                Rule::ContainerUnknown,
                format!("container: `{id}` was not found"),
            ),
            Some((id, Some(true))) => add(
                Rule::ContainerExpired,
                format!("container: `{id}` has expired"),
            ),
            _ => {}
        }
        for skill in array(container, "skills") {
            let id = text(skill, "skill_id");
            let known = self.skills.iter().find(|it| it.id == id);
            let version = skill.get("version").and_then(Value::as_str);
            let fits = known.is_some_and(|known| {
                text(skill, "type") == known.source
                    && version.is_none_or(|version| {
                        version == "latest" || known.versions.iter().any(|it| it.id == version)
                    })
            });
            if !fits {
                add(
                    Rule::SkillUnknown,
                    format!("container.skills: `{id}` is no such skill"),
                );
            }
        }
        for block in array(body, "messages")
            .iter()
            .flat_map(|message| array(message, "content"))
        {
            let (kind, id) = (text(block, "type"), text(block, "file_id"));
            if kind == "container_upload" && !self.files.iter().any(|file| file.id == id) {
                add(Rule::UploadUnknown, format!("File not found: {id}"));
            }
        }
        let paused = self.paused.as_ref();
        if let Some(what) = paused.and_then(|paused| paused.mismatch(body, named)) {
            add(Rule::PausedChanged, what.to_owned());
        } else if let Some(missing) = self.abandoned_container(body, named) {
            add(
                Rule::ContainerOmitted,
                format!("container: the conversation runs in `{missing}`, which must be named"),
            );
        }
        found
    }

    /// The container that the newest call of the provider's own ran in, when the request names
    /// another one or none.
    fn abandoned_container(&self, body: &Value, named: Option<&str>) -> Option<&str> {
        let newest = array(body, "messages")
            .iter()
            .flat_map(|message| array(message, "content"))
            .filter(|block| text(block, "type") == "server_tool_use")
            .filter_map(|block| self.containers_by_call.get(text(block, "id")))
            .next_back()?;
        let over = self.containers.get(newest).copied().unwrap_or(true);
        (!over && named != Some(newest)).then_some(newest.as_str())
    }

    /// Takes note of a message that goes out in answer to a request.
    pub(crate) fn record(&mut self, request: &Request, message: &Message) {
        let asked = request.body.get("container").and_then(id_of);
        let told = message.container.as_ref().and_then(id_of);
        let container = told.or(asked).map(str::to_owned);
        if let Some(id) = &container {
            self.containers.entry(id.clone()).or_insert(false);
        }
        for block in &message.content {
            if let (Block::ServerToolUse(call), Some(id)) = (block, &container) {
                self.containers_by_call.insert(call.id.clone(), id.clone());
            }
        }
        self.paused = (message.effective_stop_reason() == "pause_turn").then(|| {
            // The whole message, as it is without a stream.
            let mut whole = request.clone();
            whole.body = json!({ "model": request.model() });
            let body = serde_json::from_slice(&message.body(&whole)).unwrap_or(Value::Null);
            PausedTurn {
                tools: request.body.get("tools").cloned().unwrap_or_default(),
                container,
                content: array(&body, "content").to_vec(),
            }
        });
    }
}

impl PausedTurn {
    /// What is wrong with a request that goes on with this turn; nothing when it is another
    /// conversation's.
    fn mismatch(&self, body: &Value, named: Option<&str>) -> Option<&'static str> {
        let newest = self
            .content
            .iter()
            .rfind(|block| text(block, "type") == "server_tool_use")?;
        let messages = array(body, "messages");
        let at = messages.iter().rposition(|message| {
            let mut blocks = array(message, "content").iter();
            blocks.any(|block| text(block, "id") == text(newest, "id"))
        })?;
        if at + 1 != messages.len() {
            return Some("messages: a paused turn is continued by its content alone");
        }
        let content = messages.get(at).map(|message| array(message, "content"));
        if !content.is_some_and(|content| content.ends_with(&self.content)) {
            return Some("messages: the content of a paused turn was changed");
        }
        if body.get("tools").unwrap_or(&Value::Null) != &self.tools {
            return Some("tools: a paused turn is continued with the same tools");
        }
        if named != self.container.as_deref() {
            return Some("container: a paused turn is continued in the same container");
        }
        None
    }
}
