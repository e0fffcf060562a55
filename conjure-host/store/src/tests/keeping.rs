//! What people save, files and blobs.

use conjure_core::chat::ArtifactRef;
use conjure_core::log::{Entry, EntryBody};
use serde_json::json;

use crate::{
    Cursor, JsonText, McpServer, Options, Persona, Quotas, Record, RunFilter, SavedAuth,
    SavedSession, Store, StoreError,
};

use super::{Bed, cases, entry, id, open};

cases! {
    a_saved_auth_has_a_name_of_its_own_and_stays_while_it_is_used
    a_secret_stays_while_settings_of_mcp_servers_name_it
    sessions_personas_and_servers_are_made_changed_listed_and_removed
    a_session_is_found_by_its_name_and_its_thread
    sessions_are_listed_by_their_last_use_and_found_by_words
    the_newest_entry_is_noted_only_on_a_session_that_has_the_thread_still
    texts_with_nul_are_kept_without_it_and_found_nowhere
    a_blob_is_kept_once_and_read_from_anywhere
    a_file_that_is_fetched_later_has_its_blob_from_then_on
    a_blob_stays_while_a_file_refers_to_it_and_goes_with_the_last
    a_quota_refuses_and_leaves_nothing_behind
}

async fn a_saved_auth_has_a_name_of_its_own_and_stays_while_it_is_used(bed: Bed) {
    let store = bed.open().await;
    let auth = |kind: &str, name: &str| SavedAuth::new("openai", kind, name, vec![0, 255, 7]);
    let kept = store.create_auth(auth("api_key", "work-1")).await.unwrap();
    assert_eq!(store.auth(&kept.id).await.unwrap(), kept);
    store.create_auth(auth("bearer", "work-1")).await.unwrap();
    let error = store
        .create_auth(auth("api_key", "work-1"))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::NameTaken { .. }), "{error}");
    for name in ["ab", "a b c", "ünd", &"x".repeat(51)] {
        let error = store.create_auth(auth("api_key", name)).await.unwrap_err();
        assert!(matches!(error, StoreError::BadName { .. }), "{error}");
    }
    assert!(!format!("{kept:?}").contains("255, 7"), "{kept:?}");

    let session = store
        .create_session(SavedSession::new(&kept.id, "gpt", "/home/me"))
        .await
        .unwrap();
    let error = store.delete_auth(&kept.id).await.unwrap_err();
    let checked = store.check_auth_unused(&kept.id).await.unwrap_err();
    assert_eq!(checked.to_string(), error.to_string());
    let StoreError::InUse { name, sessions, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (name.as_str(), sessions),
        ("work-1", &vec![session.id.clone()])
    );
    store.delete_session(&session.id).await.unwrap();
    store.check_auth_unused(&kept.id).await.unwrap();
    store.delete_auth(&kept.id).await.unwrap();
    let error = store.delete_auth(&kept.id).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    assert_eq!(store.auths(None, 10).await.unwrap().len(), 1);
}

async fn a_secret_stays_while_settings_of_mcp_servers_name_it(bed: Bed) {
    let store = bed.open().await;
    let secret = SavedAuth::new("mcp", "api_key", "MCP_X_TOKEN", vec![1]);
    let secret = store.create_auth(secret).await.unwrap();
    let settings = json!({ "command": "x", "env": { "TOKEN": { "secret": "MCP_X_TOKEN" } } });
    let server = McpServer::new("notes", settings.clone(), true);
    let server = store.create_mcp_server(server).await.unwrap();
    // One whose name only looks like it.
    let other = json!({ "command": "x", "env": { "A": { "secret": "MCP-X-TOKEN" } } });
    let other = McpServer::new("other", other, true);
    store.create_mcp_server(other).await.unwrap();
    let auth = SavedAuth::new("openai", "api_key", "work", vec![1]);
    let auth = store.create_auth(auth).await.unwrap();
    let mut session = SavedSession::new(&auth.id, "gpt", "/home/me");
    session.tools = JsonText(json!({ "backend": [{
        "kind": "conjure-backend-mcp", "config": { "servers": { "n": settings } },
    }] }));
    let session = store.create_session(session).await.unwrap();
    let error = store.delete_auth(&secret.id).await.unwrap_err();
    let expected = format!(
        "the saved auth `MCP_X_TOKEN` is used by the sessions {} and the MCP servers \
         `notes`; give these another one, or remove them first",
        session.id
    );
    assert_eq!(error.to_string(), expected);
    store.delete_session(&session.id).await.unwrap();
    let error = store.delete_auth(&secret.id).await.unwrap_err();
    let StoreError::InUse {
        names, sessions, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (names.as_slice(), sessions.len()),
        (&["`notes`".to_owned()][..], 0)
    );
    store.delete_mcp_server(&server.id).await.unwrap();
    store.delete_auth(&secret.id).await.unwrap();
}

