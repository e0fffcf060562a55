//! Says in words how a request differs from the conversation that it was made of.
//!
//! Looks at both from outside and changes nothing. What only a wire knows it has noted itself.

use conjure_core::chat::{Content, Message, OutputPart, Part, Role, Sidecar};
use conjure_core::repair::RepairTarget;
use conjure_core::wire::Encoded;

/// What was recast, left out or added, and why: a line each, in the order of the conversation.
pub(crate) fn explain(
    before: &[Message],
    after: &[Message],
    target: &RepairTarget,
    encoded: &Encoded,
) -> Vec<String> {
    let mut said = Vec::new();
    for (number, message) in (1..).zip(before) {
        if message.meta.as_ref().is_some_and(|meta| meta.superseded) {
            said.push(format!(
                "message {number} is left out: it was begun again with other settings"
            ));
            continue;
        }
        for part in &message.content {
            if let Some(what) = part_change(part, message.role, after, target) {
                said.push(format!("message {number}: {what}"));
            }
        }
    }
    explain_additions(before, after, &mut said);
    let body = String::from_utf8_lossy(&encoded.body);
    for call in after.iter().flat_map(Message::calls) {
        let id = serde_json::to_string(&call.call_id).unwrap_or_default();
        if !body.contains(&id) {
            said.push(format!(
                "the call `{}` goes without its id or with another one, which this wire takes",
                call.call_id
            ));
        }
    }
    let left_out = encoded.quarantined.iter();
    said.extend(left_out.map(|out| format!("tool `{}` is left out: {}", out.tool, out.reason)));
    said.extend(encoded.notes.iter().cloned());
    said
}

fn parts(messages: &[Message]) -> impl Iterator<Item = &Part> {
    messages.iter().flat_map(|message| &message.content)
}

/// What became of a part; nothing when it is there as it was.
fn part_change(
    part: &Part,
    role: Role,
    after: &[Message],
    target: &RepairTarget,
) -> Option<String> {
    if parts(after).any(|kept| kept == part) {
        return None;
    }
    if !matches!(part.content, Content::Reasoning { .. })
        && parts(after).any(|kept| kept.content == part.content)
    {
        let sidecar = part.sidecar.as_ref()?;
        return Some(format!(
            "what {} added to {} for itself is left out: it goes to nobody else",
            signer(sidecar),
            name(&part.content)
        ));
    }
    let what = name(&part.content);
    Some(match &part.content {
        Content::Reasoning { .. } => match &part.sidecar {
            None => format!("{what} are left out: nobody signed them, so nobody takes them back"),
            Some(sidecar) if sidecar.provider == target.provider => format!(
                "{what} are left out: {} signed them, and they stand where {} of {} does not take \
                 them or are another model's",
                signer(sidecar),
                target.model,
                target.provider
            ),
            Some(sidecar) => format!(
                "{what} are left out: they are {}'s, and go to nobody else",
                signer(sidecar)
            ),
        },
        Content::Text { text } if text.trim().is_empty() => {
            format!("{what} is left out: it is empty")
        }
        Content::Text { .. } if role == Role::System => {
            format!("{what} is told as the host's word in a message of the person")
        }
        Content::Text { .. } => format!("{what} is told in other words"),
        Content::FunctionCall(call) => match parts(after)
            .filter_map(Part::as_call)
            .find(|kept| kept.call_id == call.call_id)
        {
            Some(_) => {
                format!("{what} is sent without arguments: what the model wrote is no JSON object")
            }
            None => format!("{what} is left out or has another id: two calls cannot have one id"),
        },
        Content::FunctionCallOutput(output) => {
            if outputs(after).any(|kept| kept == output.call_id) {
                format!("{what} is told in other words: this model cannot take it as it is")
            } else {
                format!("{what} is told as text or left out: no call right before it asked for it")
            }
        }
        Content::Image { .. } | Content::File { .. } => {
            format!("{what} is told as text: {} cannot look at it", target.model)
        }
        Content::ServerItem { provider, .. } => format!(
            "{what} of {provider} is told as text or left out: {} cannot take it here",
            target.provider
        ),
    })
}

/// What stands in the request and not in the conversation.
fn explain_additions(before: &[Message], after: &[Message], said: &mut Vec<String>) {
    for part in parts(after) {
        match &part.content {
            Content::Text { text } if !parts(before).any(|old| old.as_text() == Some(text)) => {
                said.push(format!("added or recast: {}", shorten(text)));
            }
            Content::FunctionCallOutput(output)
                if !outputs(before).any(|id| id == output.call_id) =>
            {
                let text = output.output.iter().find_map(|part| match part {
                    OutputPart::Text { text } => Some(shorten(text)),
                    _ => None,
                });
                said.push(format!(
                    "a result is added for the call `{}`, which has none: {}",
                    output.call_id,
                    text.unwrap_or_default()
                ));
            }
            _ => {}
        }
    }
}

fn outputs(messages: &[Message]) -> impl Iterator<Item = &str> {
    parts(messages).filter_map(|part| match &part.content {
        Content::FunctionCallOutput(output) => Some(output.call_id.as_str()),
        _ => None,
    })
}

fn name(content: &Content) -> String {
    match content {
        Content::Text { .. } => "a text".to_owned(),
        Content::Reasoning { .. } => "thoughts".to_owned(),
        Content::FunctionCall(call) => format!("the call `{}`", call.call_id),
        Content::FunctionCallOutput(output) => format!("the result of `{}`", output.call_id),
        Content::Image { artifact } => format!("the image `{}`", artifact.name),
        Content::File { artifact } => format!("the file `{}`", artifact.name),
        Content::ServerItem { .. } => "an item".to_owned(),
    }
}

fn signer(sidecar: &Sidecar) -> String {
    format!("{}/{}", sidecar.provider, sidecar.model_family)
}

fn shorten(text: &str) -> String {
    const MOST: usize = 160;
    let line = text.replace('\n', " ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
