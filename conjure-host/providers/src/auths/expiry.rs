//! Tokens that end: what a credential says of its own end. Nothing here renews one, so one that is
//! over, or that a vendor's login made for a few hours, is refused with what to do instead.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use conjure_vault::Credential;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::AuthError;
use conjure_config::AuthName;

/// How access tokens of vendors' logins begin, which end within hours: Anthropic's and Google's.
const LOGINS: [&str; 2] = ["sk-ant-oat", "ya29."];

/// Refuses a token that is to be saved and would not be good for long.
pub(super) fn check_new(credential: &Credential) -> Result<(), AuthError> {
    let Some(token) = token(credential) else {
        return Ok(());
    };
    if LOGINS.iter().any(|login| token.starts_with(login)) {
        return Err(AuthError::LoginToken);
    }
    match end(token) {
        Some(end) if end <= Timestamp::now() => Err(AuthError::OldToken { end }),
        _ => Ok(()),
    }
}

/// Refuses a saved token that has ended.
pub(super) fn check_saved(name: &AuthName, credential: &Credential) -> Result<(), AuthError> {
    match token(credential).and_then(end) {
        Some(end) if end <= Timestamp::now() => Err(AuthError::Expired {
            auth: name.clone(),
            end,
        }),
        _ => Ok(()),
    }
}

fn token(credential: &Credential) -> Option<&str> {
    match credential {
        // A login's token is pasted where a key is asked for, too.
        Credential::BearerToken(token) | Credential::ApiKey(token) => {
            Some(token.expose_secret().trim())
        }
        _ => None,
    }
}

/// When a JSON Web Token (RFC 7519) ends, as it says itself; nothing of any other token.
fn end(token: &str) -> Option<Timestamp> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

#[cfg(test)]
mod tests {
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
        for refused in [
            jwt(past),
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
