//! Turns that wait for others: what is said in one can be said otherwise until it begins.

use axum::Json;
use axum::extract::State;
use conjure_core::chat::{Message, Part, Role};
use conjure_store::RunState;
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::{JsonBody, PathParams, Ref, text};
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use super::turns::{self, TurnView};

pub(super) fn router() -> Operations {
    Operations::new().routes(routes!(reword))
}

/// What is said instead.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RewordTurn {
    /// The text; the files that go with it stay. Empty where they say enough.
    text: String,
}

/// Say something else in a turn that waits; it keeps its place and its files
#[utoipa::path(patch, path = "/api/v1/turns/{turn}", operation_id = "reword_turn", tag = "turns",
    params(("turn" = String, Path, description = "Its id")),
    request_body = RewordTurn,
    responses((status = 200, description = "It", body = TurnView),
        (status = 409, description = "It has begun, or is over")))]
async fn reword(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    JsonBody(body): JsonBody<RewordTurn>,
) -> Result<Json<TurnView>, Problem> {
    let run = app.manager.run(&id).await?;
    let said = match body.text.trim().is_empty() {
        true => "",
        false => text("text", &body.text)?,
    };
    // Of one that waits no more the message is not there.
    let message = match run.state {
        RunState::Queued => with_text(run.message.as_ref(), said),
        _ => Some(Message::user(said)),
    };
    let Some(message) = message else {
        return Err(Problem::invalid(
            "a turn has a text or files: give `text` that is not empty, or cancel the turn",
        ));
    };
    app.manager.reword(&id, message).await?;
    let run = app.manager.run(&id).await?;
    Ok(Json(turns::view(&app, run).await))
}

/// A message with another text and the files that it has. None where nothing would be left.
fn with_text(message: Option<&Message>, text: &str) -> Option<Message> {
    let parts = message.map_or(&[] as &[Part], |message| message.content.as_slice());
    let files = parts.iter().filter(|part| part.as_text().is_none());
    let mut parts: Vec<Part> = files.cloned().collect();
    if !text.is_empty() {
        parts.push(Part::text(text));
    }
    (!parts.is_empty()).then(|| Message::new(Role::User, parts))
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{ArtifactRef, Content};

    use super::*;

    #[test]
    fn an_edited_follow_up_keeps_its_files_and_is_never_empty() {
        let file = Part::from(Content::File {
            artifact: ArtifactRef {
                id: "upload-1".to_owned(),
                name: "a.txt".to_owned(),
                media_type: "text/plain".to_owned(),
                size: Some(1),
            },
        });
        let with_file = Message::new(Role::User, vec![file.clone(), Part::text("old")]);
        let edited = with_text(Some(&with_file), "new").unwrap();
        assert_eq!(edited.content, [file.clone(), Part::text("new")]);
        let edited = with_text(Some(&with_file), "").unwrap();
        assert_eq!(edited.content, [file]);
        assert_eq!(with_text(Some(&Message::user("old")), ""), None);
        assert!(with_text(None, "new").is_some());
    }
}
