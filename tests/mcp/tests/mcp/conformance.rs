//! The official conformance suite, against Conjure as a server and as a client.
//!
//! Every scenario that the suite scores has to pass, and to have checked something: it also calls
//! a scenario passed in which nothing ran. What it does not score (extensions, newer scenarios) is
//! run and not looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_kit::{build_bin, build_plugin};

use crate::peers::{Peers, finished, succeeded};
use crate::serving::{Served, Serving};

/// How long the suite may take for one side and requirement set; it takes 3 to 20 s.
const LIMIT: Duration = Duration::from_secs(150);

/// A requirement set, with how many scenarios of it the suite scores for a server and a client.
struct Requirements {
    name: &'static str,
    server: usize,
    client: usize,
}

/// Up to 2025-11-25: a handshake, sessions.
const LEGACY: Requirements = Requirements {
    name: "2025-11-25",
    server: 30,
    client: 18,
};

/// Since 2026-07-28: neither.
const MODERN: Requirements = Requirements {
    name: "2026-07-28",
    server: 37,
    client: 32,
};

#[test]
fn the_server_passes_what_is_required_for_2025_11_25() {
    server(&LEGACY);
}

#[test]
fn the_server_passes_what_is_required_for_2026_07_28() {
    server(&MODERN);
}

#[test]
fn the_client_passes_what_is_required_for_2025_11_25() {
    client(&LEGACY);
}

#[test]
fn the_client_passes_what_is_required_for_2026_07_28() {
    client(&MODERN);
}

/// Scenarios that look at a clock. The suite runs all at once, which is more than a small machine
/// does in time, so these run alone.
const TIMED: [&str; 1] = ["sse-retry"];

fn client(requirements: &Requirements) {
    let Some(peers) = Peers::find() else { return };
    let program = build_bin("conjure-mcp-client", "conformance-client").unwrap();
    let plugin = build_plugin("conjure-backend-mcp").unwrap();
    let scored = scored(&peers, "--client", requirements);
    assert_eq!(scored.len(), requirements.client);
    let mut suite = peers.command(&peers.js("conformance"));
    suite
        .env("CONJURE_MCP_PLUGIN", &plugin)
        .args(["client", "--requirements", requirements.name, "--command"])
        .arg(&program);
    let output = finished(suite, LIMIT);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (timed, untimed): (Vec<_>, Vec<_>) = scored
        .into_iter()
        .partition(|name| TIMED.contains(&name.as_str()));
    judge(&untimed, &said);
    for name in timed {
        let mut alone = peers.command(&peers.js("conformance"));
        alone
            .env("CONJURE_MCP_PLUGIN", &plugin)
            .args([
                "client",
                "--scenario",
                &name,
                "--spec-version",
                requirements.name,
            ])
            .arg("--command")
            .arg(&program);
        let output = finished(alone, LIMIT);
        // What it says of one scenario it says there.
        let (said, status) = (String::from_utf8_lossy(&output.stderr), output.status);
        assert!(
            status.success() && checked(&said),
            "{name}, which ended with {status}: {said}"
        );
    }
}

/// Whether a scenario that ran alone checked something, and nothing of that failed: the line
/// `Passed: 3/3, 0 failed, 0 warnings`.
fn checked(said: &str) -> bool {
    let counts = said.lines().find_map(|line| line.strip_prefix("Passed: "));
    let counts = counts.and_then(|counts| counts.split_once('/'));
    counts.is_some_and(|(passed, rest)| {
        passed.parse::<usize>().is_ok_and(|passed| passed > 0) && rest.contains(", 0 failed")
    })
}

fn server(requirements: &Requirements) {
    let Some(peers) = Peers::find() else { return };
    let serving = Serving::fixture();
    passes(&peers, serving.url(), requirements);
}

// A client that asks through two of our servers and our own client between them sees what it would
// see of the server behind.

#[test]
fn a_gateway_passes_what_its_server_does_for_2025_11_25() {
    gateway(&LEGACY);
}

#[test]
fn a_gateway_passes_what_its_server_does_for_2026_07_28() {
    gateway(&MODERN);
}

