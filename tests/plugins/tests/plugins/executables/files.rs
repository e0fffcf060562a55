//! The files of programs: bundles, changes while a host runs, and what is kept of them.

use std::sync::Arc;
use std::time::Duration;

use conjure_host::plugin::{
    InstallAction, InstalledPlugins, LoaderOptions, PluginFile, PluginRegistry, PluginSnapshot,
    WatchOptions, Watcher,
};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::{Bench, roll_back};

use super::{ODD, RAW, bench, described, load_raw, options, put_odd, sdk};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_program_that_is_renamed_into_place_is_complete() {
    let bench = bench();
    load_raw(&bench, "well").unwrap();
    let registry = bench.registry();
    let path = bench.dir.join("raw.plugin.toml");
    let first = registry.add(&path, false).unwrap().id().clone();
    let options = WatchOptions {
        settle: Duration::from_secs(3600),
        ..WatchOptions::default()
    };
    let dirs = vec![bench.dir.clone()];
    let watcher = Watcher::start(Arc::clone(&registry), dirs, options);
    while watcher.scans() == 0 {
        tokio::task::yield_now().await;
    }
    bench.put("raw.py", format!("{RAW}\n# Another one.\n").as_bytes());
    until(&registry, |snapshot| {
        snapshot.get("raw").is_some_and(|raw| *raw.id() != first)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_programs_and_their_changes() {
    for events in [true, false] {
        let bench = bench();
        let registry = bench.registry();
        let _watcher = Watcher::start(
            Arc::clone(&registry),
            vec![bench.dir.clone()],
            WatchOptions {
                events,
                poll: Duration::from_millis(50),
                ..WatchOptions::default()
            },
        );
        // The description is there first: what it names comes, and then it is loaded.
        let files = ["odd.py", "lib/"];
        let text = described("odd", "1.0.0", &["python3", "-S", "odd.py"], &files);
        bench.put("odd.plugin.toml", text.as_bytes());
        until(&registry, |there| !there.failed().is_empty()).await;
        let lib = bench.dir.join("lib");
        std::fs::create_dir(&lib).unwrap();
        std::fs::write(lib.join("conjure_plugin.py"), sdk()).unwrap();
        let found = format!(
            "import sys\nsys.path.insert(0, 'lib')\n{}",
            ODD.replace("\"count\": 0", "\"count\": 10")
        );
        bench.put("odd.py", found.as_bytes());
        let loaded = until(&registry, |there| there.get("odd").is_some()).await;
        assert!(loaded.failed().is_empty());
        let first = Arc::clone(loaded.get("odd").unwrap());
        let instance = bench.instance(&first).await;
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "11");
        // A change of the program is another plugin, whatever its version is.
        bench.put(
            "odd.py",
            found.replace("\"count\": 10", "\"count\": 20").as_bytes(),
        );
        let other = |sha256| {
            move |there: &PluginSnapshot| {
                there.get("odd").is_some_and(|it| it.id().sha256 != sha256)
            }
        };
        let changed = until(&registry, other(first.id().sha256)).await;
        let second = Arc::clone(changed.get("odd").unwrap());
        let next = bench.instance(&second).await;
        assert_eq!(Bench::execute(&next, "count").await.unwrap(), "21");
        // So is one of a file in a directory below.
        let sdk = [sdk(), b"\n# another\n".to_vec()].concat();
        std::fs::write(lib.join("conjure_plugin.py"), sdk).unwrap();
        let changed = until(&registry, other(second.id().sha256)).await;
        let third = changed.get("odd").unwrap().id().sha256;
        // And one further below, that came later.
        let deep = lib.join("deep/er");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("x.py"), "x = 1").unwrap();
        let changed = until(&registry, other(third)).await;
        let fourth = changed.get("odd").unwrap().id().sha256;
        std::fs::write(deep.join("x.py"), "x = 22").unwrap();
        let changed = until(&registry, other(fourth)).await;
        let fifth = changed.get("odd").unwrap().id().sha256;
        // And one of the description.
        let text = described("odd", "1.1.0", &["python3", "odd.py"], &files);
        bench.put("odd.plugin.toml", text.as_bytes());
        let changed = until(&registry, other(fifth)).await;
        assert_eq!(changed.get("odd").unwrap().id().to_string(), "odd 1.1.0");
        // What runs goes on as what it was, also when its process has to start again.
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "12");
        Bench::execute(&instance, "exit 1").await.unwrap_err();
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "11");
        std::fs::remove_file(bench.dir.join("odd.plugin.toml")).unwrap();
        until(&registry, |there| there.plugins().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_installed_listed_without_a_process_and_put_back() {
    let bench = Bench::with(LoaderOptions {
        settled: Duration::ZERO,
        ..options()
    });
    let data = bench.root.path().join("data");
    let installed = InstalledPlugins::of(&data);
    let file = |version: &str| PluginFile::read(&put_odd(&bench, version), false).unwrap();
    let one = file("1.0.0");
    let added = installed.add(&one).unwrap().unwrap();
    assert_eq!((added.action, added.from), (InstallAction::Add, None));
    let path = installed.dir().join("odd.plugin");
    let there = PluginFile::read(&path, false).unwrap();
    // The bundle is what was judged: the same bytes, wherever they are.
    assert_eq!(there.sha256, one.sha256);
    assert!(installed.add(&one).unwrap().is_none());
    // Under any name, as where it is sent to a server.
    let sent = bench.put("sent.so", &one.bytes);
    let sent = PluginFile::read(&sent, true).unwrap();
    assert_eq!(
        (sent.sha256, sent.program),
        (one.sha256, one.program.clone())
    );
    std::fs::remove_file(bench.dir.join("sent.so")).unwrap();
    installed.add(&file("2.0.0")).unwrap().unwrap();
    let version = || {
        installed
            .file("odd")
            .unwrap()
            .map(|file| file.header.version)
    };
    assert_eq!(version().as_deref(), Some("2.0.0"));
    roll_back(&installed, "odd", None).unwrap();
    assert_eq!(version().as_deref(), Some("1.0.0"));
    // A listing that knows it starts nothing: there is no program to start any more.
    let first = bench.loader.load(&path, false).unwrap();
    let files = store_entries(&bench, "files");
    assert_eq!(files.len(), 1);
    std::fs::remove_dir_all(&files[0]).unwrap();
    let known = Arc::new(bench.loader.load(&path, false).unwrap());
    assert_eq!(known.manifest(), first.manifest());
    assert_eq!(
        store_entries(&bench, "files"),
        [] as [std::path::PathBuf; 0]
    );
    // What is used is put there again, and what was altered is put right.
    let instance = bench.instance(&known).await;
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    let other = bench.instance(&known).await;
    std::fs::write(files[0].join("odd.py"), "raise SystemExit('altered')").unwrap();
    Bench::execute(&instance, "exit 1").await.unwrap_err();
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    // In a directory of its own: what runs has the one that it was started in.
    assert_eq!(store_entries(&bench, "files").len(), 2);
    let reads = Bench::execute(&other, "try read odd.py").await;
    assert_eq!(reads.unwrap(), "done");
    installed.remove("odd").unwrap();
    assert_eq!(version(), None);
    assert!(!path.exists());
}

fn store_entries(bench: &Bench, extension: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(bench.loader.store().dir()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &std::path::PathBuf| path.extension() == Some(extension.as_ref());
    paths.filter(is_it).collect()
}

/// What has a description's name and is none is neither waited for nor read without end.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_has_the_name_of_a_description_is_listed_as_failed() {
    let bench = bench();
    let made = std::process::Command::new("mkfifo")
        .arg(bench.dir.join("pipe.plugin.toml"))
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", bench.dir.join("zero.plugin.toml")).unwrap();
    let huge = std::fs::File::create(bench.dir.join("huge.plugin.toml")).unwrap();
    huge.set_len(1 << 20).unwrap();
    let mut list = std::process::Command::new("timeout");
    list.arg("60").arg(conjure_bin().unwrap());
    list.args(["plugin", "list", "--plugin-dir"])
        .arg(&bench.dir)
        .env("CONJURE_DATA_DIR", bench.root.path().join("data"));
    let output = list.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    for expected in [
        "pipe.plugin.toml",
        "a named pipe",
        "zero.plugin.toml",
        "a symbolic link",
        "huge.plugin.toml",
        "262144",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // Whoever watches the directory goes on, too.
    put_odd(&bench, "1.0.0");
    let registry = bench.registry();
    let _watcher = Watcher::start(
        Arc::clone(&registry),
        vec![bench.dir.clone()],
        WatchOptions::default(),
    );
    let there = until(&registry, |there| there.get("odd").is_some()).await;
    assert!(there.failed().len() <= 3);
}

/// A program of its own, not run by one of the system's.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_plugin_can_be_the_program() {
    let bench = bench();
    bench.put("conjure_plugin.py", &sdk());
    bench.put("odd.py", format!("#!/usr/bin/python3\n{ODD}").as_bytes());
    let files = ["odd.py", "conjure_plugin.py"];
    let text = described("odd", "1.0.0", &["odd.py"], &files);
    let path = bench.put("odd.plugin.toml", text.as_bytes());
    let plugin = Arc::new(bench.loader.load(&path, false).unwrap());
    let instance = bench.instance(&plugin).await;
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    // It runs as itself, from the files' directory, and not by a word that is looked for.
    let around = Bench::execute(&instance, "program").await.unwrap();
    let [files] = &store_entries(&bench, "files")[..] else {
        panic!("one directory of files");
    };
    let own = files.canonicalize().unwrap().join("odd.py");
    assert_eq!(around, own.display().to_string());
    let refused = described("odd", "1.0.0", &["lib/odd.py"], &["odd.py", "lib/"]);
    std::fs::create_dir(bench.dir.join("lib")).unwrap();
    std::fs::write(bench.dir.join("lib/other.py"), "").unwrap();
    let path = bench.put("odd.plugin.toml", refused.as_bytes());
    let said = bench.loader.load(&path, false).unwrap_err().to_string();
    assert!(said.contains("begins with `lib/odd.py`"), "{said}");
}
