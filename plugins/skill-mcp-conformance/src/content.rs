//! Tools whose results show each kind of content, and what a call says while it runs.

use std::thread::sleep;
use std::time::Duration;

use conjure_skill_sdk::protocol::{Empty, MessageLevel, Part, ToolResult};
use conjure_skill_sdk::{Cx, Error, Result, Skill};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stateless;

/// One red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// Eight samples of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";
/// Between two messages of a call.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn register(skill: Skill) -> Skill {
    skill
        .tool_with(
            "test_simple_text",
            "Returns a text",
            stateless(),
            |_cx, _: Empty| "This is a simple text response for testing.",
        )
        .tool_with(
            "test_image_content",
            "Returns an image",
            stateless(),
            |_cx, _: Empty| parts([image()]),
        )
        .tool_with(
            "test_audio_content",
            "Returns a sound",
            stateless(),
            |_cx, _: Empty| parts([Part::audio("audio/wav", WAV)]),
        )
        .tool_with(
            "test_embedded_resource",
            "Returns a resource with its text",
            stateless(),
            |_cx, _: Empty| {
                let text = "This is an embedded resource content.";
                parts([Part::text_resource(
                    "test://embedded-resource",
                    "text/plain",
                    text,
                )])
            },
        )
        .tool_with(
            "test_multiple_content_types",
            "Returns a text, an image and a resource",
            stateless(),
            |_cx, _: Empty| {
                let data = json!({ "test": "data", "value": 123 }).to_string();
                let uri = "test://mixed-content-resource";
                parts([
                    Part::Text {
                        text: "Multiple content types test:".to_owned(),
                    },
                    image(),
                    Part::text_resource(uri, "application/json", &data),
                ])
            },
        )
        .tool_with(
            "test_error_handling",
            "Always fails",
            stateless(),
            |_cx, _: Empty| {
                Err::<(), _>(Error::new(
                    "This tool intentionally returns an error for testing",
                ))
            },
        )
        .tool_with(
            "test_tool_with_logging",
            "Sends three messages while it runs",
            stateless(),
            |cx, _: Empty| logging(cx),
        )
        .tool_with(
            "test_logging_tool",
            "Sends a message",
            stateless(),
            |cx, _: Empty| {
                cx.message(
                    MessageLevel::Info,
                    "This message is for those who asked for it",
                )?;
                Ok::<_, Error>("A message was sent")
            },
        )
        .tool_with(
            "test_tool_with_progress",
            "Says three times how far it is",
            stateless(),
            |cx, _: Empty| progress(cx),
        )
        .tool_with(
            "test_reconnection",
            "Takes a moment, so that a stream can be closed meanwhile",
            stateless(),
            |_cx, _: Empty| {
                sleep(2 * PAUSE);
                "Reconnection test completed successfully"
            },
        )
        .raw_tool(
            "test_custom_header",
            "Has an argument that an HTTP client also sends as a header",
            json!({
                "type": "object",
                "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
                "required": ["region"],
            }),
            stateless(),
            |_cx, arguments: Value| region(&arguments),
        )
        .raw_tool(
            "json_schema_2020_12_tool",
            "Tool with JSON Schema 2020-12 features",
            schema_2020_12(),
            stateless(),
            |_cx, arguments: Value| format!("Called with {arguments}"),
        )
}

fn parts(content: impl Into<Vec<Part>>) -> ToolResult {
    ToolResult {
        content: content.into(),
        ..ToolResult::default()
    }
}

fn image() -> Part {
    Part::Image {
        media_type: "image/png".to_owned(),
        data: PNG.to_owned(),
    }
}

fn logging(cx: &Cx) -> Result<&'static str> {
    cx.message(MessageLevel::Info, "Tool execution started")?;
    sleep(PAUSE);
    cx.message(MessageLevel::Info, "Tool processing data")?;
    sleep(PAUSE);
    cx.message(MessageLevel::Info, "Tool execution completed")?;
    Ok("Tool with logging executed successfully")
}

fn progress(cx: &Cx) -> Result<&'static str> {
    // The last pause is for clients that drop what they read together with the answer.
    for done in [0.0, 50.0, 100.0] {
        cx.progress(done, Some(100.0), &format!("Completed {done} of 100"))?;
        sleep(PAUSE);
    }
    Ok("Tool with progress executed successfully")
}

fn region(arguments: &Value) -> Result<String> {
    #[derive(Deserialize)]
    struct Arguments {
        region: String,
    }
    let Arguments { region } = Arguments::deserialize(arguments)?;
    Ok(format!("The region is {region}"))
}

/// Keywords that a server or a gateway may lose on the way.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {
                    "street": { "type": "string" },
                    "city": { "type": "string" },
                },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