fn gateway(requirements: &Requirements) {
    let Some(peers) = Peers::find() else { return };
    let behind = Served::fixture();
    let serving = Served::gateway(&behind).over_http();
    passes(&peers, serving.url(), requirements);
}

/// Runs the server's scenarios against an endpoint.
fn passes(peers: &Peers, url: &str, requirements: &Requirements) {
    let scored = scored(peers, "--server", requirements);
    assert_eq!(scored.len(), requirements.server);
    let mut suite = peers.command(&peers.js("conformance"));
    suite.args(["server", "--requirements", requirements.name, "--url", url]);
    let output = finished(suite, LIMIT);
    judge(&scored, &String::from_utf8_lossy(&output.stdout));
}

/// The names of the scenarios that count for a side: the suite's own list, up to what is never
/// scored.
fn scored(peers: &Peers, side: &str, requirements: &Requirements) -> Vec<String> {
    let mut list = peers.command(&peers.js("conformance"));
    list.args(["list", side, "--requirements", requirements.name]);
    let list = succeeded(list, LIMIT);
    let heading = match side {
        "--client" => "Client scenarios",
        _ => "Server scenarios",
    };
    let lines = list.lines().skip_while(|line| !line.starts_with(heading));
    lines
        .skip(1)
        .map_while(|line| line.trim().strip_prefix("- "))
        .map(str::to_owned)
        .collect()
}

/// Fails with everything that the suite said of what did not pass.
fn judge(scored: &[String], said: &str) {
    let results = results(said);
    let failures: Vec<String> = scored
        .iter()
        .filter_map(|name| match results.get(name.as_str()) {
            Some(Checks { passed, failed: 0 }) if *passed > 0 => None,
            Some(checks) => Some(format!("{name}: {checks:?}")),
            None => Some(format!("{name}: it did not run")),
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} scenarios did not pass:\n{}\n\nthe suite said:\n{said}",
        failures.len(),
        scored.len(),
        failures.join("\n")
    );
}

#[derive(Debug, PartialEq)]
struct Checks {
    passed: usize,
    failed: usize,
}

/// The lines `✓ ping: 1 passed, 0 failed` of the suite's summary.
fn results(said: &str) -> BTreeMap<&str, Checks> {
    let summary = said.split_once("SUMMARY ===").map_or("", |(_, rest)| rest);
    let line = |line| {
        let line: &str = line;
        let rest = line.strip_prefix(['✓', '✗'])?.trim();
        let (name, counts) = rest.split_once(": ")?;
        let (passed, failed) = counts.split_once(" passed, ")?;
        let failed = failed.split(' ').next()?;
        let checks = Checks {
            passed: passed.parse().ok()?,
            failed: failed.parse().ok()?,
        };
        Some((name, checks))
    };
    summary.lines().filter_map(line).collect()
}

#[test]
fn what_the_suite_says_is_read_and_an_empty_pass_is_none() {
    let said = "✓ before: 9 passed, 0 failed\n=== SUITE SUMMARY ===\n\n✓ ping: 1 passed, 0 failed\n\
                ✗ auth/var-1: 2 passed, 3 failed, 1 warnings\n✓ nothing: 0 passed, 0 failed\n\
                \nTotal: 3 passed, 3 failed\n  ✗ auth/other (extension)\n";
    let checks = |passed, failed| Checks { passed, failed };
    let expected = [
        ("auth/var-1", checks(2, 3)),
        ("nothing", checks(0, 0)),
        ("ping", checks(1, 0)),
    ];
    assert_eq!(results(said), BTreeMap::from(expected));
    let judged = |name: &str| {
        let scored = [name.to_owned()];
        std::panic::catch_unwind(|| judge(&scored, said)).is_ok()
    };
    let passed = ["ping", "auth/var-1", "nothing", "absent"].map(judged);
    assert_eq!(passed, [true, false, false, false]);
    let alone = |line: &str| checked(&format!("Test Results:\n{line}\n"));
    assert!(alone("Passed: 3/3, 0 failed, 0 warnings"));
    assert!(!alone("Passed: 0/0, 0 failed, 0 warnings"));
    assert!(!alone("Passed: 2/3, 1 failed, 0 warnings") && !alone(""));
}
