//! The automatic name of a thread: a few words of what it is about, made of what was said in it.
//!
//! A pure function of texts. It asks no model and repeats no secret: fenced code, addresses and
//! what looks like a credential are left out, and of a path only its last part is kept.

mod credentials;
mod stop_words;
mod words;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::chat::{Message, Role};
use crate::log::{Entry, EntryBody, fold};

use words::{all_words, words};

/// The fewest words of a name.
const MIN_WORDS: usize = 3;
/// The name where nothing that was said may stand in one.
const DEFAULT_NAME: &str = "Chat";
/// The most words of a name, before a number.
const MAX_WORDS: usize = 6;
/// The most characters of a name, its number included.
pub const MAX_CHARS: usize = 60;

/// A name for the thread, from the first user message that says enough, else from the summary that
/// stands for its beginning, else from the first reply; else of whatever words the person or the
/// model said, and `Chat` where there are none. Nothing while nothing was said.
///
/// A name that is taken gets the first number from 2 on that is free.
#[must_use]
pub fn label(entries: &[Entry], taken: &BTreeSet<String>) -> Option<String> {
    let said = |role: Role| {
        let messages = entries.iter().filter_map(move |entry| match &entry.body {
            EntryBody::Message { message } if message.role == role => Some(message),
            _ => None,
        });
        messages.map(Message::text)
    };
    let summary = fold(entries).summary.map(str::to_owned);
    let first_reply = said(Role::Assistant).find(|text| !text.trim().is_empty());
    let is_begun = said(Role::User).next().is_some();
    let texts: Vec<String> = said(Role::User).chain(summary).chain(first_reply).collect();
    texts
        .iter()
        .find_map(|text| name_of(text))
        .or_else(|| texts.iter().find_map(|text| short_name_of(text)))
        .or_else(|| is_begun.then(|| DEFAULT_NAME.to_owned()))
        .map(|name| available_name(name, taken))
}

/// A name made of the few words that one text has; nothing when it has none.
fn short_name_of(text: &str) -> Option<String> {
    let name = joined(words(text));
    let name = name.or_else(|| joined(all_words(text)));
    name.map(|(name, _)| cut(&name, MAX_CHARS))
}

/// A name made of one text; nothing when the text says too little.
#[must_use]
pub fn name_of(text: &str) -> Option<String> {
    let (name, count) = joined(words(text))?;
    let enough = count >= MIN_WORDS || is_unspaced(&name);
    enough.then(|| cut(&name, MAX_CHARS))
}

/// As many of these words as a name has room for, and how many they are; nothing where there are
/// none.
fn joined(words: impl Iterator<Item = String>) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut count = 0;
    for word in words.take(MAX_WORDS) {
        let length = name.chars().count() + 1 + word.chars().count();
        if count > 0 && length > MAX_CHARS {
            break;
        }
        if count > 0 {
            name.push(' ');
        }
        name.push_str(&word);
        count += 1;
    }
    (count > 0).then_some((name, count))
}

/// Thai and Lao, Burmese, Khmer, kana, and Chinese characters.
const UNSPACED: [RangeInclusive<char>; 7] = [
    '\u{0E00}'..='\u{0EFF}',
    '\u{1000}'..='\u{109F}',
    '\u{1780}'..='\u{17FF}',
    '\u{3040}'..='\u{30FF}',
    '\u{3400}'..='\u{9FFF}',
    '\u{F900}'..='\u{FAFF}',
    '\u{20000}'..='\u{3FFFF}',
];

/// Whether this is written without spaces, so that one word is a sentence.
fn is_unspaced(name: &str) -> bool {
    name.chars()
        .filter(|c| UNSPACED.iter().any(|script| script.contains(c)))
        .count()
        >= 4
}

/// The name, or the name with the first number that is free.
fn available_name(name: String, taken: &BTreeSet<String>) -> String {
    if !taken.contains(&name) {
        return name;
    }
    // One of these is free: there are more of them than names that are taken.
    let numbers = 2..=taken.len() + 2;
    let mut numbered = numbers.map(|number| numbered(&name, number));
    numbered.find(|name| !taken.contains(name)).unwrap_or(name)
}

/// A name with a number behind it.
#[must_use]
pub fn numbered(name: &str, number: usize) -> String {
    let number = format!(" {number}");
    let room = MAX_CHARS.saturating_sub(number.len());
    format!("{}{number}", cut(name, room))
}

/// At most so many characters, without a space at the end.
fn cut(text: &str, most: usize) -> String {
    let short: String = text.chars().take(most).collect();
    short.trim_end().to_owned()
}
