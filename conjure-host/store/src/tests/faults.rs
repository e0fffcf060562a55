//! Surroundings that fail: a full disk, a read-only one, another program's lock, damage. Each is
//! an error of its own, nothing is half-written, and the next append works when the cause is gone.

use std::path::Path;

use conjure_core::log::{Entry, EntryBody};
use conjure_kit::SmallDisk;
use secrecy::ExposeSecret as _;

use crate::sql::TransactionMode;
use crate::{Location, Log as _, Options, Record, Store, StoreError, UnreadRows, Window};

use super::postgres::Server;
use super::search::talk;
use super::{Bed, entry, id, open, other_program, read, runtime};

async fn open_file(path: &Path) -> Result<Store, StoreError> {
    Store::open(&Location::File(path.to_owned()), &Options::default()).await
}

/// An entry of 100,000 bytes that cannot be compressed.
fn large(seq: u64) -> Record {
    let mut random = seq + 1;
    let text = (0..100_000).map(|_| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b' ' + u8::try_from((random >> 40) % 90).unwrap())
    });
    Record::Entry(Entry {
        seq,
        turn: 1,
        at_ms: 0,
        body: EntryBody::notice(text.collect::<String>()),
    })
}

#[test]
fn a_full_disk_is_said_nothing_is_half_written_and_it_goes_on_when_there_is_space() {
    let Some(disk) = SmallDisk::mount(8 << 20) else {
        return;
    };
    runtime().block_on(async {
        let filler = disk.path().join("filler");
        std::fs::write(&filler, vec![1; 4 << 20]).unwrap();
        let store = open_file(&disk.path().join("conjure.db")).await.unwrap();
        let mut log = open(&store, "t").await;
        let mut written = Vec::new();
        talk(&store, "said", &["Where is the lamp?"]).await;
        assert_eq!(store.search("lamp", 9).await.unwrap().len(), 1);
        let error = loop {
            assert!(written.len() < 100, "the disk is never full");
            let next = [large(written.len() as u64 + 1)];
            match log.append(&next, true).await {
                Ok(()) => written.extend(next),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(!written.is_empty());
        same(&store, &written).await;
        let again = log.append(&[large(written.len() as u64 + 1)], true).await;
        assert!(matches!(again, Err(StoreError::Full { .. })), "{again:?}");
        // Who searches only reads, and finds what the index has.
        let rest = disk.path().join("rest");
        std::fs::write(&rest, vec![1; 8 << 20]).unwrap_err();
        assert_eq!(store.search("lamp", 9).await.unwrap().len(), 1);

        std::fs::remove_file(&rest).unwrap();
        std::fs::remove_file(&filler).unwrap();
        for _ in 0..5 {
            let next = [large(written.len() as u64 + 1)];
            log.append(&next, true).await.unwrap();
            written.extend(next);
        }
        same(&store, &written).await;
        assert!(store.check().await.unwrap().is_sound());
        store.close().await;
        let store = open_file(&disk.path().join("conjure.db")).await.unwrap();
        same(&store, &written).await;
        store.close().await;
    });
}

/// Entries are long, so that only their number is shown where they differ.
async fn same(store: &Store, written: &[Record]) {
    let records = read(store, "t").await;
    assert_eq!(records.len(), written.len());
    assert!(records == written);
}

#[test]
fn a_database_that_cannot_be_opened_for_want_of_room_says_so() {
    let Some(disk) = SmallDisk::mount(8 << 20) else {
        return;
    };
    runtime().block_on(async {
        open_file(&disk.path().join("conjure.db"))
            .await
            .unwrap()
            .close()
            .await;
        let filler = disk.path().join("filler");
        std::fs::write(&filler, vec![1; 8 << 20]).unwrap_err();
        let error = open_file(&disk.path().join("conjure.db"))
            .await
            .err()
            .unwrap();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        std::fs::remove_file(&filler).unwrap();
        open_file(&disk.path().join("conjure.db"))
            .await
            .unwrap()
            .close()
            .await;
    });
}

#[test]
fn what_is_on_a_read_only_disk_is_shown_and_what_writes_is_refused() {
    let Some(disk) = SmallDisk::mount(8 << 20) else {
        return;
    };
    let elsewhere = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let store = open_file(&disk.path().join("conjure.db")).await.unwrap();
        open(&store, "t")
            .await
            .append(&[entry(1)], true)
            .await
            .unwrap();
        talk(&store, "said", &["Where is the lamp?"]).await;
        assert_eq!(store.search("lamp", 9).await.unwrap().len(), 1);
        store.close().await;
        disk.remount("ro").unwrap();
        let store = open_file(&disk.path().join("conjure.db")).await.unwrap();
        assert_eq!(read(&store, "t").await, [entry(1)]);
        assert_eq!(store.search("lamp", 9).await.unwrap().len(), 1);
        assert!(store.check().await.unwrap().is_sound());
        let error = store.open(&id("t")).await.err().unwrap();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        let copy = elsewhere.path().join("copy.db");
        assert_eq!(store.backup(&copy).await.unwrap(), []);
        store.close().await;
        let other = disk.path().join("other.db");
        let error = open_file(&other).await.err().unwrap();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        disk.remount("rw").unwrap();
        let store = open_file(&disk.path().join("conjure.db")).await.unwrap();
        open(&store, "t")
            .await
            .append(&[entry(2)], true)
            .await
            .unwrap();
        store.close().await;
    });
}

