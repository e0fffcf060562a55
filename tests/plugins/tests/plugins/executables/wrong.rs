//! Programs that break the protocol, or do not come to it.

use std::sync::Arc;
use std::time::Duration;

use conjure_host::plugin::{CallOptions, LoaderOptions, PluginCallFailure, PluginError};
use conjure_plugin_tests::Bench;

use super::super::calls::execute;
use super::{RAW, bench, described, load_raw, options, put_odd};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_the_protocol_ends_the_program_with_a_reason() {
    for (mode, reason) in [
        ("garbage", "it printed \"Hello"),
        ("garbage that ends", "it printed \""),
        ("huge", "is over the limit"),
        ("flood", "more output than it had credits for"),
        ("kind", "unknown kind 99"),
        ("wrong side", "came from the wrong side"),
        ("malformed", "neither an answer nor a fault"),
    ] {
        let bench = bench();
        let plugin = load_raw(&bench, mode).unwrap();
        let instance = bench.instance(&plugin).await;
        let failure = Bench::execute(&instance, "break it").await.unwrap_err();
        assert!(
            matches!(failure, PluginCallFailure::WorkerEnded { .. }),
            "{mode}: {failure:?}"
        );
        let said = failure.to_string();
        for part in ["raw 1.0.0", "standard output is not the protocol", reason] {
            assert!(said.contains(part), "{mode}: {said}");
        }
        // The next call finds a new process.
        assert_eq!(
            Bench::execute(&instance, "well").await.unwrap(),
            "well",
            "{mode}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_breaks_the_protocol_each_time_is_paused() {
    let bench = bench();
    let plugin = load_raw(&bench, "kind").unwrap();
    let instance = bench.instance(&plugin).await;
    let mut paused = None;
    for _ in 0..50 {
        match Bench::execute(&instance, "break it").await.unwrap_err() {
            PluginCallFailure::NoWorker { reason, .. } => {
                paused = Some(reason);
                break;
            }
            failure => assert!(matches!(failure, PluginCallFailure::WorkerEnded { .. })),
        }
    }
    let paused = paused.expect("it is paused");
    assert!(paused.contains("not started again for"), "{paused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_no_json_or_no_whole_frame_is_said() {
    let bench = bench();
    let plugin = load_raw(&bench, "no JSON").unwrap();
    let instance = bench.instance(&plugin).await;
    let failure = Bench::execute(&instance, "break it").await.unwrap_err();
    assert!(
        matches!(failure, PluginCallFailure::BadReply { .. }),
        "{failure:?}"
    );
    let plugin = load_raw(&bench, "cut").unwrap();
    let instance = bench.instance(&plugin).await;
    let failure = Bench::execute(&instance, "break it").await.unwrap_err();
    assert!(
        matches!(failure, PluginCallFailure::WorkerEnded { .. }),
        "{failure:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_never_ends_holds_up_its_own_call_only() {
    let bench = bench();
    let plugin = load_raw(&bench, "endless").unwrap();
    let (one, other) = (bench.instance(&plugin).await, bench.instance(&plugin).await);
    let options = CallOptions {
        deadline: Some(Duration::from_millis(300)),
        ..CallOptions::default()
    };
    let failure = execute(&one, "break it", options).await.unwrap_err();
    assert!(
        matches!(failure, PluginCallFailure::TimedOut { .. }),
        "{failure:?}"
    );
    assert_eq!(Bench::execute(&other, "well").await.unwrap(), "well");
    assert_eq!(Bench::execute(&one, "well").await.unwrap(), "well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_come_to_the_protocol_is_refused() {
    let bench = Bench::with(LoaderOptions {
        deadline: Duration::from_millis(500),
        ..options()
    });
    let refused = |mode: &str| load_raw(&bench, mode).unwrap_err();
    let error = refused("hang at start");
    assert!(matches!(error, PluginError::HungInWorker { .. }), "{error}");
    let error = refused("exit at start");
    assert!(matches!(error, PluginError::WorkerEnded { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("code 7") && said.contains("a module is missing"),
        "{said}"
    );
    let error = refused("manifest");
    assert!(error.to_string().contains("it is not JSON"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_not_its_descriptions_is_refused() {
    for (says, expected) in [
        (
            "says name other",
            "its name is `other`, and its description says `raw`",
        ),
        (
            "says version 2.0.0",
            "its version is `2.0.0`, and its description says `1.0.0`",
        ),
        (
            "says kind backend",
            "its kind is `backend`, and its description says `skill`",
        ),
    ] {
        let error = load_raw(&bench(), says).unwrap_err();
        assert!(matches!(error, PluginError::Manifest { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// What is refused from the description is refused before anything runs: the program would leave a
/// file, and nothing keeps it from that here.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_from_the_files_has_not_run() {
    let mut options = options();
    if let Some(worker) = &mut options.worker {
        worker.confined = false;
    }
    let bench = Bench::with(options);
    let ran = bench.root.path().join("ran");
    let program = format!("open({:?}, 'w')\n{RAW}", ran.display().to_string());
    bench.put("raw.py", program.as_bytes());
    let whole = described("raw", "1.0.0", &["python3", "raw.py", "fine"], &["raw.py"]);
    for (from, to, expected) in [
        (
            "protocol = 1",
            "protocol = 2",
            "speaks version 2 of the protocol",
        ),
        ("protocol = 1\n", "", "missing field `protocol`"),
        ("plugin = 1", "plugin = 9", "this host reads form 1"),
        ("\"skill\"", "\"daemon\"", "its kind is `daemon`"),
        ("\"1.0.0\"", "\"one\"", "not a semantic version"),
        (
            "[\"raw.py\"]",
            "[\"raw.py\", \"none.py\"]",
            "none.py: cannot be read",
        ),
        (
            "[\"raw.py\"]",
            "[\"raw.py\", \"none/\"]",
            "`none/` holds no file",
        ),
        (
            "[\"raw.py\"]",
            "[\"raw.py\", \"../up.py\"]",
            "not a plain path",
        ),
        (
            "[\"raw.py\"]",
            "[\"raw.py\", \"link.py\"]",
            "is a symbolic link",
        ),
        (
            "[\"raw.py\"]",
            "[\"raw.py\", \"open.py\"]",
            "can be written by everyone",
        ),
        (
            "\"python3\"",
            "\"no-such-program\"",
            "`no-such-program`, which is in none of the places",
        ),
        (
            "\"python3\"",
            "\"/usr/bin/python3\"",
            "nor the plain name of a program",
        ),
    ] {
        bench.put("open.py", b"");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(bench.dir.join("open.py"), open).unwrap();
        let _ = std::os::unix::fs::symlink("raw.py", bench.dir.join("link.py"));
        let text = whole.replace(from, to);
        assert_ne!(text, whole, "{from}");
        let path = bench.put("raw.plugin.toml", text.as_bytes());
        let said = bench.loader.load(&path, false).unwrap_err().to_string();
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(!ran.exists(), "{expected}");
    }
    // A directory on the way to a file, in which others could put another one there.
    let (open, deep) = (bench.dir.join("open"), bench.dir.join("open/deep"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("a.py"), "").unwrap();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&open, everyone).unwrap();
    let text = whole.replace("[\"raw.py\"]", "[\"raw.py\", \"open/deep/a.py\"]");
    let path = bench.put("raw.plugin.toml", text.as_bytes());
    let said = bench.loader.load(&path, false).unwrap_err().to_string();
    assert!(said.contains("can be written by everyone"), "{said}");
    assert!(!ran.exists());
    // Nothing else was in the way.
    let path = bench.put("raw.plugin.toml", whole.as_bytes());
    let plugin = Arc::new(bench.loader.load(&path, false).unwrap());
    assert!(ran.exists());
    let instance = bench.instance(&plugin).await;
    assert_eq!(Bench::execute(&instance, "well").await.unwrap(), "well");
}

#[test]
fn a_host_without_workers_says_that_it_has_none() {
    let bench = Bench::new();
    let path = put_odd(&bench, "1.0.0");
    let error = bench.loader.load(&path, false).unwrap_err();
    assert!(matches!(error, PluginError::NeedsWorker { .. }), "{error}");
}
