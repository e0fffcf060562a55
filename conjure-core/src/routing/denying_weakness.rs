//! What a pattern of a rule that denies or asks lets through although it seems to name it.
//!
//! Finds the ways in which the same thing is usually written that the widest reading of the pattern
//! does not cover, with a pattern that covers them. Changes no decision.

use super::shell::{
    ShellScript, ShellWord, has_common_name, has_one_dash, is_option, program as known_program,
};

/// How often a better pattern is made better still.
const MOST_STEPS: usize = 4;

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
    PathPlace(String),
}

/// The first weakness of a pattern, and a pattern that has none.
pub(super) fn denying_weakness(text: &str) -> Option<(DenyingWeakness, String)> {
    let (first, mut better) = next(text)?;
    for _ in 1..MOST_STEPS {
        match next(&better) {
            Some((_, still_better)) => better = still_better,
            None => break,
        }
    }
    Some((first, better))
}

fn next(text: &str) -> Option<(DenyingWeakness, String)> {
    let script = ShellScript::read(text);
    if script.doubt.is_some() {
        // Compared as a text: it may be the arguments of another tool.
        return None;
    }
    let last = script.commands.last()?;
    let words: Vec<&str> = last.words.iter().map(ShellWord::shown).collect();
    let (program, arguments) = words.split_first()?;
    if script.commands.len() > 1 {
        let better = match program.trim_matches('*').is_empty() {
            true => return None,
            false if arguments.is_empty() => format!("{} *", program.trim_end_matches('*')),
            false => words.join(" "),
        };
        return Some((DenyingWeakness::SeveralParts, better));
    }
    if let Some(set) = last.assignments.first() {
        let better = format!("{}=*", set.name);
        return Some((DenyingWeakness::SeveralParts, better));
    }
    if !last.redirects.is_empty() {
        return None;
    }
    program_weakness(program, arguments)
        .or_else(|| {
            let better = format!("{} *", text.trim());
            (!text.contains('*')).then_some((DenyingWeakness::NoStar, better))
        })
        .or_else(|| option_weakness(&words))
        .or_else(|| place_weakness(program, &words))
}

/// A program with its directory, or a path alone.
fn program_weakness(program: &str, arguments: &[&str]) -> Option<(DenyingWeakness, String)> {
    let (directory, base) = program.rsplit_once('/')?;
    if program.starts_with('*') {
        return None;
    }
    let is_of_programs = ["bin", "sbin"].contains(&directory.rsplit('/').next()?);
    if arguments.is_empty() && !is_of_programs {
        let path = program.trim_start_matches("./").trim_end_matches('*');
        return Some((DenyingWeakness::PathAlone, format!("*{path}*")));
    }
    let has_name = !base.trim_matches('*').is_empty();
    let better = [&[base], arguments].concat().join(" ");
    has_name.then_some((DenyingWeakness::Directory, better))
}

/// An option that programs commonly have another name for, which is not known.
fn option_weakness(words: &[&str]) -> Option<(DenyingWeakness, String)> {
    let first = words.first()?;
    if has_one_dash(first) {
        return None;
    }
    let core = |word: &&str| {
        let core = word.trim_matches('*');
        core.split('=').next().unwrap_or(core).to_owned()
    };
    let unknown = |word: &&str| is_option(&core(word)) && !has_common_name(&core(word));
    let at = words.iter().position(unknown)?;
    let mut before = words.get(..at)?;
    while let Some((last, rest)) = before.split_last()
        && last.trim_matches('*').is_empty()
    {
        before = rest;
    }
    let option = core(words.get(at)?);
    let better = format!("{} *", before.join(" "));
    (!before.is_empty()).then_some((DenyingWeakness::OptionName(option), better))
}

/// A path that must be the first argument, or the one behind a subcommand.
fn place_weakness(program: &str, words: &[&str]) -> Option<(DenyingWeakness, String)> {
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
    Some((DenyingWeakness::PathPlace(path), better.join(" ")))
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
            ("cd / && rm -rf *", "rm -rf *"),
            ("PATH=* make *", "PATH=*"),
            ("git commit --no-verify*", "git commit *"),
            ("git push * -n *", "git push *"),
            ("cat /etc/*", "cat */etc/*"),
            ("cat /etc/shadow", "cat */etc/shadow *"),
        ] {
            let told = denying_weakness(pattern).map(|(_, better)| better);
            assert_eq!(told.as_deref(), Some(better), "{pattern}");
            assert_eq!(denying_weakness(better), None, "{better}");
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
            "*--no-verify*",
            "{\"n\":1*",
        ] {
            assert_eq!(denying_weakness(pattern), None, "{pattern}");
        }
    }
}
