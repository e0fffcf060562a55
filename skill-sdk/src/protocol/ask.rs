//! Several questions in one round: the host operation `ask`.
//!
//! A peer whose answers come with a new request is asked once for all of them, and knows each by
//! its key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Elicit, Elicited, Root, Roots, Sample, Sampled};
use crate::error::{Error, Result};

/// Asks several things at once: `ask`. Waiting for a person or a model stops the call's clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ask {
    /// The questions, each under a key that its answer has too.
    pub questions: BTreeMap<String, Question>,
}

impl Ask {
    /// No question yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more question, to the person.
    #[must_use]
    pub fn elicit(self, key: &str, question: Elicit) -> Self {
        self.question(key, Question::Elicit(question))
    }

    /// One more question, to the session's model.
    #[must_use]
    pub fn sample(self, key: &str, question: Sample) -> Self {
        self.question(key, Question::Sample(question))
    }

    /// One more question: in which directories the session works.
    #[must_use]
    pub fn roots(self, key: &str) -> Self {
        self.question(key, Question::Roots)
    }

    fn question(mut self, key: &str, question: Question) -> Self {
        self.questions.insert(key.to_owned(), question);
        self
    }
}

impl Answers {
    /// What the person answered.
    ///
    /// # Errors
    /// Why there is no such answer under the key.
    pub fn elicited(&self, key: &str) -> Result<&Elicited> {
        match self.answers.get(key) {
            Some(Answer::Elicited(answer)) => Ok(answer),
            other => Err(no_answer(key, other)),
        }
    }

    /// What the model said.
    ///
    /// # Errors
    /// Why there is no such answer under the key.
    pub fn sampled(&self, key: &str) -> Result<&Sampled> {
        match self.answers.get(key) {
            Some(Answer::Sampled(answer)) => Ok(answer),
            other => Err(no_answer(key, other)),
        }
    }

    /// The directories that the session works in.
    ///
    /// # Errors
    /// Why there is no such answer under the key.
    pub fn roots(&self, key: &str) -> Result<&[Root]> {
        match self.answers.get(key) {
            Some(Answer::Roots(answer)) => Ok(&answer.roots),
            other => Err(no_answer(key, other)),
        }
    }
}

fn no_answer(key: &str, found: Option<&Answer>) -> Error {
    match found {
        Some(Answer::Refused { code, message }) => Error::with_code(*code, message),
        Some(_) => Error::invalid(format!("the answer `{key}` is of another kind")),
        None => Error::invalid(format!("the host has no answer `{key}`")),
    }
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = super::schemas::open_kinds))]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// Asks the person.
    Elicit(Elicit),
    /// Asks the session's model.
    Sample(Sample),
    /// Asks for the directories that the session works in.
    Roots,
    /// A question of a kind that this version does not know; it is refused.
    #[serde(untagged)]
    Other(Value),
}

/// What was answered: the reply of `ask`, with every key of the request. A question that nobody
/// can answer is refused alone; the others are asked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answers {
    /// The answers, by the keys of their questions.
    pub answers: BTreeMap<String, Answer>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = super::schemas::open_kinds))]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// What the person answered.
    Elicited(Elicited),
    /// What the model said.
    Sampled(Sampled),
    /// The directories.
    Roots(Roots),
    /// Why there is no answer.
    Refused {
        /// As the code of a fault.
        code: u32,
        /// What failed, why, and what to do.
        message: String,
    },
    /// An answer of a kind that this version does not know.
    #[serde(untagged)]
    Other(Value),
}
