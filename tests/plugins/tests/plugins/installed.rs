//! Plugins that are installed, upgraded, removed and put back.

use std::path::PathBuf;

use conjure_host::plugin::{
    InstallAction, InstallChange, InstallError, InstalledPlugins, InstalledState, LibraryTarget,
    LockedPlugin, PluginError, PluginFile, Sha256,
};
use conjure_kit::{Workspace, cli};
use conjure_plugin_tests::{roll_back, versioned};
use tempfile::TempDir;

struct Stage {
    dir: TempDir,
    installed: InstalledPlugins,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let installed = InstalledPlugins::of(dir.path());
        Self { dir, installed }
    }

    fn build(&self, version: &str) -> PluginFile {
        let path = self.dir.path().join(format!("{version}.so"));
        std::fs::write(&path, versioned("teller", version)).unwrap();
        PluginFile::read(&path, true).unwrap()
    }

    fn add(&self, version: &str) -> InstallChange {
        self.installed.add(&self.build(version)).unwrap().unwrap()
    }

    fn roll_back(&self, wanted: Option<&str>) -> Result<InstallChange, InstallError> {
        roll_back(&self.installed, "teller", wanted)
    }

    /// The version that is there.
    fn there(&self) -> Option<String> {
        let file = self.installed.file("teller").unwrap();
        file.map(|file| file.header.version)
    }

    fn files(&self) -> Vec<PathBuf> {
        conjure_host::fs::entries(self.installed.dir()).unwrap()
    }
}

fn versions(change: &InstallChange) -> (Option<&str>, Option<&str>) {
    (
        change.from.as_ref().map(|build| build.version.as_str()),
        change.to.as_ref().map(|build| build.version.as_str()),
    )
}

#[test]
fn what_was_replaced_or_removed_can_be_put_back() {
    let stage = Stage::new();
    assert_eq!(versions(&stage.add("0.2.0")), (None, Some("0.2.0")));
    let upgrade = stage.add("0.3.0");
    assert_eq!(versions(&upgrade), (Some("0.2.0"), Some("0.3.0")));
    assert_eq!(stage.files().len(), 1, "in the place of the one before");
    assert!(
        stage
            .installed
            .add(&stage.build("0.3.0"))
            .unwrap()
            .is_none()
    );

    let back = stage.roll_back(None).unwrap();
    assert_eq!(back.action, InstallAction::Rollback);
    assert_eq!(stage.there().as_deref(), Some("0.2.0"));
    stage.roll_back(Some("0.3.0")).unwrap();
    assert_eq!(stage.there().as_deref(), Some("0.3.0"));

    let gone = stage.installed.remove("teller").unwrap();
    assert_eq!(versions(&gone), (Some("0.3.0"), None));
    assert_eq!((stage.there(), stage.files().len()), (None, 0));
    stage.roll_back(None).unwrap();
    assert_eq!(stage.there().as_deref(), Some("0.3.0"), "what was removed");
    let history = stage.installed.history(Some("teller")).unwrap();
    let actions: Vec<InstallAction> = history.iter().map(|change| change.action).collect();
    let (add, back) = (InstallAction::Add, InstallAction::Rollback);
    assert_eq!(actions, [add, add, back, back, InstallAction::Remove, back]);
    assert!(stage.installed.history(Some("other")).unwrap().is_empty());
}

#[test]
fn every_file_of_the_name_that_goes_is_kept() {
    let stage = Stage::new();
    stage.add("0.1.0");
    let by_hand = |version: &str| {
        let path = stage.installed.dir().join(format!("lib{version}.so"));
        std::fs::write(path, versioned("teller", version)).unwrap();
    };
    by_hand("0.2.0");
    by_hand("0.3.0");
    stage.add("0.4.0");
    assert_eq!(stage.files().len(), 1);
    by_hand("0.5.0");
    stage.installed.remove("teller").unwrap();
    assert_eq!(stage.files().len(), 0);
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0"] {
        stage.roll_back(Some(version)).unwrap();
        assert_eq!(stage.there().as_deref(), Some(version));
    }
}

