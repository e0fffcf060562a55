//! Relative paths of a skill in commands: `python3 scripts/x.py` runs wherever the working
//! directory is.
//!
//! A skill's instructions name its files relative to the skill's directory, while commands run in
//! the session's working directory. A word of a command that is exactly the path of a file or
//! directory of the skill is made absolute. Nothing else of the command is touched.

use super::command_words::{WordRole, replace_words};

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
    replace_words(command, |word, place| {
        let path = word.strip_prefix("./").unwrap_or(word);
        let path = path.trim_end_matches('/');
        (place == WordRole::Word && is_of_skill(path, resources) && !shadowed(path))
            .then(|| format!("{}/{path}", dir.trim_end_matches('/')))
    })
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
