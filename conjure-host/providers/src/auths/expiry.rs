//! What the tokens of a credential say of their end.

use conjure_vault::Credential;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use super::AuthError;
use crate::token_end::{check_token, token_end};
use conjure_config::AuthName;

/// Refuses a token that is to be saved and would not be good for long.
pub(super) fn check_new(credential: &Credential) -> Result<(), AuthError> {
    tokens(credential).into_iter().try_for_each(check_token)?;
    Ok(())
}

/// Refuses a saved token that has ended.
pub(super) fn check_saved(name: &AuthName, credential: &Credential) -> Result<(), AuthError> {
    let ends = tokens(credential).into_iter().filter_map(token_end);
    match ends.min() {
        Some(end) if end <= Timestamp::now() => Err(AuthError::Expired {
            auth: name.clone(),
            end,
        }),
        _ => Ok(()),
    }
}

/// What of a credential may be a token.
fn tokens(credential: &Credential) -> Vec<&str> {
    match credential {
        // A login's token is pasted where a key is asked for, too.
        Credential::BearerToken(token) | Credential::ApiKey(token) => {
            vec![token.expose_secret().trim()]
        }
        // As in `Bearer TOKEN`.
        Credential::CustomHeaders(headers) => headers
            .values()
            .flat_map(|value| value.expose_secret().split_whitespace())
            .collect(),
        Credential::BaseUrl => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn bearer(text: &str) -> Credential {
        Credential::BearerToken(text.to_owned().into())
    }

    fn jwt(end: i64) -> Credential {
        let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"a","exp":{end}}}"#));
        bearer(&format!("e30.{claims}.c2ln"))
    }

    #[test]
    fn a_token_that_ends_too_soon_is_refused_with_what_to_do() {
        let (past, later) = (1_000_000_000, 4_000_000_000);
        assert!(check_new(&jwt(later)).is_ok());
        assert!(check_new(&bearer("any-other-token")).is_ok());
        let key = |text: &str| Credential::ApiKey(text.to_owned().into());
        assert!(check_new(&key("sk-ant-api03-key")).is_ok());
        let header = |text: &str| {
            let value = format!("Bearer {text}").into();
            Credential::CustomHeaders([("authorization".to_owned(), value)].into())
        };
        assert!(check_new(&header("any-other-token")).is_ok());
        for refused in [
            jwt(past),
            header("sk-ant-oat01-token"),
            bearer("sk-ant-oat01-token"),
            key("sk-ant-oat01-token"),
            bearer("ya29.token"),
        ] {
            let why = check_new(&refused).unwrap_err().to_string();
            assert!(why.contains("API key"), "{why}");
        }
        let name = AuthName {
            provider: "openai".to_owned(),
            kind: "bearer_token".to_owned(),
            name: "work".to_owned(),
        };
        assert!(check_saved(&name, &jwt(later)).is_ok());
        let why = check_saved(&name, &jwt(past)).unwrap_err().to_string();
        assert!(why.contains("conjure auth replace"), "{why}");
    }
}
