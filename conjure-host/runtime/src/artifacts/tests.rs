//! Tests of the files of a session.

use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_core::chat::ArtifactRef;
use futures_util::FutureExt as _;

use super::digest::LARGE;
use super::*;

#[test]
fn b23_a_name_from_outside_never_leaves_its_directory() {
    for (given, safe) in [
        ("../../etc/passwd", "passwd"),
        ("/abs/x.csv", "x.csv"),
        ("..", "file"),
        ("a/..", "file"),
        ("C:\\x\\y.txt", "y.txt"),
        (".bashrc", "bashrc"),
        ("nul\0l", "nul_l"),
        ("", "file"),
        ("ok name.txt", "ok name.txt"),
    ] {
        assert_eq!(safe_name(given), safe, "{given:?}");
    }
}

#[test]
fn p16_an_artifact_has_hash_size_and_media_type() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.csv"), "x,y\n").unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
    let file = FileRef::at(dir.path().join("a.csv").display().to_string());
    let artifact = artifacts.register("local", &file, None).unwrap();
    assert_eq!(artifact.media_type, "text/csv");
    assert_eq!(artifact.size, Some(4));
    assert_eq!(
        artifact.sha256.as_deref(),
        Some("9c6536d38fa37da58fac066342747e6d20fdace12ab5b287cf04506f2afe95b0")
    );
    let again = artifacts.register("local", &file, None).unwrap();
    assert_eq!(again.id, artifact.id);
}

#[test]
fn a_file_outside_the_roots_is_refused_also_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(dir.path().join("secret"), "s").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), work.join("link")).unwrap();
    let artifacts = Artifacts::new(vec![work.clone()], work.join("cache"));
    for path in [
        dir.path().join("secret"),
        work.join("link"),
        work.join("../secret"),
        work,
    ] {
        let file = FileRef::at(path.display().to_string());
        let error = artifacts.register("liar", &file, None).unwrap_err();
        assert!(error.to_string().contains("`liar`"), "{error}");
    }
}

#[tokio::test]
async fn a_file_of_the_exchange_directory_outlives_it() {
    let dir = tempfile::tempdir().unwrap();
    let (exchange, cache) = (dir.path().join("exchange"), dir.path().join("files"));
    std::fs::create_dir(&exchange).unwrap();
    let artifacts =
        Artifacts::new(vec![exchange.clone()], cache.clone()).with_exchange_dir(&exchange);
    let spilled = exchange.join("output.txt");
    std::fs::write(&spilled, "long").unwrap();
    let file = FileRef::at(spilled.display().to_string());
    let artifact = artifacts.register("local", &file, None).unwrap();
    // The result names it again, after it was told of while the call ran.
    assert_eq!(artifacts.register("local", &file, None).unwrap(), artifact);
    std::fs::remove_dir_all(&exchange).unwrap();
    let path = artifacts.resolve(&artifact.id).await.unwrap();
    assert!(path.starts_with(cache.canonicalize().unwrap()), "{path:?}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "long");
}

#[tokio::test]
async fn after_a_resume_a_handle_stands_for_the_file_that_it_stood_for() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let work = root.join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(root.join("secret"), "s").unwrap();
    let at = |name: &str| {
        std::fs::write(work.join(name), name).unwrap();
        FileRef::at(work.join(name).display().to_string())
    };
    let before = Artifacts::new(vec![work.clone()], root.join("files"));
    let first = before.register("local", &at("a.txt"), None).unwrap();
    let second = before.register("docker", &at("b.txt"), None).unwrap();
    let reference = |id: &str| ArtifactRef {
        id: id.to_owned(),
        ..first.reference()
    };
    let after = Artifacts::new(vec![work.clone()], root.join("files"));
    let known =
        |reference, source: &str, place: Option<PathBuf>, remote: Option<&str>| RecordedFile {
            reference,
            source: source.to_owned(),
            recorded_path: place,
            remote: remote.map(str::to_owned),
            holder: None,
        };
    let fetch: Fetch = Arc::new(|id, to| {
        async move { std::fs::write(to, id).map_err(|error| error.to_string()) }.boxed()
    });
    let files = [
        known(first.reference(), "local", first.path.clone(), None),
        known(second.reference(), "docker", Some("b.txt".into()), None),
        known(reference("file-9"), "liar", Some(root.join("secret")), None),
        known(reference("file-8"), "anthropic", None, Some("there")),
        known(reference("file-7"), "gone", None, Some("nowhere")),
    ];
    after.restore(&files, |backend| {
        (backend == "anthropic").then(|| Arc::clone(&fetch))
    });
    let listed = after.list();
    assert_eq!(listed[..2], [first.clone(), second]);
    assert_eq!((listed.len(), &listed[4].path), (5, &None));
    assert!(matches!(
        after.resolve("file-9").await,
        Err(FileError::Gone { path, .. }) if path == root.join("secret")
    ));
    assert!(matches!(
        after.resolve("file-7").await,
        Err(FileError::Elsewhere { backend, .. }) if backend == "gone"
    ));
    let fetched = after.resolve("file-8").await.unwrap();
    assert_eq!(std::fs::read(fetched).unwrap(), b"there");
    let third = after.register("local", &at("c.txt"), None).unwrap();
    assert_eq!(third.id, "file-10");
    let again = after.register("local", &at("a.txt"), None).unwrap();
    assert_eq!(again, first);
}

