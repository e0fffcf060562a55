//! Libraries that were opened before: listed without being read, opened when they are used, and
//! judged anew as soon as anything of them is another one. Each host is a process of its own,
//! because a library stays open in one.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_host::plugin::{CopyStore, Loader, LoaderOptions, PluginError, Sha256};
use conjure_plugin_tests::{Bench, run_child};

use super::sources::constructing;

/// A user's directories, which hosts come and go in.
struct Home {
    bench: Bench,
    library: PathBuf,
}

impl Home {
    /// With a library that one host has opened.
    fn new() -> Self {
        let bench = Bench::new();
        let library = bench.put("libmarked.so", &std::fs::read(constructing()).unwrap());
        let home = Self { bench, library };
        assert!(home.host("list"), "nothing is known of it yet");
        home
    }

    /// A host that does something; whether code of the library ran in it.
    fn host(&self, case: &str) -> bool {
        let witness = self.bench.root.path().join("constructor-ran");
        let _ = std::fs::remove_file(&witness);
        let exit = run_child(
            "known::child",
            &[
                ("CONJURE_TEST_CASE", case),
                ("CONJURE_TEST_FILE", self.library.to_str().unwrap()),
                (
                    "CONJURE_TEST_STORE",
                    self.bench.loader.store().dir().to_str().unwrap(),
                ),
                ("CONJURE_TEST_CONSTRUCTOR", witness.to_str().unwrap()),
            ],
        );
        assert!(exit.success, "{case}: {:?}\n{}", exit.signal, exit.output);
        witness.exists()
    }

    fn copy(&self) -> PathBuf {
        let bytes = std::fs::read(constructing()).unwrap();
        let name = format!("{}.so", Sha256::of(&bytes));
        self.bench.loader.store().dir().join(name)
    }
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn child() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let Ok(case) = std::env::var("CONJURE_TEST_CASE") else {
        return;
    };
    let store = CopyStore::open(variable("CONJURE_TEST_STORE")).unwrap();
    let options = LoaderOptions {
        settled: if case == "list a new one" {
            Duration::from_secs(3_600)
        } else {
            Duration::ZERO
        },
        ..LoaderOptions::default()
    };
    let loader = Loader::new(store, options);
    let file = PathBuf::from(variable("CONJURE_TEST_FILE"));
    let loaded = loader.load(&file, true);
    if let Some(expected) = case.strip_prefix("refuse ") {
        let error = loaded.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        return;
    }
    let plugin = std::sync::Arc::new(loaded.unwrap());
    assert_eq!(plugin.id().to_string(), "marked 1.0.0");
    assert!(!plugin.manifest().tools.is_empty());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match case.as_str() {
        "list" | "list a new one" => {}
        "use" => runtime.block_on(async {
            let bench = Bench::new();
            let (one, two) = tokio::join!(bench.instance(&plugin), bench.instance(&plugin));
            assert_eq!(Bench::execute(&one, "count").await.unwrap(), "1");
            assert_eq!(Bench::execute(&two, "count").await.unwrap(), "1");
            assert_eq!(Loader::opened(), 1, "it is opened once");
        }),
        "use without copy" => runtime.block_on(async {
            for copy in libraries(loader.store().dir()) {
                std::fs::remove_file(copy).unwrap();
            }
            let instance = Bench::new().instance(&plugin).await;
            assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
        }),
        "use after a replacement" => runtime.block_on(async {
            for copy in libraries(loader.store().dir()) {
                std::fs::remove_file(copy).unwrap();
            }
            conjure_host::fs::write_atomic(&file, b"another").unwrap();
            let error = plugin
                .create(
                    &Bench::create(),
                    std::sync::Arc::new(conjure_host::plugin::NoServices),
                )
                .await
                .unwrap_err();
            assert!(matches!(error, PluginError::NotALibrary { .. }), "{error}");
        }),
        other => panic!("there is no case `{other}`"),
    }
}

fn libraries(dir: &Path) -> Vec<PathBuf> {
    conjure_host::plugin::libraries(dir).unwrap()
}

#[test]
fn a_known_library_is_listed_without_running_and_opened_when_it_is_used() {
    let home = Home::new();
    assert!(!home.host("list"));
    assert!(home.host("use"));
    assert!(!home.host("list"), "using it changes nothing");
}

#[test]
fn a_known_library_is_judged_anew_when_its_bytes_or_its_copy_were_touched() {
    let home = Home::new();
    // The same size and the same time of modification: only the kernel knows.
    let modified = std::fs::metadata(&home.library)
        .unwrap()
        .modified()
        .unwrap();
    let mut bytes = std::fs::read(&home.library).unwrap();
    let at = bytes.windows(8).position(|w| w == b"CONJURE\0").unwrap();
    bytes[at] = b'X';
    std::fs::write(&home.library, &bytes).unwrap();
    let file = File::options().write(true).open(&home.library).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    assert!(!home.host("refuse magic"), "nothing of it may run");

    std::fs::write(&home.library, std::fs::read(constructing()).unwrap()).unwrap();
    assert!(home.host("list"));
    assert!(!home.host("list"));
    let copy = std::fs::read(home.copy()).unwrap();
    std::fs::write(home.copy(), b"tampered").unwrap();
    assert!(home.host("use"), "the copy is made again");
    assert_eq!(std::fs::read(home.copy()).unwrap(), copy);
}

#[test]
fn a_library_that_may_still_be_written_to_is_judged_each_time() {
    let bench = Bench::new();
    let library = bench.put("libmarked.so", &std::fs::read(constructing()).unwrap());
    let home = Home { bench, library };
    for _ in 0..2 {
        assert!(home.host("list a new one"));
    }
}

#[test]
fn who_could_have_written_a_known_library_is_looked_at_each_time() {
    let home = Home::new();
    std::fs::set_permissions(&home.library, Permissions::from_mode(0o666)).unwrap();
    assert!(!home.host("refuse can be written by everyone"));
}

#[test]
fn a_known_library_whose_copy_goes_away_is_judged_before_it_is_opened() {
    let home = Home::new();
    assert!(home.host("use without copy"));
    assert!(!home.host("use after a replacement"));
}
