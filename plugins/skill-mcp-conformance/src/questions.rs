//! Tools that ask the person or the model, one thing at a time.

use conjure_skill_sdk::protocol::{Elicit, Elicited, Empty, Sample, SampleMessage};
use conjure_skill_sdk::{Cx, Error, Result, Skill};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stateless;

#[derive(Deserialize, JsonSchema)]
struct PromptArguments {
    /// The prompt to send to the model.
    prompt: String,
}

#[derive(Deserialize, JsonSchema)]
struct MessageArguments {
    /// The message to show the user.
    message: String,
}

pub(crate) fn register(skill: Skill) -> Skill {
    skill
        .tool_with(
            "test_sampling",
            "Asks the model",
            stateless(),
            |cx, asked: PromptArguments| {
                let text = sample(cx, &asked.prompt)?;
                Ok::<_, Error>(format!("LLM response: {text}"))
            },
        )
        .tool_with(
            "test_missing_capability",
            "Cannot do without asking the model",
            stateless(),
            |cx, _: Empty| sample(cx, "Does anybody answer?"),
        )
        .tool_with(
            "test_elicitation",
            "Asks the user",
            stateless(),
            |cx, asked: MessageArguments| {
                let answer = elicit(cx, &asked.message, user())?;
                let Elicited { action, content } = answer;
                let content = json!(content);
                Ok::<_, Error>(format!("User response: action={action}, content={content}"))
            },
        )
        .tool_with(
            "test_streaming_elicitation",
            "Asks the user after a message on the way",
            stateless(),
            |cx, _: Empty| {
                cx.progress(0.0, Some(1.0), "Asking")?;
                elicit(cx, "May I go on?", confirmation()).map(describe_answer)
            },
        )
        .tool_with(
            "test_elicitation_sep1034_defaults",
            "Asks with a form whose fields have defaults",
            stateless(),
            |cx, _: Empty| {
                let message = "Please review and update the form fields with defaults";
                elicit(cx, message, defaults()).map(describe_answer)
            },
        )
        .tool_with(
            "test_elicitation_sep1330_enums",
            "Asks with a form of choices",
            stateless(),
            |cx, _: Empty| {
                elicit(cx, "Please select from the options", enums()).map(describe_answer)
            },
        )
        .tool_with(
            "test_elicitation_url",
            "Asks the user to visit a page",
            stateless(),
            |cx, _: Empty| {
                let asked = Elicit {
                    message: "Please visit the page".to_owned(),
                    url: Some("https://example.com/visit".to_owned()),
                    elicitation_id: Some("visit-1".to_owned()),
                    ..Elicit::default()
                };
                cx.elicit(&asked).map(describe_answer)
            },
        )
}

fn sample(cx: &Cx, prompt: &str) -> Result<String> {
    let asked = Sample {
        messages: vec![SampleMessage::user(prompt)],
        max_tokens: Some(100),
        ..Sample::default()
    };
    Ok(cx.sample(&asked)?.text)
}

fn elicit(cx: &Cx, message: &str, schema: Value) -> Result<Elicited> {
    cx.elicit(&Elicit {
        message: message.to_owned(),
        schema: Some(schema),
        ..Elicit::default()
    })
}

fn describe_answer(answer: Elicited) -> String {
    let Elicited { action, content } = answer;
    format!(
        "Elicitation completed: action={action}, content={}",
        json!(content)
    )
}

pub(crate) fn confirmation() -> Value {
    json!({
        "type": "object",
        "properties": { "ok": { "type": "boolean" } },
        "required": ["ok"],
    })
}

fn user() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    })
}

fn defaults() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "User name", "default": "John Doe" },
            "age": { "type": "integer", "description": "User age", "default": 30 },
            "score": { "type": "number", "description": "User score", "default": 95.5 },
            "status": {
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": { "type": "boolean", "description": "Verified", "default": true },
        },
        "required": [],
    })
}

fn enums() -> Value {
    let titled = |kind: &str| {
        json!([
            { "const": "value1", "title": format!("First {kind}") },
            { "const": "value2", "title": format!("Second {kind}") },
            { "const": "value3", "title": format!("Third {kind}") },
        ])
    };
    let options = || json!(["option1", "option2", "option3"]);
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": options() },
            "titledSingle": { "type": "string", "oneOf": titled("Option") },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array",
                "items": { "type": "string", "enum": options() },
            },
            "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
        },
        "required": [],
    })
}
