//! Packages that were altered, cut, or signed by somebody else.

use std::fs;

use conjure_packages::{Package, PackageBuilder};
use conjure_plugin_tests::{FileEntry, repacked, versioned, with_entry_from, with_padding};
use serde_json::Value;

use super::Story;

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
        "a byte behind its end",
        |story| [fs::read(&story.new).unwrap(), vec![0]].concat(),
        "1 bytes behind its end",
    ),
    (
        "zeros behind its end, up to a whole block",
        |story| {
            let mut bytes = fs::read(&story.new).unwrap();
            bytes.resize(bytes.len().next_multiple_of(512) + 512, 0);
            bytes
        },
        "behind its end",
    ),
    (
        "a comment at its end",
        |story| {
            let mut bytes = fs::read(&story.new).unwrap();
            let length = bytes.len() - 2;
            bytes[length] = 5;
            bytes.extend(b"hello");
            bytes
        },
        "5 bytes behind its end",
    ),
    (
        "the older version behind its end",
        |story| {
            [&story.new, &story.old]
                .map(|it| fs::read(it).unwrap())
                .concat()
        },
        "belong to no file in it",
    ),
    (
        "the older version in front of it",
        |story| {
            [&story.old, &story.new]
                .map(|it| fs::read(it).unwrap())
                .concat()
        },
        "belong to no file in it",
    ),
    (
        "bytes between its files and their list",
        |story| with_padding(&story.new, false),
        "belong to no file in it",
    ),
    (
        "a file that says another size than the list",
        |story| {
            let mut bytes = fs::read(&story.new).unwrap();
            bytes[22] ^= 1;
            bytes
        },
        "belong to no file in it",
    ),
    (
        "a file that the list calls a device",
        |story| {
            let mut bytes = fs::read(&story.new).unwrap();
            let last = last_listed(&bytes);
            bytes[last + 40..last + 42].copy_from_slice(&0o020_644_u16.to_le_bytes());
            bytes
        },
        "belong to no file in it",
    ),
    (
        "a file of another system",
        |story| {
            let mut bytes = fs::read(&story.new).unwrap();
            let last = last_listed(&bytes);
            bytes[last + 5] ^= 1;
            bytes
        },
        "belong to no file in it",
    ),
    (
        "two files whose names differ in case only",
        |story| {
            repacked(&story.new, |entries| {
                entries.remove(1);
                for name in ["LICENSE", "License"] {
                    entries.push((name.to_owned(), vec![1]));
                }
                description(entries, |value| {
                    drop(value.as_object_mut().unwrap().remove("signer"));
                    let file = |path: &str| serde_json::json!({ "path": path, "sha256": "0".repeat(64), "size": 1 });
                    value["files"] = vec![file("LICENSE"), file("License")].into();
                });
            })
        },
        "names License twice",
    ),
    (
        "bytes behind the end of what a file was compressed to",
        |story| with_padding(&story.new, true),
        "behind the end of its data",
    ),
    (
        "the library of an older version",
        |story| with_entry_from(&story.new, &story.old, &library_name()),
        "not the file that it names",
    ),
    (
        "the library of an older version, with its digest",
        |story| {
            let old = Package::open(&story.old).unwrap();
            let old = serde_json::to_value(&old.description().libraries).unwrap();
            let package = with_entry_from(&story.new, &story.old, &library_name());
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
                    value["manifest"]["permissions"] = serde_json::json!({});
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
                    drop(value.as_object_mut().unwrap().remove("signer"));
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
                    drop(value.as_object_mut().unwrap().remove("signer"));
                });
            })
        },
        "signature",
    ),
    (
        "the signature of another version",
        |story| with_entry_from(&story.new, &story.old, "package.json.minisig"),
        "signature",
    ),
    (
        "the signature of somebody else",
        |story| {
            let other = story.attacker.package("0.2.0");
            with_entry_from(&story.new, &other, "package.json.minisig")
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
                entries.push(("more.so".to_owned(), vec![1]));
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
                entries.retain(|(name, _)| !name.ends_with(".so"));
            })
        },
        "has no `lib/",
    ),
    (
        "a library with more bytes than are said",
        |story| {
            repacked(&story.new, |entries| {
                find(entries, ".so").1 = vec![0; 16 << 20];
            })
        },
        "more than",
    ),
    (
        "another form",
        |story| {
            repacked(&story.new, |entries| {
                description(entries, |value| value["package"] = 2.into());
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

/// Where the list names its last file.
fn last_listed(package: &[u8]) -> usize {
    let mut fours = package.windows(4);
    fours.rposition(|four| four == b"PK\x01\x02").unwrap()
}

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
        assert!(!story.team.take_touched(), "{what}: it ran");
        assert!(!story.team.library().exists(), "{what}: it is installed");
    }
    // All of it is judged by what is there in the end: the very package runs.
    let output = story.install(&fs::read(&story.new).unwrap());
    assert_eq!(output.code, Some(0), "{}", output.snapshot());
    assert!(story.team.take_touched());
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
