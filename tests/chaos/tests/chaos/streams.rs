//! Many sessions of a server that stream at once, each followed over HTTP by a client that drops
//! its connection and comes back.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conjure_chaos::{Api, Postgres, Random, TOKEN};
use conjure_host::store::{Location, Options as StoreOptions, Store, ThreadId};
use conjure_kit::{ProgramHandle, Signal, Workspace, cli};
use conjure_mock_llm::{Message, MockLlm, Reply, Script, Step};
use serde_json::{Value, json};

use crate::seen::Seen;

const SESSIONS: usize = 200;
/// Turns of each.
const TURNS: usize = 2;
/// How long all of it may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a client stays at most, in milliseconds.
const STAYS: u64 = 2_500;

/// Follows a thread until it has seen so many turns come to their end.
fn client(api: Api, thread: &str, mut random: Random) -> Seen {
    let mut seen = Seen::default();
    let mut done = 0;
    let until = Instant::now() + PATIENCE;
    while done < TURNS {
        assert!(Instant::now() < until, "thread {thread} does not end");
        let mut events = api.follow(thread, seen.last()).unwrap();
        let leaves = Instant::now() + Duration::from_millis(50 + random.below(STAYS));
        loop {
            let (id, event) = match events.next(leaves) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::InvalidData => panic!("{error}"),
                Err(_) => break,
            };
            if event["type"] == "done" {
                done += 1;
            }
            seen.add(id, event);
            // Some leave just when something came.
            if done == TURNS || Instant::now() >= leaves || random.percent(2) {
                break;
            }
        }
        drop(events);
        seen.returns += 1;
        // Back at once, or away while the turn goes on.
        if random.percent(50) {
            std::thread::sleep(Duration::from_millis(random.below(400)));
        }
    }
    seen
}

fn serve(workspace: &Workspace, database: &str) -> (ProgramHandle, Api) {
    let running = cli(["serve", "--json", "--listen", "127.0.0.1:0"])
        .workspace(workspace)
        .env("CONJURE_KEY", "02".repeat(32))
        .env("CONJURE_TOKEN", TOKEN)
        .env("CONJURE_DATABASE", database)
        .deadline(3 * PATIENCE)
        .start()
        .unwrap();
    let said = running.wait_for_lines(1).unwrap();
    let said: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let address = said["url"].as_str().unwrap().trim_start_matches("http://");
    let address: SocketAddr = address.parse().unwrap();
    (running, Api(address))
}

fn post(api: Api, path: &str, body: &Value, status: u16) -> Value {
    let answer = api.ask("POST", path, None, Some(body)).unwrap();
    assert_eq!(answer.status, status, "{}", answer.body);
    answer.body
}

fn every_client_sees_every_event_once(database: &str, workspace: &Workspace) {
    let text: String = (0..60).map(|word| format!("word {word:>3} ")).collect();
    let reply = Reply::from(Message::new().text(text).deltas(9)).delay(Duration::from_millis(40));
    let model = MockLlm::start_blocking(Script::new().step(Step::new(reply).always())).unwrap();
    let (server, api) = serve(workspace, database);
    let auth = json!({
        "name": "key", "provider": "anthropic", "kind": "api_key", "secret": "a-key-of-nobody",
        "base_url": model.base_url(),
    });
    post(api, "/api/v1/auths", &auth, 201);
    let new = json!({
        "auth": "key", "model": "claude-sonnet-4-5", "working_dir": workspace.work(),
        "tools": { "backend": [] },
    });
    let sessions: Vec<(String, String)> = (0..SESSIONS)
        .map(|_| {
            let made = post(api, "/api/v1/sessions", &new, 201);
            let text = |at: &str| made.pointer(at).unwrap().as_str().unwrap().to_owned();
            (text("/id"), text("/thread/id"))
        })
        .collect();
    let all: Vec<Seen> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..)
            .zip(&sessions)
            .map(|(number, (_, thread))| {
                let random = Random::of(SESSIONS as u64, number);
                scope.spawn(move || client(api, thread, random))
            })
            .collect();
        for (session, _) in &sessions {
            for _ in 0..TURNS {
                let path = format!("/api/v1/sessions/{session}/turns");
                post(api, &path, &json!({ "text": "Count." }), 202);
            }
        }
        let seen = clients.into_iter().map(|client| client.join().unwrap());
        seen.collect()
    });
    server.signal(Signal::TERM);
    assert_eq!(server.wait().unwrap().code, Some(143));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let place = Location::parse(database).unwrap();
    let options = StoreOptions::default();
    let store = runtime.block_on(Store::open(&place, &options)).unwrap();
    let mut returns = 0;
    for ((_, thread), seen) in sessions.iter().zip(all) {
        let thread = ThreadId::parse(thread).unwrap();
        runtime.block_on(seen.is_all_of(&store, &thread, TURNS * 5));
        returns += seen.returns;
    }
    assert!(
        returns > 2 * SESSIONS,
        "clients dropped and returned: {returns}"
    );
    runtime.block_on(store.close());
}

#[test]
fn every_client_over_http_that_drops_and_returns_sees_every_event_once_on_sqlite() {
    let workspace = Workspace::new().unwrap();
    let file = workspace.root().join("conjure.db").display().to_string();
    every_client_sees_every_event_once(&file, &workspace);
}

#[test]
fn every_client_over_http_that_drops_and_returns_sees_every_event_once_on_postgresql() {
    let Some(server) = Postgres::find().unwrap() else {
        println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
        return;
    };
    let name = format!("conjure_streams_{}", std::process::id());
    let url = conjure_chaos::database(&server, &name).unwrap();
    every_client_sees_every_event_once(&url, &Workspace::new().unwrap());
}