#[test]
fn of_several_files_of_a_name_the_highest_version_is_there() {
    let stage = Stage::new();
    stage.add("0.2.0");
    for (name, version) in [("liba.so", "0.9.0"), ("libz.so", "0.10.0")] {
        let path = stage.installed.dir().join(name);
        std::fs::write(path, versioned("teller", version)).unwrap();
    }
    assert_eq!(stage.there().as_deref(), Some("0.10.0"));
    let gone = stage.installed.remove("teller").unwrap();
    assert_eq!(versions(&gone), (Some("0.10.0"), None));
    assert_eq!(stage.files().len(), 0);
}

#[test]
fn builds_that_are_worked_on_push_nothing_out_of_what_can_be_put_back() {
    let stage = Stage::new();
    for version in ["0.1.0", "0.2.0", "0.3.0"] {
        stage.add(version);
    }
    stage.add("0.4.0");
    let mut own = stage.build("0.4.0").sha256;
    for patch in 1..=12 {
        let next = stage.build(&format!("0.4.{patch}"));
        assert!(stage.installed.replace_own_build(&next, &own).unwrap());
        own = next.sha256;
    }
    assert_eq!(stage.there().as_deref(), Some("0.4.12"));
    assert_eq!(stage.files().len(), 1);
    assert_eq!(stage.installed.history(Some("teller")).unwrap().len(), 4);
    // Somebody else's build is not theirs to replace.
    stage.roll_back(Some("0.2.0")).unwrap();
    let next = stage.build("0.4.13");
    assert!(!stage.installed.replace_own_build(&next, &own).unwrap());
    assert_eq!(stage.there().as_deref(), Some("0.2.0"));
    for version in ["0.1.0", "0.3.0", "0.4.12"] {
        stage.roll_back(Some(version)).unwrap();
        assert_eq!(stage.there().as_deref(), Some(version));
    }
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let stage = Stage::new();
    stage.add("0.2.0");
    let error = stage.installed.remove("tellr").unwrap_err().to_string();
    assert!(
        error.contains("`tellr`") && error.contains("installed are: teller"),
        "{error}"
    );
    let error = stage.installed.reload("tellr").unwrap_err();
    assert!(matches!(error, InstallError::NotInstalled { .. }));
    let error = stage.roll_back(None).unwrap_err().to_string();
    assert!(
        error.contains("earlier build of `teller`") && error.contains("none"),
        "{error}"
    );
    stage.add("0.3.0");
    let error = stage.roll_back(Some("9.0.0")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("version 9.0.0") && error.contains("kept are: 0.2.0"),
        "{error}"
    );
    assert_eq!(stage.there().as_deref(), Some("0.3.0"));
}

