//! Skills inside the session's own requests: what is added to each, and what came of it.

use conjure_skill_sdk::protocol::{
    BackendCall, Contribution, Observation, Observe, ToolDecl, ToolResult,
};
use conjure_skill_sdk::{Cx, Result};
use serde_json::{Map, Value, json};

use crate::config::{AnthropicSettings, AnthropicSkill};
use crate::session::AnthropicSession;
use crate::{Hosted, files, items};

/// The tool that brings files into the container.
pub(crate) const UPLOAD_TOOL: &str = "upload_files";

/// The tool that is there beside the provider's own.
pub(crate) fn upload_tool() -> ToolDecl {
    ToolDecl::new(
        UPLOAD_TOOL,
        "Brings files of this conversation into the container in which `code_execution` runs. \
         The container is a machine of its own: what is there is not here, and what is here is \
         not there. Files that code execution saves in $OUTPUT_DIR come back by themselves.",
        json!({
            "type": "object",
            "properties": {
                "files": {
                    "type": "array",
                    "items": { "type": "string" },
                    "minItems": 1,
                    "description": "Handles, such as file-1, or paths in the working directory"
                }
            },
            "required": ["files"],
            "additionalProperties": false
        }),
    )
}

/// What every request gets: the tool, the skills, the container of before, the files.
pub(crate) fn contribution(
    settings: &AnthropicSettings,
    session: &AnthropicSession,
) -> Contribution {
    let mut container = Map::new();
    if let Some(id) = &session.record.container {
        container.insert("id".to_owned(), id.as_str().into());
    }
    let skills: Vec<Value> = settings
        .skills
        .iter()
        .map(AnthropicSkill::reference)
        .collect();
    if !skills.is_empty() {
        container.insert("skills".to_owned(), skills.into());
    }
    let mut fields = Map::new();
    if !container.is_empty() {
        fields.insert("container".to_owned(), container.into());
    }
    let mut contribution = Contribution {
        tools: vec![settings.tool()],
        fields,
        call_content: session.record.call_content(),
        ..Contribution::default()
    };
    if !settings.betas.is_empty() {
        let betas = settings.betas.join(",");
        contribution
            .headers
            .insert("anthropic-beta".to_owned(), betas);
    }
    contribution
}

/// Takes files and the container out of a reply; of a request that failed because its container
/// is over, forgets the container.
pub(crate) async fn observe(hosted: &Hosted, cx: &Cx, seen: &Observe) -> Result<Observation> {
    if let Some(error) = &seen.error {
        let is_over = items::is_expired_container(&error.message);
        return hosted.sessions.with(cx.session(), |session| {
            if !is_over || session.record.container.take().is_none() {
                return Observation::default();
            }
            Observation {
                state: session.record.state(),
                retry: true,
                ..Observation::default()
            }
        });
    }
    let container = items::container(seen.fields.get("container"));
    let made = items::files(&seen.server_items);
    let (fresh, state) = hosted.sessions.with(cx.session(), |session| {
        let before = session.record.clone();
        if container.is_some() {
            session.record.container = container;
        }
        let fresh: Vec<String> = made
            .into_iter()
            .filter(|id| session.record.remember(id))
            .collect();
        let changed = session.record != before;
        (fresh, changed.then(|| session.record.state()).flatten())
    })?;
    Ok(Observation {
        files: files::all_described(hosted, cx, &fresh).await,
        state,
        ..Observation::default()
    })
}

/// Uploads the files that a call names; from the next request on the container has them.
pub(crate) async fn upload(hosted: &Hosted, cx: &Cx, call: &BackendCall) -> Result<ToolResult> {
    if call.files.is_empty() {
        return Ok(ToolResult::error(
            "There is nothing to upload: name files in `files`, by their handles or by paths in \
             the working directory.",
        ));
    }
    let mut names = Vec::new();
    for file in &call.files {
        let there = files::put(hosted, cx, file).await?;
        let id = there.id.unwrap_or_default();
        hosted.sessions.with(cx.session(), |session| {
            session
                .record
                .note_upload(cx.call_id().unwrap_or_default(), id);
        })?;
        names.push(format!("`{}`", there.name));
    }
    let text = format!(
        "The container has {} now; code execution finds them below $INPUT_DIR.",
        names.join(", ")
    );
    Ok(ToolResult {
        state: hosted.sessions.with(cx.session(), |it| it.record.state())?,
        ..ToolResult::text(text)
    })
}
