//! Options for plugins that stand before the verb, where they mean something only when the verb
//! uses plugins.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// The options: their ids before the verb, behind it, and how they are typed.
const OPTIONS: [(&str, &str, &str); 2] = [
    ("early_plugin", "plugin", "--plugin"),
    ("early_plugin_dir", "plugin_dir", "--plugin-dir"),
];

/// Refuses an option for plugins in front of a verb that uses none.
///
/// # Errors
/// As clap's, for an option that a verb does not have.
pub(crate) fn check(
    program: impl FnOnce() -> Command,
    matches: &ArgMatches,
) -> Result<(), clap::Error> {
    let given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
    if !OPTIONS.iter().any(|(early, ..)| given(early)) {
        return Ok(());
    }
    let mut program = program();
    program.build();
    let (mut verb, mut below) = (&mut program, matches);
    while let Some((name, next)) = below.subcommand() {
        let Some(next_verb) = verb.find_subcommand_mut(name) else {
            return Ok(());
        };
        (verb, below) = (next_verb, next);
    }
    let takes = |verb: &Command, id| verb.get_arguments().any(|arg| arg.get_id() == id);
    for (early, own, option) in OPTIONS {
        if given(early) && !takes(verb, own) {
            let name = verb.get_bin_name().unwrap_or_default();
            let message = format!("unexpected argument '{option}': `{name}` uses no plugins");
            return Err(verb.error(ErrorKind::UnknownArgument, message));
        }
    }
    Ok(())
}
