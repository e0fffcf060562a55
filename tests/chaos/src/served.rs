//! `conjure serve` as a host under test, with clients of its HTTP API: each follower leaves its
//! stream now and then and comes back with the number that it saw last.

use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use conjure_core::chat::EventId;
use conjure_host::manager::NewSession;
use conjure_host::store::ThreadId;
use conjure_kit::{Guard, Workspace};
use serde_json::{Value, json};

use crate::http::{Answer, Api, TOKEN};
use crate::protocol::{HostReport, Order};
use crate::random::Random;
use crate::running::{MARK, OUTER, Start, kill_on_exit};
use crate::victim::KEY;

/// How long a request for the end of a turn waits, in seconds.
const WAIT: u64 = 50;

/// A server that runs. It is killed when this is dropped, and when this process ends.
pub(crate) struct ServedHost {
    child: Child,
    guard: Option<Guard>,
    /// Address of the server's API, once the server has said it.
    api: Arc<OnceLock<Api>>,
    clients: Option<Clients>,
    reports: Receiver<HostReport>,
}

/// What the clients of a server share.
#[derive(Clone)]
struct Clients {
    reports: Sender<HostReport>,
    /// The server is about to be killed: nobody comes back.
    is_over: Arc<AtomicBool>,
    number: Arc<AtomicU64>,
    seed: u64,
}