async fn sessions_personas_and_servers_are_made_changed_listed_and_removed(bed: Bed) {
    let store = bed.open().await;
    let auth = SavedAuth::new("openai", "api_key", "work", vec![1]);
    let auth = store.create_auth(auth).await.unwrap();
    store.create_thread(&id("t"), "").await.unwrap();
    let mut session = SavedSession::new(&auth.id, "gpt", "/home/me");
    session.memory = JsonText(json!({"name": "m", "odd": "nul \0 and ü", "list": [1, 2.5, null]}));
    session.chat_thread_id = Some("t".to_owned());
    let mut session = store.create_session(session).await.unwrap();
    assert_eq!(store.session(&session.id).await.unwrap(), session);
    session.model_id = "gpt-2".to_owned();
    session.mcps = JsonText(json!({"files": {"command": "x"}}));
    let changed = store.update_session(session.clone()).await.unwrap();
    assert!(changed.updated_at_ms > session.updated_at_ms);
    assert_eq!(store.session(&session.id).await.unwrap(), changed);
    // Whoever has not seen that change does not undo it.
    let error = store.update_session(session.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    assert_eq!(store.session(&session.id).await.unwrap(), changed);
    let lost = SavedSession {
        auth_id: "nobody".to_owned(),
        ..changed
    };
    let error = store.update_session(lost).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    // A session outlives its thread, and has none then.
    store.remove_thread(&id("t")).await.unwrap();
    assert_eq!(
        store.session(&session.id).await.unwrap().chat_thread_id,
        None
    );

    let mut ids = Vec::new();
    for number in 0..5 {
        let persona = Persona::new(format!("p{number}"), "1", "You are terse.");
        ids.push(store.create_persona(persona).await.unwrap().id);
    }
    let first = store.personas(None, 3).await.unwrap();
    let rest = store.personas(Some(&first[2].id), 3).await.unwrap();
    let listed: Vec<_> = first.iter().chain(&rest).map(|p| p.id.clone()).collect();
    assert_eq!(listed, ids);
    let mut persona = first[0].clone();
    persona.name = "p1".to_owned();
    let error = store.update_persona(persona.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::NameTaken { .. }), "{error}");
    persona.version = "2".to_owned();
    let changed = store.update_persona(persona.clone()).await.unwrap();
    assert!(changed.updated_at_ms > persona.updated_at_ms);
    // It was read before the change.
    let error = store.update_persona(persona.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    store.delete_persona(&persona.id).await.unwrap();
    for error in [
        store.persona(&persona.id).await.unwrap_err(),
        store.update_persona(persona).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }

    let server = McpServer::new("files", json!({"command": "mcp-files"}), true);
    let mut server = store.create_mcp_server(server).await.unwrap();
    server.enabled = false;
    store.update_mcp_server(server.clone()).await.unwrap();
    assert!(!store.mcp_server(&server.id).await.unwrap().enabled);
    assert_eq!(store.mcp_servers(None, 9).await.unwrap().len(), 1);
    store.delete_mcp_server(&server.id).await.unwrap();
    assert!(store.mcp_servers(None, 9).await.unwrap().is_empty());
}

async fn sessions_are_listed_by_their_last_use_and_found_by_words(bed: Bed) {
    let store = bed.open().await;
    let auth = SavedAuth::new("openai", "api_key", "work", vec![1]);
    let auth = store.create_auth(auth).await.unwrap();
    store
        .create_thread(&id("t"), "Ärger im Turm")
        .await
        .unwrap();
    let mut made = Vec::new();
    for at in 0..5_i64 {
        let session = SavedSession {
            name: Some(format!("Site {at}")),
            chat_thread_id: (at == 1).then(|| "t".to_owned()),
            // All of them older than the thread.
            updated_at_ms: at % 3,
            ..SavedSession::new(&auth.id, "gpt", format!("/home/{at}_%"))
        };
        made.push(store.create_session(session).await.unwrap());
    }
    let names = async |words: &str, limit| {
        let mut behind = None;
        let mut names = Vec::new();
        loop {
            let page = store.recent_sessions(words, behind.as_ref(), limit);
            let page = page.await.unwrap();
            let Some((_, last)) = page.last() else {
                return names;
            };
            behind = Some(last.clone());
            names.extend(page.into_iter().map(|(session, _)| session.name.unwrap()));
        }
    };
    // By the time of change or of the thread, then the one that was made later.
    let all = ["Site 1", "Site 2", "Site 4", "Site 3", "Site 0"];
    for limit in [1, 2, 5, 9] {
        assert_eq!(names("", limit).await, all, "{limit} at once");
    }
    assert_eq!(names("SITE gpt", 2).await, all);
    assert_eq!(names("ärger", 9).await, ["Site 1"]);
    assert_eq!(names("/home/3_% site", 9).await, ["Site 3"]);
    for nothing in ["/home/3__", "nul \0", "claude"] {
        assert!(names(nothing, 9).await.is_empty(), "{nothing}");
    }
    store.delete_session(&made[2].id).await.unwrap();
    assert_eq!(names("", 9).await, ["Site 1", "Site 4", "Site 3", "Site 0"]);
}

async fn a_session_is_found_by_its_name_and_its_thread(bed: Bed) {
    let store = bed.open().await;
    let auth = SavedAuth::new("openai", "api_key", "work", vec![1]);
    let auth = store.create_auth(auth).await.unwrap();
    store.create_thread(&id("t"), "").await.unwrap();
    let named = |name: Option<&str>| SavedSession {
        name: name.map(str::to_owned),
        chat_thread_id: Some("t".to_owned()),
        ..SavedSession::new(&auth.id, "gpt", "/home/me")
    };
    let login = store.create_session(named(Some("Die Anmeldung"))).await;
    let login = login.unwrap();
    let nameless = store.create_session(named(None)).await.unwrap();
    let other = store.create_session(named(None)).await.unwrap();
    assert_eq!(store.session_named("Die Anmeldung").await.unwrap(), login);
    for name in ["die anmeldung", "", "nul \0", login.id.as_str()] {
        let error = store.session_named(name).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }
    let taken = SavedSession {
        name: login.name.clone(),
        ..other.clone()
    };
    for error in [
        store.create_session(named(Some("Die Anmeldung"))).await,
        store.update_session(taken).await,
    ] {
        let error = error.unwrap_err();
        let StoreError::NameTaken { kind, name } = &error else {
            panic!("{error}");
        };
        assert_eq!((*kind, name.as_str()), ("session", "Die Anmeldung"));
    }
    for name in ["", "a\nb", "nul \0", &"ü".repeat(101)] {
        let error = store.create_session(named(Some(name))).await.unwrap_err();
        assert!(matches!(error, StoreError::BadName { .. }), "{error}");
    }
    let longest = "ü".repeat(100);
    let renamed = SavedSession {
        name: Some(longest.clone()),
        ..login.clone()
    };
    store.update_session(renamed).await.unwrap();
    assert_eq!(store.session_named(&longest).await.unwrap().id, login.id);

    let ids = |sessions: Vec<SavedSession>| sessions.into_iter().map(|s| s.id).collect::<Vec<_>>();
    let all = [login.id, nameless.id, other.id];
    assert_eq!(ids(store.thread_sessions(&id("t")).await.unwrap()), all);
    assert!(store.thread_sessions(&id("u")).await.unwrap().is_empty());
}

async fn the_newest_entry_is_noted_only_on_a_session_that_has_the_thread_still(bed: Bed) {
    let store = bed.open().await;
    let auth = SavedAuth::new("openai", "api_key", "work", vec![1]);
    let auth = store.create_auth(auth).await.unwrap();
    for thread in ["t", "u"] {
        store.create_thread(&id(thread), "").await.unwrap();
    }
    let session = SavedSession {
        chat_thread_id: Some("t".to_owned()),
        ..SavedSession::new(&auth.id, "gpt", "/home/me")
    };
    let session = store.create_session(session).await.unwrap();
    let latest = |thread: &'static str, seq| {
        let (store, session) = (store.clone(), session.id.clone());
        async move {
            let set = store.set_latest_entry(&session, &id(thread), seq).await;
            let latest = store.session(&session).await.unwrap().latest_chat_entry_id;
            (set.unwrap(), latest.unwrap_or_default())
        }
    };
    assert_eq!(latest("t", 7).await, (true, "t/7".to_owned()));
    assert_eq!(latest("u", 9).await, (false, "t/7".to_owned()));
    assert!(!store.set_latest_entry("none", &id("t"), 1).await.unwrap());
    let noted = store.session(&session.id).await.unwrap();
    assert_eq!(noted.updated_at_ms, session.updated_at_ms);
}

