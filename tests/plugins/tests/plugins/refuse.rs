//! Files that are no plugins for this host, or change while they are loaded. Each case runs in a
//! child, because what goes wrong here ends a process.

use std::path::{Path, PathBuf};

use conjure_host::plugin::{Loader, LoaderOptions, PluginError, end_process};
use conjure_plugin_tests::{Bench, run_child};

use super::sources::{aborting, constructing, foreign, marked};

/// Runs a case in a child and checks that the constructor of the library did not run.
fn refused(case: &str, library: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let witness = scratch.path().join("constructor-ran");
    let exit = run_child(
        "refuse::child",
        &[
            ("CONJURE_TEST_CASE", case),
            ("CONJURE_TEST_FILE", library.to_str().unwrap()),
            ("CONJURE_TEST_GOOD", marked().to_str().unwrap()),
            ("CONJURE_TEST_CONSTRUCTOR", witness.to_str().unwrap()),
        ],
    );
    assert!(exit.success, "{case}: {:?}\n{}", exit.signal, exit.output);
    assert!(!witness.exists(), "{case}: code of the file has run");
}

/// Runs a case in a child in which the library is loaded.
fn harmless(case: &str) {
    let exit = run_child(
        "refuse::child",
        &[
            ("CONJURE_TEST_CASE", case),
            ("CONJURE_TEST_FILE", constructing().to_str().unwrap()),
            ("CONJURE_TEST_GOOD", marked().to_str().unwrap()),
        ],
    );
    assert!(exit.success, "{case}: {:?}\n{}", exit.signal, exit.output);
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn child() {
    let Ok(case) = std::env::var("CONJURE_TEST_CASE") else {
        return;
    };
    let variable = |name: &str| std::env::var(name).unwrap();
    let file = PathBuf::from(variable("CONJURE_TEST_FILE"));
    let bench = Bench::new();
    let bytes = std::fs::read(&file).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run_case(&case, &bench, &bytes));
    // Whatever it was, the host goes on.
    runtime.block_on(async {
        let plugin = bench.load(Path::new(&variable("CONJURE_TEST_GOOD")));
        let instance = bench.instance(&plugin).await;
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    });
}

async fn run_case(case: &str, bench: &Bench, bytes: &[u8]) {
    let header = bytes
        .windows(8)
        .position(|w| w == b"CONJURE\0")
        .unwrap_or_default();
    let with = |offset: usize, new: &[u8]| {
        let mut changed = bytes.to_vec();
        changed[header + offset..header + offset + new.len()].copy_from_slice(new);
        changed
    };
    if let Some(tenth) = case.strip_prefix("cut at ") {
        let length = bytes.len() * tenth.parse::<usize>().unwrap() / 10;
        let error = refuse(bench, &bytes[..length]);
        assert!(matches!(error, PluginError::Incomplete { .. }), "{error}");
        return;
    }
    match case {
        "as it is" => {
            refuse(bench, bytes);
        }
        "wrong major" => {
            // As one is that another SDK built: the names of its symbols say the version too.
            let mut other = with(12, &7u16.to_le_bytes());
            let places: Vec<usize> = other
                .windows(15)
                .enumerate()
                .filter_map(|(at, name)| (name == b"conjure_root_v1").then_some(at))
                .collect();
            assert!(!places.is_empty());
            for at in places {
                other[at + 14] = b'7';
            }
            let error = refuse(bench, &other);
            assert!(
                matches!(error, PluginError::Major { found: 7, .. }),
                "{error}"
            );
        }
        "wrong pointer size" => {
            let error = refuse(bench, &with(18, &[4]));
            assert!(
                matches!(error, PluginError::PointerSize { found: 4, .. }),
                "{error}"
            );
        }
        "no magic" => {
            let error = refuse(bench, &with(0, b"X"));
            assert!(matches!(error, PluginError::Header { .. }), "{error}");
        }
        "unknown kind" => {
            let error = refuse(bench, &with(16, &[200]));
            assert!(matches!(error, PluginError::Header { .. }), "{error}");
        }
        "another machine" => {
            let mut changed = bytes.to_vec();
            // e_machine: AArch64.
            changed[18..20].copy_from_slice(&183u16.to_le_bytes());
            let error = refuse(bench, &changed);
            assert!(matches!(error, PluginError::Target { .. }), "{error}");
        }
        "panic abort" => {
            let error = refuse(bench, bytes);
            assert!(matches!(error, PluginError::PanicAbort { .. }), "{error}");
        }
        "foreign" => {
            let error = refuse(bench, bytes);
            assert!(matches!(error, PluginError::NoHeader { .. }), "{error}");
        }
        "text" => {
            let error = refuse(bench, b"This is not a library.\n");
            assert!(error.to_string().contains("a text file"), "{error}");
        }
        "empty" => {
            let error = refuse(bench, b"");
            assert!(error.to_string().contains("empty"), "{error}");
        }
        "overwritten" | "renamed over" | "truncated" | "deleted" => {
            let path = bench.put("plugin.so", bytes);
            let plugin = std::sync::Arc::new(bench.loader.load(&path, false).unwrap());
            let instance = bench.instance(&plugin).await;
            match case {
                "overwritten" => {
                    use std::io::Write as _;
                    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.write_all(&vec![0xcc; bytes.len()]).unwrap();
                }
                "renamed over" => drop(bench.put("plugin.so", &vec![0xcc; bytes.len()])),
                "truncated" => {
                    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.set_len(0).unwrap();
                }
                _ => std::fs::remove_file(&path).unwrap(),
            }
            assert_eq!(
                Bench::execute(&instance, "mark").await.unwrap(),
                "mark:00000000000"
            );
            let failure = Bench::execute(&instance, "panic").await.unwrap_err();
            assert!(failure.to_string().contains("panicked"), "{failure}");
            assert!(bench.loader.load(&path, false).is_err());
        }
        other => panic!("no case {other}"),
    }
}

