//! What the host does for plugins: the host operations of one session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_abi::{Fault, code};
use conjure_config::WorkingDirAccess;
use conjure_config::error_chain::with_causes;
use conjure_skill_sdk::protocol::{
    Elicit, Elicited, Empty, FileRef, HttpRequest, HttpResponse, INLINE_LIMIT, KvKey, KvKeys,
    KvList, KvSet, KvValue, RegisterFile, Registered, SecretGet, host_op,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::permission_check::PermissionCheck;
use super::plugin_grants::PluginGrants;
pub(crate) use super::plugin_http::LazyHttp;
use super::questions::{ASK, Answerers, QuestionSource, SessionClient, waits_for_somebody};
use super::sampling::CurrentModel;
use crate::artifacts::{Artifacts, OpenArtifact};
use conjure_plugins::{CallMeta, HostServices, PluginId};
use conjure_providers::auths::{Auths, MCP_SECRET};

/// The host operations that this host serves.
pub(crate) const SERVED: [&str; 14] = [
    "progress/1",
    "file/1",
    "kv.get/1",
    "kv.set/1",
    "kv.delete/1",
    "kv.list/1",
    "secret.get/1",
    "http.send/1",
    "sample/1",
    "elicit/1",
    "roots/1",
    "ask/1",
    "call.cancelled/1",
    "call.writable/1",
];

/// The most keys of a plugin, and the most bytes of a key.
const KV_KEYS: usize = 10_000;
const KV_KEY_BYTES: usize = 512;
/// The most bytes of an HTTP reply, and of a file that is sent.
const HTTP_BYTES: usize = 64 * 1024 * 1024;

/// Asks the person of a session.
pub trait Asker: Send + Sync + 'static {
    /// Puts a plugin's question to the person and waits for the answer.
    fn elicit(&self, plugin: String, question: Elicit) -> BoxFuture<'static, Elicited>;

    /// Like [`Self::elicit`], where it is known which call asks.
    fn elicit_in(
        &self,
        plugin: String,
        call_id: Option<Arc<str>>,
        question: Elicit,
    ) -> BoxFuture<'static, Elicited> {
        drop(call_id);
        self.elicit(plugin, question)
    }

    /// Whether a person could be there at all.
    fn is_available(&self) -> bool {
        true
    }
}

/// Nobody is there: every question is cancelled.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAsker;

impl Asker for NoAsker {
    fn elicit(&self, _plugin: String, _question: Elicit) -> BoxFuture<'static, Elicited> {
        std::future::ready(Elicited {
            action: "cancel".to_owned(),
            content: BTreeMap::new(),
        })
        .boxed()
    }

    fn is_available(&self) -> bool {
        false
    }
}

/// Values that plugins keep, one namespace a plugin, in one file each.
#[derive(Debug)]
pub(crate) struct KeyValues {
    dir: PathBuf,
    open: Mutex<BTreeMap<String, BTreeMap<String, Value>>>,
}

impl KeyValues {
    /// Kept below `dir`, which is made at the first write.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            open: Mutex::new(BTreeMap::new()),
        }
    }

    fn with<R>(
        &self,
        plugin: &str,
        change: impl FnOnce(&mut BTreeMap<String, Value>) -> Result<(R, bool), Fault>,
    ) -> Result<R, Fault> {
        let path = self.dir.join(format!(
            "{}.json",
            conjure_config::file_name::safe_name(plugin)
        ));
        let failed = |error: std::io::Error| Fault::new(code::FAILED, error.to_string());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(plugin) {
            let values = match conjure_config::fs::read(&path) {
                Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                    Fault::new(
                        code::FAILED,
                        format!("`{}` is damaged: {error}", path.display()),
                    )
                })?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
                Err(error) => return Err(failed(error)),
            };
            open.insert(plugin.to_owned(), values);
        }
        let values = open.entry(plugin.to_owned()).or_default();
        let before = values.clone();
        let (result, changed) = change(values)?;
        if changed {
            let bytes = serde_json::to_vec(values).unwrap_or_default();
            let written = conjure_config::fs::create_private_dir(&self.dir)
                .and_then(|()| conjure_config::fs::write_atomic(&path, &bytes));
            if let Err(error) = written {
                *values = before;
                return Err(failed(error));
            }
        }
        Ok(result)
    }
}

