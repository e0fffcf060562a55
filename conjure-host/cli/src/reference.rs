//! The page `conjure-host/docs/cli.md`, made of what clap knows of the verbs. Only tests make it;
//! people have the file.

use std::fmt::Write as _;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Args, Command, CommandFactory as _};

use super::Cli;
use super::args::SessionArgs;
use super::plugin_args::PluginArgs;

/// Set to 1: the file is written anew.
const WRITE: &str = "CONJURE_WRITE_FIXTURES";
/// The file.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");

const BEGINNING: &str = "# The command line

Every verb of `conjure` with its arguments and options, as `conjure --help` and `conjure VERB --help` \
show them. This page is made from the program: after a change of a verb, \
`CONJURE_WRITE_FIXTURES=1 cargo nextest run -p conjure-cli` writes it anew.

Groups of verbs use the same words for the same things: `create` makes something, `list` and `show` \
look at it, `set` changes it, `check` says whether it is right, `delete` removes it. `<NAME>` has to \
be there, `[NAME]` may be, and what ends in `...` may come several times.
";

/// Ahead of examples: they are lines of the help, and what they name is the reader's.
const NOT_RUN: &str = "<!-- not run: examples of the help, which a test runs line by line -->";

#[test]
fn the_page_is_what_the_verbs_say() {
    let made = page();
    if std::env::var(WRITE).is_ok_and(|value| value == "1") {
        conjure_config::fs::write(Path::new(FILE), &made).unwrap();
        return;
    }
    let kept = conjure_config::fs::read_to_string(Path::new(FILE)).unwrap();
    let mut lines = kept.lines().zip(made.lines());
    let differs = lines.position(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "conjure-host/docs/cli.md differs from line {} on; {WRITE}=1 writes it anew",
        differs.map_or(0, |line| line + 1)
    );
}

/// Options that several verbs share, described once.
struct OptionGroup {
    title: &'static str,
    about: &'static str,
    options: Vec<Arg>,
}

impl OptionGroup {
    fn of<A: Args>(title: &'static str, about: &'static str) -> Self {
        let options = A::augment_args(Command::new("shared"));
        Self {
            title,
            about,
            options: options.get_arguments().cloned().collect(),
        }
    }

    /// Leaves out the options that `other` has.
    fn without(mut self, other: &Self) -> Self {
        self.options.retain(|option| !other.has(option));
        self
    }

    fn has(&self, option: &Arg) -> bool {
        self.options.iter().any(|own| is_same(own, option))
    }

    fn is_in(&self, verb: &Command) -> bool {
        let has = |own: &Arg| verb.get_arguments().any(|option| is_same(own, option));
        self.options.iter().all(has)
    }
}

fn is_same(one: &Arg, other: &Arg) -> bool {
    one.get_id() == other.get_id() && help(one) == help(other)
}

fn page() -> String {
    let mut program = Cli::command();
    program.build();
    let plugins =
        OptionGroup::of::<PluginArgs>("Options for plugins", "Verbs that use plugins have them.");
    let session = OptionGroup::of::<SessionArgs>(
        "Options of a session",
        "What a session is made from, for verbs that make one or look at what it would be.",
    )
    .without(&plugins);
    let shared = [session, plugins];
    let mut page = BEGINNING.to_owned();
    page.push_str("\n## Verbs\n\n");
    for verb in verbs(&program) {
        contents(&mut page, verb);
    }
    page.push_str("\n## Options of every verb\n");
    let everywhere = program.get_arguments().filter(|arg| is_everywhere(arg));
    options(&mut page, &everywhere.collect::<Vec<_>>());
    for shared in &shared {
        let _ = write!(page, "\n## {}\n\n{}\n", shared.title, shared.about);
        options(&mut page, &shared.options.iter().collect::<Vec<_>>());
    }
    after(&mut page, &program);
    for verb in verbs(&program) {
        section(&mut page, verb, 2, &shared);
    }
    page
}

fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    let verbs = command.get_subcommands();
    verbs.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// A line of the table of contents.
