//! What was tampered with never runs: a constructor that makes a file would show it.

use std::fs;
use std::path::PathBuf;

use conjure_kit::Output;
use conjure_packages::{Package, PackageBuilder};
use conjure_plugin_tests::{FileEntry, Publisher, Team, grafted, repacked, versioned};
use serde_json::Value;

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
            .does(["install", &story.old.display().to_string()]);
        assert!(story.team.was_touched(), "what is not tampered with runs");
        story
    }

    fn install(&self, package: &[u8]) -> Output {
        let path = self.author.write("tampered.conjure-plugin", package);
        self.team
            .run(["install", &path.display().to_string(), "--yes"])
    }
}

fn find<'a>(entries: &'a mut [FileEntry], part: &str) -> &'a mut FileEntry {
    let found = entries.iter_mut().find(|(name, _)| name.contains(part));
    found.unwrap()
}

fn description(entries: &mut [FileEntry], change: impl FnOnce(&mut Value)) {
    let (_, bytes) = entries.first_mut().unwrap();
    let mut value: Value = serde_json::from_slice(bytes).unwrap();
    change(&mut value);
    *bytes = serde_json::to_vec_pretty(&value).unwrap();
}

/// What is done to a package, and a word of why it is refused.
type Tampering = (&'static str, fn(&Story) -> Vec<u8>, &'static str);

const PACKAGES: &[Tampering] = &[
    (
        "a byte of the library",
        |story| {
            repacked(&story.new, |entries| {
                let (_, bytes) = find(entries, ".so");
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            })
        },
        "not the file that it names",
    ),
    (
        "a byte of the file",
        |story| {
            let mut bytes = fs::read(&story.new).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            bytes
        },
        "not a package",
    ),
    (
        "its end is missing",
        |story| {
            let bytes = fs::read(&story.new).unwrap();
            bytes[..bytes.len() - 100].to_vec()
        },
        "not a package",
    ),
    (
        "nothing but its beginning",
        |_| b"PK\x03\x04".to_vec(),
        "not a package",
    ),
    ("a text", |_| b"a text".to_vec(), "no zip archive"),
    (
        "the library of an older version",
        |story| grafted(&story.new, &story.old, &library_name()),
        "not the file that it names",
    ),
    (
        "the library of an older version, with its digest",
        |story| {
            let old = Package::open(&story.old).unwrap();
            let old = serde_json::to_value(&old.description().libraries).unwrap();
            let package = grafted(&story.new, &story.old, &library_name());
            let path = story.author.write("step.zip", &package);
            repacked(&path, |entries| {
                description(entries, |value| value["libraries"] = old);
            })
        },
        "signature",
    ),
    (
        "the version in the description",
        |story| {
            repacked(&story.old, |entries| {
                description(entries, |value| {
                    value["version"] = "9.0.0".into();
                    value["manifest"]["version"] = "9.0.0".into();
                });
            })
        },
        "signature",
    ),
    (
        "what it asks to be allowed",
        |story| {
            repacked(&story.new, |entries| {
                description(entries, |value| {
                    value["manifest"]["permissions"] = serde_json::json!({})
                });
            })
        },
        "signature",
    ),
    (
        "a blank in the description",
        |story| repacked(&story.new, |entries| entries[0].1.push(b' ')),
        "signature",
    ),
    (
        "no signature",
        |story| repacked(&story.new, |entries| drop(entries.remove(1))),
        "signature",
    ),
    (
        "an empty signature",
        |story| repacked(&story.new, |entries| find(entries, "minisig").1.clear()),
        "signature",
    ),
    (
        "no signature and no signer",
        |story| {
            repacked(&story.new, |entries| {
                entries.remove(1);
                description(entries, |value| {
                    drop(value.as_object_mut().unwrap().remove("signer"))
                });
            })
        },
        "not signed",
    ),
    (
        "a signature and no signer",
        |story| {
            repacked(&story.new, |entries| {
                description(entries, |value| {
                    drop(value.as_object_mut().unwrap().remove("signer"))
                });
            })
        },
        "signature",
    ),
    (
        "the signature of another version",
        |story| grafted(&story.new, &story.old, "package.json.minisig"),
        "signature",
    ),
    (
        "the signature of somebody else",
        |story| {
            let other = story.attacker.package("0.2.0");
            grafted(&story.new, &other, "package.json.minisig")
        },
        "signature",
    ),
    (
        "the comment that was signed too",
        |story| {
            repacked(&story.new, |entries| {
                let (_, bytes) = find(entries, "minisig");
                let text = String::from_utf8(bytes.clone()).unwrap();
                *bytes = text.replace("toucher 0.2.0", "toucher 0.9.0").into_bytes();
            })
        },
        "signature",
    ),
    (
        "somebody else's signature and signer",
        |story| fs::read(story.attacker.package("0.2.0")).unwrap(),
        "--signer",
    ),
    (
        "the author named over somebody else's signature",
        |story| {
            let other = story.attacker.package("0.2.0");
            let key = story.author.key();
            repacked(&other, |entries| {
                description(entries, |value| value["signer"] = key.into());
            })
        },
        "signature",
    ),
    (
        "a file more",
        |story| {
            repacked(&story.new, |entries| {
                entries.push(("more.so".to_owned(), vec![1]))
            })
        },
        "does not name",
    ),
    (
        "a file that leads elsewhere",
        |story| {
            repacked(&story.new, |entries| {
                entries.push((
                    "../../plugins/libevil.so".to_owned(),
                    versioned("toucher", "0.2.0"),
                ));
            })
        },
        "does not name",
    ),
    (
        "no library",
        |story| {
            repacked(&story.new, |entries| {
                entries.retain(|(name, _)| !name.ends_with(".so"))
            })
        },
        "has no `lib/",
    ),
    (
        "a library with more bytes than are said",
        |story| {
            repacked(&story.new, |entries| {
                find(entries, ".so").1 = vec![0; 16 << 20]
            })
        },
        "more than",
    ),
    (
        "another form",
        |story| {
            repacked(&story.new, |entries| {
                description(entries, |value| value["package"] = 2.into())
            })
        },
        "signature",
    ),
    (
        "a description that is none",
        |story| repacked(&story.new, |entries| entries[0].1 = b"{}".to_vec()),
        "does not describe",
    ),
];

