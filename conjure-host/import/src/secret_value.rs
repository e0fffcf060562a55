//! Whether a value holds a secret, whatever its name is: a token, an address with a password, a
//! connection string, headers, or a command line with an option that takes one.
//!
//! Values of variables, arguments, headers and addresses are all judged by this, so that one that
//! is found in one place is found in the others. Knows no variables: they are replaced before, see
//! [`with_placeholders`](super::variables::with_placeholders).

use super::secret_name::{is_secret_name, is_secret_parameter};

/// Stands in a text for a value that is no secret of this text, because it is known elsewhere.
pub(crate) const REFERENCE: char = '\u{fffc}';

/// Prefixes of known kinds of tokens.
const TOKEN_PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "ya29.",
    "npm_",
    "hf_",
    "lin_api_",
    "ntn_",
    "figd_",
    "secret_",
];
/// A token that is known by how it begins has so many bytes.
const MIN_TOKEN_BYTES: usize = 12;
/// A text of so many letters and digits without a space is no word.
const MIN_OPAQUE_CHARS: usize = 24;
/// Schemes before a secret in a header.
const SCHEMES: [&str; 5] = ["Bearer ", "bearer ", "Basic ", "Token ", "token "];
/// Schemes that no sentence has by chance.
const CLEAR_SCHEMES: [&str; 2] = ["Bearer ", "bearer "];
/// Values that are no secret, whatever their name is.
const PLAIN_WORDS: [&str; 5] = ["true", "false", "null", "none", "undefined"];
/// What stands before a `:` in texts such as `npm:pkg@1.0`, which have no password.
const PREFIXES_WITHOUT_PASSWORD: [&str; 7] =
    ["npm", "jsr", "file", "git", "github", "mailto", "workspace"];

/// Whether a value holds a secret.
pub(crate) fn holds_secret(value: &str) -> bool {
    is_token(value)
        || value.contains("PRIVATE KEY-----")
        || split_words(value).any(is_known_token)
        || contains_secret_address(value)
        || is_login(value)
        || has_secret_pair(value)
        || is_behind_scheme(value)
        || is_behind_option(value)
}

/// Whether the address of a server has a secret in it.
pub(crate) fn is_secret_address(url: &str) -> bool {
    holds_secret(url) || (!url.contains("://") && is_secret_location(url))
}

/// Whether an address that stands in a text has a secret in it.
pub(crate) fn contains_secret_address(text: &str) -> bool {
    text.split("://").skip(1).any(is_secret_location)
}

/// Whether a text is one secret as a whole: a connection string, or `user:password@host`. Its first
/// name says nothing of the rest then.
pub(crate) fn is_connection(text: &str) -> bool {
    let first = text.split(';').next().unwrap_or_default();
    let pairs = text.split(';').filter(|part| part.contains('=')).count();
    let is_list = pairs > 1 && !text.starts_with('-') && first.matches('=').count() == 1;
    (is_list && has_secret_pair(text)) || is_login(text)
}

/// A value without the scheme that stands before it, such as `Bearer `.
pub(crate) fn split_scheme(value: &str) -> (String, &str) {
    for scheme in SCHEMES {
        if let Some(rest) = value.strip_prefix(scheme) {
            return (scheme.to_owned(), rest);
        }
    }
    (String::new(), value)
}

/// Whether a value looks like a token as a whole.
fn is_token(value: &str) -> bool {
    if has_token_prefix(value) {
        return true;
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+=".contains(c);
    let has = |test: fn(char) -> bool| value.chars().any(test);
    value.len() >= MIN_OPAQUE_CHARS
        && value.chars().all(is_part)
        && has(|c| c.is_ascii_digit())
        && has(|c| c.is_ascii_alphabetic())
        && !value.contains("..")
        // A name with its value, such as a package with its version, is none.
        && !value.trim_end_matches('=').contains('=')
}

/// Whether a text begins as tokens do; a name with its value behind `=` is none.
fn has_token_prefix(value: &str) -> bool {
    value.len() >= MIN_TOKEN_BYTES
        && TOKEN_PREFIXES.iter().any(|begin| value.starts_with(*begin))
        && !value.trim_end_matches('=').contains('=')
}

/// Whether a word within a text is a token. Names such as `npm_config_cache` begin like one and have
/// no digits.
fn is_known_token(word: &str) -> bool {
    has_token_prefix(word) && word.contains(|c: char| c.is_ascii_digit())
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || is_quote(c) || "=,;:&|()<>{}[]".contains(c))
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '\\')
}

