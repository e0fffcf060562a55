//! Everything that comes over, once, whole or not at all.

use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::tests::postgres::Server;
use crate::tests::{entry, open, runtime};
use crate::{
    Left, LeftOut, Log as _, MaestroChoices, MaestroReport, MaestroSecret, Store, StoreError,
    ThreadId, Window,
};

use super::{
    OLD_TABLES, Row, TABLES, There, assistant, choices, import, said, sqlite, thread, user, uuid,
};

/// A database with something of everything.
async fn full(server: &Server) -> There {
    let there = There::new(server, TABLES).await;
    there
        .auth(0xa1, "openai", "api_key", json!({"api_key": "sk-secret"}))
        .await;
    there
        .auth(
            0xa2,
            "anthropic",
            "oauth",
            json!({"access_token": "oat-secret"}),
        )
        .await;
    there
        .auth(0xa3, "gemini", "api_key", json!("c2VhbGVk"))
        .await;
    there
        .auth(0xa4, "gemini", "api_key", json!({"key_id": 5}))
        .await;
    let more = json!({
        "model_id": "gpt-5", "working_dir": "/work",
        "persona": {"name": "Terse", "version": 3, "persona_text": "Be terse."},
        "memory": {"name": "m", "list": [1, null]},
        "tools": {"allowed": {"openai": ["shell"]}},
        "mcps": {"files": {"command": "mcp-files", "args": ["/work"]}, "odd": 5},
    });
    there
        .session(1, Some("The login page"), Some(0xa1), more)
        .await;
    there
        .session(2, None, Some(0xa2), json!({"working_dir": "~/work"}))
        .await;
    there
        .session(3, Some("Nobody's"), None, json!({"persona": {"name": "P"}}))
        .await;
    there
        .session(
            4,
            Some("The login page"),
            Some(0xa1),
            json!({"persona": {"persona_text": ""}}),
        )
        .await;
    there
        .session(5, Some("Sealed"), Some(0xa3), json!({}))
        .await;
    for (number, name, kind) in [
        (0xb1, "Careful", "persona"),
        (0xb2, "Base", "system_prompt"),
    ] {
        let row = [
            ("id", Some(uuid(number))),
            ("type", Some(kind.to_owned())),
            ("name", Some(name.to_owned())),
            ("text", Some("Take care.".to_owned())),
            ("version", Some("2".to_owned())),
        ];
        there.put("supplied_context_items", &row).await;
    }
    for (number, name, env) in [(0xc1, "notes", "{}"), (0xc2, "keys", "{\"TOKEN\":\"x\"}")] {
        let row = [
            ("id", Some(uuid(number))),
            ("name", Some(name.to_owned())),
            ("command", Some("npx".to_owned())),
            ("args", Some("{-y,notes-server}".to_owned())),
            ("env", Some(env.to_owned())),
            ("is_enabled", Some("true".to_owned())),
        ];
        there.put("mcp_servers", &row).await;
        let row = [
            ("id", Some(uuid(number + 0x10))),
            ("session_id", Some(uuid(1))),
            ("mcp_server_id", Some(uuid(number))),
        ];
        there.put("session_mcp_servers", &row).await;
    }
    let system = json!({"role": "system", "content": [{"type": "text", "text": "Be terse."}]});
    let chat = [
        system,
        user("A river?"),
        assistant("The Rhone."),
        user("A lake?"),
    ];
    there.grow(1, 0x71, &chat).await;
    // Rows that name no thread make one, named by the session.
    for (turn, chat) in [
        (1, vec![user("Who?")]),
        (2, vec![user("Who?"), assistant("Me.")]),
    ] {
        let row = Row {
            session: Some(2),
            turn: Some(turn),
            chat: json!({ "messages": chat }),
            ..Row::default()
        };
        there.row(row).await;
    }
    there.grow(3, 0x73, &[user("Is anybody there?")]).await;
    let row = Row {
        thread: Some(0x74),
        label: Some("Left behind"),
        turn: Some(1),
        chat: json!({"messages": [user("Alone.")]}),
        ..Row::default()
    };
    there.row(row).await;
    there
}

