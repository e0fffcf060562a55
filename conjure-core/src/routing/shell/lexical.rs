//! Where shells, or the parser, may cut a text into other words and commands than the shell that runs it.
//!
//! The parser is made for people who write scripts: it guesses at comments and braces, and goes on behind
//! what it cannot read. A guess that is wrong is a command that nobody judged. So the text is looked at
//! once more, character by character, by the rules of POSIX alone, and whatever is not plainly the same
//! to every shell is not judged: commands inside of commands, here-documents, braces in words, parameters
//! with operators, quotes of one shell, comments that may be words, and lines that go on inside a word.

use std::str::Chars;

use super::Doubt;

/// What stands before a character in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrecedingSign {
    /// The beginning of a word.
    Boundary,
    /// A word of digits alone, such as the descriptor before a redirection.
    Digits(usize),
    /// A character of a word that quotes nothing.
    Plain,
    /// The end of something quoted, or a character that no shell is needed to agree about.
    Other,
}

/// Why a text may be cut differently.
pub(super) fn doubt(text: &str) -> Option<Doubt> {
    let mut scan = LexicalScan {
        chars: text.chars(),
        before: PrecedingSign::Boundary,
        has_blank: true,
        has_group: false,
    };
    while let Some(c) = scan.chars.next() {
        match scan.take(c) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(doubt) => return Some(doubt),
        }
    }
    None
}

struct LexicalScan<'a> {
    chars: Chars<'a>,
    before: PrecedingSign,
    /// Whether the character before was a blank, or there was none.
    has_blank: bool,
    /// Whether there was a group so far.
    has_group: bool,
}

impl LexicalScan<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.clone().next()
    }

    /// Takes a character of unquoted text. Whether the rest is to be looked at, too.
    fn take(&mut self, c: char) -> Result<bool, Doubt> {
        let before = self.before;
        let had_blank = std::mem::replace(&mut self.has_blank, matches!(c, ' ' | '\t'));
        self.before = match c {
            ' ' | '\t' | '\n' | ';' => PrecedingSign::Boundary,
            '\\' => self.escape(had_blank)?,
            '\'' => self.quoted()?,
            '"' => self.double_quoted()?,
            '`' => return Err(Doubt::Construct),
            '$' => self.parameter(true)?,
            '{' | '}' => self.brace(c, before)?,
            '(' => self.group(before)?,
            ')' => PrecedingSign::Boundary,
            '&' | '|' => self.operator(c)?,
            '<' | '>' => self.redirection(before)?,
            '#' if before == PrecedingSign::Boundary => {
                let is_last = !self.chars.as_str().contains('\n');
                let is_plain = is_last && !self.has_group;
                return is_plain.then_some(false).ok_or(Doubt::Dialect);
            }
            '#' if before == PrecedingSign::Other => return Err(Doubt::Dialect),
            c if c.is_ascii_digit() => match before {
                PrecedingSign::Boundary => PrecedingSign::Digits(1),
                PrecedingSign::Digits(count) => PrecedingSign::Digits(count + 1),
                PrecedingSign::Plain | PrecedingSign::Other => PrecedingSign::Plain,
            },
            c if c.is_ascii_alphanumeric() || "_/.:=%+@,-~#".contains(c) => PrecedingSign::Plain,
            _ => PrecedingSign::Other,
        };
        Ok(true)
    }

    /// A backslash. A line that ends with one goes on: behind a blank alone, which ends every word.
    fn escape(&mut self, had_blank: bool) -> Result<PrecedingSign, Doubt> {
        match self.chars.next() {
            Some('\n') if had_blank => {
                self.has_blank = true;
                Ok(PrecedingSign::Boundary)
            }
            Some('\n') => Err(Doubt::Dialect),
            Some(_) => Ok(PrecedingSign::Other),
            None => Err(Doubt::Unreadable),
        }
    }

    fn quoted(&mut self) -> Result<PrecedingSign, Doubt> {
        let is_closed = self.chars.any(|c| c == '\'');
        is_closed
            .then_some(PrecedingSign::Other)
            .ok_or(Doubt::Unreadable)
    }

    fn double_quoted(&mut self) -> Result<PrecedingSign, Doubt> {
        while let Some(c) = self.chars.next() {
            match c {
                '"' => return Ok(PrecedingSign::Other),
                '\\' => drop(self.chars.next()),
                '`' => return Err(Doubt::Construct),
                '$' => drop(self.parameter(false)?),
                _ => {}
            }
        }
        Err(Doubt::Unreadable)
    }

    /// A dollar: of a parameter by its name alone, or one that stands for itself.
    fn parameter(&mut self, is_unquoted: bool) -> Result<PrecedingSign, Doubt> {
        match self.peek() {
            Some('(' | '[') => return Err(Doubt::Construct),
            Some('\'' | '"') if is_unquoted => return Err(Doubt::Dialect),
            Some('{') => {
                let name: String = self
                    .chars
                    .clone()
                    .skip(1)
                    .take_while(|c| *c != '}')
                    .collect();
                if !is_name(&name) {
                    return Err(Doubt::Construct);
                }
                let _closed = self.chars.nth(name.len() + 1);
            }
            Some(c) if "?#@*!$-".contains(c) => drop(self.chars.next()),
            _ => {}
        }
        Ok(PrecedingSign::Plain)
    }

    /// A brace: of a group, or the two that stand for themselves.
    fn brace(&mut self, brace: char, before: PrecedingSign) -> Result<PrecedingSign, Doubt> {
        if before == PrecedingSign::Boundary {
            if brace == '{' && self.peek() == Some('}') {
                self.chars.next();
            }
            let ends = |c: char| matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' | '<' | '>');
            if self.peek().is_none_or(ends) {
                self.has_group = true;
                return Ok(PrecedingSign::Other);
            }
        }
        Err(Doubt::Dialect)
    }

    fn group(&mut self, before: PrecedingSign) -> Result<PrecedingSign, Doubt> {
        self.has_group = true;
        // `((` is arithmetic to some shells, and `a(` a pattern, a list or a function.
        let is_group = before == PrecedingSign::Boundary && self.peek() != Some('(');
        is_group
            .then_some(PrecedingSign::Boundary)
            .ok_or(Doubt::Dialect)
    }

    fn operator(&mut self, operator: char) -> Result<PrecedingSign, Doubt> {
        if self.peek() == Some(operator) {
            self.chars.next();
        }
        // `&>`, `|&`, `&!` and their like are one operator to some shells, and two to others.
        match self.peek() {
            Some('>' | '&' | '|' | '!') => Err(Doubt::Dialect),
            _ => Ok(PrecedingSign::Boundary),
        }
    }

    fn redirection(&mut self, before: PrecedingSign) -> Result<PrecedingSign, Doubt> {
        if matches!(before, PrecedingSign::Digits(count) if count > 1) {
            return Err(Doubt::Dialect);
        }
        match self.peek() {
            Some('(') => return Err(Doubt::Construct),
            Some('<') => return Err(Doubt::Construct),
            Some('&') => drop(self.chars.next()),
            _ => {}
        }
        Ok(PrecedingSign::Boundary)
    }
}

