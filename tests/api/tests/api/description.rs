//! The description of the API: the file that is checked in is what the server says.

use std::fs;

use conjure_kit::repo_root;

use crate::server::Server;

/// Set to 1: the file is written anew.
const WRITE: &str = "CONJURE_WRITE_FIXTURES";

#[test]
fn the_description_is_the_one_that_is_checked_in() {
    let server = Server::start();
    let reply = server.get("/api/v1/openapi.json").is(200);
    assert_eq!(reply.json()["openapi"], "3.1.0");
    let served = String::from_utf8(reply.body).unwrap();
    let path = repo_root().join("conjure-host/docs/openapi.json");
    if std::env::var(WRITE).is_ok_and(|value| value == "1") {
        fs::write(&path, &served).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let place = kept.lines().zip(served.lines()).position(|(a, b)| a != b);
    assert!(
        kept == served,
        "conjure-host/docs/openapi.json differs from line {} on; {WRITE}=1 writes it anew",
        place.unwrap_or_else(|| kept.lines().count()) + 1
    );
}
