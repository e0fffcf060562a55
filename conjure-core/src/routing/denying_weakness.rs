//! What a pattern of a rule that denies or asks lets through although it seems to name it.
//!
//! Finds the ways in which the same thing is usually written that the widest reading of the pattern
//! does not cover, with a pattern that covers them. Changes no decision.

use super::shell::{
    ShellScript, ShellWord, has_common_name, has_one_dash, is_option, program as known_program,
    takes_value,
};

/// How often a better pattern is made better still.
const MAX_STEPS: usize = 4;

/// Programs that run their input, so that denying them is denying a pipeline to them.
const RUN_INPUT: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "xargs", "parallel", "python", "python3", "perl",
    "ruby", "node", "php",
];

/// Why a pattern denies less than it seems to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DenyingWeakness {
    /// The pattern has several commands, or a variable and a command.
    #[error(
        "is for its commands only where they are written together like that: each command, and each \
         variable that is set, is looked at alone"
    )]
    SeveralParts,
    /// The pattern names its program with a directory.
    #[error(
        "is not for the program where it is called by its name alone or from another directory"
    )]
    Directory,
    /// The pattern is a path.
    #[error("is for no command that has the path among its arguments")]
    PathAlone,
    /// The pattern has no star.
    #[error("is not for the command with a further argument")]
    NoStar,
    /// The pattern names an option that may have another name.
    #[error("is for `{0}` under this name only, and the program may have another one for it")]
    OptionName(String),
    /// The pattern names a path in a certain place.
    #[error("is not for `{0}` behind another argument")]
    PathPosition(String),
}

/// The first weakness of a pattern, and a pattern that has none, where one is known.
pub(super) fn denying_weakness(text: &str) -> Option<(DenyingWeakness, Option<String>)> {
    let (first, mut better) = find_weakness(text)?;
    for _ in 1..MAX_STEPS {
        let Some((_, Some(still_better))) = better.as_deref().and_then(find_weakness) else {
            break;
        };
        better = Some(still_better);
    }
    Some((first, better))
}

fn find_weakness(text: &str) -> Option<(DenyingWeakness, Option<String>)> {
    let script = ShellScript::read(text);
    if script.doubt.is_some() {
        // Compared as a text: it may be the arguments of another tool.
        return None;
    }
    let last = script.commands.last()?;
    let words: Vec<&str> = last.words.iter().map(ShellWord::display_text).collect();
    let (program, arguments) = words.split_first()?;
    if script.commands.len() > 1 {
        if program.trim_matches('*').is_empty() {
            return None;
        }
        let runs_input = script.shape.ends_with("|c") && RUN_INPUT.contains(program);
        let better = match arguments.is_empty() {
            true => format!("{program} *"),
            false => words.join(" "),
        };
        return Some((DenyingWeakness::SeveralParts, runs_input.then_some(better)));
    }
    if let Some(set) = last.assignments.first() {
        let better = format!("{}=*", set.name);
        return Some((DenyingWeakness::SeveralParts, Some(better)));
    }
    if !last.redirects.is_empty() {
        return None;
    }
    let (weakness, better) = program_weakness(program, arguments)
        .or_else(|| {
            let better = format!("{} *", text.trim());
            (!text.contains('*')).then_some((DenyingWeakness::NoStar, better))
        })
        .or_else(|| option_weakness(&words))
        .or_else(|| path_weakness(program, &words))?;
    Some((weakness, Some(better)))
}

/// A program with its directory, or a path alone.
fn program_weakness(program: &str, arguments: &[&str]) -> Option<(DenyingWeakness, String)> {
    let (directory, base) = program.rsplit_once('/')?;
    if program.starts_with('*') {
        return None;
    }
    let is_of_programs = ["bin", "sbin"].contains(&directory.rsplit('/').next()?);
    if arguments.is_empty() && !is_of_programs {
        if !program.contains(|c: char| c.is_ascii_alphanumeric()) {
            return None;
        }
        let path = program.trim_start_matches("./").trim_end_matches('*');
        return Some((DenyingWeakness::PathAlone, format!("*{path}*")));
    }
    let has_name = !base.trim_matches('*').is_empty();
    let better = [&[base], arguments].concat().join(" ");
    has_name.then_some((DenyingWeakness::Directory, better))
}

