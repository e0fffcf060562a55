//! The resources and prompts that do not change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_skill_sdk::protocol::{Completions, Empty, PromptText, Resource};
use conjure_skill_sdk::{Error, ResourceTemplate, Skill};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::content::PNG;

const TEMPLATE: &str = "test://template/{id}/data";

#[derive(Deserialize)]
struct Template {
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct TwoArguments {
    /// First test argument.
    arg1: String,
    /// Second test argument.
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Embedded {
    /// URI of the resource to embed.
    resource_uri: String,
}

pub(crate) fn register(skill: Skill) -> Skill {
    prompts(resources(skill))
}

fn resources(skill: Skill) -> Skill {
    skill
        .resource(
            Resource::new("test://static-text", "Static text resource")
                .description("A text that does not change")
                .media_type("text/plain"),
            |_cx| Ok("This is the content of the static text resource."),
        )
        .resource(
            Resource::new("test://static-binary", "Static binary resource")
                .description("An image that does not change")
                .media_type("image/png"),
            |_cx| {
                let bytes = STANDARD.decode(PNG);
                bytes.map_err(|error| Error::new(format!("the image is broken: {error}")))
            },
        )
        .resource_template(
            ResourceTemplate::new(TEMPLATE, "Resource template")
                .description("Data for an id")
                .media_type("application/json"),
            |_cx, Template { id }| {
                let data = format!("Data for ID: {id}");
                Ok(json!({ "id": id, "templateTest": true, "data": data }))
            },
        )
        .complete(TEMPLATE, "id", |_cx, asked| {
            Ok(Completions::beginning(&asked.value, ["1", "12", "123"]))
        })
}

fn prompts(skill: Skill) -> Skill {
    skill
        .prompt(
            "test_simple_prompt",
            "A prompt without arguments",
            |_cx, _: Empty| Ok("This is a simple prompt for testing."),
        )
        .prompt(
            "test_prompt_with_arguments",
            "A prompt with two arguments",
            |_cx, TwoArguments { arg1, arg2 }| {
                Ok(format!(
                    "Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
                ))
            },
        )
        .prompt(
            "test_prompt_with_embedded_resource",
            "A prompt with a resource in it",
            |_cx, Embedded { resource_uri }| {
                let resource = json!({
                    "uri": resource_uri,
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                });
                let content = json!({ "type": "resource", "resource": resource });
                Ok(PromptText::default()
                    .message("user", content)
                    .and_user("Please process the embedded resource above."))
            },
        )
        .prompt(
            "test_prompt_with_image",
            "A prompt with an image in it",
            |_cx, _: Empty| {
                let content = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
                Ok(PromptText::default()
                    .message("user", content)
                    .and_user("Please analyze the image above."))
            },
        )
        .complete("test_prompt_with_arguments", "arg1", |_cx, asked| {
            let values = ["paris", "park", "party", "testValue1"];
            Ok(Completions::beginning(&asked.value, values))
        })
}