async fn texts_with_nul_are_kept_without_it_and_found_nowhere(bed: Bed) {
    let store = bed.open().await;
    let persona = Persona::new("a\0b", "1\0", "You are \0 terse.");
    let mut kept = store.create_persona(persona).await.unwrap();
    assert_eq!(
        (kept.name.as_str(), kept.version.as_str()),
        ("a\u{fffd}b", "1\u{fffd}")
    );
    kept.persona_text = "\0".to_owned();
    let kept = store.update_persona(kept).await.unwrap();
    assert_eq!(
        store.persona(&kept.id).await.unwrap().persona_text,
        "\u{fffd}"
    );
    for error in [
        store.persona("\0").await.err(),
        store.delete_persona("\0").await.err(),
        store.session("\0").await.err(),
        store.delete_auth("\0").await.err(),
        store.run("\0").await.err(),
    ] {
        let error = error.unwrap();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }
    assert!(store.sessions(Some("\0"), 9).await.unwrap().is_empty());
    assert_eq!(store.session_totals("\0").await.unwrap().runs, 0);
    let cursor = Cursor {
        created_at_ms: 1,
        id: "\0".to_owned(),
    };
    let of = RunFilter::Session("\0");
    assert!(store.runs(of, Some(&cursor), 9).await.unwrap().is_empty());
    assert!(
        store
            .thread_page(Some(&cursor), 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!store.set_latest_entry("\0", &id("t"), 1).await.unwrap());
    assert_eq!(store.beat_runs(&["\0"]).await.unwrap(), 0);
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| u8::try_from(n * 31 % 251).unwrap())
        .collect()
}

