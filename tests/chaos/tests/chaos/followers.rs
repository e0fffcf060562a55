//! Many sessions that stream at once, each followed by a client that drops and returns.

use std::time::Duration;

use conjure_chaos::Random;
use conjure_core::chat::{Event, Message as Said};
use conjure_host::Host;
use conjure_host::auths::{Auths, KeySources, NewAuth};
use conjure_host::manager::{Manager, ManagerOptions, NewSession};
use conjure_host::store::{Location, Options as StoreOptions, RunState, Store, ThreadId};
use conjure_mock_llm::{Message, MockLlm, Reply, Script, Step};
use conjure_vault::Credential;
use serde_json::{Map, json};

use crate::seen::Seen;

const SESSIONS: usize = 200;
/// Turns of each.
const TURNS: usize = 2;
/// How long a turn may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

async fn manager(dir: &tempfile::TempDir, model: &MockLlm) -> Manager {
    let place = Location::File(dir.path().join("conjure.db"));
    let store = Store::open(&place, &StoreOptions::default()).await.unwrap();
    let keys = KeySources {
        key: Some("02".repeat(32).into()),
        ..KeySources::new(dir.path())
    };
    let auths = Auths::over(store.clone(), keys);
    let new = NewAuth {
        name: "key".to_owned(),
        provider: "anthropic".to_owned(),
        base_url: Some(model.base_url()),
    };
    let key = Credential::ApiKey("a-key-of-nobody".to_owned().into());
    auths.add(new, key).await.unwrap();
    let host = Host::builder()
        .data_dir(dir.path())
        .log(store.clone())
        .auths(auths)
        .build()
        .await
        .unwrap();
    Manager::start(host, store, ManagerOptions::default())
        .await
        .unwrap()
}

/// Follows a thread until it has seen so many turns come to their end, and returns what it saw. It
/// drops its stream at least every 20 to 200 ms, and comes back with the number that it saw last.
async fn client(manager: Manager, thread: ThreadId, mut random: Random) -> Seen {
    let mut seen = Seen::default();
    let mut done = 0;
    loop {
        let mut events = manager.events(&thread, seen.last()).await.unwrap();
        let stay = Duration::from_millis(20 + random.below(180));
        let leaves = tokio::time::sleep(stay);
        tokio::pin!(leaves);
        loop {
            let event = tokio::select! {
                () = &mut leaves => break,
                event = events.next() => event.unwrap().expect("the manager is there"),
            };
            seen.add(event.id, serde_json::to_value(&event.event).unwrap());
            if matches!(event.event, Event::Done { .. }) {
                done += 1;
                if done == TURNS {
                    return seen;
                }
            }
            // Some leave just when something came: what is behind it may be in the log already,
            // and not shown yet.
            if random.percent(5) {
                break;
            }
        }
        drop(events);
        seen.returns += 1;
        // Back at once, or away for a moment in which the turn goes on.
        if random.percent(50) {
            tokio::time::sleep(Duration::from_millis(random.below(60))).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_of_200_streaming_sessions_that_drops_and_returns_sees_every_event_once() {
    let text: String = (0..60).map(|word| format!("word {word:>3} ")).collect();
    let reply = Reply::from(Message::new().text(text).deltas(9)).delay(Duration::from_millis(15));
    let model = MockLlm::start(Script::new().step(Step::new(reply).always()))
        .await
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let manager = manager(&dir, &model).await;
    let mut tools = Map::new();
    tools.insert("backend".to_owned(), json!([]));
    let mut clients = Vec::new();
    for number in 0..SESSIONS {
        let session = NewSession {
            tools: tools.clone(),
            ..NewSession::new("key", "claude-sonnet-4-5", dir.path())
        };
        let session = manager.create(session).await.unwrap();
        let thread = session.thread.unwrap().id;
        let random = Random::of(SESSIONS as u64, number as u64);
        let following = tokio::spawn(client(manager.clone(), thread.clone(), random));
        clients.push((session.id, thread, following));
    }
    let mut turns = Vec::new();
    for (session, ..) in &clients {
        for _ in 0..TURNS {
            let turn = manager.say(session, Said::user("Count."), None);
            turns.push(turn.await.unwrap().id);
        }
    }
    let over = async {
        for turn in &turns {
            let run = manager.wait(turn).await.unwrap();
            assert_eq!(run.state, RunState::Completed, "{run:?}");
        }
    };
    tokio::time::timeout(PATIENCE, over)
        .await
        .expect("all turns end");
    let mut returns = 0;
    for (_, thread, following) in clients {
        let following = tokio::time::timeout(PATIENCE, following);
        let seen = following.await.expect("it sees the end").unwrap();
        seen.is_all_of(manager.store(), &thread, TURNS * 5).await;
        returns += seen.returns;
    }
    assert!(
        returns > SESSIONS,
        "clients dropped and returned: {returns}"
    );
    manager.shutdown(Duration::ZERO).await;
}
