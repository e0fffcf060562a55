//! The grammar of `execute`.

use conjure_skill_sdk::{Error, Result};

use crate::entry::LogSeverity;

/// The grammar, as the model sees it.
pub(crate) const GRAMMAR: &str = "fetch <source> [--limit N] [--level L]. The source is a file \
    or an http(s) URL; a name with blanks stands in quotes. --limit: the newest N entries, 100 \
    without it. --level: only entries of this level and more severe ones (TRACE, DEBUG, INFO, \
    WARN, ERROR)";

/// Default number of entries.
const DEFAULT_LIMIT: usize = 100;
/// The most that a command can ask for.
const MAX_LIMIT: usize = 100_000;

/// The command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FetchCommand {
    /// A file or a URL.
    pub(crate) source: String,
    /// How many entries to keep: the newest ones, which stand last.
    pub(crate) limit: usize,
    /// The least severe level that is kept.
    pub(crate) level: Option<LogSeverity>,
}

impl FetchCommand {
    /// Reads a command; what is wrong with it is said together with the grammar.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut words = split_words(text)?.into_iter();
        match words.next() {
            Some(word) if word.text == "fetch" => {}
            Some(word) => {
                return Err(usage_error(&format!(
                    "`{}` is not a command of this skill",
                    word.text
                )));
            }
            None => return Err(usage_error("the command is empty")),
        }
        let mut source = None;
        let (mut limit, mut level) = (DEFAULT_LIMIT, None);
        while let Some(word) = words.next() {
            if word.quoted || !word.text.starts_with("--") {
                if source.is_some() {
                    return Err(usage_error(&format!("`{}` is a second source", word.text)));
                }
                source = Some(word.text);
                continue;
            }
            let (option, value) = match word.text.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (word.text, words.next().map(|next| next.text)),
            };
            let value =
                value.ok_or_else(|| usage_error(&format!("`{option}` needs a value after it")))?;
            match option.as_str() {
                "--limit" => limit = parse_limit(&value)?,
                "--level" => {
                    level = Some(
                        LogSeverity::parse(&value)
                            .ok_or_else(|| usage_error(&format!("`{value}` is not a level")))?,
                    );
                }
                _ => return Err(usage_error(&format!("there is no option `{option}`"))),
            }
        }
        Ok(Self {
            source: source
                .filter(|source| !source.is_empty())
                .ok_or_else(|| usage_error("the source is missing"))?,
            limit,
            level,
        })
    }
}

fn parse_limit(value: &str) -> Result<usize> {
    value
        .parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| {
            usage_error(&format!(
                "`{value}` is no limit; it is a number from 1 to {MAX_LIMIT}"
            ))
        })
}

struct CommandWord {
    text: String,
    quoted: bool,
}

fn split_words(text: &str) -> Result<Vec<CommandWord>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' | '\'' => {
                let inner = rest.get(1..).unwrap_or_default();
                let (word, after) = inner
                    .split_once(first)
                    .ok_or_else(|| usage_error("a closing quote is missing"))?;
                (word, after)
            }
            _ => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(CommandWord {
            text: word.to_owned(),
            quoted: matches!(first, '"' | '\''),
        });
        rest = after.trim_start();
    }
    Ok(words)
}

fn usage_error(what: &str) -> Error {
    Error::invalid(format!("{what}. Grammar: {GRAMMAR}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(source: &str, limit: usize, level: Option<LogSeverity>) -> FetchCommand {
        FetchCommand {
            source: source.to_owned(),
            limit,
            level,
        }
    }

    #[test]
    fn every_form_of_the_command_is_read() {
        for (text, expected) in [
            ("fetch app.log", fetch("app.log", 100, None)),
            ("  fetch   app.log  ", fetch("app.log", 100, None)),
            (
                "fetch https://h/x?a=b --limit 5 --level warning",
                fetch("https://h/x?a=b", 5, Some(LogSeverity::Warn)),
            ),
            (
                "fetch --level=ERROR --limit=7 \"my logs/a b.log\"",
                fetch("my logs/a b.log", 7, Some(LogSeverity::Error)),
            ),
            ("fetch '--limit'", fetch("--limit", 100, None)),
        ] {
            assert_eq!(FetchCommand::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_command_is_told_the_grammar() {
        for text in [
            "",
            "get x",
            "fetch",
            "fetch \"\"",
            "fetch a b",
            "fetch a --limit",
            "fetch a --limit 0",
            "fetch a --limit -1",
            "fetch a --limit many",
            "fetch a --limit 100001",
            "fetch a --level loud",
            "fetch a --colour red",
            "fetch \"a",
        ] {
            let error = FetchCommand::parse(text).unwrap_err();
            assert!(error.message().ends_with(GRAMMAR), "{text}: {error}");
        }
    }
}