/// Whether what stands behind `://` has a secret in it: a login, a part of the path that is a token,
/// or a parameter.
fn is_secret_location(text: &str) -> bool {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '`' | '<' | '>');
    let location = text.split(is_end).next().unwrap_or_default();
    let (path, query) = match location.find(['?', '#']) {
        Some(at) => location.split_at(at),
        None => (location, ""),
    };
    let (authority, path) = path.split_once('/').unwrap_or((path, ""));
    has_login(authority, path) || path.split('/').any(is_token) || is_secret_query(query)
}

/// Whether an authority has a login; a password with a `/` in it ends only in the path.
fn has_login(authority: &str, path: &str) -> bool {
    if let Some((login, _)) = authority.rsplit_once('@') {
        let password = login
            .rsplit_once(':')
            .map_or(login, |(_, password)| password);
        return !login.is_empty() && !is_reference(password);
    }
    let is_port = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == REFERENCE);
    let behind = authority.rsplit_once(':').map(|(_, behind)| behind);
    path.contains('@') && behind.is_some_and(|text| !text.ends_with(']') && !is_port(text))
}

fn is_secret_query(query: &str) -> bool {
    let mut pairs = query.split(['?', '#', '&', ';']);
    pairs.any(|pair| match pair.split_once('=') {
        Some((name, value)) => {
            let is_there = !value.is_empty() && !is_reference(value);
            is_there && (is_secret_parameter(name) || is_token(value))
        }
        None => is_token(pair),
    })
}

/// Whether a text is `user:password@host`, an address without its scheme. A digest of an image and a
/// version of a package are none.
fn is_login(text: &str) -> bool {
    if text.contains("@tcp(") || text.contains("@unix(") {
        return true;
    }
    let Some((login, host)) = text.rsplit_once('@') else {
        return false;
    };
    let Some((user, password)) = login.split_once(':') else {
        return false;
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c) || c == REFERENCE;
    let is_password = |c: char| !c.is_whitespace() && !matches!(c, '/' | '\\');
    let is_host = host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
    user.chars().all(is_part)
        && !PREFIXES_WITHOUT_PASSWORD.contains(&user)
        && !password.is_empty()
        && !is_reference(password)
        && password.chars().all(is_password)
        && is_host
        && !host.starts_with("sha256:")
}

/// Whether `name=value` or `Name: value` with a name of secrets stands in a text: connection strings,
/// JSON, headers, assignments of a shell.
fn has_secret_pair(text: &str) -> bool {
    text.match_indices(['=', ':']).any(|(at, sign)| {
        let before = text.get(..at).unwrap_or_default();
        let after = text.get(at + 1..).unwrap_or_default();
        let name = last_name(before);
        // In a connection string it is a password, and a path is a shell's working directory.
        let is_pwd = name.eq_ignore_ascii_case("pwd") && !after.starts_with('/');
        (is_secret_name(name) || is_pwd) && is_assigned(before, sign, after)
    })
}

/// The name that a text ends with, without quotes around it.
fn last_name(text: &str) -> &str {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || is_quote(c));
    let is_outside = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
    text.rsplit(is_outside).next().unwrap_or_default()
}