async fn everything_comes_once(there: &There, store: Store) {
    let before = there.everything().await;
    let report = import(there, &store).await;
    assert_eq!(there.everything().await, before, "nothing is written there");

    assert_eq!(
        report.sessions,
        ["The login page", "session-00000002", "The login page 2"]
    );
    assert_eq!(report.without_auth, ["Nobody's", "Sealed"]);
    assert_eq!(report.without_model, ["The login page 2"]);
    assert_eq!(
        report.without_working_dir,
        ["session-00000002", "The login page 2"]
    );
    assert_eq!((report.threads, report.turns, report.forks), (5, 5, 0));
    assert_eq!((report.personas, report.mcp_servers), (1, 1));
    assert_eq!(report.secret_mcp_servers, ["keys"]);
    assert_eq!(report.left_out.get(Left::Mcps), 2);
    assert_eq!(report.left_out.get(Left::Tools), 1);
    assert_eq!(report.left_out.get(Left::PersonaMessages), 1);

    let session = store.session(&uuid(1)).await.unwrap();
    assert_eq!(session.name.as_deref(), Some("The login page"));
    assert_eq!(
        (session.model_id.as_str(), session.working_dir.as_str()),
        ("gpt-5", "/work")
    );
    let persona = json!({"name": "Terse", "version": "3", "persona_text": "Be terse."});
    assert_eq!(session.persona.0, persona);
    assert_eq!(session.memory.0, json!({"name": "m", "list": [1, null]}));
    let mcps = json!({
        "files": {"command": "mcp-files", "args": ["/work"]},
        "notes": {"command": "npx", "args": ["-y", "notes-server"]},
    });
    assert_eq!(session.mcps.0, mcps);
    assert_eq!(session.chat_thread_id, Some(uuid(0x71)));
    assert_eq!(
        session.latest_chat_entry_id,
        Some(format!("{}/7", uuid(0x71)))
    );
    assert_eq!(
        (session.created_at_ms, session.updated_at_ms),
        (1_757_498_400_000, 1_757_584_800_000)
    );
    let first = store.thread(&thread(0x71)).await.unwrap();
    assert_eq!(first.label, "The login page");
    assert_eq!(
        (
            first.totals.replies,
            first.totals.usage.input,
            first.last_turn
        ),
        (1, 10, 2)
    );
    let told = said(&store, &thread(0x71)).await;
    assert_eq!(told.0, ["A river?", "The Rhone.", "A lake?"]);
    assert_eq!(told.1, [1, 2]);
    let page = store
        .entries(&thread(0x71), Window::After(0), 9)
        .await
        .unwrap();
    let minutes: Vec<i64> = page
        .entries
        .iter()
        .map(|e| (e.at_ms - 1_757_498_400_000) / 60_000)
        .collect();
    assert_eq!(minutes, [1, 1, 2, 2, 3, 3, 3]);

    // What a session does not say is told by defaults.
    let second = store.session(&uuid(2)).await.unwrap();
    assert_eq!(
        second.persona.0,
        json!({"name": "default", "version": "1", "persona_text": ""})
    );
    assert_eq!(
        (second.model_id.as_str(), second.working_dir.as_str()),
        ("gpt-5", "/here")
    );
    let own = ThreadId::parse(&second.chat_thread_id.unwrap()).unwrap();
    assert_eq!(store.thread(&own).await.unwrap().label, "session-00000002");
    assert_eq!(said(&store, &own).await.0, ["Who?", "Me."]);
    // A session without a history has a thread all the same.
    let empty = store.session_named("The login page 2").await.unwrap();
    let empty = ThreadId::parse(&empty.chat_thread_id.unwrap()).unwrap();
    assert_eq!(store.thread(&empty).await.unwrap().last_seq, 0);
    assert_eq!(
        store.thread(&thread(0x74)).await.unwrap().label,
        "Left behind"
    );
    assert_eq!(said(&store, &thread(0x73)).await.0, ["Is anybody there?"]);
    assert!(store.check().await.unwrap().is_sound());

    // Threads go on here, and nothing comes twice.
    let mut log = open(&store, &uuid(0x71)).await;
    log.append(&[entry(8)], true).await.unwrap();
    drop(log);
    let again = import(there, &store).await;
    // What is not carried over at all is told each time.
    let prompts: LeftOut = again.left_out.clone();
    assert_eq!(prompts.all().collect::<Vec<_>>(), [(Left::Prompts, 1)]);
    let expected = MaestroReport {
        left_out: prompts,
        known_sessions: 3,
        known_threads: 4,
        without_auth: vec!["Nobody's".to_owned(), "Sealed".to_owned()],
        secret_mcp_servers: vec!["keys".to_owned()],
        ..MaestroReport::default()
    };
    assert_eq!(again, expected);
    assert_eq!(store.thread(&thread(0x71)).await.unwrap().last_seq, 8);

    // With an authentication for them the others come, too.
    let maestro = there.read().await;
    let mut with_auth = choices(&store, &maestro).await;
    with_auth.auth = with_auth.auths.values().next().cloned();
    let more = store.import_maestro(&maestro, &with_auth).await.unwrap();
    assert_eq!(more.sessions, ["Nobody's", "Sealed"]);
    assert_eq!(more.given_auth, more.sessions);
    let session = store.session_named("Nobody's").await.unwrap();
    assert_eq!(session.chat_thread_id, Some(uuid(0x73)));
    assert_eq!(session.persona.0["name"], "P");
    assert!(store.check().await.unwrap().is_sound());
}