#[test]
fn what_others_write_into_a_file_that_is_only_read_is_seen() {
    let Some(disk) = SmallDisk::mount(8 << 20) else {
        return;
    };
    let path = disk.path().join("conjure.db");
    runtime().block_on(async {
        let writer = open_file(&path).await.unwrap();
        let mut log = open(&writer, "t").await;
        log.append(&[entry(1)], true).await.unwrap();
        drop(log);
        writer.close().await;
        disk.remount("ro").unwrap();
        let reader = open_file(&path).await.unwrap();
        assert_eq!(read(&reader, "t").await, [entry(1)]);
        disk.remount("rw").unwrap();
        let writer = open_file(&path).await.unwrap();
        let mut log = open(&writer, "t").await;
        log.append(&[entry(2)], true).await.unwrap();
        assert!(reader.is_read_only());
        assert_eq!(read(&reader, "t").await, [entry(1), entry(2)]);
        drop(log);
        writer.close().await;
        reader.close().await;
    });
}

#[test]
fn a_database_that_became_read_only_is_said_and_written_again_later() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let bed = server.bed().await;
        let store = bed.open().await;
        let mut log = open(&store, "t").await;
        log.append(&[entry(1)], true).await.unwrap();
        for (setting, works) in [("on", false), ("off", true)] {
            // What a fail-over does to connections: they end, and the next find another setting.
            let admin = other_program(server.url()).await;
            let name = url(&bed)
                .split('?')
                .next()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned();
            for sql in [
                format!("ALTER DATABASE {name} SET default_transaction_read_only = {setting}"),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'conjure'"
                    .to_owned(),
            ] {
                admin.execute_raw(&sql).await.unwrap();
            }
            admin.close().await;
            // An append may meet the connection that has just ended.
            let mut appended = log.append(&[entry(2)], true).await;
            if matches!(appended, Err(StoreError::Unreachable { .. })) {
                appended = log.append(&[entry(2)], true).await;
            }
            match appended {
                Ok(()) => assert!(works),
                Err(StoreError::ReadOnly { .. }) => assert!(!works),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(read(&store, "t").await, [entry(1), entry(2)]);
    });
}

pub(super) fn url(bed: &Bed) -> String {
    match &bed.place {
        Location::Postgres(url) => url.expose_secret().to_owned(),
        other => format!("sqlite://{other}"),
    }
}

/// Another program takes the lock with `statements` and keeps it while an append is tried.
async fn locked(bed: &Bed, statements: &[&str]) {
    let store = bed.open().await;
    let mut log = open(&store, "t").await;
    log.append(&[entry(1)], true).await.unwrap();
    let other = other_program(&url(bed)).await;
    let holds = other.begin(TransactionMode::Write).await.unwrap();
    for statement in statements {
        holds.execute(statement, Vec::new()).await.unwrap();
    }
    let error = log.append(&[entry(2)], true).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    holds.rollback().await.unwrap();
    log.append(&[entry(2)], true).await.unwrap();
    assert_eq!(read(&store, "t").await, [entry(1), entry(2)]);
    other.close().await;
    store.close().await;
}

#[test]
fn another_programs_lock_is_said_and_it_goes_on_when_that_is_gone_over_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let place = Location::File(dir.path().join("conjure.db"));
    // In the write-ahead mode a lock for writing is what keeps writers away, exclusive or not.
    let statements = ["DELETE FROM runs"];
    runtime().block_on(locked(&Bed { place }, &statements));
}

#[test]
fn another_programs_lock_is_said_and_it_goes_on_when_that_is_gone_over_postgres() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let bed = server.bed().await;
        locked(&bed, &["LOCK TABLE entries IN ACCESS EXCLUSIVE MODE"]).await;
    });
}

