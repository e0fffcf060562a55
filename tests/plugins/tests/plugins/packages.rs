//! Packages: made, signed, found, installed, upgraded, put back.

use std::fs;

use conjure_kit::{Workspace, cli};
use conjure_packages::Package;
use conjure_plugin_tests::{Publisher, Team, versioned};
use serde_json::Value;

#[test]
fn what_an_author_packs_signs_and_publishes_a_team_finds_and_installs() {
    let workspace = Workspace::new().unwrap();
    let run = |args: &[&str]| {
        let output = cli([&["plugin"][..], args].concat())
            .workspace(&workspace)
            .run()
            .unwrap();
        assert_eq!(output.code, Some(0), "{args:?}: {}", output.snapshot());
        output.stdout
    };
    let home = workspace.root().join("author");
    fs::create_dir_all(home.join("target")).unwrap();
    fs::create_dir_all(home.join("public")).unwrap();
    let at = |name: &str| home.join(name).display().to_string();
    fs::write(home.join("target/libx.so"), versioned("toucher", "0.1.0")).unwrap();
    fs::write(
        at("Cargo.toml"),
        "[package]\nname = \"toucher\"\nlicense = \"MIT\"\n",
    )
    .unwrap();
    fs::write(at("LICENSE"), "Do what you like.").unwrap();
    let lock = "version = 4\n\
        [[package]]\nname = \"toucher\"\nversion = \"0.1.0\"\ndependencies = [\"serde\"]\n\
        [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\n\
        [[package]]\nname = \"another\"\nversion = \"1.0.0\"\n";
    fs::write(at("Cargo.lock"), lock).unwrap();

    run(&["key", &at("key"), "--no-password"]);
    let packed = run(&["pack", &at("target/libx.so"), "--out", &at("")]);
    assert!(packed.contains("without a signature"), "{packed}");
    let file = at("toucher-0.1.0.conjure-plugin");
    run(&["sign", &file, "--key", &at("key")]);
    let package = Package::open(home.join("toucher-0.1.0.conjure-plugin").as_path()).unwrap();
    let described = package.description();
    assert_eq!(described.license.as_deref(), Some("MIT"));
    let [text, sbom] = described.files.as_slice() else {
        panic!("{:?}", described.files);
    };
    assert_eq!(package.file(text).unwrap(), b"Do what you like.");
    let sbom: Value = serde_json::from_slice(&package.file(sbom).unwrap()).unwrap();
    assert_eq!(sbom["components"].as_array().unwrap().len(), 1);
    assert_eq!(sbom["components"][0]["name"], "serde");
    run(&["publish", &file, &at("public")]);

    let team = Team::new();
    let public = at("public");
    let found = team.run_to_success(["search", "touch", "--index", &public]);
    assert!(found.contains("toucher  0.1.0"), "{found}");
    let nothing = team.run(["search", "touch", "elsewhere", "--index", &public]);
    assert_eq!(nothing.code, Some(1));
    let key = at("key.pub");
    let verified = team.run_to_success(["verify", &file, "--signer", &key]);
    assert!(verified.contains("licence    MIT"), "{verified}");
    team.run_to_success(["install", "toucher", "--index", &public, "--signer", &key]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    assert!(!team.take_touched(), "a stranger's code runs elsewhere");
    let list: Value = serde_json::from_str(&team.run_to_success(["list", "--json"])).unwrap();
    assert_eq!(list["plugins"][0]["isolation"], "process");
}

#[test]
fn the_same_contents_are_the_same_package() {
    let publisher = Publisher::new();
    let package = || fs::read(publisher.unsigned("0.1.0")).unwrap();
    assert_eq!(package(), package());
}

/// The digest of the package that the test below makes. It changes with the form of packages, or with what
/// compresses them: whoever changes it says so, since locks and indexes name packages by their digests.
const GOLDEN: &str = "1f7683124b92c7258d786e1299f35cb18fff0f24e5befc6367513f4010d5ff36";

#[test]
fn a_package_has_the_same_bytes_on_every_day_and_machine() {
    let text = "---\nname: fixed\ndescription: The same bytes on every machine\nlicense: MIT\n\
                metadata:\n  version: \"1.0.0\"\n---\nSay what day it is.\n";
    for (zone, written) in [("UTC", 1_000_000_000), ("Asia/Tokyo", 1_700_000_000)] {
        let workspace = Workspace::new().unwrap();
        let dir = workspace.root().join("fixed");
        fs::create_dir_all(dir.join("references")).unwrap();
        for (name, text) in [("SKILL.md", text), ("references/days.md", "Any day.\n")] {
            fs::write(dir.join(name), text).unwrap();
            let file = fs::File::options().write(true).open(dir.join(name));
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(written);
            file.unwrap().set_modified(time).unwrap();
        }
        let (dir, out) = (dir.display().to_string(), workspace.root());
        let packed = cli(["plugin", "pack", &dir, "--out", &out.display().to_string()])
            .workspace(&workspace)
            .env("TZ", zone)
            .run()
            .unwrap();
        assert_eq!(packed.code, Some(0), "{}", packed.snapshot());
        let package = Package::open(&out.join("fixed-1.0.0.conjure-plugin")).unwrap();
        assert_eq!(package.sha256().to_string(), GOLDEN, "in {zone}");
    }
}

#[test]
fn a_signer_is_accepted_by_name_once_and_another_one_is_not() {
    let (author, other) = (Publisher::new(), Publisher::new());
    let team = Team::new();
    let first = author.package("0.1.0").display().to_string();
    let refused = team.run(["install", &first]);
    assert_eq!(refused.code, Some(1));
    let hint = format!("--signer {}", author.key());
    assert!(refused.stdout.contains(&hint), "{}", refused.stdout);
    team.run_to_success(["install", &first, "--signer", &author.key()]);

    // What the signer said before speaks for what it says next.
    let next = author.package("0.2.0").display().to_string();
    team.run_to_success(["install", &next, "--yes"]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
    let foreign = other.package("0.3.0").display().to_string();
    let unsigned = other.unsigned("0.3.0").display().to_string();
    for args in [
        &["install", &foreign, "--yes"][..],
        &["install", &foreign, "--yes", "--signer", &author.key()],
        &["install", &unsigned, "--yes"],
        &["install", &unsigned, "--unsigned"],
    ] {
        let refused = cli([&["plugin"][..], args].concat());
        let refused = refused.workspace(&team.workspace).run().unwrap();
        assert_eq!(refused.code, Some(1), "{args:?}: {}", refused.snapshot());
        assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
    }
    // Neither is the library alone.
    let library = author.write("lib.so", &versioned("toucher", "0.3.0"));
    let refused = team.run(["add", &library.display().to_string()]);
    assert!(
        refused.stdout.contains("and nobody signed this one"),
        "{}",
        refused.stdout
    );
    team.run_to_success(["install", &foreign, "--yes", "--signer", &other.key()]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.3.0"));
}

#[test]
fn tools_that_look_otherwise_and_downgrades_are_shown_and_have_to_be_allowed() {
    let author = Publisher::new();
    let team = Team::new();
    let old = author.package("0.1.0").display().to_string();
    let new = author.package("0.2.0").display().to_string();
    team.run_to_success(["install", &old, "--signer", &author.key()]);
    let refused = team.run(["install", &new]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    let shown = &refused.stderr;
    assert!(shown.contains("0.1.0 → 0.2.0"), "{shown}");
    assert!(
        shown.contains("+ Runs a command. Grammar: any command, whatever"),
        "{shown}"
    );
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    let refused = team.run(["install", &new, "--json"]);
    let told: Value = serde_json::from_str(&refused.stdout).unwrap();
    let details = told["refused"][0]["difference"]["details"].as_array();
    let is_new = |it: &Value| it.as_str().unwrap().contains("+ Runs a command");
    assert!(details.unwrap().iter().any(is_new), "{told}");
    team.run_to_success(["install", &new, "--yes"]);
    let refused = team.run(["install", &old]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(refused.stderr.contains("a downgrade"), "{}", refused.stderr);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));

    let mut terminal = cli(["plugin", "install", &old])
        .workspace(&team.workspace)
        .on_terminal()
        .start()
        .unwrap();
    terminal.wait_for_stdout("[n]o: ").unwrap();
    terminal.send_line("y").unwrap();
    let terminal = terminal.wait().unwrap();
    assert_eq!(terminal.code, Some(0), "{}", terminal.snapshot());
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
}

#[test]
fn a_manifest_that_is_not_the_librarys_is_found_before_it_is_installed() {
    let author = Publisher::new();
    let team = Team::new();
    let lying = author.with_manifest("0.1.0", |manifest| {
        manifest.description = "Harmless".to_owned();
    });
    let lying = lying.display().to_string();
    let refused = team.run(["install", &lying, "--signer", &author.key()]);
    assert!(
        refused.stdout.contains("is not the one that"),
        "{}",
        refused.stdout
    );
    assert_eq!(team.loaded_version(), None);
}

#[test]
fn a_lock_makes_another_machine_have_the_same() {
    let author = Publisher::new();
    let (one, two) = (Team::new(), Team::new());
    let package = author.package("0.1.0").display().to_string();
    let lock = author.path("conjure.lock").display().to_string();
    one.run_to_success([
        "install",
        &package,
        "--signer",
        &author.key(),
        "--lock",
        &lock,
    ]);
    let asked = two.run(["install", "--lock", &lock]);
    assert_eq!(asked.code, Some(2), "{}", asked.snapshot());
    assert!(asked.stderr.contains(&author.key()), "{}", asked.stderr);
    assert_eq!(two.loaded_version(), None);
    two.run_to_success(["install", "--lock", &lock, "--yes"]);
    assert_eq!(two.loaded_version().as_deref(), Some("0.1.0"));
    let locks = [one.lock(), two.lock(), author.path("conjure.lock")];
    let locks = locks.map(|lock| {
        let text = fs::read_to_string(lock).unwrap();
        // What only this machine found out.
        let lines = text.lines().filter(|line| !line.starts_with("manifest"));
        let text = lines.collect::<Vec<_>>().join("\n");
        // Beside its own lock a package is named by its path from there.
        text.replace(&format!("{}/", author.dir().display()), "./")
    });
    assert_eq!(locks[0], locks[1]);
    assert_eq!(locks[0], locks[2]);

    // What the lock names comes back, whatever became of the library.
    let altered: [&dyn Fn(); 3] = [
        &|| fs::write(two.library(), "something else").unwrap(),
        &|| fs::write(two.library(), versioned("toucher", "0.2.0")).unwrap(),
        &|| fs::remove_file(two.library()).unwrap(),
    ];
    for alter in altered {
        alter();
        assert_eq!(two.loaded_version(), None);
        // It was allowed when it was installed.
        two.run_to_success(["install"]);
        assert_eq!(two.loaded_version().as_deref(), Some("0.1.0"));
        let files = fs::read_dir(two.data_dir().join("plugins")).unwrap();
        assert_eq!(files.count(), 1, "in the place of what was altered");
    }
}

#[test]
fn upgrades_come_from_where_the_plugin_came_from_and_can_be_put_back() {
    let author = Publisher::new();
    let team = Team::new();
    let index = author.path("public");
    fs::create_dir(&index).unwrap();
    let index = index.display().to_string();
    let publish = |version: &str| {
        let package = author.package(version).display().to_string();
        team.run_to_success(["publish", &package, &index]);
    };
    publish("0.1.0");
    team.run_to_success([
        "install",
        "toucher",
        "--index",
        &index,
        "--signer",
        &author.key(),
    ]);
    let same = team.run_to_success(["upgrade", "--index", &index]);
    assert!(same.contains("toucher: nothing newer"), "{same}");
    publish("0.2.0");
    let asked = team.run(["upgrade", "--index", &index]);
    assert_eq!(asked.code, Some(1), "{}", asked.snapshot());
    let upgraded = team.run_to_success(["upgrade", "toucher", "--index", &index, "--yes"]);
    assert!(upgraded.contains("0.1.0 → 0.2.0"), "{upgraded}");
    assert!(
        fs::read_to_string(team.lock())
            .unwrap()
            .contains("toucher@0.2.0")
    );
    team.run_to_success(["rollback", "toucher", "--yes"]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    let lock = fs::read_to_string(team.lock()).unwrap();
    assert!(lock.contains("toucher@0.1.0"), "{lock}");
    team.run_to_success(["remove", "toucher"]);
    assert!(!fs::read_to_string(team.lock()).unwrap().contains("toucher"));
    let unknown = team.run(["upgrade", "toucher"]);
    assert!(
        unknown.stderr.contains("came in no package"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn an_index_that_is_down_holds_up_no_other() {
    let author = Publisher::new();
    let team = Team::new();
    let index = author.path("public");
    fs::create_dir(&index).unwrap();
    let index = index.display().to_string();
    let package = author.package("0.1.0").display().to_string();
    team.run_to_success(["publish", &package, &index]);
    // Nobody listens at the first port.
    let down = "http://127.0.0.1:1/";
    let found = team.run(["search", "touch", "--index", down, "--index", &index]);
    assert_eq!(found.code, Some(0), "{}", found.snapshot());
    assert!(found.stdout.contains("toucher"), "{}", found.snapshot());
    let note = "an index was left out";
    assert!(found.stderr.contains(note), "{}", found.snapshot());
    let nowhere = team.run(["search", "touch", "--index", down]);
    assert_eq!(nowhere.code, Some(2), "{}", nowhere.snapshot());
    let unknown = team.run(["install", "nothing", "--index", down, "--index", &index]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.snapshot());
    let said = &unknown.stdout;
    assert!(said.contains(&index) && said.contains(down), "{said}");
    let said = team.run_to_success([
        "install",
        "toucher",
        "--index",
        down,
        "--index",
        &index,
        "--signer",
        &author.key(),
    ]);
    assert!(said.contains(note), "{said}");
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
    // Whose it is was agreed to, so nothing is asked; programs are told as well.
    let package = author.package("0.2.0").display().to_string();
    team.run_to_success(["publish", &package, &index]);
    let said = team.run([
        "install", "toucher", "--index", down, "--index", &index, "--yes", "--json",
    ]);
    assert_eq!(said.code, Some(0), "{}", said.snapshot());
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    let unread = said["installed"][0]["unread"][0].as_str().unwrap();
    assert!(unread.contains(down), "{unread}");
}

#[test]
fn what_nobody_signed_is_not_taken_of_another_index_than_is_meant() {
    let author = Publisher::new();
    let team = Team::new();
    let index = author.path("public");
    fs::create_dir(&index).unwrap();
    let index = index.display().to_string();
    let package = author.unsigned("0.1.0").display().to_string();
    team.run_to_success(["publish", &package, &index]);
    // Nobody listens at the first port.
    let down = "http://127.0.0.1:1/";
    let args = ["install", "toucher", "--unsigned", "--yes"];
    let refused = cli([
        &["plugin"][..],
        &args,
        &["--index", down, "--index", &index],
    ]
    .concat())
    .workspace(&team.workspace)
    .run()
    .unwrap();
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    let why = "an index that goes before could not be read";
    assert!(refused.stdout.contains(why), "{}", refused.snapshot());
    assert_eq!(team.loaded_version(), None);
    team.run_to_success([
        "install",
        "toucher",
        "--unsigned",
        "--yes",
        "--index",
        &index,
    ]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
}

#[test]
fn packages_that_are_published_at_once_are_all_in_the_index() {
    let author = Publisher::new();
    let team = Team::new();
    let packages = ["0.1.0", "0.2.0", "0.3.0"].map(|version| author.package(version));
    let packages = packages.map(|package| package.display().to_string());
    let index = author.path("public");
    fs::create_dir(&index).unwrap();
    let index = index.display().to_string();
    std::thread::scope(|scope| {
        for package in packages.iter().cycle().take(9) {
            let (team, index) = (&team, &index);
            scope.spawn(move || team.run_to_success(["publish", package, index]));
        }
    });
    let lines = fs::read_to_string(author.path("public/index.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 3, "one line a version: {lines}");
    let somebody = Publisher::new();
    let other = somebody.package("0.1.0").display().to_string();
    let refused = team.run(["publish", &other, &index]);
    assert!(
        refused.stderr.contains("another version"),
        "{}",
        refused.stderr
    );
    team.run_to_success([
        "install",
        "toucher@0.2.0",
        "--index",
        &index,
        "--signer",
        &author.key(),
    ]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
}

#[test]
fn what_is_installed_of_several_is_told_in_one_document() {
    let (author, other) = (Publisher::new(), Publisher::new());
    let team = Team::new();
    let good = author.package("0.1.0").display().to_string();
    let bad = other.package("0.2.0").display().to_string();
    let nothing = author.path("nothing.conjure-plugin").display().to_string();
    let key = author.key();
    let output = team.run(["install", &good, &bad, &nothing, "--json", "--signer", &key]);
    assert_eq!(output.code, Some(2), "{}", output.snapshot());
    let told: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(told["installed"][0]["plugin"], "toucher");
    assert_eq!(told["refused"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(team.run(["install", &bad]).code, Some(1));
}

#[test]
fn a_plugin_that_is_in_two_files_is_removed_with_both() {
    let author = Publisher::new();
    let team = Team::new();
    let package = author.package("0.1.0").display().to_string();
    team.run_to_success(["install", &package, "--signer", &author.key()]);
    fs::copy(team.library(), team.data_dir().join("plugins/aaa.so")).unwrap();
    team.run_to_success(["remove", "toucher"]);
    let files = fs::read_dir(team.data_dir().join("plugins")).unwrap();
    assert_eq!(files.count(), 0);
    assert_eq!(team.loaded_version(), None);
}

#[test]
fn what_nobody_knows_any_more_is_not_put_back_without_being_said() {
    let author = Publisher::new();
    let team = Team::new();
    let packages = ["0.1.0", "0.2.0"].map(|it| author.package(it).display().to_string());
    team.run_to_success(["install", &packages[0], "--signer", &author.key()]);
    team.run_to_success(["install", &packages[1], "--yes"]);
    // Copies that nobody uses go after some weeks, and with them what is known of their plugins.
    fs::remove_dir_all(team.data_dir().join("store")).unwrap();
    let refused = team.run(["rollback", "toucher"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains("is not known"),
        "{}",
        refused.stdout
    );
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
    team.run_to_success(["rollback", "toucher", "--yes"]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
}

#[test]
fn what_a_package_says_of_itself_is_no_line_of_the_programs() {
    let author = Publisher::new();
    let team = Team::new();
    let forged = "  signed by  somebody, trusted";
    let lying = author.with_manifest("0.1.0", |manifest| {
        manifest.description = format!("Harmless\n{forged}");
        for tool in &mut manifest.tools {
            tool.description = format!("Harmless\n{forged}");
        }
    });
    let lying = lying.display().to_string();
    let index = author.path("public");
    fs::create_dir(&index).unwrap();
    let index = index.display().to_string();
    team.run_to_success(["publish", &lying, &index]);
    for output in [
        team.run(["verify", &lying]),
        team.run(["search", "--index", &index]),
        team.run(["install", &lying, "--signer", &author.key()]),
    ] {
        let said = format!("{}\n{}", output.stdout, output.stderr);
        assert!(said.contains("Harmless"), "{said}");
        assert!(!said.lines().any(|line| line.starts_with(forged)), "{said}");
    }
}

#[test]
fn a_lock_that_cannot_be_used_is_found_before_anything_is_installed() {
    let author = Publisher::new();
    let team = Team::new();
    let package = author.package("0.1.0").display().to_string();
    let missing = author.path("missing/conjure.lock").display().to_string();
    let broken = author.write("broken.lock", b"what").display().to_string();
    for lock in [&missing, &broken] {
        let refused = team.run([
            "install",
            &package,
            "--lock",
            lock,
            "--signer",
            &author.key(),
        ]);
        assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
        assert_eq!(team.loaded_version(), None);
    }
    let nothing = team.run(["install", "--lock", &missing]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.snapshot());
    assert!(
        nothing.stderr.contains("there is no lock"),
        "{}",
        nothing.stderr
    );
}

#[test]
fn the_removal_of_what_was_altered_says_that_nothing_of_it_is_kept() {
    let author = Publisher::new();
    let team = Team::new();
    let package = author.package("0.1.0").display().to_string();
    team.run_to_success(["install", &package, "--signer", &author.key()]);
    fs::write(team.library(), "something else").unwrap();
    let unknown = team.run(["remove", "other"]);
    let installed = "installed are: toucher";
    assert!(unknown.stderr.contains(installed), "{}", unknown.stderr);
    let removed = team.run_to_success(["remove", "toucher"]);
    assert!(removed.contains("0.1.0 removed"), "{removed}");
    assert!(removed.contains("nothing is kept"), "{removed}");
    assert!(!removed.contains("rollback"), "{removed}");
    let history = team.run_to_success(["history", "toucher"]);
    assert!(history.contains("nothing is kept"), "{history}");
}

#[test]
fn an_index_that_is_named_has_newer_ones_of_what_came_from_elsewhere() {
    let author = Publisher::new();
    let team = Team::new();
    let nothing = team.run_to_success(["upgrade"]);
    assert!(
        nothing.contains("No plugin here came in a package"),
        "{nothing}"
    );
    let index = author.path("public");
    fs::create_dir(&index).unwrap();
    let index = index.display().to_string();
    let old = author.package("0.1.0").display().to_string();
    let new = author.package("0.2.0").display().to_string();
    team.run_to_success(["install", &old, "--signer", &author.key()]);
    // One that does not name it leaves it at where it came from.
    fs::write(author.path("public/index.jsonl"), "\u{feff}").unwrap();
    let same = team.run_to_success(["upgrade", "--index", &index]);
    assert!(same.contains("nothing newer"), "{same}");
    team.run_to_success(["publish", &new, &index]);
    team.run_to_success(["upgrade", "--yes", "--index", &index]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
}

#[test]
fn a_package_and_a_plugin_in_none_are_sent_to_the_verb_that_takes_them() {
    let author = Publisher::new();
    let team = Team::new();
    let package = author.package("0.1.0").display().to_string();
    for verb in ["add", "check", "show", "trust"] {
        let refused = team.run([verb, &package]);
        assert_ne!(refused.code, Some(0), "{verb}: {}", refused.snapshot());
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("`conjure plugin install`"), "{verb}: {said}");
    }
    let library = author.write("lib.so", &versioned("toucher", "0.1.0"));
    let refused = team.run(["install", &library.display().to_string(), "--unsigned"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    assert!(
        refused.stdout.contains("`conjure plugin add`"),
        "{}",
        refused.stdout
    );
}
