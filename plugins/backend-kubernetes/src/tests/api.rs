//! A small API server of Kubernetes: pods made, read, listed and deleted, with tokens, and programs
//! run in them over a WebSocket.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::exec;
use super::pods::RunningPod;

/// Token of the user whom the server knows.
pub(super) const TOKEN: &str = "t0ken";
/// How long one who is sent away is to wait, in seconds: longer than anybody does.
const RETRY_AFTER: u32 = 3_600;
/// The code of an answer that comes too late: what was asked for is done.
const TOO_LATE: u16 = 504;
/// The only namespace.
pub(super) const NAMESPACE: &str = "agents";

/// The server.
pub(super) struct Api {
    address: SocketAddr,
    pub(super) cluster: Arc<Cluster>,
    _runtime: tokio::runtime::Runtime,
}

/// What it keeps.
#[derive(Default)]
pub(super) struct Cluster {
    state: Mutex<ClusterState>,
}

#[derive(Default)]
struct ClusterState {
    pods: BTreeMap<String, Value>,
    running: BTreeMap<String, Arc<RunningPod>>,
    /// How often each pod was looked at.
    looks: BTreeMap<String, usize>,
    forbidden: BTreeSet<&'static str>,
    /// What is refused next, by the right that it needs.
    refusals: BTreeMap<&'static str, VecDeque<Refusal>>,
    /// The versions of the protocol that it speaks.
    old_protocol: bool,
    made: usize,
    programs: Vec<Vec<String>>,
    /// Where pods have volumes of their own, if they do.
    volumes: Option<PathBuf>,
}

impl Api {
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let cluster = Arc::<Cluster>::default();
        let serves = Arc::clone(&cluster);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serves)));
            }
        });
        Self {
            address,
            cluster,
            _runtime: runtime,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Cluster {
    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap()
    }

    /// The names of the pods that are there.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().pods.keys().cloned().collect()
    }

    pub(super) fn pod(&self, name: &str) -> Value {
        self.lock().pods[name].clone()
    }

    /// How many pods were ever made.
    pub(super) fn made(&self) -> usize {
        self.lock().made
    }

    /// The programs that were run over connections.
    pub(super) fn programs(&self) -> Vec<Vec<String>> {
        self.lock().programs.clone()
    }

    pub(super) fn forbid(&self, right: &'static str) {
        self.lock().forbidden.insert(right);
    }

    /// Refuses the next request that needs this right. A pod that is refused with a time-out is made
    /// all the same.
    pub(super) fn refuse_once(&self, right: &'static str, refusal: Refusal) {
        let mut state = self.lock();
        state.refusals.entry(right).or_default().push_back(refusal);
    }

    pub(super) fn speak_old_protocol(&self) {
        self.lock().old_protocol = true;
    }

    /// Gives each pod volumes of its own, below this directory, so that several can run.
    pub(super) fn give_volumes(&self, dir: PathBuf) {
        self.lock().volumes = Some(dir);
    }

    /// Ends a pod as a node does.
    pub(super) fn end(&self, name: &str, status: Value) {
        let mut state = self.lock();
        state.pods.get_mut(name).unwrap()["status"] = status;
        state.running.remove(name);
    }

    /// Puts a pod there that nobody runs.
    pub(super) fn put(&self, name: &str, labels: &Value) {
        let pod = json!({
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
            "spec": { "containers": [{ "name": "work", "image": "other" }] },
        });
        self.lock().pods.insert(name.to_owned(), pod);
    }

    pub(super) fn running(&self, name: &str) -> Option<Arc<RunningPod>> {
        self.lock().running.get(name).cloned()
    }
}

struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length");
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((target.as_str(), ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Request {
        method,
        path: path.to_owned(),
        query: query
            .map(|(name, value)| (name.to_owned(), decoded(value)))
            .collect(),
        headers,
        body: bytes[end..].to_vec(),
    })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

async fn serve(mut stream: TcpStream, cluster: Arc<Cluster>) {
    stream.set_nodelay(true).unwrap();
    while let Some(request) = read(&mut stream).await {
        let answer = match answer(&request, &cluster).await {
            Ok(Answer::Json(value)) => (200, value),
            Ok(Answer::Exec(program)) => {
                return upgrade(stream, &request, &cluster, program).await;
            }
            Err((code, reason, message)) => {
                let wait = if code == 429 { RETRY_AFTER } else { 0 };
                (
                    code,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": message, "reason": reason, "code": code,
                        "details": { "retryAfterSeconds": wait },
                    }),
                )
            }
        };
        let (code, body) = (answer.0, answer.1.to_string());
        let head = format!(
            "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let whole = [head.as_bytes(), body.as_bytes()].concat();
        if stream.write_all(&whole).await.is_err() {
            return;
        }
    }
}

enum Answer {
    Json(Value),
    Exec(tokio::process::Command),
}

