//! What a pod's status says to whoever waits for it: it runs, it may still come, or it never will.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::pod::CONTAINER;

/// What keeps a container from its start and is not tried again, or is tried in vain.
const PERMANENT_REASONS: [&str; 8] = [
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
    "StartError",
];

/// Advice about containers that are not Conjure's.
const FOREIGN_CONTAINER_ADVICE: &str = ". Something in the cluster puts it into pods, such as a mesh: ask whoever runs \
                         that, or have it leave these pods out by `labels`";

/// State of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodState {
    Running,
    /// What it waits for, as far as that is said.
    Waiting(String),
    /// Why it does not run any more, or never will.
    Terminated(String),
}

/// Reads a pod's status.
pub(crate) fn state(pod: &Pod) -> PodState {
    let status = pod.status.clone().unwrap_or_default();
    if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return PodState::Terminated(termination_reason(&status));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return PodState::Terminated("somebody deletes it".to_owned());
    }
    let container = container(&status);
    let state = container.and_then(|container| container.state.as_ref());
    if state.is_none_or(|state| state.waiting.is_some())
        && let Some(before) = init_container(&status)
    {
        return before;
    }
    if let Some(state) = state {
        if state.running.is_some() {
            return PodState::Running;
        }
        if let Some(waiting) = &state.waiting {
            let reason = waiting.reason.clone().unwrap_or_default();
            let text = with(&reason, waiting.message.as_deref());
            return match PERMANENT_REASONS.contains(&reason.as_str()) {
                true => PodState::Terminated(format!("{text}{}", advice(&reason))),
                false => PodState::Waiting(text),
            };
        }
        if state.terminated.is_some() {
            return PodState::Terminated(termination_reason(&status));
        }
    }
    let conditions = status.conditions.unwrap_or_default();
    let scheduled = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled");
    if let Some(condition) = scheduled.filter(|condition| condition.status == "False") {
        let reason = condition.reason.clone().unwrap_or_default();
        let text = with(&reason, condition.message.as_deref());
        return PodState::Waiting(format!("{text}{}", advice(&reason)));
    }
    PodState::Waiting(String::new())
}

/// What an init container says that the pod waits for: others put such into pods, as meshes do.
fn init_container(status: &PodStatus) -> Option<PodState> {
    let mut all = status.init_container_statuses.iter().flatten();
    all.find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone().unwrap_or_default();
        let name = &container.name;
        let text = with(&reason, waiting.message.as_deref());
        if PERMANENT_REASONS.contains(&reason.as_str()) {
            let text = format!(
                "its init container `{name}` does not start: {text}{FOREIGN_CONTAINER_ADVICE}"
            );
            return Some(PodState::Terminated(text));
        }
        // The first of them has nothing before it that says more.
        let says = !reason.is_empty() && reason != "PodInitializing";
        says.then(|| PodState::Waiting(format!("its init container `{name}`: {text}")))
    })
}

/// Reason why the pod does not run any more.
fn termination_reason(status: &PodStatus) -> String {
    if let Some(reason) = &status.reason {
        let text = with(reason, status.message.as_deref());
        return format!("{text}{}", advice(reason));
    }
    let state = container(status).and_then(|container| container.state.as_ref());
    let Some(ended) = state.and_then(|state| state.terminated.as_ref()) else {
        if let Some(why) = init_failure(status) {
            return why;
        }
        let phase = status.phase.as_deref().unwrap_or_default();
        return with(&format!("its phase is {phase}"), status.message.as_deref());
    };
    let reason = ended.reason.clone().unwrap_or_default();
    let text = format!("{reason}, exit code {}", ended.exit_code);
    let text = with(text.trim_start_matches(", "), ended.message.as_deref());
    format!("{text}{}", advice(&reason))
}

/// What ended a pod before its own container began: an init container that failed.
fn init_failure(status: &PodStatus) -> Option<String> {
    let mut all = status.init_container_statuses.iter().flatten();
    all.find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        if ended.exit_code == 0 {
            return None;
        }
        let text = format!(
            "its init container `{}` ended with exit code {}",
            container.name, ended.exit_code
        );
        let message = ended.message.as_deref().or(ended.reason.as_deref());
        Some(format!(
            "{}{FOREIGN_CONTAINER_ADVICE}",
            with(&text, message)
        ))
    })
}