async fn pieces(store: &Store) -> usize {
    let sql = "SELECT number FROM blob_pieces";
    store.all(sql, []).await.unwrap().len()
}

async fn a_blob_is_kept_once_and_read_from_anywhere(bed: Bed) {
    let store = bed.open().await;
    let all = bytes(600_000);
    let blob = store.put_blob(&id("t"), all.as_slice()).await.unwrap();
    let again = store.put_blob(&id("u"), all.as_slice()).await.unwrap();
    assert_eq!(blob, again);
    assert_eq!(pieces(&store).await, 3);
    for (offset, length) in [
        (0, 600_000),
        (0, 10),
        (262_143, 2),
        (262_144, 262_144),
        (599_999, 10),
        (600_000, 1),
        (700_000, 1),
    ] {
        let read = store.read_blob(&blob.sha256, offset as u64, length).await;
        let end = all.len().min(offset + length);
        assert_eq!(read.unwrap(), all.get(offset..end).unwrap_or_default());
    }
    let empty = store.put_blob(&id("t"), [].as_slice()).await.unwrap();
    assert_eq!((empty.size, &empty.sha256[..8]), (0, "e3b0c442"),);
    assert_eq!(
        store.read_blob(&empty.sha256, 0, 10).await.unwrap(),
        [0_u8; 0]
    );
    let error = store.blob("none").await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
}

fn file(seq: u64, place: Option<String>) -> Record {
    Record::Entry(Entry {
        seq,
        turn: 1,
        at_ms: 0,
        body: EntryBody::File {
            artifact: ArtifactRef {
                id: "file-1".to_owned(),
                name: "a.csv".to_owned(),
                media_type: "text/csv".to_owned(),
                size: Some(9),
            },
            source: "local".to_owned(),
            call_id: Some("c".to_owned()),
            place,
            remote: None,
            holder: None,
        },
    })
}

