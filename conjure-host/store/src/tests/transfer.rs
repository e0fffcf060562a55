//! Exports, imports, backups, checks.

use std::path::Path;

use conjure_core::chat::EventId;
use conjure_core::log::CallEnd;
use serde_json::json;

use crate::recent_events::all_events;
use crate::sql::DatabaseKind;
use crate::{
    ImportedThreads, JsonText, Location, Log as _, Options, Record, SavedAuth, SavedSession, Store,
    StoreError, Window,
};

use super::threads::{began, ended};
use super::{Bed, cases, entry, event, id, open, read};

cases! {
    an_export_holds_everything_but_secrets_and_comes_back_in_another_database
    an_export_that_was_cut_or_altered_is_refused_whole
    a_backup_is_the_whole_database
    a_check_finds_what_is_wrong_and_nothing_else
    threads_of_json_lines_are_taken_in_once
    an_exported_thread_that_was_cut_or_is_empty_is_refused_whole
    a_thread_that_was_cleared_comes_back_with_what_it_shows
    a_thread_that_shows_nothing_comes_back_empty
    an_exported_thread_with_a_hole_is_refused_with_the_line
}

const SECRET: &[u8] = b"sealed-secret-bytes";

/// A database with something of everything. `f` is a fork of `t`, which was cleared up to 3.
pub(super) async fn fill(store: &Store) {
    let auth = SavedAuth::new("openai", "api_key", "work", SECRET.to_vec());
    let auth = store.create_auth(auth).await.unwrap();
    let mut log = open(store, "t").await;
    log.append(
        &[
            entry(1),
            event(1, 1),
            began(2, "c"),
            ended(3, "c", CallEnd::Done),
        ],
        true,
    )
    .await
    .unwrap();
    store.fork(&id("t"), 3, &id("f")).await.unwrap();
    store.clear_thread(&id("t")).await.unwrap();
    log.append(&[entry(4), event(1, 2)], true).await.unwrap();
    open(store, "f")
        .await
        .append(&[entry(4)], true)
        .await
        .unwrap();
    store.rename_thread(&id("t"), "A label").await.unwrap();
    let mut session = SavedSession::new(&auth.id, "gpt", "/home/me");
    session.memory = JsonText(json!({"odd": "nul \0"}));
    session.chat_thread_id = Some("t".to_owned());
    store.create_session(session).await.unwrap();
    let bytes = vec![7_u8; 300_000];
    store.put_blob(&id("t"), bytes.as_slice()).await.unwrap();
}

pub(super) async fn same_threads(one: &Store, two: &Store) {
    assert_eq!(one.threads().await.unwrap(), two.threads().await.unwrap());
    for thread in one.threads().await.unwrap() {
        let (a, b) = (
            one.read(&thread).await.unwrap(),
            two.read(&thread).await.unwrap(),
        );
        assert_eq!(a, b);
        let (a, b) = (one.tool_calls(&thread).await, two.tool_calls(&thread).await);
        assert_eq!(a.unwrap(), b.unwrap());
        let mut a = one.thread(&thread).await.unwrap();
        let mut b = two.thread(&thread).await.unwrap();
        (a.is_open, b.is_open) = (false, false);
        assert_eq!(a, b);
    }
}

async fn an_export_holds_everything_but_secrets_and_comes_back_in_another_database(bed: Bed) {
    let store = bed.open().await;
    fill(&store).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.jsonl");
    store.export(&path).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let sealed = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, SECRET);
    assert!(!text.contains(&sealed[..16]));
    assert!(
        store.export(&path).await.is_err(),
        "a file is never written over"
    );

    // Into the other kind of database, where this is PostgreSQL.
    let place = Location::File(dir.path().join("other.db"));
    let other = Store::open(&place, &Options::default()).await.unwrap();
    other.import(&path).await.unwrap();
    same_threads(&store, &other).await;
    let labels = other.thread_labels(&id("t")).await.unwrap();
    assert_eq!(labels.len(), 1);
    let auth = &other.auths(None, 9).await.unwrap()[0];
    assert_eq!(
        (auth.name.as_str(), auth.sealed.as_slice()),
        ("work", [].as_slice())
    );
    let session = &other.sessions(None, 9).await.unwrap()[0];
    assert_eq!(session.memory.0, json!({"odd": "nul \0"}));
    assert!(other.check().await.unwrap().is_sound());
    // The fork's bodies are there, and a file goes on where it was.
    let mut log = open(&other, "f").await;
    assert_eq!(log.last_seq(), 4);
    log.append(&[entry(5)], true).await.unwrap();

    // And back: a thread that is there already is never mixed with another.
    let again = dir.path().join("again.jsonl");
    other.export(&again).await.unwrap();
    let error = store.import(&again).await.unwrap_err();
    assert!(matches!(error, StoreError::ThreadExists { .. }), "{error}");
    for thread in ["t", "f"] {
        store.remove_thread(&id(thread)).await.unwrap();
    }
    store.import(&again).await.unwrap();
    assert_eq!(read(&store, "f").await.len(), 5);
    assert_eq!(store.auths(None, 9).await.unwrap()[0].sealed, SECRET);
    let blob = crate::blobs::hex(&<sha2::Sha256 as sha2::Digest>::digest(vec![7_u8; 300_000]));
    assert_eq!(store.read_blob(&blob, 299_999, 9).await.unwrap(), [7]);
    assert!(store.check().await.unwrap().is_sound());
}

