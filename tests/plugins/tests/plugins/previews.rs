//! What a session would send, told before it runs, and how the servers behind its backends are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_host::Host;
use conjure_host::session::{BackendServers, BackendSpec, SessionSpec};
use conjure_skill_sdk::protocol::{BackendCall, CatalogReply, Open, ToolResult};
use conjure_skill_sdk::{Backend, BackendPlugin, Cx, Error, Result};
use serde_json::json;

/// Has one server, and counts how often it is asked what it has.
struct OneServer {
    asked: Arc<AtomicUsize>,
}

impl Backend for OneServer {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(CatalogReply {
            meta: Some(json!({ "servers": [{ "server": "a", "state": "ready" }] })),
            ..CatalogReply::default()
        })
    }

    async fn call(&self, _cx: Cx, _request: BackendCall) -> Result<ToolResult> {
        Err(Error::new("there is no tool"))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_look_at_an_open_session_asks_once_how_servers_are_and_else_the_catalog_says_it() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let host = Host::builder()
        .data_dir(dir.path())
        .link(move || {
            let asked = Arc::clone(&counted);
            BackendPlugin::new("one-server", "Has a server", move |_setup| {
                let asked = Arc::clone(&asked);
                Ok(OneServer { asked })
            })
        })
        .build()
        .await
        .unwrap();
    let none = [] as [&str; 0];
    let spec = SessionSpec {
        provider: Some("tool-walk".to_owned()),
        ..SessionSpec::hybrid([BackendSpec::executor("one-server", none)])
    };
    let states = [BackendServers {
        backend: "one-server".to_owned(),
        servers: vec![json!({ "server": "a", "state": "ready" })],
    }];
    let preview = host.tool_preview(spec.clone()).await.unwrap();
    assert_eq!(preview.server_states(), states);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let session = host.session(spec).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    for looks in 1..=2 {
        let preview = session.tool_preview().await.unwrap();
        assert_eq!(preview.server_states(), states);
        assert_eq!(asked.load(Ordering::SeqCst), 2 + looks);
    }
    session.close().await;
}