/// The host operations for one plugin in one session (or for one backend instance).
pub(crate) struct Services {
    pub(crate) shared: Arc<ServicesShared>,
    pub(crate) permissions: PermissionCheck,
    pub(crate) session: Option<SessionServices>,
}

/// What all plugins of a host share.
pub(crate) struct ServicesShared {
    pub(crate) key_values: KeyValues,
    pub(crate) secrets: BTreeMap<String, SecretString>,
    pub(crate) http: LazyHttp,
    pub(crate) temp: PathBuf,
    /// Sessions by id, so that an instance that serves many of them finds the one that asks.
    pub(crate) sessions: Mutex<BTreeMap<String, SessionServices>>,
    /// Where secrets of MCP servers may be saved.
    pub(crate) auths: Option<Auths>,
}

impl ServicesShared {
    /// From here on the session's plugins find it.
    pub(crate) fn remember(&self, session: &str, services: SessionServices) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.to_owned(), services);
    }

    /// The session with these files is over. Another one of its thread, which was opened since,
    /// stays.
    pub(crate) fn forget(&self, session: &str, files: &Arc<Artifacts>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sessions.get(session);
        if known.is_some_and(|known| Arc::ptr_eq(&known.artifacts, files)) {
            sessions.remove(session);
        }
    }
}

/// What belongs to one session.
#[derive(Clone)]
pub(crate) struct SessionServices {
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) working_dir: PathBuf,
    pub(crate) exchange_dir: PathBuf,
    pub(crate) grants: PluginGrants,
    pub(crate) asker: Arc<dyn Asker>,
    pub(crate) current_model: CurrentModel,
    /// The program on the other side, which answers before the host does.
    pub(crate) client: Option<Arc<dyn SessionClient>>,
}

impl SessionServices {
    /// Opens a file that a plugin names, where that is in a directory of the session that the plugin may
    /// read.
    fn open_for(&self, plugin: &str, path: &Path) -> Option<OpenArtifact> {
        let opened = self.artifacts.open_inside(path).ok()?;
        let is_withheld = self.grants.working_dir(plugin) == WorkingDirAccess::None;
        let is_exchanged = || {
            let exchange = self.exchange_dir.canonicalize();
            exchange.is_ok_and(|exchange| opened.path.starts_with(exchange))
        };
        (!is_withheld || is_exchanged()).then_some(opened)
    }
}

impl HostServices for Services {
    fn is_interactive(&self, op: &str) -> bool {
        waits_for_somebody(op)
    }

    fn host(
        &self,
        plugin: &PluginId,
        call: &CallMeta,
        op: &str,
        json: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, Fault>> {
        let session = self.session.clone().or_else(|| {
            let sessions = self
                .shared
                .sessions
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            sessions.get(call.session.as_deref()?).cloned()
        });
        let asked = ServiceHandler {
            shared: Arc::clone(&self.shared),
            permissions: self.permissions.clone(),
            session,
            plugin: plugin.name.to_string(),
            call_id: call.call_id.clone(),
        };
        let op = op.to_owned();
        async move { asked.answer(&op, &json).await }.boxed()
    }
}

struct ServiceHandler {
    shared: Arc<ServicesShared>,
    permissions: PermissionCheck,
    session: Option<SessionServices>,
    plugin: String,
    call_id: Option<Arc<str>>,
}

impl ServiceHandler {
    async fn answer(&self, op: &str, json: &[u8]) -> Result<Vec<u8>, Fault> {
        match op {
            host_op::PROGRESS => reply(&Empty {}),
            host_op::FILE => {
                let RegisterFile { file } = parse(op, json)?;
                let artifacts = Arc::clone(&self.session(op)?.artifacts);
                let artifact = artifacts
                    .register_async(&self.plugin, file)
                    .await
                    .map_err(|error| Fault::new(code::DENIED, error.to_string()))?;
                reply(&Registered {
                    artifact: artifact.id,
                })
            }
            host_op::KV_GET => {
                let KvKey { key } = parse(op, json)?;
                let value = self.shared.key_values.with(&self.plugin, |values| {
                    Ok((values.get(&key).cloned(), false))
                })?;
                reply(&KvValue { value })
            }
            host_op::KV_SET => {
                self.set(parse(op, json)?)?;
                reply(&Empty {})
            }
            host_op::KV_DELETE => {
                let KvKey { key } = parse(op, json)?;
                self.shared.key_values.with(&self.plugin, |values| {
                    let removed = values.remove(&key).is_some();
                    Ok(((), removed))
                })?;
                reply(&Empty {})
            }
            host_op::KV_LIST => {
                let KvList { prefix } = parse(op, json)?;
                let keys = self.shared.key_values.with(&self.plugin, |values| {
                    let keys: Vec<String> = values
                        .keys()
                        .filter(|key| key.starts_with(&prefix))
                        .cloned()
                        .collect();
                    Ok((keys, false))
                })?;
                reply(&KvKeys { keys })
            }
            host_op::SECRET_GET => self.secret(&parse(op, json)?).await,
            host_op::HTTP_SEND => reply(&self.http(parse(op, json)?).await?),
            host_op::SAMPLE | host_op::ELICIT | host_op::ROOTS | ASK => {
                self.answerers(op)?.serve(op, json).await
            }
            _ => Err(Fault::new(
                code::UNSUPPORTED,
                format!("this host does not serve `{op}`"),
            )),
        }
    }

