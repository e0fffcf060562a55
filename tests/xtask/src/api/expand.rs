//! The items that a `macro_rules!` of the crate makes, where one is called among items.
//!
//! Enough of the language for macros that spare an author repetition. A fragment reaches to the token
//! that follows it in the pattern; nothing is tried twice.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Part of a pattern or of what a macro becomes.
enum MacroPart {
    /// `$name` or `$name:fragment`; the fragment is empty where there is none.
    Variable(String, String),
    /// `$(…)*`, with the token between.
    Repeated(Vec<MacroPart>, Option<char>),
    Group(Delimiter, Vec<MacroPart>),
    Token(TokenTree),
}

/// What the variables of a pattern stand for.
#[derive(Default)]
struct Bindings {
    once: BTreeMap<String, TokenStream>,
    /// Each repetition of the pattern: the names in it, and what they stand for each time.
    repeated: Vec<(Vec<String>, Vec<Bindings>)>,
}

/// What a call with these tokens becomes by the definition, which is what stands behind
/// `macro_rules! name`.
///
/// # Errors
/// When no arm takes the tokens.
pub(super) fn expand(definition: &TokenStream, call: &TokenStream) -> Result<TokenStream> {
    let mut trees = definition.clone().into_iter();
    let input: Vec<TokenTree> = call.clone().into_iter().collect();
    while let Some(tree) = trees.next() {
        let TokenTree::Group(pattern) = tree else {
            continue;
        };
        let body = trees.find_map(|tree| match tree {
            TokenTree::Group(body) => Some(body.stream()),
            _ => None,
        });
        let mut bound = Bindings::default();
        let end = take(&parts(pattern.stream(), true), &input, &mut bound);
        if let Some(body) = body
            && end == Some(input.len())
        {
            return Ok(filled(&parts(body, false), &bound));
        }
    }
    bail!("no arm takes `{call}`");
}

fn parts(tokens: TokenStream, is_pattern: bool) -> Vec<MacroPart> {
    let is_sign =
        |tree: &TokenTree, sign| matches!(tree, TokenTree::Punct(it) if it.as_char() == sign);
    let mut parts = Vec::new();
    let mut trees = tokens.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(ref punct) if punct.as_char() == '$' => match trees.next() {
                Some(TokenTree::Group(group)) => {
                    let next = trees.next();
                    let is_end =
                        |tree: &TokenTree| ['*', '+', '?'].iter().any(|end| is_sign(tree, *end));
                    let between = match next {
                        Some(TokenTree::Punct(ref it)) if !next.as_ref().is_some_and(is_end) => {
                            let between = it.as_char();
                            trees.next();
                            Some(between)
                        }
                        _ => None,
                    };
                    parts.push(MacroPart::Repeated(parts_of(&group, is_pattern), between));
                }
                Some(TokenTree::Ident(name)) if name == "crate" => {
                    parts.push(MacroPart::Token(TokenTree::Ident(name)));
                }
                Some(TokenTree::Ident(name)) => {
                    let mut fragment = String::new();
                    if is_pattern
                        && trees.next_if(|tree| is_sign(tree, ':')).is_some()
                        && let Some(word) = trees.next()
                    {
                        fragment = word.to_string();
                    }
                    parts.push(MacroPart::Variable(name.to_string(), fragment));
                }
                other => parts.extend(other.map(MacroPart::Token)),
            },
            TokenTree::Group(group) => {
                parts.push(MacroPart::Group(
                    group.delimiter(),
                    parts_of(&group, is_pattern),
                ));
            }
            other => parts.push(MacroPart::Token(other)),
        }
    }
    parts
}

fn parts_of(group: &Group, is_pattern: bool) -> Vec<MacroPart> {
    parts(group.stream(), is_pattern)
}

/// Takes tokens by a pattern, from the first on; how many it took, or nothing where they do not fit.
fn take(pattern: &[MacroPart], input: &[TokenTree], bound: &mut Bindings) -> Option<usize> {
    let mut at = 0;
    for (number, part) in pattern.iter().enumerate() {
        let left = input.get(at..)?;
        at += match part {
            MacroPart::Token(token) => {
                let fits = left.first()?.to_string() == token.to_string();
                fits.then_some(1)?
            }
            MacroPart::Group(delimiter, inner) => {
                let TokenTree::Group(group) = left.first()? else {
                    return None;
                };
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                let all = take(inner, &tokens, bound)? == tokens.len();
                (all && group.delimiter() == *delimiter).then_some(1)?
            }
            MacroPart::Variable(name, fragment) => {
                let many = length(fragment, pattern.get(number + 1), left)?;
                let tokens = left.iter().take(many).cloned().collect();
                bound.once.insert(name.clone(), tokens);
                many
            }
            MacroPart::Repeated(inner, between) => {
                let mut times = Vec::new();
                let took = match_repetition(inner, *between, left, &mut times);
                let mut names = Vec::new();
                names_in(inner, &mut names);
                bound.repeated.push((names, times));
                took
            }
        };
    }
    Some(at)
}