/// Whether a sign gives the name before it the value behind it. A `:` alone is also part of paths
/// and addresses.
fn is_assigned(before: &str, sign: &str, after: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_header = before.chars().all(is_name) && !after.starts_with(['/', '\\']);
    let is_sure = sign == "="
        || is_header
        || before.trim_end().ends_with(is_quote)
        || after.starts_with(|c: char| c.is_whitespace() || is_quote(c))
        || !split_scheme(after).0.is_empty();
    // Members of an object are looked at by themselves.
    let is_object = sign == ":" && after.trim_start().starts_with('{');
    is_sure && !is_object && begins_with_value(after)
}

/// Whether a text begins with a value that may be secret: not with nothing, a reference, or a word
/// such as `false`.
fn begins_with_value(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || is_quote(c) || c == '[');
    let (_, text) = split_scheme(text);
    let Some(first) = text.chars().next() else {
        return false;
    };
    let is_nothing = matches!(first, ',' | ';' | '&' | '=' | '}' | ']') || is_reference(text);
    !is_nothing && !is_shell_variable(text) && !is_plain_word(text)
}

/// Whether a text begins with a value that stands elsewhere as a whole, or with a path below one:
/// letters and digits beside it are half of a secret.
fn is_reference(text: &str) -> bool {
    let Some(behind) = text.strip_prefix(REFERENCE) else {
        return false;
    };
    let rest = behind.split(is_end_sign).next().unwrap_or_default();
    rest.starts_with('/') || !rest.contains(|c: char| c.is_ascii_alphanumeric())
}

fn is_shell_variable(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('$') else {
        return false;
    };
    let name =
        rest.trim_start_matches(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    rest.starts_with('(') || (name.len() < rest.len() && is_end(name))
}

/// Whether a whole value is a word that is no secret.
pub(super) fn is_only_plain_word(value: &str) -> bool {
    let mut words = PLAIN_WORDS.iter();
    words.any(|word| value.eq_ignore_ascii_case(word))
}

fn is_plain_word(text: &str) -> bool {
    PLAIN_WORDS.iter().any(|word| {
        let begin = text.get(..word.len());
        let behind = text.get(word.len()..).unwrap_or_default();
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word)) && is_end(behind)
    })
}

/// Whether a value has ended where this text begins.
fn is_end(text: &str) -> bool {
    text.chars().next().is_none_or(is_end_sign)
}

fn is_end_sign(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || ",;&)}]".contains(c)
}

fn is_behind_scheme(text: &str) -> bool {
    let mut schemes = CLEAR_SCHEMES.iter();
    schemes.any(|scheme| text.split(*scheme).skip(1).any(begins_with_value))
}

