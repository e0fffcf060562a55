//! From a parser's tree to the simple commands of a script.
//!
//! Goes into pipelines, lists, groups, loops, functions and substitutions. A construct that is not
//! followed to its end leaves a doubt, and what can be found inside it is found all the same.

use shuck_ast::{
    Assignment as AstAssignment, AssignmentValue, BinaryOp, BuiltinCommand, Command,
    CommandSubstitutionSyntax, CompoundCommand, DeclOperand, File, HeredocBodyPart, LiteralText,
    Redirect as AstRedirect, RedirectKind, RedirectTarget, SimpleCommand as AstSimple, Span, Stmt,
    StmtSeq, StmtTerminator, Word as AstWord, WordPart, WordPartNode,
};

use super::word::ShellWord;
use super::{Assignment, Doubt, MAX_COMMANDS, Redirect, ShellScript, SimpleCommand};

/// The commands of a parsed text.
pub(super) fn script(file: &File, source: &str) -> ShellScript {
    let mut walk = ScriptWalk {
        source,
        script: ShellScript::default(),
    };
    walk.sequence(&file.body);
    walk.script
}

struct ScriptWalk<'a> {
    source: &'a str,
    script: ShellScript,
}

impl ScriptWalk<'_> {
    fn doubt(&mut self, doubt: Doubt) {
        self.script.doubt.get_or_insert(doubt);
    }

    fn sequence(&mut self, body: &StmtSeq) {
        for (at, statement) in body.stmts.iter().enumerate() {
            if at > 0 {
                self.script.shape.push(';');
            }
            self.statement(statement);
        }
    }

    fn group(&mut self, mark: &str, body: &StmtSeq) {
        self.script.shape.push_str(mark);
        self.sequence(body);
        self.script.shape.push(')');
    }

    fn statement(&mut self, statement: &Stmt) {
        if self.script.commands.len() >= MAX_COMMANDS {
            self.doubt(Doubt::TooMuch);
            return;
        }
        if statement.negated {
            self.script.shape.push('!');
        }
        let first = self.script.commands.len();
        self.command(&statement.command);
        let redirects = self.redirects(&statement.redirects);
        if !redirects.is_empty() {
            match (&statement.command, self.script.commands.get_mut(first)) {
                (Command::Simple(_) | Command::Builtin(_), Some(command)) => {
                    command.redirects.extend(redirects);
                }
                // Those of a group, or a redirection alone.
                _ => self.script.commands.push(SimpleCommand {
                    redirects,
                    ..SimpleCommand::default()
                }),
            }
        }
        if let Some(StmtTerminator::Background(_)) = statement.terminator {
            self.script.shape.push('&');
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Builtin(builtin) => self.builtin(builtin),
            Command::Binary(binary) => {
                self.statement(&binary.left);
                self.script.shape.push_str(match binary.op {
                    BinaryOp::And => "&&",
                    BinaryOp::Or => "||",
                    BinaryOp::Pipe => "|",
                    BinaryOp::PipeAll => "|&",
                });
                self.statement(&binary.right);
            }
            Command::Compound(compound) => self.compound(compound),
            Command::Function(function) => {
                self.script.shape.push_str("function(");
                // Its name may be that of a program that is allowed.
                self.doubt(Doubt::Construct);
                self.statement(&function.body);
                self.script.shape.push(')');
            }
            Command::AnonymousFunction(function) => {
                self.doubt(Doubt::Construct);
                self.statement(&function.body);
            }
            Command::Decl(declaration) => {
                // `export`, `declare` and their like: assignments that last.
                self.doubt(Doubt::Construct);
                let mut found = SimpleCommand {
                    words: self.word_at(declaration.variant_span).into_iter().collect(),
                    ..SimpleCommand::default()
                };
                for assignment in &declaration.assignments {
                    found.assignments.extend(self.assignment(assignment));
                }
                for operand in &declaration.operands {
                    match operand {
                        DeclOperand::Flag(word) | DeclOperand::Dynamic(word) => {
                            found.words.push(self.word(word));
                        }
                        DeclOperand::Name(name) => found.words.extend(self.word_at(name.span)),
                        DeclOperand::Assignment(assignment) => {
                            found.assignments.extend(self.assignment(assignment));
                        }
                    }
                }
                self.push(found);
            }
        }
    }

    fn simple(&mut self, simple: &AstSimple) {
        let mut found = SimpleCommand::default();
        for assignment in &simple.assignments {
            found.assignments.extend(self.assignment(assignment));
        }
        // Assignments alone have a name without any source.
        let is_empty = simple.name.span.start == simple.name.span.end;
        if !is_empty {
            found.words.push(self.word(&simple.name));
        }
        for word in &simple.args {
            found.words.push(self.word(word));
        }
        self.push(found);
    }

    fn builtin(&mut self, builtin: &BuiltinCommand) {
        let (name, value, rest, assignments) = match builtin {
            BuiltinCommand::Break(it) => ("break", &it.depth, &it.extra_args, &it.assignments),
            BuiltinCommand::Continue(it) => {
                ("continue", &it.depth, &it.extra_args, &it.assignments)
            }
            BuiltinCommand::Return(it) => ("return", &it.code, &it.extra_args, &it.assignments),
            BuiltinCommand::Exit(it) => ("exit", &it.code, &it.extra_args, &it.assignments),
        };
        let mut found = SimpleCommand {
            words: ShellWord::read(name).into_iter().collect(),
            ..SimpleCommand::default()
        };
        for assignment in assignments {
            found.assignments.extend(self.assignment(assignment));
        }
        for word in value.iter().chain(rest) {
            found.words.push(self.word(word));
        }
        self.push(found);
    }

    fn push(&mut self, command: SimpleCommand) {
        self.script.shape.push('c');
        self.script.commands.push(command);
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::If(it) => {
                self.group("if(", &it.condition);
                self.group("then(", &it.then_branch);
                for (condition, branch) in &it.elif_branches {
                    self.group("elif(", condition);
                    self.group("then(", branch);
                }
                if let Some(branch) = &it.else_branch {
                    self.group("else(", branch);
                }
            }
            CompoundCommand::For(it) => {
                for target in &it.targets {
                    // What it is set to is known only when it runs.
                    let value = ShellWord::Unknown {
                        source: String::new(),
                    };
                    match &target.name {
                        Some(name) => {
                            let name = name.as_str().to_owned();
                            self.script.commands.push(SimpleCommand {
                                assignments: vec![Assignment { name, value }],
                                ..SimpleCommand::default()
                            });
                        }
                        None => self.doubt(Doubt::Construct),
                    }
                }
                for word in it.words.iter().flatten() {
                    self.word(word);
                }
                self.group("for(", &it.body);
            }
            CompoundCommand::While(it) => {
                self.group("while(", &it.condition);
                self.group("do(", &it.body);
            }
            CompoundCommand::Until(it) => {
                self.group("until(", &it.condition);
                self.group("do(", &it.body);
            }
            CompoundCommand::Subshell(body) => self.group("(", body),
            CompoundCommand::BraceGroup(body) => self.group("{", body),
            CompoundCommand::Time(it) => {
                self.script.shape.push_str("time ");
                if let Some(command) = &it.command {
                    if !is_common_timed(command, self.source) {
                        self.doubt(Doubt::Dialect);
                    }
                    self.statement(command);
                }
            }
            CompoundCommand::Case(it) => {
                self.doubt(Doubt::Construct);
                self.word(&it.word);
                for case in &it.cases {
                    self.group("case(", &case.body);
                }
            }
            CompoundCommand::Coproc(it) => {
                self.doubt(Doubt::Construct);
                self.statement(&it.body);
            }
            CompoundCommand::Select(it) => {
                self.doubt(Doubt::Construct);
                self.sequence(&it.body);
            }
            CompoundCommand::ArithmeticFor(it) => {
                self.doubt(Doubt::Construct);
                self.sequence(&it.body);
            }
            CompoundCommand::Repeat(it) => {
                self.doubt(Doubt::Construct);
                self.sequence(&it.body);
            }
            CompoundCommand::Foreach(it) => {
                self.doubt(Doubt::Construct);
                self.sequence(&it.body);
            }
            CompoundCommand::Always(it) => {
                self.doubt(Doubt::Construct);
                self.sequence(&it.body);
                self.sequence(&it.always_body);
            }
            CompoundCommand::Arithmetic(_) | CompoundCommand::Conditional(_) => {
                self.doubt(Doubt::Construct);
            }
        }
    }

    fn assignment(&mut self, assignment: &AstAssignment) -> Option<Assignment> {
        if assignment.append || assignment.target.subscript.is_some() {
            self.doubt(Doubt::Construct);
        }
        let AssignmentValue::Scalar(value) = &assignment.value else {
            self.doubt(Doubt::Construct);
            return None;
        };
        Some(Assignment {
            name: assignment.target.name.as_str().to_owned(),
            value: self.word(value),
        })
    }

    /// The redirections that are more than a duplicate of a descriptor or `/dev/null`.
    fn redirects(&mut self, redirects: &[AstRedirect]) -> Vec<Redirect> {
        let mut found = Vec::new();
        for redirect in redirects {
            let target = match &redirect.target {
                RedirectTarget::Word(word) => self.word(word),
                RedirectTarget::Heredoc(heredoc) => {
                    for part in &heredoc.body.parts {
                        self.heredoc_part(&part.kind);
                    }
                    // Text for the program's input, which no pattern looks at.
                    self.doubt(Doubt::Construct);
                    continue;
                }
            };
            let operator = match redirect.kind {
                RedirectKind::Output => ">",
                RedirectKind::Clobber => ">|",
                RedirectKind::Append => ">>",
                RedirectKind::Input => "<",
                RedirectKind::ReadWrite => "<>",
                RedirectKind::DupOutput => ">&",
                RedirectKind::DupInput => "<&",
                RedirectKind::OutputBoth => "&>",
                RedirectKind::HereDoc | RedirectKind::HereDocStrip | RedirectKind::HereString => {
                    self.doubt(Doubt::Construct);
                    continue;
                }
            };
            // To bash `>&-1` is `>&-` and an argument.
            let is_descriptor = |text: &str| {
                let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                is_number || text == "-"
            };
            let is_harmless = match redirect.kind {
                RedirectKind::DupOutput | RedirectKind::DupInput => {
                    target.text().is_some_and(is_descriptor)
                }
                _ => target.text() == Some("/dev/null"),
            };
            if !is_harmless {
                let descriptor = redirect.fd.map(|fd| fd.to_string()).unwrap_or_default();
                found.push(Redirect {
                    operator: format!("{descriptor}{operator}"),
                    target,
                });
            }
        }
        found
    }

    fn heredoc_part(&mut self, part: &HeredocBodyPart) {
        if let HeredocBodyPart::CommandSubstitution { body, .. } = part {
            self.group("$(", body);
        }
    }

    fn word_at(&mut self, span: Span) -> Option<ShellWord> {
        let word = ShellWord::read(span.slice(self.source));
        if word.is_none() {
            self.doubt(Doubt::Construct);
        }
        word
    }

    fn word(&mut self, word: &AstWord) -> ShellWord {
        let source = word.span.slice(self.source);
        if source.is_empty() {
            // The parser's own word, such as the descriptor of `2>&1`.
            if let [part] = word.parts.as_slice()
                && let WordPart::Literal(LiteralText::Owned(text)) = &part.kind
            {
                return ShellWord::of_text(text);
            }
            self.doubt(Doubt::Construct);
        }
        if self.parts(&word.parts) {
            if let Some(known) = ShellWord::read(source) {
                return known;
            }
            // The parser and the rules of quoting do not agree, or a brace or bracket expands.
            self.doubt(Doubt::Construct);
        }
        ShellWord::Unknown {
            source: source.to_owned(),
        }
    }

    /// Takes in the commands of substitutions in these parts; true where no part is expanded.
    fn parts(&mut self, parts: &[WordPartNode]) -> bool {
        let mut known = true;
        for part in parts {
            if part.span.slice(self.source).starts_with("$((") {
                // Arithmetic, in which quotes do not quote; or a command whose first one is a group.
                self.doubt(Doubt::Dialect);
            }
            known &= self.part(&part.kind);
        }
        known
    }

    fn part(&mut self, part: &WordPart) -> bool {
        match part {
            WordPart::Literal(_) | WordPart::SingleQuoted { dollar: false, .. } => true,
            WordPart::DoubleQuoted {
                parts,
                dollar: false,
            } => self.parts(parts),
            WordPart::Variable(_) => false,
            WordPart::CommandSubstitution { body, syntax } => {
                if *syntax == CommandSubstitutionSyntax::Backtick {
                    self.doubt(Doubt::Construct);
                }
                self.group("$(", body);
                false
            }
            WordPart::ProcessSubstitution { body, .. } => {
                self.doubt(Doubt::Construct);
                self.group("<(", body);
                false
            }
            WordPart::DoubleQuoted { parts, .. } => {
                self.doubt(Doubt::Construct);
                self.parts(parts);
                false
            }
            // Operators on variables, arithmetic and what else may run something when expanded.
            _ => {
                self.doubt(Doubt::Construct);
                false
            }
        }
    }
}

/// Whether what stands behind `time` is the same to a shell that has it as a program: a simple command
/// whose first word is no option of that program's, and no variable.
fn is_common_timed(timed: &Stmt, source: &str) -> bool {
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