#[test]
fn everything_comes_once_and_the_source_is_left_as_it_was() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let there = Box::pin(full(&server)).await;
        let (_dir, store) = sqlite().await;
        everything_comes_once(&there, store).await;
        let store = server.bed().await.open().await;
        everything_comes_once(&there, store).await;
    });
}

#[test]
fn what_sessions_do_not_say_their_agents_do() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let there = There::new(&server, OLD_TABLES).await;
        let some = |text: &str| Some(text.to_owned());
        let row = [
            ("id", some("7")),
            ("provider", some("openai")),
            ("auth_type", some("api_key")),
            ("credentials", some("{\"api_key\":\"sk-secret\"}")),
        ];
        there.put("saved_authentications", &row).await;
        for (table, number, text) in [
            ("personas", 0xb1, "Be terse."),
            ("base_system_prompts", 0xb2, "Be safe."),
        ] {
            let row = [
                ("id", Some(uuid(number))),
                ("name", some("Terse")),
                ("prompt_text", some(text)),
            ];
            there.put(table, &row).await;
        }
        let row = [
            ("id", Some(uuid(0xd1))),
            ("auth_id", some("7")),
            ("persona_id", Some(uuid(0xb1))),
            ("base_system_prompt_id", Some(uuid(0xb2))),
            ("working_directory", some("/agents")),
            ("memory", some("{\"of\":\"agent\"}")),
            ("mcps", some("{\"files\":{\"command\":\"mcp-files\"}}")),
        ];
        there.put("agents", &row).await;
        let row = [
            ("id", Some(uuid(1))),
            ("agent_id", Some(uuid(0xd1))),
            ("name", some("Old")),
        ];
        there.put("sessions", &row).await;
        let row = [
            ("id", Some(uuid(0x91))),
            ("turn_index", some("0")),
            ("session_id", Some(uuid(1))),
            (
                "combined_chat",
                some("{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}"),
            ),
        ];
        there.put("chat_history", &row).await;

        let maestro = there.read().await;
        assert_eq!(maestro.auths()[0].name, "default_openai_api_key");
        let (_dir, store) = sqlite().await;
        let report = import(&there, &store).await;
        assert_eq!(
            (report.sessions.len(), report.threads, report.personas),
            (1, 1, 1)
        );
        let session = store.session(&uuid(1)).await.unwrap();
        let persona = json!({
            "name": "Terse", "version": "1", "persona_text": "Be safe.\n\nBe terse.",
        });
        assert_eq!(session.persona.0, persona);
        assert_eq!(session.memory.0, json!({"of": "agent"}));
        assert_eq!(
            session.mcps.0,
            json!({"files": {"command": "mcp-files", "args": []}})
        );
        assert_eq!(session.working_dir, "/agents");
        let own = format!("the-maestro-{}", uuid(1));
        assert_eq!(session.chat_thread_id.as_deref(), Some(own.as_str()));
        let told = said(&store, &ThreadId::parse(&own).unwrap()).await;
        assert_eq!(told, (vec!["Hello".to_owned()], vec![1]));
    });
}

