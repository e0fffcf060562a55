//! Installations that are killed in their middle, and several at once.

use std::fs;
use std::time::Duration;

use conjure_kit::cli;
use conjure_plugin_tests::{Publisher, Team};

fn left(team: &Team) -> Vec<String> {
    let dirs = [
        team.data_dir(),
        team.data_dir().join("plugins"),
        team.data_dir().join("plugin-history"),
    ];
    let entries = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap());
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.ends_with(".tmp") || name == "pending.json")
        .collect()
}

#[test]
fn an_installation_that_is_killed_leaves_the_old_or_the_new() {
    let author = Publisher::new();
    let team = Team::new();
    let packages = ["0.1.0", "0.2.0"].map(|it| author.package(it).display().to_string());
    team.run_to_success(["install", &packages[0], "--signer", &author.key()]);
    let mut seen = Vec::new();
    for number in 0..40_u64 {
        let package = &packages[usize::try_from(number % 2).unwrap()];
        let running = cli(["plugin", "install", package, "--yes"])
            .workspace(&team.workspace)
            .start()
            .unwrap();
        let pid = running.pid().unwrap();
        // Where it is by then is for the machine to say; all that matters is what is left.
        std::thread::sleep(Duration::from_millis(number * 17 % 400));
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let _ = running.wait();
        let there = team.loaded_version();
        assert!(
            there.is_some(),
            "after {number}: neither the old nor the new is used"
        );
        assert_eq!(left(&team), [""; 0], "after {number}");
        seen.push(there);
    }
    // What was killed can be done again, and what was there be put back.
    team.run_to_success(["install", &packages[0], "--yes"]);
    team.run_to_success(["install", &packages[1], "--yes"]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.2.0"));
    team.run_to_success(["rollback", "toucher", "--yes"]);
    assert_eq!(team.loaded_version().as_deref(), Some("0.1.0"));
}

#[test]
fn of_two_installations_at_once_one_is_there_whole() {
    let author = Publisher::new();
    let team = Team::new();
    let packages = ["0.1.0", "0.2.0"].map(|it| author.package(it).display().to_string());
    let key = author.key();
    for _ in 0..4 {
        let codes: Vec<Option<i32>> = std::thread::scope(|scope| {
            let installing: Vec<_> = packages
                .iter()
                .map(|package| {
                    let (team, key) = (&team, &key);
                    scope.spawn(move || team.run(["install", package, "--yes", "--signer", key]))
                })
                .collect();
            let ended = installing.into_iter().map(|one| one.join().unwrap().code);
            ended.collect()
        });
        // The one that was overtaken may say so.
        assert!(codes.contains(&Some(0)), "{codes:?}");
        assert!(team.loaded_version().is_some());
        assert_eq!(left(&team), [""; 0]);
        let files = fs::read_dir(team.data_dir().join("plugins")).unwrap();
        assert_eq!(files.count(), 1);
    }
}
