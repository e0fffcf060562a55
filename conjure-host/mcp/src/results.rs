//! From what came of a call or a read to what an MCP client gets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_core::chat::OutputPart;
use conjure_skill_sdk::protocol::{Part, ToolResult};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{files, passthrough};
use conjure_runtime::artifacts::{Artifact, Artifacts};
use conjure_runtime::backend::CallReport;

/// The most bytes of a file that becomes content.
const MAX_INLINE_BYTES: u64 = 4 * 1024 * 1024;

/// The result of a call.
pub(super) fn call(report: CallReport, artifacts: &Artifacts, most_bytes: usize) -> CallToolResult {
    let said = report.plugin_result.as_deref();
    let mut content = match said.filter(|said| fits(said, most_bytes)) {
        Some(said) => with_note(verbatim(said), report.note.as_deref()),
        None => shown_content(&report, artifacts),
    };
    if let Some(structured) = &report.structured
        && !content.iter().any(|block| block.as_text().is_some())
    {
        content.insert(0, ContentBlock::text(structured.to_string()));
    }
    let images: Vec<&str> = report
        .output
        .output
        .iter()
        .filter_map(|part| match part {
            OutputPart::Image { artifact } => Some(artifact.id.as_str()),
            _ => None,
        })
        .collect();
    let files = report.files.iter();
    content.extend(
        files
            .filter(|file| !images.contains(&file.id.as_str()))
            .filter_map(link),
    );
    let mut result = CallToolResult::success(content);
    result.is_error = Some(report.output.is_error);
    result.meta = said.and_then(own_meta);
    result.structured_content = report.structured;
    result
}

/// Content and what the host says of the failure behind it. What a server behind the host says never
/// comes here: that goes out as it came.
fn with_note(mut content: Vec<ContentBlock>, note: Option<&str>) -> Vec<ContentBlock> {
    content.extend(note.map(ContentBlock::text));
    content
}

/// The `_meta` that a result has of its source's, without what is the host's there.
fn own_meta(result: &ToolResult) -> Option<MetaObject> {
    let mut meta = result.meta.as_ref()?.get("mcp")?.as_object()?.clone();
    passthrough::clean_meta(&mut meta);
    Some(MetaObject(meta))
}

/// Whether a result goes out word for word: its texts are not too long, and none of them crossed
/// as a file.
fn fits(result: &ToolResult, most_bytes: usize) -> bool {
    let mut bytes = 0;
    for part in &result.content {
        match part {
            Part::Text { text } => bytes += text.len(),
            Part::File { file } if file.media_type.as_deref() == Some("text/plain") => {
                return false;
            }
            _ => {}
        }
    }
    bytes <= most_bytes
}

fn verbatim(result: &ToolResult) -> Vec<ContentBlock> {
    // A peer's own blocks, where the plugin kept them.
    let own = result
        .meta
        .as_ref()
        .and_then(|meta| meta.get("mcp_content"));
    if let Some(Value::Array(blocks)) = own {
        return blocks.iter().map(block).collect();
    }
    let part = |part: &Part| match part {
        Part::Text { text } => Some(ContentBlock::text(text)),
        Part::Image { media_type, data } => Some(ContentBlock::image(data, media_type)),
        Part::Raw { source, value } if source == "mcp" => Some(block(value)),
        // It is a link beside the content.
        Part::File { .. } => None,
        Part::Raw { value, .. } | Part::Other(value) => Some(ContentBlock::text(value.to_string())),
    };
    result.content.iter().filter_map(part).collect()
}

/// A block of content in MCP's form; as text when it is none that MCP has.
fn block(value: &Value) -> ContentBlock {
    typed(value.clone()).unwrap_or_else(|| ContentBlock::text(value.to_string()))
}

