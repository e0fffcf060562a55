//! Which reply a request gets: a list of steps, each used up by the requests that it answers.
//!
//! A script is written in Rust, with closures where an answer depends on the request, or read from
//! a JSON file for the binary. It says nothing about bytes; that is `delivery`.
//!
//! ```json
//! {
//!   "steps": [
//!     {"message": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "clock_read"}]}},
//!     {"when": {"tool_result": "toolu_1"}, "message": {"content": [{"type": "text", "text": "Noon."}]}},
//!     {"times": 2, "error": {"status": 529, "retry_after": "1"}, "delivery": {"chunks": {"bytes": 1}}}
//!   ],
//!   "fallback": {"http": {"status": 502, "body": "<html>"}}
//! }
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::delivery::Delivery;
use crate::message::Message;
use crate::reply::{ErrorReply, HttpReply, Reply, ReplyKind};
use crate::request::Request;

/// A list of steps. A request takes the first step that is not used up and whose matcher fits, else
/// the fallback, else it is answered 500 and counts as unexpected.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    pub(crate) fallback: Option<Answer>,
    pub(crate) lenient: bool,
}

impl Script {
    /// A script that expects no request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script from a JSON file.
    ///
    /// # Errors
    /// When the file cannot be read, or as [`Script::from_json`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| ScriptError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::from_json(&text)
    }

    /// Reads a script from JSON. An unknown field is an error.
    ///
    /// # Errors
    /// When the text is no script, with line and column.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        let file: ScriptFile = serde_json::from_str(text)?;
        let steps = file.steps.into_iter().enumerate();
        Ok(Self {
            steps: steps
                .map(|(number, step)| step.build(&format!("step {number}")))
                .collect::<Result<_, _>>()?,
            fallback: match file.fallback {
                Some(reply) => Some(Answer::Fixed(Box::new(reply.build("the fallback")?))),
                None => None,
            },
            lenient: file.lenient,
        })
    }

    /// Adds a reply to the next request.
    #[must_use]
    pub fn reply(self, reply: impl Into<Reply>) -> Self {
        self.step(Step::new(reply))
    }

    /// Adds a reply that is made from the request.
    #[must_use]
    pub fn answer(self, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        self.step(Step::answer(answer))
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Sets the reply for requests that no step fits.
    #[must_use]
    pub fn fallback(mut self, reply: impl Into<Reply>) -> Self {
        self.fallback = Some(Answer::Fixed(Box::new(reply.into())));
        self
    }

    /// Serves requests that the provider would refuse, too. Violations are still recorded.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Takes the answer for a request, using it up.
    pub(crate) fn take(&mut self, request: &Request) -> Option<Answer> {
        let step = self
            .steps
            .iter_mut()
            .find(|step| step.left != Some(0) && step.when.fits(request));
        match step {
            Some(step) => {
                step.left = step.left.map(|left| left.saturating_sub(1));
                Some(step.answer.clone())
            }
            None => self.fallback.clone(),
        }
    }
}

/// An answer, for how many requests, and for which.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) when: Matcher,
    /// `None`: never used up.
    pub(crate) left: Option<usize>,
    pub(crate) answer: Answer,
}

impl Step {
    /// Answers one request, any, with this.
    #[must_use]
    pub fn new(reply: impl Into<Reply>) -> Self {
        Self::from(Answer::Fixed(Box::new(reply.into())))
    }

    /// Answers one request, any, with what the closure makes of it.
    #[must_use]
    pub fn answer(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::from(Answer::Made(Arc::new(answer)))
    }

    /// Only for requests that fit.
    #[must_use]
    pub fn when(mut self, matcher: Matcher) -> Self {
        self.when = matcher;
        self
    }

    /// For this many requests.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.left = Some(times);
        self
    }

    /// For any number of requests.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.left = None;
        self
    }
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        Self {
            when: Matcher::default(),
            left: Some(1),
            answer,
        }
    }
}

/// Where a reply comes from.
#[derive(Clone)]
pub(crate) enum Answer {
    Fixed(Box<Reply>),
    Made(Arc<dyn Fn(&Request) -> Reply + Send + Sync>),
}

impl Answer {
    pub(crate) fn reply(&self, request: &Request) -> Reply {
        match self {
            Self::Fixed(reply) => reply.as_ref().clone(),
            Self::Made(make) => make(request),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(reply) => reply.fmt(formatter),
            Self::Made(_) => formatter.write_str("<made from the request>"),
        }
    }
}

/// Which requests a step is for: those for which everything that is set holds.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matcher {
    method: Option<String>,
    path: Option<String>,
    model: Option<String>,
    text: Option<String>,
    tool: Option<String>,
    tool_result: Option<String>,
    #[serde(skip)]
    predicate: Option<Predicate>,
}

/// A condition written in Rust.
type Predicate = Arc<dyn Fn(&Request) -> bool + Send + Sync>;

impl Matcher {
    /// Every request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests for which the closure says yes.
    #[must_use]
    pub fn predicate(predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Self {
            predicate: Some(Arc::new(predicate)),
            ..Self::default()
        }
    }

    /// The method is this.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// The path is exactly this.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The model asked for is this.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The last message's text contains this.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// This tool is offered.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// The result of this call is in the history.
    #[must_use]
    pub fn tool_result(mut self, tool_use_id: impl Into<String>) -> Self {
        self.tool_result = Some(tool_use_id.into());
        self
    }

    fn fits(&self, request: &Request) -> bool {
        let equal = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        equal(&self.method, &request.method)
            && equal(&self.path, &request.path)
            && equal(&self.model, request.model())
            && self
                .text
                .as_deref()
                .is_none_or(|text| request.last_text().contains(text))
            && self
                .tool
                .as_deref()
                .is_none_or(|tool| request.tool_names().contains(&tool))
            && self
                .tool_result
                .as_deref()
                .is_none_or(|id| request.tool_result(id).is_some())
            && self
                .predicate
                .as_ref()
                .is_none_or(|predicate| predicate(request))
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Matcher")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("model", &self.model)
            .field("text", &self.text)
            .field("tool", &self.tool)
            .field("tool_result", &self.tool_result)
            .field("predicate", &self.predicate.is_some())
            .finish()
    }
}

/// Why a script could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file could not be read.
    #[error("cannot read the script {}: {source}; name a readable JSON file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no script.
    #[error("the script is not valid: {source}; see the documentation of `Script` for its fields")]
    Invalid {
        /// What is wrong, with line and column.
        #[from]
        source: serde_json::Error,
    },
    /// A step says nothing, or two things.
    #[error(
        "{place} of the script has {found} of `message`, `error`, `http` and `raw`; give it exactly one"
    )]
    NotOneReply {
        /// Which step.
        place: String,
        /// How many it has.
        found: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    steps: Vec<StepFile>,
    #[serde(default)]
    fallback: Option<ReplyFile>,
    #[serde(default)]
    lenient: bool,
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