#[test]
fn a_kept_library_that_was_altered_is_not_put_back() {
    let stage = Stage::new();
    stage.add("0.2.0");
    stage.add("0.3.0");
    let kept = conjure_host::fs::entries(stage.dir.path().join("plugin-history")).unwrap();
    let kept: Vec<_> = kept
        .into_iter()
        .filter(|path| path.extension() == Some("so".as_ref()))
        .collect();
    assert_eq!(kept.len(), 1);
    let mut bytes = std::fs::read(&kept[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&kept[0], bytes).unwrap();
    let error = stage.roll_back(None).unwrap_err();
    assert!(matches!(error, InstallError::Altered { .. }), "{error}");
    assert_eq!(stage.there().as_deref(), Some("0.3.0"));
}

#[test]
fn a_change_is_taken_back_only_while_it_is_the_newest() {
    let stage = Stage::new();
    stage.add("0.2.0");
    let mine = stage.add("0.3.0");
    stage.roll_back(None).unwrap();
    assert!(
        !stage.installed.undo(&mine).unwrap(),
        "another build is there"
    );
    // The same build, and somebody else's change.
    stage.add("0.3.0");
    assert!(!stage.installed.undo(&mine).unwrap());
    assert_eq!(stage.there().as_deref(), Some("0.3.0"));
    let others = stage.installed.history(None).unwrap();
    assert_eq!(others.len(), 4);

    stage.installed.remove("teller").unwrap();
    let first = stage.add("0.4.0");
    assert!(stage.installed.undo(&first).unwrap());
    assert_eq!(stage.there(), None);
    let newest = stage.installed.history(None).unwrap().pop().unwrap();
    assert_eq!(newest.action, InstallAction::Remove);
    stage.roll_back(Some("0.2.0")).unwrap();
    let upgrade = stage.add("0.3.0");
    assert!(stage.installed.undo(&upgrade).unwrap());
    assert_eq!(stage.there().as_deref(), Some("0.2.0"));
}

#[test]
fn a_line_that_a_crash_cut_hides_no_other() {
    let stage = Stage::new();
    stage.add("0.2.0");
    let path = stage.dir.path().join("plugin-history/history.jsonl");
    let mut history = std::fs::read(&path).unwrap();
    history.extend_from_slice(b"{\"at_ms\":17,\"act");
    std::fs::write(&path, history).unwrap();
    stage.add("0.3.0");
    assert_eq!(stage.installed.history(None).unwrap().len(), 2);
    stage.roll_back(None).unwrap();
    assert_eq!(stage.there().as_deref(), Some("0.2.0"));
}

#[test]
fn what_was_agreed_to_is_done_only_while_what_it_was_compared_with_is_there() {
    let stage = Stage::new();
    stage.add("0.1.0");
    stage.add("0.2.0");
    let before = stage.installed.state("teller").unwrap();
    let back = stage.installed.rollback_target("teller", None).unwrap();
    stage.add("0.3.0");
    let errors = [
        stage
            .installed
            .rollback_if_unchanged("teller", &back, &before)
            .unwrap_err(),
        stage
            .installed
            .add_if_unchanged(&stage.build("0.1.0"), &before)
            .unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(error, InstallError::ChangedMeanwhile { .. }),
            "{error}"
        );
    }
    assert_eq!(stage.there().as_deref(), Some("0.3.0"));
    let now = stage.installed.state("teller").unwrap();
    let change = stage.installed.rollback_if_unchanged("teller", &back, &now);
    assert_eq!(
        versions(&change.unwrap()),
        (Some("0.3.0"), Some("0.1.0")),
        "the build that was shown, not the one that was taken away last"
    );
    // The very build that was agreed to may have come meanwhile.
    let before = stage.installed.state("teller").unwrap();
    let build = stage.build("0.2.0");
    stage.installed.add(&build).unwrap().unwrap();
    let change = stage.installed.add_if_unchanged(&build, &before).unwrap();
    assert!(change.is_none());
}

/// What the lock says of a build that came in a package.
fn packaged(build: &PluginFile) -> LockedPlugin {
    LockedPlugin {
        name: build.header.name.clone(),
        version: build.header.version.clone(),
        source: "teller.conjure".to_owned(),
        index: None,
        sha256: Sha256::of(build.header.version.as_bytes()),
        signer: None,
        manifest: None,
        skill: None,
        libraries: [(LibraryTarget::here(), build.sha256)].into(),
    }
}

#[test]
fn a_package_is_installed_only_while_what_it_was_compared_with_is_there() {
    let stage = Stage::new();
    stage.add("0.1.0");
    let before = stage.installed.state("teller").unwrap();
    // By hand, of which no lock tells.
    stage.add("0.2.0");
    let build = stage.build("0.3.0");
    let package = packaged(&build);
    let install =
        |before: &InstalledState| stage.installed.install(&build, package.clone(), before);
    let error = install(&before).unwrap_err();
    assert!(
        matches!(error, InstallError::ChangedMeanwhile { .. }),
        "{error}"
    );
    assert_eq!(stage.there().as_deref(), Some("0.2.0"));
    let now = stage.installed.state("teller").unwrap();
    let change = install(&now).unwrap().unwrap();
    assert_eq!(versions(&change), (Some("0.2.0"), Some("0.3.0")));
    assert!(install(&now).unwrap().is_none(), "the very same package");
}

