//! The description of the API: a server shows the file that is checked in. Whether the file is what
//! the operations say is a test beside them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;

use conjure_kit::repo_root;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::server::Server;

#[test]
fn the_description_is_the_one_that_is_checked_in() {
    let server = Server::start();
    let reply = server.get("/api/v1/openapi.json").is(200);
    assert_eq!(reply.json()["openapi"], "3.1.0");
    let kept = fs::read(repo_root().join("conjure-host/docs/openapi.json")).unwrap();
    assert!(reply.body == kept, "the server shows another description");

    let packed = [("accept-encoding", "br, gzip;q=0.5")];
    let reply = server.ask("GET", "/api/v1/openapi.json", &packed, "");
    let reply = reply.is(200);
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert_eq!(reply.header("vary"), Some("accept-encoding"));
    let mut text = Vec::new();
    let mut unpacked = GzDecoder::new(reply.body.as_slice());
    unpacked.read_to_end(&mut text).unwrap();
    assert!(text == kept, "what is packed is another description");
}

#[test]
fn what_is_described_as_part_of_a_path_stands_in_it_and_the_other_way_round() {
    let described = fs::read(repo_root().join("conjure-host/docs/openapi.json")).unwrap();
    let described: Value = serde_json::from_slice(&described).unwrap();
    let mut seen = 0;
    for (path, item) in described["paths"].as_object().unwrap() {
        let in_path: BTreeSet<&str> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array();
            let of_path = parameters.into_iter().flatten();
            let of_path = of_path.filter(|parameter| parameter["in"] == "path");
            let said: BTreeSet<&str> = of_path
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(said, in_path, "{method} {path}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} operations");
}
