//! Calls without a model, through the same routing and the same operations.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use async_recursion::async_recursion as boxed;
use conjure_abi::EmitKind;
use conjure_core::chat::FunctionCall;
use conjure_core::context::BackendInstructions;
use conjure_core::routing::{Policy, PolicyCall, PolicyDecision, RoutingTable};
use conjure_core::turn::describe_state_move;
use conjure_skill_sdk::protocol::ServedClient;
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::catalog_follower::{CatalogFollower, Revision, SharedTools};
use super::derived::{call_timeout, most_bytes, visible_instructions};
use super::error::SessionError;
use super::host_state::HostState;
use super::server_states::{BackendServers, cached_server_states, newest_catalogs, server_states};
use super::session_dirs::SessionDirs;
use crate::artifacts::Artifacts;
use crate::backend::questions::SessionClient;
use crate::backend::readers::SourceReader;
use crate::backend::request_context::RequestContext;
use crate::backend::run::Runner;
use crate::backend::{CallReport, LiveOutput, ToolSnapshot};
use crate::backend::{is_settled, is_unlisted};
use conjure_config::{BackendSpec, SessionSpec};
use conjure_providers::Provider;
use conjure_store::ThreadId;

/// How long servers may take to say what they have, and how often it is looked.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A session without a model: its state lasts from call to call. [`ToolSession::call`] asks no policy:
/// whoever makes the call has decided about it.
///
/// Tools follow the plugins and the backends: what is added to a running host is there for the next
/// call. A call that runs keeps the table that it began with.
pub struct ToolSession {
    tools: Arc<SharedTools>,
    dirs: Arc<SessionDirs>,
    spec: SessionSpec,
    policy: Policy,
    live: LiveOutput,
    end: CancellationToken,
    follower: Mutex<Option<JoinHandle<()>>>,
    _end: DropGuard,
}

/// How one call is run.
pub struct ToolCallOptions<'a> {
    /// The tools as they are for this call.
    pub snapshot: &'a ToolSnapshot,
    /// Ends the call.
    pub cancel: &'a CancellationToken,
    /// Takes its output as it comes.
    pub live: &'a LiveOutput,
    /// What its requests say about the session, where that is not what all say.
    pub request_context: Option<&'a RequestContext>,
    /// Whether the report has what the plugin said word for word.
    pub verbatim: bool,
}

impl ToolSession {
    /// Attaches the backends.
    pub(crate) async fn open(
        shared: Arc<HostState>,
        spec: SessionSpec,
    ) -> Result<Self, SessionError> {
        Self::open_for(shared, spec, None).await
    }