fn library_name() -> String {
    format!(
        "lib/{}/libtoucher.so",
        conjure_host::plugin::LibraryTarget::here()
    )
}

#[test]
fn no_byte_of_a_package_that_was_tampered_with_runs() {
    let story = Story::begin();
    for (what, tamper, why) in PACKAGES {
        let output = story.install(&tamper(&story));
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.code, Some(1), "{what}: {said}");
        assert!(said.contains(why), "{what}: {said}");
        assert!(!story.team.was_touched(), "{what}: it ran");
        assert!(!story.team.library().exists(), "{what}: it is installed");
    }
    // All of it is judged by what is there in the end: the very package runs.
    let output = story.install(&fs::read(&story.new).unwrap());
    assert_eq!(output.code, Some(0), "{}", output.snapshot());
    assert!(story.team.was_touched());
}

#[test]
fn a_package_of_another_plugin_or_machine_is_not_made_and_not_taken() {
    let story = Story::begin();
    let package = Package::open(&story.new).unwrap();
    let mut builder = PackageBuilder::new(package.description().manifest.clone());
    let refused = builder.library("counter", versioned("counter", "0.2.0"));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("it is the skill counter")
    );
    let refused = builder.library("text", b"text".to_vec());
    assert!(refused.unwrap_err().to_string().contains("no library"));
    // For a machine that it is not for: the machine's number stands at byte 18.
    let mut foreign = versioned("toucher", "0.2.0");
    foreign[18] = match foreign[18] {
        183 => 62,
        _ => 183,
    };
    builder.library("foreign", foreign).unwrap();
    let foreign = story.author.signed(&builder.build().unwrap());
    let output = story.team.run(["install", &foreign.display().to_string()]);
    assert_eq!(output.code, Some(1), "{}", output.snapshot());
    assert!(
        output.stdout.contains("no library for this machine"),
        "{}",
        output.stdout
    );
}

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

