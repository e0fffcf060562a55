//! Rows that are not as they should be, forks of either kind, and databases of others.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use crate::tests::postgres::Server;
use crate::tests::{entry, open, runtime};
use crate::{Left, Location, Maestro, StoreError};

use super::{Row, TABLES, There, assistant, import, said, sqlite, thread, user, uuid};

#[test]
fn hostile_rows_cost_what_cannot_be_read_and_nothing_else() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let there = There::new(&server, TABLES).await;
        there
            .auth(0xa1, "openai", "api_key", json!({"api_key": "sk-secret"}))
            .await;
        let nulls = [
            "saved_authentications",
            "sessions",
            "supplied_context_items",
            "mcp_servers",
        ];
        for (table, number) in nulls.into_iter().zip(0xe0..) {
            there.put(table, &[("id", Some(uuid(number)))]).await;
        }
        let long = "ü".repeat(300);
        let odd = json!({"persona": [1], "memory": "text", "tools": 5, "mcps": null});
        there.session(1, Some(&long), Some(0xa1), odd).await;
        there
            .session(2, Some(" tab\there "), Some(0xa1), json!({}))
            .await;
        let row = |thread, turn, chat| Row {
            session: Some(1),
            thread: Some(thread),
            turn,
            chat,
            ..Row::default()
        };
        let of = |messages: &[Json]| json!({ "messages": messages });
        let (hello, there_you_are) = (user("Hello?"), assistant("Hello."));
        // Gaps, doubles and nothing as numbers; the newest snapshot is no chat at all.
        there
            .row(row(0x71, Some(5), of(std::slice::from_ref(&hello))))
            .await;
        there
            .row(row(
                0x71,
                Some(9),
                of(&[hello.clone(), there_you_are.clone()]),
            ))
            .await;
        there
            .row(row(
                0x71,
                Some(9),
                of(&[hello.clone(), there_you_are, user("More?")]),
            ))
            .await;
        there.row(row(0x71, None, of(&[]))).await;
        there
            .row(row(0x71, Some(i64::from(i32::MAX)), json!("text")))
            .await;
        // Fewer messages than before.
        there
            .row(row(0x72, Some(1), of(&[hello.clone(), hello.clone()])))
            .await;
        there
            .row(row(0x72, Some(2), of(&[user("Only this.")])))
            .await;
        // Nothing that can be read.
        for (turn, chat) in [json!(null), json!([]), json!({"messages": "x"})]
            .into_iter()
            .enumerate()
        {
            there.row(row(0x73, i64::try_from(turn).ok(), chat)).await;
        }
        // Parents that lead in a circle, to nobody, and to the thread itself.
        for (thread, parent) in [(0x74, 0x75), (0x75, 0x74), (0x76, 0x77), (0x78, 0x78)] {
            let chat = of(&[user(&format!("I am {thread:x}."))]);
            let parent = Some(parent);
            there
                .row(Row {
                    parent,
                    ..row(thread, Some(1), chat)
                })
                .await;
        }
        let infinite = "UPDATE chat_history SET inserted_at = 'infinity' WHERE turn_index = 5";
        there.db.execute_raw(infinite).await.unwrap();

        let (_dir, store) = sqlite().await;
        let report = import(&there, &store).await;
        assert_eq!(
            said(&store, &thread(0x71)).await.0,
            ["Hello?", "Hello.", "More?"]
        );
        assert_eq!(said(&store, &thread(0x71)).await.1, [1, 2]);
        assert_eq!(said(&store, &thread(0x72)).await.0, ["Only this."]);
        assert_eq!(store.thread(&thread(0x73)).await.unwrap().last_seq, 0);
        for number in [0x74, 0x75, 0x76, 0x78] {
            assert_eq!(
                said(&store, &thread(number)).await.0,
                [format!("I am {number:x}.")]
            );
            assert_eq!(store.thread(&thread(number)).await.unwrap().parent, None);
        }
        assert_eq!(report.left_out.get(Left::UnreadableSnapshots), 4);
        assert_eq!(report.left_out.get(Left::GapsAndDoubles), 1);
        assert_eq!(report.left_out.get(Left::ShrunkThreads), 1);
        assert_eq!(report.left_out.get(Left::BrokenForks), 3);
        assert_eq!(report.left_out.get(Left::Settings), 3);
        assert_eq!(report.sessions, ["ü".repeat(100), "tab here".to_owned()]);
        assert_eq!(report.without_auth, ["session-000000e1"]);
        // Labels of one session differ.
        let mut labels = Vec::new();
        for number in 0x71..=0x73 {
            labels.push(store.thread(&thread(number)).await.unwrap().label);
        }
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), 3, "{labels:?}");
        assert!(store.check().await.unwrap().is_sound());
    });
}

