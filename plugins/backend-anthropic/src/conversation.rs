//! One delegated conversation: a task, and replies until there is an answer.
//!
//! A paused reply goes back as it is, in the same container, with the same tools and nothing
//! else; a container that is over is given up once. What came before a failure is kept.

use conjure_core::chat::{Content, Message, Meta, Part, Role, StopReason, StreamEvent, Usage};
use conjure_core::repair::RepairTarget;
use conjure_core::request::ModelRequest;
use conjure_core::wire::{Decoded, ReplyDecoder, anthropic};
use conjure_skill_sdk::{Cx, Error, Result};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::api::{ApiFailure, RequestBody};
use crate::config::AnthropicSkill;
use crate::{Hosted, PROVIDER, items};

/// Maximum number of pauses of a reply.
pub(crate) const MAX_PAUSES: u32 = 10;
/// The most bytes of a reply.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// A conversation.
pub(crate) struct Conversation<'a> {
    hosted: &'a Hosted,
    cx: &'a Cx,
    skill: &'a AnthropicSkill,
    uploads: Vec<Value>,
    messages: Vec<Message>,
    /// The reply that is coming.
    pending_reply: Option<Box<dyn ReplyDecoder>>,
    /// Container in which the code runs.
    pub(crate) container: Option<String>,
    /// Ids of the files that it made, each once.
    pub(crate) files: Vec<String>,
    /// What tools of the provider's ran, and what came of it.
    pub(crate) server_items: Vec<Value>,
    /// Text of the replies.
    pub(crate) text: String,
    /// Tokens of all replies.
    pub(crate) usage: Usage,
}

/// End of a conversation.
pub(crate) enum ConversationEnd {
    /// The model has answered.
    Completed,
    /// The conversation broke off, for this reason.
    Interrupted(String),
    /// Because the call was ended.
    Cancelled,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(
        hosted: &'a Hosted,
        cx: &'a Cx,
        skill: &'a AnthropicSkill,
        task: &str,
        uploads: &[String],
        container: Option<String>,
    ) -> Self {
        Self {
            hosted,
            cx,
            skill,
            uploads: uploads
                .iter()
                .map(|id| json!({ "type": "container_upload", "file_id": id }))
                .collect(),
            messages: vec![Message::user(task)],
            pending_reply: None,
            container,
            files: Vec::new(),
            server_items: Vec::new(),
            text: String::new(),
            usage: Usage::default(),
        }
    }

    /// Holds the conversation, to its end.
    pub(crate) async fn run(&mut self) -> Result<ConversationEnd> {
        let mut pauses = 0;
        loop {
            let response = match self.ask().await {
                Ok(decoded) => {
                    if let Some(error) = decoded.error {
                        return self.end_broken(&error.message);
                    }
                    decoded.response
                }
                Err(refused) => {
                    self.record_partial_reply();
                    return self.end_broken(&refused.message);
                }
            };
            let Some(stop) = response.stop else {
                return self.end_broken("The reply ended without a reason.");
            };
            match stop.reason {
                StopReason::Pause if pauses < MAX_PAUSES => pauses += 1,
                StopReason::Pause => {
                    return Ok(ConversationEnd::Interrupted(format!(
                        "The skill was paused {MAX_PAUSES} times and is not done. Give it a \
                         smaller task."
                    )));
                }
                StopReason::EndTurn | StopReason::StopSequence => {
                    return Ok(ConversationEnd::Completed);
                }
                StopReason::Refusal => {
                    return Ok(ConversationEnd::Interrupted(
                        "The skill refused the task.".to_owned(),
                    ));
                }
                _ => {
                    return Ok(ConversationEnd::Interrupted(format!(
                        "The skill stopped before it was done ({}). Give it a smaller task.",
                        stop.raw
                    )));
                }
            }
        }
    }

    /// Takes in what came of a reply that did not come to its end, also where the call was ended
    /// meanwhile: it is paid for.
    pub(crate) fn record_partial_reply(&mut self) {
        if let Some(mut decoder) = self.pending_reply.take() {
            let decoded = decoder.finish(&mut Vec::new());
            self.record_reply(&decoded);
        }
    }

    /// What was made before a failure is not lost by it, nor what it cost.
    fn end_broken(&self, why: &str) -> Result<ConversationEnd> {
        let is_paid = self.usage != Usage::default();
        if self.text.is_empty() && self.files.is_empty() && !is_paid {
            return Err(Error::new(why));
        }
        Ok(ConversationEnd::Interrupted(format!(
            "The skill broke off: {why}"
        )))
    }

