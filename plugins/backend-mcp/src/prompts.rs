//! Prompts of a session's servers: listed together, filled in by the server that has each.

use std::sync::Arc;

use conjure_skill_sdk::protocol::{PromptGet, PromptText, Prompts as PromptList};
use conjure_skill_sdk::{Cx, Error, Prompts, Result};
use rmcp::model::{ClientRequest, GetPromptRequest, GetPromptRequestParams};
use serde_json::Value;

use crate::backend::Mcp;
use crate::directory::{self, NamedPrompt};
use crate::failure::Failure;
use crate::registry::ServerEntry;
use crate::request_failure::RequestFailure;
use crate::resources::listings;
use crate::result::Receiver;

impl Mcp {
    /// The prompts of these servers by the names that the host knows.
    pub(crate) fn named_prompts(entries: &[Arc<ServerEntry>]) -> Vec<NamedPrompt> {
        let listings = listings(entries);
        let lists: Vec<_> = listings
            .iter()
            .map(|(entry, listing)| (entry.server.name.as_str(), listing.clone()))
            .collect();
        directory::prompts(&lists)
    }
}

impl Prompts for Mcp {
    async fn list(&self, cx: Cx) -> Result<PromptList> {
        let session = self.session(&cx)?;
        let named = Self::named_prompts(&self.entries(&session).await);
        let prompts = named.into_iter().map(|named| named.prompt).collect();
        Ok(PromptList { prompts })
    }

    async fn get(&self, cx: Cx, request: PromptGet) -> Result<PromptText> {
        let session = self.session(&cx)?;
        let entries = self.entries(&session).await;
        let find = || {
            let mut named = Self::named_prompts(&entries).into_iter();
            named.find(|one| one.prompt.name == request.name)
        };
        let mut found = find();
        if found.is_none() {
            self.until_all_listed(&entries).await;
            found = find();
        }
        let (entry, own) = match (found, entries.as_slice()) {
            (Some(found), all) => {
                let entry = all.iter().find(|entry| entry.server.name == found.server);
                (entry, found.original_name)
            }
            // It may have what it does not list.
            (None, [only]) => (Some(only), request.name.clone()),
            (None, _) => (None, String::new()),
        };
        let unknown =
            || Error::not_found(format!("no MCP server lists the prompt `{}`", request.name));
        let entry = entry.ok_or_else(unknown)?;
        let arguments = request.arguments.iter();
        let arguments = arguments
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let params = GetPromptRequestParams::new(own).with_arguments(arguments);
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
        let to = Receiver::of(&cx);
        let mut answer = match self.ask(&cx, entry, request).await {
            Ok(answer) => answer,
            Err(RequestFailure::Failed(failure @ Failure::Refused { .. })) if to.verbatim => {
                // There is no text; whoever serves the program hands the refusal on.
                let meta = failure.into_result().meta;
                return Ok(PromptText {
                    meta: meta.map(Value::Object),
                    ..PromptText::default()
                });
            }
            Err(trouble) => return Err(Error::new(trouble.into_reason())),
        };
        let meta = to.verbatim.then(|| to.full_result(answer.clone()).into());
        session.note_mentions(&entry.server.name, &answer);
        let description = answer.get("description").and_then(Value::as_str);
        Ok(PromptText {
            description: description.map(str::to_owned),
            messages: match answer.get_mut("messages").map(Value::take) {
                Some(Value::Array(messages)) => messages,
                _ => Vec::new(),
            },
            meta,
        })
    }
}
