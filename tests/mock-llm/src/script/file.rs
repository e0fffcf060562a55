//! The JSON form of a script, as the binary reads it.
//!
//! The fields are those of the types in Rust. An unknown field is an error.

use serde::Deserialize;

use super::{Answer, Matcher, Script, ScriptError, Step};
use crate::delivery::Delivery;
use crate::message::Message;
use crate::reply::{ErrorReply, HttpReply, Reply, ReplyKind};

/// Reads a script from its text.
pub(super) fn read(text: &str) -> Result<Script, ScriptError> {
    let file: ScriptFile = serde_json::from_str(text)?;
    let steps = file.steps.into_iter().enumerate();
    let script = Script {
        steps: steps
            .map(|(number, step)| step.build(&format!("step {number}")))
            .collect::<Result<_, _>>()?,
        fallback: match file.fallback {
            Some(reply) => Some(Answer::Fixed(Box::new(reply.build("the fallback")?))),
            None => None,
        },
        lenient: file.lenient,
        ..Script::default()
    };
    Ok(match file.models {
        Some(models) => script.models(models),
        None => script,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    steps: Vec<StepFile>,
    #[serde(default)]
    fallback: Option<ReplyFile>,
    #[serde(default)]
    lenient: bool,
    #[serde(default)]
    models: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    #[serde(default)]
    when: Matcher,
    #[serde(default)]
    times: Times,
    // The fields of `ReplyFile`: serde cannot flatten and refuse unknown fields at once.
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    error: Option<ErrorReply>,
    #[serde(default)]
    http: Option<HttpReply>,
    #[serde(default)]
    raw: Option<String>,
    #[serde(default)]
    delivery: Delivery,
}

impl StepFile {
    fn build(self, place: &str) -> Result<Step, ScriptError> {
        let reply = ReplyFile {
            message: self.message,
            error: self.error,
            http: self.http,
            raw: self.raw,
            delivery: self.delivery,
        };
        let step = Step::new(reply.build(place)?).when(self.when);
        Ok(match self.times {
            Times::Number(times) => step.times(times),
            Times::Word(Always::Always) => step.always(),
        })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Times {
    Number(usize),
    Word(Always),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Always {
    Always,
}

impl Default for Times {
    fn default() -> Self {
        Self::Number(1)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyFile {
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    error: Option<ErrorReply>,
    #[serde(default)]
    http: Option<HttpReply>,
    #[serde(default)]
    raw: Option<String>,
    #[serde(default)]
    delivery: Delivery,
}

impl ReplyFile {
    fn build(self, place: &str) -> Result<Reply, ScriptError> {
        let kinds = [
            self.message
                .map(|message| ReplyKind::Message(Box::new(message))),
            self.error.map(ReplyKind::Error),
            self.http.map(ReplyKind::Http),
            self.raw.map(|raw| ReplyKind::Raw(raw.into_bytes())),
        ];
        let mut kinds: Vec<ReplyKind> = kinds.into_iter().flatten().collect();
        match (kinds.pop(), kinds.len()) {
            (Some(kind), 0) => Ok(Reply {
                kind,
                delivery: self.delivery,
            }),
            (last, rest) => Err(ScriptError::NotOneReply {
                place: place.to_owned(),
                found: rest + usize::from(last.is_some()),
            }),
        }
    }
}