#[test]
fn one_look_gives_the_state_and_the_file_that_is_there() {
    let stage = Stage::new();
    let (nothing, file) = stage.installed.state_and_file("teller").unwrap();
    assert!(file.is_none());
    stage.add("0.2.0");
    let (state, file) = stage.installed.state_and_file("teller").unwrap();
    assert_ne!(state, nothing);
    assert_eq!(state, stage.installed.state("teller").unwrap());
    assert_eq!(file.unwrap().sha256, stage.build("0.2.0").sha256);
    let upgrade = stage
        .installed
        .add_if_unchanged(&stage.build("0.3.0"), &state);
    assert_eq!(
        versions(&upgrade.unwrap().unwrap()),
        (Some("0.2.0"), Some("0.3.0"))
    );
}

#[test]
#[cfg(target_os = "linux")]
fn of_a_plugin_of_another_name_nothing_behind_the_header_is_judged() {
    let stage = Stage::new();
    let mut library = versioned("teller", "0.2.0");
    // Of the entries of the table of segments: which kind of segment it is, and its flags.
    let count = usize::from(u16::from_le_bytes([library[56], library[57]]));
    for entry in library[64..].chunks_exact_mut(56).take(count) {
        if entry[..4] == [1, 0, 0, 0] {
            entry[4] |= 0b11;
        }
    }
    let path = stage.dir.path().join("altered.so");
    std::fs::write(&path, library).unwrap();
    let refused = |error: &PluginError| matches!(error, PluginError::Incomplete { .. });
    let whole = PluginFile::read(&path, true).unwrap_err();
    assert!(refused(&whole), "{whole}");
    let same = PluginFile::read_of(&path, "teller", true).unwrap_err();
    assert!(refused(&same), "{same}");
    let other = PluginFile::read_of(&path, "keeper", true).unwrap();
    assert!(other.is_none());
}

#[test]
fn ten_at_once_leave_one_plugin_and_a_whole_history() {
    let stage = Stage::new();
    let builds = [stage.build("0.2.0"), stage.build("0.3.0")];
    std::thread::scope(|scope| {
        for number in 0..10 {
            let (installed, build) = (&stage.installed, &builds[number % 2]);
            scope.spawn(move || installed.add(build).unwrap());
        }
    });
    assert_eq!(stage.files().len(), 1);
    let history = stage.installed.history(None).unwrap();
    let mut before = None;
    for change in &history {
        assert_eq!(versions(change).0, before);
        before = versions(change).1;
    }
    assert_eq!(stage.there().as_deref(), before);
}

#[test]
fn of_many_changes_only_the_libraries_of_the_newest_are_kept() {
    let stage = Stage::new();
    stage.add("0.1.0");
    for round in 0..7 {
        for version in ["0.2.0", "0.3.0"] {
            assert_eq!(stage.add(version).to.unwrap().version, version, "{round}");
        }
    }
    let error = stage.roll_back(Some("0.1.0")).unwrap_err();
    assert!(error.to_string().contains("kept are: 0.2.0"), "{error}");
    assert_eq!(stage.installed.history(None).unwrap().len(), 15);
}

