//! What an executor does with files: it writes, shows and changes them, keeps those of sessions apart,
//! and gives and takes them.

use conjure_config::fs;
use conjure_skill_sdk::protocol::{
    CreateFile, FileRef, FilesGet, FilesPut, StrReplace, View, Viewed, Written, op,
};

use super::bench::{
    Bench, BenchSession, CheckFailure, CheckResult, expect, to_short_json, truncate,
};
use super::executor::{bash, clean_up, expect_output, init};
use super::{CheckKind, ContractCheck};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilesCheck {
    Create,
    View,
    Directory,
    Missing,
    Replace,
    NotOnce,
    Sessions,
    Get,
    Put,
}

const TEXT: &str = "one\ntwo\nthree\n";

pub(super) fn checks() -> Vec<ContractCheck> {
    [
        (
            "a file is written, with the directories above it, and commands see it",
            FilesCheck::Create,
        ),
        (
            "a file is shown, whole and a range of its lines",
            FilesCheck::View,
        ),
        ("a directory is listed", FilesCheck::Directory),
        (
            "a file that is not there is said to be missing",
            FilesCheck::Missing,
        ),
        ("a passage is replaced", FilesCheck::Replace),
        (
            "a passage that is not there once is refused, and nothing is changed",
            FilesCheck::NotOnce,
        ),
        ("sessions have files of their own", FilesCheck::Sessions),
        ("a file that was made can be fetched", FilesCheck::Get),
        ("a file of the host's can be brought there", FilesCheck::Put),
    ]
    .into_iter()
    .map(|(name, check)| ContractCheck::new(name, CheckKind::ExecutorFiles(check)))
    .collect()
}

pub(super) async fn run(check: FilesCheck, bench: &Bench) -> CheckResult {
    let session = bench.session(false);
    init(bench, &session).await?;
    let done = run_check(check, bench, &session).await;
    let cleaned = clean_up(&session).await;
    done.and(cleaned)
}

async fn run_check(check: FilesCheck, bench: &Bench, session: &BenchSession<'_>) -> CheckResult {
    match check {
        FilesCheck::Create => {
            let written = create(session, "made/by/hand.txt", TEXT).await?;
            expect(
                !written.replaced,
                "`replaced: false` for a new file",
                || to_short_json(&written),
            )?;
            expect_output(&bash(session, "cat made/by/hand.txt").await?, TEXT, 0)?;
            let again = create(session, "made/by/hand.txt", "other").await?;
            expect(
                again.replaced,
                "`replaced: true` for one that was there",
                || to_short_json(&again),
            )?;
            expect_output(&bash(session, "cat made/by/hand.txt").await?, "other", 0)
        }
        FilesCheck::View => {
            bash(session, "printf 'one\\ntwo\\nthree\\n' > lines.txt").await?;
            let whole = view(session, "lines.txt", None).await?;
            let all = ["one", "two", "three"];
            expect(
                all.iter().all(|line| whole.content.contains(line)),
                "all lines of the file",
                || format!("{:?}", truncate(&whole.content, 200)),
            )?;
            for range in [(2, 2), (2, -1)] {
                let part = view(session, "lines.txt", Some(range)).await?.content;
                let has = |line: &str| part.contains(line);
                let fits = !has("one") && has("two") && has("three") == (range.1 == -1);
                let expected = format!("the lines {} to {}, and no others", range.0, range.1);
                expect(fits, &expected, || format!("{part:?}"))?;
            }
            Ok(())
        }
        FilesCheck::Directory => {
            create(session, "listed/inner.txt", TEXT).await?;
            let viewed = view(session, "listed", None).await?;
            let fits = viewed.directory && viewed.content.contains("inner.txt");
            expect(fits, "`directory: true` and the names in it", || {
                to_short_json(&viewed)
            })
        }
        FilesCheck::Missing => {
            let request = View {
                path: "no-such-file.txt".to_owned(),
                view_range: None,
            };
            let expected = "an error that names the file";
            let said = session
                .expect_refusal(op::EXECUTOR_VIEW, &request, expected)
                .await?;
            expect(said.contains("no-such-file.txt"), expected, || said.clone())
        }
        FilesCheck::Replace => {
            create(session, "changed.txt", TEXT).await?;
            let request = replacement("changed.txt", "two\n", "2\n");
            let written: Written = session
                .expect_reply(op::EXECUTOR_STR_REPLACE, &request)
                .await?;
            expect(written.replaced, "`replaced: true`", || {
                to_short_json(&written)
            })?;
            expect_output(
                &bash(session, "cat changed.txt").await?,
                "one\n2\nthree\n",
                0,
            )
        }
        FilesCheck::NotOnce => {
            create(session, "kept.txt", "twice twice\n").await?;
            for old in ["twice", "never"] {
                let request = replacement("kept.txt", old, "x");
                let expected = format!("an error for a passage like `{old}` in \"twice twice\"");
                session
                    .expect_refusal(op::EXECUTOR_STR_REPLACE, &request, &expected)
                    .await?;
            }
            expect_output(&bash(session, "cat kept.txt").await?, "twice twice\n", 0)
        }
        FilesCheck::Sessions => {
            let other = bench.session(true);
            init(bench, &other).await?;
            let output = async {
                create(session, "private.txt", TEXT).await?;
                bash(&other, "cat private.txt").await
            };
            let output = output.await;
            let cleaned = clean_up(&other).await;
            let output = output?;
            cleaned?;
            expect(
                output.exit_code != Some(0),
                "that another session has no file of this one",
                || format!("{:?}", truncate(&output.stdout, 200)),
            )
        }
        FilesCheck::Get => {
            let written = create(session, "fetched.txt", TEXT).await?;
            let bytes = fetch_file(bench, session, &written.file).await?;
            expect(bytes == TEXT.as_bytes(), "the bytes of the file", || {
                format!("{:?}", String::from_utf8_lossy(&bytes))
            })
        }
        FilesCheck::Put => put(bench, session).await,
    }
}

