//! What a POSIX shell and bash make different commands of.
//!
//! A command is parsed as bash reads it, and run by whatever `sh` is: dash here, bash or an ash there.
//! `ls &>/dev/null touch x` is one command to bash, and two to dash. Nothing is judged of a command
//! that is two things; what is a mistake to one of the shells is left to the walk.

use shuck_ast::{
    BackgroundOperator, Command, CompoundCommand, Redirect, RedirectKind, Stmt, StmtTerminator,
};

use super::word::ShellWord;

/// The last descriptor that every shell reads before a redirection. To dash the `10` of `10>x` is an
/// argument.
const LAST_DESCRIPTOR: i32 = 9;

/// Whether shells read a redirection alike.
pub(super) fn is_common_redirect(redirect: &Redirect, source: &str) -> bool {
    // The parser takes `&>>` apart, so it is known by how it is written.
    let is_of_both =
        redirect.kind == RedirectKind::OutputBoth || redirect.span.slice(source).starts_with('&');
    let has_word = redirect.fd_var.is_some() || redirect.fd.is_some_and(|fd| fd > LAST_DESCRIPTOR);
    !is_of_both && !has_word
}

/// Whether shells read the end of a statement alike.
pub(super) fn is_common_end(end: Option<StmtTerminator>) -> bool {
    match end {
        None
        | Some(StmtTerminator::Semicolon | StmtTerminator::Background(BackgroundOperator::Plain)) => {
            true
        }
        Some(StmtTerminator::Background(BackgroundOperator::Pipe | BackgroundOperator::Bang)) => {
            false
        }
    }
}

/// Whether what stands behind `time` is the same to a shell that has it as a program: a simple command
/// whose first word is no option of that program's, and no variable.
pub(super) fn is_common_timed(timed: &Stmt, source: &str) -> bool {
    match &timed.command {
        _ if timed.negated => false,
        Command::Simple(simple) => {
            let name = ShellWord::read(simple.name.span.slice(source));
            let is_option = name.is_none_or(|name| name.may_be_option());
            simple.assignments.is_empty() && !is_option
        }
        // Of a pipeline it times the whole, or the first command.
        Command::Binary(binary) => is_common_timed(&binary.left, source),
        _ => false,
    }
}

/// Whether a group may be taken for arithmetic, in which quotes do not quote.
pub(super) fn may_be_arithmetic(statement: &Stmt, source: &str) -> bool {
    let is_group = matches!(
        &statement.command,
        Command::Compound(CompoundCommand::Subshell(_))
    );
    is_group && statement.span.slice(source).starts_with("((")
}
