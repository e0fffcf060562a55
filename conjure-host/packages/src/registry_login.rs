//! What a registry of container images wants of whoever asks it, and what it is given: a password, or a
//! token that another server gives for one.
//!
//! Where the password goes is for the registry to say, so it is judged before: it goes encrypted, or
//! stays on this machine.

use base64::Engine as _;
use conjure_config::error_chain::with_causes;
use oci_client::secrets::RegistryAuth;
use reqwest::header::{HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Url};
use serde::Deserialize;

use crate::http;
use crate::registry_answer::{ANSWER_TIME, RegistryError, fetch};

/// The most bytes of an answer with a token.
const TOKEN_LIMIT: u64 = 1024 * 1024;

/// Access to a repository that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistryAccess {
    /// The repository is read.
    Read,
    /// The repository is read and written.
    Write,
}

/// What a registry says that it wants.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    scheme: String,
    fields: Vec<(String, String)>,
}

impl Challenge {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn is(&self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }
}

/// The answer of a server that gives tokens.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// What requests to a registry say of whoever sends them; nothing where it wants nothing, or where nothing
/// is known that it may want.
///
/// # Errors
/// [`RegistryError`]: also where the registry would have the password sent where others can read it.
pub(crate) async fn authorization(
    client: &Client,
    base: &Url,
    repository: &str,
    auth: &RegistryAuth,
    access: RegistryAccess,
) -> Result<Option<HeaderValue>, RegistryError> {
    let asked = client.get(base.clone()).timeout(ANSWER_TIME).send().await;
    let asked = asked.map_err(|error| RegistryError::Failed(with_causes(&error)))?;
    let wanted = asked.headers().get_all(WWW_AUTHENTICATE).iter();
    let wanted: Vec<Challenge> = wanted
        .filter_map(|value| value.to_str().ok())
        .flat_map(challenges)
        .collect();
    if let Some(challenge) = wanted.iter().find(|challenge| challenge.is("bearer")) {
        let token = token(client, base, repository, auth, access, challenge).await?;
        return header(&format!("Bearer {token}")).map(Some);
    }
    match auth {
        RegistryAuth::Basic(user, password) if !wanted.is_empty() => {
            let both = format!("{user}:{password}");
            let both = base64::engine::general_purpose::STANDARD.encode(both);
            header(&format!("Basic {both}")).map(Some)
        }
        _ => Ok(None),
    }
}

/// The token that a server gives for a password, or to anybody.
async fn token(
    client: &Client,
    base: &Url,
    repository: &str,
    auth: &RegistryAuth,
    access: RegistryAccess,
    challenge: &Challenge,
) -> Result<String, RegistryError> {
    if let RegistryAuth::Bearer(token) = auth {
        return Ok(token.clone());
    }
    let mut realm = realm(base, challenge)?;
    let actions = match access {
        RegistryAccess::Read => "pull",
        RegistryAccess::Write => "pull,push",
    };
    {
        let mut query = realm.query_pairs_mut();
        query.append_pair("scope", &format!("repository:{repository}:{actions}"));
        if let Some(service) = challenge.field("service") {
            query.append_pair("service", service);
        }
    }
    let mut request = client.get(realm).timeout(ANSWER_TIME);
    if let RegistryAuth::Basic(user, password) = auth {
        request = request.basic_auth(user, Some(password));
    }
    let answer = fetch(request, TOKEN_LIMIT).await?;
    let answer = serde_json::from_slice::<TokenAnswer>(&answer).ok();
    let token = answer.and_then(|answer| answer.token.or(answer.access_token));
    token.ok_or_else(|| {
        RegistryError::Failed("the server that it names for tokens gives none".to_owned())
    })
}

