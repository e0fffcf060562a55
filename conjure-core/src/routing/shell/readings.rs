//! Everything that a command may be taken to run, as texts: what a rule that denies looks at.
//!
//! The widest reading: what is inside of wrappers, the code that a shell is given as an argument, and
//! names without their quotes and directories. Too much here asks or denies too often, and too
//! little lets something through.

use super::super::paths;
use super::expansion::chars;
use super::program_positions::program_positions;
use super::wide_pattern::CommandWords;
use super::word::ShellWord;
use super::{KnownProgram, ShellScript, SimpleCommand, base_name, program};

/// How deep code stands in arguments.
const MAX_LAYERS: usize = 4;
/// How many texts are made of one command.
const MAX_READINGS: usize = 4_096;

/// What a command line may run.
#[derive(Debug, Default)]
pub(in super::super) struct Readings {
    pub(in super::super) texts: Vec<String>,
    /// The simple commands, in words.
    pub(in super::super) commands: Vec<CommandWords>,
}

/// What a command line may run, as texts and as words.
pub(in super::super) fn readings(text: &str) -> Readings {
    let mut readings = Readings::default();
    script(text, MAX_LAYERS, true, &mut readings);
    readings
}

/// Reads a script; `is_run`: whether it is one for certain, and not perhaps a message or a name.
fn script(text: &str, layers: usize, is_run: bool, out: &mut Readings) {
    for command in &ShellScript::read(text).commands {
        simple(command, layers, is_run, out);
    }
}

fn simple(command: &SimpleCommand, layers: usize, is_run: bool, readings: &mut Readings) {
    let out = &mut readings.texts;
    let words: Vec<&str> = command.words.iter().map(ShellWord::display_text).collect();
    let mut files = String::new();
    for redirect in &command.redirects {
        files.push_str(&format!(
            " {} {}",
            redirect.operator,
            redirect.target.display_text()
        ));
        push(&[redirect.target.display_text()], "", out);
    }
    for assignment in &command.assignments {
        let text = format!("{}={}", assignment.name, assignment.value.display_text());
        push(&[&text], "", out);
    }
    push(&words, &files, out);
    let is_known = command
        .program()
        .is_some_and(|name| program(name).is_none());
    if is_run && readings.commands.len() < MAX_READINGS {
        let atoms = words.iter().map(|word| chars(word));
        readings.commands.push(CommandWords {
            words: atoms.collect(),
            program_positions: program_positions(&words),
        });
    }
    if is_known {
        return;
    }
    // What runs others runs what stands behind some of its words, or in one of them.
    for at in 1..words.len() {
        push(words.get(at..).unwrap_or_default(), "", out);
    }
    let Some(layers) = layers.checked_sub(1) else {
        return;
    };
    // A message of `git commit` is no code.
    let runs_code = command
        .program()
        .is_none_or(|name| program(name).is_some_and(KnownProgram::is_wrapper));
    for word in words
        .iter()
        .skip(1)
        .filter(|word| word.contains([' ', ';', '&', '|', '\n']))
    {
        script(word, layers, is_run && runs_code, readings);
    }
    // `eval` puts its words together.
    if words.len() > 2 {
        let code = words.get(1..).unwrap_or_default().join(" ");
        script(&code, 0, false, readings);
    }
}

/// A command as it is, with its program's bare name, and with its paths resolved.
fn push(words: &[&str], files: &str, out: &mut Vec<String>) {
    if words.is_empty() || out.len() >= MAX_READINGS {
        return;
    }
    let text = words.join(" ");
    if let Some((first, rest)) = words.split_first()
        && first.contains('/')
    {
        let mut bare = vec![base_name(first)];
        bare.extend(rest);
        out.push(bare.join(" "));
    }
    if words.iter().any(|word| paths::is_path(word)) {
        let resolved: Vec<String> = words.iter().map(|word| paths::resolved(word)).collect();
        out.push(resolved.join(" "));
    }
    if !files.is_empty() {
        out.push(format!("{text}{files}"));
    }
    out.push(text);
}
