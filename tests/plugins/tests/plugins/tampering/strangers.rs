//! Strangers stay strangers: whatever becomes of a lock, and whoever names them.

use std::fs;

use conjure_plugin_tests::{Publisher, Team, versioned};
use serde_json::Value;

use super::{Story, place};

/// A team that has the author's 0.1.0, and an author whom it does not trust beyond that.
fn accepted() -> Story {
    let (author, attacker) = (Publisher::new(), Publisher::new());
    let team = Team::new();
    let (old, new) = (author.package("0.1.0"), author.package("0.2.0"));
    team.run_to_success([
        "install",
        &old.display().to_string(),
        "--signer",
        &author.key(),
    ]);
    Story {
        author,
        attacker,
        team,
        old,
        new,
    }
}

fn isolation(team: &Team) -> Value {
    let list: Value = serde_json::from_str(&team.run_to_success(["list", "--json"])).unwrap();
    list["plugins"][0]["isolation"].clone()
}

#[test]
fn a_strangers_library_stays_a_strangers_whatever_becomes_of_the_lock() {
    let story = accepted();
    let team = &story.team;
    assert_eq!(isolation(team), "process");
    fs::remove_file(team.lock()).unwrap();
    assert_eq!(isolation(team), "process");
    // Also where somebody puts it by hand, or says its path.
    let library = fs::read(team.library()).unwrap();
    let by_hand = story.author.write("lib.so", &library).display().to_string();
    team.run_to_success(["add", &by_hand]);
    assert_eq!(isolation(team), "process");
    team.run_to_success(["check", &by_hand]);
    assert!(!team.take_touched());
}

#[test]
fn what_was_altered_is_not_put_back_and_what_is_signed_not_left_without_being_said() {
    let story = accepted();
    let team = &story.team;
    place(&story, &versioned("toucher", "0.3.0"));
    team.run_to_success(["install", "--yes"]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    let nothing = team.run(["rollback", "toucher", "--yes"]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.snapshot());
    team.run_to_success(["remove", "toucher"]);
    let by_hand = story.author.write("lib.so", &versioned("toucher", "0.3.0"));
    team.run_to_success(["add", &by_hand.display().to_string()]);
    team.take_touched();
    let old = story.old.display().to_string();
    team.run_to_success(["install", &old, "--yes", "--signer", &story.author.key()]);
    let refused = team.run(["rollback", "toucher"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains("without the signature"),
        "{}",
        refused.stdout
    );
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
}

#[test]
fn a_key_is_the_key_that_was_said_and_no_other() {
    // No file is called like a key that ends in a slash.
    let mut stories = std::iter::repeat_with(accepted);
    let story = stories
        .find(|story| !story.author.key().ends_with('/'))
        .unwrap();
    let team = Team::new();
    let package = story.attacker.package("0.1.0").display().to_string();
    let key = story.author.key();
    // A file that is called like the author's key and holds another one.
    let (dir, name) = match key.rsplit_once('/') {
        Some((dir, name)) => (team.workspace.work().join(dir), name.to_owned()),
        None => (team.workspace.work(), key.clone()),
    };
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(name), story.attacker.key()).unwrap();
    let refused = team.run(["install", &package, "--signer", &key]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains("was asked for"),
        "{}",
        refused.stdout
    );
    let unsigned = story.attacker.unsigned("0.1.0").display().to_string();
    let refused = team.run(["install", &unsigned, "--signer", &key]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert_eq!(team.loaded_version(), None);
}

#[test]
fn a_lock_of_somebody_elses_names_nobody_by_itself() {
    let story = accepted();
    let attacker = Team::new();
    let package = story.attacker.package("0.2.0").display().to_string();
    let lock = story.team.workspace.work().join("conjure.lock");
    attacker.run_to_success([
        "install",
        &package,
        "--signer",
        &story.attacker.key(),
        "--lock",
        &lock.display().to_string(),
    ]);
    // In the directory that the team works in.
    let asked = story.team.run(["install"]);
    assert_eq!(asked.code, Some(2), "{}", asked.snapshot());
    assert!(
        asked.stderr.contains(&story.attacker.key()),
        "{}",
        asked.stderr
    );
    // Nor does agreeing to it take the place of the author's key.
    for args in [
        &["install", "--yes"][..],
        &["install", "--yes", "--signer", &story.author.key()],
        &["install", "--yes", "--unsigned"],
    ] {
        let refused = conjure_kit::cli([&["plugin"][..], args].concat())
            .workspace(&story.team.workspace)
            .run()
            .unwrap();
        assert_eq!(refused.code, Some(1), "{args:?}: {}", refused.snapshot());
        assert_eq!(story.team.loaded_version().as_deref(), Some("0.1.0"));
    }
}

#[test]
fn a_library_that_says_something_else_of_itself_later_is_not_used() {
    let story = Story::installed();
    let list = |says: &str| {
        // Nothing is known of it from before.
        fs::remove_dir_all(story.team.data_dir().join("store")).unwrap();
        let list = conjure_kit::cli(["plugin", "list"]).workspace(&story.team.workspace);
        let output = list.env("CONJURE_SAYS", says).run().unwrap();
        output.stdout + &output.stderr
    };
    let same = list("Touches");
    assert!(same.contains("loaded"), "{same}");
    let other = list("Deletes");
    assert!(other.contains("says something else of itself"), "{other}");
}
