//! Backends with a share in the provider's request, one of which cannot say what it brings.

use std::time::Duration;

use conjure_core::chat::{Event, Part, Response, Stop, StopReason};
use conjure_core::request::ModelRequest;
use conjure_host::Host;
use conjure_host::provider::{Provider, ProviderError, ReplySink};
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Contribute, Contribution, Observation, Observe, Open, ToolResult,
};
use conjure_skill_sdk::{Backend, BackendPlugin, Contributes, Cx, Error, Result};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;

/// Brings one tool of the provider's, or fails to.
struct Bringing {
    fails: bool,
}

impl Backend for Bringing {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        Ok(CatalogReply::default())
    }

    async fn call(&self, _cx: Cx, _request: BackendCall) -> Result<ToolResult> {
        Err(Error::new("there is no tool"))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

impl Contributes for Bringing {
    async fn contribute(&self, _cx: Cx, _request: Contribute) -> Result<Contribution> {
        if self.fails {
            return Err(Error::new("the key is not taken"));
        }
        Ok(Contribution {
            tools: vec![json!({ "type": "brought", "name": "brought" })],
            ..Contribution::default()
        })
    }

    async fn observe(&self, _cx: Cx, _request: Observe) -> Result<Observation> {
        Ok(Observation::default())
    }
}

/// Says which tools were brought.
struct Telling;

impl Provider for Telling {
    fn name(&self) -> &str {
        "telling"
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        _sink: &'a ReplySink,
    ) -> BoxFuture<'a, std::result::Result<Response, ProviderError>> {
        let brought = request.contribution.tools.iter();
        let names: Vec<_> = brought.filter_map(|tool| tool["name"].as_str()).collect();
        let response = Response {
            parts: vec![Part::text(names.join(" "))],
            stop: Some(Stop {
                reason: StopReason::EndTurn,
                raw: "scripted".to_owned(),
                sequence: None,
            }),
            complete: true,
            ..Response::default()
        };
        std::future::ready(Ok(response)).boxed()
    }
}

fn bringing(name: &'static str, fails: bool) -> BackendPlugin<Bringing> {
    BackendPlugin::new(name, "Brings", move |_setup| Ok(Bringing { fails })).with_contributions()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_cannot_say_what_it_brings_is_told_of_and_takes_no_other_down() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder()
        .data_dir(dir.path())
        .provider("telling", Telling)
        .link(|| bringing("failing", true))
        .link(|| bringing("working", false))
        .build()
        .await
        .unwrap();
    let none = [] as [&str; 0];
    let spec = SessionSpec {
        provider: Some("telling".to_owned()),
        ..SessionSpec::hybrid([
            BackendSpec::executor("failing", none),
            BackendSpec::executor("working", none),
        ])
    };
    let session = host.session(spec).await.unwrap();
    let mut events = session.events_since_opened();
    let answer = session.chat("What is there?").await.unwrap();
    assert_eq!(answer.text, "brought");
    let mut told = Vec::new();
    let until_the_end = async {
        loop {
            match &events.next().await.event {
                Event::Notice { text } => told.push(text.clone()),
                Event::Done { .. } => return,
                _ => {}
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), until_the_end).await;
    ended.expect("the turn ends");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("failing: "), "{told:?}");
    assert!(told[0].contains("the key is not taken"), "{told:?}");
    session.close().await;
}