    fn answerers(&self, op: &str) -> Result<Answerers, Fault> {
        let session = self.session(op)?;
        Ok(Answerers {
            source: QuestionSource {
                plugin: self.plugin.clone(),
                call_id: self.call_id.clone(),
            },
            sampling: self.permissions.clone(),
            client: session.client.clone(),
            asker: Arc::clone(&session.asker),
            current_model: Arc::clone(&session.current_model),
            working_dir: session.working_dir.clone(),
        })
    }

    fn session(&self, op: &str) -> Result<&SessionServices, Fault> {
        self.session.as_ref().ok_or_else(|| {
            Fault::new(
                code::GONE,
                format!("`{op}` needs a session, and none is open here"),
            )
        })
    }

    fn set(&self, KvSet { key, value }: KvSet) -> Result<(), Fault> {
        if key.is_empty() || key.len() > KV_KEY_BYTES {
            return Err(Fault::new(
                code::INVALID,
                format!(
                    "a key has 1 to {KV_KEY_BYTES} bytes, this one {}",
                    key.len()
                ),
            ));
        }
        let size = value.to_string().len();
        if size > INLINE_LIMIT {
            return Err(Fault::new(
                code::INVALID,
                format!("a value has at most {INLINE_LIMIT} bytes as JSON, this one {size}"),
            ));
        }
        self.shared.key_values.with(&self.plugin, |values| {
            if values.len() >= KV_KEYS && !values.contains_key(&key) {
                return Err(Fault::new(
                    code::BUSY,
                    format!("the plugin has {KV_KEYS} keys already; delete some"),
                ));
            }
            values.insert(key, value);
            Ok(((), true))
        })
    }

    async fn secret(&self, SecretGet { name }: &SecretGet) -> Result<Vec<u8>, Fault> {
        self.permissions.secret(&self.plugin, name)?;
        let of_environment = self.shared.secrets.get(name).cloned();
        let secret = match (of_environment, &self.shared.auths) {
            (None, Some(auths)) => auths
                .secret(name)
                .await
                .map_err(|error| Fault::new(code::FAILED, error.to_string()))?,
            (secret, _) => secret,
        };
        match secret {
            Some(secret) => reply(&json!({ "value": secret.expose_secret() })),
            None => {
                let mut text = format!(
                    "the host has no secret `{name}`; its owner sets it as the environment \
                     variable {}{name}",
                    conjure_config::env::SECRET_PREFIX
                );
                if name.starts_with(MCP_SECRET) {
                    text.push_str(&format!(
                        ", or saves it with `conjure auth create {name} --provider mcp`"
                    ));
                }
                Err(Fault::new(code::NOT_FOUND, text))
            }
        }
    }