async fn an_export_that_was_cut_or_altered_is_refused_whole(bed: Bed) {
    let store = bed.open().await;
    fill(&store).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.jsonl");
    store.export(&path).await.unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let other = Store::open(&Location::Memory, &Options::default())
        .await
        .unwrap();
    let import = |text: String| {
        let (other, path) = (other.clone(), dir.path().join("bad.jsonl"));
        async move {
            std::fs::write(&path, text).unwrap();
            other.import(&path).await
        }
    };
    for kept in 0..lines.len() {
        let error = import(lines[..kept].join("\n")).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{kept}: {error}"
        );
    }
    let altered = whole.replacen("\"epoch\":1", "\"epoch\":\"x\"", 1);
    let error = import(altered).await.unwrap_err();
    assert!(
        error.to_string().contains("`epoch` of `threads`"),
        "{error}"
    );
    let newer = whole.replacen("m0008_waiting", "m9999_later", 1);
    let error = import(newer).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
    assert!(other.threads().await.unwrap().is_empty());
    assert!(other.auths(None, 9).await.unwrap().is_empty());
    import(whole).await.unwrap();
}

async fn a_backup_is_the_whole_database(bed: Bed) {
    let store = bed.open().await;
    fill(&store).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    store.backup(&path).await.unwrap();
    assert!(
        store.backup(&path).await.is_err(),
        "a file is never written over"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let (place, is_rows) = match &bed.place {
        Location::Postgres(_) => (Location::Memory, true),
        _ => (Location::File(path.clone()), false),
    };
    let copy = Store::open(&place, &Options::default()).await.unwrap();
    if is_rows {
        copy.import(&path).await.unwrap();
    }
    same_threads(&store, &copy).await;
    assert_eq!(copy.auths(None, 9).await.unwrap()[0].sealed, SECRET);
    assert!(copy.check().await.unwrap().is_sound());
}

async fn a_check_finds_what_is_wrong_and_nothing_else(bed: Bed) {
    let store = bed.open().await;
    fill(&store).await;
    let check = store.check().await.unwrap();
    assert!(check.is_sound(), "{check:?}");
    assert_eq!(
        (check.threads, check.entries, check.events, check.blobs),
        (2, 5, 1, 1)
    );
    let backend = store.db().backend();
    let bad_body = match backend {
        DatabaseKind::Postgres => "'\\x7b'::bytea",
        DatabaseKind::Sqlite => "X'7b'",
    };
    for (sql, told) in [
        (
            "DELETE FROM entries WHERE thread_id = 't' AND seq = 2".to_owned(),
            "thread f shows 2 of the 3 entries behind 0 in t",
        ),
        (
            "UPDATE threads SET last_seq = 3 WHERE id = 'f'".to_owned(),
            "thread f has entries outside of its numbers",
        ),
        (
            format!("UPDATE entries SET body = {bad_body} WHERE thread_id = 'f'"),
            "entry 4 of thread f",
        ),
        (
            format!(
                "INSERT INTO events SELECT thread_id, epoch, 9, 9, 4, body FROM {}",
                all_events(backend)
            ),
            "thread t has a hole or a double before event 1.9",
        ),
        (
            "DELETE FROM blob_pieces WHERE number = 0".to_owned(),
            "does not hold the bytes of that hash",
        ),
    ] {
        let before = store.check().await.unwrap().problems;
        let tx = store.db().begin(false, "test").await.unwrap();
        tx.execute(&sql, []).await.unwrap();
        tx.commit().await.unwrap();
        let mut problems = store.check().await.unwrap().problems;
        problems.retain(|problem| !before.contains(problem));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(told), "{problems:?}");
    }
}

