//! Variables in settings: `{ expand = "${workspaceFolder}/data" }`.
//!
//! Only such a setting is expanded, once, when its session opens. A variable that is not there
//! and has no default is an error, never an empty text.

use std::path::Path;

/// Values of the variables.
pub(crate) struct ExpansionEnv<'a> {
    /// The session's working directory.
    pub(crate) working_dir: Option<&'a Path>,
    /// A variable of the host's environment.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
}

/// The text with values in place of `${workspaceFolder}`, `${userHome}`, `${env:NAME}` and
/// `${env:NAME:-default}`. A default may have variables itself.
///
/// # Errors
/// Which variable has no value, or is none.
pub(crate) fn expand(text: &str, env: &ExpansionEnv<'_>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let end = end(after).ok_or_else(|| format!("a variable in `{text}` is not closed"))?;
        let (name, after) = after.split_at(end);
        out.push_str(&value(name, env)?);
        rest = after.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the brace is that closes a variable; braces of others in its default are not.
fn end(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn value(name: &str, env: &ExpansionEnv<'_>) -> Result<String, String> {
    let path = |path: Option<&Path>, what: &str| {
        let path = path.and_then(Path::to_str);
        path.map(str::to_owned)
            .ok_or_else(|| format!("`${{{name}}}`: there is no {what} here"))
    };
    match name {
        "workspaceFolder" => return path(env.working_dir, "working directory"),
        "userHome" => {
            let home = (env.variable)("HOME").filter(|home| !home.is_empty());
            return path(home.as_deref().map(Path::new), "home directory");
        }
        _ => {}
    }
    let Some(variable) = name.strip_prefix("env:") else {
        return Err(format!(
            "`${{{name}}}` is no variable: there are `${{workspaceFolder}}`, `${{userHome}}`, \
             `${{env:NAME}}` and `${{env:NAME:-default}}`"
        ));
    };
    let (variable, default) = match variable.split_once(":-") {
        Some((variable, default)) => (variable, Some(default)),
        None => (variable, None),
    };
    match (
        (env.variable)(variable).filter(|value| !value.is_empty()),
        default,
    ) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => expand(default, env),
        (None, None) => Err(format!(
            "the variable `{variable}` of the host's environment is not set; set it, or write \
             `${{env:{variable}:-default}}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let variable = |name: &str| match name {
            "HOME" => Some("/home/me".to_owned()),
            "DIR" => Some("/d".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let env = ExpansionEnv {
            working_dir: Some(Path::new("/srv")),
            variable: &variable,
        };
        expand(text, &env)
    }

    #[test]
    fn variables_have_their_values() {
        for (text, value) in [
            ("plain {x} $y", "plain {x} $y"),
            ("${workspaceFolder}/a:${userHome}/b", "/srv/a:/home/me/b"),
            ("${env:DIR}/x", "/d/x"),
            ("${env:DIR:-/tmp}", "/d"),
            ("${env:NONE:-/tmp/c}", "/tmp/c"),
            ("${env:EMPTY:-/tmp/c}", "/tmp/c"),
            ("${env:NONE:-}", ""),
            ("${env:NONE:-${userHome}/c}/d", "/home/me/c/d"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_is_told() {
        for (text, part) in [
            ("${env:NONE}", "`NONE`"),
            ("${other}", "is no variable"),
            ("${env:DIR", "not closed"),
        ] {
            let told = expanded(text).unwrap_err();
            assert!(told.contains(part), "{told}");
        }
    }
}
