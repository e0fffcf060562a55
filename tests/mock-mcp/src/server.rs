//! The protocol: what is answered to which message, without the transport.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{files, named_server, tools};

/// How the server is difficult, by name:
///
/// - `modern`, `dual`: it speaks 2026-07-28 (too);
/// - `exit-on-unknown`, `silent`: what it does when it is asked for that and does not;
/// - `echo-version`: it agrees to any revision that it hears;
/// - `no-initialize`: it never answers the handshake;
/// - `bad-tools`, `same-cursor`, `endless-cursor`, `empty-cursor`, `hang-list`: its list of tools;
/// - `noise`: it prints between its messages;
/// - `more`: it has two tools more; `tree`: one whose schema refers to itself;
/// - `talks`: it tells of something when its tools are listed;
/// - `watched`: it tells of its resources, of each as soon as it is asked to, but refuses
///   `mock://refused`, and says nothing to `mock://unanswered/…` in the older era; `quiet`: it takes
///   the wish and tells of none;
/// - `lists-linked`, `lacks-linked`, `tools-only`: with a name it lists what its tool `content` links
///   to, has no such resource, or has no resources at all;
/// - `stderr-flood`: it writes a megabyte to standard error before it answers a call;
/// - `ignore-eof`, `ignore-term`: how it ends;
/// - `no-start`: it writes a reason and exits; `once`: every start but the first does so;
/// - `slow-first`: the first start is silent until there is a second one, which is for ever;
/// - `together`: every start is silent until there are four of the same log;
/// - `long-instructions`: it says much about its use;
/// - `stateless-only`: it declares that it keeps nothing;
/// - `turns`: `change` makes another tool of `echo`, in the same name, or of itself again;
/// - `turned`: it has that other tool from the start;
/// - `stateful-newcomer`: the tool that it gets by `change` is stateful;
/// - `auth`, `json`: over HTTP only.
#[derive(Default)]
pub(crate) struct Traits {
    pub(crate) names: Vec<String>,
    pub(crate) log: Option<PathBuf>,
    /// Name of the server, if it is told apart from others.
    pub(crate) name: Option<String>,
}

/// One server with what it remembers.
pub(crate) struct Server {
    traits: Traits,
    pub(crate) counter: AtomicU64,
    pub(crate) changed: AtomicBool,
    pub(crate) changes: watch::Sender<u64>,
    /// How many calls of `meet` run.
    pub(crate) meeting: watch::Sender<u64>,
    /// Cuts all subscriptions.
    pub(crate) cuts: watch::Sender<u64>,
    log: Mutex<()>,
}

/// The other side: where messages go, and the answers that are waited for.
#[derive(Clone)]
pub(crate) struct Peer {
    outgoing: mpsc::UnboundedSender<String>,
    pending: Arc<Mutex<BTreeMap<u64, oneshot::Sender<Value>>>>,
    next: Arc<AtomicU64>,
}

