//! What must not be shown: secrets of the configuration and of logins, in texts that came from a
//! server.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shorter ones would hide half of any text.
const MIN_SECRET_BYTES: usize = 4;
/// The most secrets of logins that are known, the newest: each renewal brings some, and the oldest
/// are worth nothing any more.
const MAX_LOGIN_SECRETS: usize = 64;
/// What stands in a text in place of a secret.
const HIDDEN: &str = "[secret]";

/// Secrets that a server was given. They can be hidden and not shown. Clones learn together.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    configured: Arc<[String]>,
    /// Tokens, and secrets of registered clients, the oldest first.
    login_secrets: Arc<Mutex<VecDeque<String>>>,
}

impl Secrets {
    /// A collection that knows these texts as secrets.
    pub(crate) fn new<S: Into<String>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let secrets = secrets.into_iter().map(Into::into);
        let secrets: Vec<String> = secrets
            .filter(|text| text.len() >= MIN_SECRET_BYTES)
            .collect();
        Self {
            configured: secrets.into(),
            login_secrets: Arc::default(),
        }
    }

    /// Learns a secret that a login brought.
    pub(crate) fn add(&self, secret: &str) {
        if secret.len() < MIN_SECRET_BYTES {
            return;
        }
        let mut known = self.lock();
        known.retain(|known| known != secret);
        if known.len() >= MAX_LOGIN_SECRETS {
            known.pop_front();
        }
        known.push_back(secret.to_owned());
    }

    /// Hides the secrets in a text. Whoever cuts a text does so afterwards: half a secret is not found.
    pub(crate) fn redact(&self, text: String) -> String {
        self.without(text, false)
    }

    /// Like [`Self::redact`], for a text that was cut before and may end in half a secret.
    pub(crate) fn redact_truncated(&self, mut text: String) -> String {
        // Half a character, too.
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        text.truncate(whole);
        self.without(text, true)
    }

    fn without(&self, text: String, is_cut: bool) -> String {
        let found = self.find(&text, is_cut);
        if found.is_empty() {
            return text;
        }
        let mut shown = String::with_capacity(text.len());
        let mut end = 0;
        for secret in found {
            // One may begin inside another.
            if secret.start >= end {
                shown.push_str(text.get(end..secret.start).unwrap_or_default());
                shown.push_str(HIDDEN);
            }
            end = end.max(secret.end);
        }
        shown.push_str(text.get(end..).unwrap_or_default());
        shown
    }

    /// Where secrets are in a text, the first one first.
    fn find(&self, text: &str, is_cut: bool) -> Vec<Range<usize>> {
        let of_logins = self.lock();
        let mut found: Vec<Range<usize>> = Vec::new();
        for secret in self.configured.iter().chain(of_logins.iter()) {
            let whole = text.match_indices(secret.as_str());
            found.extend(whole.map(|(at, secret)| at..at + secret.len()));
            if is_cut {
                found.extend(partial_match(text, secret));
            }
        }
        found.sort_by_key(|secret| secret.start);
        found
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.login_secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the beginning of a secret is at the end of a text.
fn partial_match(text: &str, secret: &str) -> Option<Range<usize>> {
    let lengths = MIN_SECRET_BYTES..secret.len();
    let length = lengths.rev().find(|length| {
        let begun = secret.get(..*length);
        begun.is_some_and(|begun| text.ends_with(begun))
    })?;
    Some(text.len() - length..text.len())
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.configured.len() + self.lock().len();
        write!(f, "{count} secrets")
    }
}

/// The beginning of a text, at most so many bytes.
pub(crate) fn beginning(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_before_a_text_is_cut() {
        let secrets = Secrets::new(["hunter2-hunter2", "abc"]);
        let text = secrets.redact("key=hunter2-hunter2&abc".to_owned());
        assert_eq!(beginning(text, 9), "key=[secr...");
        assert_eq!(format!("{secrets:?}"), "1 secrets");
    }

    #[test]
    fn half_a_secret_at_a_cut_is_hidden_and_elsewhere_it_is_none() {
        let secrets = Secrets::new(["hunter2-hunter2", "p\u{e4}ssword"]);
        for (text, shown) in [
            ("the key is hunt", "the key is [secret]"),
            ("the key is hunter2-hunter", "the key is [secret]"),
            ("the key is hunter2-hunter2", "the key is [secret]"),
            ("the key is hun", "the key is hun"),
            ("hunted, p\u{e4}s\u{fffd}", "hunted, [secret]"),
        ] {
            assert_eq!(secrets.redact_truncated(text.to_owned()), shown);
        }
        let whole = "they hunt".to_owned();
        assert_eq!(secrets.redact(whole.clone()), whole);
    }

    #[test]
    fn secrets_that_overlap_leave_nothing_of_either() {
        let secrets = Secrets::new(["abcd", "abcdefgh", "ghij"]);
        let hide = |text: &str| secrets.redact(text.to_owned());
        assert_eq!(hide("<abcdefgh>"), "<[secret]>");
        assert_eq!(hide("<abcdefghij>"), "<[secret]>");
        assert_eq!(hide("<abcdabcd>"), "<[secret][secret]>");
        assert_eq!(secrets.redact_truncated("<abcdef".to_owned()), "<[secret]");
    }

    #[test]
    fn what_a_login_brings_is_known_to_all_and_the_oldest_goes() {
        let secrets = Secrets::new(["configured"]);
        let shared = secrets.clone();
        for number in 0..=MAX_LOGIN_SECRETS {
            shared.add(&format!("token-{number:03}"));
            shared.add(&format!("token-{number:03}"));
        }
        let hide = |text: &str| secrets.redact(text.to_owned());
        assert_eq!(hide("bad token: token-064"), "bad token: [secret]");
        assert_eq!(hide("token-001 configured"), "[secret] [secret]");
        assert_eq!(hide("token-000"), "token-000");
        shared.add("abc");
        assert_eq!(hide("abc"), "abc");
    }
}