#[test]
fn both_branches_of_a_fork_come_and_share_what_they_begin_with() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let there = There::new(&server, TABLES).await;
        there
            .auth(0xa1, "openai", "api_key", json!({"api_key": "sk-secret"}))
            .await;
        there
            .session(1, Some("Waters"), Some(0xa1), json!({}))
            .await;
        let (river, rhone) = (user("A river?"), assistant("The Rhone."));
        let system = json!({"role": "system", "content": "A rule."});
        let chat = [
            system.clone(),
            river.clone(),
            rhone.clone(),
            user("A lake?"),
            assistant("Annecy."),
        ];
        let rows = there.grow(1, 0x75, &chat).await;
        // The application marks the row that a fork begins at with its own id.
        let mark = format!(
            "UPDATE chat_history SET fork_from_entry_id = id WHERE id = '{}'",
            uuid(rows[2])
        );
        there.db.execute_raw(&mark).await.unwrap();
        let fork = |thread, parent, fork_from, messages: &[Json]| Row {
            session: Some(1),
            thread: Some(thread),
            parent,
            fork_from: Some(fork_from),
            turn: Some(1),
            chat: json!({ "messages": messages }),
            ..Row::default()
        };
        // One that holds once more what came before it, and one of the other kind, that holds
        // nothing of it; and a fork of that. Their ids come before their parents'.
        let copied = [
            system.clone(),
            river,
            rhone,
            user("A mountain?"),
            assistant("Mont Blanc."),
        ];
        there.row(fork(0x71, Some(0x75), rows[2], &copied)).await;
        let bare = [system, user("A sea?"), assistant("The Baltic.")];
        let bare_row = there.row(fork(0x74, Some(0x75), rows[3], &bare)).await;
        there
            .row(fork(0x72, None, bare_row, &[user("Another sea?")]))
            .await;

        // The session was in the middle one, whatever grew last.
        let latest = format!(
            "UPDATE sessions SET latest_chat_entry_id = '{}'",
            uuid(bare_row)
        );
        there.db.execute_raw(&latest).await.unwrap();

        let (_dir, store) = sqlite().await;
        let report = import(&there, &store).await;
        assert_eq!((report.threads, report.forks, report.turns), (4, 3, 5));
        let session = store.session(&uuid(1)).await.unwrap();
        assert_eq!(session.chat_thread_id, Some(uuid(0x74)));
        assert_eq!(report.left_out.get(Left::BrokenForks), 0);
        let texts = async |number| said(&store, &thread(number)).await;
        let trunk = ["A rule.", "A river?", "The Rhone.", "A lake?", "Annecy."];
        assert_eq!(texts(0x75).await.0, trunk);
        let copied = texts(0x71).await;
        assert_eq!(
            copied.0,
            [&trunk[..3], &["A mountain?", "Mont Blanc."]].concat()
        );
        assert_eq!(copied.1, [1, 2]);
        let bare = texts(0x74).await;
        assert_eq!(bare.0, [&trunk[..4], &["A sea?", "The Baltic."]].concat());
        assert_eq!(bare.1, [1, 2, 3]);
        let last = texts(0x72).await;
        assert_eq!(last.0, [&bare.0[..], &["Another sea?".to_owned()]].concat());
        assert_eq!(last.1, [1, 2, 3, 4]);
        let parent = store.thread(&thread(0x71)).await.unwrap();
        assert_eq!(
            (parent.parent, parent.fork_from_seq),
            (Some(thread(0x75)), 5)
        );
        assert_eq!(
            store.thread(&thread(0x72)).await.unwrap().parent,
            Some(thread(0x74))
        );
        let rows = store.all("SELECT seq FROM entries", []).await.unwrap();
        assert_eq!(rows.len() as u64, report.entries, "nothing is there twice");
        assert!(store.check().await.unwrap().is_sound());

        // A fork that is new there of a thread that went on here shares what is the same.
        let mut log = open(&store, &uuid(0x75)).await;
        let last = log.last_seq();
        log.append(&[entry(last + 1)], true).await.unwrap();
        drop(log);
        let late = [&chat[..], &[user("A pond?")]].concat();
        there.row(fork(0x76, Some(0x75), 0x9003, &late)).await;
        let report = import(&there, &store).await;
        assert_eq!(
            (report.threads, report.forks, report.known_threads),
            (1, 1, 4)
        );
        assert_eq!(
            store.thread(&thread(0x76)).await.unwrap().fork_from_seq,
            last
        );
        assert_eq!(texts(0x76).await.0, [&trunk[..], &["A pond?"]].concat());
        // And one of a thread that was cleared here stands alone.
        store.clear_thread(&thread(0x75)).await.unwrap();
        there.row(fork(0x77, Some(0x75), 0x9003, &late)).await;
        let report = import(&there, &store).await;
        assert_eq!((report.threads, report.forks), (1, 0));
        assert_eq!(report.left_out.get(Left::BrokenForks), 1);
        assert_eq!(texts(0x77).await.0, [&trunk[..], &["A pond?"]].concat());
        assert!(store.check().await.unwrap().is_sound());
    });
}

#[test]
fn a_database_of_another_application_is_refused() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let read = async |url: &str| {
            let error = Maestro::read(&SecretString::from(url)).await.err().unwrap();
            assert!(!error.to_string().contains("hidden"), "{error}");
            error
        };
        for url in ["/a/file.db", "memory", "mysql://me:hidden@h/db"] {
            let error = read(url).await;
            assert!(matches!(error, StoreError::BadLocation { .. }), "{error}");
        }
        // Conjure's own has sessions and saved authentications, too.
        let bed = server.bed().await;
        bed.open().await.close().await;
        let Location::Postgres(url) = &bed.place else {
            panic!("a server's place is PostgreSQL");
        };
        let error = read(url.expose_secret()).await;
        assert!(error.to_string().contains("chat_history"), "{error}");
        let error = read("postgres://me:hidden@127.0.0.1:1/db").await;
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    });
}