impl Peer {
    pub(crate) fn new(out: mpsc::UnboundedSender<String>) -> Self {
        Self {
            outgoing: out,
            pending: Arc::default(),
            next: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Over another way out, with the same answers.
    pub(crate) fn with_outgoing(&self, out: mpsc::UnboundedSender<String>) -> Self {
        Self {
            outgoing: out,
            ..self.clone()
        }
    }

    pub(crate) fn send(&self, message: &Value) {
        let _ = self.outgoing.send(format!("{message}\n"));
    }

    /// Sends bytes as they are.
    pub(crate) fn print(&self, text: impl Into<String>) {
        let _ = self.outgoing.send(text.into());
    }

    /// Asks the client and waits.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.pending).insert(id, answer);
        self.send(&json!({
            "jsonrpc": "2.0", "id": format!("s{id}"), "method": method, "params": params
        }));
        answered.await.unwrap_or_default()
    }

    fn deliver_answer(&self, message: &Value) {
        let id = message["id"]
            .as_str()
            .and_then(|id| id.strip_prefix('s')?.parse().ok());
        if let Some(answer) = id.and_then(|id: u64| lock(&self.pending).remove(&id)) {
            let result = message.get("result").or_else(|| message.get("error"));
            let _ = answer.send(result.cloned().unwrap_or_default());
        }
    }
}

impl Server {
    pub(crate) fn new(traits: Traits) -> Self {
        Self {
            traits,
            counter: AtomicU64::new(0),
            changed: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            meeting: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            log: Mutex::default(),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.traits.names.iter().any(|known| known == name)
    }

    /// Appends to the log.
    pub(crate) fn append_log(&self, value: &Value) {
        let _one = lock(&self.log);
        let Some(path) = &self.traits.log else { return };
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        if let Ok(mut file) = file {
            let _ = file.write_all(format!("{value}\n").as_bytes());
        }
    }

    pub(crate) async fn check_start(&self) {
        let before = self.starts();
        if self.has("no-start") || (self.has("once") && before > 1) {
            let _ = std::io::stderr().write_all(b"the licence has expired\n");
            if let Ok(token) = std::env::var("TOKEN") {
                let _ = std::io::stderr().write_all(format!("its key is {token}\n").as_bytes());
            }
            std::process::exit(3);
        }
        if self.has("slow-first") {
            if before > 1 {
                std::future::pending::<()>().await;
            }
            self.until_started(2).await;
        }
        if self.has("together") {
            self.until_started(4).await;
        }
    }

    /// How often servers of this log were started.
    fn starts(&self) -> usize {
        let log = self.traits.log.as_ref();
        let text = log.and_then(|path| std::fs::read_to_string(path).ok());
        text.map_or(0, |text| text.matches("{\"start\"").count())
    }

    async fn until_started(&self, times: usize) {
        while self.starts() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Tells that the list of tools is another one.
    pub(crate) fn change(&self) {
        self.changed.store(true, Ordering::Relaxed);
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn is_modern(&self) -> bool {
        self.has("modern") || self.has("dual")
    }

    /// Takes a message from the client.
    pub(crate) async fn take(server: &Arc<Self>, peer: &Peer, message: Value) {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if method.is_empty() {
            peer.deliver_answer(&message);
            return;
        }
        let Some(id) = message.get("id").cloned() else {
            return;
        };
        if server.has("noise") {
            peer.print("starting up...\n");
            peer.print("{\"level\":\"info\",\"msg\":\"structured\"}\n\"text\"\n17\n");
            peer.print("\u{feff}no line break after this: ");
        }
        let params = message["params"].clone();
        match method.as_str() {
            "initialize" => server.initialize(peer, &id, &params),
            "server/discover" => server.discover(peer, &id),
            "tools/list" if server.has("hang-list") => {}
            "tools/list" => {
                if server.has("talks") {
                    peer.send(&json!({
                        "jsonrpc": "2.0", "method": "notifications/message",
                        "params": { "level": "warning", "logger": "disk", "data": "nearly full" },
                    }));
                }
                peer.send(&result(&id, server.tools(&params)));
            }
            "tools/call" => {
                let (server, peer) = (Arc::clone(server), peer.clone());
                tokio::spawn(async move { tools::call(&server, &peer, &id, &params).await });
            }
            "subscriptions/listen" => server.listen(peer, &id, &params),
            _ if server.has("tools-only") && method.starts_with("resources/") => {
                server.unknown(peer, &id);
            }
            _ if server.answers_by_name(peer, &id, &method, &params) => {}
            "resources/list" => {
                let resource = json!({ "uri": "mock://a", "name": "a", "mimeType": "text/plain" });
                peer.send(&result(&id, json!({ "resources": [resource, 5] })));
            }
            "resources/templates/list" => {
                peer.send(&result(&id, json!({ "resourceTemplates": [] })));
            }
            "resources/read" => {
                let shared = params["uri"].as_str().and_then(files::resource);
                let text = shared.unwrap_or_else(|| "what a says".to_owned());
                let contents = json!([{ "uri": params["uri"], "text": text }]);
                peer.send(&result(&id, json!({ "contents": contents })));
            }
            "prompts/list" => {
                peer.send(&result(
                    &id,
                    json!({ "prompts": [{ "name": "p" }, { "x": 1 }] }),
                ));
            }
            "prompts/get" if server.has("modern") && params["requestState"] != "opaque" => {
                let question = json!({ "method": "elicitation/create", "params": {
                    "message": "For whom?", "requestedSchema": { "type": "object", "properties": {} },
                } });
                peer.send(&result(
                    &id,
                    json!({
                        "resultType": "input_required",
                        "inputRequests": { "who": question },
                        "requestState": "opaque",
                    }),
                ));
            }
            "prompts/get" => {
                let message = json!({ "role": "user", "content": { "type": "text", "text": "p" } });
                peer.send(&result(&id, json!({ "messages": [message] })));
            }
            "resources/subscribe" if server.has("watched") => {
                server.watch(peer, &id, &params["uri"]);
            }
            "resources/unsubscribe" if server.has("watched") => {
                peer.send(&result(&id, json!({})));
            }
            "ping" | "logging/setLevel" => peer.send(&result(&id, json!({}))),
            _ => server.unknown(peer, &id),
        }
    }

    /// What a server with a name answers in its own way; false for anything else.
    fn answers_by_name(&self, peer: &Peer, id: &Value, method: &str, params: &Value) -> bool {
        let Some(name) = self.traits.name.as_deref() else {
            return false;
        };
        let asked = |field: &str| params[field].as_str().unwrap_or_default();
        let lacks = |uri: &str| self.has("lacks-linked") && uri == named_server::LINKED;
        let (field, found) = match method {
            "resources/list" => {
                let listed = named_server::resources(name, self.has("lists-linked"));
                ("resources", Some(listed))
            }
            "resources/templates/list" => {
                ("resourceTemplates", Some(named_server::templates(name)))
            }
            "resources/read" if lacks(asked("uri")) => ("contents", None),
            "resources/read" => ("contents", named_server::read(name, asked("uri"))),
            "prompts/list" => ("prompts", Some(named_server::prompts(name))),
            "prompts/get" => ("messages", named_server::prompt(name, asked("name"))),
            "completion/complete" => {
                let values = json!({ "values": [format!("{} of {name}", params["ref"]["name"])] });
                ("completion", Some(values))
            }
            _ => return false,
        };
        peer.send(&match found {
            Some(found) => result(id, json!({ field: found, "_meta": { "of": name } })),
            None => error(id, -32002, &format!("{name} has no such thing")),
        });
        true
    }

    fn unknown(&self, peer: &Peer, id: &Value) {
        if self.has("exit-on-unknown") {
            std::process::exit(1);
        }
        if !self.has("silent") {
            peer.send(&error(id, -32601, "method not found"));
        }
    }

    fn initialize(&self, peer: &Peer, id: &Value, params: &Value) {
        if self.has("no-initialize") {
            return;
        }
        if self.has("modern") {
            peer.send(&error(id, -32601, "no handshake here"));
            return;
        }
        let asked = params["protocolVersion"].clone();
        let version = if self.has("echo-version") {
            asked
        } else {
            json!("2025-11-25")
        };
        peer.send(&result(
            id,
            json!({
                "protocolVersion": version,
                "capabilities": self.capabilities(),
                "serverInfo": { "name": "mock", "version": "1" },
                "instructions": if self.has("long-instructions") {
                    "Be kind to it. ".repeat(1_000)
                } else {
                    "Be kind to it.".to_owned()
                },
            }),
        ));
    }

    /// Tells of changes from now on.
    pub(crate) fn notify_changes(&self, peer: &Peer) {
        let mut changes = self.changes.subscribe();
        let peer = peer.clone();
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                peer.send(&json!({
                    "jsonrpc": "2.0", "method": "notifications/tools/list_changed"
                }));
            }
        });
    }

