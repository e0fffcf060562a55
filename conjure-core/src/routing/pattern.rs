//! Patterns of the tool policy, such as `log-fetcher_*`, `backend:docker` or
//! `local_bash_tool(git *)`.
//!
//! One pattern language for all three decisions, read more narrowly where it allows: there a
//! command is compared word by word and a path after it was resolved. Decides nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command_pattern::CommandPattern;
use super::paths;
use super::pattern_arguments::PatternArguments;
use super::policy::PolicyCall;
use super::shell::{Expansions, readings};

/// What backends are commonly named that run commands.
const EXECUTORS: &[&str] = &["local", "docker", "ssh", "kubernetes"];

/// What a rule of the policy is about. `*` stands for any text, also none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    subject: Subject,
    /// The text between parentheses.
    arguments: Option<PatternArguments>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Name(String),
    Backend(String),
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{pattern:?} is no pattern: {reason}. Write `TOOL`, `backend:NAME` or `TOOL(ARGUMENTS)`, with `*` for any text."
)]
pub struct PatternError {
    /// The text.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let error = |reason| PatternError {
            pattern: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let (subject, arguments) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((subject, rest)) => match rest.strip_suffix(')') {
                Some(arguments) => (subject.trim_end(), Some(PatternArguments::new(arguments))),
                None => return Err(error("the parenthesis is not closed at the end")),
            },
        };
        let (kind, name) = match subject.split_once(':') {
            Some(("backend", name)) => (Subject::Backend(name.into()), name),
            Some(_) => return Err(error("what stands before the colon is not `backend`")),
            None => (Subject::Name(subject.into()), subject),
        };
        if name.is_empty() {
            return Err(error("it names nothing"));
        }
        if name.contains(char::is_whitespace) {
            return Err(error("there is white space in the name"));
        }
        Ok(Self {
            subject: kind,
            arguments,
        })
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Name(name) => out.write_str(name)?,
            Subject::Backend(name) => write!(out, "backend:{name}")?,
        }
        match &self.arguments {
            Some(arguments) => write!(out, "({})", arguments.text()),
            None => Ok(()),
        }
    }
}

impl Pattern {
    /// Whether an allowing rule with this pattern covers a call, as far as no shell has to be read: the main
    /// text of its arguments is compared, a `path` after it was resolved. What main text is:
    /// `command`, else `path`, else the only argument if it is text, else all arguments as JSON.
    pub(super) fn allows(&self, call: &PolicyCall<'_>) -> bool {
        if !self.is_about(call) {
            return false;
        }
        let Some(pattern) = self.arguments() else {
            return true;
        };
        match main_argument(call.arguments) {
            // Word for word as it is written; else see [`Self::for_commands`].
            MainArgument::Command(text) => !pattern.contains('*') && pattern.trim() == text.trim(),
            MainArgument::Path(text) => allows_path(pattern, text),
            MainArgument::Other(text) => glob(pattern, text),
            MainArgument::Json => glob(pattern, &call.arguments.to_string()),
        }
    }

    /// What it allows of the commands of a tool; none without arguments, or about other tools.
    pub(super) fn for_commands(&self, call: &PolicyCall<'_>) -> Option<&CommandPattern> {
        let arguments = self.arguments.as_ref()?;
        self.is_about(call).then(|| arguments.narrow())
    }

    /// Whether a shell may expand a script to what a denying rule with these arguments is for.
    pub(super) fn may_fit(&self, expansions: &Expansions<'_>) -> bool {
        let arguments = self.arguments.as_ref();
        arguments.is_some_and(|it| expansions.may_fit(it.text(), it.wide()))
    }

    /// Whether a denying or asking rule with this pattern covers a call, in the widest reading: any
    /// text anywhere in the arguments fits, as it is written, as a path that is resolved, or as what
    /// a shell would run of it, there also with other options; or all arguments as JSON do.
    #[must_use]
    pub fn touches(&self, call: &PolicyCall<'_>) -> bool {
        self.covers(call, true)
    }

    /// Whether the pattern covers a call as [`Self::touches`] says, with every command compared as a
    /// text alone: no options are passed over, and a star is the text that stands there. For what only
    /// sorts calls and keeps nothing from running.
    #[must_use]
    pub fn touches_text(&self, call: &PolicyCall<'_>) -> bool {
        self.covers(call, false)
    }

    fn covers(&self, call: &PolicyCall<'_>, as_command: bool) -> bool {
        if !self.is_about(call) {
            return false;
        }
        let Some(arguments) = &self.arguments else {
            return true;
        };
        let pattern = arguments.text();
        any_text(call.arguments, &|text| {
            glob(pattern, text) || (paths::is_path(text) && glob(pattern, &paths::resolved(text)))
        }) || command(call).is_some_and(|command| {
            let readings = readings(command);
            let fits = |words| as_command && arguments.wide().fits(words);
            readings.texts.iter().any(|reading| glob(pattern, reading))
                || readings.commands.iter().any(fits)
        }) || glob(pattern, &call.arguments.to_string())
    }

    /// The text between the parentheses.
    pub(super) fn arguments(&self) -> Option<&str> {
        self.arguments.as_ref().map(PatternArguments::text)
    }

