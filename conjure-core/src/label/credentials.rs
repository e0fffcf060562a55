//! What must not stand in a name: credentials, and what looks like one.

/// How keys and tokens of well-known services begin.
const PREFIXES: [&str; 24] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "akia",
    "asia",
    "aiza",
    "ya29.",
    "eyj",
    "npm_",
    "pypi-",
    "hf_",
    "dop_v1_",
];

/// The shortest text that is taken for a token because of its letters alone.
const MIN_TOKEN_CHARS: usize = 12;

/// What the next word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A word like any other.
    Nothing,
    /// A secret if it looks the least like one.
    Perhaps,
    /// A secret.
    Secret,
}

/// Words behind which a secret stands.
const STRONG: [&str; 9] = [
    "password",
    "passwort",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "apikey",
    "credential",
    "bearer",
];
/// Words that have another meaning too.
const WEAK: [&str; 4] = ["token", "key", "pin", "login"];

/// What is behind a word: a secret behind `password`, `TOKEN=` or `key:`.
pub(super) fn expected_after(raw: &str) -> Expected {
    let (name, value) = match raw.split_once(['=', ':']) {
        Some((name, value)) => (name, Some(value)),
        None => (raw, None),
    };
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    let name: String = letters.flat_map(char::to_lowercase).collect();
    let name = name.strip_suffix('s').unwrap_or(&name);
    let strong = STRONG.iter().any(|end| name.ends_with(end));
    let weak = WEAK.iter().any(|end| name.ends_with(end));
    match value {
        // It stood in the same word.
        Some(value) if !value.is_empty() => Expected::Nothing,
        Some(_) if strong || weak => Expected::Secret,
        None if strong => Expected::Secret,
        None if weak => Expected::Perhaps,
        _ => Expected::Nothing,
    }
}

/// Whether a word in lower case may stand between the name of a secret and the secret.
pub(super) fn is_linking(word: &str) -> bool {
    matches!(
        word,
        "" | "is" | "was" | "are" | "equals" | "ist" | "lautet"
    )
}

/// Whether this looks like a key, a token or a hash.
pub(super) fn looks_secret(raw: &str) -> bool {
    // A secret may stand anywhere in what has no spaces.
    raw.split(|c: char| !is_token_letter(c)).any(is_token)
}

fn is_token_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+')
}

fn is_token(part: &str) -> bool {
    let lower = part.to_ascii_lowercase();
    let known = PREFIXES.iter().any(|prefix| {
        lower
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.len() >= 8)
    });
    if known {
        return true;
    }
    // Names of files and identifiers have parts of one kind of letter each; tokens mix them.
    lower_parts(part).any(|piece| {
        let count = |is: fn(&char) -> bool| piece.chars().filter(is).count();
        let digits = count(char::is_ascii_digit);
        let upper = count(char::is_ascii_uppercase);
        let lower = count(char::is_ascii_lowercase);
        let is_hex =
            piece.len() >= 16 && piece.chars().all(|c| c.is_ascii_hexdigit()) && digits > 0;
        let mixed = piece.len() >= MIN_TOKEN_CHARS && digits >= 2 && upper + lower >= 2;
        let scrambled = piece.len() >= 20 && case_changes(piece) * 3 >= piece.len();
        is_hex || mixed || scrambled || (piece.len() >= 16 && digits == piece.len())
    })
}

/// The parts of an identifier.
fn lower_parts(part: &str) -> impl Iterator<Item = &str> {
    part.split(['_', '-', '.', '+'])
}

/// How often the case changes.
fn case_changes(piece: &str) -> usize {
    let cases = piece.chars().map(|c| c.is_ascii_uppercase());
    let next = cases.clone().skip(1);
    cases.zip(next).filter(|(one, two)| one != two).count()
}
