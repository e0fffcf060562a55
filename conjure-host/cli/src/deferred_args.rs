//! Arguments that are described to clap when their verb is used. The description of every verb takes
//! megabytes, and a command uses one.

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// Arguments of a verb.
pub(crate) struct DeferredArgs<T>(pub(crate) T);

impl<T: Args> Args for DeferredArgs<T> {
    fn augment_args(verb: Command) -> Command {
        verb.defer(|verb| as_introduced(verb, T::augment_args))
    }

    fn augment_args_for_update(verb: Command) -> Command {
        verb.defer(|verb| as_introduced(verb, T::augment_args_for_update))
    }
}

/// Describes the arguments of a verb; what it is for stays as the list of verbs says it.
fn as_introduced(verb: Command, describe: fn(Command) -> Command) -> Command {
    let (about, long) = (verb.get_about().cloned(), verb.get_long_about().cloned());
    describe(verb)
        .about(Resettable::from(about))
        .long_about(Resettable::from(long))
}

impl<T: FromArgMatches> FromArgMatches for DeferredArgs<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }

    fn update_from_arg_matches_mut(&mut self, matches: &mut ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches_mut(matches)
    }
}
