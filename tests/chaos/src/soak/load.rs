//! What sessions of a soak do: turns with and without calls, new threads, turns that are cancelled,
//! and clients that follow for a while and leave.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use super::Options;
use super::model::CALLS;
use crate::http::Api;
use crate::random::Random;

/// After so many turns a session begins a new thread, so that requests do not grow.
const TURNS_OF_A_THREAD: u64 = 5;
/// What the native skill reads.
const LOG: &str = "2026-01-02T03:04:05Z ERROR it broke\n";
/// Percent of turns with a call, that are cancelled, and that somebody follows.
const WITH_CALL: u64 = 30;
const CANCELLED: u64 = 5;
const FOLLOWED: u64 = 30;
/// How often a session that waits looks whether it is over.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// One in so many sessions has a server of MCP of its own, a process; the others share one.
const OWN_SERVER_EVERY: usize = 10;
/// The most of the turns that may fail, in percent: none but by accident.
const MAX_FAILED_PERCENT: u64 = 1;

/// The sessions of a server.
pub(crate) struct Load {
    api: Api,
    sessions: Vec<String>,
    pace: Duration,
    done: AtomicU64,
    failed: AtomicU64,
}

/// How turns went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turns {
    done: u64,
    failed: u64,
}

impl Load {
    /// Makes the sessions.
    ///
    /// `mcp`: the program of a server of MCP, and the address of one that all share.
    pub(crate) fn new(
        api: Api,
        model: &str,
        work: &Path,
        mcp: (&Path, String),
        options: &Options,
    ) -> Result<Self> {
        let auth = json!({
            "name": "key", "provider": "anthropic", "kind": "api_key", "secret": "a-key-of-nobody",
            "base_url": model,
        });
        post(api, "/api/v1/auths", &auth)?;
        let (program, shared) = mcp;
        let new = |dir: &Path, number: usize| {
            let server = if number.is_multiple_of(OWN_SERVER_EVERY) {
                json!({ "command": program })
            } else {
                json!({ "url": shared })
            };
            json!({
                "auth": "key", "model": "claude-sonnet-4-5", "working_dir": dir,
                "tools": {
                    "backend": [
                        { "kind": "local" },
                        { "kind": "native", "skills": ["log-fetcher"] },
                        { "kind": "mcp", "config": { "servers": { "notes": server } } },
                    ],
                    "policy": { "allow": ["*"] },
                },
            })
        };
        let made = (0..options.sessions).map(|number| {
            // Each in a directory of its own, since all of them write a file of the same name.
            let dir = work.join(number.to_string());
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("app.log"), LOG)?;
            let made = post(api, "/api/v1/sessions", &new(&dir, number))?;
            let id = text(&made, "id").context("a session without an id")?;
            Ok(id.to_owned())
        });
        Ok(Self {
            api,
            sessions: made.collect::<Result<_>>()?,
            pace: options.pace,
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// A turn with a call of each kind in each session.
    pub(crate) fn run_one_turn_each(&self) -> Result<()> {
        self.on_all(|session, _| {
            for said in CALLS {
                let turn = self.begin(session, said)?;
                self.end_of(&turn)?;
            }
            Ok(())
        })
    }

    /// Turns until it is over.
    pub(crate) fn drive(&self, is_over: &AtomicBool) -> Result<Turns> {
        self.on_all(|session, random| {
            let begun = Instant::now();
            // Not all at the same time.
            let millis = u64::try_from(self.pace.as_millis()).unwrap_or(u64::MAX);
            let mut due = begun + Duration::from_millis(random.below(millis.max(1)));
            for turn in 1.. {
                while Instant::now() < due && !is_over.load(Ordering::Relaxed) {
                    thread::sleep(POLL_INTERVAL.min(due.saturating_duration_since(Instant::now())));
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                due = Instant::now() + self.pace;
                self.turn(session, random)?;
                if turn % TURNS_OF_A_THREAD == 0 {
                    let path = format!("/api/v1/sessions/{session}/thread");
                    post(self.api, &path, &json!({ "kind": "new" }))?;
                }
            }
            Ok(())
        })?;
        Ok(Turns {
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        })
    }

    /// Does some work for every session, for all at the same time.
    fn on_all(&self, work: impl Fn(&str, &mut Random) -> Result<()> + Sync) -> Result<()> {
        let work = &work;
        thread::scope(|scope| {
            let mut running = Vec::new();
            for (number, session) in (0..).zip(&self.sessions) {
                let stack = thread::Builder::new().stack_size(512 * 1024);
                let mut random = Random::of(0, number);
                running.push(stack.spawn_scoped(scope, move || work(session, &mut random))?);
            }
            for one in running {
                one.join()
                    .map_err(|_| anyhow!("a session's client ended early"))??;
            }
            Ok(())
        })
    }

    /// A turn of any kind, to its end.
    fn turn(&self, session: &str, random: &mut Random) -> Result<()> {
        let which = random.below(CALLS.len() as u64);
        let call = CALLS.get(usize::try_from(which)?).copied();
        let said = call
            .filter(|_| random.percent(WITH_CALL))
            .unwrap_or("What is new?");
        let begun = self.begin(session, said)?;
        if random.percent(CANCELLED) {
            let path = format!("/api/v1/sessions/{session}/cancel");
            self.api.ask("POST", &path, None, None)?;
        }
        if random.percent(FOLLOWED) {
            let thread = text(&begun, "thread").context("a turn without a thread")?;
            let leaves = Instant::now() + Duration::from_millis(random.below(2_000));
            let mut events = self.api.follow(thread, None)?;
            while Instant::now() < leaves {
                if !matches!(events.next(leaves), Ok(Some(_))) {
                    break;
                }
            }
        }
        self.end_of(&begun)
    }

    fn begin(&self, session: &str, text: &str) -> Result<Value> {
        let path = format!("/api/v1/sessions/{session}/turns");
        post(self.api, &path, &json!({ "text": text }))
    }

    fn end_of(&self, begun: &Value) -> Result<()> {
        let turn = text(begun, "turn").context("a turn without an id")?;
        let path = format!("/api/v1/turns/{turn}?wait=50");
        let answer = self.api.ask("GET", &path, None, None)?;
        self.done.fetch_add(1, Ordering::Relaxed);
        if answer.status != 200 || !answer.body.get("error").is_none_or(Value::is_null) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Turns {
    /// What is wrong with how turns went.
    pub(crate) fn failure(&self) -> Option<String> {
        (self.failed * 100 > self.done * MAX_FAILED_PERCENT || self.done == 0)
            .then(|| format!("{} of {} turns failed", self.failed, self.done))
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, of which {} failed", self.done, self.failed)
    }
}

fn post(api: Api, path: &str, body: &Value) -> Result<Value> {
    let answer = api.ask("POST", path, None, Some(body))?;
    if !(200..300).contains(&answer.status) {
        anyhow::bail!("POST {path}: {} {}", answer.status, answer.body);
    }
    Ok(answer.body)
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}
