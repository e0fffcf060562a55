//! What a failure of the cluster says to whoever reads it: what failed, why, and what to do.

use std::error::Error as StdError;
use std::io;

use conjure_exec_agent::client::relayed::RouteFailure;
use conjure_skill_sdk::Error;
use kube::Error as ClusterError;
use kube::client::{AuthError, UpgradeConnectionError};
use rustls::{AlertDescription, Error as TlsError};

use crate::cluster::Cluster;

/// The right to run programs in pods.
pub(crate) const EXEC_RIGHT: &str = "create pods/exec";
/// What clusters before 1.35 ask for in its place.
const OLD_EXEC_RIGHT: &str = "get pods/exec";

/// A failure of the cluster, with its words.
#[derive(Debug, Clone)]
pub(crate) struct ClusterFailure {
    pub(crate) text: String,
    /// Whether the cluster may be reached in a moment.
    pub(crate) is_transient: bool,
    /// Whether what was asked for is not there.
    pub(crate) not_found: bool,
    /// Whether the cluster does not know who asks, or not any more.
    pub(crate) unknown: bool,
    /// Whether it is an answer of the cluster's.
    pub(crate) answered: bool,
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
            is_transient: failure.is_transient,
        }
    }
}

impl ClusterFailure {
    /// A failure that stays, however long one waits.
    pub(crate) fn permanent(text: String) -> Self {
        Self {
            text,
            is_transient: false,
            not_found: false,
            unknown: false,
            answered: false,
        }
    }

    /// Something that took too long.
    pub(crate) fn timed_out(cluster: &Cluster, what: &str) -> Self {
        Self {
            text: format!(
                "{what} failed: the cluster at {} does not answer in time: see that it is up and \
                 reached from here. Other backends go on working.",
                cluster.address
            ),
            is_transient: true,
            not_found: false,
            unknown: false,
            answered: false,
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
    let context = ClusterContext {
        address: &cluster.address,
        namespace: &cluster.namespace,
        flags: &cluster.flags,
    };
    context.explain(what, right, error)
}

/// The cluster in which something failed.
#[derive(Debug, Clone, Copy)]
struct ClusterContext<'c> {
    address: &'c str,
    namespace: &'c str,
    /// What leads `kubectl` there.
    flags: &'c str,
}

impl ClusterContext<'_> {
    fn explain(self, what: &str, right: &str, error: &ClusterError) -> ClusterFailure {
        let (code, said) = match error {
            ClusterError::Api(status) => (Some(status.code), status.message.clone()),
            ClusterError::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
                (Some(code.as_u16()), format!("it answered {code}"))
            }
            error => (None, causes(error)),
        };
        let certificate = refused_certificate(error);
        let Self {
            address,
            namespace,
            flags,
        } = self;
        let text = match (code, error) {
            (Some(401), _) | (_, ClusterError::Auth(_)) => format!(
                "the cluster at {address} does not know who asks ({said}): see the user of the \
                 kubeconfig, whose token or certificate may be over; `kubectl auth whoami{flags}` \
                 tries it"
            ),
            (Some(403), _) => self.forbidden(what, right, &said),
            (Some(404), _) if said.contains("namespaces") => format!(
                "the cluster at {address} has no namespace {namespace}: make it, or name another \
                 one with `namespace`"
            ),
            (Some(429), _) => format!(
                "the cluster at {address} is busy ({what}: 429: {said}): it takes no more requests \
                 for now. Call again in a moment. Other backends go on working."
            ),
            (Some(_), _) => format!("{what} failed: the cluster at {address} says: {said}"),
            (None, _) => match certificate {
                Some(RefusedCertificate::Cluster) => format!(
                    "{what} failed: the certificate of the cluster at {address} is not trusted \
                     ({said}): see `certificate-authority` and `server` of the kubeconfig's \
                     cluster, and the clock of this machine"
                ),
                Some(RefusedCertificate::User) => format!(
                    "the cluster at {address} does not take the client certificate of who asks \
                     ({what}: {said}): see `client-certificate` of the kubeconfig's user, which may \
                     be missing or over"
                ),
                None => format!(
                    "{what} failed: the cluster at {address} does not answer ({said}): see that it \
                     is up and reached from here. Other backends go on working."
                ),
            },
        };
        ClusterFailure {
            text,
            is_transient: code.is_none_or(|code| code == 429 || code >= 500)
                && certificate.is_none()
                && !matches!(error, ClusterError::Auth(_)),
            not_found: code == Some(404),
            unknown: code == Some(401),
            answered: code.is_some(),
        }
    }

    /// What a cluster means that forbids something: a right is missing, or something does not fit.
    fn forbidden(self, what: &str, right: &str, said: &str) -> String {
        let Self {
            address,
            namespace,
            flags,
        } = self;
        if let Some(advice) = policy_advice(said) {
            return format!(
                "the cluster at {address} does not allow it ({what}: {said}). {advice}"
            );
        }
        let needed = match right {
            EXEC_RIGHT if said.contains("cannot get ") => format!("`{OLD_EXEC_RIGHT}`"),
            EXEC_RIGHT if !said.contains("cannot create ") => {
                format!("`{EXEC_RIGHT}` (before Kubernetes 1.35: `{OLD_EXEC_RIGHT}`)")
            }
            right => format!("`{right}`"),
        };
        let tried = match needed.contains(EXEC_RIGHT) {
            true => EXEC_RIGHT,
            false if right == EXEC_RIGHT => OLD_EXEC_RIGHT,
            false => right,
        };
        // What stands behind a slash is the name of one pod there.
        let tried = match tried.split_once('/') {
            Some((pods, part)) => format!("{pods} --subresource={part}"),
            None => tried.to_owned(),
        };
        let otherwise = match said.contains(" cannot ") {
            true => "",
            false => ". A policy of the namespace may forbid it too",
        };
        format!(
            "the cluster at {address} forbids it ({what}: {said}): the user of the kubeconfig needs \
             the right {needed} in the namespace {namespace}; `kubectl auth can-i {tried} -n \
             {namespace}{flags}` tries it{otherwise}"
        )
    }
}

