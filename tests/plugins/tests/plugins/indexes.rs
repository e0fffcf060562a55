//! Indexes of packages that are not as they should be, are several, or are written by several people.

use std::fs;
use std::path::Path;

use conjure_plugin_tests::{Publisher, Team};
use serde_json::Value;

/// A folder of the author's with these versions.
fn index(author: &Publisher, team: &Team, name: &str, versions: &[&str]) -> String {
    let dir = author.path(name);
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.display().to_string();
    for version in versions {
        let package = author.package(version).display().to_string();
        team.run_to_success(["publish", &package, &dir]);
    }
    dir
}

/// A folder whose index is this text.
fn text_index(author: &Publisher, name: &str, text: &str) -> String {
    let dir = author.path(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("index.jsonl"), text).unwrap();
    dir.display().to_string()
}

#[test]
fn an_index_that_is_none_holds_up_no_other() {
    let author = Publisher::new();
    let team = Team::new();
    let good = index(&author, &team, "good", &["0.1.0"]);
    let page = text_index(&author, "page", "<html>\n<p>It moved</p>\n");
    let note = "an index was left out";
    let found = team.run_to_success(["search", "touch", "--index", &page, "--index", &good]);
    assert!(found.contains("toucher") && found.contains(note), "{found}");
    let alone = team.run(["search", "touch", "--index", &page]);
    assert_eq!(alone.code, Some(2), "{}", alone.snapshot());
    let key = author.key();
    let installed = team.run_to_success([
        "install", "toucher", "--signer", &key, "--index", &page, "--index", &good,
    ]);
    assert!(installed.contains(note), "{installed}");
    index(&author, &team, "good", &["0.2.0"]);
    team.run_to_success(["upgrade", "--yes", "--index", &page, "--index", &good]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
}

#[test]
fn a_line_that_names_no_package_is_left_out_and_not_lost() {
    let author = Publisher::new();
    let team = Team::new();
    let place = index(&author, &team, "public", &["0.1.0"]);
    let file = author.path("public/index.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{{\"name\": \"newer\"}}\n{text}")).unwrap();
    let found = team.run_to_success(["search", "--index", &place]);
    assert!(found.contains("toucher"), "{found}");
    assert!(found.contains("its line 1 does not name"), "{found}");
    let installed = team.run_to_success([
        "install",
        "toucher",
        "--index",
        &place,
        "--signer",
        &author.key(),
    ]);
    assert!(installed.contains("its line 1"), "{installed}");
    // Whoever writes the index would lose it.
    let next = author.package("0.2.0").display().to_string();
    let refused = team.run(["publish", &next, &place]);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    assert!(fs::read_to_string(&file).unwrap().contains("newer"));
}

#[test]
fn what_a_lock_names_is_found_whatever_other_indexes_are_named() {
    let author = Publisher::new();
    let (team, other) = (Team::new(), Team::new());
    let own = index(&author, &team, "own", &["0.1.0"]);
    let elsewhere = text_index(&author, "elsewhere", "");
    let lock = author.path("project/conjure.lock");
    fs::create_dir(author.path("project")).unwrap();
    let lock = lock.display().to_string();
    let key = author.key();
    team.run_to_success([
        "install", "toucher", "--index", &own, "--signer", &key, "--lock", &lock,
    ]);
    other.run_to_success(["install", "--lock", &lock, "--yes", "--index", &elsewhere]);
    assert_eq!(other.loaded_version().as_deref(), Some("0.1.0"));
    index(&author, &team, "own", &["0.2.0"]);
    team.run_to_success(["upgrade", "--yes", "--index", &elsewhere]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
}

#[test]
fn an_upgrade_says_which_indexes_could_not_be_read() {
    let author = Publisher::new();
    let team = Team::new();
    let good = index(&author, &team, "good", &["0.1.0"]);
    let page = text_index(&author, "page", "<html>\n");
    let key = author.key();
    team.run_to_success(["install", "toucher", "--signer", &key, "--index", &good]);
    let upgrade = || {
        let output = team.run([
            "upgrade", "--json", "--yes", "--index", &page, "--index", &good,
        ]);
        assert_eq!(output.code, Some(0), "{}", output.snapshot());
        serde_json::from_str::<Value>(&output.stdout).unwrap()
    };
    let nothing = upgrade();
    let unread = nothing["unread"][0].as_str().unwrap();
    assert!(unread.contains("page"), "{nothing}");
    // A line that names no package may be a newer one.
    let text = fs::read_to_string(author.path("good/index.jsonl")).unwrap();
    fs::write(author.path("good/index.jsonl"), format!("what\n{text}")).unwrap();
    let partly = upgrade();
    let unread = partly["unread"].as_array().unwrap();
    assert!(
        unread
            .iter()
            .any(|it| it.as_str().unwrap().contains("its line 1")),
        "{partly}"
    );
    let newer = author.package("0.2.0");
    fs::write(author.path("good/index.jsonl"), text).unwrap();
    team.run_to_success(["publish", &newer.display().to_string(), &good]);
    let upgraded = upgrade();
    assert!(
        upgraded["unread"][0].as_str().unwrap().contains("page"),
        "{upgraded}"
    );
    let unread = upgraded["installed"][0]["unread"].as_array().unwrap();
    assert_eq!(unread.len(), 1, "{upgraded}");
}

#[test]
fn a_folder_stays_open_to_whom_its_index_is_open() {
    use std::os::unix::fs::PermissionsExt as _;
    let author = Publisher::new();
    let team = Team::new();
    let place = index(&author, &team, "public", &["0.1.0"]);
    let file = author.path("public/index.jsonl");
    // What no usual mask makes.
    let mode = 0o646;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    index(&author, &team, "public", &["0.2.0"]);
    for name in ["index.jsonl", "toucher-0.2.0.conjure-plugin"] {
        let there = fs::metadata(Path::new(&place).join(name)).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, mode, "{name}");
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 3, "nothing is left");
}