    /// One reply; where the container is over, once more without it.
    async fn ask(&mut self) -> Result<Decoded, ApiFailure> {
        match self.next_reply().await {
            Err(refused)
                if self.container.is_some() && items::is_expired_container(&refused.message) =>
            {
                self.container = None;
                self.next_reply().await
            }
            answer => answer,
        }
    }

    /// One reply, which is taken in as far as it came.
    async fn next_reply(&mut self) -> Result<Decoded, ApiFailure> {
        let encoded = anthropic::encode(&self.request());
        let mut response = self
            .hosted
            .api
            .send(
                self.cx,
                (Method::POST, "messages"),
                RequestBody::Encoded(&encoded),
            )
            .await?;
        self.pending_reply = Some(Box::new(anthropic::decoder()));
        let mut events = Vec::new();
        let mut bytes = 0_usize;
        loop {
            // A reply that breaks off is decoded as far as it came.
            let Ok(Some(piece)) = response.chunk().await else {
                break;
            };
            bytes = bytes.saturating_add(piece.len());
            if bytes > MAX_REPLY_BYTES {
                break;
            }
            if let Some(decoder) = &mut self.pending_reply {
                decoder.push(&piece, &mut events);
            }
            show(self.cx, &mut events).await?;
        }
        let Some(mut decoder) = self.pending_reply.take() else {
            return Ok(Decoded::default());
        };
        let decoded = decoder.finish(&mut events);
        // Before anybody is waited for: the call may be ended there, and what came is paid for.
        self.record_reply(&decoded);
        // What nobody sees any more is kept all the same.
        let _ = show(self.cx, &mut events).await;
        Ok(decoded)
    }

    fn request(&self) -> ModelRequest {
        let settings = &self.hosted.settings;
        let target = RepairTarget::new(PROVIDER, &settings.model);
        let mut request = ModelRequest::bare(&target, self.messages.clone());
        request.max_tokens = settings.max_tokens;
        request.system = vec![
            "Carry out the task with your skill. Save every file that is a result at the top of \
             $OUTPUT_DIR. End with a short account of what you did."
                .to_owned(),
        ];
        let mut container = Map::new();
        if let Some(id) = &self.container {
            container.insert("id".to_owned(), id.as_str().into());
        }
        container.insert("skills".to_owned(), json!([self.skill.reference()]));
        request.contribution.tools = vec![settings.tool()];
        request
            .contribution
            .fields
            .insert("container".to_owned(), container.into());
        request.contribution.user_content.clone_from(&self.uploads);
        request
    }

    /// Takes a reply in: files, container, text, and the message itself.
    fn record_reply(&mut self, decoded: &Decoded) {
        let response = &decoded.response;
        if let Some(container) = items::container(response.fields.get("container")) {
            self.container = Some(container);
        }
        self.usage += response.usage;
        let server_items = response
            .parts
            .iter()
            .filter_map(|part| match &part.content {
                Content::ServerItem { item, .. } => Some(item),
                _ => None,
            });
        for id in items::files(server_items.clone()) {
            if !self.files.contains(&id) {
                self.files.push(id);
            }
        }
        self.server_items.extend(server_items.cloned());
        self.text.push_str(&reply_text(&response.parts));
        if response.parts.is_empty() {
            return;
        }
        let meta = Meta {
            provider: PROVIDER.to_owned(),
            model: response.model.clone(),
            stop_reason: response.stop.as_ref().map(|stop| stop.raw.clone()),
            partial: decoded.error.is_some(),
            ..Meta::default()
        };
        self.messages.push(Message {
            role: Role::Assistant,
            content: response.parts.clone(),
            meta: Some(meta),
        });
    }
}

/// Shows what comes to whoever watches.
async fn show(cx: &Cx, events: &mut Vec<StreamEvent>) -> Result<(), ApiFailure> {
    for event in events.drain(..) {
        let shown = match event {
            StreamEvent::Content { delta } => cx.stdout_async(delta.as_bytes()).await,
            StreamEvent::ServerItem { item } => match items::progress_line(&item) {
                Some(line) => cx.stderr_async(line.as_bytes()).await,
                None => Ok(()),
            },
            _ => Ok(()),
        };
        shown.map_err(|error| ApiFailure::new(error.message()))?;
    }
    Ok(())
}

/// The texts of a reply, each on lines of its own.
fn reply_text(parts: &[Part]) -> String {
    let mut said = String::new();
    for part in parts {
        if let Content::Text { text } = &part.content
            && !text.trim().is_empty()
        {
            said.push_str(text.trim());
            said.push('\n');
        }
    }
    said
}
