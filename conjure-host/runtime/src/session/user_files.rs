//! Files that a person attached to a message: they become files of the thread, and the person is told of
//! which of them the model reads no more than the name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_core::chat::{ArtifactRef, Content, Message};
use conjure_core::log::{NoticeReason, UnshownFile, UnshownReason};
use conjure_core::repair::RepairTarget;
use conjure_core::wire::Wire;

use super::open_thread::OpenThread;
use super::showing;
use super::thread_resources::ThreadResources;
use crate::backend::shown_file::{RequestFileBudget, presentable_content};
use crate::uploads;

/// Makes the files that a message of a turn attaches files of the thread. What the person is to be told of
/// them, behind the turn's beginning, since who follows a turn looks at nothing before that: which are lost,
/// and which this model is not shown.
pub(super) fn attach(
    thread: &mut OpenThread,
    turn: &str,
    message: Option<&mut Message>,
) -> Vec<NoticeReason> {
    let Some(message) = message else {
        return Vec::new();
    };
    let ThreadResources {
        host, artifacts, ..
    } = &thread.resources;
    let data_dir = &host.instances.data_dir;
    let mut paths = BTreeMap::new();
    let lost = uploads::attach(turn, message, data_dir, artifacts, |artifact| {
        showing::file(&mut thread.recorder, artifact, uploads::SOURCE, None);
        if let Some(path) = &artifact.path {
            paths.insert(artifact.id.clone(), path.clone());
        }
    });
    let mut notices = Vec::new();
    if !lost.is_empty() {
        notices.push(NoticeReason::FilesLost { files: lost });
    }
    let (spec, provider) = (thread.settings.spec(), thread.settings.provider().as_ref());
    let model = spec.model.clone().unwrap_or_default();
    let name = spec.provider.as_deref().unwrap_or_default();
    let target = host.models.target(name, provider, &model);
    let files = unshown_files(message, &paths, &target);
    if !files.is_empty() {
        notices.push(NoticeReason::FilesUnshown { files });
    }
    notices
}

/// The files of a message that a model is not shown, in their order, and why not. The message is the newest
/// of its request, so no other file takes the room of these.
fn unshown_files(
    message: &Message,
    paths: &BTreeMap<String, PathBuf>,
    target: &RepairTarget,
) -> Vec<UnshownFile> {
    let mut room = RequestFileBudget::default();
    let mut unshown = Vec::new();
    // As a request takes them: the last ones first.
    for part in message.content.iter().rev() {
        let (Content::Image { artifact } | Content::File { artifact }) = &part.content else {
            continue;
        };
        let path = paths.get(&artifact.id).map(PathBuf::as_path);
        if let Err(reason) = reserve(artifact, path, target, &mut room) {
            let name = artifact.name.clone();
            unshown.push(UnshownFile { name, reason });
        }
    }
    unshown.reverse();
    unshown
}

