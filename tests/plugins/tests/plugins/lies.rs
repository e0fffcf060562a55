//! Plugins that break the contract of the boundary: replies that are none, futures that panic,
//! destructors with opinions. Each is a failure that names the plugin, and the host goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_abi::{
    CallContext, Fault, FfiFuture, FutureExt as _, Plugin, Plugin_TO, PluginObject, RResult,
    RSlice, Reply, TD_Opaque,
};
use conjure_host::plugin::{CallOptions, PluginCallFailure};
use conjure_plugin_tests::envelope;
use conjure_skill_sdk::export::Exported;
use conjure_skill_sdk::protocol::{BackendCall, CatalogReply, Manifest, Open, ToolResult};
use conjure_skill_sdk::{Backend, BackendPlugin, Cx, Setup};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::calls::{instance, linked, until};

/// An object that keeps to no rule of the protocol.
struct Liar;

impl Plugin for Liar {
    fn call(&self, op: RSlice<'_, u8>, _json: RSlice<'_, u8>, cx: CallContext) -> Reply {
        let bytes = |bytes: &[u8]| RResult::ROk(bytes.to_vec().into());
        match op.as_slice() {
            b"conjure.ping" => bytes(b"{}"),
            b"text" => bytes(b"certainly"),
            b"utf8" => bytes(b"{\"a\":\"\xff\xfe\"}"),
            b"large" => RResult::ROk(vec![b' '; 17 * 1024 * 1024].into()),
            b"fault" => RResult::RErr(Fault {
                code: 4711,
                message: vec![0xff; 100_000].into(),
            }),
            b"context" => {
                assert_eq!(cx.emit(99, RSlice::from_slice(b"?")), 0);
                cx.log(99, RSlice::from_slice(&[0xff]), RSlice::from_slice(&[0xff]));
                bytes(b"{}")
            }
            b"waits" => {
                let op = RSlice::from_slice(b"call.cancelled");
                let is_refused = |json: &[u8]| {
                    let asked = cx.host(op, RSlice::from_slice(json));
                    let answer = futures_util::FutureExt::now_or_never(asked);
                    matches!(answer, Some(RResult::RErr(_)))
                };
                assert!(is_refused(&vec![b' '; 1024 * 1024 + 1]));
                let wait = |_| cx.host(op, RSlice::from_slice(b"{}"));
                let waiting: Vec<_> = (0..1024).map(wait).collect();
                assert!(is_refused(b"{}"));
                drop(waiting);
                assert!(!is_refused(b"{}"));
                bytes(b"{}")
            }
            _ => bytes(b"[]"),
        }
    }

    fn start(
        &self,
        _op: RSlice<'_, u8>,
        _json: RSlice<'_, u8>,
        _cx: CallContext,
    ) -> FfiFuture<Reply> {
        async { panic!("as asked") }.into_ffi()
    }
}

struct LiarPlugin {
    asynchronous: bool,
}

impl Exported for LiarPlugin {
    fn plugin_name(&self) -> String {
        "liar".into()
    }

    fn plugin_manifest(&self, name: &str, version: &str) -> conjure_skill_sdk::Result<Manifest> {
        let capabilities = if self.asynchronous {
            vec!["start/1"]
        } else {
            vec![]
        };
        Ok(serde_json::from_value(json!({
            "manifest": 1, "kind": "skill", "name": name, "version": version,
            "capabilities": capabilities,
        }))?)
    }

    fn into_plugin(self, _setup: Setup) -> conjure_skill_sdk::Result<PluginObject> {
        Ok(Plugin_TO::from_value(Liar, TD_Opaque))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_none_is_a_failure_that_names_the_plugin() {
    let instance = instance(&linked(|| LiarPlugin {
        asynchronous: false,
    }))
    .await;
    let ask = async |op: &str| {
        instance
            .request(op, b"{}".to_vec(), CallOptions::default())
            .await
            .map_err(|failure| failure.to_string())
    };
    assert_eq!(ask("anything").await.unwrap(), b"[]");
    for (op, reason) in [
        ("text", "it is not JSON"),
        ("utf8", "it is not UTF-8"),
        ("large", "it has 17825792 bytes"),
    ] {
        let failure = ask(op).await.unwrap_err();
        assert!(
            failure.starts_with("liar 1.0.0: its answer cannot be used: "),
            "{failure}"
        );
        assert!(failure.contains(reason), "{failure}");
    }
    let failure = ask("fault").await.unwrap_err();
    assert!(
        failure.starts_with("liar 1.0.0: ") && failure.len() < 60_000,
        "{}",
        failure.len()
    );
    assert_eq!(ask("context").await.unwrap(), b"{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_waits_for_is_counted_and_its_requests_are_measured() {
    let instance = instance(&linked(|| LiarPlugin {
        asynchronous: false,
    }))
    .await;
    let waited = instance.request("waits", b"{}".to_vec(), CallOptions::default());
    assert_eq!(waited.await.unwrap(), b"{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_that_panics_at_the_boundary_is_a_failure() {
    let instance = instance(&linked(|| LiarPlugin { asynchronous: true })).await;
    let failure = instance
        .request("x", b"{}".to_vec(), CallOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(failure, PluginCallFailure::BadReply { .. }),
        "{failure:?}"
    );
}

/// A backend whose call waits for ever, and counts how many of them were dropped.
struct Endless {
    started: Arc<Notify>,
    dropped: Arc<AtomicUsize>,
}

struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Backend for Endless {
    async fn open(&self, _cx: Cx, _request: Open) -> conjure_skill_sdk::Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> conjure_skill_sdk::Result<CatalogReply> {
        Ok(CatalogReply::default())
    }

    async fn call(&self, _cx: Cx, request: BackendCall) -> conjure_skill_sdk::Result<ToolResult> {
        if request.name != "wait" {
            return Ok(ToolResult::text("done"));
        }
        let _count = Count(Arc::clone(&self.dropped));
        self.started.notify_one();
        std::future::pending().await
    }

    async fn close(&self, _cx: Cx) -> conjure_skill_sdk::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_call_that_is_given_up_ends_on_the_plugins_runtime() {
    let (started, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let plugin = linked({
        let (started, dropped) = (Arc::clone(&started), Arc::clone(&dropped));
        move || {
            let (started, dropped) = (Arc::clone(&started), Arc::clone(&dropped));
            BackendPlugin::new("endless", "Never ends", move |_setup| {
                Ok(Endless { started, dropped })
            })
        }
    });
    let instance = instance(&plugin).await;
    let call = |tool: &str| envelope(&json!({ "name": tool, "arguments": {} }));
    for round in 1..=4 {
        let cancel = CancellationToken::new();
        let options = CallOptions {
            cancel: cancel.clone(),
            ..CallOptions::default()
        };
        let waiting = instance.request("backend.call", call("wait"), options);
        let (result, ()) = tokio::join!(waiting, async {
            started.notified().await;
            cancel.cancel();
        });
        assert!(
            matches!(result, Err(PluginCallFailure::Cancelled { .. })),
            "{result:?}"
        );
        until(|| dropped.load(Ordering::SeqCst) == round).await;
    }
    // No thread was lost, so that was no offence.
    assert_eq!(plugin.health().abandoned, 0);
    let reply = instance
        .request("backend.call", call("other"), CallOptions::default())
        .await
        .unwrap();
    assert!(String::from_utf8(reply).unwrap().contains("done"));
}