fn contents(page: &mut String, verb: &Command) {
    let _ = write!(page, "- {}: {}", link(verb), one_line(verb.get_about()));
    let below: Vec<String> = verbs(verb).map(link).collect();
    if !below.is_empty() {
        let _ = write!(page, " ({})", below.join(", "));
    }
    page.push('\n');
}

fn link(verb: &Command) -> String {
    let name = name(verb);
    format!("[`{}`](#{})", verb.get_name(), name.replace(' ', "-"))
}

/// The verb as it is typed.
fn name(verb: &Command) -> &str {
    verb.get_bin_name().unwrap_or(verb.get_name())
}

fn section(page: &mut String, verb: &Command, level: usize, shared: &[OptionGroup]) {
    let _ = write!(page, "\n{} `{}`\n\n", "#".repeat(level), name(verb));
    let about = verb.get_long_about().or(verb.get_about());
    for paragraph in paragraphs(about) {
        let _ = write!(page, "{}\n\n", sentence(&paragraph));
    }
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let usage: Vec<String> = usage
        .lines()
        .map(|line| format!("`{}`", line.trim()))
        .collect();
    let _ = writeln!(page, "Usage: {}", usage.join(", or "));
    let below: Vec<&Command> = verbs(verb).collect();
    if !below.is_empty() {
        page.push_str("\n| verb | what it does |\n|---|---|\n");
        for verb in &below {
            let _ = writeln!(
                page,
                "| {} | {} |",
                link(verb),
                cell(&one_line(verb.get_about()))
            );
        }
    }
    arguments(page, verb, shared);
    after(page, verb);
    for verb in below {
        section(page, verb, level + 1, shared);
    }
}

/// The arguments and options of a verb alone, and where the others are.
fn arguments(page: &mut String, verb: &Command, shared: &[OptionGroup]) {
    let elsewhere: Vec<&OptionGroup> = shared.iter().filter(|shared| shared.is_in(verb)).collect();
    let own = |arg: &&Arg| {
        !arg.is_hide_set() && !is_everywhere(arg) && !elsewhere.iter().any(|shared| shared.has(arg))
    };
    let positionals: Vec<&Arg> = verb.get_positionals().filter(own).collect();
    if !positionals.is_empty() {
        page.push('\n');
        table(page, "argument", positionals.into_iter());
    }
    let own_options = verb.get_arguments().filter(|arg| !arg.is_positional());
    options(page, &own_options.filter(own).collect::<Vec<_>>());
    if !elsewhere.is_empty() {
        let links = elsewhere.iter().map(|shared| {
            let anchor = shared.title.to_lowercase().replace(' ', "-");
            format!("[{}](#{anchor})", shared.title.to_lowercase())
        });
        let links: Vec<String> = links.collect();
        let _ = write!(page, "\nAlso the {}.\n", links.join(" and the "));
    }
}

/// A table of options for each heading of the help.
fn options(page: &mut String, options: &[&Arg]) {
    let mut headings: Vec<Option<&str>> = Vec::new();
    for option in options {
        if !headings.contains(&option.get_help_heading()) {
            headings.push(option.get_help_heading());
        }
    }
    for heading in headings {
        let under = options.iter().copied();
        let under = under.filter(|option| option.get_help_heading() == heading);
        page.push('\n');
        let title = heading.map_or("option".to_owned(), |heading| format!("option: {heading}"));
        table(page, &title, under);
    }
}

fn is_everywhere(arg: &Arg) -> bool {
    arg.is_global_set() || matches!(arg.get_id().as_str(), "help" | "version")
}

/// A table of arguments or options; without rows, nothing.
fn table<'a>(page: &mut String, title: &str, arguments: impl Iterator<Item = &'a Arg>) {
    let _ = write!(page, "| {title} | what it is |\n|---|---|\n");
    for argument in arguments {
        let _ = writeln!(
            page,
            "| {} | {} |",
            cell(&spelled(argument)),
            cell(&described(argument))
        );
    }
}