/// Whether a command line has `--option value` with an option that takes a secret.
fn is_behind_option(text: &str) -> bool {
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let is_option = word.starts_with("--") && !word.contains('=') && is_secret_name(word);
        let is_value = |next: &&str| !next.starts_with('-') && begins_with_value(next);
        if is_option && words.peek().is_some_and(is_value) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_secrets_are_known_whatever_their_name_is() {
        for value in [
            "sk-abcdefghijkl",
            "0123456789abcdef0123456789abcdef",
            "postgresql://user:hunter2@localhost/db",
            "mongodb+srv://u:hunter2@c/db",
            "redis://:hunter2@h:1",
            "redis://:hunt/er2@h:1",
            "http://u:p@h:1",
            "u:p@h:1",
            "me:pa/ss@tcp(localhost:3306)/db",
            "Server=h;Database=d;Password=hunter2;",
            "DRIVER={x};UID=sa;PWD=hunter2",
            "host=h user=u password = hunter2",
            "h:6380,password=hunter2,ssl=True",
            "jdbc:sqlserver://h:1433;user=sa;password=hunter2",
            "Endpoint=sb://h/;SharedAccessKey=abc=",
            "{\"Authorization\": \"Bearer ntn_123\"}",
            "{\"Authorization\":\"hunter2\"}",
            "{\"pin\":1234}",
            "{\"a\": {\"api_keys\": [\"hunter2\"]}}",
            "{'apiKey': 'hunter2'}",
            "Authorization: Basic dTpw",
            "Authorization=Bearer abc,x-y=z",
            "X-Thing: Bearer abc",
            "npx -y server --api-key hunter2",
            "export API_TOKEN=hunter2; exec server",
            "-----BEGIN RSA PRIVATE KEY-----\nMII",
        ] {
            assert!(holds_secret(value), "{value}");
        }
    }

    #[test]
    fn values_without_secrets_stay_plain() {
        for value in [
            "",
            "small",
            "/usr/local/lib/node_modules/x1/bin:/bin",
            "@modelcontextprotocol/server-memory",
            "https://example.org/a/b/c/d/e/f/g",
            "https://x.example/@scope/server/mcp",
            "http://[::1]/@scope",
            "git@github.com:org/repo.git",
            "npm:pkg@1.0",
            "postgres:16@sha256:0123456789abcdef",
            "C:\\node_modules\\@scope\\server",
            "./session:/data",
            "/etc/ssl/private.key:/key",
            "Server=h;Database=d;Integrated Security=true",
            "password=",
            "{\"Authorization\": \"\", \"auth\": {\"type\": \"x\"}, \"token\": null}",
            "mcp-server-auth==1.0",
            "mcp-server-brave-search==2.0.72",
            "--max-old-space-size=4096",
            "npm_config_cache=/tmp",
            "export TOKEN=$TOKEN; exec server --key \"$KEY\"",
            "cd /x; PWD=/x run",
            "--password --verbose",
        ] {
            assert!(!holds_secret(value), "{value}");
        }
    }

    #[test]
    fn what_stands_for_a_value_elsewhere_is_no_secret() {
        for text in [
            "Authorization:Bearer *",
            "Authorization: *",
            "--api-key=*",
            "postgres://u:*@h/db",
            "https://x.example/mcp?token=*",
            "Server=h;Password=*",
            "{\"Authorization\": \"Bearer *\"}",
            "--key-file=*/id.pem",
            "--auth=*:*",
        ] {
            let text = text.replace('*', &REFERENCE.to_string());
            assert!(!holds_secret(&text), "{text}");
        }
        for text in [
            "postgres://*:hunter2@h/db",
            "postgres://u:hunter2*@h/db",
            "u:hunter2*@h",
            "Authorization: Bearer *hunter2",
            "--api-key=*hunter2",
            "https://x.example/mcp?token=*hunter2",
        ] {
            let text = text.replace('*', &REFERENCE.to_string());
            assert!(holds_secret(&text), "{text}");
        }
    }

    #[test]
    fn an_address_may_hold_one() {
        for url in [
            "https://u:p@x.example/mcp",
            "https://x.example/s/0123456789abcdef0123456789/mcp",
            "https://x.example/mcp#access_token=1",
            "x.example/mcp?key=1",
        ] {
            assert!(is_secret_address(url), "{url}");
        }
        for name in [
            "code",
            "key",
            "api_key",
            "apikey",
            "token",
            "access_token",
            "sig",
            "signature",
            "secret",
            "password",
            "pwd",
            "auth",
            "X-Amz-Signature",
        ] {
            let url = format!("https://x.example/mcp?region=eu&{name}=1");
            assert!(is_secret_address(&url), "{url}");
        }
        for url in [
            "https://x.example/mcp?region=eu",
            "https://x.example:8080/mcp?key=",
            "https://x.example/@scope/mcp",
        ] {
            assert!(!is_secret_address(url), "{url}");
        }
    }

    #[test]
    fn a_connection_string_is_one_secret() {
        assert!(is_connection("Server=h;Password=hunter2"));
        assert!(is_connection("u:p@h"));
        assert!(!is_connection("--dsn=Server=h;Password=hunter2"));
        assert!(!is_connection("DB=Server=h;Password=hunter2"));
        assert!(!is_connection("TOKEN=abc"));
    }
}
