//! `cargo xtask soak`: a server with many sessions for hours.
//!
//! What they do, and what is looked at, is in `tests/chaos`.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many sessions
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// For how many minutes [default: 120, in the nightly profile 10]
    #[arg(long)]
    minutes: Option<u64>,
    /// How long it takes when the minutes are not given
    #[arg(long, value_enum, default_value = "demand")]
    profile: Profile,
    /// Seconds from one turn of a session to its next
    #[arg(long, default_value_t = 20)]
    pace: u64,
}

/// When it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Profile {
    /// When somebody asks for it: two hours
    Demand,
    /// Each night: ten minutes, and as many more as it takes to tell whether memory grows, an hour
    /// and a half in all; a night that cannot tell fails
    Nightly,
}

/// The most minutes of a night.
const NIGHT: u64 = 90;

impl Args {
    fn minutes(&self) -> u64 {
        self.minutes.unwrap_or(match self.profile {
            Profile::Demand => 120,
            Profile::Nightly => 10,
        })
    }

    /// The most minutes, where it has to tell.
    fn max_minutes(&self) -> Option<u64> {
        (self.profile == Profile::Nightly).then(|| NIGHT.max(self.minutes()))
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = repo::cargo(["run", "--quiet", "--package", "conjure-chaos", "--", "soak"]);
    command.args(["--sessions", &args.sessions.to_string()]);
    command.args(["--minutes", &args.minutes().to_string()]);
    command.args(["--pace", &args.pace.to_string()]);
    if let Some(most) = args.max_minutes() {
        command.args(["--until-told", &most.to_string()]);
    }
    repo::announce(&command);
    // In this process's place: a signal that ends it from outside ends what runs.
    Err(anyhow!(command.exec()).context("cargo could not be started"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_has_ten_minutes_and_given_minutes_win() {
        let args = |profile, minutes| Args {
            sessions: 200,
            minutes,
            profile,
            pace: 20,
        };
        assert_eq!(args(Profile::Demand, None).minutes(), 120);
        assert_eq!(args(Profile::Nightly, None).minutes(), 10);
        assert_eq!(args(Profile::Nightly, Some(3)).minutes(), 3);
        assert_eq!(args(Profile::Demand, None).max_minutes(), None);
        assert_eq!(args(Profile::Nightly, None).max_minutes(), Some(NIGHT));
    }
}
