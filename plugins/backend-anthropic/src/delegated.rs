//! Skills as tools: each call of one is a conversation with Anthropic.

use conjure_core::chat::Usage;
use conjure_skill_sdk::protocol::{BackendCall, Part, Spent, ToolDecl, ToolResult};
use conjure_skill_sdk::{Cx, Error, Result};
use serde_json::{Value, json};

use crate::api::AnthropicApi;
use crate::config::{AnthropicSettings, AnthropicSkill};
use crate::conversation::{Conversation, ConversationEnd};
use crate::{Hosted, PROVIDER, files, items};

/// The tool of every skill.
pub(crate) const RUN_TOOL: &str = "code_execution";

/// How long a call may take, where nobody says otherwise.
const DEFAULT_TIMEOUT_MS: u64 = 600_000;

/// A skill with what its tool is called.
#[derive(Debug, Clone)]
pub(crate) struct NamedSkill {
    pub(crate) skill: AnthropicSkill,
    pub(crate) name: String,
    pub(crate) description: String,
}

/// The skills of a session, looked up when they are first wanted: where they ride in the requests,
/// nobody asks what they are called.
pub(crate) async fn skills(hosted: &Hosted, cx: &Cx) -> Result<Vec<NamedSkill>> {
    let known = hosted
        .sessions
        .with(cx.session(), |session| session.skills.clone())?;
    if let Some(known) = known {
        return Ok(known);
    }
    let named = look_up_names(&hosted.api, cx, &hosted.settings).await?;
    hosted
        .sessions
        .with(cx.session(), |session| session.skills = Some(named.clone()))?;
    Ok(named)
}

/// What the skills of the workspace are called is asked for, unless the configuration says it.
async fn look_up_names(
    api: &AnthropicApi,
    cx: &Cx,
    settings: &AnthropicSettings,
) -> Result<Vec<NamedSkill>> {
    let mut all = Vec::with_capacity(settings.skills.len());
    for skill in &settings.skills {
        let (name, description) = match &skill.name {
            Some(name) => (name.clone(), String::new()),
            None => {
                let found = api.skill(cx, &skill.id, skill.version.as_deref()).await;
                found.map_err(|refused| {
                    Error::new(format!(
                        "the hosted skill `{}` cannot be looked up: {} It needs no look-up when \
                         the configuration says its `name`.",
                        skill.id, refused.message
                    ))
                })?
            }
        };
        let described = skill.description.clone();
        let described = described.unwrap_or_else(|| match name.as_str() {
            "xlsx" => "Makes and reads tables (Excel).".to_owned(),
            "pptx" => "Makes and reads slides (PowerPoint).".to_owned(),
            "docx" => "Makes and reads documents (Word).".to_owned(),
            "pdf" => "Makes, fills and reads PDF files.".to_owned(),
            _ => description,
        });
        all.push(NamedSkill {
            skill: skill.clone(),
            name,
            description: described,
        });
    }
    Ok(all)
}

/// The tool of a skill.
pub(crate) fn tool(skill: &NamedSkill) -> ToolDecl {
    let description = format!(
        "{} Hands a task to the hosted skill `{}`, which works on it in a container of its own \
         and gives back text and files. It sees nothing of this conversation: say everything that \
         it needs, and name the files that it is to read.",
        skill.description.trim(),
        skill.name
    );
    ToolDecl {
        skill: Some(skill.name.clone()),
        timeout_ms: Some(DEFAULT_TIMEOUT_MS),
        ..ToolDecl::new(
            RUN_TOOL,
            description.trim(),
            json!({
                "type": "object",
                "properties": {
                    "task": { "type": "string", "description": "What to do, in full" },
                    "files": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "Files that it gets: handles, such as file-1, or paths in the working directory"
                    }
                },
                "required": ["task"],
                "additionalProperties": false
            }),
        )
    }
}

/// Runs a call.
pub(crate) async fn run(
    hosted: &Hosted,
    cx: &Cx,
    skill: &str,
    call: &BackendCall,
) -> Result<ToolResult> {
    let found = skills(hosted, cx).await?;
    let found = found.into_iter().find(|it| it.name == skill);
    let container = hosted.sessions.with(cx.session(), |session| {
        session.record.containers.get(skill).cloned()
    })?;
    let found = found.ok_or_else(|| Error::not_found(format!("no hosted skill `{skill}`")))?;
    let task = call.arguments.get("task").and_then(Value::as_str);
    let Some(task) = task.filter(|task| !task.trim().is_empty()) else {
        return Ok(ToolResult::error(
            "The argument `task` is missing: say what the skill is to do.",
        ));
    };
    let mut uploads = Vec::with_capacity(call.files.len());
    for file in &call.files {
        uploads.push(files::put(hosted, cx, file).await?.id.unwrap_or_default());
    }
    let mut conversation = Conversation::new(hosted, cx, &found.skill, task, &uploads, container);
    let ended = tokio::select! {
        biased;
        ended = conversation.run() => ended,
        () = cx.until_cancelled() => Ok(ConversationEnd::Cancelled),
    };
    conversation.record_partial_reply();
    // Also of a conversation that broke off: what it made is there, and what it cost.
    let Conversation {
        container,
        files: made,
        server_items,
        text,
        usage,
        ..
    } = conversation;
    let state = hosted.sessions.with(cx.session(), |session| {
        if let Some(container) = container {
            let containers = &mut session.record.containers;
            containers.insert(skill.to_owned(), container);
        }
        for id in &made {
            session.record.remember(id);
        }
        session.record.state()
    })?;
    let ended = ended?;
    let described = !matches!(ended, ConversationEnd::Cancelled);
    let mut result = tool_result(ended, text);
    // Nobody waits long for the answer of a call that was ended.
    if described {
        result.files = files::all_described(hosted, cx, &made).await;
    }
    result.state = state;
    result.meta = items::display_items(&server_items);
    if usage != Usage::default() {
        result.spent.push(to_spent(hosted, usage));
    }
    Ok(result)
}

/// What the skill said, and why it ended where it did not end by itself.
fn tool_result(ended: ConversationEnd, text: String) -> ToolResult {
    let is_silent = text.trim().is_empty();
    let reason = match ended {
        ConversationEnd::Completed if is_silent => {
            return ToolResult::text("The skill is done, and said nothing.");
        }
        ConversationEnd::Completed => return ToolResult::text(text),
        ConversationEnd::Cancelled => "The work was stopped.".to_owned(),
        ConversationEnd::Interrupted(why) => why,
    };
    let mut result = ToolResult::error(reason);
    if !is_silent {
        result.content.insert(0, Part::Text { text });
    }
    result
}

fn to_spent(hosted: &Hosted, usage: Usage) -> Spent {
    Spent {
        provider: PROVIDER.to_owned(),
        model: hosted.settings.model.clone(),
        input: usage.input,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        output: usage.output,
        reasoning: usage.reasoning,
    }
}