async fn threads_of_json_lines_are_taken_in_once(bed: Bed) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, records: &[Record], rest: &str| {
        let mut text = String::new();
        for record in records {
            text.push_str(&serde_json::to_string(record).unwrap());
            text.push('\n');
        }
        std::fs::write(dir.path().join(name), text + rest).unwrap();
    };
    let opened = |epoch| Record::Opened { epoch };
    write(
        "a.jsonl",
        &[
            opened(1),
            entry(1),
            event(1, 1),
            opened(2),
            opened(3),
            event(3, 1),
            entry(2),
        ],
        "{\"entry\":{\"seq\":3,",
    );
    write("b.jsonl", &[opened(1)], "");
    std::fs::write(dir.path().join("notes.txt"), "no thread").unwrap();
    let store = bed.open().await;
    let imported = store.import_json_lines(dir.path()).await.unwrap();
    assert_eq!(
        imported,
        ImportedThreads {
            new: vec![id("a"), id("b")],
            existing: vec![],
        }
    );
    assert_eq!(
        read(&store, "a").await,
        [entry(1), event(1, 1), event(3, 1), entry(2)]
    );
    assert_eq!(open(&store, "a").await.epoch(), 4);
    let page = store.entries(&id("b"), Window::Last, 9).await.unwrap();
    assert!(page.entries.is_empty());

    write("c.jsonl", &[opened(1), entry(1), entry(3)], "");
    write("d.jsonl", &[opened(1), entry(1)], "nonsense\n{}\n");
    let error = store.import_json_lines(dir.path()).await.unwrap_err();
    let told = "damaged in line 3: entry 3 follows 1";
    assert!(error.to_string().contains(told), "{error}");
    std::fs::remove_file(dir.path().join("c.jsonl")).unwrap();
    let error = store.import_json_lines(dir.path()).await.unwrap_err();
    assert!(error.to_string().contains("damaged in line 3"), "{error}");
    assert_eq!(
        store.threads().await.unwrap().len(),
        2,
        "no half thread stays"
    );
    let nowhere = store.import_json_lines(Path::new("/nowhere/at/all")).await;
    assert!(matches!(nowhere, Err(StoreError::Io { .. })));
}

async fn an_exported_thread_that_was_cut_or_is_empty_is_refused_whole(bed: Bed) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("talk.jsonl");
    let store = bed.open().await;
    let whole = crate::json_lines(&[entry(1), entry(2)]).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    let error = store.import_complete_thread(&path, &id("t")).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("damaged in line 2: it is cut off"),
        "{error}"
    );
    std::fs::write(&path, "").unwrap();
    let error = store.import_complete_thread(&path, &id("t")).await;
    let error = error.unwrap_err();
    assert!(matches!(error, StoreError::NoRecords { .. }), "{error}");
    assert!(store.threads().await.unwrap().is_empty());
    std::fs::write(&path, &whole).unwrap();
    store.import_complete_thread(&path, &id("t")).await.unwrap();
    assert_eq!(read(&store, "t").await, [entry(1), entry(2)]);
}

/// Exports a thread and imports it again, under this id.
async fn round_trip(store: &Store, from: &str, to: &str) -> Result<(), StoreError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("talk.jsonl");
    let lines = crate::json_lines(&read(store, from).await).unwrap();
    std::fs::write(&path, lines).unwrap();
    store.import_complete_thread(&path, &id(to)).await
}

async fn a_thread_that_was_cleared_comes_back_with_what_it_shows(bed: Bed) {
    let store = bed.open().await;
    fill(&store).await;
    // Its first event since is the second of its epoch.
    assert_eq!(read(&store, "t").await, [entry(4), event(1, 2)]);
    round_trip(&store, "t", "t2").await.unwrap();
    let Record::Event { event, .. } = event(1, 2) else {
        panic!("no event");
    };
    let id_here = EventId { epoch: 1, seq: 1 };
    let renumbered = Record::Event { id: id_here, event };
    assert_eq!(read(&store, "t2").await, [entry(4), renumbered]);
    store.fork(&id("t"), 4, &id("later")).await.unwrap();
    round_trip(&store, "later", "later2").await.unwrap();
    assert_eq!(read(&store, "later2").await, [entry(4)]);
    let mut log = open(&store, "later2").await;
    assert_eq!(log.last_seq(), 4);
    log.append(&[entry(5)], true).await.unwrap();
    assert!(store.check().await.unwrap().is_sound());
}

async fn a_thread_that_shows_nothing_comes_back_empty(bed: Bed) {
    let store = bed.open().await;
    fill(&store).await;
    store.clear_thread(&id("t")).await.unwrap();
    round_trip(&store, "t", "t2").await.unwrap();
    assert_eq!(read(&store, "t2").await, []);
    let error = store.fork(&id("t"), 4, &id("x")).await.unwrap_err();
    assert!(error.to_string().contains("it is empty"), "{error}");
}

async fn an_exported_thread_with_a_hole_is_refused_with_the_line(bed: Bed) {
    let store = bed.open().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("talk.jsonl");
    for (records, told) in [
        (vec![entry(1), entry(3)], "line 2: entry 3 follows 1"),
        (vec![entry(0)], "line 1: entry 0 is none"),
        (
            vec![entry(1), event(1, 1), event(1, 3)],
            "line 4: event 3 follows 1",
        ),
        (
            vec![entry(1), event(1, 2), event(2, 2)],
            "line 5: event 2 is the first of epoch 2",
        ),
        (
            vec![entry(1), event(1_000_000, 1)],
            "epoch 1000000 is more often than a thread is opened",
        ),
    ] {
        std::fs::write(&path, crate::json_lines(&records).unwrap()).unwrap();
        let error = store.import_complete_thread(&path, &id("t")).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert!(store.threads().await.unwrap().is_empty());
    }
}
