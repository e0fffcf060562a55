//! What was tampered with never runs: a constructor that makes a file would show it.

mod installed;
mod named;
mod packages;
mod strangers;

use std::fs;
use std::path::PathBuf;

use conjure_kit::Output;
use conjure_plugin_tests::{Publisher, Team};

/// An author whose plugins run where their constructors can be seen, and somebody else.
struct Story {
    author: Publisher,
    attacker: Publisher,
    team: Team,
    /// The author's 0.1.0 and 0.2.0.
    old: PathBuf,
    new: PathBuf,
}

impl Story {
    fn begin() -> Self {
        let (author, attacker) = (Publisher::new(), Publisher::new());
        let team = Team::new().trusts(&author);
        let (old, new) = (author.package("0.1.0"), author.package("0.2.0"));
        Self {
            author,
            attacker,
            team,
            old,
            new,
        }
    }

    /// With the author's 0.1.0 installed.
    fn installed() -> Self {
        let story = Self::begin();
        story
            .team
            .run_to_success(["install", &story.old.display().to_string()]);
        assert!(story.team.take_touched(), "what is not tampered with runs");
        story
    }

    fn install(&self, package: &[u8]) -> Output {
        let path = self.author.write("tampered.conjure-plugin", package);
        self.team
            .run(["install", &path.display().to_string(), "--yes"])
    }
}

/// Puts a library where the installed one is, in one step, as an upgrade does.
fn place(story: &Story, bytes: &[u8]) {
    let aside = story.team.data_dir().join("aside");
    fs::write(&aside, bytes).unwrap();
    fs::rename(aside, story.team.library()).unwrap();
}