/// Takes a file into the room of a request to this model, as far as it is known what it is.
fn reserve(
    artifact: &ArtifactRef,
    path: Option<&Path>,
    target: &RepairTarget,
    room: &mut RequestFileBudget,
) -> Result<(), UnshownReason> {
    let model = target.model.clone();
    if artifact.is_image() && !target.images {
        return Err(UnshownReason::NoImages { model });
    }
    if artifact.is_pdf() && !target.files {
        return Err(UnshownReason::NoPdfs { model });
    }
    if !artifact.is_image() && !artifact.is_pdf() && !artifact.is_text() {
        let media_type = artifact.media_type.clone();
        return Err(UnshownReason::MediaType { media_type });
    }
    let most = room.most_bytes(artifact)?;
    let bytes = path.and_then(|path| conjure_config::fs::read_range(path, 0, most).ok());
    let size = match bytes {
        Some(bytes) => presentable_content(bytes, &artifact.media_type)?.1.len() as u64,
        None => artifact.size.unwrap_or_default(),
    };
    room.reserve(artifact, size);
    if target.wire == Wire::Gemini && artifact.media_type == "image/gif" {
        return Err(UnshownReason::NoGif);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Part, Role};
    use conjure_core::turn::describe_notice;

    use super::*;

    fn artifact(name: &str, media_type: &str, size: u64) -> ArtifactRef {
        ArtifactRef {
            id: name.to_owned(),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            size: Some(size),
        }
    }

    fn message(artifacts: impl IntoIterator<Item = ArtifactRef>) -> Message {
        let parts = artifacts.into_iter().map(|artifact| {
            Part::from(match artifact.is_image() {
                true => Content::Image { artifact },
                false => Content::File { artifact },
            })
        });
        let parts = parts.chain([Part::text("What?")]).collect();
        Message::new(Role::User, parts)
    }

    fn told(message: &Message, target: &RepairTarget) -> Option<String> {
        let files = unshown_files(message, &BTreeMap::new(), target);
        let words = describe_notice(&NoticeReason::FilesUnshown { files });
        (!words.is_empty()).then_some(words)
    }

    #[test]
    fn of_more_files_than_a_request_carries_the_person_is_told_once() {
        let target = RepairTarget::new("anthropic", "m");
        let images = |count: u64, size| {
            message((1..=count).map(|n| artifact(&format!("{n}.png"), "image/png", size)))
        };
        assert_eq!(told(&images(20, 1_000), &target), None);
        assert_eq!(
            told(&images(22, 1_000), &target).unwrap(),
            "the model reads only the names of `1.png` and `2.png`: a request \
             carries at most 20 images; attach fewer at once. Tools open them"
        );
        assert_eq!(
            told(&images(6, 3_600_000), &target).unwrap(),
            "the model reads only the names of `1.png` and `2.png`: a request \
             carries at most 15 MB of files; attach fewer or smaller ones at once. Tools open them"
        );
        let texts = (1..=90).map(|n| artifact(&format!("{n}.txt"), "text/plain", 250_000));
        let text = told(&message(texts), &target).unwrap();
        assert!(text.contains("`20.txt` and 10 more: "), "{text}");
        assert!(!text.contains("`21.txt`"), "{text}");
    }

    #[test]
    fn what_a_provider_does_not_take_the_person_is_told() {
        let files = message([
            artifact("a.gif", "image/gif", 9),
            artifact("a.pdf", "application/pdf", 9),
            artifact("a.zip", "application/zip", 9),
            artifact("a.txt", "text/plain", 9),
        ]);
        let zip = "of `a.zip`: it is application/zip, and models are shown PNG, JPEG, GIF and WebP images, \
                   PDFs and texts. Tools open";
        let anthropic = RepairTarget::new("anthropic", "m");
        assert_eq!(
            told(&files, &anthropic).unwrap(),
            format!("the model reads only the name {zip} it")
        );
        let gemini = RepairTarget::new("gemini", "m").with_wire(Wire::Gemini);
        let expected = format!(
            "the model reads only the names of `a.gif`: the Gemini API looks at no GIF; attach PNG, JPEG or \
             WebP; and {zip} them"
        );
        assert_eq!(told(&files, &gemini).unwrap(), expected);
        let blind = RepairTarget {
            images: false,
            files: false,
            ..RepairTarget::new("deepseek", "m")
        };
        let expected = format!(
            "the model reads only the names of `a.gif`: the model `m` cannot look at images; choose one that \
             can; and of `a.pdf`: the model `m` is not sent PDFs; attach the text, or choose another model; \
             and {zip} them"
        );
        assert_eq!(told(&files, &blind).unwrap(), expected);
    }

    #[test]
    fn everything_that_no_model_is_shown_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let target = RepairTarget::new("anthropic", "m");
        let path = dir.path().join("file");
        let reason = |media_type: &str, size: u64, bytes: Option<&[u8]>| {
            if let Some(bytes) = bytes {
                std::fs::write(&path, bytes).unwrap();
            }
            let path = bytes.map(|_| path.as_path());
            let artifact = artifact("a", media_type, size);
            reserve(&artifact, path, &target, &mut RequestFileBudget::default()).err()
        };
        for (media_type, size, bytes) in [
            ("image/png", 3_750_000, None),
            ("application/pdf", 3_750_000, None),
            ("text/csv", 256 * 1024, None),
            ("image/svg+xml", 9, None),
            ("text/plain", 6, Some(&b"\xff\xfea\0b\0"[..])),
        ] {
            assert_eq!(reason(media_type, size, bytes), None, "{media_type}");
        }
        let other = UnshownReason::MediaType {
            media_type: "image/heic".to_owned(),
        };
        let large_image = UnshownReason::LargeImage { most: 3_750_000 };
        let large_pdf = UnshownReason::LargePdf { most: 3_750_000 };
        let large_text = UnshownReason::LargeText { most: 256 * 1024 };
        let wide = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x23\x28\0\0\0\x01\x08\x06\0\0\0";
        for (media_type, size, bytes, expected) in [
            ("image/png", 4_000_000, None, large_image),
            ("image/png", 29, Some(&wide[..]), UnshownReason::Pixels),
            ("image/png", 4, Some(&b"none"[..]), UnshownReason::OtherType),
            ("image/heic", 9, None, other),
            ("application/pdf", 4_000_000, None, large_pdf),
            ("text/plain", 256 * 1024 + 1, None, large_text),
            (
                "text/plain",
                3,
                Some(&b"\xff\xd2\xc9"[..]),
                UnshownReason::Encoding,
            ),
        ] {
            assert_eq!(
                reason(media_type, size, bytes),
                Some(expected),
                "{media_type}"
            );
        }
    }
}
