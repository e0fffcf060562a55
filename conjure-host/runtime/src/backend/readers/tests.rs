//! Sources that are asked for a resource, and those that are waited for.

use std::sync::atomic::{AtomicBool, Ordering};

use conjure_config::{BackendSpec, SessionSpec};
use conjure_skill_sdk::protocol::{BackendCall, CatalogReply, Open, Resources as ResourceList};
use conjure_skill_sdk::{Backend, BackendPlugin, Cx, Error, Resources, Result, Skill};

use super::*;
use crate::Host;
use crate::session::{ToolCallOptions, ToolSession};

#[test]
fn a_wish_that_one_source_takes_is_taken() {
    let unknown = || Err(ReadError::NotFound("it is not mine".to_owned()));
    let deaf = || Err(ReadError::Invalid("it tells of nothing".to_owned()));
    // The first one may have it.
    let combine = |answers| combine_answers(answers, |at| at == 0);
    assert_eq!(combine(vec![]), Ok(()));
    assert_eq!(combine(vec![(0, unknown())]), Ok(()));
    assert_eq!(combine(vec![(0, deaf()), (1, Ok(json!({})))]), Ok(()));
    let answers = vec![(0, unknown()), (0, deaf())];
    assert_eq!(combine(answers), deaf().map(drop));
    // It is known to be another source's, which is told nothing because it tells by itself.
    assert_eq!(combine(vec![(1, deaf())]), Ok(()));
}

/// A backend that lists these, and has what its name begins.
#[derive(Clone, Copy)]
struct Shelf {
    name: &'static str,
    listed: &'static [&'static str],
    template: Option<&'static str>,
    lacks: &'static str,
}

/// What two shelves list, of which one does not have it.
const LOST: &str = "x://lost";
const SHELVES: [Shelf; 3] = [
    Shelf {
        name: "first",
        listed: &["x://1", LOST],
        template: None,
        lacks: LOST,
    },
    Shelf {
        name: "second",
        listed: &[LOST],
        template: None,
        lacks: "x://1",
    },
    Shelf {
        name: "greedy",
        listed: &[],
        template: Some("{+uri}"),
        lacks: "",
    },
];

impl Backend for Shelf {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        let listed = self.listed.iter().map(|uri| Resource::new(*uri, "one"));
        let templates = self.template.iter();
        let templates = templates.map(|uri| json!({ "uriTemplate": uri, "name": "any" }));
        Ok(CatalogReply {
            resources: listed.collect(),
            resource_templates: templates.collect(),
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

impl Resources for Shelf {
    async fn list(&self, cx: Cx) -> Result<ResourceList> {
        let catalog = self.catalog(cx).await?;
        Ok(ResourceList {
            resources: catalog.resources,
            resource_templates: catalog.resource_templates,
        })
    }

    async fn read(&self, _cx: Cx, request: ResourceRead) -> Result<ToolResult> {
        match request.uri == self.lacks {
            true => Err(Error::not_found("it is not here")),
            false => Ok(ToolResult::text(format!(
                "{} has {}",
                self.name, request.uri
            ))),
        }
    }
}

/// A skill that never says what it lists: it goes on until the host gives it up, and notes that then.
fn mute(is_given_up: &Arc<AtomicBool>) -> Skill {
    let is_given_up = Arc::clone(is_given_up);
    Skill::new("mute", "Hangs").run_time_resources(
        move |cx| {
            while !cx.cancelled() {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_given_up.store(true, Ordering::SeqCst);
            cx.check().map(|()| Vec::new())
        },
        |_cx, _uri| Err::<String, _>(Error::not_found("it has nothing")),
    )
}

async fn read(calls: &ToolSession, uri: &str, links: &[SourceName]) -> String {
    let (snapshot, cancel) = (calls.snapshot(), CancellationToken::new());
    let live: LiveOutput = Arc::new(|_, _| {});
    let options = ToolCallOptions {
        snapshot: &snapshot,
        cancel: &cancel,
        live: &live,
        request_context: None,
        verbatim: false,
    };
    match calls.reader(None, &options).read(uri, links).await {
        Ok(read) => read.joined_text(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_backends_list_is_read_there_whoever_links_to_it_and_whichever_skill_hangs() {
    let data = tempfile::tempdir().unwrap();
    let is_given_up = Arc::new(AtomicBool::new(false));
    let skill = {
        let is_given_up = Arc::clone(&is_given_up);
        move || mute(&is_given_up)
    };
    let mut builder = Host::builder().data_dir(data.path()).skill(skill);
    for shelf in SHELVES {
        builder = builder.link(move || {
            let make = move |_setup| Ok(shelf);
            BackendPlugin::new(shelf.name, "Has resources", make).with_resources()
        });
    }
    let host = builder.build().await.unwrap();
    let backends = SHELVES.map(|shelf| BackendSpec {
        kind: shelf.name.to_owned(),
        ..BackendSpec::default()
    });
    let backends = [BackendSpec::all_native()].into_iter().chain(backends);
    let calls = host.calls(SessionSpec::hybrid(backends)).await.unwrap();
    let backend = |name: &str| SourceName::Backend(name.to_owned());
    assert_eq!(read(&calls, "x://1", &[]).await, "first has x://1");
    let is_waited_for = is_given_up.load(Ordering::SeqCst);
    assert!(!is_waited_for, "the answer waited for a skill that hangs");
    let links = [backend("greedy")];
    assert_eq!(read(&calls, "x://1", &links).await, "first has x://1");
    // The one that linked to it does not have it, and another one lists it.
    let links = [backend("first"), backend("greedy")];
    assert_eq!(read(&calls, LOST, &links).await, "second has x://lost");
    let links = [backend("first"), backend("second")];
    let refused = read(&calls, LOST, &links).await;
    assert!(refused.contains("results of 2 sources"), "{refused}");
    calls.close().await;
}
