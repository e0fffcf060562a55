//! The way to a cluster, which is made at first use.

use std::io;
use std::path::Path;
use std::time::Duration;

use conjure_skill_sdk::{Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use tokio::sync::Mutex;

use crate::config::KubernetesSettings;
use crate::explain::causes;

/// How long the login program that a kubeconfig names may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster, as it was found.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) pods: Api<Pod>,
    pub(crate) namespace: String,
    /// Address of the cluster, for people.
    pub(crate) address: String,
}

/// The cluster of a backend instance.
#[derive(Debug, Default)]
pub(crate) struct ClusterConnection(Mutex<Option<Cluster>>);

impl ClusterConnection {
    /// The cluster. What says where it is is read again until it can be read.
    pub(crate) async fn cluster(&self, settings: &KubernetesSettings) -> Result<Cluster> {
        let mut made = self.0.lock().await;
        if let Some(cluster) = &*made {
            return Ok(cluster.clone());
        }
        let cluster = Box::pin(Cluster::new(settings)).await?;
        Ok(made.insert(cluster).clone())
    }

    /// Reads that again next time: a token of it may be another one then.
    pub(crate) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

impl Cluster {
    async fn new(settings: &KubernetesSettings) -> Result<Self> {
        let mut config = config(settings).await?;
        config.connect_timeout = Some(settings.connect_timeout());
        let address = config.cluster_url.to_string();
        let namespace = settings.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        // Others of this process may have set one already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let unusable = |why: &str| {
            Error::new(format!(
                "the cluster at {address} cannot be used: {why}. See the certificates, the login \
                 and the proxy that the kubeconfig names"
            ))
        };
        // The login program of a kubeconfig may take its time, or wait for somebody.
        let making = tokio::task::spawn_blocking(move || Client::try_from(config));
        let client = match tokio::time::timeout(LOGIN_TIMEOUT, making).await {
            Ok(Ok(Ok(client))) => client,
            Ok(Ok(Err(error))) => return Err(unusable(&causes(&error))),
            Ok(Err(_)) => return Err(unusable("reading its kubeconfig panicked")),
            Err(_) => {
                return Err(unusable(&format!(
                    "its login is not over after {} s",
                    LOGIN_TIMEOUT.as_secs()
                )));
            }
        };
        Ok(Self {
            pods: Api::namespaced(client, &namespace),
            namespace,
            address,
        })
    }
}

async fn config(settings: &KubernetesSettings) -> Result<Config> {
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..KubeConfigOptions::default()
    };
    let (read, place) = match &settings.kubeconfig {
        Some(path) => (
            Kubeconfig::read_from(path),
            format!("the kubeconfig {}", path.display()),
        ),
        None => (Kubeconfig::read(), "the kubeconfig".to_owned()),
    };
    let named = settings.kubeconfig.is_some() || settings.context.is_some();
    let failed = match read {
        Ok(kubeconfig) => match Config::from_custom_kubeconfig(kubeconfig, &options).await {
            Ok(config) => return Ok(config),
            Err(error) => error,
        },
        Err(error) => error,
    };
    let missing = is_missing(&failed);
    if missing && !named {
        // A host that runs in a pod has the cluster around it.
        if let Ok(config) = Config::incluster() {
            return Ok(config);
        }
    }
    Err(Error::new(if missing && settings.kubeconfig.is_none() {
        "no kubeconfig was found: neither KUBECONFIG nor ~/.kube/config names a file that is there, \
         and this host runs in no cluster. Name one with `kubeconfig` in this backend's \
         configuration. Other backends go on working."
            .to_owned()
    } else {
        format!(
            "{place} cannot be used: {failed}. See that it is there, that this user may read it \
             and that it has the context, the cluster and the user; `kubectl config get-contexts` \
             shows them"
        )
    }))
}

/// Whether no file was there, or one with nothing in it.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet => true,
        KubeconfigError::ReadConfig(error, path) => {
            error.kind() == io::ErrorKind::NotFound && !Path::new(path).exists()
        }
        _ => false,
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Cluster");
        shown.field("address", &self.address);
        shown.field("namespace", &self.namespace);
        shown.finish_non_exhaustive()
    }
}
