//! Logins of several processes at once.

use std::time::Duration;

use conjure_kit::{Cli, Workspace, cli};

use crate::own::{OverHttp, http, session_of};

/// How often tokens are renewed.
const ROUNDS: usize = 5;

fn conjure(workspace: &Workspace, verb: &str) -> Cli {
    let arguments = verb.split(' ').chain(["--config", "session.toml"]);
    let conjure = cli(arguments).workspace(workspace);
    conjure.deadline(Duration::from_secs(60))
}

/// Where a page of this machine sends the browser.
fn visit(url: &str) -> Option<String> {
    let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
    let answer = http(address, &format!("GET /{path} HTTP/1.1"), "", "");
    let mut lines = answer.lines();
    let location = lines.find_map(|line| line.strip_prefix("location: "));
    location.map(|location| location.trim().to_owned())
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
    let server = OverHttp::new(&["oauth", "rotates"]);
    let workspace = session_of(&format!("url = \"http://{}/mcp\"", server.address));
    log_in(&workspace);
    for round in 1..=ROUNDS {
        server.ask("POST /expire");
        let both = [(); 2].map(|()| conjure(&workspace, "mcp doctor").start().unwrap());
        for process in both {
            let output = process.wait().unwrap();
            assert_eq!(output.code, Some(0), "round {round}: {}", output.stdout);
        }
        assert_eq!(server.ask("GET /granted"), format!("1 {round}"));
    }
}