/// An option that programs commonly have another name for, which is not known. None where the pattern
/// would name a program alone without it.
fn option_weakness(words: &[&str]) -> Option<(DenyingWeakness, String)> {
    let program = words.first()?;
    if has_one_dash(program) {
        return None;
    }
    let core = |word: &str| {
        let core = word.trim_matches('*');
        core.split('=').next().unwrap_or(core).to_owned()
    };
    let unknown = |word: &&str| {
        let is_written = !word.starts_with('*') && is_option(&core(word));
        is_written && !has_common_name(words, &core(word))
    };
    let at = words.iter().position(unknown)?;
    let word = words.get(at)?;
    let option = core(word);
    let next = words
        .get(at + 1)
        .filter(|_| word.trim_matches('*') == option);
    let is_literal = |word: &&&str| !word.contains('*') && !is_option(word);
    let dropped = match next.filter(is_literal) {
        Some(_) if takes_value(program, &option) => 2,
        // The word behind may be its value, or not.
        Some(_) => return None,
        None => 1,
    };
    let before = words.get(..at)?.iter();
    let after = words.get(at + dropped..).unwrap_or_default();
    let mut kept: Vec<&str> = before.chain(after).copied().collect();
    if !kept.last()?.ends_with('*') {
        kept.push("*");
    }
    let is_star = |word: &str| word.trim_matches('*').is_empty();
    kept.dedup_by(|a, b| is_star(a) && is_star(b));
    let names = |word: &&&str| !is_star(word) && !is_option(word);
    let names_more = kept.iter().filter(names).count() > 1;
    (at > 0 && names_more).then(|| (DenyingWeakness::OptionName(option), kept.join(" ")))
}

/// A path that must be the first argument, or the one behind a subcommand.
fn path_weakness(program: &str, words: &[&str]) -> Option<(DenyingWeakness, String)> {
    if known_program(program).is_some_and(|known| known.is_wrapper() || known.is_interpreter()) {
        return None;
    }
    let is_path = |word: &str| {
        let begins = ["/", "~/", "./", "../"]
            .iter()
            .any(|it| word.starts_with(it));
        begins && word.chars().filter(char::is_ascii_alphanumeric).count() > 1
    };
    let stays = |word: &&&str| !word.starts_with('*');
    let literal = words.iter().skip(1).take_while(stays).count();
    let at = words.iter().position(|word| is_path(word))?;
    if at == 0 || at > literal {
        return None;
    }
    let path = *words.get(at)?;
    let starred = |(index, word): (usize, &&str)| match index == at {
        true => format!("*{}", word.trim_start_matches("./")),
        false => (*word).to_owned(),
    };
    let better: Vec<String> = words.iter().enumerate().map(starred).collect();
    let path = path.trim_end_matches('*').to_owned();
    Some((DenyingWeakness::PathPosition(path), better.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_lets_through_is_told_with_a_better_one() {
        for (pattern, better) in [
            ("git push", "git push *"),
            ("/bin/rm *", "rm *"),
            ("/usr/sbin/reboot", "reboot *"),
            ("./deploy.sh web *", "deploy.sh web *"),
            ("/etc/*", "*/etc/*"),
            ("/etc/shadow", "*/etc/shadow*"),
            ("curl * | sh", "sh *"),
            ("curl * | xargs rm *", "xargs rm *"),
            ("kubectl -n prod delete *", "kubectl delete *"),
            ("git commit --no-verify -m *", "git commit *"),
            ("ls -l", "ls -l *"),
            ("PATH=* make *", "PATH=*"),
            ("git commit --no-verify*", "git commit *"),
            ("git push * -n *", "git push *"),
            ("cat /etc/*", "cat */etc/*"),
            ("cat /etc/shadow", "cat */etc/shadow *"),
        ] {
            let told = denying_weakness(pattern).and_then(|(_, better)| better);
            assert_eq!(told.as_deref(), Some(better), "{pattern}");
            assert_eq!(denying_weakness(better), None, "{better}");
        }
    }

    #[test]
    fn no_other_command_is_suggested() {
        for pattern in [
            "git add * && git push *",
            "cd / && rm -rf *",
            "cd / && sh *",
            "git log * | wc *",
        ] {
            let told = denying_weakness(pattern);
            assert_eq!(
                told,
                Some((DenyingWeakness::SeveralParts, None)),
                "{pattern}"
            );
        }
    }

    #[test]
    fn what_keeps_what_it_says_is_left_alone() {
        for pattern in [
            "*",
            "git push *",
            "git push*",
            "*rm -rf*",
            "rm -rf *",
            "rm -rf /*",
            "git push * --force*",
            "kubectl delete *",
            "git reset --hard*",
            "*/etc/shadow*",
            "*token*",
            "PATH=*",
            "find * -delete*",
            "bash /tmp/*",
            "echo * > /etc/*",
            "*|*",
            "./*",
            "/*",
            "~/*",
            "git -c *",
            "python3 -c *",
            "ls -l *",
            "docker run --rm ubuntu *",
            "git * --force*",
            "*--no-verify*",
            "{\"n\":1*",
        ] {
            assert_eq!(denying_weakness(pattern), None, "{pattern}");
        }
    }
}
