//! The plugins of a host: listing, asking, loading again.

use std::fs;

use conjure_host::Host;
use conjure_host::session::BackendSpec;
use conjure_kit::Model;
use serde_json::json;

use crate::folders::printed;
use crate::stage::{CACHE, FETCHER, LOCAL, Seen, Stage, conjure, workspace};

#[tokio::test]
async fn p17_plugins_are_listed_asked_for_and_loaded_again() {
    let workspace = workspace(&[CACHE, FETCHER, LOCAL]);
    let host = Host::builder()
        .data_dir(workspace.root().join("data"))
        .plugin_dir(workspace.plugins())
        .build()
        .await
        .unwrap();
    let names = || -> Vec<String> {
        let snapshot = host.registry().snapshot();
        snapshot
            .plugins()
            .iter()
            .map(|plugin| plugin.id().name.to_string())
            .collect()
    };
    assert_eq!(names(), ["cache-manager", "local", "log-fetcher"]);
    let snapshot = host.registry().snapshot();
    assert_eq!(
        snapshot.get("log-fetcher").unwrap().manifest().kind,
        "skill"
    );
    assert!(snapshot.get("nobody").is_none());
    let again = host
        .registry()
        .reload("cache-manager")
        .expect("it has a file")
        .unwrap();
    assert_eq!(&*again.id().name, "cache-manager");
    assert!(host.registry().reload("nobody").is_none());
    assert_eq!(names(), ["cache-manager", "local", "log-fetcher"]);
    let list = conjure(&workspace, ["plugin", "list", "--json"])
        .run()
        .unwrap();
    let list = printed(&list);
    let listed = list["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plugin| plugin["name"].as_str());
    assert_eq!(listed.map(Option::unwrap).collect::<Vec<_>>(), names());
}

#[tokio::test]
async fn b25_a_failed_reload_keeps_what_was_loaded() {
    let workspace = workspace(&[CACHE]);
    let dir = workspace.plugins();
    let stage = Stage::with(&[], |builder| builder.plugin_dir(dir)).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let set = json!({ "command": "set k v" });
    stage.call(&session, "cache-manager_execute", set).await;
    let file = fs::read_dir(workspace.plugins())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let broken = workspace.root().join("broken");
    fs::write(&broken, "no library").unwrap();
    fs::rename(&broken, &file).unwrap();
    let registry = stage.host.registry();
    let error = registry
        .reload("cache-manager")
        .expect("it is known")
        .unwrap_err();
    assert!(
        error.to_string().contains(&file.display().to_string()),
        "{error}"
    );
    let snapshot = registry.snapshot();
    let [failed] = snapshot.failed() else {
        panic!("{:?}", snapshot.failed())
    };
    let kept = snapshot
        .get("cache-manager")
        .expect("it stays")
        .id()
        .clone();
    assert_eq!(failed.still_loaded.as_ref(), Some(&kept));
    let get = || json!({ "command": "get k" });
    assert_eq!(
        stage.call(&session, "cache-manager_execute", get()).await,
        Seen::ok("v")
    );
    let fresh = stage.session([BackendSpec::all_native()]).await;
    assert!(
        stage
            .call(&fresh, "cache-manager_execute", get())
            .await
            .is_error,
        "a new instance"
    );
    session.close().await;
    fresh.close().await;
}

#[test]
fn a_plugin_that_fails_takes_nothing_else_down() {
    let workspace = workspace(&[CACHE]);
    fs::write(workspace.plugins().join("libbroken.so"), "no library").unwrap();
    let model = Model::start().unwrap();
    model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    model.says(conjure_mock_llm::Message::new().text("Stored."));
    let run = conjure(
        &workspace,
        [
            "run",
            "--provider",
            "anthropic",
            "--model",
            "m",
            "--allow",
            "*",
            "Remember.",
        ],
    )
    .model(&model)
    .run()
    .unwrap();
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "Stored.\n"),
        "{run:?}"
    );
    assert!(run.stderr.contains("libbroken.so"), "{run:?}");
    assert_eq!(model.requests().len(), 2);
}
