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
    let skill = Skill {
        resources,
        dir,
        shadowed: &shadowed,
    };
    let mut out = String::with_capacity(command.len());
    let mut word = String::new();
    let mut quote = None;
    let mut escaped = false;
    let mut place = Place::Word;
    let mut before = ' ';
    for c in command.chars() {
        let ends_word = match quote {
            None => is_operator(c) || c.is_whitespace(),
            Some(open) => c == open,
        };
        if ends_word && !escaped {
            place = skill.flush(&mut out, &mut word, quote, place);
            out.push(c);
            quote = match (quote, c) {
                (None, '\'' | '"') => Some(c),
                (Some(open), c) if open == c => None,
                (quote, _) => quote,
            };
            place = match (place, c) {
                // The body of a here-document is data.
                (_, '<') if before == '<' && quote.is_none() => Place::Elsewhere,
                (Place::Word, '>') if quote.is_none() => Place::Target,
                (place, _) => place,
            };
        } else {
            word.push(c);
        }
        escaped = c == '\\' && !escaped && quote != Some('\'');
        before = c;
    }
    skill.flush(&mut out, &mut word, quote, place);
    out
}

/// A path with the skill's own relative ones made absolute: the whole text is one path, so
/// nothing is quoted or split.
pub fn absolute_skill_path(
    path: &str,
    resources: &[String],
    dir: &str,
    shadowed: impl Fn(&str) -> bool,
) -> String {
    let relative = path
        .strip_prefix("./")
        .unwrap_or(path)
        .trim_end_matches('/');
    if is_of_skill(relative, resources) && !shadowed(relative) {
        format!("{}/{relative}", dir.trim_end_matches('/'))
    } else {
        path.to_owned()
    }
}

/// What a word is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Something that a command reads or runs.
    Word,
    /// Where a redirection writes to: never the skill's.
    Target,
    /// Behind a change of directory, or in a here-document: nobody can say what it means.
    Elsewhere,
}

fn is_operator(c: char) -> bool {
    matches!(
        c,
        ';' | '|' | '&' | '<' | '>' | '(' | ')' | '\'' | '"' | '=' | '`'
    )
}

struct Skill<'a, F> {
    resources: &'a [String],
    dir: &'a str,
    shadowed: &'a F,
}

impl<F: Fn(&str) -> bool> Skill<'_, F> {
    /// Writes a word, made absolute when it is one of the skill's paths, and says what comes next.
    fn flush(
        &self,
        out: &mut String,
        word: &mut String,
        quote: Option<char>,
        place: Place,
    ) -> Place {
        let path = word
            .strip_prefix("./")
            .unwrap_or(word)
            .trim_end_matches('/');
        if place == Place::Word && is_of_skill(path, self.resources) && !(self.shadowed)(path) {
            let absolute = format!("{}/{path}", self.dir.trim_end_matches('/'));
            match quote {
                None => out.push_str(&quoted(&absolute)),
                Some('"') => out.push_str(&escaped_in_double_quotes(&absolute)),
                // A single quote cannot be written inside single quotes: leave them for a moment.
                Some(_) => out.push_str(&absolute.replace('\'', r"'\''")),
            }
        } else {
            out.push_str(word);
        }
        let next = match place {
            Place::Word if matches!(word.as_str(), "cd" | "pushd") => Place::Elsewhere,
            Place::Target if !word.is_empty() => Place::Word,
            place => place,
        };
        word.clear();
        next
    }
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
            "echo x > run.sh",
            "echo x >> 'run.sh'; echo y >|run.sh",
            "echo x 2>run.sh",
            "cd project && sh run.sh",
            "cat <<EOF\nrun.sh\nEOF",
        ] {
            assert_eq!(absolute(command), command);
        }
    }

    #[test]
    fn b07_a_path_to_look_at_is_taken_as_it_is() {
        let resources = ["my file.md".to_owned(), "a/b.md".to_owned()];
        let look = |path| absolute_skill_path(path, &resources, "/my skills/s", |p| p == "x");
        assert_eq!(look("my file.md"), "/my skills/s/my file.md");
        assert_eq!(look("./a/b.md"), "/my skills/s/a/b.md");
        assert_eq!(look("a"), "a");
        assert_eq!(look("other file.md"), "other file.md");
    }

    #[test]
    fn what_a_redirection_reads_is_the_skills_and_what_it_writes_is_not() {
        assert_eq!(
            absolute("sh run.sh > run.sh 2>&1"),
            "sh /skills/s/run.sh > run.sh 2>&1"
        );
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
