//! The reply that a request gets: a list of steps, each used up by the requests that it answers.
//!
//! One script serves every wire: a step's words are neutral, and a request's path says how they
//! are written. A script is written in Rust, with closures where an answer depends on the request, or
//! read from a JSON file for the binary. It says nothing about bytes; that is `delivery`.
//!
//! ```json
//! {
//!   "steps": [
//!     {"message": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "clock_read"}]}},
//!     {"when": {"tool_result": "toolu_1"}, "message": {"content": [{"type": "text", "text": "Noon."}]}},
//!     {"times": 2, "error": {"status": 529, "retry_after": "1"}, "delivery": {"chunks": {"bytes": 1}}},
//!     {"when": {"wire": "chat"}, "message": {
//!       "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Noon."}],
//!       "dialect": {"chat": {"reasoning": "reasoning", "done": false}},
//!       "faults": {"bulk": {"deltas": 1000000}}
//!     }}
//!   ],
//!   "fallback": {"http": {"status": 502, "body": "<html>"}},
//!   "models": ["claude-mock", "gpt-mock"]
//! }
//! ```

mod file;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::hosted::Hosted;
use crate::reply::Reply;
use crate::request::Request;
use crate::wire::Wire;

/// A list of steps. A request takes the first step that is not used up and whose matcher fits, else
/// the fallback, else it is answered 500 and counts as unexpected.
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    pub(crate) fallback: Option<Answer>,
    pub(crate) lenient: bool,
    pub(crate) models: Vec<String>,
    pub(crate) hosted: Option<Hosted>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            fallback: None,
            lenient: false,
            models: MODELS.map(str::to_owned).to_vec(),
            hosted: None,
        }
    }
}

/// The models that a mock lists unless its script names others.
const MODELS: [&str; 4] = ["claude-mock", "gpt-mock", "deepseek-mock", "gemini-mock"];

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
        file::read(text)
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

    /// Sets the models that are listed: `GET /v1/models` as Anthropic's (with `anthropic-version`) or
    /// `OpenAI`'s, `GET /v1beta/models` as Gemini's. A list uses up no step; a step whose matcher names
    /// a method or a path comes before it. Any model may be asked, listed or not.
    #[must_use]
    pub fn models<I: Into<String>>(mut self, models: impl IntoIterator<Item = I>) -> Self {
        self.models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Serves Anthropic's Skills and Files APIs, and judges what Messages say about containers. A
    /// step whose matcher names a method or a path comes before them.
    #[must_use]
    pub fn hosted(mut self, hosted: Hosted) -> Self {
        self.hosted = Some(hosted);
        self
    }

    /// As [`Script::hosted`], unless it was said already.
    #[must_use]
    pub fn hosted_unless_set(mut self, hosted: Hosted) -> Self {
        self.hosted.get_or_insert(hosted);
        self
    }

    /// Takes the answer for a request, using it up.
    pub(crate) fn take(&mut self, request: &Request) -> Option<Answer> {
        self.take_step(request, |_| true)
            .or_else(|| self.fallback.clone())
    }

    /// As [`Script::take`], of the steps alone that name a method or a path.
    pub(crate) fn take_named(&mut self, request: &Request) -> Option<Answer> {
        self.take_step(request, |when| when.method.is_some() || when.path.is_some())
    }

    fn take_step(&mut self, request: &Request, which: impl Fn(&Matcher) -> bool) -> Option<Answer> {
        let step = self.steps.iter_mut().find(|step| {
            step.remaining != Some(0) && which(&step.when) && step.when.fits(request)
        })?;
        step.remaining = step.remaining.map(|left| left.saturating_sub(1));
        Some(step.answer.clone())
    }
}

/// An answer, for how many requests, and for which.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) when: Matcher,
    /// `None`: never used up.
    pub(crate) remaining: Option<usize>,
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
        Self::from(Answer::Computed(Arc::new(answer)))
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
        self.remaining = Some(times);
        self
    }

    /// For any number of requests.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.remaining = None;
        self
    }
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        Self {
            when: Matcher::default(),
            remaining: Some(1),
            answer,
        }
    }
}

/// Where a reply comes from.
#[derive(Clone)]
pub(crate) enum Answer {
    Fixed(Box<Reply>),
    Computed(Arc<dyn Fn(&Request) -> Reply + Send + Sync>),
}

impl Answer {
    pub(crate) fn reply(&self, request: &Request) -> Reply {
        match self {
            Self::Fixed(reply) => reply.as_ref().clone(),
            Self::Computed(make) => make(request),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(reply) => reply.fmt(formatter),
            Self::Computed(_) => formatter.write_str("<made from the request>"),
        }
    }
}

/// Requests that a step is for: those for which everything that is set holds.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matcher {
    method: Option<String>,
    path: Option<String>,
    wire: Option<Wire>,
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

    /// The request speaks this wire.
    #[must_use]
    pub fn wire(mut self, wire: Wire) -> Self {
        self.wire = Some(wire);
        self
    }

    /// The model asked for is this.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The last message's text contains a text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// A tool of this name is offered.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// The result of a call is in the history.
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
            && self.wire.is_none_or(|wire| request.wire() == Some(wire))
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
            .field("wire", &self.wire)
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
        /// Place of the step in the script.
        place: String,
        /// How many it has.
        found: usize,
    },
}