async fn a_file_that_is_fetched_later_has_its_blob_from_then_on(bed: Bed) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    log.append(&[file(1, None)], true).await.unwrap();
    store.fork(&id("t"), 1, &id("f")).await.unwrap();
    // A fork's file is its ancestor's.
    let seen = store.artifacts(&id("f")).await.unwrap();
    assert_eq!((seen[0].thread.as_str(), &seen[0].blob), ("t", &None));
    let blob = store
        .put_blob(&id("t"), [1, 2, 3].as_slice())
        .await
        .unwrap();
    assert!(store.keep_artifact(&seen[0], &blob).await.unwrap());
    for thread in ["t", "f"] {
        let kept = store.artifacts(&id(thread)).await.unwrap();
        assert_eq!(
            (kept[0].blob.as_ref(), kept[0].size),
            (Some(&blob.sha256), Some(3))
        );
    }
    store.remove_thread(&id("f")).await.unwrap();
    store.clear_thread(&id("t")).await.unwrap();
    assert!(!store.keep_artifact(&seen[0], &blob).await.unwrap());
    assert!(store.blob(&blob.sha256).await.is_err());
}

async fn a_blob_stays_while_a_file_refers_to_it_and_goes_with_the_last(bed: Bed) {
    let store = bed.open().await;
    let blob = store
        .put_blob(&id("t"), [1, 2, 3].as_slice())
        .await
        .unwrap();
    let unused = store.put_blob(&id("t"), [4].as_slice()).await.unwrap();
    let mut log = open(&store, "t").await;
    let place = format!("blob:{}", blob.sha256);
    log.append(
        &[file(1, Some("/tmp/a.csv".to_owned())), file(2, Some(place))],
        true,
    )
    .await
    .unwrap();
    let files = store.artifacts(&id("t")).await.unwrap();
    let blobs: Vec<_> = files.iter().map(|file| file.blob.clone()).collect();
    assert_eq!(blobs, [None, Some(blob.sha256.clone())]);
    assert_eq!((files[0].name.as_str(), files[0].size), ("a.csv", Some(9)));
    // What was put just now may still be referred to.
    assert_eq!(store.collect_blobs().await.unwrap(), 0);
    let tx = store.db().begin(false, "test").await.unwrap();
    let sql = "UPDATE blobs SET touched_at_ms = touched_at_ms - 3700000";
    tx.execute(sql, []).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.collect_blobs().await.unwrap(), 1);
    assert!(store.blob(&unused.sha256).await.is_err());

    store.fork(&id("t"), 2, &id("f")).await.unwrap();
    store.clear_thread(&id("t")).await.unwrap();
    assert_eq!(
        store.read_blob(&blob.sha256, 0, 9).await.unwrap(),
        [1, 2, 3]
    );
    assert_eq!(store.artifacts(&id("f")).await.unwrap().len(), 2);
    store.clear_thread(&id("f")).await.unwrap();
    assert!(store.blob(&blob.sha256).await.is_err());
    assert_eq!(pieces(&store).await, 0);
    log.append(&[entry(3)], false).await.unwrap();
}

async fn a_quota_refuses_and_leaves_nothing_behind(bed: Bed) {
    let options = Options {
        quotas: Quotas {
            total: 1_135_000,
            thread: 300_000,
        },
        ..Options::default()
    };
    let store = Store::open(&bed.place, &options).await.unwrap();
    let refused = |size: usize, thread: &'static str| {
        let store = store.clone();
        async move {
            let bytes = bytes(size);
            match store.put_blob(&id(thread), bytes.as_slice()).await {
                Ok(_) => None,
                Err(StoreError::Quota { owner: whose, .. }) => Some(whose),
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert_eq!(refused(400_000, "t").await.unwrap(), "thread t");
    assert_eq!(pieces(&store).await, 0);
    for size in [290_000, 280_000, 270_000] {
        assert_eq!(refused(size, "t").await, None);
    }
    assert_eq!(refused(299_000, "t").await.unwrap(), "the store");
    // A thread has what its files refer to.
    let blob = store
        .put_blob(&id("t"), bytes(290_000).as_slice())
        .await
        .unwrap();
    let mut log = open(&store, "t").await;
    let place = format!("blob:{}", blob.sha256);
    log.append(&[file(1, Some(place))], true).await.unwrap();
    assert_eq!(refused(20_000, "t").await.unwrap(), "thread t");
    assert_eq!(refused(20_000, "u").await, None);
}
