//! Plugin directories of a running host.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_host::plugin::{
    LoaderOptions, PackagedPlugins, PluginRegistry, PluginSnapshot, WatchOptions, Watcher,
};
use conjure_plugin_tests::Bench;
use rustix::fs::{CWD, RenameFlags};

use super::registry::Marks;
use super::sources::marked;

/// Waits for a snapshot that is as wanted.
async fn until(
    registry: &PluginRegistry,
    wanted: impl Fn(&PluginSnapshot) -> bool,
) -> Arc<PluginSnapshot> {
    let mut changes = registry.subscribe();
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            let snapshot = registry.snapshot();
            if wanted(&snapshot) {
                return snapshot;
            }
            changes.changed().await.unwrap();
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("not so: {:?}", registry.snapshot()))
}

fn start(bench: &Bench, registry: &Arc<PluginRegistry>, options: WatchOptions) -> Watcher {
    Watcher::start(Arc::clone(registry), vec![bench.dir.clone()], options)
}

/// Every change of a directory, seen with and without events of the system.
async fn sees_everything(options: WatchOptions) {
    let bench = Bench::new();
    let marks = Marks::new();
    std::fs::write(bench.dir.join("libthere.so"), marks.original()).unwrap();
    let registry = bench.registry();
    let _watcher = start(&bench, &registry, options);
    let snapshot = until(&registry, |s| s.get("marked").is_some()).await;
    let first = snapshot.get("marked").unwrap().id().clone();
    // Renamed over.
    bench.put("libthere.so", &marks.number(1).0);
    let snapshot = until(&registry, |s| {
        s.get("marked").is_some_and(|p| *p.id() != first)
    })
    .await;
    let instance = bench.instance(snapshot.get("marked").unwrap()).await;
    assert_eq!(
        Bench::execute(&instance, "mark").await.unwrap(),
        "mark:00000000001"
    );
    // Renamed to another name: never two of them, and in the end the new one.
    std::fs::rename(bench.dir.join("libthere.so"), bench.dir.join("libmoved.so")).unwrap();
    until(&registry, |s| {
        s.failed().is_empty()
            && s.get("marked")
                .is_some_and(|p| p.source().path().unwrap().ends_with("libmoved.so"))
    })
    .await;
    // Deleted; the instance goes on.
    std::fs::remove_file(bench.dir.join("libmoved.so")).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;
    assert_eq!(
        Bench::execute(&instance, "mark").await.unwrap(),
        "mark:00000000001"
    );
    // Refused for who may write to it, or to its directory; then only that changes.
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let staged = bench.dir.join("staged");
    std::fs::write(&staged, marks.original()).unwrap();
    mode(&staged, 0o666);
    let path = bench.dir.join("libshared.so");
    std::fs::rename(&staged, &path).unwrap();
    until(&registry, |s| !s.failed().is_empty()).await;
    mode(&path, 0o644);
    until(&registry, |s| {
        s.failed().is_empty() && s.get("marked").is_some()
    })
    .await;
    std::fs::remove_file(&path).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;
    mode(&bench.dir, 0o777);
    bench.put("libshared.so", &marks.number(2).0);
    until(&registry, |s| !s.failed().is_empty()).await;
    mode(&bench.dir, 0o700);
    until(&registry, |s| {
        s.failed().is_empty() && s.get("marked").is_some()
    })
    .await;
    std::fs::remove_file(&path).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;
    // No library.
    bench.put("libnone.so", b"nothing");
    bench.put(".hidden.so", b"nothing");
    let snapshot = until(&registry, |s| !s.failed().is_empty()).await;
    assert_eq!(snapshot.failed().len(), 1);
    std::fs::remove_file(bench.dir.join("libnone.so")).unwrap();
    until(&registry, |s| s.failed().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_directory_are_seen() {
    sees_everything(WatchOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_seen_where_the_system_gives_no_events() {
    sees_everything(WatchOptions {
        events: false,
        settle: Duration::from_millis(20),
        poll: Duration::from_millis(20),
        ..WatchOptions::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_which_nothing_changes_is_not_looked_at_again() {
    use std::io::Write as _;
    let bench = Bench::new();
    let registry = bench.registry();
    let options = WatchOptions {
        incomplete_timeout: Duration::ZERO,
        ..WatchOptions::default()
    };
    let watcher = start(&bench, &registry, options);
    bench.put("libone.so", b"nothing");
    until(&registry, |s| s.failed().len() == 1).await;
    let before = watcher.scans();
    for _ in 0..100 {
        assert_eq!(std::fs::read_dir(&bench.dir).unwrap().count(), 1);
    }
    // A file that nobody closes is complete when it has settled; nothing happens until then.
    let mut open = std::fs::File::create(bench.dir.join("libtwo.so")).unwrap();
    open.write_all(b"nothing").unwrap();
    until(&registry, |s| s.failed().len() == 2).await;
    let looks = watcher.scans() - before;
    assert!(looks <= 10, "{looks} looks for one new file");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_still_being_written_is_waited_for() {
    use std::io::Write as _;
    let bench = Bench::new();
    let library = std::fs::read(marked()).unwrap();
    let registry = bench.registry();
    let _watcher = start(
        &bench,
        &registry,
        WatchOptions {
            settle: Duration::from_millis(10),
            ..WatchOptions::default()
        },
    );
    let path = bench.dir.join("libslow.so");
    for part in library.chunks(library.len() / 8) {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(part).unwrap();
        drop(file);
        // Longer than it takes to settle: only the structure tells that it is not whole.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let snapshot = until(&registry, |s| s.get("marked").is_some()).await;
    assert_eq!(
        snapshot.generation, 1,
        "it never counted as failed: {snapshot:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_made_later_is_watched_too() {
    let bench = Bench::new();
    let registry = bench.registry();
    let dir = bench.dir.join("later");
    let options = WatchOptions {
        poll: Duration::from_millis(20),
        ..WatchOptions::default()
    };
    let _watcher = Watcher::start(Arc::clone(&registry), vec![dir.clone()], options);
    std::fs::create_dir(&dir).unwrap();
    conjure_host::fs::write_atomic(dir.join("lib.so"), &std::fs::read(marked()).unwrap()).unwrap();
    until(&registry, |s| s.get("marked").is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_takes_the_place_of_another_one_is_watched() {
    let bench = Bench::new();
    let registry = bench.registry();
    let [link, dir, old, new] = ["link", "dir", "old", "new"].map(|name| bench.dir.join(name));
    for dir in [&dir, &old, &new] {
        std::fs::create_dir(dir).unwrap();
    }
    std::os::unix::fs::symlink(&old, &link).unwrap();
    let dirs = vec![link.clone(), dir.clone()];
    let options = WatchOptions {
        poll: Duration::from_secs(3_600),
        ..WatchOptions::default()
    };
    let _watcher = Watcher::start(Arc::clone(&registry), dirs, options);
    let marks = Marks::new();
    drop_in(&old.join("lib.so"), marks.original());
    until(&registry, |s| s.get("marked").is_some()).await;

    // The link leads elsewhere: what was there is gone, and what comes there is seen.
    let staged = bench.dir.join("staged");
    std::os::unix::fs::symlink(&new, &staged).unwrap();
    std::fs::rename(&staged, &link).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;
    drop_in(&new.join("lib.so"), &marks.number(1).0);
    until(&registry, |s| s.get("marked").is_some()).await;
    std::fs::remove_file(new.join("lib.so")).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;

    // Another directory is at the path, without a moment in which none is: one that is not there waits for
    // the next poll.
    drop_in(&old.join("lib.so"), &marks.number(2).0);
    rustix::fs::renameat_with(CWD, &old, CWD, &dir, RenameFlags::EXCHANGE).unwrap();
    until(&registry, |s| s.get("marked").is_some()).await;
    std::fs::remove_file(dir.join("lib.so")).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_deleted_and_made_again_is_watched() {
    let bench = Bench::new();
    let registry = bench.registry();
    let dir = bench.dir.join("again");
    std::fs::create_dir(&dir).unwrap();
    let options = WatchOptions::default();
    let _watcher = Watcher::start(Arc::clone(&registry), vec![dir.clone()], options);
    let marks = Marks::new();
    for number in 0..4 {
        drop_in(&dir.join("lib.so"), &marks.number(number).0);
        until(&registry, |s| s.get("marked").is_some()).await;
        std::fs::remove_dir_all(&dir).unwrap();
        // It may have the number of the one before.
        std::fs::create_dir(&dir).unwrap();
        until(&registry, |s| s.plugins().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_watched_when_another_path_to_it_leads_elsewhere() {
    let bench = Bench::new();
    let registry = bench.registry();
    let [dir, link, other] = ["dir", "link", "other"].map(|name| bench.dir.join(name));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let options = WatchOptions {
        poll: Duration::from_secs(3_600),
        ..WatchOptions::default()
    };
    let dirs = vec![dir.clone(), link.clone()];
    let _watcher = Watcher::start(Arc::clone(&registry), dirs, options);
    drop_in(&dir.join("lib.so"), Marks::new().original());
    let is_there_twice = |s: &PluginSnapshot| s.get("marked").is_some() && s.failed().len() == 1;
    until(&registry, is_there_twice).await;
    let staged = bench.dir.join("staged");
    std::os::unix::fs::symlink(&other, &staged).unwrap();
    std::fs::rename(&staged, &link).unwrap();
    let is_there_once = |s: &PluginSnapshot| s.get("marked").is_some() && s.failed().is_empty();
    until(&registry, is_there_once).await;
    std::fs::remove_file(dir.join("lib.so")).unwrap();
    until(&registry, |s| s.plugins().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_of_installed_plugins_is_made_and_the_first_one_in_it_waits_for_no_look() {
    let data = tempfile::tempdir().unwrap();
    let bench = Bench::with(LoaderOptions {
        packaged: Some(PackagedPlugins::of(data.path())),
        ..LoaderOptions::default()
    });
    let registry = bench.registry();
    let [installed, other] = ["plugins", "other"].map(|name| data.path().join(name));
    let options = WatchOptions {
        poll: Duration::from_secs(3_600),
        ..WatchOptions::default()
    };
    let dirs = vec![installed.clone(), other.clone()];
    let _watcher = Watcher::start(Arc::clone(&registry), dirs, options);
    assert!(
        !other.exists(),
        "what is not the host's is nobody's to make"
    );
    let mode = std::fs::metadata(&installed).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop_in(&installed.join("lib.so"), &std::fs::read(marked()).unwrap());
    until(&registry, |s| s.get("marked").is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_plugins_dropped_into_the_directory_under_load_answer_as_their_version() {
    let bench = Arc::new(Bench::new());
    let versions = Marks::new();
    let registry = bench.registry();
    let _watcher = start(&bench, &registry, WatchOptions::default());
    let mut marks = HashMap::new();
    for number in 0..20 {
        let (changed, mark) = versions.number(number + 1000);
        marks.insert(conjure_host::plugin::Sha256::of(&changed), mark);
        drop_in(&bench.dir.join("libmarked.so"), &changed);
        let sha256 = conjure_host::plugin::Sha256::of(&changed);
        let snapshot = until(&registry, |s| {
            s.get("marked")
                .is_some_and(|p| p.id().sha256 == Some(sha256))
        })
        .await;
        let instance = bench.instance(snapshot.get("marked").unwrap()).await;
        assert_eq!(
            Bench::execute(&instance, "mark").await.unwrap(),
            marks[&sha256]
        );
    }
}

fn drop_in(path: &Path, bytes: &[u8]) {
    conjure_host::fs::write_atomic(path, bytes).unwrap();
}
