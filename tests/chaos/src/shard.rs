//! One database and the kills on it: a host is started, shows that every thread goes on, gets
//! turns to run, and is killed at a moment that the seed chooses.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use conjure_core::chat::EventId;
use conjure_host::auths::NewAuth;
use conjure_host::manager::NewSession;
use conjure_host::store::{Location, Options as StoreOptions, Store, ThreadId};
use conjure_kit::{Engine, Workspace};
use conjure_mock_llm::MockLlm;
use conjure_vault::Credential;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::calls::{CALLS, count};
use crate::leftovers::{Leftovers, containers};
use crate::model::{self, Plan};
use crate::observed_thread::{ObservedThread, Phase, Phases, Turn};
use crate::protocol::{HostReport, Order};
use crate::random::Random;
use crate::running::{MARK, Start, TestedHost};
use crate::verify;

/// How long a host may take to be ready, and a turn to be over.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// After so many kills the sessions are others, so that conversations do not grow without end.
const SESSIONS_LAST: u64 = 12;

/// The sessions of a host: saved auth, model, backend beside the native skill.
const SESSIONS: [(&str, &str, &str); 3] = [
    ("anthropic", "claude-sonnet-4-5", "local"),
    ("openai", "gpt-5", "local"),
    ("anthropic", "claude-sonnet-4-5", "docker"),
];
/// A container takes a second to start: its session has turns before every third kill.
const CONTAINER_EVERY: u64 = 3;

/// What is done with one database.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) name: String,
    /// The arguments that choose it again.
    pub(crate) rerun_args: String,
    /// Whether the host is `conjure serve`.
    pub(crate) serves: bool,
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) kills: u64,
    /// The program that has the role of the host.
    pub(crate) program: PathBuf,
    /// The program `conjure`.
    pub(crate) conjure: PathBuf,
    /// A URL; a file of its own without.
    pub(crate) database: Option<String>,
    pub(crate) engine: Option<Engine>,
    pub(crate) report: fn(&str),
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShardOutcome {
    pub(crate) kills: u64,
    pub(crate) phases: Phases,
    pub(crate) events: u64,
    pub(crate) calls: u64,
}

pub(crate) struct Shard {
    pub(crate) job: Job,
    pub(crate) workspace: Workspace,
    pub(crate) runtime: Runtime,
    pub(crate) store: Store,
    pub(crate) mock: MockLlm,
    pub(crate) start: Start,
    /// The file of calls.
    calls: PathBuf,
    sessions: Vec<ObservedThread>,
    pub(crate) outcome: ShardOutcome,
    /// The kill that is next, or was last.
    pub(crate) kill: u64,
    leftovers: Vec<Leftovers>,
    /// How long the turns before a kill take when nobody kills their host.
    usual_turn_time: Duration,
    turns: u64,
}

impl Shard {
    pub(crate) fn new(job: Job) -> Result<Self> {
        let workspace = Workspace::new()?;
        let mut plugins = vec!["conjure-backend-local", "conjure-chaos-notes"];
        plugins.extend(job.engine.is_some().then_some("conjure-backend-docker"));
        for plugin in plugins {
            let library = workspace.add_plugin(plugin)?;
            workspace.trust(&workspace.root().join("data"), &library)?;
        }
        let calls = workspace.write(CALLS, "")?;
        make_world_writable(&calls)?;
        let data_dir = workspace.root().join("data");
        conjure_host::fs::create_private_dir(&data_dir)?;
        let file = data_dir.join("conjure.db").display().to_string();
        let start = Start {
            serves: job.serves,
            program: job.program.clone(),
            conjure: job.conjure.clone(),
            database: job.database.clone().unwrap_or(file),
            seed: job.seed,
        };
        let mock = model::start()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let place = Location::parse(&start.database)?;
        let base_url = mock.base_url();
        let store = runtime.block_on(async {
            let store = Store::open(&place, &StoreOptions::default()).await?;
            let auths = crate::victim::auths(&store, &data_dir);
            for provider in ["anthropic", "openai"] {
                let new = NewAuth {
                    name: format!("{provider}-key"),
                    provider: provider.to_owned(),
                    base_url: Some(base_url.clone()),
                };
                let key = Credential::ApiKey("a-key-of-nobody".to_owned().into());
                auths.add(new, key).await?;
            }
            anyhow::Ok(store)
        })?;
        Ok(Self {
            kill: job.first,
            job,
            workspace,
            runtime,
            store,
            mock,
            start,
            calls,
            sessions: Vec::new(),
            outcome: ShardOutcome::default(),
            leftovers: Vec::new(),
            usual_turn_time: Duration::from_millis(600),
            turns: 0,
        })
    }

