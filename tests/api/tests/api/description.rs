//! The description of the API: a server shows the file that is checked in. Whether the file is what
//! the operations say is a test beside them.

use std::fs;

use conjure_kit::repo_root;

use crate::server::Server;

#[test]
fn the_description_is_the_one_that_is_checked_in() {
    let server = Server::start();
    let reply = server.get("/api/v1/openapi.json").is(200);
    assert_eq!(reply.json()["openapi"], "3.1.0");
    let kept = fs::read(repo_root().join("conjure-host/docs/openapi.json")).unwrap();
    assert!(reply.body == kept, "the server shows another description");
}
