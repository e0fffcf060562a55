//! Tokens that end: what a token says of its own end. Nothing here renews one, so one that is over, or
//! that a vendor's login made for a few hours, is refused with what to do instead.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

/// How access tokens of vendors' logins begin, which end within hours: Anthropic's and Google's.
const LOGIN_PREFIXES: [&str; 2] = ["sk-ant-oat", "ya29."];

/// Why a token is not good for long.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A token of a vendor's login.
    #[error(
        "this is the access token of a login, which ends within hours, and nothing here renews it: \
         save an API key of the provider (`--kind api-key`), or a token that lasts"
    )]
    LoginToken,
    /// The token has ended.
    #[error("this token ended at {end}: save a new one, or an API key of the provider")]
    Expired {
        /// The moment from which it was not valid any more.
        end: Timestamp,
    },
}

/// Refuses a token that is not good for long.
pub(crate) fn check_token(token: &str) -> Result<(), TokenError> {
    if LOGIN_PREFIXES.iter().any(|login| token.starts_with(login)) {
        return Err(TokenError::LoginToken);
    }
    match token_end(token) {
        Some(end) if end <= Timestamp::now() => Err(TokenError::Expired { end }),
        _ => Ok(()),
    }
}

/// When a JSON Web Token (RFC 7519) ends, as it says itself; nothing of any other token.
pub(crate) fn token_end(token: &str) -> Option<Timestamp> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_login_is_told_apart_from_a_key() {
        assert!(check_token("sk-ant-api03-key").is_ok());
        for token in ["sk-ant-oat01-token", "ya29.token"] {
            let why = check_token(token).unwrap_err();
            assert!(matches!(why, TokenError::LoginToken), "{why}");
        }
    }
}