/// How many tokens a fragment has.
fn length(fragment: &str, next: Option<&MacroPart>, input: &[TokenTree]) -> Option<usize> {
    let first = input.first()?;
    match fragment {
        "ident" => matches!(first, TokenTree::Ident(_)).then_some(1),
        "literal" => matches!(first, TokenTree::Literal(_)).then_some(1),
        "tt" | "block" => Some(1),
        _ => {
            let end = match next {
                Some(MacroPart::Token(token)) => Some(token.to_string()),
                _ => None,
            };
            let is_end = |tree: &TokenTree| Some(tree.to_string()) == end;
            Some(input.iter().position(is_end).unwrap_or(input.len()))
        }
    }
}

fn match_repetition(
    inner: &[MacroPart],
    between: Option<char>,
    input: &[TokenTree],
    times: &mut Vec<Bindings>,
) -> usize {
    let mut at = 0;
    while let Some(left) = input.get(at..) {
        let skipped = match (between, left.first()) {
            (Some(sign), Some(TokenTree::Punct(it))) if !times.is_empty() => {
                usize::from(it.as_char() == sign)
            }
            _ => 0,
        };
        if between.is_some() && !times.is_empty() && skipped == 0 {
            break;
        }
        let mut bound = Bindings::default();
        match take(inner, left.get(skipped..).unwrap_or_default(), &mut bound) {
            Some(took) if took > 0 => {
                at += skipped + took;
                times.push(bound);
            }
            _ => break,
        }
    }
    at
}

fn names_in(parts: &[MacroPart], names: &mut Vec<String>) {
    for part in parts {
        match part {
            MacroPart::Variable(name, _) => names.push(name.clone()),
            MacroPart::Repeated(inner, _) | MacroPart::Group(_, inner) => names_in(inner, names),
            MacroPart::Token(_) => {}
        }
    }
}

fn filled(body: &[MacroPart], bound: &Bindings) -> TokenStream {
    let mut tokens = TokenStream::new();
    for part in body {
        match part {
            MacroPart::Token(token) => tokens.extend([token.clone()]),
            MacroPart::Group(delimiter, inner) => {
                let group = Group::new(*delimiter, filled(inner, bound));
                tokens.extend([TokenTree::Group(group)]);
            }
            MacroPart::Variable(name, _) => {
                tokens.extend(bound.once.get(name).cloned().unwrap_or_default());
            }
            MacroPart::Repeated(inner, between) => {
                let mut wanted = Vec::new();
                names_in(inner, &mut wanted);
                let is_of = |names: &[String]| wanted.iter().any(|it| names.contains(it));
                let found = bound.repeated.iter().find(|(names, _)| is_of(names));
                let times = found.map(|(_, times)| times.as_slice()).unwrap_or_default();
                for (number, time) in times.iter().enumerate() {
                    if let (true, Some(sign)) = (number > 0, between) {
                        let sign = proc_macro2::Punct::new(*sign, proc_macro2::Spacing::Alone);
                        tokens.extend([TokenTree::Punct(sign)]);
                    }
                    tokens.extend(filled(inner, time));
                }
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::super::tokens::raw;
    use super::*;

    fn expanded(definition: &str, call: &str) -> String {
        raw(expand(&definition.parse().unwrap(), &call.parse().unwrap()).unwrap())
    }

    #[test]
    fn names_with_documentation_become_constants_and_a_list() {
        let definition = "($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
            $($(#[$doc])* pub const $name: &str = $value;)*
            pub const ALL: &[&str] = &[$($value),*];
        };";
        let call = "/// One.\n ONE = \"one\"; TWO = \"two\";";
        assert_eq!(
            expanded(definition, call),
            "#[doc = \" One.\"] pub const ONE: &str = \"one\"; pub const TWO: &str = \"two\"; \
             pub const ALL: &[&str] = &[\"one\", \"two\"];"
        );
    }

    #[test]
    fn the_arm_that_takes_the_call_is_taken() {
        let definition =
            "($a:ident) => { fn one() {} }; ($a:literal, $b:ty;) => { fn two() -> $b {} };";
        assert_eq!(expanded(definition, "x"), "fn one() { }");
        assert_eq!(
            expanded(definition, "\"x\", Vec<u8>;"),
            "fn two() -> Vec<u8> { }"
        );
        let error = expand(&definition.parse().unwrap(), &"1 2".parse().unwrap());
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("no arm takes `1 2`")
        );
    }
}