/// What to do where not a right is missing, but a pod does not fit.
fn policy_advice(said: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    Some(if has(&["exceeded quota"]) {
        "The quota of the namespace is used up: end other sessions, lower `memory_mb` and `cpus`, or \
         have it raised"
    } else if has(&["violates PodSecurity"]) {
        "The namespace takes only pods of its Pod Security Standard: `user` 0 is none of \
         `restricted`; name another `user`, or another namespace with `namespace`"
    } else if has(&["is being terminated"]) {
        "The namespace is being deleted: name another one with `namespace`"
    } else if has(&["error looking up service account"]) {
        "The namespace has no such service account: make it, or name another one with \
         `service_account`"
    } else if has(&[" usage per ", "limit to request ratio"]) {
        "A LimitRange of the namespace says how large pods are there: see `memory_mb`, `cpus` and \
         `disk_mb`"
    } else if has(&["admission webhook", "ValidatingAdmissionPolicy"]) {
        "A policy of the cluster says which pods it takes: see `image`, `labels` and the rest of \
         this backend's configuration, or ask whoever runs it"
    } else {
        return None;
    })
}

/// Owner of the certificate that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusedCertificate {
    /// The cluster, whose certificate this host refused.
    Cluster,
    /// The user, whose certificate the cluster refused.
    User,
}

fn refused_certificate(error: &ClusterError) -> Option<RefusedCertificate> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        match tls_error(error) {
            Some(TlsError::InvalidCertificate(_)) => return Some(RefusedCertificate::Cluster),
            Some(TlsError::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied,
            )) => return Some(RefusedCertificate::User),
            _ => cause = error.source(),
        }
    }
    None
}

