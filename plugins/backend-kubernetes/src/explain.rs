//! What a failure of the cluster says to whoever reads it: what failed, why, and what to do.

use std::error::Error as _;

use conjure_exec_agent::client::relayed::RouteFailure;
use conjure_skill_sdk::Error;
use kube::Error as ClusterError;
use kube::client::{AuthError, UpgradeConnectionError};

use crate::cluster::Cluster;

/// A failure of the cluster, with its words.
#[derive(Debug, Clone)]
pub(crate) struct ClusterFailure {
    pub(crate) text: String,
    /// Whether the cluster may be reached in a moment.
    pub(crate) may_pass: bool,
    /// Whether what was asked for is not there.
    pub(crate) missing: bool,
    /// Whether the cluster does not know who asks, or not any more.
    pub(crate) unknown: bool,
}

impl From<ClusterFailure> for Error {
    fn from(failure: ClusterFailure) -> Self {
        Self::new(failure.text)
    }
}

impl From<ClusterFailure> for RouteFailure {
    fn from(failure: ClusterFailure) -> Self {
        Self {
            text: failure.text,
            may_pass: failure.may_pass,
        }
    }
}

impl ClusterFailure {
    /// A failure that stays, however long one waits.
    pub(crate) fn lasting(text: String) -> Self {
        Self {
            text,
            may_pass: false,
            missing: false,
            unknown: false,
        }
    }

    /// Something that took too long.
    pub(crate) fn late(cluster: &Cluster, what: &str) -> Self {
        Self {
            text: format!(
                "{what} failed: the cluster at {} does not answer in time: see that it is up and \
                 reached from here. Other backends go on working.",
                cluster.address
            ),
            may_pass: true,
            missing: false,
            unknown: false,
        }
    }
}

/// Says what an error of the cluster means; `right` is what is needed for what was tried.
pub(crate) fn explain(
    cluster: &Cluster,
    what: &str,
    right: &str,
    error: &ClusterError,
) -> ClusterFailure {
    let (code, said) = match error {
        ClusterError::Api(status) => (Some(status.code), status.message.clone()),
        ClusterError::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            (Some(code.as_u16()), format!("it answered {code}"))
        }
        error => (None, causes(error)),
    };
    let Cluster {
        namespace, address, ..
    } = cluster;
    let text = match (code, error) {
        (Some(401), _) | (_, ClusterError::Auth(_)) => format!(
            "the cluster at {address} does not know who asks ({said}): see the user of the \
             kubeconfig, whose token or certificate may be over; `kubectl auth whoami` tries it"
        ),
        (Some(403), _) => format!(
            "the cluster at {address} forbids it ({what}: {said}): the user of the kubeconfig needs \
             the right `{right}` in the namespace {namespace}; `kubectl auth can-i {right} -n \
             {namespace}` tries it. A quota or a policy of the namespace may forbid it too"
        ),
        (Some(404), _) if said.contains("namespaces") => format!(
            "the cluster at {address} has no namespace {namespace}: make it, or name another one \
             with `namespace`"
        ),
        (Some(_), _) => format!("{what} failed: the cluster at {address} says: {said}"),
        (None, _) => format!(
            "{what} failed: the cluster at {address} does not answer ({said}): see that it is up \
             and reached from here. Other backends go on working."
        ),
    };
    ClusterFailure {
        text,
        may_pass: code.is_none_or(|code| code == 429 || code >= 500)
            && !matches!(error, ClusterError::Auth(_)),
        missing: code == Some(404),
        unknown: code == Some(401),
    }
}

/// An error with those that it comes from. Not what the login program of a kubeconfig was given and
/// printed: there are secrets in that.
pub(crate) fn causes(error: &ClusterError) -> String {
    if let ClusterError::Auth(AuthError::AuthExecRun { out, .. }) = error {
        return format!(
            "the login program of the kubeconfig failed ({}); run it by hand to see what it says",
            out.status
        );
    }
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        inner = cause.source();
    }
    text
}