/// An argument as it is typed, with the other ways to type it.
fn spelled(arg: &Arg) -> String {
    let value = value(arg);
    if arg.is_positional() {
        return format!("`{value}`");
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names = arg.get_long_and_visible_aliases().unwrap_or_default();
    let names = names.iter().map(|name| format!("--{name}"));
    let names: Vec<String> = short.into_iter().chain(names).collect();
    match value.as_str() {
        "" => format!("`{}`", names.join("`, `")),
        value => format!("`{} {value}`", names.join("`, `")),
    }
}

/// What stands for its value.
fn value(arg: &Arg) -> String {
    if !takes_value(arg) {
        return String::new();
    }
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<String> = match (arg.is_positional(), arg.is_required_set()) {
        (true, false) => names.iter().map(|name| format!("[{name}]")).collect(),
        _ => names.iter().map(|name| format!("<{name}>")).collect(),
    };
    let several = arg.is_positional() && matches!(arg.get_action(), ArgAction::Append);
    format!("{}{}", names.join(" "), if several { "..." } else { "" })
}

fn takes_value(arg: &Arg) -> bool {
    arg.is_positional() || arg.get_action().takes_values()
}

/// Description of an option, with its default and its possible values.
fn described(arg: &Arg) -> String {
    let mut text = help(arg);
    let possible = arg.get_possible_values();
    let possible: Vec<_> = possible
        .iter()
        .filter(|value| !value.is_hide_set())
        .collect();
    if takes_value(arg) && !possible.is_empty() && !arg.is_hide_possible_values_set() {
        let values = possible.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), one_line(Some(help))),
            None => format!("`{}`", value.get_name()),
        });
        let _ = write!(text, ": {}", values.collect::<Vec<_>>().join(", "));
    }
    let defaults = arg.get_default_values();
    if takes_value(arg) && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let defaults: Vec<_> = defaults
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let _ = write!(text, " [default: `{}`]", defaults.join(" "));
    }
    text
}

fn help(arg: &Arg) -> String {
    one_line(arg.get_long_help().or(arg.get_help()))
}

/// What the help of a verb says at its end: lists as tables, examples as they are.
fn after(page: &mut String, verb: &Command) {
    let text = verb.get_after_long_help().or(verb.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let (first, rest) = block.split_once('\n').unwrap_or((block, ""));
        let is_list = first.ends_with(':') && rest.starts_with("  ");
        match first.trim_end_matches(':') {
            "Example" | "Examples" if is_list => {
                let lines: Vec<&str> = rest
                    .lines()
                    .map(|line| line.get(2..).unwrap_or(line))
                    .collect();
                let _ = write!(page, "\n{NOT_RUN}\n```console\n{}\n```\n", lines.join("\n"));
            }
            title if is_list => {
                let _ = write!(page, "\n## {title}\n\n| | |\n|---|---|\n");
                for (name, text) in entries(rest) {
                    let _ = writeln!(page, "| `{name}` | {} |", cell(&text));
                }
            }
            _ => {
                let words: Vec<&str> = block.split_whitespace().collect();
                let _ = write!(page, "\n{}\n", words.join(" "));
            }
        }
    }
}

/// The entries of a list: a name, and what is said of it, on lines that stand further to the right.
fn entries(list: &str) -> Vec<(&str, String)> {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for line in list.lines() {
        let line = line.get(2..).unwrap_or_default();
        match (line.starts_with(' '), entries.last_mut()) {
            (true, Some((_, text))) => {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(line.trim());
            }
            _ => {
                let (name, text) = line.split_once("  ").unwrap_or((line, ""));
                entries.push((name, text.trim().to_owned()));
            }
        }
    }
    entries
}

fn paragraphs(text: Option<&StyledStr>) -> Vec<String> {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let paragraphs = text.split("\n\n");
    paragraphs
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

fn one_line(text: Option<&StyledStr>) -> String {
    paragraphs(text).join(" ")
}

/// The text with the end of a sentence.
fn sentence(text: &str) -> String {
    match text.trim().chars().last() {
        None | Some('.' | ':' | '?' | '!') => text.to_owned(),
        _ => format!("{text}."),
    }
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
