//! Files and images in a request.

use serde_json::json;

use super::super::encode;
use super::*;
use crate::chat::{ArtifactRef, OutputPart};
use crate::request::Attachment;

#[test]
fn files_are_sent_where_their_bytes_are_and_told_where_not() {
    let artifact = |id: &str, name: &str, media_type: &str| ArtifactRef {
        id: id.to_owned(),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        size: Some(3),
    };
    let image = artifact("f1", "a.png", "image/png");
    let parts = vec![
        Content::Image {
            artifact: image.clone(),
        }
        .into(),
        Content::File {
            artifact: artifact("f2", "a.pdf", "application/pdf"),
        }
        .into(),
        Content::File {
            artifact: artifact("f3", "a.csv", "text/csv"),
        }
        .into(),
        Content::File {
            artifact: artifact("f4", "a.bin", "application/octet-stream"),
        }
        .into(),
        Content::File {
            artifact: artifact("gone", "b]\n.zip", "application/zip"),
        }
        .into(),
    ];
    let output = |is_error: bool, id: &str| {
        Content::FunctionCallOutput(FunctionCallOutput {
            call_id: id.to_owned(),
            output: vec![OutputPart::Image {
                artifact: image.clone(),
            }],
            is_error,
        })
        .into()
    };
    let mut request = request(vec![
        Message::new(Role::User, parts),
        assistant(vec![call("a", "t", json!({})), call("b", "t", json!({}))]),
        results(vec![output(false, "a"), output(true, "b")]),
    ]);
    for (id, media_type, data) in [
        ("f1", "image/png", "AAA="),
        ("f2", "application/pdf", "BBB="),
        ("f3", "text/csv", "YSxi"),
        ("f4", "application/octet-stream", "CCC="),
    ] {
        request.attachments.insert(
            id.to_owned(),
            Attachment {
                media_type: media_type.to_owned(),
                data: data.to_owned(),
            },
        );
    }
    let encoded = encode(&request);
    let sent = messages_of(&encoded);
    let shown = json!({"type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAA="}});
    let named = |name: &str, media_type: &str, id: &str| {
        let words = format!("[file: {name}, {media_type}, 3 bytes, id {id}]");
        json!({"type": "text", "text": words})
    };
    assert_eq!(
        sent[0]["content"],
        json!([
            named("a.png", "image/png", "f1"),
            shown,
            named("a.pdf", "application/pdf", "f2"),
            {"type": "document", "title": "a.pdf",
             "source": {"type": "base64", "media_type": "application/pdf", "data": "BBB="}},
            named("a.csv", "text/csv", "f3"),
            {"type": "document", "title": "a.csv",
             "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
            {"type": "text", "text": "[file: a.bin, application/octet-stream, 3 bytes, id f4] [what is in it is not shown here; tools can open it]"},
            {"type": "text", "text": "[file: b  .zip, application/zip, 3 bytes, id gone] [what is in it is not shown here; tools can open it]"},
        ])
    );
    assert_eq!(sent[2]["content"][0]["content"], json!([shown]));
    assert_eq!(
        sent[2]["content"][1]["content"],
        json!([{"type": "text", "text": "[file: a.png, image/png, 3 bytes, id f1]"}])
    );
    assert_eq!(encoded.notes.len(), 2, "{:?}", encoded.notes);
}