impl ServedHost {
    pub(crate) fn start(start: &Start, workspace: &Workspace, mark: &str) -> Result<Self> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(workspace.root().join("host.log"))?;
        let mut child = Command::new(&start.conjure)
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", workspace.home())
            .env("TMPDIR", workspace.root().join("tmp"))
            .env("XDG_RUNTIME_DIR", workspace.root().join("run"))
            .env("CONJURE_PLUGIN_PATH", workspace.plugins())
            .env("CONJURE_DATA_DIR", workspace.root().join("data"))
            .env("CONJURE_DATABASE", &start.database)
            .env("CONJURE_KEY", KEY)
            .env("CONJURE_TOKEN", TOKEN)
            .env(MARK, mark)
            .env(OUTER, mark)
            .current_dir(workspace.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} could not be started", start.conjure.display()))?;
        let guard = kill_on_exit(&child)?;
        let stdout = child.stdout.take().context("it has no output")?;
        let (sender, said) = channel();
        let api = Arc::new(OnceLock::new());
        let (ready, listening) = (sender.clone(), Arc::clone(&api));
        thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(stdout).read_line(&mut line).is_ok()
                && let Some(api) = listens(&line)
            {
                let _ = listening.set(api);
                let _ = ready.send(HostReport::Ready);
            }
        });
        let mut seed = u64::from(child.id());
        seed = seed.wrapping_add(start.seed);
        Ok(Self {
            child,
            guard: Some(guard),
            api,
            clients: Some(Clients {
                reports: sender,
                is_over: Arc::default(),
                number: Arc::default(),
                seed,
            }),
            reports: said,
        })
    }

    /// Lets a client of the server carry an order out.
    pub(crate) fn send_order(&self, order: Order) -> Result<()> {
        let clients = self.clients.clone();
        let clients = clients.context("it takes no orders any more")?;
        let api = *self.api.get().context("it is not ready")?;
        thread::Builder::new()
            .stack_size(512 * 1024)
            .spawn(move || clients.execute(api, order))?;
        Ok(())
    }

    fn disarm(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
    }

    pub(crate) fn reports(&self) -> &Receiver<HostReport> {
        &self.reports
    }

    /// Kills it, and gives what its clients had heard until then.
    pub(crate) fn kill(&mut self) -> Result<Vec<HostReport>> {
        if let Some(clients) = self.clients.take() {
            clients.is_over.store(true, Ordering::Release);
        }
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended by itself: {status}");
        }
        self.child.kill().context("it could not be killed")?;
        // Before the number is anybody else's.
        self.disarm();
        self.child.wait()?;
        // Connections end with the process, and the clients with these.
        Ok(self.reports.iter().collect())
    }

    /// Lets it come to its end.
    pub(crate) fn end(mut self, patience: Duration) -> Result<()> {
        if let Some(clients) = self.clients.take() {
            clients.is_over.store(true, Ordering::Release);
        }
        let pid = i32::try_from(self.child.id()).ok();
        let pid = pid
            .and_then(rustix::process::Pid::from_raw)
            .context("no process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.disarm();
                // As a program that the signal ended says it.
                anyhow::ensure!(status.code() == Some(143), "it ended with {status}");
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ServedHost {
    fn drop(&mut self) {
        if let Some(clients) = &self.clients {
            clients.is_over.store(true, Ordering::Release);
        }
        let _ = self.child.kill();
        self.disarm();
        let _ = self.child.wait();
    }
}

/// Where a server says that it is.
fn listens(line: &str) -> Option<Api> {
    let said: Value = serde_json::from_str(line).ok()?;
    let address = said.get("url")?.as_str()?.strip_prefix("http://")?;
    address.parse().ok().map(Api)
}

impl Clients {
    fn execute(&self, api: Api, order: Order) {
        let done = match order {
            Order::Create { session } => self.create(api, &session),
            Order::Follow { thread, after } => self.follow(api, &thread, after),
            Order::Say {
                session,
                turn,
                text,
            } => self.run_turn(api, &session, &turn, &text),
        };
        let Err(error) = done else { return };
        // The end of a connection may be the end of the server; if it is not, what is waited for
        // does not come.
        let connection = error.downcast_ref::<io::Error>();
        let broke = connection.is_some_and(|error| error.kind() != ErrorKind::InvalidData);
        if !broke && !self.is_over.load(Ordering::Acquire) {
            self.report(HostReport::Wrong {
                error: format!("{error:#}"),
            });
        }
    }

    fn report(&self, said: HostReport) {
        let _ = self.reports.send(said);
    }

    fn create(&self, api: Api, new: &NewSession) -> Result<()> {
        let body = json!({
            "auth": new.auth, "model": new.model, "working_dir": new.working_dir,
            "tools": new.tools,
        });
        let made = is(api.ask("POST", "/api/v1/sessions", None, Some(&body))?, 201)?;
        let session = made.pointer("/id").and_then(Value::as_str);
        let thread = made.pointer("/thread/id").and_then(Value::as_str);
        self.report(HostReport::Created {
            session: session.context("a session without an id")?.to_owned(),
            thread: ThreadId::parse(thread.context("a session without a thread")?)?,
        });
        Ok(())
    }

    fn run_turn(&self, api: Api, session: &str, turn: &str, text: &str) -> Result<()> {
        let path = format!("/api/v1/sessions/{session}/turns");
        let body = json!({ "text": text, "turn_id": turn });
        is(api.ask("POST", &path, Some(turn), Some(&body))?, 202)?;
        self.report(HostReport::Accepted {
            turn: turn.to_owned(),
        });
        let path = format!("/api/v1/turns/{turn}?wait={WAIT}");
        loop {
            let run = is(api.ask("GET", &path, None, None)?, 200)?;
            if run.get("ended_at_ms").is_some_and(Value::is_number) {
                let text = |name: &str| run.get(name)?.as_str().map(str::to_owned);
                self.report(HostReport::Over {
                    turn: turn.to_owned(),
                    state: text("state").context("a turn without a state")?,
                    error: text("error"),
                });
                return Ok(());
            }
        }
    }

    /// Follows a thread, leaves, and comes back: at once, or after a moment in which the turn goes
    /// on.
    fn follow(&self, api: Api, thread: &ThreadId, mut seen: Option<EventId>) -> Result<()> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::of(self.seed, number);
        while !self.is_over.load(Ordering::Acquire) {
            let mut events = api.follow(thread.as_str(), seen)?;
            let leaves = Instant::now() + Duration::from_millis(20 + random.below(500));
            loop {
                let (id, event) = match events.next(leaves) {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) if error.kind() == ErrorKind::InvalidData => {
                        return Err(error.into());
                    }
                    // It came to its end: who is there still comes back.
                    Err(_) => break,
                };
                if Some(id) <= seen {
                    bail!("event {id} of thread {thread} came again");
                }
                seen = Some(id);
                let thread = thread.clone();
                self.report(HostReport::Event { thread, id, event });
                // Some leave just when something came.
                if Instant::now() >= leaves || random.percent(3) {
                    break;
                }
            }
            drop(events);
            if random.percent(50) {
                thread::sleep(Duration::from_millis(random.below(40)));
            }
        }
        Ok(())
    }
}

fn is(answer: Answer, status: u16) -> Result<Value> {
    if answer.status != status {
        bail!("{} instead of {status}: {}", answer.status, answer.body);
    }
    Ok(answer.body)
}