#[tokio::test]
async fn a_file_that_is_overwritten_keeps_its_handle_and_is_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
    let path = dir.path().join("a.csv");
    let file = FileRef::at(path.display().to_string());
    std::fs::write(&path, "one").unwrap();
    let first = artifacts.register("local", &file, None).unwrap();
    std::fs::write(&path, "three").unwrap();
    let second = artifacts.register("docker", &file, None).unwrap();
    assert_eq!((&second.id, second.size), (&first.id, Some(5)));
    assert_ne!(second.sha256, first.sha256);
    assert_eq!(artifacts.list(), [second]);
    // Another file of that name is newer.
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let newer = dir.path().join("sub/a.csv");
    std::fs::write(&newer, "newer").unwrap();
    let file = FileRef::at(newer.display().to_string());
    artifacts.register("local", &file, None).unwrap();
    assert_eq!(
        artifacts.resolve("a.csv").await.unwrap(),
        newer.canonicalize().unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_file_is_hashed_on_a_runtime_with_several_threads() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    std::fs::write(&large, vec![7; 2 * LARGE as usize]).unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
    let file = FileRef::at(large.display().to_string());
    let registering =
        tokio::spawn(async move { artifacts.register("local", &file, None).unwrap() });
    assert_eq!(registering.await.unwrap().size, Some(2 * LARGE));
}

#[tokio::test]
async fn h12_a_remote_file_is_fetched_once_when_it_is_needed_and_a_bad_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(vec![], dir.path().join("cache"));
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let fetch: Fetch = Arc::new(move |id, to| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move { std::fs::write(to, id).map_err(|e| e.to_string()) }.boxed()
    });
    let file = FileRef::lazy("remote-7", "../report.txt");
    let artifact = artifacts.register("hosted", &file, Some(fetch)).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let path = artifacts.resolve(&artifact.id).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "remote-7");
    assert_eq!(artifacts.resolve("report.txt").await.unwrap(), path);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // What came is there no more.
    std::fs::remove_file(&path).unwrap();
    let again = artifacts.resolve("report.txt").await.unwrap();
    assert_eq!(std::fs::read_to_string(&again).unwrap(), "remote-7");
    assert_eq!(count.load(Ordering::SeqCst), 2);
    for bad in ["file-99", "../report.txt", "/etc/passwd", ""] {
        assert!(matches!(
            artifacts.resolve(bad).await,
            Err(FileError::FileNotFound { .. })
        ));
    }
}

#[tokio::test]
async fn a_later_session_fetches_a_file_of_unknown_source_from_whoever_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let fetch: Fetch = Arc::new(|id, to| {
        async move { std::fs::write(to, id).map_err(|error| error.to_string()) }.boxed()
    });
    let known = RecordedFile {
        reference: ArtifactRef {
            id: "file-1".to_owned(),
            name: "f.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            size: None,
        },
        source: UNKNOWN_SOURCE.to_owned(),
        recorded_path: None,
        remote: Some("there".to_owned()),
        holder: Some("ssh".to_owned()),
    };
    let artifacts = Artifacts::new(vec![], dir.path().join("cache"));
    let files = std::slice::from_ref(&known);
    artifacts.restore(files, |backend| {
        (backend == "ssh").then(|| Arc::clone(&fetch))
    });
    assert_eq!(artifacts.list()[0].source, UNKNOWN_SOURCE);
    let found = artifacts.resolve("file-1").await.unwrap();
    assert_eq!(std::fs::read(found).unwrap(), b"there");
    let alone = Artifacts::new(vec![], dir.path().join("other"));
    alone.restore(files, |_| None);
    let refused = alone.resolve("file-1").await.unwrap_err().to_string();
    assert!(refused.contains("with the backend `ssh`"), "{refused}");
}

#[tokio::test]
async fn a_later_session_finds_what_was_fetched_and_fetches_nothing_again() {
    let dir = tempfile::tempdir().unwrap();
    let fetch: Fetch = Arc::new(|id, to| {
        async move { std::fs::write(to, id).map_err(|error| error.to_string()) }.boxed()
    });
    let known = |handle: &str, remote: &str| RecordedFile {
        reference: ArtifactRef {
            id: handle.to_owned(),
            name: "report.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            size: None,
        },
        source: "hosted".to_owned(),
        recorded_path: None,
        remote: Some(remote.to_owned()),
        holder: None,
    };
    let before = Artifacts::new(vec![], dir.path().join("cache"));
    before.restore(&[known("file-1", "remote-7")], |_| Some(Arc::clone(&fetch)));
    let path = before.resolve("file-1").await.unwrap();
    let after = Artifacts::new(vec![], dir.path().join("cache"));
    let other = known("file-2", "../remote-8");
    after.restore(&[known("file-1", "remote-7"), other], |_| None);
    let found = after.resolve("file-1").await.unwrap();
    assert_eq!(found, path.canonicalize().unwrap());
    let listed = after.list();
    assert_eq!((listed[0].size, listed[1].size), (Some(8), None));
    assert!(matches!(
        after.resolve("file-2").await,
        Err(FileError::Elsewhere { .. })
    ));
}