/// Content that a model would be shown.
fn shown_content(report: &CallReport, artifacts: &Artifacts) -> Vec<ContentBlock> {
    let part = |part: &OutputPart| match part {
        OutputPart::Text { text } => Some(ContentBlock::text(text)),
        OutputPart::Image { artifact } => {
            let known = artifacts.list();
            let image = known.iter().find(|known| known.id == artifact.id)?;
            let bytes = read_small(image)?;
            Some(ContentBlock::image(
                STANDARD.encode(bytes),
                &image.media_type,
            ))
        }
        OutputPart::File { .. } => None,
    };
    report.output.output.iter().filter_map(part).collect()
}

fn read_small(file: &Artifact) -> Option<Vec<u8>> {
    let path = file.path.as_deref()?;
    conjure_config::fs::read_no_follow(path, MAX_INLINE_BYTES).ok()?
}

fn link(file: &Artifact) -> Option<ContentBlock> {
    let mut resource = files::resource(file);
    resource
        .as_object_mut()?
        .insert("type".to_owned(), "resource_link".into());
    typed(resource)
}

/// The contents of a resource that a source read, as JSON in MCP's form.
pub(super) fn contents(uri: &str, result: &ToolResult, artifacts: &Artifacts) -> Vec<Value> {
    let own = result.meta.as_ref().and_then(|meta| meta.get("mcp"));
    if let Some(Value::Array(contents)) = own.and_then(|own| own.get("contents")) {
        return contents.clone();
    }
    let part = |part: &Part| match part {
        Part::Text { text } => Some(json!({ "uri": uri, "mimeType": "text/plain", "text": text })),
        Part::Image { media_type, data } => {
            Some(json!({ "uri": uri, "mimeType": media_type, "blob": data }))
        }
        Part::Raw { source, value } if source == "mcp" => {
            value.get("resource").or(Some(value)).cloned()
        }
        Part::File { file } => {
            let path = std::path::Path::new(file.path.as_deref()?);
            let opened = artifacts.open_inside(path).ok()?;
            let bytes = opened.bytes(MAX_INLINE_BYTES).ok()??;
            let mut content = Map::new();
            content.insert("uri".to_owned(), uri.into());
            if let Some(kind) = &file.media_type {
                content.insert("mimeType".to_owned(), kind.as_str().into());
            }
            let is_text = file
                .media_type
                .as_deref()
                .is_none_or(|kind| kind.starts_with("text/"));
            match String::from_utf8(bytes) {
                Ok(text) if is_text => content.insert("text".to_owned(), text.into()),
                Ok(text) => content.insert("blob".to_owned(), STANDARD.encode(text).into()),
                Err(error) => {
                    content.insert("blob".to_owned(), STANDARD.encode(error.as_bytes()).into())
                }
            };
            Some(content.into())
        }
        Part::Raw { value, .. } | Part::Other(value) => {
            Some(json!({ "uri": uri, "mimeType": "application/json", "text": value.to_string() }))
        }
    };
    result.content.iter().filter_map(part).collect()
}

