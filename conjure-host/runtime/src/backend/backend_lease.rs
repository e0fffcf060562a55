//! A session's use of an executor or a backend: from the opening until nothing needs it any more.
//!
//! A session moves to another version, or to other settings, by a lease of its own: whoever still
//! holds the one before, such as a call that runs, goes on with it, and it is closed after the last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use conjure_core::context::notes;
use conjure_core::log::{StateFate, StateHandover, StateMove};
use conjure_skill_sdk::protocol::{
    Empty, ExecutorInit, ExecutorReady, Open, Sandbox, SkillMount, op,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tokio_util::sync::DropGuard;

use super::backend_changes::{BackendChanges, watch};
use super::lease::{ask, can_hand_over, hand_over, state_move};
use super::request_context::RequestContext;
use conjure_plugins::{Instance, Isolation, LoadedPlugin, PluginCallFailure};

/// The instances on which a session is open, or still is being closed. On none of them it can be
/// opened once more: a plugin knows a session by its id.
#[derive(Default)]
pub(crate) struct OpenInstances(Mutex<Vec<Weak<Instance>>>);

impl OpenInstances {
    /// Whether the session is open there.
    pub(crate) fn has(&self, instance: &Arc<Instance>) -> bool {
        let open = lock(&self.0);
        open.iter()
            .any(|known| known.as_ptr() == Arc::as_ptr(instance))
    }

    fn add(&self, instance: &Arc<Instance>) {
        lock(&self.0).push(Arc::downgrade(instance));
    }

    fn remove(&self, instance: &Arc<Instance>) {
        lock(&self.0).retain(|known| known.as_ptr() != Arc::as_ptr(instance));
    }
}

/// An executor or backend of one session.
pub(crate) struct BackendLease {
    pub(crate) plugin: Arc<LoadedPlugin>,
    instance: Arc<Instance>,
    /// How things look from inside; the host's own paths for a backend.
    pub(crate) ready: ExecutorReady,
    request_context: RequestContext,
    open_instances: Arc<OpenInstances>,
    /// Ends the watching of a backend.
    _watch_guard: Option<DropGuard>,
    /// The version whose state is to come over, until it has.
    previous: Mutex<Option<Arc<BackendLease>>>,
    takeover: OnceCell<()>,
    /// The version before, where its state could not be taken over: it goes on.
    fallback: OnceLock<Arc<BackendLease>>,
    /// What became of the state of the version before, until somebody is told.
    outcome: Mutex<Option<StateMove>>,
    is_over: AtomicBool,
    /// Held while the session is being opened there: it is closed after that only.
    opening_lock: Arc<tokio::sync::Mutex<()>>,
}

impl BackendLease {
    /// Prepares a session on an executor.
    pub(crate) async fn executor(
        plugin: Arc<LoadedPlugin>,
        instance: Arc<Instance>,
        request_context: &RequestContext,
        open: &Arc<OpenInstances>,
        skills: Vec<SkillMount>,
    ) -> Result<Self, String> {
        let mut lease = Self::new(plugin, instance, request_context, open);
        let init = ExecutorInit {
            skills,
            sandbox: lease.sandbox().map(|sandbox| (**sandbox).clone()),
            ..ExecutorInit::default()
        };
        lease.ready = lease.open_session(op::EXECUTOR_INIT, init).await?;
        Ok(lease)
    }

    /// Opens a session on a backend. What it says outside calls goes to `changes`, under this name.
    pub(crate) async fn backend(
        plugin: Arc<LoadedPlugin>,
        instance: Arc<Instance>,
        request_context: &RequestContext,
        open: &Arc<OpenInstances>,
        request: Open,
        (name, changes): (&str, &Arc<BackendChanges>),
    ) -> Result<Self, String> {
        let mut lease = Self::new(plugin, instance, request_context, open);
        let _: Empty = lease.open_session(op::BACKEND_OPEN, request).await?;
        let watches = lease.plugin.manifest().has("backend.watch/1");
        lease._watch_guard =
            watches.then(|| watch(name, &lease.instance, request_context, changes));
        Ok(lease)
    }

    fn new(
        plugin: Arc<LoadedPlugin>,
        instance: Arc<Instance>,
        request_context: &RequestContext,
        open: &Arc<OpenInstances>,
    ) -> Self {
        open.add(&instance);
        Self {
            plugin,
            instance,
            ready: ExecutorReady::default(),
            open_instances: Arc::clone(open),
            request_context: request_context.clone(),
            _watch_guard: None,
            previous: Mutex::default(),
            takeover: OnceCell::new(),
            fallback: OnceLock::new(),
            outcome: Mutex::default(),
            is_over: AtomicBool::new(false),
            opening_lock: Arc::default(),
        }
    }

    /// Asks for the opening, which goes on also where nobody waits for it any more.
    async fn open_session<R: DeserializeOwned + Send + 'static>(
        &self,
        operation: &'static str,
        request: impl Serialize + Send + 'static,
    ) -> Result<R, String> {
        let opening = Arc::clone(&self.opening_lock).lock_owned().await;
        let (instance, request_context) =
            (Arc::clone(&self.instance), self.request_context.clone());
        let asking = tokio::spawn(async move {
            let _opening = opening;
            ask(&instance, &request_context, operation, request).await
        });
        match asking.await {
            Ok(opened) => opened.map_err(|error| self.note_open_failure(&error)),
            Err(error) => Err(format!("its opening ended early: {error}")),
        }
    }

    /// Notes that the backend could not be opened. Where the plugin said so there is nothing to close.
    fn note_open_failure(&self, error: &PluginCallFailure) -> String {
        if matches!(error, PluginCallFailure::Fault { .. }) {
            self.is_over.store(true, Ordering::Relaxed);
            self.open_instances.remove(&self.instance);
        }
        error.to_string()
    }

    /// What alone the commands of this executor may change, where they run on this machine and that is
    /// limited.
    pub(crate) fn sandbox(&self) -> Option<&Arc<Sandbox>> {
        let keeps_to_it = self.plugin.manifest().has("executor.sandbox/1");
        self.request_context.sandbox().filter(|_| keeps_to_it)
    }

    /// Whether the session limits its commands and those of this executor, which run on this machine as far
    /// as anybody knows, do as they like: it says neither that it keeps to a sandbox nor that its files are
    /// elsewhere.
    pub(crate) fn keeps_to_no_sandbox(&self) -> bool {
        let is_asked = self.request_context.sandbox().is_some();
        // What runs in a worker is confined by that.
        let is_here = self.plugin.isolation() == Isolation::InProcess;
        let is_free = self.sandbox().is_none() && !self.plugin.manifest().has("files.put/1");
        is_asked && is_here && is_free
    }

    /// What the model is told of that sandbox.
    pub(crate) fn sandbox_note(&self) -> Option<String> {
        let sandbox = self.sandbox()?;
        let working_dir = self.request_context.working_dir.display().to_string();
        let mut places = vec![working_dir, "$TMPDIR".to_owned()];
        places.extend(sandbox.write.iter().cloned());
        Some(notes::sandbox_limits(&places, sandbox.network))
    }

    /// The instance that serves the session.
    pub(crate) fn instance(&self) -> &Arc<Instance> {
        match self.fallback.get() {
            Some(before) => before.instance(),
            None => &self.instance,
        }
    }

    /// The skill's directory as commands see it.
    pub(crate) fn skill_dir(&self, skill: &str) -> Option<&str> {
        self.ready
            .skills
            .iter()
            .find(|mount| mount.name == skill)
            .map(|mount| mount.dir.as_str())
    }

    /// The plugin of that instance: an earlier version than this lease's where its state could not be
    /// taken over.
    pub(crate) fn serving_plugin(&self) -> &Arc<LoadedPlugin> {
        self.instance().plugin()
    }

    /// Puts this lease in the place of another one, whose state comes over with the first call of
    /// this one if the two can hand it over. Says what becomes of the state.
    pub(crate) fn replace_lease(&self, before: &Arc<Self>) -> StateHandover {
        let holder = before.serving_plugin();
        let is_well = holder.health().quarantined.is_none();
        if !is_well || !can_hand_over(holder, &self.plugin) {
            return StateHandover::Lost;
        }
        before.forget_unused();
        *lock(&self.previous) = Some(Arc::clone(before));
        StateHandover::Carried
    }

    /// Forgets leases before this one that were never used and that nobody can use any more; the state
    /// is at the one before them.
    fn forget_unused(&self) {
        let mut before = lock(&self.previous);
        while let Some(unused) = before.take() {
            let took_over = unused.takeover.initialized();
            let its_own = lock(&unused.previous).clone();
            match its_own {
                Some(older) if !took_over && Arc::strong_count(&unused) == 1 => {
                    *before = Some(older);
                }
                _ => {
                    *before = Some(unused);
                    return;
                }
            }
        }
    }

    /// A call begins. The first one takes the state of the version before over, if there is one;
    /// where that fails, that version goes on.
    pub(crate) async fn enter(&self) {
        let taking_over = async {
            // It is there until it is done: a call that is given up begins nothing anew.
            let Some(before) = lock(&self.previous).clone() else {
                return;
            };
            // What was never called has taken nothing over yet.
            Box::pin(before.enter()).await;
            // The version that runs, which may be an earlier one than that of its lease.
            let (new, old) = (self.plugin.id(), before.serving_plugin().id());
            let handed = hand_over(before.instance(), &self.instance, &self.request_context);
            let fate = match handed.await {
                Ok(()) if new == old => StateFate::Kept,
                Ok(()) => StateFate::Carried,
                Err(reason) => {
                    let _ = self.fallback.set(Arc::clone(&before));
                    StateFate::Refused { reason }
                }
            };
            lock(&self.previous).take();
            *lock(&self.outcome) = Some(state_move(old, new, fate));
        };
        self.takeover.get_or_init(|| taking_over).await;
    }

    /// The instance that serves the session, with the state of the version before.
    pub(crate) async fn serving(&self) -> &Arc<Instance> {
        self.enter().await;
        self.instance()
    }

    /// What became of the state of the version before. Told once.
    pub(crate) fn take_outcome(&self) -> Option<StateMove> {
        lock(&self.outcome).take()
    }

    /// Ends what the session started there, and on the version before where that is still needed.
    /// Nothing happens the second time.
    pub(crate) async fn end(&self) {
        let before = lock(&self.previous).take();
        for before in before.iter().chain(self.fallback.get()) {
            Box::pin(before.end()).await;
        }
        if let Some(ending) = self.close_future() {
            ending.await;
        }
    }

    fn close_future(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return None;
        }
        let operation = match self.plugin.manifest().kind.as_str() {
            "executor" => op::EXECUTOR_CLEANUP,
            _ => op::BACKEND_CLOSE,
        };
        let (instance, request_context) =
            (Arc::clone(&self.instance), self.request_context.clone());
        let open = Arc::clone(&self.open_instances);
        let opening = Arc::clone(&self.opening_lock);
        Some(async move {
            let _opened = opening.lock().await;
            let ended: Result<Empty, _> =
                ask(&instance, &request_context, operation, Empty {}).await;
            open.remove(&instance);
            if let Err(error) = ended {
                tracing::warn!(plugin = %instance.plugin().id(), "could not clean up: {error}");
            }
        })
    }
}

impl Drop for BackendLease {
    /// Whoever held it last needs nothing of it any more.
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(ending) = self.close_future()
        {
            runtime.spawn(ending);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
