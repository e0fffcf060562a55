//! The pod of a session, with everything that keeps it in.

use serde_json::{Value, json};

use crate::config::{KubernetesSettings, PullPolicy};
use crate::owner::SESSION_ANNOTATION;

/// The only other place that can be written to.
pub(crate) const TMP: &str = "/tmp";
/// The pod's only container.
pub(crate) const CONTAINER: &str = "work";

/// Room for the agent and the session's skills, of which there are 512 MiB at most.
const AGENT_ROOM: &str = "1Gi";

/// How many seconds a pod lasts in which no session's directory is, and how often it looks.
const EMPTY_SECONDS: u64 = 300;
const POLL_SECONDS: u64 = 3;

/// The manifest of a session's pod.
pub(crate) fn manifest(
    settings: &KubernetesSettings,
    name: &str,
    session: &str,
    owned: std::collections::BTreeMap<String, String>,
) -> Value {
    let mut labels = settings.labels.clone();
    labels.extend(owned);
    let limits = json!({
        "memory": format!("{}Mi", settings.memory_mb),
        "cpu": format!("{:.0}m", (settings.cpus * 1_000.0).max(1.0)),
    });
    let empty = json!({ "sizeLimit": format!("{}Mi", settings.disk_mb) });
    let work = match &settings.volume_claim {
        Some(claim) => json!({ "name": "work", "persistentVolumeClaim": { "claimName": claim } }),
        None => json!({ "name": "work", "emptyDir": empty }),
    };
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let pull_secrets = settings.image_pull_secrets.iter();
    let pull_secrets: Vec<_> = pull_secrets.map(|name| json!({ "name": name })).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": { SESSION_ANNOTATION: session },
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": settings.active_deadline_s,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "serviceAccountName": settings.service_account,
            "nodeSelector": settings.node_selector,
            "imagePullSecrets": pull_secrets,
            "securityContext": {
                "runAsNonRoot": settings.user != 0,
                "runAsUser": settings.user,
                "runAsGroup": settings.user,
                "fsGroup": settings.user,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": CONTAINER,
                "image": settings.image,
                "imagePullPolicy": settings.image_pull_policy.map(PullPolicy::kubernetes_value),
                "command": [settings.shell, "-c", idle_script(settings)],
                "workingDir": settings.working_dir,
                // What is configured goes by the agent: a pod can be read by many.
                "env": [{ "name": "HOME", "value": TMP }],
                "resources": { "limits": limits, "requests": limits },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "privileged": false,
                    "readOnlyRootFilesystem": settings.read_only_root,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [
                    mount("work", &settings.working_dir),
                    mount("agent", &settings.agent_dir),
                    mount("tmp", TMP),
                ],
            }],
            "volumes": [
                work,
                { "name": "agent", "emptyDir": { "sizeLimit": AGENT_ROOM } },
                { "name": "tmp", "emptyDir": empty },
            ],
        },
    })
}

/// What the first process does: it waits, and ends when the session's directory is away for long. So
/// a pod ends by itself whose host was killed, once its relay has waited for that.
fn idle_script(settings: &KubernetesSettings) -> String {
    let dir = settings.session_dir();
    let times = EMPTY_SECONDS / POLL_SECONDS;
    format!(
        "trap \"exit 0\" TERM; n=0; while [ $n -lt {times} ]; do n=$((n+1)); \
         if [ -d \"{dir}\" ]; then n=0; fi; sleep {POLL_SECONDS} & wait $!; done"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod_from_json(settings: Value) -> Pod {
        let settings = serde_json::from_value(settings).unwrap();
        let owned = [("io.conjure/host".to_owned(), "h".to_owned())].into();
        serde_json::from_value(manifest(&settings, "conjure-1", "s", owned)).unwrap()
    }

    #[test]
    fn a_pod_has_no_rights_without_being_told() {
        let pod = pod_from_json(json!({}));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.automount_service_account_token, Some(false));
        assert_eq!(spec.active_deadline_seconds, Some(86_400));
        let all = spec.security_context.unwrap();
        assert_eq!(
            (all.run_as_non_root, all.run_as_user),
            (Some(true), Some(65_534))
        );
        assert_eq!(all.seccomp_profile.unwrap().type_, "RuntimeDefault");
        let container = &spec.containers[0];
        let own = container.security_context.clone().unwrap();
        assert_eq!(own.allow_privilege_escalation, Some(false));
        assert_eq!(own.read_only_root_filesystem, Some(true));
        assert_eq!(own.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]));
        let limits = container.resources.clone().unwrap().limits.unwrap();
        assert_eq!(
            (limits["memory"].0.as_str(), limits["cpu"].0.as_str()),
            ("512Mi", "1000m")
        );
    }

    #[test]
    fn what_is_configured_is_in_it_and_no_label_of_the_owner_is_replaced() {
        let pod = pod_from_json(json!({
            "image": "mine:1",
            "image_pull_policy": "Never",
            "image_pull_secrets": ["login"],
            "service_account": "worker",
            "node_selector": { "disk": "ssd" },
            "labels": { "team": "a" },
            "env": { "SET": "so", "HOME": "/x" },
            "user": 0,
            "volume_claim": "kept",
            "cpus": 0.25,
        }));
        let labels = pod.metadata.labels.unwrap();
        assert_eq!(
            (labels["team"].as_str(), labels["io.conjure/host"].as_str()),
            ("a", "h")
        );
        let spec = pod.spec.unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some("worker"));
        assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
        assert_eq!(spec.image_pull_secrets.unwrap()[0].name, "login");
        assert_eq!(spec.security_context.unwrap().run_as_non_root, Some(false));
        let container = &spec.containers[0];
        assert_eq!(container.image.as_deref(), Some("mine:1"));
        assert_eq!(container.image_pull_policy.as_deref(), Some("Never"));
        let env = container.env.clone().unwrap();
        let env: Vec<_> = env
            .iter()
            .map(|set| (set.name.as_str(), set.value.as_deref()))
            .collect();
        assert_eq!(env, [("HOME", Some(TMP))]);
        let claim = spec.volumes.unwrap()[0]
            .persistent_volume_claim
            .clone()
            .unwrap();
        assert_eq!(claim.claim_name, "kept");
    }
}