/// Puts the bytes into the plugin directory and expects a refusal with a complete sentence.
fn refuse(bench: &Bench, bytes: &[u8]) -> PluginError {
    let path = bench.put("plugin.so", bytes);
    let error = bench.loader.load(&path, false).unwrap_err();
    let text = error.to_string();
    println!("{text}");
    assert!(text.starts_with(path.to_str().unwrap()), "{text}");
    assert!(text.contains(". "), "it says what to do: {text}");
    error
}

/// Runs the loading of a library that hangs in a child.
fn hanging(place: &str) {
    let exit = run_child(
        "refuse::hanging_child",
        &[
            ("CONJURE_TEST_HANG", place),
            ("CONJURE_TEST_FILE", constructing().to_str().unwrap()),
            ("CONJURE_TEST_GOOD", marked().to_str().unwrap()),
        ],
    );
    assert!(exit.success, "{place}: {:?}\n{}", exit.signal, exit.output);
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn hanging_child() {
    let Ok(place) = std::env::var("CONJURE_TEST_HANG") else {
        return;
    };
    // The ordinary end of the process would wait for the library.
    let passed = std::panic::catch_unwind(|| load_what_hangs(&place)).is_ok();
    end_process(i32::from(!passed));
}

fn load_what_hangs(place: &str) {
    let bench = Bench::with(LoaderOptions {
        deadline: std::time::Duration::from_millis(300),
        ..LoaderOptions::default()
    });
    let library = |name: &str| PathBuf::from(std::env::var(name).unwrap());
    let error = bench.try_load(&library("CONJURE_TEST_FILE")).unwrap_err();
    assert!(matches!(error, PluginError::Hung { .. }), "{error}");
    assert!(error.to_string().contains(place), "{error}");
    assert_eq!(Loader::lost_threads(), 1);
    let good = bench.try_load(&library("CONJURE_TEST_GOOD"));
    if place == "constructor" {
        // The system opens one library at a time, so nobody else is made to wait.
        let error = good.unwrap_err();
        assert!(matches!(error, PluginError::Blocked { .. }), "{error}");
    } else {
        assert_eq!(good.unwrap().id().to_string(), "marked 1.0.0");
    }
}

#[test]
fn a_library_that_hangs_while_it_is_loaded_is_refused_and_the_host_goes_on() {
    hanging("constructor");
    hanging("manifest");
}

#[test]
fn a_manifest_is_kept_so_that_it_can_be_told_without_running_code() {
    let bench = Bench::new();
    let plugin = bench.try_load(&marked()).unwrap();
    let sha256 = plugin.id().sha256.unwrap();
    assert_eq!(
        bench.loader.stored_manifest(&sha256).as_ref(),
        Some(&**plugin.manifest())
    );
}

#[test]
fn a_constructor_runs_when_a_good_plugin_is_loaded() {
    // The control of the other tests: their witness works.
    let scratch = tempfile::tempdir().unwrap();
    let witness = scratch.path().join("constructor-ran");
    let exit = run_child(
        "refuse::child",
        &[
            ("CONJURE_TEST_CASE", "deleted"),
            ("CONJURE_TEST_FILE", constructing().to_str().unwrap()),
            ("CONJURE_TEST_GOOD", marked().to_str().unwrap()),
            ("CONJURE_TEST_CONSTRUCTOR", witness.to_str().unwrap()),
        ],
    );
    assert!(exit.success, "{}", exit.output);
    assert!(witness.exists());
}

#[test]
fn a_wrong_header_is_refused_before_any_code_runs() {
    for case in [
        "wrong major",
        "wrong pointer size",
        "no magic",
        "unknown kind",
        "another machine",
    ] {
        refused(case, &constructing());
    }
}

#[test]
fn panic_abort_is_refused_before_any_code_runs() {
    refused("panic abort", &aborting());
}

#[test]
fn what_is_no_plugin_is_refused_before_any_code_runs() {
    let scratch = tempfile::tempdir().unwrap();
    refused("foreign", &foreign(scratch.path(), false));
    refused("as it is", &foreign(scratch.path(), true));
    refused("text", &constructing());
    refused("empty", &constructing());
    if cfg!(target_os = "linux") {
        let system = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| path.contains("/libc.so") || path.contains("/libc-"))
            .map(PathBuf::from)
            .unwrap();
        refused("foreign", &system);
    }
    refused("as it is", &std::env::current_exe().unwrap());
}

#[test]
fn a_file_cut_at_every_tenth_is_refused_before_any_code_runs() {
    for tenth in 1..10 {
        refused(&format!("cut at {tenth}"), &constructing());
    }
}

#[test]
fn changing_the_file_of_a_loaded_plugin_is_harmless() {
    for case in ["overwritten", "renamed over", "truncated", "deleted"] {
        harmless(case);
    }
}
