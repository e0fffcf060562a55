//! What goes wrong, as an editor is told.

use agent_client_protocol::v1::schema::{ClientCapabilities, StopReason};
use conjure_kit::Model;
use conjure_mock_llm::Message;

use super::editor::{Editor, with_editor};
use super::{acp, save_auth};
use crate::session::show;
use crate::stage::{LOCAL, conjure, workspace};

#[test]
fn what_goes_wrong_is_said() {
    let model = Model::start().unwrap();
    let bare = workspace(&[LOCAL]);
    let editor = Editor::default();
    with_editor(
        conjure(&bare, "acp"),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let error = talk.session(&bare.work()).await.unwrap_err();
            assert_eq!(i32::from(error.code), -32000, "{error:?}");
            assert!(error.message.contains("conjure auth create"), "{error:?}");
            Ok(())
        },
    );
    save_auth(&bare, &model);
    with_editor(
        conjure(&bare, "acp"),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let error = talk.session(&bare.work()).await.unwrap_err();
            assert!(error.message.contains("--model MODEL"), "{error:?}");
            Ok(())
        },
    );
    with_editor(
        acp(&bare),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let error = talk.session(&bare.work().join("none")).await.unwrap_err();
            assert!(error.message.contains("cannot be used"), "{error:?}");
            let id = talk.session(&bare.work()).await?;
            // The model says nothing: its provider refuses.
            let error = talk.says(&id, "Hello?").await.unwrap_err();
            assert!(
                error.message.contains("told the model nothing more"),
                "{error:?}"
            );
            // What was used last is what the next one has.
            model.says(Message::new().text("Cut").stop_reason("max_tokens"));
            let said = talk.says(&id, "Hello?").await?;
            assert_eq!(said.stop_reason, StopReason::MaxTokens);
            Ok(())
        },
    );
    with_editor(
        conjure(&bare, "acp"),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let id = talk.session(&bare.work()).await?;
            assert_eq!(show(&bare, &id.0)["model"], "a-model");
            Ok(())
        },
    );
}
