//! Installed libraries that are not what their lock says.

use std::fs;

use conjure_plugin_tests::versioned;

use super::{Story, place};

/// What is done behind the host's back, and a word of why nothing runs.
type Alteration = (&'static str, fn(&Story), &'static str);

const INSTALLED: &[Alteration] = &[
    (
        "a byte of the library",
        |story| {
            let mut bytes = fs::read(story.team.library()).unwrap();
            let at = bytes.windows(5).position(|part| part == b"0.1.0").unwrap();
            bytes[at + 4] = b'7';
            place(story, &bytes);
        },
        "is not the library of toucher 0.1.0",
    ),
    (
        "the library of another version",
        |story| {
            place(story, &versioned("toucher", "0.2.0"));
        },
        "is not the library of toucher 0.1.0",
    ),
    (
        "the digest in the lock",
        |story| {
            edit(story, |lock| {
                let (before, digest) = lock.split_at(lock.rfind("= \"").unwrap() + 3);
                format!(
                    "{before}{}{}",
                    if digest.starts_with('0') { '1' } else { '0' },
                    &digest[1..]
                )
            });
        },
        "is not the library of toucher 0.1.0",
    ),
    (
        "a lock that is cut",
        |story| {
            edit(story, |lock| lock[..lock.len() / 2].to_owned());
        },
        "not a lock",
    ),
    (
        "a lock of another form",
        |story| {
            edit(story, |lock| lock.replace("lock = 1", "lock = 9"));
        },
        "its form is number 9",
    ),
    (
        "a plugin that is locked twice",
        |story| {
            edit(story, |lock| {
                let (_, entry) = lock.split_once("[[plugin]]").unwrap();
                format!("{lock}\n[[plugin]]{entry}")
            });
        },
        "twice",
    ),
    (
        "a folder in the place of the lock",
        |story| {
            fs::remove_file(story.team.lock()).unwrap();
            fs::create_dir(story.team.lock()).unwrap();
        },
        "cannot be read",
    ),
];

fn edit(story: &Story, change: impl FnOnce(&str) -> String) {
    let lock = fs::read_to_string(story.team.lock()).unwrap();
    fs::write(story.team.lock(), change(&lock)).unwrap();
}

#[test]
fn nothing_runs_of_a_library_that_is_not_what_its_lock_says() {
    for (what, alter, why) in INSTALLED {
        let story = Story::installed();
        assert_eq!(story.team.loaded_version().as_deref(), Some("0.1.0"));
        story.team.take_touched();
        alter(&story);
        let output = story.team.run(["list"]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains(why), "{what}: {said}");
        assert_eq!(story.team.loaded_version(), None, "{what}");
        assert!(!story.team.take_touched(), "{what}: it ran");
    }
}