    /// Attaches the backends, with a program on the other side that plugins may ask. A model is
    /// there for plugins when the specification names its provider.
    pub(crate) async fn open_for(
        shared: Arc<HostState>,
        spec: SessionSpec,
        client: Option<Arc<dyn SessionClient>>,
    ) -> Result<Self, SessionError> {
        let thread = ThreadId::fresh();
        let provider = model_for_plugins(&shared, &spec, client.is_some())?;
        let dirs = SessionDirs::make(&shared, &spec, &thread, provider.as_ref(), client)?;
        // Before the first look at the plugins, so that no change is lost.
        let registry = shared.instances.registry.subscribe();
        let mut toolbox = dirs.attach(&spec, &[]).await?;
        let snapshot = match toolbox.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                toolbox.close().await;
                return Err(error.into());
            }
        };
        let known = Arc::new(SharedTools {
            snapshot: ArcSwap::from_pointee(snapshot),
            revision: watch::Sender::new(Revision::default()),
            resource_updates: broadcast::Sender::new(super::catalog_follower::UPDATES),
            notices: broadcast::Sender::new(super::catalog_follower::NOTICES),
            changed_skill_lists: Mutex::default(),
            skills_changed: tokio::sync::Notify::new(),
        });
        let (dirs, end) = (Arc::new(dirs), CancellationToken::new());
        let follower = CatalogFollower {
            tools: Arc::clone(&known),
            dirs: Arc::clone(&dirs),
            toolbox,
            registry,
        };
        let follower = tokio::spawn(follower.run(end.clone()));
        Ok(Self {
            tools: known,
            dirs,
            policy: spec.call_policy(),
            spec,
            live: Arc::new(|_, _| {}),
            _end: end.clone().drop_guard(),
            end,
            follower: Mutex::new(Some(follower)),
        })
    }

    /// The tools that there are now.
    #[must_use]
    pub fn table(&self) -> Arc<RoutingTable> {
        Arc::clone(self.tools.snapshot.load().table())
    }

    /// The tools that there are now, with what stands behind each.
    pub fn snapshot(&self) -> Arc<ToolSnapshot> {
        self.tools.snapshot.load_full()
    }

    /// How the servers behind the backends are now.
    #[boxed]
    pub async fn server_states(&self) -> Vec<BackendServers> {
        server_states(&self.snapshot(), &self.spec, &self.dirs.request_context).await
    }

    /// What the backends say about their use now.
    pub fn instructions(&self) -> Vec<BackendInstructions> {
        visible_instructions(&self.policy, &self.snapshot())
    }

    /// Counts the changes of what there is.
    pub fn revision(&self) -> watch::Receiver<Revision> {
        self.tools.revision.subscribe()
    }

    /// The URIs of resources that say something else now.
    pub fn resource_updates(&self) -> broadcast::Receiver<Arc<str>> {
        self.tools.resource_updates.subscribe()
    }

    /// What whoever makes the calls should know: that a plugin is there in another version, or that
    /// a tool is kept out.
    pub fn notices(&self) -> broadcast::Receiver<Arc<str>> {
        self.tools.notices.subscribe()
    }

    /// The files of the calls.
    pub fn artifacts(&self) -> &Arc<Artifacts> {
        &self.dirs.services.artifacts
    }

    /// What the requests of a call say whose client declares something else than the session's
    /// did; nothing where it is the same.
    pub fn context_for_client(&self, client: ServedClient) -> Option<RequestContext> {
        let request_context = &self.dirs.request_context;
        let is_another = request_context.client() != Some(client);
        is_another.then(|| request_context.clone().with_client(Some(client)))
    }

    /// The most bytes of texts of one result.
    pub fn most_bytes(&self) -> usize {
        most_bytes(&self.spec)
    }

    /// Waits until there is a tool of this name, or until every server behind a backend has said
    /// what it has, or failed.
    ///
    /// # Errors
    /// When the time is over, with the servers that are still starting.
    #[boxed]
    pub async fn wait_for_tool(&self, name: &str) -> Result<(), SessionError> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let snapshot = self.snapshot();
            if snapshot.look_up(name).is_some() {
                return Ok(());
            }
            let starting = self.starting_servers(&snapshot).await;
            if starting.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                let starting = starting.join(", ");
                return Err(SessionError::Provider {
                    message: format!(
                        "there is no tool `{name}` yet: after {} s still starting: {starting}. \
                         `conjure mcp check` says what keeps them",
                        START_TIMEOUT.as_secs()
                    ),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until every server that starts for the first time has said what it has, or failed; no
    /// longer than this. One whose lists are known from an earlier time is not waited for.
    #[boxed]
    pub async fn wait_for_listing(&self, limit: Duration) {
        let listed = async {
            while self.is_any_unlisted().await {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(limit, listed).await;
    }

    /// Whether a server starts of which nothing is known, or has said what no snapshot has yet.
    async fn is_any_unlisted(&self) -> bool {
        let snapshot = self.snapshot();
        let known = cached_server_states(&snapshot);
        let mut servers = known.iter().flat_map(|backend| &backend.servers);
        // Mostly there is none, and nobody is asked.
        if !servers.any(is_unlisted) {
            return false;
        }
        let catalogs = newest_catalogs(&snapshot, &self.spec, &self.dirs.request_context).await;
        catalogs.iter().any(|catalog| {
            let is_late = catalog.servers().iter().any(is_unlisted);
            is_late || catalog.current.tools.len() != catalog.cached.tools.len()
        })
    }

    /// The servers that have not said yet what they have, and the backends of which the snapshot
    /// does not know the newest.
    async fn starting_servers(&self, snapshot: &ToolSnapshot) -> Vec<String> {
        let context = &self.dirs.request_context;
        let mut starting = Vec::new();
        for catalog in newest_catalogs(snapshot, &self.spec, context).await {
            let servers = catalog.servers();
            let late: Vec<String> = servers
                .iter()
                .filter(|status| !is_settled(status))
                .filter_map(|status| status.get("server")?.as_str())
                .map(|server| format!("`{server}`"))
                .collect();
            if late.is_empty() && catalog.current.tools.len() != catalog.cached.tools.len() {
                starting.push(format!("`{}`", catalog.backend));
            }
            starting.extend(late);
        }
        starting
    }

    /// Runs one call. Calls may run at the same time; whoever needs an order waits.
    ///
    /// Cancelling gives the tool its grace and keeps what it had said. Dropping the future ends
    /// the call too.
    ///
    /// # Errors
    /// When there is no such tool. A call that fails is a report.
    #[boxed]
    pub async fn call(
        &self,
        call: &FunctionCall,
        cancel: &CancellationToken,
    ) -> Result<CallReport, SessionError> {
        let snapshot = self.tools.snapshot.load_full();
        let with = ToolCallOptions {
            snapshot: &snapshot,
            cancel,
            live: &self.live,
            request_context: None,
            verbatim: false,
        };
        self.call_with(call, with).await
    }

    /// Runs one call on a snapshot.
    pub async fn call_with(
        &self,
        call: &FunctionCall,
        with: ToolCallOptions<'_>,
    ) -> Result<CallReport, SessionError> {
        let Some(found) = with.snapshot.look_up(&call.name) else {
            return Err(self.unknown_tool(&call.name));
        };
        let runner = Runner {
            traceparent: None,
            request_context: with.request_context.unwrap_or(&self.dirs.request_context),
            artifacts: &self.dirs.services.artifacts,
            turn_id: None,
            timeout: call_timeout(&self.spec),
            timeouts: &self.spec.timeouts,
            most_bytes: most_bytes(&self.spec),
            verbatim: with.verbatim,
            cancel: with.cancel,
            live: with.live,
        };
        let report = runner.run(call, found).await;
        let (_, target) = found;
        if let Some(moved) = target.take_outcome() {
            // As if the tool had said it, which is where its caller listens.
            let text = describe_state_move(&moved);
            let notice = serde_json::json!({ "event": "notice", "level": "warn", "text": text });
            (with.live)(EmitKind::Event, notice.to_string().as_bytes());
        }
        Ok(report)
    }

    /// Asks for what there is beside tools.
    pub fn reader<'a>(
        &'a self,
        call_id: Option<&'a Arc<str>>,
        with: &ToolCallOptions<'a>,
    ) -> SourceReader<'a> {
        SourceReader {
            snapshot: with.snapshot,
            request_context: with.request_context.unwrap_or(&self.dirs.request_context),
            call_id,
            timeout: call_timeout(&self.spec),
            cancel: with.cancel,
            live: with.live,
        }
    }

    /// Takes note of an event of a call that concerns the session: that a skill offers something
    /// else now, or that a resource changed.
    pub fn handle_event(&self, kind: EmitKind, bytes: &[u8]) {
        if kind == EmitKind::Event {
            self.tools
                .handle_event(bytes, &self.dirs.request_context.session);
        }
    }

    /// What the session's rules say of a call; nothing where none fits it.
    pub fn rule_for(
        &self,
        snapshot: &ToolSnapshot,
        name: &str,
        arguments: &Value,
    ) -> Option<PolicyDecision> {
        let (route, _) = snapshot.look_up(name)?;
        let verdict = self.policy.decide(&PolicyCall {
            name,
            backend: &route.backend,
            effects: route.definition.effects,
            arguments,
        });
        verdict.rule.map(|_| verdict.decision)
    }

    fn unknown_tool(&self, name: &str) -> SessionError {
        let hint = if self.spec.backends.iter().all(BackendSpec::is_native) {
            " No executor is named, so there are no command tools: name one, such as \
             `--executor local`."
        } else {
            ""
        };
        let table = self.table();
        if let Some(kept_out) = table.find_quarantined(name) {
            return SessionError::Provider {
                message: format!("the tool `{name}` is not offered: {}", kept_out.error),
            };
        }
        let routes = table.routes().iter();
        let names: Vec<&str> = routes.map(|route| route.name.as_str()).collect();
        let known = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        SessionError::Provider {
            message: format!("there is no tool `{name}`; there are: {known}.{hint}"),
        }
    }

    /// Ends what the calls started.
    pub async fn close(self) {
        self.end().await;
    }

    /// [`ToolSession::close`] for whoever shares it.
    #[boxed]
    pub async fn end(&self) {
        self.end.cancel();
        let follower = {
            let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
            follower.take()
        };
        if let Some(follower) = follower {
            // It ends by itself, also when nobody waits.
            let _ = follower.await;
        }
    }
}

/// The model that plugins may ask, where the specification names one and a client is there that
/// has none itself.
fn model_for_plugins(
    shared: &HostState,
    spec: &SessionSpec,
    has_client: bool,
) -> Result<Option<Arc<dyn Provider>>, SessionError> {
    if !has_client || spec.provider.is_none() {
        return Ok(None);
    }
    shared.provider(spec).map(Some)
}

impl fmt::Debug for ToolSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSession")
            .field("session", &self.dirs.request_context.session)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use conjure_core::log::CallEnd;
    use conjure_skill_sdk::protocol::Execute;
    use conjure_skill_sdk::{Error, Skill, ToolOptions};
    use serde_json::json;

    use super::*;
    use crate::Host;
    use conjure_config::TimeoutSpec;

    /// Threads on which the skill ran, in the order of its calls.
    type Ran = Arc<Mutex<Vec<std::thread::ThreadId>>>;

    fn skill(ran: &Ran) -> Skill {
        let (ran, calls) = (Arc::clone(ran), AtomicUsize::new(0));
        Skill::new("quick", "Is quick")
            .execute(
                "count | fail | say TEXT | sleep",
                move |cx, request: Execute| {
                    ran.lock().unwrap().push(std::thread::current().id());
                    let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
                    match request.command.as_str() {
                        "fail" => Err(Error::new("it failed")),
                        "sleep" => {
                            while !cx.cancelled() {
                                std::thread::yield_now();
                            }
                            cx.check().map(|()| String::new())
                        }
                        command => match command.strip_prefix("say ") {
                            Some(text) => cx.stdout(text.as_bytes()).map(|()| "said".to_owned()),
                            None => Ok(number.to_string()),
                        },
                    }
                },
            )
            .with(ToolOptions::new().read_only().in_place())
    }

    async fn open(ran: &Ran, spec: SessionSpec) -> ToolSession {
        let ran = Arc::clone(ran);
        let data = tempfile::tempdir().unwrap();
        let builder = Host::builder().data_dir(data.path());
        let host = builder.skill(move || skill(&ran)).build().await.unwrap();
        host.calls(spec).await.unwrap()
    }

    async fn execute(calls: &ToolSession, command: &str) -> CallReport {
        let call = FunctionCall {
            call_id: "c".to_owned(),
            name: "quick_execute".to_owned(),
            arguments: json!({ "command": command }),
            arguments_text: None,
        };
        calls.call(&call, &CancellationToken::new()).await.unwrap()
    }

    /// Calls until one runs on this very thread; on a busy machine that takes some.
    async fn earn(calls: &ToolSession, ran: &Ran) {
        let own = std::thread::current().id();
        for _ in 0..100_000 {
            execute(calls, "count").await;
            if ran.lock().unwrap().last() == Some(&own) {
                return;
            }
        }
        panic!("it was not earned");
    }

    #[tokio::test]
    async fn a_call_in_place_is_a_call_like_any_other() {
        let ran = Ran::default();
        let calls = open(&ran, SessionSpec::calls(&[], None)).await;
        let first = execute(&calls, "count").await;
        assert_eq!(first.output.joined_text(), "1");
        earn(&calls, &ran).await;

        let report = execute(&calls, "fail").await;
        assert!(report.output.is_error);
        assert_eq!(report.end, CallEnd::Failed);
        let told = report.output.joined_text();
        assert!(
            told.starts_with("it failed\n[The call of `quick_execute`"),
            "{told}"
        );

        earn(&calls, &ran).await;
        let count = ran.lock().unwrap().len();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let call = FunctionCall {
            call_id: "c".to_owned(),
            name: "quick_execute".to_owned(),
            arguments: json!({ "command": "count" }),
            arguments_text: None,
        };
        let report = calls.call(&call, &cancelled).await.unwrap();
        assert_eq!(report.end, CallEnd::Cancelled);
        assert_eq!(ran.lock().unwrap().len(), count, "it was not begun");
        calls.close().await;
    }

    #[tokio::test]
    async fn output_in_place_is_not_lost_and_ends_the_permission() {
        let ran = Ran::default();
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut calls = open(&ran, SessionSpec::calls(&[], None)).await;
        let heard = Arc::clone(&said);
        calls.live =
            Arc::new(move |_, bytes: &[u8]| heard.lock().unwrap().extend_from_slice(bytes));
        earn(&calls, &ran).await;
        let report = execute(&calls, "say hello").await;
        assert_eq!(report.output.joined_text(), "said");
        assert_eq!(said.lock().unwrap().as_slice(), b"hello");
        for _ in 0..300 {
            execute(&calls, "count").await;
            let last = ran.lock().unwrap().last().copied();
            assert_ne!(last, Some(std::thread::current().id()));
        }
        calls.close().await;
    }

    #[tokio::test]
    async fn the_session_sets_the_time_of_some_calls() {
        let ran = Ran::default();
        let timeout = TimeoutSpec {
            tools: "quick_execute(sleep)".parse().unwrap(),
            ms: 50,
        };
        let spec = SessionSpec {
            timeouts: vec![timeout],
            ..SessionSpec::calls(&[], None)
        };
        let calls = open(&ran, spec).await;
        assert_eq!(execute(&calls, "sleep").await.end, CallEnd::TimedOut);
        assert_eq!(execute(&calls, "count").await.end, CallEnd::Done);
        calls.close().await;
    }
}
