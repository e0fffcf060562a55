//! The contract of executors, as an author has it checked: `conjure plugin test` over the library, in
//! the host's process and in a worker.

use std::fs;
use std::time::Duration;

use conjure_kit::Workspace;
use serde_json::{Value, json};

use super::api::{Api, TOKEN};
use super::{can_have_pods, kubeconfig, settings};

#[test]
fn the_executor_of_clusters_holds_the_contract_of_its_kind() {
    if !can_have_pods() {
        return;
    }
    let api = Api::new();
    let dir = tempfile::tempdir().unwrap();
    api.cluster.give_volumes(dir.path().join("volumes"));
    kubeconfig(&dir, api.address(), TOKEN);
    let workspace = Workspace::new().unwrap();
    // Where a person has it, which is what the manifest asks for.
    let own = workspace.home().join(".kube");
    fs::create_dir(&own).unwrap();
    fs::copy(dir.path().join("kubeconfig"), own.join("config")).unwrap();
    let config = json!({ "kubeconfig": own.join("config") });
    let config = settings(&dir, &config).to_string();
    let library = conjure_kit::build_plugin("conjure-backend-kubernetes").unwrap();
    let library = library.display().to_string();
    let args = ["plugin", "test", &library, "--json", "--config", &config];
    let output = conjure_kit::cli(args)
        .workspace(&workspace)
        .deadline(Duration::from_secs(480))
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let said: Value = serde_json::from_str(&output.stdout).unwrap();
    for place in 0..2 {
        let checks = said["runs"][place]["checks"].as_array().unwrap();
        let all_pass = checks.iter().all(|check| check["verdict"] == "passed");
        assert!(checks.len() > 20 && all_pass, "{said:#}");
    }
    // Each session had a pod, which went with it.
    assert!(api.cluster.made() > 1);
    assert_eq!(api.cluster.names(), [""; 0]);
}