#[tokio::test]
async fn a_file_that_was_removed_is_gone_and_not_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "a").unwrap();
    let file = FileRef::at(path.display().to_string());
    artifacts.register("local", &file, None).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = artifacts.resolve("file-1").await.unwrap_err();
    assert!(matches!(error, FileError::Gone { .. }), "{error}");
    assert!(error.to_string().contains("a.csv"), "{error}");
}

#[tokio::test]
async fn no_link_is_followed_to_a_file_that_is_known() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (made, secret) = (root.join("work/d"), root.join("work/secret"));
    for dir in [&made, &secret] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("a.txt"), dir.display().to_string()).unwrap();
    }
    let of_session = || Artifacts::new(vec![root.join("work")], root.join("cache"));
    let artifacts = of_session();
    let path = made.join("a.txt");
    let file = FileRef::at(path.display().to_string());
    let known = artifacts.register("local", &file, None).unwrap();
    let opened = artifacts.open("file-1").await.unwrap();
    // What is open stays what it was, also where the directory is a link now.
    std::fs::rename(&made, root.join("work/d2")).unwrap();
    symlink(&secret, &made).unwrap();
    let bytes = opened.bytes(1000).unwrap().unwrap();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        made.display().to_string()
    );
    assert_eq!(opened.bytes(1).unwrap(), None);
    assert_eq!(opened.digest().unwrap().0, known.sha256.clone().unwrap());
    let gone = |opened: Result<OpenArtifact, FileError>| {
        let error = opened.unwrap_err();
        assert!(matches!(error, FileError::Gone { .. }), "{error}");
    };
    gone(artifacts.open("file-1").await);
    // Nor does a later session follow it.
    let later = of_session();
    let earlier = RecordedFile {
        reference: known.reference(),
        source: "local".to_owned(),
        recorded_path: Some(path.clone()),
        remote: None,
        holder: None,
    };
    later.restore(std::slice::from_ref(&earlier), |_| None);
    gone(later.open("file-1").await);
    std::fs::remove_file(&made).unwrap();
    std::fs::rename(root.join("work/d2"), &made).unwrap();
    let again = of_session();
    again.restore(&[earlier], |_| None);
    assert_eq!(again.open("file-1").await.unwrap().path, path);
}

#[test]
fn what_the_host_has_of_its_own_is_opened_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("data");
    std::fs::create_dir(&own).unwrap();
    let token = own.join("http-token");
    std::fs::write(&token, "t").unwrap();
    std::os::unix::fs::symlink(&token, dir.path().join("link")).unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], own.join("cache")).with_host_dir(&own);
    for path in [token, dir.path().join("link")] {
        assert!(artifacts.open_inside(&path).is_err(), "{}", path.display());
        let file = FileRef::at(path.display().to_string());
        assert!(artifacts.register("local", &file, None).is_err());
    }
}

#[tokio::test]
async fn a_failed_download_says_why_and_can_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(vec![], dir.path().join("cache"));
    let fetch: Fetch = Arc::new(|_, _| async { Err("410 gone".to_owned()) }.boxed());
    let artifact = artifacts
        .register("hosted", &FileRef::lazy("x", "x"), Some(fetch))
        .unwrap();
    let error = artifacts.resolve(&artifact.id).await.unwrap_err();
    assert!(
        matches!(&error, FileError::DownloadFailed { file_id, reason }
            if file_id == "file-1" && reason == "410 gone"),
        "{error}"
    );
}

#[test]
fn a_file_with_more_than_is_hashed_is_refused_unread() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holes");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(65 << 30).unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
    let file = FileRef::at(path.display().to_string());
    let said = artifacts.register("liar", &file, None).unwrap_err();
    assert!(said.to_string().contains("64 GiB"), "{said}");
}

#[tokio::test]
async fn a_file_is_read_as_long_as_somebody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, vec![0; 1024 * 1024]).unwrap();
    let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
    let file = FileRef::at(path.display().to_string());
    let asked = std::cell::Cell::new(0);
    let until = |times: usize| {
        asked.set(0);
        artifacts.register_checked("own", &file, &|_, _| {
            asked.set(asked.get() + 1);
            match asked.get() < times {
                true => Ok(()),
                false => Err(super::digest::abandoned_error()),
            }
        })
    };
    let said = until(3).unwrap_err();
    assert!(said.to_string().contains("nobody waits"), "{said}");
    assert_eq!(asked.get(), 3);
    until(usize::MAX).unwrap();
    let artifacts = Arc::new(artifacts);
    let taken = Arc::clone(&artifacts).register_async("own", file).await;
    assert_eq!(taken.unwrap(), artifacts.list().remove(0));
}
