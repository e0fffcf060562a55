//! The way to a cluster, which is made at first use.

use std::io;
use std::path::Path;
use std::time::Duration;

use conjure_exec_agent::executor::quoted_word;
use conjure_skill_sdk::{Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::client::AuthError;
use kube::config::{ExecAuthCluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::Mutex;

use crate::config::KubernetesSettings;
use crate::explain::causes;
use crate::proxy;

/// How long the login program that a kubeconfig names may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster, as it was found.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) pods: Api<Pod>,
    pub(crate) namespace: String,
    /// Address of the cluster and its proxy, for people.
    pub(crate) address: String,
    /// What leads `kubectl` to it, behind its other words.
    pub(crate) flags: String,
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
        // What is asked again, and for how long, is said where it is asked.
        config.default_retry = false;
        let address = match proxy::display_address(&config) {
            Some(proxy) => format!("{} (by the proxy {proxy})", config.cluster_url),
            None => config.cluster_url.to_string(),
        };
        let login = config.auth_info.exec.as_ref();
        let login = login.and_then(|exec| exec.command.clone());
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
            Ok(Ok(Err(kube::Error::Auth(AuthError::AuthExecStart(error))))) => {
                return Err(no_login(&address, &login.unwrap_or_default(), &error));
            }
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
            flags: flags(settings),
        })
    }
}

/// The flags of `kubectl` that say what the configuration says.
fn flags(settings: &KubernetesSettings) -> String {
    let path = settings.kubeconfig.as_ref();
    let path = path.map(|path| path.display().to_string());
    let context = settings.context.clone();
    let set = [("--kubeconfig", path), ("--context", context)];
    let set = set
        .into_iter()
        .filter_map(|(flag, value)| Some((flag, value?)));
    set.map(|(flag, value)| format!(" {flag} {}", quoted_word(&value)))
        .collect()
}

/// The failure of a login whose program does not start.
fn no_login(address: &str, program: &str, error: &io::Error) -> Error {
    Error::new(format!(
        "the cluster at {address} cannot be used: the login program `{program}` of the kubeconfig \
         cannot be started: {error}. Install it on this host's machine, where the PATH finds it, or \
         name it by its path in the kubeconfig"
    ))
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
        Ok(mut kubeconfig) => {
            let own = proxy::take_from(&mut kubeconfig, settings.context.as_deref());
            let read = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
            let read = read.or_else(|error| match error {
                // kube wants more of the environment's proxy than others do.
                KubeconfigError::ParseProxyUrl(_) | KubeconfigError::ParseNoProxy(_) => {
                    without_proxy(&kubeconfig, settings.context.as_deref()).ok_or(error)
                }
                error => Err(error),
            });
            match read {
                Ok(mut config) => {
                    let var = |name: &str| std::env::var(name).ok();
                    proxy::set(&mut config, own, var).map_err(Error::new)?;
                    return Ok(config);
                }
                Err(error) => error,
            }
        }
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
             and that it has the context, the cluster and the user; `kubectl config get-contexts{}` \
             shows them",
            flags(&KubernetesSettings {
                context: None,
                ..settings.clone()
            })
        )
    }))
}

/// What kube makes of a context, without a proxy. Nothing where a part of it is not there or cannot be
/// read, which kube says before it looks at the proxy.
fn without_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Config> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| named.name == context)?;
    let context = context.context.as_ref()?;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|named| named.name == context.cluster)?;
    let cluster = cluster.cluster.as_ref()?;
    let mut users = kubeconfig.auth_infos.iter();
    let user = users.find(|named| Some(&named.name) == context.user.as_ref());
    let mut user = user
        .and_then(|named| named.auth_info.clone())
        .unwrap_or_default();
    let told = ExecAuthCluster::try_from(cluster).ok()?;
    let mut config = Config::new(cluster.server.as_deref()?.parse().ok()?);
    if let Some(namespace) = &context.namespace {
        config.default_namespace.clone_from(namespace);
    }
    if let Some(authority) = &told.certificate_authority_data {
        let certificates = CertificateDer::pem_slice_iter(authority);
        let certificates = certificates.map(|read| read.map(|one| one.to_vec()));
        config.root_cert = Some(certificates.collect::<Result<_, _>>().ok()?);
    }
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(told);
    }
    config.auth_info = user;
    Some(config)
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;

    /// Names the kubeconfig in the process that has a proxy in its environment.
    const KUBECONFIG: &str = "CONJURE_TEST_BEHIND_A_PROXY";
    const CERTIFICATE: &str = "any bytes";

    /// Not a test by itself: what the next one runs with a proxy in its environment.
    #[tokio::test]
    async fn a_host_behind_a_proxy() {
        let Some(path) = std::env::var_os(KUBECONFIG) else {
            return;
        };
        let settings = KubernetesSettings {
            kubeconfig: Some(path.into()),
            ..KubernetesSettings::default()
        };
        let config = config(&settings).await.unwrap();
        assert_eq!(config.cluster_url.host(), Some("k8s.example.org"));
        assert_eq!(config.default_namespace, "agents");
        assert_eq!(config.root_cert, Some(vec![CERTIFICATE.into()]));
        assert_eq!(config.tls_server_name.as_deref(), Some("inside"));
        let exec = config.auth_info.exec.as_ref().unwrap();
        let told = exec.cluster.as_ref().unwrap();
        println!(
            "proxy: {:?} {:?}",
            proxy::display_address(&config),
            told.proxy_url
        );
    }

    #[test]
    fn a_usual_no_proxy_and_any_proxy_of_the_environment_are_taken_as_others_take_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let certificate = STANDARD.encode(CERTIFICATE);
        let pem =
            format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n");
        let kubeconfig = json!({
            "current-context": "c",
            "contexts": [{ "name": "c", "context": {
                "cluster": "one", "user": "me", "namespace": "agents",
            } }],
            "clusters": [{ "name": "one", "cluster": {
                "server": "https://k8s.example.org:6443", "tls-server-name": "inside",
                "certificate-authority-data": STANDARD.encode(pem),
            } }],
            "users": [{ "name": "me", "user": { "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "login",
                "interactiveMode": "Never", "provideClusterInfo": true,
            } } }],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let proxy = "http://10.9.9.9:3128";
        let by_proxy = format!("{:?} {:?}", Some("10.9.9.9:3128"), Some(proxy));
        let direct = "None None";
        for (proxy, without, expected) in [
            (proxy, "localhost", by_proxy.as_str()),
            (proxy, "localhost,.svc,10.0.0.0/8,", by_proxy.as_str()),
            (proxy, "localhost,,*.svc, 10.0.0.0/8", by_proxy.as_str()),
            (proxy, "a,,.example.org,", direct),
            ("http://no address", "k8s.example.org", direct),
        ] {
            let mut host = Command::new(std::env::current_exe().unwrap());
            host.args([
                "--exact",
                "cluster::tests::a_host_behind_a_proxy",
                "--nocapture",
            ]);
            for name in ["https_proxy", "no_proxy", "HTTP_PROXY", "http_proxy"] {
                host.env_remove(name);
            }
            let host = host
                .env(KUBECONFIG, &path)
                .env("HTTPS_PROXY", proxy)
                .env("NO_PROXY", without)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&host.stdout);
            assert!(host.status.success(), "{without}: {said}");
            assert!(
                said.contains(&format!("proxy: {expected}")),
                "{without}: {said}"
            );
        }
    }
}