#[test]
fn a_file_of_another_package_in_a_folder_is_not_replaced() {
    let author = Publisher::new();
    let team = Team::new();
    let place = index(&author, &team, "public", &["0.1.0"]);
    let package = author.package("0.1.0").display().to_string();
    let file = author.path("public/index.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    // Another name and version that make the same name of a file.
    let mut entry: Value = serde_json::from_str(&text).unwrap();
    entry["name"] = "toucher-0.1".into();
    fs::write(&file, format!("{entry}\n")).unwrap();
    let refused = team.run(["publish", &package, &place]);
    let why = "is the package of toucher-0.1 0.1.0";
    assert!(refused.stderr.contains(why), "{}", refused.snapshot());
    // A file that no index names.
    fs::remove_file(&file).unwrap();
    let there = author.path("public/toucher-0.1.0.conjure-plugin");
    fs::write(&there, "something else").unwrap();
    let refused = team.run(["publish", &package, &place]);
    let why = "with other contents";
    assert!(refused.stderr.contains(why), "{}", refused.snapshot());
    assert_eq!(fs::read(&there).unwrap(), b"something else");
}

#[test]
fn a_folder_has_nothing_that_only_who_wrote_first_can_open() {
    use std::os::unix::fs::PermissionsExt as _;
    let author = Publisher::new();
    let team = Team::new();
    index(&author, &team, "public", &["0.1.0"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let as_all_files = mode(&author.write("mine", b"x"));
    for entry in fs::read_dir(author.path("public")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), as_all_files, "{}", path.display());
    }
}

#[test]
fn what_an_index_says_is_cut_to_what_a_person_reads() {
    let author = Publisher::new();
    let team = Team::new();
    let place = index(&author, &team, "public", &["0.1.0"]);
    let file = author.path("public/index.jsonl");
    let mut entry: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    entry["description"] = "touch ".repeat(50_000).into();
    fs::write(&file, format!("{entry}\n")).unwrap();
    let found = team.run_to_success(["search", "touch", "--index", &place]);
    assert!(found.contains("characters more)"), "{found}");
    assert!(found.len() < 2_000, "{} bytes", found.len());
}

#[test]
fn a_lock_that_nobody_may_write_is_found_before_anything_is_installed() {
    use std::os::unix::fs::PermissionsExt as _;
    let author = Publisher::new();
    let team = Team::new();
    let package = author.package("0.1.0").display().to_string();
    let lock = author.write("conjure.lock", b"lock = 1\n");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o444)).unwrap();
    let lock = lock.display().to_string();
    let refused = team.run([
        "install",
        &package,
        "--signer",
        &author.key(),
        "--lock",
        &lock,
    ]);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    assert!(
        refused.stderr.contains("nothing was installed"),
        "{}",
        refused.stderr
    );
    assert_eq!(team.loaded_version(), None);
    assert_eq!(fs::read_to_string(&lock).unwrap(), "lock = 1\n");
}
