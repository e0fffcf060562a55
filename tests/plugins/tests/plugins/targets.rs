//! Packages for several machines: packed, signed, verified and installed on this one, and one that has
//! nothing for it.
//!
//! A library for another machine is the one for this machine whose ELF header names the other: no host
//! opens such a library, and what a package says of its machine is read from that header.

use std::fs;
use std::path::{Path, PathBuf};

use conjure_host::plugin::LibraryTarget;
use conjure_kit::cli;
use conjure_packages::{Package, PackageBuilder};
use conjure_plugin_tests::{Publisher, Team, versioned};
use serde_json::Value;

/// Numbers of machines in an ELF header, and the targets that they stand for.
const MACHINES: [(u16, &str); 3] = [
    (62, "x86_64-unknown-linux-gnu"),
    (183, "aarch64-unknown-linux-gnu"),
    (243, "riscv64gc-unknown-linux-gnu"),
];

/// The machines that this one is not.
fn elsewhere() -> Vec<(u16, &'static str)> {
    let here = LibraryTarget::here();
    let others = MACHINES.into_iter().filter(|(_, target)| *target != here);
    others.collect()
}

/// The plugin `toucher` in this version for another machine.
fn foreign(version: &str, machine: u16) -> Vec<u8> {
    let mut library = versioned("toucher", version);
    library[18..20].copy_from_slice(&machine.to_le_bytes());
    library
}

/// A package of the author's with libraries for other machines alone, as one packs it there.
fn packed_elsewhere(author: &Publisher, version: &str) -> PathBuf {
    let own = Package::open(&author.package(version)).unwrap();
    let mut builder = PackageBuilder::new(own.description().manifest.clone());
    for (machine, target) in elsewhere() {
        let added = builder.library(target, foreign(version, machine));
        assert_eq!(added.unwrap(), target);
    }
    author.signed(&builder.build().unwrap())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_package_for_two_machines_is_signed_as_a_whole_and_installed_on_one_of_them() {
    let (author, team) = (Publisher::new(), Team::new());
    let here = LibraryTarget::here();
    let (machine, there) = elsewhere()[0];
    let own = author.write("libtoucher.so", &versioned("toucher", "0.1.0"));
    let other = author.write("libother.so", &foreign("0.1.0", machine));
    let (own, other, dir) = (text(&own), text(&other), text(author.dir()));
    let key = text(&author.path("key"));
    team.run_to_success(["key", &key, "--no-password"]);
    let packed = team.run_to_success(["pack", &other, &own, "--out", &dir, "--key", &key]);
    let both = {
        let mut targets = [here.as_str(), there];
        targets.sort_unstable();
        targets.join(", ")
    };
    assert!(packed.contains(&format!("for {both}:")), "{packed}");
    assert!(!packed.contains("a signature"), "{packed}");

    // What it has is told for each machine, with nothing of it run.
    let file = text(&author.path("toucher-0.1.0.conjure-plugin"));
    let signer = format!("{key}.pub");
    let verified = team.run_to_success(["verify", &file, "--signer", &signer]);
    for target in [here.as_str(), there] {
        assert!(verified.contains(target), "{verified}");
    }
    let verified = team.run_to_success(["verify", &file, "--signer", &signer, "--json"]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    let libraries = verified["package"]["libraries"].as_array().unwrap();
    let targets: Vec<&str> = libraries
        .iter()
        .map(|library| library["target"].as_str().unwrap())
        .collect();
    assert_eq!(targets.join(", "), both);
    assert!(!team.take_touched(), "verifying ran it");

    // The library for this machine is what is installed, and it runs; the lock has both.
    team.run_to_success(["install", &file, "--signer", &signer]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    assert_eq!(
        fs::read(team.library()).unwrap(),
        versioned("toucher", "0.1.0")
    );
    let lock = fs::read_to_string(team.lock()).unwrap();
    assert!(lock.contains(&here) && lock.contains(there), "{lock}");
    let called = cli([
        "call",
        "toucher_execute",
        "--args",
        r#"{"command": "touch"}"#,
    ]);
    let called = called.workspace(&team.workspace).run().unwrap();
    assert_eq!(called.code, Some(0), "{}", called.snapshot());
    assert!(called.stdout.contains("0.1.0"), "{}", called.snapshot());

    // The signature covers the library that is for the other machine too.
    let changed = conjure_plugin_tests::repacked(Path::new(&file), |entries| {
        let is_other = |(name, _): &&mut (String, Vec<u8>)| name.contains(there);
        let (_, bytes) = entries.iter_mut().find(is_other).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
    });
    let changed = author.write("changed.conjure-plugin", &changed);
    let refused = team.run(["verify", &text(&changed), "--signer", &signer]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
}

#[test]
fn a_package_that_has_nothing_for_this_machine_names_the_machines_that_it_is_for() {
    let (author, team) = (Publisher::new(), Team::new());
    let key = author.key();
    let first = text(&author.package("0.1.0"));
    team.run_to_success(["install", &first, "--signer", &key]);
    let next = text(&packed_elsewhere(&author, "0.2.0"));
    // It is whole and signed, which needs no library that runs here.
    let verified = team.run_to_success(["verify", &next, "--signer", &key]);
    let refused = team.run(["install", &next, "--yes"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    let here = LibraryTarget::here();
    let no_library = format!("no library for this machine ({here})");
    assert!(refused.stdout.contains(&no_library), "{}", refused.stdout);
    for (_, target) in elsewhere() {
        assert!(verified.contains(target), "{verified}");
        assert!(refused.stdout.contains(target), "{}", refused.stdout);
    }
    assert!(
        refused.stdout.contains("`conjure plugin pack`"),
        "{}",
        refused.stdout
    );
    // What was there stays.
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));

    // Nobody packs it here either: the manifest is read from a library that runs.
    let (machine, _) = elsewhere()[0];
    let other = text(&author.write("libother.so", &foreign("0.3.0", machine)));
    let refused = team.run(["pack", &other, "--out", &text(author.dir())]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused
            .stdout
            .contains(&format!("for this machine ({here})")),
        "{}",
        refused.stdout
    );
}
