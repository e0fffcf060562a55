//! Packages in a registry of container images: Debian's, on this machine.

use std::fs;
use std::path::Path;

use conjure_kit::ImageRegistry;
use conjure_plugin_tests::{Publisher, Team};

/// A registry; it ends with this value.
struct Registry(ImageRegistry);

impl Registry {
    /// Nothing where none is installed.
    fn begin() -> Option<Self> {
        ImageRegistry::start().unwrap().map(Self)
    }

    /// With a user `ada`, whose password is `open sesame`, and nobody else.
    fn begin_closed() -> Option<Self> {
        let ada = "ada:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";
        ImageRegistry::start_for(ada).unwrap().map(Self)
    }

    fn place(&self, name: &str) -> String {
        format!("oci://{}/plugins/{name}", self.0.address())
    }

    /// Has a tag lead to what another one leads to.
    fn retag(&self, name: &str, from: &str, to: &str) {
        let tags = self.0.files().join(format!(
            "docker/registry/v2/repositories/plugins/{name}/_manifests/tags"
        ));
        let link = |tag: &str| tags.join(tag).join("current/link");
        fs::copy(link(from), link(to)).unwrap();
    }

    /// Alters a byte in the middle of every package that it has.
    fn alter(&self) {
        let mut dirs = vec![self.0.files()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let mut bytes = fs::read(&path).unwrap();
                if bytes.starts_with(b"PK") {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    fs::write(&path, bytes).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_registry_keeps_packages_and_upgrades_come_from_it() {
    let Some(registry) = Registry::begin() else {
        return;
    };
    let author = Publisher::new();
    let team = Team::new();
    let place = registry.place("toucher");
    let publish = |package: &Path| {
        let package = package.display().to_string();
        team.run_to_success(["publish", &package, &place])
    };
    let said = publish(&author.package("0.1.0"));
    assert!(said.contains(&format!("{place}:0.1.0")), "{said}");
    let at = format!("{place}:0.1.0");
    team.run_to_success(["verify", &at, "--signer", &author.key()]);
    team.run_to_success(["install", &at, "--signer", &author.key()]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    let newest = author.package("0.2.0");
    publish(&newest);
    let upgraded = team.run_to_success(["upgrade", "--yes"]);
    assert!(upgraded.contains("0.1.0 → 0.2.0"), "{upgraded}");
    let lock = fs::read_to_string(team.lock()).unwrap();
    assert!(lock.contains(&format!("{place}:0.2.0")), "{lock}");
    let another = Team::new();
    another.run_to_success(["install", &place, "--signer", &author.key()]);
    assert_eq!(
        another.loaded_version().as_deref(),
        Some("0.2.0"),
        "the newest"
    );
    let same = team.run_to_success(["upgrade"]);
    assert!(same.contains("nothing newer"), "{same}");
    let missing = team.run(["install", &format!("{place}:7.0.0")]);
    assert_eq!(missing.code, Some(2));
    assert!(
        missing
            .stdout
            .contains("does not have this version; it has 0.2.0, 0.1.0"),
        "{}",
        missing.snapshot()
    );
    let unknown = team.run(["install", &registry.place("nothing")]);
    assert!(
        unknown.stdout.contains("has nothing of this name"),
        "{}",
        unknown.snapshot()
    );
    // What locks of others name stays what it is; the very same may come again.
    publish(&newest);
    let stranger = Publisher::new();
    let other = stranger.package("0.2.0").display().to_string();
    let refused = team.run(["publish", &other, &place]);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    assert!(
        refused.stderr.contains("another version"),
        "{}",
        refused.stderr
    );
}

#[test]
fn what_a_registry_altered_or_another_one_pushed_never_runs() {
    let Some(registry) = Registry::begin() else {
        return;
    };
    let (author, attacker) = (Publisher::new(), Publisher::new());
    let team = Team::new().trusts(&author);
    let place = registry.place("toucher");
    let at = format!("{place}:0.1.0");
    let package =
        |publisher: &Publisher, version: &str| publisher.package(version).display().to_string();
    team.run_to_success(["publish", &package(&author, "0.1.0"), &place]);
    team.run_to_success(["install", &at]);
    assert!(team.take_touched());
    // Somebody who got into the registry pushes a newer one.
    team.run_to_success(["publish", &package(&attacker, "0.2.0"), &place]);
    let refused = team.run(["upgrade", "--yes"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains(&attacker.key()),
        "{}",
        refused.stdout
    );
    assert!(!team.take_touched());
    // Or puts another package where the team's lock leads.
    let other = Team::new().trusts(&author);
    let aside = format!("{place}:aside");
    team.run_to_success(["publish", &package(&author, "0.2.0"), &aside]);
    registry.retag("toucher", "aside", "0.1.0");
    fs::create_dir_all(other.data_dir()).unwrap();
    let lock = team.lock().display().to_string();
    // The lock leads to what the tag led to when it was written; one of an older version to the tag alone.
    let text = fs::read_to_string(&lock).unwrap();
    let (before, digest) = text.split_once("@sha256:").unwrap();
    let old = format!("{before}{}", &digest[64..]);
    let old = author
        .write("old.lock", old.as_bytes())
        .display()
        .to_string();
    let refused = other.run(["install", "--yes", "--lock", &old]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains("was asked for"),
        "{}",
        refused.stdout
    );
    assert!(!other.take_touched());
    other.run_to_success(["install", "--yes", "--lock", &lock]);
    assert_eq!(other.loaded_version().as_deref(), Some("0.1.0"));
    assert!(other.take_touched());
    other.run_to_success(["remove", "toucher"]);
    // Or alters what it has.
    registry.alter();
    for version in ["0.1.0", "0.2.0"] {
        let output = other.run(["install", "--yes", &format!("{place}:{version}")]);
        assert_ne!(output.code, Some(0), "{version}: {}", output.snapshot());
        assert!(!other.take_touched(), "{version}");
    }
}

#[test]
fn what_a_tag_led_to_is_installed_from_a_lock_after_it_has_moved() {
    let Some(registry) = Registry::begin() else {
        return;
    };
    let author = Publisher::new();
    let (team, other) = (Team::new(), Team::new());
    let stable = format!("{}:stable", registry.place("toucher"));
    let publish = |version: &str| {
        let package = author.package(version).display().to_string();
        team.run_to_success(["publish", &package, &stable]);
    };
    publish("0.1.0");
    let lock = author.path("conjure.lock").display().to_string();
    let key = author.key();
    team.run_to_success(["install", &stable, "--signer", &key, "--lock", &lock]);
    publish("0.2.0");
    other.run_to_success(["install", "--yes", "--lock", &lock]);
    assert_eq!(other.loaded_version().as_deref(), Some("0.1.0"));
    // An upgrade goes where the tag goes.
    other.run_to_success(["upgrade", "--yes"]);
    assert_eq!(other.loaded_version().as_deref(), Some("0.2.0"));
}

#[test]
fn what_a_lock_names_is_found_by_its_tag_when_its_manifest_is_gone() {
    let Some(registry) = Registry::begin() else {
        return;
    };
    let author = Publisher::new();
    let team = Team::new();
    let place = registry.place("toucher");
    let publish = |version: &str, place: &str| {
        let package = author.package(version).display().to_string();
        team.run_to_success(["publish", &package, place]);
    };
    publish("0.1.0", &place);
    let lock = author.path("conjure.lock").display().to_string();
    let at = format!("{place}:0.1.0");
    team.run_to_success(["install", &at, "--signer", &author.key(), "--lock", &lock]);
    // No registry has a manifest with this digest.
    let text = fs::read_to_string(&lock).unwrap();
    let (before, digest) = text.split_once("@sha256:").unwrap();
    let gone = "0".repeat(64);
    fs::write(&lock, format!("{before}@sha256:{gone}{}", &digest[64..])).unwrap();
    let other = Team::new();
    other.run_to_success(["install", "--yes", "--lock", &lock]);
    assert_eq!(other.loaded_version().as_deref(), Some("0.1.0"));
    // Whoever names it without a lock gets nothing else.
    let exact = Team::new();
    let pinned = format!("{at}@sha256:{gone}");
    let refused = exact.run(["install", &pinned, "--signer", &author.key()]);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    publish("0.2.0", &format!("{place}:aside"));
    registry.retag("toucher", "aside", "0.1.0");
    let refused = exact.run(["install", "--yes", "--lock", &lock]);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    let why = "is another package than the lock names";
    assert!(refused.stdout.contains(why), "{}", refused.snapshot());
}

/// A helper of Docker's, for one registry, and what it does.
fn helper(team: &Team, registry: &Registry, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = team.workspace.root().join("bin");
    let docker = team.workspace.home().join(".docker");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&docker).unwrap();
    let program = bin.join("docker-credential-team");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let config = serde_json::json!({
        "credHelpers": { (registry.0.address()): "team" },
    });
    fs::write(docker.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn the_password_of_a_registry_is_asked_of_dockers_helper() {
    let Some(registry) = Registry::begin_closed() else {
        return;
    };
    let author = Publisher::new();
    let team = Team::new();
    let package = author.package("0.1.0").display().to_string();
    let place = registry.place("toucher");
    let bin = team.workspace.root().join("bin").display().to_string();
    let run = |args: &[&str]| {
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        conjure_kit::cli([&["plugin"][..], args].concat())
            .workspace(&team.workspace)
            .env("PATH", path)
            .run()
            .unwrap()
    };
    let asked = format!(
        "read registry; [ \"$1 $registry\" = \"get {}\" ] || exit 3",
        registry.0.address()
    );
    let answer = |text: &str| format!("{asked}; echo '{text}'");
    for (script, why) in [
        (
            answer("{\"Username\": \"ada\", \"Secret\": \"no\"}"),
            "docker login",
        ),
        (
            answer("credentials not found in native keychain") + "; exit 1",
            "docker login",
        ),
        (
            "echo the keyring is locked >&2; exit 1".to_owned(),
            "the keyring is locked",
        ),
        (answer("what"), "something else than a user and a secret"),
        (
            answer("{\"Username\": \"<token>\", \"Secret\": \"x\"}"),
            "is no password",
        ),
    ] {
        helper(&team, &registry, &script);
        let refused = run(&["publish", &package, &place]);
        assert_ne!(refused.code, Some(0), "{script}: {}", refused.snapshot());
        assert!(
            refused.stderr.contains(why),
            "{script}: {}",
            refused.snapshot()
        );
    }
    let right = answer("{\"Username\": \"ada\", \"Secret\": \"open sesame\"}");
    helper(&team, &registry, &right);
    let published = run(&["publish", &package, &place]);
    assert_eq!(published.code, Some(0), "{}", published.snapshot());
    let installed = run(&["install", &place, "--signer", &author.key()]);
    assert_eq!(installed.code, Some(0), "{}", installed.snapshot());
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
}
