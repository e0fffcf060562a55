//! What a request shows of who asks: the header of a key or a token, or headers of one's own. Made
//! once a provider; nothing that prints headers prints these, and what a server repeats of them is
//! taken out of its words.

use std::cmp::Reverse;

use conjure_core::wire::Wire;
use conjure_vault::Credential;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

/// The fewest characters of a secret that is hidden; a shorter one may be a word of any text.
const MIN_SECRET_CHARS: usize = 4;
/// The fewest characters of one word of a secret that is hidden by itself.
const MIN_WORD_CHARS: usize = 8;

/// Headers that are nobody else's to see.
#[derive(Default)]
pub(super) struct Credentials {
    headers: Vec<(HeaderName, HeaderValue)>,
    secrets: Vec<SecretString>,
}

/// A secret that no header can hold.
pub(super) struct NotAHeader;

impl Credentials {
    /// A key, where this wire has it.
    pub(super) fn key(wire: Wire, key: &SecretString) -> Result<Self, NotAHeader> {
        let mut credentials = Self::default();
        match wire {
            Wire::Anthropic => credentials.add(HeaderName::from_static("x-api-key"), "", key)?,
            Wire::Gemini => credentials.add(HeaderName::from_static("x-goog-api-key"), "", key)?,
            Wire::OpenaiResponses | Wire::OpenaiChat => {
                credentials.add(AUTHORIZATION, "Bearer ", key)?;
            }
        }
        Ok(credentials)
    }

    /// A saved credential.
    pub(super) fn saved(wire: Wire, credential: &Credential) -> Result<Self, NotAHeader> {
        let mut credentials = Self::default();
        match credential {
            Credential::ApiKey(key) => return Self::key(wire, key),
            Credential::BearerToken(token) => credentials.add(AUTHORIZATION, "Bearer ", token)?,
            Credential::CustomHeaders(headers) => {
                for (name, value) in headers {
                    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| NotAHeader)?;
                    credentials.add(name, "", value)?;
                }
            }
            Credential::BaseUrl => {}
        }
        Ok(credentials)
    }

    fn add(
        &mut self,
        name: HeaderName,
        before: &str,
        secret: &SecretString,
    ) -> Result<(), NotAHeader> {
        let secret = secret.expose_secret();
        let value = HeaderValue::from_str(&format!("{before}{secret}"));
        let mut value = value.map_err(|_| NotAHeader)?;
        value.set_sensitive(true);
        self.headers.push((name, value));
        // Of `Bearer KEY` a server may repeat the key alone.
        let words = secret.split_whitespace();
        let words = words.filter(|word| word.len() >= MIN_WORD_CHARS && *word != secret);
        let whole = (secret.len() >= MIN_SECRET_CHARS).then_some(secret);
        let hidden = whole.into_iter().chain(words);
        self.secrets.extend(hidden.map(SecretString::from));
        // One that is a part of another must not be taken out of it first.
        let length = |secret: &SecretString| Reverse(secret.expose_secret().len());
        self.secrets.sort_by_key(length);
        Ok(())
    }

    /// Puts the credentials to other headers, in the place of those with the same names.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Returns a text with the secrets taken out.
    pub(super) fn redact(&self, mut text: String) -> String {
        for secret in &self.secrets {
            if text.contains(secret.expose_secret()) {
                text = text.replace(secret.expose_secret(), "[key]");
            }
        }
        text
    }

    /// Bytes of a server without them. Before they are cut: of a part nobody would know it.
    pub(super) fn redact_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.redact(text).into_bytes(),
            Err(error) => {
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                self.redact(text).into_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sent(wire: Wire, credential: &Credential) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        let credentials = Credentials::saved(wire, credential).ok().unwrap();
        credentials.apply(&mut headers);
        assert!(headers.values().all(HeaderValue::is_sensitive));
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect()
    }

    fn one(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn each_kind_is_sent_in_its_way() {
        let key = || Credential::ApiKey("sk-1".into());
        assert_eq!(sent(Wire::Anthropic, &key()), one("x-api-key", "sk-1"));
        assert_eq!(sent(Wire::Gemini, &key()), one("x-goog-api-key", "sk-1"));
        let bearer = one("authorization", "Bearer sk-1");
        assert_eq!(sent(Wire::OpenaiChat, &key()), bearer);
        let token = Credential::BearerToken("sk-1".into());
        assert_eq!(sent(Wire::Anthropic, &token), bearer);
        let headers = BTreeMap::from([("x-team".to_owned(), "red".into())]);
        let headers = Credential::CustomHeaders(headers);
        assert_eq!(sent(Wire::OpenaiChat, &headers), one("x-team", "red"));
        assert_eq!(sent(Wire::OpenaiChat, &Credential::BaseUrl), []);
    }

    #[test]
    fn what_a_server_repeats_is_taken_out() {
        let headers = BTreeMap::from([
            ("authorization".to_owned(), "Bearer sk-secret".into()),
            ("x-team".to_owned(), "red".into()),
        ]);
        let credential = Credential::CustomHeaders(headers);
        let credentials = Credentials::saved(Wire::OpenaiChat, &credential)
            .ok()
            .unwrap();
        let said = "the bearer sk-secret of Bearer sk-secret is not for the red team";
        assert_eq!(
            credentials.redact(said.to_owned()),
            "the bearer [key] of [key] is not for the red team"
        );
        let said = [b"\xff sk-secret".as_slice()].concat();
        let hidden = credentials.redact_bytes(said);
        assert_eq!(String::from_utf8(hidden).unwrap(), "\u{fffd} [key]");
    }
}