    /// Returns the pattern with the same subject and these arguments.
    pub(super) fn with_arguments(&self, arguments: &str) -> Self {
        Self {
            arguments: Some(PatternArguments::new(arguments)),
            ..self.clone()
        }
    }

    /// Whether it may be about tools that run commands in a shell.
    pub(super) fn may_be_about_commands(&self) -> bool {
        match &self.subject {
            Subject::Name(name) => match name.rsplit_once('*') {
                None => name.ends_with("bash_tool"),
                Some((_, end)) => "bash_tool".ends_with(end) || end.ends_with("bash_tool"),
            },
            Subject::Backend(_) => true,
        }
    }

    /// Whether its arguments are taken for a command when it denies or asks: those of a backend are,
    /// where its name is that of an executor, or begins like one.
    pub(super) fn denies_commands(&self) -> bool {
        match &self.subject {
            Subject::Name(_) => self.may_be_about_commands(),
            Subject::Backend(name) => {
                let mut executors = EXECUTORS.iter();
                name.contains('*') || executors.any(|executor| name.starts_with(executor))
            }
        }
    }

    /// Whether calls of this tool may be what it is about, whatever their arguments.
    pub(super) fn concerns(&self, name: &str, backend: &str) -> bool {
        match &self.subject {
            Subject::Name(pattern) => glob(pattern, name),
            Subject::Backend(pattern) => glob(pattern, backend),
        }
    }

    /// Whether it looks at arguments.
    pub(super) fn has_arguments(&self) -> bool {
        self.arguments.is_some()
    }

    /// Whether a rule that asks or denies covers all calls of the tools that it is about.
    pub(super) fn takes_any_arguments(&self) -> bool {
        let only_stars = |text: &str| !text.is_empty() && text.chars().all(|c| c == '*');
        self.arguments().is_none_or(only_stars)
    }

    fn is_about(&self, call: &PolicyCall<'_>) -> bool {
        self.concerns(call.name, call.backend)
    }
}

enum MainArgument<'a> {
    Command(&'a str),
    Path(&'a str),
    Other(&'a str),
    Json,
}

fn main_argument(arguments: &Value) -> MainArgument<'_> {
    let Some(fields) = arguments.as_object() else {
        return MainArgument::Json;
    };
    if let Some(command) = fields.get("command") {
        return command
            .as_str()
            .map_or(MainArgument::Json, MainArgument::Command);
    }
    if let Some(path) = fields.get("path") {
        return path.as_str().map_or(MainArgument::Json, MainArgument::Path);
    }
    let mut values = fields.values();
    match (values.next(), values.next()) {
        (Some(Value::String(text)), None) => MainArgument::Other(text),
        _ => MainArgument::Json,
    }
}

/// The command of a call, for tools that have one.
pub(super) fn command<'a>(call: &PolicyCall<'a>) -> Option<&'a str> {
    match main_argument(call.arguments) {
        MainArgument::Command(text) => Some(text),
        MainArgument::Path(_) | MainArgument::Other(_) | MainArgument::Json => None,
    }
}

/// A path below what the pattern names, whatever it is written like.
fn allows_path(pattern: &str, path: &str) -> bool {
    let (resolved_pattern, resolved) = (paths::resolved(pattern), paths::resolved(path));
    let only_stars = !pattern.is_empty() && pattern.chars().all(|c| c == '*');
    only_stars
        || ((!paths::escapes_start(&resolved) || paths::escapes_start(&resolved_pattern))
            && glob(&resolved_pattern, &resolved))
}

fn any_text(value: &Value, fits: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => fits(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, fits)),
        Value::Object(fields) => fields.values().any(|field| any_text(field, fits)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether `text` fits `pattern`, where `*` stands for any run of characters.
///
/// Going back to the newest star only is enough: an earlier star that took more would have to
/// take the character at which the newest one stopped, or one that fits the same pattern.
fn glob(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut back = None;
    loop {
        let (here, rest) = (pattern.clone().next(), text.clone().next());
        match (here, rest) {
            (Some('*'), _) => {
                pattern.next();
                back = Some((pattern.clone(), text.clone()));
            }
            (Some(wanted), Some(found)) if wanted == found => {
                pattern.next();
                text.next();
            }
            (None, None) => return true,
            _ => {
                let Some((after_star, taken)) = &mut back else {
                    return false;
                };
                if taken.next().is_none() {
                    return false;
                }
                pattern = after_star.clone();
                text = taken.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) if slow(rest, text) => true,
            (Some(('*', _)), Some((_, rest))) => slow(pattern, rest),
            (Some((p, patterns)), Some((c, rest))) => p == c && slow(patterns, rest),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_glob_fits_what_trying_every_way_fits(pattern in "[ab;*]{0,8}", text in "[ab;*]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(glob(&pattern, &text), slow(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn a_pattern_is_read_and_written() {
        for text in [
            "*",
            "a_*",
            "backend:docker*",
            "a_bash_tool(git *)",
            "x()",
            "backend:l(*(a)*)",
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for bad in ["", " ", "(x)", "a(b", "a(b)c", "backend:", "tool:x", "a b"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
        }
    }
}
