//! A few kills on each database. `cargo xtask chaos --kills 1000` does many.

use conjure_chaos::{Database, Hosts, Options, Phase, Postgres};

/// Kills on each database.
const KILLS: u64 = 25;

fn kill(database: Database) {
    // Named in what it prints, so that it can be run again.
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let options = Options {
        kills: KILLS,
        seed,
        first: 0,
        database,
        hosts: Hosts::Both,
        containers: true,
        program: env!("CARGO_BIN_EXE_conjure-chaos").into(),
        report: |line| println!("{line}"),
    };
    let summary = conjure_chaos::run(&options).unwrap_or_else(|error| panic!("{error:#}"));
    println!("{summary:?}");
    assert_eq!(summary.kills, KILLS);
    // Kills of hosts that did nothing would show nothing.
    let idle = summary.phases.of(Phase::Idle) + summary.phases.of(Phase::Starting);
    let sessions = 2 * KILLS;
    assert!(idle < sessions, "{}", summary.phases);
    assert!(summary.events > 100 && summary.calls > 10, "{summary:?}");
}

#[test]
fn nothing_is_lost_or_repeated_or_left_behind_when_a_host_on_sqlite_is_killed() {
    kill(Database::Sqlite);
}

#[test]
fn nothing_is_lost_or_repeated_or_left_behind_when_a_host_on_postgresql_is_killed() {
    if Postgres::is_installed() {
        kill(Database::Postgres);
    } else {
        println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
    }
}