fn container(status: &PodStatus) -> Option<&ContainerStatus> {
    // Others may have put containers of their own beside it.
    let all = status.container_statuses.as_ref()?;
    all.iter().find(|one| one.name == CONTAINER)
}

fn with(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) if reason.is_empty() => message.to_owned(),
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

/// Advice about a reason of the cluster's.
fn advice(reason: &str) -> &'static str {
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            ". See `image`, `image_pull_policy` and `image_pull_secrets`, and that nodes reach the \
             registry"
        }
        "Unschedulable" => {
            ". Lower `memory_mb` or `cpus`, see `node_selector`, or have nodes added"
        }
        "Evicted" => {
            ". The node was short of something: lower what commands use, or name other nodes"
        }
        "DeadlineExceeded" => ". It had run for `active_deadline_s`",
        "OOMKilled" => ". Give it more with `memory_mb`",
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "StartError"
        | "CrashLoopBackOff"
        | "Error"
        | "ContainerCannotRun" => {
            ". The image must have the `shell` that is configured, be for the nodes' processor, and \
             allow the `user`"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: &Value) -> PodState {
        state(&serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap())
    }

    fn in_container(state: &Value) -> Value {
        json!({ "phase": "Pending", "containerStatuses": [{
            "name": "work", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }] })
    }

    #[test]
    fn what_may_come_is_waited_for_and_what_never_does_is_not() {
        assert_eq!(of(&json!({})), PodState::Waiting(String::new()));
        assert_eq!(
            of(&in_container(
                &json!({ "waiting": { "reason": "ContainerCreating" } })
            )),
            PodState::Waiting("ContainerCreating".to_owned())
        );
        assert_eq!(
            of(&in_container(&json!({ "running": {} }))),
            PodState::Running
        );
        for (status, words) in [
            (
                in_container(&json!({ "waiting": {
                    "reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\"" } })),
                ["Back-off pulling image", "`image`"],
            ),
            (
                json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }),
                ["low on memory", "other nodes"],
            ),
            (
                json!({ "phase": "Failed", "reason": "DeadlineExceeded" }),
                ["DeadlineExceeded", "`active_deadline_s`"],
            ),
            (
                in_container(&json!({ "terminated": { "reason": "OOMKilled", "exitCode": 137 } })),
                ["OOMKilled, exit code 137", "`memory_mb`"],
            ),
        ] {
            let PodState::Terminated(text) = of(&status) else {
                panic!("{words:?} is waited for")
            };
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        let waits = of(&json!({ "phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available" }] }));
        let PodState::Waiting(text) = waits else {
            panic!("a node may be added")
        };
        assert!(
            text.contains("0/3 nodes") && text.contains("`node_selector`"),
            "{text}"
        );
    }
    #[test]
    fn an_init_container_that_never_runs_ends_the_wait_and_is_named() {
        let with_init = |phase: &str, state: Value| {
            json!({
                "phase": phase,
                "initContainerStatuses": [{
                    "name": "mesh-init", "image": "i", "imageID": "", "ready": false,
                    "restartCount": 4, "state": state,
                }],
                "containerStatuses": [{
                    "name": "work", "image": "i", "imageID": "", "ready": false,
                    "restartCount": 0, "state": { "waiting": { "reason": "PodInitializing" } },
                }],
            })
        };
        let waiting = |reason: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": "back-off 40s" } });
            of(&with_init("Pending", state))
        };
        let failed = json!({ "terminated": { "reason": "Error", "exitCode": 7 } });
        for state in [
            waiting("CrashLoopBackOff"),
            waiting("ImagePullBackOff"),
            of(&with_init("Failed", failed)),
        ] {
            let PodState::Terminated(text) = state else {
                panic!("it is waited for")
            };
            assert!(
                text.contains("`mesh-init`") && text.contains("`labels`"),
                "{text}"
            );
        }
        let PodState::Waiting(text) = waiting("ErrImagePull") else {
            panic!("it may come")
        };
        assert!(
            text.contains("`mesh-init`") && text.contains("back-off 40s"),
            "{text}"
        );
        let running = of(&with_init("Pending", json!({ "running": {} })));
        assert_eq!(running, PodState::Waiting("PodInitializing".to_owned()));
    }
}