    async fn http(&self, request: HttpRequest) -> Result<HttpResponse, Fault> {
        let failed = |what: String| Fault::new(code::FAILED, what);
        let url = reqwest::Url::parse(&request.url)
            .map_err(|e| Fault::new(code::INVALID, format!("`{}` is no URL: {e}", request.url)))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Fault::new(
                code::INVALID,
                "only http and https URLs are sent",
            ));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        self.permissions.http(&self.plugin, &host)?;
        let method = reqwest::Method::from_bytes(request.method.as_bytes())
            .map_err(|_| Fault::new(code::INVALID, format!("no method `{}`", request.method)))?;
        let client = self.shared.http.client(&url, &self.permissions);
        let mut builder = client
            .map_err(|error| failed(format!("HTTP cannot be set up: {error}")))?
            .request(method, url)
            .timeout(Duration::from_secs(300));
        for (name, value) in &request.headers {
            if is_connection_header(name) {
                return Err(Fault::new(code::DENIED, header_refusal(name)));
            }
            builder = builder.header(name, value);
        }
        if let Some(file) = &request.body_file {
            let path = file.path.as_deref().map(Path::new);
            let session = self.session.as_ref();
            let opened = session
                .zip(path)
                .and_then(|(session, path)| session.open_for(&self.plugin, path));
            let Some(opened) = opened else {
                return Err(Fault::new(
                    code::DENIED,
                    "the body's file is outside the session's directories, or in its working directory, \
                     which the session withholds from this plugin",
                ));
            };
            let read = tokio::task::spawn_blocking(move || opened.bytes(HTTP_BYTES as u64));
            let bytes = read
                .await
                .unwrap_or_else(|error| Err(std::io::Error::other(error)));
            let unread = |e: std::io::Error| failed(format!("the body's file cannot be read: {e}"));
            let bytes = bytes.map_err(unread)?.ok_or_else(|| {
                let text = format!(
                    "the body's file has more than {HTTP_BYTES} bytes; send it in several requests, \
                     if the server takes that"
                );
                Fault::new(code::INVALID, text)
            })?;
            builder = builder.body(bytes);
        } else if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let mut response = builder.send().await.map_err(|e| failed(with_causes(&e)))?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        let mut bytes = Vec::new();
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|e| failed(with_causes(&e)))?
        {
            if bytes.len() + piece.len() > HTTP_BYTES {
                return Err(failed(format!(
                    "the reply has more than {HTTP_BYTES} bytes"
                )));
            }
            bytes.extend_from_slice(&piece);
        }
        let mut reply = HttpResponse {
            status,
            headers,
            body: None,
            body_file: None,
        };
        match String::from_utf8(bytes) {
            Ok(text) if text.len() <= INLINE_LIMIT => reply.body = Some(text),
            Ok(text) => reply.body_file = Some(self.body_file(text.as_bytes())?),
            Err(error) => reply.body_file = Some(self.body_file(error.as_bytes())?),
        }
        Ok(reply)
    }

    fn body_file(&self, bytes: &[u8]) -> Result<FileRef, Fault> {
        let dir = self
            .session
            .as_ref()
            .map_or(&self.shared.temp, |s| &s.exchange_dir);
        let path = dir.join(format!("http-{}", uuid::Uuid::now_v7()));
        conjure_config::fs::create_private_dir(dir)
            .and_then(|()| conjure_config::fs::write_atomic(&path, bytes))
            .map_err(|error| Fault::new(code::FAILED, error.to_string()))?;
        Ok(FileRef::at(path.display().to_string()))
    }
}

/// Whether a header says which server is meant, or how a connection or a proxy works (RFC 9110, 7.6.1),
/// and so would get around the hosts that a manifest names.
fn is_connection_header(header: &str) -> bool {
    const NAMES: [&str; 7] = [
        "host",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let name = header.trim().to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || name.starts_with("proxy-") || name.starts_with(':')
}

fn parse<T: DeserializeOwned>(op: &str, json: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(json)
        .map_err(|error| Fault::new(code::INVALID, format!("`{op}`: {error}")))
}

fn reply<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| Fault::new(code::FAILED, error.to_string()))
}

fn header_refusal(name: &str) -> String {
    format!(
        "a plugin does not send the header `{name}`: which server is asked stands in the URL, and \
         the connection is the host's; leave it out"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_would_mean_another_server_is_not_a_plugins() {
        for name in [
            "Host",
            "hOST",
            "Proxy-Authorization",
            "proxy-connection",
            "TE",
            "Upgrade",
        ] {
            assert!(is_connection_header(name), "{name}");
        }
        for name in [
            "Accept",
            "Authorization",
            "X-Forwarded-Host",
            "Content-Type",
            "Cookie",
        ] {
            assert!(!is_connection_header(name), "{name}");
        }
        assert!(!header_refusal("Host").contains("  "));
    }
}