/// Code, reason and message.
pub(super) type Refusal = (u16, &'static str, String);

async fn answer(request: &Request, cluster: &Cluster) -> Result<Answer, Refusal> {
    let login = request.headers.get("authorization").map(String::as_str);
    if login != Some(&format!("Bearer {TOKEN}")) {
        return Err((401, "Unauthorized", "Unauthorized".to_owned()));
    }
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let ["api", "v1", "namespaces", namespace, "pods", rest @ ..] = parts.as_slice() else {
        return Err((404, "NotFound", "the server has no such thing".to_owned()));
    };
    let right = match (request.method.as_str(), rest) {
        ("POST", []) => "create pods",
        ("GET", []) => "list pods",
        ("GET", [_]) => "get pods",
        ("DELETE", [_]) => "delete pods",
        (_, [_, "exec"]) => "create pods/exec",
        _ => "nothing",
    };
    let mut state = cluster.lock();
    if state.forbidden.contains(right) {
        let message = format!("User \"me\" cannot {right} in the namespace \"{namespace}\"");
        return Err((403, "Forbidden", message));
    }
    if *namespace != NAMESPACE {
        let message = format!("namespaces \"{namespace}\" not found");
        return Err((404, "NotFound", message));
    }
    let refused = state.refusals.get_mut(right);
    let mut refused = refused.and_then(VecDeque::pop_front);
    if let Some(refusal) = refused.take_if(|(code, ..)| *code != TOO_LATE) {
        return Err(refusal);
    }
    let missing = |name: &str| (404, "NotFound", format!("pods \"{name}\" not found"));
    match (right, rest) {
        ("create pods", _) => {
            let pod: Value = serde_json::from_slice(&request.body).unwrap();
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            if pod["spec"]["containers"][0]["image"] == "too-large" {
                let message = "pods \"x\" is forbidden: exceeded quota: compute".to_owned();
                return Err((403, "Forbidden", message));
            }
            if state.pods.contains_key(&name) {
                let message = format!("pods \"{name}\" already exists");
                return Err((409, "AlreadyExists", message));
            }
            state.made += 1;
            state.pods.insert(name, pod.clone());
            refused.map_or(Ok(Answer::Json(pod)), Err)
        }
        ("list pods", _) => {
            let wanted = request
                .query
                .iter()
                .find(|(name, _)| name == "labelSelector");
            let wanted = wanted.and_then(|(_, value)| value.split_once('='));
            let fits = |pod: &&Value| {
                wanted.is_none_or(|(name, value)| pod["metadata"]["labels"][name] == value)
            };
            let items: Vec<&Value> = state.pods.values().filter(fits).collect();
            Ok(Answer::Json(json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items,
            })))
        }
        ("get pods", [name]) => {
            let looks = state.looks.entry((*name).to_owned()).or_default();
            *looks += 1;
            let looks = *looks;
            let mut pod = state
                .pods
                .get(*name)
                .cloned()
                .ok_or_else(|| missing(name))?;
            if pod["status"].is_null() {
                let status = super::pods::status(&pod, looks);
                let runs = status["phase"] == "Running";
                if runs && !state.running.contains_key(*name) {
                    let running = Arc::new(RunningPod::new(&pod, state.volumes.as_deref()));
                    state.running.insert((*name).to_owned(), running);
                }
                pod["status"] = status;
            }
            Ok(Answer::Json(pod))
        }
        ("delete pods", [name]) => {
            state.running.remove(*name);
            let pod = state.pods.remove(*name).ok_or_else(|| missing(name))?;
            Ok(Answer::Json(pod))
        }
        ("create pods/exec", [name, _]) => {
            let pod = state
                .running
                .get(*name)
                .cloned()
                .ok_or_else(|| missing(name))?;
            let command = request.query.iter().filter(|(name, _)| name == "command");
            let command: Vec<String> = command.map(|(_, value)| value.clone()).collect();
            let program = pod.command(&command);
            state.programs.push(command);
            // Nobody who is connected keeps a pod alive.
            Ok(Answer::Exec(program))
        }
        _ => Err((405, "MethodNotAllowed", "no such method".to_owned())),
    }
}

async fn upgrade(
    mut stream: TcpStream,
    request: &Request,
    cluster: &Cluster,
    program: tokio::process::Command,
) {
    let offered = &request.headers["sec-websocket-protocol"];
    let old = cluster.lock().old_protocol || !offered.contains("v5.channel.k8s.io");
    let protocol = if old {
        "v4.channel.k8s.io"
    } else {
        "v5.channel.k8s.io"
    };
    let key = &request.headers["sec-websocket-key"];
    let accepted = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    let accepted = STANDARD.encode(accepted);
    let head = format!(
        "HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {accepted}\r\nsec-websocket-protocol: {protocol}\r\n\r\n"
    );
    if stream.write_all(head.as_bytes()).await.is_ok() {
        exec::run(stream, program).await;
    }
}
