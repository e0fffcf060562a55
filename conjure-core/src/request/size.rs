//! How many tokens entries of a log are about, whatever the provider: what decides when a
//! conversation is to be summarised, and where it may be cut.

use super::ToolDefinition;
use super::conversation::repeated_message;
use super::estimate::value_tokens;
use super::media::MAX_TEXT_BYTES;
use super::text_tokens;
use crate::chat::{Content, FunctionCallOutput, Message, OutputPart, Part, Usage};
use crate::context::{notes, plugin_note};
use crate::log::{Entry, EntryBody, fold, last_view_change};
use crate::wire_name::Wire;

/// Tokens that an image or a file counts for; providers take 250 to 1,600.
const MEDIA_TOKENS: u64 = 1_000;

/// Bytes of a text that make a token, about.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of framing that each part costs.
const PART_TOKENS: u64 = 4;

/// Tokens that a message is about, sidecars included.
#[must_use]
pub fn message_tokens(message: &Message) -> u64 {
    message.content.iter().map(part_tokens).sum()
}

/// Tokens that an entry adds to the next request, about.
#[must_use]
pub fn entry_tokens(body: &EntryBody) -> u64 {
    match body {
        EntryBody::Message { message } if is_superseded(message) => 0,
        EntryBody::Message { message } => message_tokens(message),
        EntryBody::CallEnded { output, .. } => output_tokens(output),
        other => plugin_note(other).map_or(0, |note| tokens(&note) + PART_TOKENS),
    }
}

/// Tokens that the definitions of tools are about, without what a provider writes around them.
#[must_use]
pub fn tool_tokens(tools: &[ToolDefinition]) -> u64 {
    let of_tool = |tool: &ToolDefinition| {
        PART_TOKENS
            + tokens(&tool.name)
            + tokens(&tool.description)
            + value_tokens(&tool.input_schema)
    };
    tools.iter().map(of_tool).sum()
}

/// Tokens of input that the next request of this log will have, about: what the provider counted
/// for the newest reply, and an estimate of what came since.
///
/// Without a count all of it is an estimate, which knows of the conversation and nothing of
/// instructions and tools.
#[must_use]
pub fn next_input_tokens(entries: &[Entry]) -> u64 {
    let since = last_view_change(entries);
    let mut after = 0;
    for entry in entries.iter().rev().take_while(|entry| entry.seq > since) {
        if let Some(counted) = counted_tokens(&entry.body) {
            return counted + after;
        }
        after += entry_tokens(&entry.body);
    }
    view_tokens(entries)
}

/// Tokens of what a model reads of a log, about.
#[must_use]
pub fn view_tokens(entries: &[Entry]) -> u64 {
    let folded = fold(entries);
    let summary = folded.summary.map_or(0, summary_tokens);
    let asked = repeated_message(&folded).map_or(0, message_tokens);
    let shown = folded.shown.iter().map(|entry| entry_tokens(&entry.body));
    summary + asked + shown.sum::<u64>()
}

/// What a reply says about the next request: its own input, and the reply itself.
pub(crate) fn counted_tokens(body: &EntryBody) -> Option<u64> {
    let EntryBody::Message { message } = body else {
        return None;
    };
    let usage: Usage = message.meta.as_ref()?.usage;
    let input = usage.prompt_tokens();
    // A reply that broke off may not have told what it cost.
    (input > 0).then(|| match is_superseded(message) {
        true => input,
        false => input + usage.output.max(message_tokens(message)),
    })
}

fn is_superseded(message: &Message) -> bool {
    message.meta.as_ref().is_some_and(|meta| meta.superseded)
}

fn summary_tokens(summary: &str) -> u64 {
    tokens(&notes::summary(summary)) + PART_TOKENS
}

fn part_tokens(part: &Part) -> u64 {
    let said = match &part.content {
        Content::Text { text } | Content::Reasoning { text } => tokens(text),
        Content::FunctionCall(call) => {
            let arguments = match &call.arguments_text {
                Some(text) => tokens(text),
                None => value_tokens(&call.arguments),
            };
            tokens(&call.name) + arguments
        }
        Content::FunctionCallOutput(output) => return output_tokens(output),
        Content::File { artifact } if artifact.is_text() => {
            artifact.size.unwrap_or(MEDIA_TOKENS).min(MAX_TEXT_BYTES) / BYTES_PER_TOKEN
        }
        Content::Image { .. } | Content::File { .. } => MEDIA_TOKENS,
        Content::ServerItem { item, .. } => value_tokens(item),
    };
    let signed = part.sidecar.as_ref();
    PART_TOKENS + said + signed.map_or(0, |sidecar| value_tokens(&sidecar.data))
}

fn output_tokens(output: &FunctionCallOutput) -> u64 {
    let of_part = |part: &OutputPart| match part {
        OutputPart::Text { text } => tokens(text),
        OutputPart::Image { .. } | OutputPart::File { .. } => MEDIA_TOKENS,
    };
    PART_TOKENS + output.output.iter().map(of_part).sum::<u64>()
}

fn tokens(text: &str) -> u64 {
    text_tokens(Wire::OpenaiChat, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Meta, Role};
    use crate::log::CallEnd;
    use crate::log::test_kit::log;

    fn reply(text: &str, usage: Usage) -> EntryBody {
        let mut message = Message::new(Role::Assistant, vec![Part::text(text)]);
        message.meta = Some(Meta {
            usage,
            ..Meta::default()
        });
        EntryBody::Message { message }
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage {
            input,
            output,
            ..Usage::default()
        }
    }

    fn result(words: usize) -> EntryBody {
        EntryBody::CallEnded {
            output: FunctionCallOutput::text("1", "word ".repeat(words), false),
            end: CallEnd::Done,
            reason: None,
            duration_ms: 1,
            meta: None,
        }
    }

    #[test]
    fn what_the_provider_counted_and_what_came_since() {
        let mut bodies = vec![
            EntryBody::Message {
                message: Message::user("word ".repeat(1_000)),
            },
            reply("fine", usage(5_000, 70)),
        ];
        assert_eq!(next_input_tokens(&log(bodies.clone())), 5_070);
        bodies.push(result(2_000));
        let tokens = next_input_tokens(&log(bodies.clone()));
        assert!((6_800..7_600).contains(&tokens), "{tokens}");
        // A reply without a count is estimated like everything since the last count.
        bodies.push(reply(&"word ".repeat(500), usage(0, 0)));
        let more = next_input_tokens(&log(bodies));
        assert!((tokens + 400..tokens + 700).contains(&more), "{more}");
    }

    #[test]
    fn without_a_count_the_whole_of_what_is_read_is_estimated() {
        let said = |words: usize| EntryBody::Message {
            message: Message::user("word ".repeat(words)),
        };
        let mut bodies = vec![said(5_000), reply("fine", usage(9_000, 7)), said(100)];
        bodies.push(EntryBody::Compacted {
            upto: 3,
            summary: "word ".repeat(50),
            meta: None,
        });
        // What was counted before the fold is no more what is sent.
        let tokens = next_input_tokens(&log(bodies.clone()));
        assert!((130..350).contains(&tokens), "{tokens}");
        bodies.push(EntryBody::Unfolded { fold: 4 });
        let tokens = next_input_tokens(&log(bodies));
        assert!((5_000..5_800).contains(&tokens), "{tokens}");
    }
}
