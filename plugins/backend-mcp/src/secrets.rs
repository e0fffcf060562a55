//! What must not be shown: secrets of the configuration, in texts that came from a server.

use std::sync::Arc;

/// Shorter ones would hide half of any text.
const MIN_SECRET_BYTES: usize = 4;

/// Secrets that a server was given. They can be hidden and not shown.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    /// A collection that knows these texts as secrets.
    pub(crate) fn new<S: Into<String>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let secrets = secrets.into_iter().map(Into::into);
        let mut secrets: Vec<String> = secrets
            .filter(|text| text.len() >= MIN_SECRET_BYTES)
            .collect();
        // One may begin as another does.
        secrets.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(secrets.into())
    }

    /// The text without them. Whoever cuts a text does so afterwards: half a secret is not found.
    pub(crate) fn hide(&self, mut text: String) -> String {
        for secret in self.0.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "[secret]");
            }
        }
        text
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
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
        let text = secrets.hide("key=hunter2-hunter2&abc".to_owned());
        assert_eq!(beginning(text, 9), "key=[secr...");
        assert_eq!(format!("{secrets:?}"), "1 secrets");
    }
}
