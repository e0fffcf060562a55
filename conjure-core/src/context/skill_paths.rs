//! Relative paths of a skill in commands: `python3 scripts/x.py` runs wherever the working
//! directory is.
//!
//! A skill's instructions name its files relative to the skill's directory, while commands run in
//! the session's working directory. A word of a command that is exactly the path of a file or
//! directory of the skill is made absolute. Nothing else of the command is touched.

/// The command with the skill's own relative paths made absolute.
///
/// `resources` are the skill's files, relative, with `/` between components; `dir` is the skill's
/// directory as the command sees it; `shadowed` says whether the working directory has something
/// of that path itself, which then is what the word means.
pub fn absolute_skill_paths(
    command: &str,
    resources: &[String],
    dir: &str,
    shadowed: impl Fn(&str) -> bool,
) -> String {
    let mut out = String::with_capacity(command.len());
    let mut word = String::new();
    let mut quote = None;
    let mut escaped = false;
    for c in command.chars() {
        let ends_word = match quote {
            None => {
                c.is_whitespace()
                    || matches!(
                        c,
                        ';' | '|' | '&' | '<' | '>' | '(' | ')' | '\'' | '"' | '=' | '`'
                    )
            }
            Some(open) => c == open,
        };
        if ends_word && !escaped {
            flush(&mut out, &mut word, quote, resources, dir, &shadowed);
            out.push(c);
            quote = match (quote, c) {
                (None, '\'' | '"') => Some(c),
                (Some(open), c) if open == c => None,
                (quote, _) => quote,
            };
        } else {
            word.push(c);
        }
        escaped = c == '\\' && !escaped && quote != Some('\'');
    }
    flush(&mut out, &mut word, quote, resources, dir, &shadowed);
    out
}

fn flush(
    out: &mut String,
    word: &mut String,
    quote: Option<char>,
    resources: &[String],
    dir: &str,
    shadowed: &impl Fn(&str) -> bool,
) {
    let path = word
        .strip_prefix("./")
        .unwrap_or(word)
        .trim_end_matches('/');
    if is_of_skill(path, resources) && !shadowed(path) {
        let absolute = format!("{}/{path}", dir.trim_end_matches('/'));
        match quote {
            None => out.push_str(&quoted(&absolute)),
            Some('"') => out.push_str(&escaped_in_double_quotes(&absolute)),
            // A single quote cannot be written inside single quotes: leave them for a moment.
            Some(_) => out.push_str(&absolute.replace('\'', r"'\''")),
        }
    } else {
        out.push_str(word);
    }
    word.clear();
}

/// A path with a `/` in it, or a file at the skill's root: names of one component are too likely
/// to be something else (`scripts` alone may be an argument), unless they are files.
fn is_of_skill(path: &str, resources: &[String]) -> bool {
    if path.is_empty() || path.starts_with('/') {
        return false;
    }
    resources.iter().any(|resource| {
        resource == path
            || (path.contains('/')
                && resource
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/')))
    })
}

fn quoted(path: &str) -> String {
    let plain = path.chars().all(|c| {
        c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ',' | '@' | '%')
    });
    if plain {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

fn escaped_in_double_quotes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absolute(command: &str) -> String {
        let resources = [
            "scripts/x.py".to_owned(),
            "references/a/b.md".to_owned(),
            "run.sh".to_owned(),
        ];
        absolute_skill_paths(command, &resources, "/skills/s", |path| path == "shadowed")
    }

    #[test]
    fn b08_a_skills_relative_script_is_found_from_any_working_directory() {
        for (command, expected) in [
            (
                "python3 scripts/x.py --in data.csv",
                "python3 /skills/s/scripts/x.py --in data.csv",
            ),
            ("./scripts/x.py", "/skills/s/scripts/x.py"),
            ("sh run.sh|tee out", "sh /skills/s/run.sh|tee out"),
            (
                "cat \"scripts/x.py\" 'scripts/x.py'",
                "cat \"/skills/s/scripts/x.py\" '/skills/s/scripts/x.py'",
            ),
            (
                "F=scripts/x.py; cat <references/a/b.md",
                "F=/skills/s/scripts/x.py; cat </skills/s/references/a/b.md",
            ),
            ("ls references/a/", "ls /skills/s/references/a"),
        ] {
            assert_eq!(absolute(command), expected);
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for command in [
            "echo my-scripts/x.py",
            "cat /skills/s/scripts/x.py",
            "ls scripts",
            "echo 'see scripts/x.py for more'",
            "echo scripts\\/x.py",
            "",
            "echo 'unterminated",
            "printf '%s\\n' ünïcode",
        ] {
            assert_eq!(absolute(command), command);
        }
    }

    #[test]
    fn a_file_of_the_working_directory_wins() {
        let resources = ["data/in.csv".to_owned()];
        let command = "cat data/in.csv";
        assert_eq!(
            absolute_skill_paths(command, &resources, "/s", |_| true),
            command
        );
    }

    #[test]
    fn a_directory_with_spaces_and_quotes_is_quoted() {
        let resources = ["a.sh".to_owned()];
        let run = |command| absolute_skill_paths(command, &resources, "/my 'skills'/$x", |_| false);
        assert_eq!(run("sh a.sh"), r"sh '/my '\''skills'\''/$x/a.sh'");
        assert_eq!(run("sh \"a.sh\""), "sh \"/my 'skills'/\\$x/a.sh\"");
        assert_eq!(run("sh 'a.sh'"), r"sh '/my '\''skills'\''/$x/a.sh'");
    }
}