/// Whether a text between braces is the name of a parameter and nothing else.
fn is_name(text: &str) -> bool {
    let is_position = text.len() == 1 && text.chars().all(|c| c.is_ascii_digit());
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_position || (begins && text.chars().all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_doubts(texts: &[&str]) {
        for text in texts {
            assert!(doubt(text).is_some(), "{text:?}");
        }
    }

    fn has_none(texts: &[&str]) {
        for text in texts {
            assert_eq!(doubt(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_comment_is_one_only_where_no_shell_can_take_it_for_a_word() {
        has_doubts(&[
            "ls 'a\nb ((' # \"\ntouch made #\"",
            "ls # one\nls",
            "(ls a) # one",
            "ls \\ #; touch made",
            "ls 'a'#; touch made",
        ]);
        has_none(&[
            "ls # what is here",
            "ls #",
            "ls a#b c/#d",
            "ls 'a # b' \"c # d\" \\#",
            "echo $# $#",
            "curl http://localhost/a#b",
            "ls 'a\nb'",
        ]);
    }

    #[test]
    fn a_line_goes_on_only_behind_a_blank() {
        has_doubts(&["ls &\\\n>/dev/null ls", "ls 1\\\n0>/dev/null", "l\\\ns"]);
        has_none(&["ls \\\n  -l \\\n  a", "ls \"a\\\nb\"", "ls 'a\\\nb'"]);
    }

    #[test]
    fn a_quote_that_is_of_one_shell_alone_or_open_is_not_judged() {
        has_doubts(&["ls $'\\''", "ls $\"a\"", "ls 'a", "ls \"a\\\"", "ls a\\"]);
    }

    #[test]
    fn commands_inside_of_commands_are_not_judged() {
        has_doubts(&[
            "ls $(#) \"\ntouch made\n) #\"",
            "ls \"$(always; touch made)\"",
            "ls \"`touch made`\"",
            "ls `touch made`",
            "ls <(touch made)",
            "ls $((1))",
            "ls $[1]",
            "cat <<E\n$(touch made)\nE",
            "cat <<<a",
        ]);
    }

    #[test]
    fn a_parameter_is_one_by_its_name_alone() {
        has_doubts(&[
            "ls ${!?:$(touch made)0}",
            "ls ${x~$(touch made)}",
            "ls ${ touch made; }",
            "ls ${x:-a}",
            "ls \"${x#y}\"",
            "ls ${}",
        ]);
        has_none(&["ls $x ${x} \"$x/${x_1}\" $1 ${1} $? $$ a$ $/x"]);
    }

    #[test]
    fn a_brace_is_a_group_or_stands_for_itself() {
        has_doubts(&[
            "ls {$x;touch made",
            "ls $x{{;touch made;}}",
            "ls {a,b}",
            "ls a}b",
            "ls {}x",
            "ls {fd}>/dev/null",
        ]);
        has_none(&[
            "{ ls a; }",
            "find . -name {}",
            "{ ls; } >/dev/null",
            "ls '{a}' \\{",
        ]);
    }

    #[test]
    fn operators_are_the_same_to_every_shell() {
        has_doubts(&[
            "ls &>/dev/null touch made",
            "ls |& touch made",
            "ls &! touch made",
            "ls 001>/dev/null",
            "ls 10>/dev/null",
            "((ls a); ls b)",
            "ls @(a)",
            "ls a(b)",
            "f() { ls; }",
        ]);
        has_none(&[
            "ls a && ls b || ls c; ls d | ls e & ls f\nls g",
            "ls 2>&1 >/dev/null 2>>/dev/null </dev/null 1>|/dev/null 2>&-",
            "(ls a; (ls b))",
            "if ls; then ls; fi",
        ]);
    }
}
