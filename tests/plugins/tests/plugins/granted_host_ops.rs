//! What the host does for a plugin by its manifest it does as far as the session grants it, wherever the
//! plugin runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_host::Host;
use conjure_host::session::{BackendSpec, PermissionsSpec, PluginSpec, SessionSpec, ToolSession};
use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Execute, FileRef, HttpRequest, Open, Permissions, ToolDecl,
    ToolResult,
};
use conjure_skill_sdk::{Backend, BackendPlugin, Cx, Error, Result, Skill};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const SECRET: &str = "KEY";
const HOST: &str = "127.0.0.1";

/// A skill of a session, one whose state all sessions share, and a backend, each with its tool.
const PLUGINS: [(&str, &str); 3] = [
    ("own", "own_execute"),
    ("common", "common_execute"),
    ("behind", "behind_ask"),
];

fn asked() -> Permissions {
    Permissions {
        secrets: vec![SECRET.to_owned()],
        http: vec![HOST.to_owned()],
        ..Permissions::default()
    }
}

fn get(url: &str) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        ..HttpRequest::default()
    }
}

fn skill(name: &str) -> Skill {
    let asking = Skill::new(name, "Asks the host").permissions(asked());
    asking.execute(
        "secret NAME | get URL | send URL",
        |cx, request: Execute| match request.command.split_once(' ') {
            Some(("secret", name)) => cx.secret(name),
            Some(("get", url)) => cx.http(&get(url)).map(|reply| reply.status.to_string()),
            Some(("send", url)) => {
                // It has nothing but a size, which is more than is sent.
                let path = cx.working_dir().unwrap().join("holes");
                let file = std::fs::File::create(&path).unwrap();
                file.set_len(65 << 20).unwrap();
                let sent = HttpRequest {
                    method: "POST".to_owned(),
                    body_file: Some(FileRef::at(path.display().to_string())),
                    ..get(url)
                };
                cx.http(&sent).map(|reply| reply.status.to_string())
            }
            _ => Err(Error::new("no such command")),
        },
    )
}

struct AskingBackend;

impl Backend for AskingBackend {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        Ok(CatalogReply {
            tools: vec![ToolDecl::new("ask", "Asks", json!({ "type": "object" }))],
            ..CatalogReply::default()
        })
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        let command = request.arguments["command"].as_str().unwrap_or_default();
        let text = match command.split_once(' ') {
            Some(("secret", name)) => cx.secret_async(name).await?,
            Some(("get", url)) => cx.http_async(&get(url)).await?.status.to_string(),
            _ => return Err(Error::new("no such command")),
        };
        Ok(ToolResult::text(text))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

/// A session that grants each of the plugins these.
fn spec(permissions: Option<&PermissionsSpec>) -> SessionSpec {
    let plugins = PLUGINS.iter().map(|(plugin, _)| {
        let permissions = permissions.cloned();
        (
            (*plugin).to_owned(),
            PluginSpec {
                permissions,
                ..PluginSpec::default()
            },
        )
    });
    let none = [] as [&str; 0];
    SessionSpec {
        plugins: plugins.collect(),
        ..SessionSpec::hybrid([
            BackendSpec::all_native(),
            BackendSpec::executor("behind", none),
        ])
    }
}

pub(crate) async fn said(session: &ToolSession, tool: &str, command: &str) -> String {
    let call = FunctionCall {
        call_id: "call-1".to_owned(),
        name: tool.to_owned(),
        arguments: json!({ "command": command }),
        arguments_text: None,
    };
    let called = session.call(&call, &CancellationToken::new()).await;
    let output = called.unwrap().output;
    let texts = output.output.iter().filter_map(|part| match part {
        OutputPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Answers so many requests.
pub(crate) fn answer(listener: &TcpListener, requests: usize) {
    for stream in listener.incoming().take(requests) {
        let mut stream = stream.unwrap();
        let mut request = BufReader::new(stream.try_clone().unwrap());
        let mut body = 0;
        loop {
            let mut line = String::new();
            request.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                body = length.trim().parse().unwrap();
            }
        }
        request.read_exact(&mut vec![0; body]).unwrap();
        let reply = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(reply.as_bytes()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_withholds_the_host_does_for_no_skill_and_no_backend() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder()
        .data_dir(dir.path())
        .secret(SECRET, "sesame".to_owned().into())
        .link(|| skill("own"))
        .link(|| skill("common").shared())
        .link(|| {
            let behind = BackendPlugin::new("behind", "Asks", |_setup| Ok(AskingBackend));
            behind.permissions(asked())
        })
        .build()
        .await
        .unwrap();
    let listener = TcpListener::bind((HOST, 0)).unwrap();
    let page = format!("get http://{}/", listener.local_addr().unwrap());
    let secret = format!("secret {SECRET}");
    let same = PermissionsSpec {
        secrets: vec![SECRET.to_owned()],
        http: vec![HOST.to_owned()],
        ..PermissionsSpec::default()
    };
    let nothing = PermissionsSpec::default();
    // All of them at the same time: none has what another has.
    let mut sessions = Vec::new();
    for (granted, is_granted) in [(None, true), (Some(&nothing), false), (Some(&same), true)] {
        sessions.push((host.calls(spec(granted)).await.unwrap(), is_granted));
    }
    let granted = sessions.iter().filter(|(_, is_granted)| *is_granted);
    let requests = granted.count() * PLUGINS.len();
    let server = std::thread::spawn(move || answer(&listener, requests));
    for (session, is_granted) in &sessions {
        for (plugin, tool) in PLUGINS {
            let secret = said(session, tool, &secret).await;
            let page = said(session, tool, &page).await;
            if *is_granted {
                assert_eq!(
                    (secret.as_str(), page.as_str()),
                    ("sesame", "200"),
                    "{tool}"
                );
                continue;
            }
            let withheld = format!("the session's `plugins.{plugin}.permissions`");
            for refused in [secret, page] {
                assert!(refused.contains(&withheld), "{tool}: {refused}");
            }
        }
    }
    server.join().unwrap();
    for (session, _) in sessions {
        session.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_to_be_sent_is_refused_unread() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder().data_dir(dir.path()).link(|| skill("own"));
    let host = host.build().await.unwrap();
    let native = SessionSpec::hybrid([BackendSpec::all_native()]);
    let session = host.calls(native).await.unwrap();
    let said = said(&session, "own_execute", "send http://127.0.0.1:9/").await;
    assert!(said.contains("more than 67108864 bytes"), "{said}");
    session.close().await;
}
