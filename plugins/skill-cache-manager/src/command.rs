//! The grammar of `execute`.
//!
//! A key is a word, or a text in double quotes. A value is the rest of the command as it stands,
//! blanks and quotes included, so that any text can be stored without escaping.

use conjure_skill_sdk::{Error, Result};

/// The grammar, as the model sees it.
pub(crate) const GRAMMAR: &str = "clear | set K V | get K | delete K | list [PREFIX]";

/// A command; it borrows from the text that it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CacheCommand<'a> {
    Clear,
    Set { key: &'a str, value: &'a str },
    Get { key: &'a str },
    Delete { key: &'a str },
    List { prefix: &'a str },
}

impl<'a> CacheCommand<'a> {
    /// Reads a command; what is wrong with it is said together with the grammar.
    pub(crate) fn parse(text: &'a str) -> Result<Self> {
        let (verb, rest) = first_word(text.trim_start());
        let command = match verb {
            "set" => {
                let (key, value) = key(rest, "set K V")?;
                if value.is_empty() {
                    return Err(usage_error("`set` needs a value after the key"));
                }
                return Ok(Self::Set { key, value });
            }
            "get" => key(rest, "get K").map(|(key, rest)| (Self::Get { key }, rest)),
            "delete" => key(rest, "delete K").map(|(key, rest)| (Self::Delete { key }, rest)),
            "list" if rest.trim().is_empty() => Ok((Self::List { prefix: "" }, "")),
            "list" => {
                key(rest, "list [PREFIX]").map(|(prefix, rest)| (Self::List { prefix }, rest))
            }
            "clear" => Ok((Self::Clear, rest)),
            "" => Err(usage_error("the command is empty")),
            other => Err(usage_error(&format!(
                "`{other}` is not a command of this skill"
            ))),
        };
        let (command, rest) = command?;
        if !rest.trim().is_empty() {
            return Err(usage_error(&format!(
                "`{}` is too much after `{verb}`; a key with blanks needs double quotes",
                rest.trim()
            )));
        }
        Ok(command)
    }
}

/// The first word, and what comes after the one blank behind it.
fn first_word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

fn key<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str)> {
    let text = text.trim_start();
    let (key, rest) = match text.strip_prefix('"') {
        None => first_word(text),
        Some(quoted) => {
            let (key, rest) = quoted
                .split_once('"')
                .ok_or_else(|| usage_error("the key's closing quote is missing"))?;
            let rest = rest.strip_prefix(char::is_whitespace).unwrap_or(rest);
            (key, rest)
        }
    };
    if key.is_empty() {
        return Err(usage_error(&format!("a key is missing: `{form}`")));
    }
    Ok((key, rest))
}

fn usage_error(what: &str) -> Error {
    Error::invalid(format!("{what}. Grammar: {GRAMMAR}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_read() {
        let cases = [
            ("clear", CacheCommand::Clear),
            ("  clear  ", CacheCommand::Clear),
            (
                "set k v",
                CacheCommand::Set {
                    key: "k",
                    value: "v",
                },
            ),
            (
                "set k  two words \"as they stand\"\n",
                CacheCommand::Set {
                    key: "k",
                    value: " two words \"as they stand\"\n",
                },
            ),
            (
                "set \"a key\" {\"x\": 1}",
                CacheCommand::Set {
                    key: "a key",
                    value: "{\"x\": 1}",
                },
            ),
            ("get k", CacheCommand::Get { key: "k" }),
            ("get \"a key\"", CacheCommand::Get { key: "a key" }),
            ("delete k", CacheCommand::Delete { key: "k" }),
            ("list", CacheCommand::List { prefix: "" }),
            ("list user/", CacheCommand::List { prefix: "user/" }),
        ];
        for (text, expected) in cases {
            assert_eq!(CacheCommand::parse(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_wrong_command_is_told_the_grammar() {
        for text in [
            "",
            "  ",
            "set",
            "set k",
            "set k ",
            "get",
            "get a b",
            "get \"a",
            "get \"\"",
            "clear all",
            "SET k v",
        ] {
            let error = CacheCommand::parse(text).unwrap_err();
            assert!(error.message().ends_with(GRAMMAR), "{text:?}: {error}");
        }
    }
}