async fn create(session: &BenchSession<'_>, path: &str, text: &str) -> CheckResult<Written> {
    let request = CreateFile {
        path: path.to_owned(),
        file_text: Some(text.to_owned()),
        content: None,
    };
    session
        .expect_reply(op::EXECUTOR_CREATE_FILE, &request)
        .await
}

async fn view(
    session: &BenchSession<'_>,
    path: &str,
    view_range: Option<(i64, i64)>,
) -> CheckResult<Viewed> {
    let request = View {
        path: path.to_owned(),
        view_range,
    };
    session.expect_reply(op::EXECUTOR_VIEW, &request).await
}

fn replacement(path: &str, old: &str, new: &str) -> StrReplace {
    StrReplace {
        path: path.to_owned(),
        old_str: old.to_owned(),
        new_str: new.to_owned(),
    }
}

/// The bytes of a file as the host gets at them: at its path, where that is the host's, else fetched.
pub(super) async fn fetch_file(
    bench: &Bench,
    session: &BenchSession<'_>,
    file: &FileRef,
) -> CheckResult<Vec<u8>> {
    let expected = "a file that the host reads: its path in the working directory, or `files.get`";
    let unreadable = |error: std::io::Error| CheckFailure::new(expected, error.to_string());
    if let Some(path) = &file.path {
        let inside = [&session.working_dir, &session.exchange_dir];
        let real = std::path::Path::new(path)
            .canonicalize()
            .map_err(unreadable)?;
        expect(
            inside.iter().any(|dir| real.starts_with(dir)),
            expected,
            || format!("`{path}`, which is elsewhere"),
        )?;
        return fs::read(&real).map_err(unreadable);
    }
    let Some(id) = &file.id else {
        return Err(CheckFailure::new(expected, to_short_json(file)));
    };
    expect(bench.plugin.manifest().has("files.get/1"), expected, || {
        format!("the id `{id}` alone, and no `files.get`: register `Files` with `with_files()`")
    })?;
    let to = session.exchange_dir.join("fetched");
    let request = FilesGet {
        id: id.clone(),
        to: to.display().to_string(),
    };
    let _: FileRef = session.expect_reply(op::FILES_GET, &request).await?;
    fs::read(&to).map_err(unreadable)
}

async fn put(bench: &Bench, session: &BenchSession<'_>) -> CheckResult {
    let text = "brought by the host\n";
    let write = |path: &std::path::Path| {
        fs::write(path, text)
            .map_err(|error| CheckFailure::new("room for a file", error.to_string()))
    };
    let there = if bench.plugin.manifest().has("files.put/1") {
        let path = session.exchange_dir.join("brought.txt");
        write(&path)?;
        let request = FilesPut {
            file: FileRef::at(path.display().to_string()),
        };
        let file: FileRef = session.expect_reply(op::FILES_PUT, &request).await?;
        file.path.ok_or_else(|| {
            CheckFailure::new(
                "the path of the file as commands see it",
                "none in the reply",
            )
        })?
    } else {
        // Commands see the host's own paths then.
        let path = session.working_dir.join("brought.txt");
        write(&path)?;
        path.display().to_string()
    };
    expect_output(&bash(session, &format!("cat '{there}'")).await?, text, 0)
}