    /// All kills, and a last look.
    pub(crate) fn run(&mut self) -> Result<()> {
        let end = self.job.first + self.job.kills;
        while self.kill < end {
            let mut random = Random::of(self.job.seed, self.kill);
            self.run_kill(&mut random)?;
            self.outcome.kills += 1;
            self.kill += 1;
            if self.outcome.kills.is_multiple_of(10) {
                let (name, kills, all) = (&self.job.name, self.outcome.kills, self.job.kills);
                (self.job.report)(&format!(
                    "{name}: {kills} of {all} kills; {}",
                    self.outcome.phases
                ));
            }
        }
        let mark = self.mark("end");
        let mut host = self.host(&mark)?;
        self.check_threads_go_on(&mut host, None)?;
        self.verify()?;
        host.end(STEP_TIMEOUT)?;
        self.leftovers
            .push(Leftovers::of(mark, None, self.workspace.root()));
        self.check_leftovers()?;
        self.check_database()
    }

    /// One kill.
    fn run_kill(&mut self, random: &mut Random) -> Result<()> {
        let mark = self.mark(&self.kill.to_string());
        if self.kill > self.job.first && random.percent(6) {
            // Before it says that it is ready.
            let mut host = self.start.start(&self.workspace, &mark)?;
            std::thread::sleep(Duration::from_millis(random.below(400)));
            return self.end(&mut host, mark, Some(Phase::Starting));
        }
        let mut host = self.host(&mark)?;
        if self.kill > self.job.first {
            let cut = random
                .percent(8)
                .then(|| Duration::from_millis(random.below(150)));
            if self.check_threads_go_on(&mut host, cut)? {
                return self.end(&mut host, mark, Some(Phase::Recovering));
            }
            self.verify()?;
            self.check_leftovers()?;
        }
        if (self.kill - self.job.first).is_multiple_of(SESSIONS_LAST) {
            self.sessions_anew(&mut host)?;
        }
        self.begin(&mut host, random)?;
        self.wait_for_kill_time(&host, random)?;
        self.end(&mut host, mark, None)
    }

    /// A host that is ready and whose threads are followed from where they were seen last.
    fn host(&mut self, mark: &str) -> Result<TestedHost> {
        let mut host = self.start.start(&self.workspace, mark)?;
        let until = Instant::now() + STEP_TIMEOUT;
        match host.next(until)? {
            Some(HostReport::Ready) => {}
            other => bail!("the host does not start: {other:?}"),
        }
        for watched in &self.sessions {
            host.send_order(Order::Follow {
                thread: watched.thread.clone(),
                after: watched.last_event(),
            })?;
        }
        Ok(host)
    }

    /// Makes sessions on threads of their own. The old ones have been compared for the last time.
    fn sessions_anew(&mut self, host: &mut TestedHost) -> Result<()> {
        self.sessions.clear();
        for (provider, model, backend) in SESSIONS {
            if backend == "docker" && self.job.engine.is_none() {
                continue;
            }
            let session = self.session(provider, model, backend);
            host.send_order(Order::Create {
                session: Box::new(session),
            })?;
            let until = Instant::now() + STEP_TIMEOUT;
            let watched = loop {
                match host.next(until)? {
                    Some(HostReport::Created { session, thread }) => {
                        break ObservedThread::new(session, thread);
                    }
                    Some(other) => self.take(other),
                    None => bail!("no session was saved in time"),
                }
            };
            host.send_order(Order::Follow {
                thread: watched.thread.clone(),
                after: None,
            })?;
            self.sessions.push(watched);
        }
        Ok(())
    }

    fn session(&self, provider: &str, model: &str, backend: &str) -> NewSession {
        let config = match &self.job.engine {
            Some(engine) if backend == "docker" => json!({ "image": engine.image() }),
            _ => json!({ "pass_env": [MARK] }),
        };
        let tools = json!({
            "backend": [{ "kind": "native" }, { "kind": backend, "config": config }],
            "policy": { "allow": ["*"] },
        });
        let auth = format!("{provider}/api_key/{provider}-key");
        let mut session = NewSession::new(auth, model, self.workspace.work());
        if let Value::Object(tools) = tools {
            session.tools = tools;
        }
        session
    }

    /// Shows that every thread goes on: a turn without calls in each must be completed. Is true
    /// where the host is to be killed after `cut` instead.
    fn check_threads_go_on(
        &mut self,
        host: &mut TestedHost,
        cut: Option<Duration>,
    ) -> Result<bool> {
        let asked: Vec<String> = (0..self.sessions.len())
            .map(|place| self.start_turn(host, place, 0, 0))
            .collect::<Result<_>>()?;
        let begun = Instant::now();
        let until = begun + cut.unwrap_or(STEP_TIMEOUT);
        while !self.are_over(&asked) {
            match host.next(until)? {
                Some(said) => self.take(said),
                None if cut.is_some() => return Ok(true),
                None => bail!("a turn after the kill is not over in time"),
            }
        }
        if cut.is_some() {
            return Ok(true);
        }
        for turn in asked {
            let over = self.turn(&turn).and_then(|turn| turn.end.clone());
            if let Some((state, error)) = over.filter(|(state, _)| state != "completed") {
                bail!("the turn after the kill is {state}: {error:?}");
            }
        }
        Ok(false)
    }

