//! Names that secrets have: names of variables, options, headers, members of JSON and parameters
//! of an address. Looks at no value.

/// Fragments that mark a part of a name, wherever they are in it.
const SECRET_FRAGMENTS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "credential",
    "cookie",
    "bearer",
    "dsn",
    "private",
    "signature",
    "jwt",
];
/// What is a part of such a name as a whole; within other words these mean something else.
const SECRET_WORDS: &[&str] = &[
    "pat", "session", "pw", "cred", "creds", "sig", "otp", "totp", "pin",
];
/// Suffixes that mark a part of a name; also whole parts.
const SECRET_SUFFIXES: &[&str] = &["key", "keys", "pass", "pwd", "auth"];
/// Words that end so and name no secret.
const HARMLESS_WORDS: &[&str] = &[
    "askpass", "bypass", "compass", "noauth", "oauth", "oldpwd", "trespass",
];
/// Names that are a secret's in the query of an address and nowhere else.
const SECRET_PARAMETERS: &[&str] = &["code", "hmac", "ticket"];

/// Whether a name is one that secrets have.
pub(crate) fn is_secret_name(name: &str) -> bool {
    // Every shell keeps its working directory in it.
    if name == "PWD" {
        return false;
    }
    let lower = name.to_ascii_lowercase();
    let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
    parts.any(is_secret_part) || lower.contains("authorization")
}

/// Whether a parameter in the query of an address has a name of secrets.
pub(crate) fn is_secret_parameter(name: &str) -> bool {
    let is_one = |known: &&str| name.eq_ignore_ascii_case(known);
    is_secret_name(name) || SECRET_PARAMETERS.iter().any(is_one)
}

/// Whether a part of a name, in small letters, is one that secrets have.
fn is_secret_part(part: &str) -> bool {
    let ends = SECRET_SUFFIXES.iter().any(|end| part.ends_with(*end));
    SECRET_FRAGMENTS.iter().any(|known| part.contains(*known))
        || SECRET_WORDS.contains(&part)
        || (ends && !HARMLESS_WORDS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_every_style() {
        for name in [
            "DB_PASS",
            "DBPASS",
            "MYSQL_PWD",
            "Pwd",
            "dbPassword",
            "SENTRY_DSN",
            "X-Api-Key",
            "APIKEY",
            "api_keys",
            "--auth",
            "BASICAUTH",
            "X-Amz-Signature",
            "sig",
            "Proxy-Authorization",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "PWD",
            "OLDPWD",
            "SSH_ASKPASS",
            "BYPASS",
            "OAUTH_CLIENT_ID",
            "AUTHOR",
            "KEYBOARD",
            "COUNTRY_CODE",
            "",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
        assert!(is_secret_parameter("code") && is_secret_parameter("api_key"));
        assert!(!is_secret_parameter("region"));
    }
}
