//! Which names secrets have: names of variables, options, headers, members of JSON and parameters
//! of an address. Looks at no value.

/// What stands in a part of such a name, wherever in it.
const ANYWHERE: &[&str] = &[
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
const WHOLE: &[&str] = &[
    "pat", "session", "pw", "cred", "creds", "sig", "otp", "totp", "pin",
];
/// How such a part ends, or what all of it is.
const ENDS: &[&str] = &["key", "keys", "pass", "pwd", "auth"];
/// Words that end so and name no secret.
const OTHER_WORDS: &[&str] = &[
    "askpass", "bypass", "compass", "noauth", "oauth", "oldpwd", "trespass",
];
/// Names that are a secret's in the query of an address and nowhere else.
const PARAMETERS: &[&str] = &["code", "hmac", "ticket"];

/// Whether a name is one that secrets have.
pub(crate) fn is_name(name: &str) -> bool {
    // Every shell keeps its working directory in it.
    if name == "PWD" {
        return false;
    }
    let lower = name.to_ascii_lowercase();
    let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
    parts.any(is_part) || lower.contains("authorization")
}

/// Whether a parameter in the query of an address has a name of secrets.
pub(crate) fn is_parameter(name: &str) -> bool {
    let is_one = |known: &&str| name.eq_ignore_ascii_case(known);
    is_name(name) || PARAMETERS.iter().any(is_one)
}

/// Whether a part of a name, in small letters, is one that secrets have.
fn is_part(part: &str) -> bool {
    let ends = ENDS.iter().any(|end| part.ends_with(*end));
    ANYWHERE.iter().any(|known| part.contains(*known))
        || WHOLE.contains(&part)
        || (ends && !OTHER_WORDS.contains(&part))
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
            assert!(is_name(name), "{name}");
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
            assert!(!is_name(name), "{name}");
        }
        assert!(is_parameter("code") && is_parameter("api_key"));
        assert!(!is_parameter("region"));
    }
}