    /// Gives every session turns to run.
    fn begin(&mut self, host: &mut TestedHost, random: &mut Random) -> Result<()> {
        for place in 0..self.sessions.len() {
            let has_container = SESSIONS.get(place).is_some_and(|it| it.2 == "docker");
            if has_container && !self.kill.is_multiple_of(CONTAINER_EVERY) {
                continue;
            }
            let turns = if random.percent(25) { 2 } else { 1 };
            for _ in 0..turns {
                let (rounds, ms) = (1 + random.below(3), random.below(60));
                self.start_turn(host, place, rounds, ms)?;
            }
        }
        Ok(())
    }

    fn start_turn(
        &mut self,
        host: &mut TestedHost,
        place: usize,
        rounds: u64,
        ms: u64,
    ) -> Result<String> {
        self.turns += 1;
        let turn = format!("{}-{}-t{}", self.job.name, self.kill, self.turns);
        let backend = SESSIONS.get(place).map_or("local", |it| it.2);
        let plan = Plan {
            key: format!("k{}t{}", self.kill, self.turns),
            rounds,
            ms,
            backend: backend.to_owned(),
            file: CALLS.to_owned(),
        };
        let watched = self.sessions.get_mut(place).context("no such session")?;
        watched.ask(&turn);
        host.send_order(Order::Say {
            session: watched.session.clone(),
            turn: turn.clone(),
            text: plan.text(),
        })?;
        Ok(turn)
    }