/// A closed database with a small thread, `sound`, and behind it 20 long entries of `t`.
async fn long_file(path: &Path) {
    let store = open_file(path).await.unwrap();
    let mut log = open(&store, "sound").await;
    log.append(&[entry(1)], true).await.unwrap();
    let mut log = open(&store, "t").await;
    for seq in 1..=20 {
        log.append(&[large(seq)], true).await.unwrap();
    }
    drop(log);
    store.close().await;
}

#[test]
fn a_damaged_file_is_said_and_what_is_sound_is_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conjure.db");
    runtime().block_on(async {
        long_file(&path).await;

        // Whole pages in the middle, where the long entries are.
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64 * 1024].fill(0xa5);
        std::fs::write(&path, &bytes).unwrap();
        let store = open_file(&path).await.unwrap();
        let error = store.read(&id("t")).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert_eq!(read(&store, "sound").await, [entry(1)]);
        let check = store.check().await.unwrap();
        let behind = "thread t cannot be read behind its entry";
        let is_told = |problem: &String| problem.starts_with(behind);
        assert!(check.problems.iter().any(is_told), "{check:?}");

        let copy = dir.path().join("copy.db");
        let unread = store.backup(&copy).await.unwrap();
        let [
            UnreadRows {
                table,
                rows: Some(lost),
            },
        ] = &unread[..]
        else {
            panic!("{unread:?}");
        };
        assert_eq!(table, "entries");
        let saved = open_file(&copy).await.unwrap();
        assert_eq!(read(&saved, "sound").await, [entry(1)]);
        let count = "SELECT COUNT(*) AS n FROM entries";
        let count = saved.all(count, []).await.unwrap();
        let kept = crate::row::number(&count[0], "n").unwrap();
        assert_eq!((kept + lost, *lost > 0), (21, true));
        assert!(!saved.check().await.unwrap().is_sound());
        saved.close().await;

        let mut log = open(&store, "sound").await;
        log.append(&[entry(2)], true).await.unwrap();
        let last = store.entries(&id("sound"), Window::Last, 1).await.unwrap();
        assert_eq!(last.entries.len(), 1);
        drop(log);
        store.close().await;

        let mut bytes = std::fs::read(&path).unwrap();
        bytes[..100].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let error = open_file(&path).await.err().unwrap();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        let nothing = dir.path().join("nothing.db");
        let place = Location::File(path.clone());
        let error = Store::salvage(&place, &nothing).await.unwrap_err();
        assert!(
            matches!(error, StoreError::NothingReadable { .. }),
            "{error}"
        );
        assert!(!nothing.exists(), "no file is left behind");
    });
}

#[test]
fn a_file_that_was_cut_is_saved_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conjure.db");
    runtime().block_on(async {
        long_file(&path).await;
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let error = open_file(&path).await.err().unwrap();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        let copy = dir.path().join("copy.db");
        let place = Location::File(path.clone());
        let unread = Store::salvage(&place, &copy).await.unwrap();
        let tables: Vec<&str> = unread.iter().map(|rows| &*rows.table).collect();
        assert_eq!(tables, ["entries"], "{unread:?}");
        let saved = open_file(&copy).await.unwrap();
        assert_eq!(read(&saved, "sound").await, [entry(1)]);
        assert_eq!(saved.threads().await.unwrap().len(), 2);
        saved.close().await;
    });
}

#[test]
fn a_server_that_is_not_there_is_said() {
    runtime().block_on(async {
        let place = Location::parse("postgres://nobody:hidden@127.0.0.1:1/none").unwrap();
        let error = Store::open(&place, &Options::default())
            .await
            .err()
            .unwrap();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(!error.to_string().contains("hidden"), "{error}");
    });
}

#[test]
#[cfg(unix)]
fn what_was_said_is_for_its_owner_only_and_what_is_cleared_is_gone_from_the_disk() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("conjure");
    let path = home.join("conjure.db");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let holds = |needle: &str| {
        std::fs::read_dir(&home).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes
                .windows(needle.len())
                .any(|part| part == needle.as_bytes())
        })
    };
    runtime().block_on(async {
        let store = open_file(&path).await.unwrap();
        let mut log = open(&store, "t").await;
        log.append(&[entry(77_777)], true).await.unwrap_err();
        let records: Vec<_> = (1..=50).map(entry).collect();
        log.append(&records, true).await.unwrap();
        assert_eq!(mode(&home), 0o700);
        for file in std::fs::read_dir(&home).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
        assert!(holds("\"entry 33\""));
        store.clear_thread(&id("t")).await.unwrap();
        assert!(!holds("\"entry 33\""));
        drop(log);
        store.close().await;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        open_file(&path).await.unwrap().close().await;
        assert_eq!(mode(&path), 0o600);
    });
}