/// A value of the SDK's from JSON.
pub(super) fn typed<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use conjure_core::chat::FunctionCallOutput;
    use conjure_core::log::CallEnd;

    use super::*;

    fn report(said: ToolResult) -> CallReport {
        CallReport {
            output: FunctionCallOutput::text("c", "what a model is shown", said.is_error),
            end: CallEnd::Done,
            duration: Duration::ZERO,
            files: Vec::new(),
            structured: said.structured.clone(),
            server_items: None,
            state: None,
            spent: Vec::new(),
            other_files: Vec::new(),
            plugin_result: Some(Box::new(said)),
            note: None,
        }
    }

    fn result(said: ToolResult) -> Value {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().to_owned()], dir.path().join("cache"));
        serde_json::to_value(call(report(said), &artifacts, 100)).unwrap()
    }

    fn raw(value: &Value) -> Part {
        Part::Raw {
            source: "mcp".to_owned(),
            value: value.clone(),
        }
    }

    #[test]
    fn blocks_of_mcps_own_form_go_out_word_for_word() {
        let blocks = [
            json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" }),
            json!({ "type": "resource", "resource": { "uri": "test://a", "text": "t" } }),
            json!({
                "type": "text", "text": "t", "_meta": { "k": 1 },
                "annotations": { "audience": ["user"], "priority": 0.5 },
            }),
        ];
        let content: Vec<Part> = blocks.iter().map(raw).collect();
        let meta = json!({ "mcp": { "page": 2 } });
        let said = ToolResult {
            content,
            meta: meta.as_object().cloned(),
            ..ToolResult::default()
        };
        let result = result(said);
        assert_eq!(result["content"], json!(blocks));
        assert_eq!(
            (&result["_meta"], &result["isError"]),
            (&json!({ "page": 2 }), &json!(false))
        );
    }

    #[test]
    fn a_results_own_metadata_cannot_stand_for_the_result() {
        let other = json!({ "content": [], "isError": false });
        let meta = json!({ "mcp": { "dev.conjure/whole": other, "page": 2 } });
        let said = ToolResult {
            meta: meta.as_object().cloned(),
            ..ToolResult::text("t")
        };
        assert_eq!(result(said)["_meta"], json!({ "page": 2 }));
    }

    #[test]
    fn a_block_that_mcp_does_not_have_is_a_text() {
        let hologram = json!({ "type": "hologram", "x": 1 });
        let said = ToolResult {
            content: vec![raw(&hologram)],
            ..ToolResult::default()
        };
        let block = &result(said)["content"][0];
        assert_eq!(
            (&block["type"], &block["text"]),
            (&json!("text"), &json!(hologram.to_string()))
        );
    }

    #[test]
    fn a_structured_value_always_has_a_text_beside_it() {
        for structured in [json!({ "n": 1 }), json!([1, 2]), json!("word")] {
            let said = ToolResult {
                structured: Some(structured.clone()),
                ..ToolResult::default()
            };
            let result = result(said);
            assert_eq!(result["structuredContent"], structured);
            assert_eq!(result["content"][0]["text"], json!(structured.to_string()));
        }
    }

    #[test]
    fn a_failed_call_is_named_with_what_to_do_behind_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().to_owned()], dir.path().join("cache"));
        let note = "[The call of `notes_read` on backend `native` failed with what stands above.]";
        let failed = CallReport {
            note: Some(note.to_owned()),
            ..report(ToolResult::error("The skill refused the task."))
        };
        let result = serde_json::to_value(call(failed, &artifacts, 100)).unwrap();
        assert_eq!(result["isError"], json!(true));
        let blocks = result["content"].as_array().unwrap();
        let texts: Vec<&Value> = blocks.iter().map(|block| &block["text"]).collect();
        assert_eq!(texts, [&json!("The skill refused the task."), &json!(note)]);
    }

    #[test]
    fn a_text_that_is_too_long_is_what_a_model_is_shown() {
        let said = ToolResult::text("x".repeat(101));
        assert_eq!(result(said)["content"][0]["text"], "what a model is shown");
    }

    #[test]
    fn a_resource_is_read_from_each_kind_of_part() {
        let said = ToolResult {
            content: vec![
                Part::Text {
                    text: "t".to_owned(),
                },
                Part::Image {
                    media_type: "image/png".to_owned(),
                    data: "AA==".to_owned(),
                },
                raw(&json!({ "type": "resource", "resource": { "uri": "test://b", "text": "b" } })),
            ],
            ..ToolResult::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().to_owned()], dir.path().join("cache"));
        assert_eq!(
            contents("test://a", &said, &artifacts),
            [
                json!({ "uri": "test://a", "mimeType": "text/plain", "text": "t" }),
                json!({ "uri": "test://a", "mimeType": "image/png", "blob": "AA==" }),
                json!({ "uri": "test://b", "text": "b" }),
            ]
        );
    }
}