/// The error of TLS that this is. What is in an error of input and output is not its source.
fn tls_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e TlsError> {
    let mut current = error;
    loop {
        if let Some(found) = current.downcast_ref::<TlsError>() {
            return Some(found);
        }
        let outer: &'e io::Error = current.downcast_ref::<io::Error>()?;
        current = outer.get_ref()?;
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
    // The SDK says each cause behind the error.
    Error::from(error).to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rustls::CertificateError;

    use super::*;

    const CONTEXT: ClusterContext<'_> = ClusterContext {
        address: "https://here",
        namespace: "agents",
        flags: "",
    };

    fn forbidden(right: &str, said: &str) -> String {
        let status = Status::failure(said, "Forbidden").with_code(403);
        let error = ClusterError::Api(status.boxed());
        let failure = CONTEXT.explain("making a pod", right, &error);
        assert!(!failure.is_transient && failure.answered);
        failure.text
    }

    #[test]
    fn what_is_forbidden_and_no_matter_of_rights_says_what_does_not_fit() {
        for (said, advice) in [
            (
                "pods \"x\" is forbidden: exceeded quota: compute",
                "`memory_mb`",
            ),
            (
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot",
                "`user`",
            ),
            (
                "pods \"x\" is forbidden: unable to create new content in namespace agents because \
                 it is being terminated",
                "is being deleted",
            ),
            (
                "pods \"x\" is forbidden: error looking up service account agents/bot: \
                 serviceaccount \"bot\" not found",
                "`service_account`",
            ),
            (
                "pods \"x\" is forbidden: maximum memory usage per Container is 256Mi, but limit is \
                 512Mi",
                "LimitRange",
            ),
            (
                "admission webhook \"validate.example\" denied the request: no",
                "A policy of the cluster",
            ),
        ] {
            let text = forbidden("create pods", said);
            assert!(text.contains(said) && text.contains(advice), "{text}");
            assert!(!text.contains("needs the right"), "{text}");
        }
    }

    #[test]
    fn a_right_that_is_missing_is_named_as_the_cluster_asks_for_it() {
        let text = forbidden(
            "create pods",
            "pods is forbidden: User \"me\" cannot create resource \"pods\" in API group \"\"",
        );
        assert!(
            text.contains("`kubectl auth can-i create pods -n agents`"),
            "{text}"
        );
        assert!(!text.contains("policy"), "{text}");
        let exec = |verb: &str| {
            let said = format!("User \"me\" cannot {verb} resource \"pods/exec\"");
            forbidden(EXEC_RIGHT, &said)
        };
        for (verb, other) in [("get", "create"), ("create", "get")] {
            let text = exec(verb);
            let tries = format!("`kubectl auth can-i {verb} pods --subresource=exec -n agents`");
            assert!(text.contains(&tries), "{text}");
            assert!(!text.contains(&format!("`{other} pods/exec`")), "{text}");
        }
        let text = forbidden(EXEC_RIGHT, "no");
        assert!(
            text.contains("`create pods/exec`") && text.contains("`get pods/exec`"),
            "{text}"
        );
    }

    #[test]
    fn a_certificate_that_is_refused_is_no_cluster_that_is_away() {
        let wrapped = |error: TlsError| {
            let inner = io::Error::new(io::ErrorKind::InvalidData, error);
            ClusterError::Service(Box::new(io::Error::other(inner)))
        };
        let error = wrapped(TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer,
        ));
        let failure = CONTEXT.explain("making a pod", "create pods", &error);
        assert!(!failure.is_transient, "{}", failure.text);
        assert!(
            failure.text.contains("`certificate-authority`")
                && failure.text.contains("UnknownIssuer"),
            "{}",
            failure.text
        );
        let error = wrapped(TlsError::AlertReceived(
            AlertDescription::CertificateRequired,
        ));
        let failure = CONTEXT.explain("making a pod", "create pods", &error);
        assert!(!failure.is_transient, "{}", failure.text);
        assert!(
            failure.text.contains("`client-certificate`"),
            "{}",
            failure.text
        );
        let error = wrapped(TlsError::DecryptError);
        let failure = CONTEXT.explain("making a pod", "create pods", &error);
        assert!(failure.is_transient && failure.text.contains("does not answer"));
    }

    #[test]
    fn a_cluster_that_is_busy_is_not_one_that_does_not_answer() {
        let status = Status::failure("slow down", "TooManyRequests").with_code(429);
        let error = ClusterError::Api(status.boxed());
        let failure = CONTEXT.explain("making a pod", "create pods", &error);
        assert!(failure.is_transient && failure.answered);
        for word in ["is busy", "429", "slow down"] {
            assert!(failure.text.contains(word), "{}", failure.text);
        }
    }
}