#[test]
fn a_build_that_asks_for_more_is_taken_only_where_somebody_says_so() {
    let workspace = Workspace::new().unwrap();
    let put = |version: &str| {
        let path = workspace.root().join(format!("{version}.so"));
        std::fs::write(&path, versioned("counter", version)).unwrap();
        path.display().to_string()
    };
    let (asking, other) = (put("0.1.0"), put("0.2.0"));
    let run = |args: &[&str]| {
        let args = ["plugin"].iter().chain(args).copied();
        let output = cli(args).workspace(&workspace).run().unwrap();
        (output.code, output.stdout + &output.stderr)
    };
    let (code, said) = run(&["add", &asking]);
    assert_eq!(code, Some(1), "nobody allowed the first one: {said}");
    assert!(said.contains("asks for: connections of its own"), "{said}");
    let again = format!("`conjure plugin add {asking} --yes` allows it");
    assert!(said.contains(&again), "{said}");
    let (_, said) = run(&["history"]);
    assert!(said.contains("No plugin was added here yet"), "{said}");
    let (code, said) = run(&["add", &asking, "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("asks for: connections of its own"), "{said}");
    let (code, said) = run(&["add", &asking]);
    assert_eq!(code, Some(0), "the very build was allowed: {said}");
    let (code, said) = run(&["add", &other]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("0.1.0 → 0.2.0"), "{said}");
    assert!(
        said.contains("asks no more for: connections of its own"),
        "{said}"
    );
    for back in [&["add", &asking][..], &["rollback", "counter"]] {
        let (code, said) = run(back);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("connections of its own") && said.contains("--yes"),
            "{said}"
        );
        let (code, said) = run(&[back, &["--yes"]].concat());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("0.2.0 → 0.1.0, a downgrade"), "{said}");
        let (code, said) = run(&["add", &other]);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn tools_that_look_otherwise_are_shown_and_allowed_before_a_host_has_them() {
    let workspace = Workspace::new().unwrap();
    let put = |version: &str| {
        let path = workspace.root().join(format!("{version}.so"));
        std::fs::write(&path, versioned("toucher", version)).unwrap();
        path.display().to_string()
    };
    let (old, new) = (put("0.1.0"), put("0.2.0"));
    let run = |args: &[&str]| {
        let args = ["plugin"].iter().chain(args).copied();
        cli(args).workspace(&workspace).run().unwrap()
    };
    let first = run(&["add", &old]);
    assert_eq!(first.code, Some(0), "{}", first.snapshot());
    assert_eq!(first.stderr, "", "it asks for nothing");
    for refused in [run(&["add", &new]), run(&["add", "--json", &new])] {
        assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
        let said = refused.stdout + &refused.stderr;
        assert!(said.contains("look otherwise: execute"), "{said}");
    }
    let changes = run(&["history", "--json"]).stdout;
    assert_eq!(changes.matches("at_ms").count(), 1, "{changes}");
    let mut terminal = cli(["plugin", "add", &new])
        .workspace(&workspace)
        .on_terminal()
        .start()
        .unwrap();
    terminal.wait_for_stdout("[n]o: ").unwrap();
    terminal.send_line("y").unwrap();
    let terminal = terminal.wait().unwrap();
    assert_eq!(terminal.code, Some(0), "{}", terminal.snapshot());
    let told = terminal.stdout.find("+ Runs a command");
    let taken = terminal.stdout.rfind("0.1.0 → 0.2.0");
    assert!(told.is_some() && told < taken, "{}", terminal.snapshot());
    let refused = run(&["rollback", "toucher"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    let again = "`conjure plugin rollback toucher 0.1.0 --yes` allows it";
    assert!(refused.stdout.contains(again), "{}", refused.snapshot());
    let back = run(&["rollback", "toucher", "--yes"]);
    assert_eq!(back.code, Some(0), "{}", back.snapshot());
}

#[test]
fn what_is_there_and_not_known_any_more_is_not_replaced_by_an_earlier_one_without_a_question() {
    let workspace = Workspace::new().unwrap();
    let put = |version: &str| {
        let path = workspace.root().join(format!("{version}.so"));
        std::fs::write(&path, versioned("toucher", version)).unwrap();
        path.display().to_string()
    };
    let (old, new) = (put("0.1.0"), put("0.2.0"));
    let run = |args: &[&str]| {
        let args = ["plugin"].iter().chain(args).copied();
        cli(args).workspace(&workspace).run().unwrap()
    };
    for args in [&["add", &old][..], &["add", &new, "--yes"]] {
        let added = run(args);
        assert_eq!(added.code, Some(0), "{}", added.snapshot());
    }
    let there = Sha256::of(&std::fs::read(&new).unwrap());
    let kept = format!("store/{there}.manifest.json");
    std::fs::remove_file(workspace.data_dir().join(kept)).unwrap();
    let refused = run(&["rollback", "toucher"]);
    assert_eq!(refused.code, Some(1), "{}", refused.snapshot());
    let unknown = "it is not known any more what it asks for and shows";
    assert!(refused.stdout.contains(unknown), "{}", refused.snapshot());
    let back = run(&["rollback", "toucher", "--yes"]);
    assert_eq!(back.code, Some(0), "{}", back.snapshot());
}
