//! MCP bundles, which are no text: taken over as they are, with what keeps them from doing harm.

use std::io::{Cursor, Write as _};

use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::server::{Reply, Server};

/// Where bundles go in, with the directory in which this one is unpacked.
const IMPORT: &str = "/api/v1/mcp-servers/import?directory=/srv/notes";

/// A manifest of a server of this name.
fn manifest(name: &str) -> String {
    json!({
        "manifest_version": "0.3", "name": name, "version": "1.0.0",
        "server": { "type": "node", "entry_point": "server/index.js", "mcp_config": {
            "command": "node", "args": ["${__dirname}/server/index.js"],
            "env": { "API_KEY": "${user_config.key}" },
        } },
        "user_config": { "key": { "type": "string", "sensitive": true, "required": true } },
    })
    .to_string()
}

/// An archive with one file.
fn archive(name: &str, text: &[u8]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive
        .start_file(name, SimpleFileOptions::default())
        .unwrap();
    archive.write_all(text).unwrap();
    archive.finish().unwrap().into_inner()
}

fn sent(server: &Server, path: &str, kind: &str, bytes: &[u8]) -> Reply {
    server.ask("POST", path, &[("content-type", kind)], bytes)
}

#[test]
fn a_bundle_is_imported_as_it_is() {
    let server = Server::start();
    let bundle = archive("manifest.json", manifest("notes").as_bytes());
    let imported = sent(&server, IMPORT, "application/zip", &bundle)
        .is(201)
        .json();
    let settings = json!({
        "command": "node", "args": ["/srv/notes/server/index.js"], "cwd": "/srv/notes",
        "env": { "API_KEY": { "secret": "MCP_NOTES_KEY" } },
    });
    assert_eq!(imported["servers"][0]["settings"], settings, "{imported}");
    assert_eq!(
        imported["secrets"][0]["variable"],
        "CONJURE_SECRET_MCP_NOTES_KEY"
    );
    assert!(
        imported["notes"]
            .to_string()
            .contains("unpacked in /srv/notes")
    );
    let listed = server.get("/api/v1/mcp-servers").is(200).json();
    assert_eq!(listed["items"][0]["settings"], settings);
    // A name is taken once.
    sent(&server, IMPORT, "application/octet-stream", &bundle).is(409);
}

#[test]
fn a_large_bundle_is_taken_and_once_with_a_key() {
    let server = Server::start();
    // More than a body of JSON may have.
    let mut large = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    large.start_file("server/index.js", stored).unwrap();
    large.write_all(&vec![b'x'; 3 << 20]).unwrap();
    large.start_file("manifest.json", stored).unwrap();
    large.write_all(manifest("large").as_bytes()).unwrap();
    let large = large.finish().unwrap().into_inner();
    let headers = [
        ("content-type", "application/zip"),
        ("idempotency-key", "k"),
    ];
    let first = server.ask("POST", IMPORT, &headers, &large).is(201);
    let again = server.ask("POST", IMPORT, &headers, &large).is(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body, first.body);
}

#[test]
fn what_is_no_bundle_or_says_no_place_is_refused_and_saves_nothing() {
    let server = Server::start();
    let zip = "application/zip";
    let bundle = archive("manifest.json", manifest("notes").as_bytes());
    let all = "/api/v1/mcp-servers/import";
    for place in [
        "",
        "?directory=",
        "?directory=srv/notes",
        "?directory=/srv%0Anotes",
    ] {
        let refused = sent(&server, &format!("{all}{place}"), zip, &bundle).is(422);
        assert!(
            refused.json()["detail"]
                .to_string()
                .contains("absolute path")
        );
    }
    let text = json!({ "text": "claude mcp add notes -- notes-server" });
    server.post(IMPORT, &text).is(422);
    sent(&server, IMPORT, "text/plain", &bundle).is(415);
    let bomb = manifest("notes").replace("1.0.0", &"0".repeat(2 << 20));
    let wrong = [
        b"PK\x03\x04nonsense".to_vec(),
        b"no archive".to_vec(),
        bundle[..bundle.len() / 2].to_vec(),
        archive("other.json", manifest("notes").as_bytes()),
        archive("manifest.json", b"{}"),
        archive("manifest.json", bomb.as_bytes()),
    ];
    for bytes in wrong {
        let refused = sent(&server, IMPORT, zip, &bytes).is(422).json();
        let detail = refused["detail"].to_string();
        assert!(detail.contains("it is no MCP bundle"), "{detail}");
    }
    let listed = server.get("/api/v1/mcp-servers").is(200).json();
    assert_eq!(listed["items"], json!([]));
}

#[test]
fn more_than_an_import_may_have_is_refused_unread() {
    let server = Server::start();
    let request = format!(
        "POST {IMPORT} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/zip\r\n\
         content-length: {}\r\n\r\n",
        server.address,
        crate::server::authorization(),
        (64 << 20) + 1
    );
    server.raw(request.as_bytes()).is(413);
}

#[test]
fn servers_that_are_imported_one_by_one_share_no_secret() {
    let server = Server::start();
    let import = |line: &str| {
        let body = json!({ "text": line });
        let reply = server.post("/api/v1/mcp-servers/import", &body);
        reply.is(201).json()
    };
    let first = import("claude mcp add google -e MAPS_API_KEY=abc123def456 -- maps");
    let second = import("claude mcp add google-maps -e API_KEY=uvw987xyz654 -- maps");
    let name = |reply: &serde_json::Value| reply["secrets"][0]["secret"].clone();
    assert_eq!(name(&first), "MCP_GOOGLE_MAPS_API_KEY");
    assert_eq!(name(&second), "MCP_GOOGLE_MAPS_API_KEY_2");
    assert_eq!(
        second["servers"][0]["settings"]["env"],
        json!({ "API_KEY": { "secret": "MCP_GOOGLE_MAPS_API_KEY_2" } })
    );
}