fn place(story: &Story, bytes: &[u8]) {
    // In one step, as an upgrade does.
    let aside = story.team.data_dir().join("aside");
    fs::write(&aside, bytes).unwrap();
    fs::rename(aside, story.team.library()).unwrap();
}

fn edit(story: &Story, change: impl FnOnce(&str) -> String) {
    let lock = fs::read_to_string(story.team.lock()).unwrap();
    fs::write(story.team.lock(), change(&lock)).unwrap();
}

#[test]
fn nothing_runs_of_a_library_that_is_not_what_its_lock_says() {
    for (what, alter, why) in INSTALLED {
        let story = Story::installed();
        assert_eq!(story.team.loaded().as_deref(), Some("0.1.0"));
        story.team.was_touched();
        alter(&story);
        let output = story.team.run(["list"]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains(why), "{what}: {said}");
        assert_eq!(story.team.loaded(), None, "{what}");
        assert!(!story.team.was_touched(), "{what}: it ran");
    }
}

/// What is done to the lock of a team, and a word of why nothing is installed.
const LOCKS: &[(&str, fn(&str, &Story) -> String, &str)] = &[
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
        other.does(["install", &package, "--lock", &lock.display().to_string()]);
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
        assert!(!story.team.was_touched(), "{what}: it ran");
        assert_eq!(story.team.loaded(), None, "{what}");
    }
}

/// What is done to an index, and a word of why nothing is installed.
const INDEXES: &[(&str, fn(&mut Value), &str)] = &[
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
    story.team.does(["publish", &package, &place]);
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
        assert!(!story.team.was_touched(), "{what}: it ran");
    }
    fs::write(&index, good).unwrap();
    story
        .team
        .does(["install", "toucher", "--yes", "--index", &place]);
    assert!(story.team.was_touched());
}

/// A team that has the author's 0.1.0, and an author whom it does not trust beyond that.
fn accepted() -> Story {
    let (author, attacker) = (Publisher::new(), Publisher::new());
    let team = Team::new();
    let (old, new) = (author.package("0.1.0"), author.package("0.2.0"));
    team.does([
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
    let list: Value = serde_json::from_str(&team.does(["list", "--json"])).unwrap();
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
    team.does(["add", &by_hand]);
    assert_eq!(isolation(team), "process");
    team.does(["check", &by_hand]);
    assert!(!team.was_touched());
}

#[test]
fn what_was_altered_is_not_put_back_and_what_is_signed_not_left_without_being_said() {
    let story = accepted();
    let team = &story.team;
    place(&story, &versioned("toucher", "0.3.0"));
    team.does(["install", "--yes"]);
    assert_eq!(team.loaded().as_deref(), Some("0.1.0"));
    let nothing = team.run(["rollback", "toucher", "--yes"]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.snapshot());
    team.does(["remove", "toucher"]);
    let by_hand = story.author.write("lib.so", &versioned("toucher", "0.3.0"));
    team.does(["add", &by_hand.display().to_string()]);
    team.was_touched();
    let old = story.old.display().to_string();
    team.does(["install", &old, "--yes", "--signer", &story.author.key()]);
    let refused = team.run(["rollback", "toucher"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains("without the signature"),
        "{}",
        refused.stdout
    );
    assert_eq!(team.loaded().as_deref(), Some("0.1.0"));
}

#[test]
fn a_key_is_the_key_that_was_said_and_no_other() {
    let story = accepted();
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
    assert_eq!(team.loaded(), None);
}

#[test]
fn a_lock_of_somebody_elses_names_nobody_by_itself() {
    let story = accepted();
    let attacker = Team::new();
    let package = story.attacker.package("0.2.0").display().to_string();
    let lock = story.team.workspace.work().join("conjure.lock");
    attacker.does([
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
        assert_eq!(story.team.loaded().as_deref(), Some("0.1.0"));
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
