//! What a thread shows, told again to a client that opens it.

use std::collections::HashSet;
use std::path::Path;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{SessionUpdate, ToolCallContent, ToolCallStatus};
use conjure_core::chat::{Content, FunctionCall, Message, Role};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_runtime::manager::Manager;
use conjure_store::{ThreadId, Window};

use super::error::failed;
use super::updates::{Updates, chunk};
use super::{call_view, edits};

/// Entries that are read at once.
const PAGE_ENTRIES: u64 = 200;

/// Tells all of a thread. No tool is made ready for that: calls look like their arguments.
pub(crate) async fn replay(
    manager: &Manager,
    thread: &ThreadId,
    working_dir: &Path,
    updates: &Updates,
) -> Result<(), Error> {
    let mut after = 0;
    let mut changes = HashSet::new();
    loop {
        let page = manager
            .store()
            .entries(thread, Window::After(after), PAGE_ENTRIES);
        let page = page.await.map_err(|error| failed(error.to_string()))?;
        let Some(last) = page.entries.last() else {
            return Ok(());
        };
        after = last.seq;
        for entry in &page.entries {
            updates
                .send_all(entry_updates(entry, working_dir, &mut changes))
                .await;
        }
        if !page.has_later() {
            return Ok(());
        }
    }
}

/// What an entry shows; `changes` are the calls that show the change which they made.
fn entry_updates(
    entry: &Entry,
    working_dir: &Path,
    changes: &mut HashSet<String>,
) -> Vec<SessionUpdate> {
    match &entry.body {
        EntryBody::Message { message } => message_updates(entry.seq, message, working_dir, changes),
        EntryBody::CallEnded {
            output,
            end,
            duration_ms,
            ..
        } => {
            let failed = output.is_error || *end != CallEnd::Done;
            let text = output.joined_text();
            let id = &output.call_id;
            let keeps = changes.remove(id);
            let ended = call_view::result_update(id, &text, failed, keeps, None, *duration_ms);
            vec![SessionUpdate::ToolCallUpdate(ended)]
        }
        _ => Vec::new(),
    }
}

fn message_updates(
    seq: u64,
    message: &Message,
    working_dir: &Path,
    changes: &mut HashSet<String>,
) -> Vec<SessionUpdate> {
    let id = format!("entry-{seq}");
    let mut updates = Vec::new();
    for part in &message.content {
        let update = match (&part.content, message.role) {
            (Content::Text { text }, Role::User) => {
                SessionUpdate::UserMessageChunk(chunk(text.clone(), &id))
            }
            (Content::Text { text }, Role::Assistant) => {
                SessionUpdate::AgentMessageChunk(chunk(text.clone(), &id))
            }
            (Content::Reasoning { text }, Role::Assistant) if !text.is_empty() => {
                SessionUpdate::AgentThoughtChunk(chunk(text.clone(), &format!("{id}-thought")))
            }
            (Content::FunctionCall(call), Role::Assistant) => {
                call_updates(call, working_dir, changes)
            }
            (Content::Image { artifact } | Content::File { artifact }, Role::User) => {
                let name = format!("`{}`", artifact.name);
                SessionUpdate::UserMessageChunk(chunk(name, &id))
            }
            _ => continue,
        };
        updates.push(update);
    }
    updates
}

fn call_updates(
    call: &FunctionCall,
    working_dir: &Path,
    changes: &mut HashSet<String>,
) -> SessionUpdate {
    let shown = call_view::tool_call(
        &call.call_id,
        &call.name,
        &call.arguments,
        None,
        working_dir,
    );
    // The file is as it is now, not as it was then.
    let diff = edits::diff(&call.arguments, None, working_dir);
    if diff.is_some() {
        changes.insert(call.call_id.clone());
    }
    let content = diff.map(ToolCallContent::Diff).into_iter().collect();
    SessionUpdate::ToolCall(shown.content(content).status(ToolCallStatus::InProgress))
}
