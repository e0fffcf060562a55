//! Files that a person attached to a message.

use conjure_core::chat::{Content, Message};

use super::open_thread::OpenThread;
use super::showing;
use super::thread_resources::ThreadResources;
use crate::uploads;

/// Makes the files that a message of a turn attaches files of the thread, and says which of them are lost and
/// which this model cannot look at.
pub(super) fn attach(thread: &mut OpenThread, turn: &str, message: &mut Message) {
    let ThreadResources {
        host, artifacts, ..
    } = &thread.resources;
    let data_dir = &host.instances.data_dir;
    let lost = uploads::attach(turn, message, data_dir, artifacts, |artifact| {
        showing::file(&mut thread.recorder, artifact, uploads::SOURCE, None);
    });
    for text in lost {
        showing::note(&mut thread.recorder, text);
    }
    let (spec, provider) = (thread.settings.spec(), thread.settings.provider().as_ref());
    let model = spec.model.clone().unwrap_or_default();
    let name = spec.provider.as_deref().unwrap_or_default();
    if host.models.target(name, provider, &model).images {
        return;
    }
    let images = message
        .content
        .iter()
        .filter_map(|part| match &part.content {
            Content::Image { artifact } => Some(artifact.name.as_str()),
            _ => None,
        });
    for name in images {
        let text = format!(
            "`{name}`: the model `{model}` cannot look at images and reads only its name; tools \
             can open it"
        );
        showing::note(&mut thread.recorder, text);
    }
}