    /// Hears what the host says until the moment at which it is killed: some time after the turns
    /// were asked for, or a little after an event of one kind.
    fn wait_for_kill_time(&mut self, host: &TestedHost, random: &mut Random) -> Result<()> {
        let begun = Instant::now();
        let usual = u64::try_from(self.usual_turn_time.as_millis()).unwrap_or(u64::MAX);
        let some_time = Duration::from_millis(random.below(usual * 8 / 10));
        let mut trigger = (!random.percent(50)).then(|| Trigger::random(random));
        // An event that does not come must not keep the host alive.
        let at_most = trigger
            .as_ref()
            .map_or(some_time, |_| 4 * self.usual_turn_time);
        let mut until = begun + at_most;
        let mut is_measured = false;
        while let Some(said) = host.next(until)? {
            if let (HostReport::Event { event, .. }, Some(it)) = (&said, &mut trigger)
                && let Some(after) = it.delay_after(event)
            {
                until = until.min(Instant::now() + after);
                trigger = None;
            }
            self.take(said);
            let mut turns = self.sessions.iter().flat_map(|it| it.turns.values());
            if !is_measured && turns.all(Turn::is_settled) {
                is_measured = true;
                self.usual_turn_time = (self.usual_turn_time * 3 + begun.elapsed()) / 4;
                // Nothing is to come: idle it is killed, soon.
                until = until.min(Instant::now() + Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Kills the host. What it had said until then counts as acknowledged.
    fn end(&mut self, host: &mut TestedHost, mark: String, phase: Option<Phase>) -> Result<()> {
        for said in host.kill()? {
            self.take(said);
        }
        let data_dir = self.workspace.root().join("data");
        let engine = self.job.engine.as_ref();
        self.leftovers.push(Leftovers::of(mark, engine, &data_dir));
        for watched in &mut self.sessions {
            if let Some(phase) = phase.or(watched.phase()) {
                self.outcome.phases.count(phase);
            }
            watched.killed();
        }
        Ok(())
    }

    fn take(&mut self, said: HostReport) {
        match said {
            HostReport::Event { thread, id, event } => self.observe(&thread, id, event),
            HostReport::Accepted { turn } => {
                if let Some(turn) = self.turn(&turn) {
                    turn.is_accepted = true;
                }
            }
            HostReport::Over { turn, state, error } => {
                if let Some(turn) = self.turn(&turn) {
                    turn.end = Some((state, error));
                }
            }
            HostReport::Ready | HostReport::Created { .. } | HostReport::Wrong { .. } => {}
        }
    }

    fn observe(&mut self, thread: &ThreadId, id: EventId, event: Value) {
        let mut sessions = self.sessions.iter_mut();
        if let Some(watched) = sessions.find(|watched| &watched.thread == thread) {
            self.outcome.events += 1;
            watched.observe(id, event);
        }
    }

    fn turn(&mut self, turn: &str) -> Option<&mut Turn> {
        let mut turns = self.sessions.iter_mut().map(|watched| &mut watched.turns);
        turns.find_map(|turns| turns.get_mut(turn))
    }

    fn are_over(&self, asked: &[String]) -> bool {
        let turns = self.sessions.iter().flat_map(|watched| &watched.turns);
        let over = turns.filter(|(_, turn)| turn.end.is_some());
        let over: HashSet<&String> = over.map(|(id, _)| id).collect();
        asked.iter().all(|turn| over.contains(turn))
    }

    /// Compares everything that is known about every session's thread.
    fn verify(&mut self) -> Result<()> {
        let files = [std::fs::read_to_string(&self.calls)?];
        let ran = count(&files);
        self.outcome.calls = ran.len() as u64;
        let mut wrong = Vec::new();
        let mut known = HashSet::new();
        for watched in &self.sessions {
            let compared = verify::thread(&self.store, watched, &ran, &mut wrong);
            known.extend(self.runtime.block_on(compared)?);
        }
        // The sessions that are compared here were made before this kill.
        let newest = self.kill.saturating_sub(1).max(self.job.first);
        let oldest = newest - (newest - self.job.first) % SESSIONS_LAST;
        for key in ran.keys().filter(|key| !known.contains(*key)) {
            let of = key.strip_prefix('k').and_then(|key| key.split('t').next());
            let of: Option<u64> = of.and_then(|kill| kill.parse().ok());
            if of.is_none_or(|kill| kill >= oldest) {
                wrong.push(format!("call {key} ran, and no thread knows it"));
            }
        }
        let refused = self.mock.violations();
        if !refused.is_empty() {
            wrong.push(format!("the provider would have refused {refused:?}"));
        }
        let check = self.runtime.block_on(self.store.check())?;
        wrong.extend(check.problems);
        if wrong.is_empty() {
            return Ok(());
        }
        wrong.truncate(20);
        Err(anyhow!(wrong.join("\n")))
    }

    fn check_leftovers(&mut self) -> Result<()> {
        let data_dir = self.workspace.root().join("data");
        for left in std::mem::take(&mut self.leftovers) {
            let left = left.wait_until_gone(self.job.engine.as_ref(), &data_dir);
            if !left.is_empty() {
                bail!("left after the kill: {}", left.join(", "));
            }
        }
        Ok(())
    }

    /// What a person would ask afterwards.
    fn check_database(&self) -> Result<()> {
        let data_dir = self.workspace.root().join("data");
        if let Some(engine) = &self.job.engine {
            let left = containers(engine, &data_dir);
            anyhow::ensure!(left.is_empty(), "left at the end: {left:?}");
        }
        self.conjure(&["db", "check"])?;
        for watched in &self.sessions {
            let thread = watched.thread.to_string();
            for to in ["anthropic/claude-sonnet-4-5", "openai/gpt-5"] {
                self.conjure(&["thread", "check", &thread, "--to", to])?;
            }
        }
        Ok(())
    }

    fn conjure(&self, arguments: &[&str]) -> Result<()> {
        let output = conjure_kit::Cli::program(&self.job.conjure, arguments)
            .workspace(&self.workspace)
            .env("CONJURE_DATA_DIR", self.workspace.root().join("data"))
            .env("CONJURE_DATABASE", &self.start.database)
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("OPENAI_API_KEY", "a-key-of-nobody")
            .run()?;
        anyhow::ensure!(
            output.code == Some(0),
            "`conjure {}` says {output:?}",
            arguments.join(" ")
        );
        Ok(())
    }

    fn mark(&self, kill: &str) -> String {
        let id = std::process::id();
        format!("chaos-{id}-{}-{}-{kill}.", self.job.name, self.job.seed)
    }
}

/// An event near which a host is killed.
struct Trigger {
    kind: &'static str,
    /// How many of them pass before.
    skip: u64,
    delay: Duration,
}

impl Trigger {
    fn random(random: &mut Random) -> Self {
        let kinds = [
            "round",
            "content",
            "function_call",
            "call_started",
            "function_call_output",
            "usage",
            "done",
        ];
        let kind = usize::try_from(random.below(kinds.len() as u64)).unwrap_or_default();
        Self {
            kind: kinds.get(kind).copied().unwrap_or("round"),
            skip: random.below(4),
            // At once as often as not: some phases are short.
            delay: Duration::from_micros(random.below(6000) * random.below(2)),
        }
    }

    fn delay_after(&mut self, event: &Value) -> Option<Duration> {
        if event.get("type").and_then(Value::as_str) != Some(self.kind) {
            return None;
        }
        match self.skip.checked_sub(1) {
            Some(skip) => {
                self.skip = skip;
                None
            }
            None => Some(self.delay),
        }
    }
}

/// A container's user is not the host's.
fn make_world_writable(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
}
