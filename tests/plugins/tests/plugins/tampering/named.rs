//! Packages that are not what a lock or an index says.

use std::fs;

use conjure_packages::Package;
use conjure_plugin_tests::{Publisher, Team};
use serde_json::Value;

use super::Story;

/// What is done, the text that it makes of a lock's, and a word of why nothing is installed.
type LockTampering = (&'static str, fn(&str, &Story) -> String, &'static str);

/// What is done, what it makes of an entry, and a word of why nothing is installed.
type IndexTampering = (&'static str, fn(&mut Value), &'static str);

/// What is done to the lock of a team, and a word of why nothing is installed.
const LOCKS: &[LockTampering] = &[
    (
        "the digest of the package",
        |lock, story| {
            let digest = Package::open(&story.old).unwrap().sha256().to_string();
            lock.replace(&digest, &"0".repeat(64))
        },
        "was asked for",
    ),
    (
        "another package of the same author",
        |lock, _| lock.replace("0.1.0.conjure-plugin", "0.2.0.conjure-plugin"),
        "was asked for",
    ),
    (
        "another signer",
        |lock, story| lock.replace(&story.author.key(), &story.attacker.key()),
        "another signer",
    ),
    (
        "no signer",
        |lock, _| {
            let lines = lock.lines().filter(|line| !line.starts_with("signer"));
            lines.map(|line| format!("{line}\n")).collect()
        },
        "another signer",
    ),
    (
        "another name",
        |lock, _| lock.replace("name = \"toucher\"", "name = \"harmless\""),
        "another name or version",
    ),
    (
        "another version",
        |lock, _| lock.replace("version = \"0.1.0\"", "version = \"0.9.0\""),
        "another name or version",
    ),
    (
        "the digest of the library",
        |lock, _| {
            let (before, digest) = lock.split_at(lock.rfind("= \"").unwrap() + 3);
            format!(
                "{before}{}{}",
                if digest.starts_with('0') { '1' } else { '0' },
                &digest[1..]
            )
        },
        "another library",
    ),
];

#[test]
fn nothing_runs_of_a_package_that_is_not_what_a_lock_says() {
    for (what, tamper, why) in LOCKS {
        let story = Story::begin();
        let other = Team::new().trusts(&story.author);
        let lock = story.author.path("conjure.lock");
        let package = story.old.display().to_string();
        other.run_to_success(["install", &package, "--lock", &lock.display().to_string()]);
        let text = fs::read_to_string(&lock).unwrap();
        let tampered = tamper(&text, &story);
        assert_ne!(text, tampered, "{what}");
        fs::write(&lock, tampered).unwrap();
        let output = story
            .team
            .run(["install", "--yes", "--lock", &lock.display().to_string()]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.code, Some(1), "{what}: {said}");
        assert!(said.contains(why), "{what}: {said}");
        assert!(!story.team.take_touched(), "{what}: it ran");
        assert_eq!(story.team.loaded_version(), None, "{what}");
    }
}

/// What is done to an index, and a word of why nothing is installed.
const INDEXES: &[IndexTampering] = &[
    (
        "another digest",
        |entry| entry["sha256"] = "0".repeat(64).into(),
        "was asked for",
    ),
    (
        "a newer version than there is",
        |entry| entry["version"] = "9.0.0".into(),
        "was asked for",
    ),
    (
        "another name",
        |entry| entry["name"] = "other".into(),
        "no index names toucher",
    ),
    (
        "another signer",
        |entry| {
            let key = Publisher::new().key();
            entry["signer"] = key.into();
        },
        "was asked for",
    ),
    (
        "a place above it",
        |entry| entry["package"] = "../toucher.conjure-plugin".into(),
        "is at",
    ),
    (
        "a file of this machine",
        |entry| entry["package"] = "file:///etc/passwd".into(),
        "is at",
    ),
    (
        "a path",
        |entry| entry["package"] = "/etc/passwd".into(),
        "is at",
    ),
    (
        "no place",
        |entry| drop(entry.as_object_mut().unwrap().remove("package")),
        "line 1",
    ),
];

#[test]
fn nothing_runs_of_a_package_that_is_not_what_an_index_says() {
    let story = Story::begin();
    let dir = story.author.path("public");
    fs::create_dir(&dir).unwrap();
    let (place, package) = (dir.display().to_string(), story.old.display().to_string());
    story.team.run_to_success(["publish", &package, &place]);
    let index = dir.join("index.jsonl");
    let good = fs::read_to_string(&index).unwrap();
    for (what, tamper, why) in INDEXES {
        let mut entry: Value = serde_json::from_str(&good).unwrap();
        tamper(&mut entry);
        fs::write(&index, format!("{entry}\n")).unwrap();
        let output = story
            .team
            .run(["install", "toucher", "--yes", "--index", &place]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_ne!(output.code, Some(0), "{what}: {said}");
        assert!(said.contains(why), "{what}: {said}");
        assert!(!story.team.take_touched(), "{what}: it ran");
    }
    fs::write(&index, good).unwrap();
    story
        .team
        .run_to_success(["install", "toucher", "--yes", "--index", &place]);
    assert!(story.team.take_touched());
}