/// Where a token is to be asked for.
fn realm(base: &Url, challenge: &Challenge) -> Result<Url, RegistryError> {
    let named = challenge.field("realm").unwrap_or_default();
    let refused = |why: &str| {
        RegistryError::Failed(format!(
            "it sends whoever logs in to {named:?}, {why}. Nothing was sent there; tell whoever keeps the \
             registry"
        ))
    };
    let realm = Url::parse(named).map_err(|_| refused("which is no address"))?;
    if !matches!(realm.scheme(), "https" | "http") {
        return Err(refused("which is no address of a server"));
    }
    match http::is_less_private(base, &realm) {
        true => Err(refused("where others can read the password")),
        false => Ok(realm),
    }
}

fn header(text: &str) -> Result<HeaderValue, RegistryError> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| {
        RegistryError::Failed("its password or token has characters that cannot be sent".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a header asks for (RFC 9110, 11.6.1): schemes, each with fields.
fn challenges(text: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    for part in parts(text) {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value)),
            None => (part.as_str(), None),
        };
        let name = match name.split_once(char::is_whitespace) {
            Some((scheme, name)) => {
                found.push(Challenge {
                    scheme: scheme.to_owned(),
                    fields: Vec::new(),
                });
                name.trim()
            }
            None if value.is_none() => {
                found.push(Challenge {
                    scheme: name.to_owned(),
                    fields: Vec::new(),
                });
                continue;
            }
            None => name,
        };
        if let (Some(challenge), Some(value)) = (found.last_mut(), value) {
            challenge.fields.push((name.to_owned(), unquoted(value)));
        }
    }
    found
}

/// The parts of a header between its commas, but for those in quotes.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in text.chars() {
        match c {
            ',' if !is_quoted => parts.push(std::mem::take(&mut part)),
            _ => part.push(c),
        }
        if c == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    parts.push(part);
    let parts = parts.iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

fn unquoted(value: &str) -> String {
    let value = value.trim();
    let inner = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    let Some(inner) = inner else {
        return value.to_owned();
    };
    let mut text = String::new();
    let mut is_escaped = false;
    for c in inner.chars() {
        is_escaped = c == '\\' && !is_escaped;
        if !is_escaped {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_wants_is_read_as_it_says_it() {
        let bearer = "Bearer realm=\"https://a.example/token?a=b,c\", service=\"the \\\"s\\\"\"";
        let found = challenges(bearer).remove(0);
        assert!(found.is("bearer"));
        assert_eq!(found.field("realm"), Some("https://a.example/token?a=b,c"));
        assert_eq!(found.field("Service"), Some("the \"s\""));
        assert_eq!(found.field("scope"), None);
        let both = challenges(&format!("Basic realm=x, {bearer}, Negotiate"));
        let schemes: Vec<&str> = both.iter().map(|one| one.scheme.as_str()).collect();
        assert_eq!(schemes, ["Basic", "Bearer", "Negotiate"]);
        assert_eq!(challenges(""), []);
    }

    #[test]
    fn a_password_goes_nowhere_where_others_can_read_it() {
        let url = |text: &str| Url::parse(text).unwrap();
        let goes = |base: &str, to: &str| {
            let fields = vec![("realm".to_owned(), to.to_owned())];
            let scheme = "Bearer".to_owned();
            realm(&url(base), &Challenge { scheme, fields }).is_ok()
        };
        assert!(goes("https://r.example/v2/", "https://auth.example/token"));
        assert!(goes("http://127.0.0.1:5000/v2/", "http://localhost/token"));
        assert!(goes("http://127.0.0.1:5000/v2/", "https://a.example/token"));
        for (base, to) in [
            ("https://r.example/v2/", "http://r.example/token"),
            ("https://r.example/v2/", "http://127.0.0.1/token"),
            ("http://127.0.0.1:5000/v2/", "http://a.example/token"),
            ("https://r.example/v2/", "ftp://a.example/token"),
            ("https://r.example/v2/", "token"),
            ("https://r.example/v2/", ""),
        ] {
            assert!(!goes(base, to), "{base} {to}");
        }
    }
}
