//! Tests that the command line takes no option which would do nothing where it stands. clap passes over
//! `requires` where what it names is excluded by another option, so each such option excludes that too.

use clap::CommandFactory as _;

use super::Cli;

fn is_taken(line: &str) -> bool {
    Cli::command().try_get_matches_from(line.split(' ')).is_ok()
}

#[test]
fn an_option_that_would_do_nothing_there_is_refused() {
    let all = [
        (
            "conjure session create --auth a --model m --thread t",
            "conjure session create --auth a --model m --fork t",
            &["--at 3"][..],
        ),
        (
            "conjure mcp serve --stdio",
            "conjure mcp serve --http 127.0.0.1:0",
            &[
                "--token-env NAME",
                "--allow-host box.example",
                "--allow-origin https://app.example",
                "--max-sessions 3",
                "--idle 3",
            ],
        ),
        (
            "conjure plugin trust lib.so",
            "conjure plugin trust --signer key",
            &["--name x"],
        ),
        (
            "conjure serve --link",
            "conjure serve",
            &[
                "--listen 127.0.0.1:0",
                "--token-file tokens",
                "--max-connections 3",
                "--grace 5",
                "--request-timeout 5",
                "--plugin x.so",
                "--plugin-dir plugins",
                "--isolation process",
            ],
        ),
        (
            "conjure db import all.jsonl",
            "conjure db import --from the-maestro postgres://db/x",
            &["--auth work", "--dry-run"],
        ),
    ];
    for (without, with, options) in all {
        assert!(is_taken(without), "{without}");
        for option in options {
            assert!(is_taken(&format!("{with} {option}")), "{with} {option}");
            assert!(
                !is_taken(&format!("{without} {option}")),
                "{without} {option}"
            );
        }
    }
    assert!(!is_taken("conjure run --max-iterations 0 Hi."));
    assert!(is_taken("conjure run --max-iterations 1 Hi."));
}