#[test]
fn it_comes_whole_or_not_at_all() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let there = Box::pin(full(&server)).await;
        let maestro = there.read().await;
        let (_dir, store) = sqlite().await;
        let choices = choices(&store, &maestro).await;
        let mut statements = 0;
        loop {
            store.db().crash.after(statements);
            let done = store.import_maestro(&maestro, &choices).await;
            store.db().crash.after(-1);
            if done.is_ok() {
                break;
            }
            let threads = store.threads().await.unwrap().len();
            let sessions = store.sessions(None, 9).await.unwrap().len();
            let personas = store.personas(None, 9).await.unwrap().len();
            statements += 1;
            assert!(statements < 1_000);
            if threads > 0 {
                // It was told too late of what it had done.
                assert_eq!((threads, sessions, personas), (5, 3, 1));
                break;
            }
            assert_eq!((threads, sessions, personas), (0, 0, 0), "{statements}");
        }
        assert!(statements > 20, "{statements}");
        assert!(store.check().await.unwrap().is_sound());
    });
}

#[test]
fn a_dry_run_tells_the_same_and_changes_nothing() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let there = Box::pin(full(&server)).await;
        let maestro = there.read().await;
        let (_dir, store) = sqlite().await;
        let auths = maestro.auths().iter().take(2);
        let dry = MaestroChoices {
            auths: auths
                .map(|auth| (auth.id.clone(), format!("new-{}", auth.id)))
                .collect(),
            working_dir: "/here".to_owned(),
            dry_run: true,
            ..MaestroChoices::default()
        };
        let told = store.import_maestro(&maestro, &dry).await.unwrap();
        assert_eq!(store.threads().await.unwrap(), []);
        assert!(store.auths(None, 9).await.unwrap().is_empty());
        assert!(store.personas(None, 9).await.unwrap().is_empty());
        let wet = MaestroChoices {
            dry_run: false,
            ..dry
        };
        let error = store.import_maestro(&maestro, &wet).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
        assert_eq!(import(&there, &store).await, told);
    });
}

#[test]
fn secrets_are_read_and_shown_to_nobody() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let maestro = Box::pin(full(&server)).await.read().await;
        let secrets = maestro.auths().iter().map(|auth| match &auth.secret {
            MaestroSecret::ApiKey(key) => format!("key {}", key.expose_secret()),
            MaestroSecret::Token(token) => format!("token {}", token.expose_secret()),
            MaestroSecret::Unreadable(_) => "none".to_owned(),
        });
        let secrets: Vec<String> = secrets.collect();
        assert_eq!(
            secrets,
            ["key sk-secret", "token oat-secret", "none", "none"]
        );
        assert_eq!(maestro.auths()[1].expires_at_ms, Some(1_759_320_000_000));
        let (_dir, store) = sqlite().await;
        let choices = choices(&store, &maestro).await;
        let report = store.import_maestro(&maestro, &choices).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export.jsonl");
        store.export(&path).await.unwrap();
        let all = std::fs::read_to_string(&path).unwrap() + &json!(report).to_string();
        assert!(!all.contains("-secret") && !all.contains("TOKEN"), "{all}");
    });
}
