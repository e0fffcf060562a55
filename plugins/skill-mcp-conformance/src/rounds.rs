//! Tools and a prompt that ask in rounds, under the keys that the suite answers to.
//!
//! The state that a client of MCP 2026-07-28 sends back with its answers is the host's: these
//! calls simply wait.

use std::collections::BTreeMap;

use conjure_skill_sdk::protocol::{
    Answer, Ask, Elicit, Elicited, Empty, PromptText, Sample, SampleMessage,
};
use conjure_skill_sdk::{Cx, Error, Result, Skill};
use serde_json::{Value, json};

use crate::questions::confirmation;
use crate::stateless;

pub(crate) fn register(skill: Skill) -> Skill {
    skill
        .tool_with(
            "test_input_required_result_elicitation",
            "Asks for a name",
            stateless(),
            |cx, _: Empty| {
                let name = text(cx, "user_name", "What is your name?", "name")?;
                Ok::<_, Error>(format!("Hello, {name}!"))
            },
        )
        .tool_with(
            "test_input_required_result_sampling",
            "Asks the model",
            stateless(),
            |cx, _: Empty| {
                let asked = question("What is the capital of France?", 100);
                let answers = cx.ask(&Ask::new().sample("capital_question", asked))?;
                Ok::<_, Error>(answers.sampled("capital_question")?.text.clone())
            },
        )
        .tool_with(
            "test_input_required_result_list_roots",
            "Asks for the directories",
            stateless(),
            |cx, _: Empty| {
                let answers = cx.ask(&Ask::new().roots("client_roots"))?;
                roots(answers.roots("client_roots")?)
            },
        )
        .tool_with(
            "test_input_required_result_request_state",
            "Asks for a confirmation",
            stateless(),
            |cx, _: Empty| ask_confirmation(cx).map(|ok| format!("state-ok: {ok}")),
        )
        .tool_with(
            "test_input_required_result_tampered_state",
            "Asks for a confirmation",
            stateless(),
            |cx, _: Empty| ask_confirmation(cx).map(|ok| format!("Confirmed: {ok}")),
        )
        .tool_with(
            "test_input_required_result_multiple_inputs",
            "Asks the user, the model and for the directories at once",
            stateless(),
            |cx, _: Empty| ask_several(cx),
        )
        .tool_with(
            "test_input_required_result_multi_round",
            "Asks twice",
            stateless(),
            |cx, _: Empty| {
                let name = text(cx, "step1", "Step 1: What is your name?", "name")?;
                let color = text(cx, "step2", "Step 2: What is your favorite color?", "color")?;
                Ok::<_, Error>(format!("Hello, {name}, who likes {color}!"))
            },
        )
        .tool_with(
            "test_input_required_result_capabilities",
            "Asks the user and the model, as far as they can be asked",
            stateless(),
            |cx, _: Empty| capable(cx),
        )
        .prompt(
            "test_input_required_result_prompt",
            "A prompt that asks what it is about",
            |cx, _: Empty| {
                let message = "What context should the prompt use?";
                let context = text(cx, "user_context", message, "context")?;
                Ok(PromptText::user(&format!("Use this context: {context}")))
            },
        )
}

/// Asks for one text of the user.
fn text(cx: &Cx, key: &str, message: &str, field: &str) -> Result<String> {
    let schema = json!({
        "type": "object",
        "properties": { field: { "type": "string" } },
        "required": [field],
    });
    let answers = cx.ask(&Ask::new().elicit(key, form(message, schema)))?;
    let content = accepted_content(answers.elicited(key)?)?;
    let text = content.get(field).and_then(Value::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| Error::invalid(format!("the answer has no text `{field}`")))
}

fn ask_confirmation(cx: &Cx) -> Result<bool> {
    let asked = Ask::new().elicit("confirm", form("Please confirm", confirmation()));
    let answers = cx.ask(&asked)?;
    let content = accepted_content(answers.elicited("confirm")?)?;
    Ok(content.get("ok") == Some(&json!(true)))
}

fn ask_several(cx: &Cx) -> Result<String> {
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string" } },
        "required": ["name"],
    });
    let asked = Ask::new()
        .elicit("user_name", form("What is your name?", schema))
        .sample("greeting", question("Generate a greeting", 50))
        .roots("client_roots");
    let answers = cx.ask(&asked)?;
    let name = accepted_content(answers.elicited("user_name")?)?.get("name");
    let name = name.cloned().unwrap_or_default();
    let greeting = &answers.sampled("greeting")?.text;
    let roots = answers.roots("client_roots")?.len();
    Ok(format!("{greeting} {name}, {roots} directories"))
}

/// Says which of the questions were answered.
fn capable(cx: &Cx) -> Result<String> {
    let asked = Ask::new()
        .elicit("confirm", form("Please confirm", confirmation()))
        .sample("greeting", question("Generate a greeting", 50));
    let answers = cx.ask(&asked)?.answers;
    let answered = answers.iter().filter_map(|(key, answer)| {
        let refused = matches!(answer, Answer::Refused { .. });
        (!refused).then_some(key.as_str())
    });
    let answered: Vec<&str> = answered.collect();
    if answered.is_empty() {
        return Err(Error::new("the client can answer none of the questions"));
    }
    Ok(format!("Answered: {}", answered.join(", ")))
}

fn form(message: &str, schema: Value) -> Elicit {
    Elicit {
        message: message.to_owned(),
        schema: Some(schema),
        ..Elicit::default()
    }
}

fn question(text: &str, max_tokens: u32) -> Sample {
    Sample {
        messages: vec![SampleMessage::user(text)],
        max_tokens: Some(max_tokens),
        ..Sample::default()
    }
}

fn accepted_content(answer: &Elicited) -> Result<&BTreeMap<String, Value>> {
    match answer.action.as_str() {
        "accept" => Ok(&answer.content),
        other => Err(Error::new(format!("the user did not answer: {other}"))),
    }
}

fn roots(roots: &[conjure_skill_sdk::protocol::Root]) -> Result<String> {
    let uris: Vec<&str> = roots.iter().map(|root| root.uri.as_str()).collect();
    Ok(format!("The directories are: {}", uris.join(", ")))
}