    fn discover(&self, peer: &Peer, id: &Value) {
        if !self.is_modern() {
            self.unknown(peer, id);
            return;
        }
        peer.send(&result(
            id,
            json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
                "ttlMs": 0,
                "cacheScope": "private",
            }),
        ));
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "resources": {},
            "prompts": {},
            "logging": {},
        });
        if self.has("tools-only") {
            capabilities
                .as_object_mut()
                .map(|known| known.remove("resources"));
        }
        if self.has("watched") {
            capabilities["resources"] = json!({ "subscribe": true });
        }
        if self.has("stateless-only") {
            capabilities["experimental"] =
                json!({ "dev.conjure/session": { "mode": "stateless" } });
        }
        capabilities
    }

    fn tools(&self, params: &Value) -> Value {
        let mut list = json!({ "tools": tools::list(self) });
        if self.is_modern() {
            list["resultType"] = json!("complete");
            list["ttlMs"] = json!(0);
            list["cacheScope"] = json!("private");
        }
        let page = params["cursor"]
            .as_str()
            .map_or(0, |cursor| cursor.len() + 1);
        if self.has("same-cursor") {
            list["nextCursor"] = json!("again");
        } else if self.has("endless-cursor") {
            list = json!({ "tools": [{ "name": format!("t{page}"), "inputSchema": { "type": "object" } }] });
            list["nextCursor"] = json!("x".repeat(page));
        } else if self.has("empty-cursor") && params.get("cursor").is_none() {
            list = json!({ "tools": [], "nextCursor": "" });
        }
        list
    }

    /// Is asked to tell of the changes of a resource, in the older era.
    fn watch(&self, peer: &Peer, id: &Value, uri: &Value) {
        if uri == REFUSED_URI {
            peer.send(&error(id, -32002, "there is no such resource"));
            return;
        }
        if uri
            .as_str()
            .is_some_and(|uri| uri.starts_with(UNANSWERED_PREFIX))
        {
            return;
        }
        peer.send(&result(id, json!({})));
        if !self.has("quiet") {
            peer.send(&updated(uri, None));
        }
    }

    /// The long request of 2026-07-28. A change before the acknowledgement is lost, as in rmcp.
    fn listen(&self, peer: &Peer, id: &Value, params: &Value) {
        if self.has("change-before-ack") {
            self.change();
        }
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": id });
        let filter = &params["notifications"];
        let watched = filter["resourceSubscriptions"].as_array();
        let watched = || watched.into_iter().flatten();
        if watched().any(|uri| uri == REFUSED_URI) {
            peer.send(&error(id, -32602, "there is no such resource"));
            return;
        }
        let mut changes = self.changes.subscribe();
        let mut cut = self.cuts.subscribe();
        peer.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": { "_meta": meta, "notifications": filter },
        }));
        for uri in watched().filter(|_| !self.has("quiet")) {
            peer.send(&updated(uri, Some(&meta)));
        }
        let (peer, of_tools) = (peer.clone(), filter["toolsListChanged"] == true);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    _ = cut.changed() => return,
                }
                if of_tools {
                    peer.send(&json!({
                        "jsonrpc": "2.0",
                        "method": "notifications/tools/list_changed",
                        "params": { "_meta": meta },
                    }));
                }
            }
        });
    }
}

/// The resource that is not told of.
const REFUSED_URI: &str = "mock://refused";
/// How the resources begin about which nothing is said.
const UNANSWERED_PREFIX: &str = "mock://unanswered/";

/// Notification that a resource says something else now.
fn updated(uri: &Value, meta: Option<&Value>) -> Value {
    let mut params = json!({ "uri": uri });
    if let Some(meta) = meta {
        params["_meta"] = meta.clone();
    }
    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params })
}

pub(crate) fn result(id: &Value, result: impl Into<Value>) -> Value {
    let result = result.into();
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub(crate) fn error(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
