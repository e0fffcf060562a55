//! Logins of several processes at once.

use std::time::Duration;

use conjure_kit::{Cli, MockMcp, Workspace, cli, visit};

use crate::own::session_of;

/// How often tokens are renewed.
const ROUNDS: usize = 5;

fn conjure(workspace: &Workspace, verb: &str) -> Cli {
    let arguments = verb.split(' ').chain(["--config", "session.toml"]);
    let conjure = cli(arguments).workspace(workspace);
    conjure.deadline(Duration::from_secs(60))
}

fn log_in(workspace: &Workspace) {
    let login = conjure(workspace, "mcp login s --no-browser").start();
    let login = login.unwrap();
    let shown = login.wait_for_stderr("paste the address").unwrap();
    let page = shown.lines().map(str::trim);
    let page = page.clone().find(|line| line.starts_with("http://"));
    assert_eq!(visit(&visit(page.unwrap()).unwrap()), None);
    assert_eq!(login.wait().unwrap().code, Some(0));
}

#[test]
fn two_processes_that_renew_at_once_burn_no_refresh_token() {
    // A second use of a refresh token ends everything that was given.
    let server = MockMcp::over_http(&["oauth", "rotates"]).unwrap();
    let workspace = session_of(&format!("url = \"{}\"", server.url()));
    log_in(&workspace);
    for round in 1..=ROUNDS {
        server.ask("POST /expire").unwrap();
        let both = [(); 2].map(|()| conjure(&workspace, "mcp check").start().unwrap());
        for process in both {
            let output = process.wait().unwrap();
            assert_eq!(output.code, Some(0), "round {round}: {}", output.stdout);
        }
        assert_eq!(server.ask("GET /granted").unwrap(), format!("1 {round}"));
    }
}
