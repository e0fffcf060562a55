//! Viewing, writing and replacing through the real ABI object.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::testing::{LocalTestHost, TestCall};

fn view(host: &LocalTestHost, path: &str) -> Value {
    host.call("executor.view", &json!({ "path": path }))
        .unwrap()
}

fn view_range(host: &LocalTestHost, path: &str, range: [i64; 2]) -> Result<Value, String> {
    let body = json!({ "path": path, "view_range": range });
    host.call("executor.view", &body)
}

fn create(host: &LocalTestHost, path: &str, text: &str) -> Result<Value, String> {
    let body = json!({ "path": path, "file_text": text });
    host.call("executor.create_file", &body)
}

fn replace(host: &LocalTestHost, path: &str, old: &str, new: &str) -> Result<Value, String> {
    let body = json!({ "path": path, "old_str": old, "new_str": new });
    host.call("executor.str_replace", &body)
}

#[test]
fn p6_a_file_is_shown_with_line_numbers() {
    let host = LocalTestHost::new();
    fs::write(host.work("a.txt"), "one\n\ttwo\nthree").unwrap();
    assert_eq!(
        view(&host, "a.txt"),
        json!({
            "content": "     1\tone\n     2\t\ttwo\n     3\tthree",
            "total_lines": 3,
        })
    );
}

#[test]
fn p6_a_range_begins_at_1_and_minus_1_is_the_end() {
    let host = LocalTestHost::new();
    fs::write(host.work("a.txt"), "1\n2\n3\n4\n").unwrap();
    let content = |range| view_range(&host, "a.txt", range).unwrap()["content"].clone();
    assert_eq!(content([2, 3]), "     2\t2\n     3\t3\n");
    assert_eq!(content([3, -1]), "     3\t3\n     4\t4\n");
    assert_eq!(content([4, 99]), "     4\t4\n");
    for range in [[0, 1], [-1, 2], [3, 2], [1, -2]] {
        let error = view_range(&host, "a.txt", range).unwrap_err();
        assert!(error.contains("is no range"), "{error}");
    }
    assert_eq!(
        view_range(&host, "a.txt", [5, -1]).unwrap_err(),
        "`a.txt` has 4 lines; there is no line 5"
    );
}

#[test]
fn p6_a_directory_is_listed_two_levels_deep() {
    let host = LocalTestHost::new();
    fs::create_dir_all(host.work("src/deep/deeper")).unwrap();
    for name in [
        "README.md",
        ".hidden",
        "src/main.rs",
        "src/.git",
        "src/deep/x",
    ] {
        fs::write(host.work(name), "").unwrap();
    }
    symlink("/etc", host.work("link")).unwrap();
    assert_eq!(
        view(&host, "."),
        json!({
            "content": "README.md\nlink@\nsrc/\nsrc/deep/\nsrc/main.rs\n",
            "directory": true,
        })
    );
    fs::create_dir(host.work("nothing")).unwrap();
    assert_eq!(view(&host, "nothing")["content"], "(empty)\n");
}

#[test]
fn an_empty_file_has_no_lines() {
    let host = LocalTestHost::new();
    fs::write(host.work("empty"), "").unwrap();
    assert_eq!(
        view(&host, "empty"),
        json!({ "content": "", "total_lines": 0 })
    );
}

#[test]
fn b28_a_file_that_is_not_utf8_is_still_shown() {
    let host = LocalTestHost::new();
    fs::write(host.work("latin1"), b"caf\xe9\n").unwrap();
    assert_eq!(view(&host, "latin1")["content"], "     1\tcaf\u{fffd}\n");
}

#[test]
fn what_is_no_text_is_named() {
    let host = LocalTestHost::new();
    fs::write(host.work("a.png"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    fs::write(host.work("blob"), b"ab\0cd").unwrap();
    assert_eq!(
        view(&host, "a.png"),
        json!({ "content": "(no text: a PNG image, image/png, 16 bytes)" })
    );
    assert_eq!(
        view(&host, "blob"),
        json!({ "content": "(no text: binary data, 5 bytes)" })
    );
}

#[test]
fn a_large_file_is_cut_and_all_of_it_is_referred_to() {
    let host = LocalTestHost::new();
    let text: String = (1..=20_000).map(|n| format!("line {n}\n")).collect();
    fs::write(host.work("large"), &text).unwrap();
    let viewed = view(&host, "large");
    assert_eq!(viewed["total_lines"], 20_000);
    assert_eq!(
        viewed["full_content"],
        json!({ "name": "large", "path": host.work("large"), "size": text.len() })
    );
    let content = viewed["content"].as_str().unwrap();
    let (lines, note) = content.rsplit_once('…').unwrap();
    let last = lines.lines().count();
    assert!(lines.ends_with(&format!("{last:>6}\tline {last}\n")));
    assert_eq!(
        note,
        format!(
            " cut here: lines 1 to {last} of those up to 20000 are shown; a smaller view_range \
             shows the others\n"
        )
    );
    let rest = view_range(&host, "large", [19_999, -1]).unwrap();
    assert_eq!(rest["content"], " 19999\tline 19999\n 20000\tline 20000\n");
}

#[test]
fn one_long_line_is_cut_too() {
    let host = LocalTestHost::new();
    fs::write(host.work("long"), "é\u{1}".repeat(1_000_000)).unwrap();
    let viewed = view(&host, "long");
    assert_eq!(viewed["total_lines"], 1);
    assert!(viewed.to_string().len() < 64 * 1024);
}

#[test]
fn b7_b8_files_of_every_skill_are_readable_and_not_writable() {
    let host = LocalTestHost::new();
    fs::create_dir(host.path("second")).unwrap();
    for name in ["skill/SKILL.md", "second/SKILL.md"] {
        fs::write(host.path(name), "text\n").unwrap();
    }
    let skills = ["skill", "second"].map(|name| json!({ "name": name, "dir": host.path(name) }));
    let ready = host
        .call("executor.init", &json!({ "skills": skills }))
        .unwrap();
    assert_eq!(
        ready,
        json!({ "working_dir": host.path("work"), "skills": skills })
    );
    let path = host.path("second/SKILL.md");
    let path = path.to_str().unwrap();
    assert_eq!(view(&host, path)["content"], "     1\ttext\n");
    assert!(
        replace(&host, path, "text", "x")
            .unwrap_err()
            .contains("read only")
    );
    assert!(create(&host, path, "x").unwrap_err().contains("read only"));
}

#[test]
fn p6_a_file_is_written_with_its_directories() {
    let host = LocalTestHost::new();
    let path = host.work("a/b/c.txt");
    assert_eq!(
        create(&host, "a/b/c.txt", "text").unwrap(),
        json!({ "file": { "name": "c.txt", "path": path, "size": 4 }, "replaced": false })
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    assert_eq!(create(&host, "a/b/c.txt", "").unwrap()["replaced"], true);
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    assert_eq!(fs::read_dir(host.work("a/b")).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode() {
    let host = LocalTestHost::new();
    fs::write(host.work("run.sh"), "old").unwrap();
    fs::set_permissions(host.work("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    create(&host, "run.sh", "new").unwrap();
    let mode = fs::metadata(host.work("run.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o750);
}

#[test]
fn a_link_inside_is_written_through() {
    let host = LocalTestHost::new();
    fs::write(host.work("target"), "old").unwrap();
    symlink("target", host.work("link")).unwrap();
    create(&host, "link", "new").unwrap();
    assert!(host.work("link").is_symlink());
    assert_eq!(fs::read_to_string(host.work("target")).unwrap(), "new");
}

#[test]
fn what_cannot_be_a_file_is_refused() {
    let host = LocalTestHost::new();
    fs::create_dir(host.work("dir")).unwrap();
    fs::write(host.work("file"), "").unwrap();
    assert_eq!(
        create(&host, "dir", "").unwrap_err(),
        "`dir` cannot be written: it is a directory"
    );
    assert!(create(&host, "new/", "").unwrap_err().contains("slash"));
    assert!(create(&host, "", "").unwrap_err().contains("empty"));
    assert!(
        create(&host, "file/x", "")
            .unwrap_err()
            .contains("not a directory")
    );
    host.bash("mkfifo pipe");
    assert!(
        create(&host, "pipe", "")
            .unwrap_err()
            .contains("neither a file")
    );
    let viewed = host.call("executor.view", &json!({ "path": "pipe" }));
    assert!(viewed.unwrap_err().contains("neither a file"));
}

#[test]
fn b5_a_missing_argument_is_an_error_that_names_it() {
    let host = LocalTestHost::new();
    let error = |op, body| host.call(op, &body).unwrap_err();
    assert!(error("executor.create_file", json!({ "path": "x" })).contains("file_text"));
    assert!(error("executor.create_file", json!({ "file_text": "x" })).contains("path"));
    assert!(error("executor.str_replace", json!({ "path": "x" })).contains("old_str"));
    assert!(error("executor.bash", json!({})).contains("command"));
    assert!(error("executor.view", json!({})).contains("path"));
}

#[test]
fn a_large_content_comes_as_a_file() {
    let host = LocalTestHost::new();
    let text = "x".repeat(200_000);
    fs::write(host.path("exchange/big"), &text).unwrap();
    let content = json!({ "name": "big", "path": host.path("exchange/big") });
    let body = json!({ "path": "copy", "content": content });
    let written = host.call("executor.create_file", &body).unwrap();
    assert_eq!(written["file"]["size"], 200_000);
    assert_eq!(fs::read_to_string(host.work("copy")).unwrap(), text);
    let outside = json!({ "path": "copy", "content": { "name": "p", "path": "/etc/passwd" } });
    assert!(host.call("executor.create_file", &outside).is_err());
}

#[test]
fn p6_b9_b23_nothing_outside_is_read_or_written() {
    let host = LocalTestHost::new();
    fs::write(host.path("secret"), "s").unwrap();
    symlink(host.path("secret"), host.work("link")).unwrap();
    symlink("../", host.work("up")).unwrap();
    for path in ["/etc/passwd", "../secret", "link", "up/secret", "up/new"] {
        let viewed = host.call("executor.view", &json!({ "path": path }));
        for error in [
            viewed.unwrap_err(),
            create(&host, path, "x").unwrap_err(),
            replace(&host, path, "s", "x").unwrap_err(),
        ] {
            assert!(error.contains(path) && error.contains("outside"), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(host.path("secret")).unwrap(), "s");
    assert!(!host.path("new").exists());
}

#[test]
fn p6_a_passage_that_is_there_once_is_replaced() {
    let host = LocalTestHost::new();
    fs::write(host.work("a"), b"x = 1\ny = \xff\n").unwrap();
    let reply = replace(&host, "a", "x = 1", "x = 2").unwrap();
    assert_eq!(reply["replaced"], true);
    assert_eq!(fs::read(host.work("a")).unwrap(), b"x = 2\ny = \xff\n");
    let body = json!({ "path": "a", "old_str": "x = 2\n" });
    host.call("executor.str_replace", &body).unwrap();
    assert_eq!(fs::read(host.work("a")).unwrap(), b"y = \xff\n");
}

#[test]
fn p6_a_passage_that_is_not_there_or_twice_changes_nothing() {
    let host = LocalTestHost::new();
    let text = "a\r\nb\n  c\na\n";
    fs::write(host.work("f"), text).unwrap();
    for (old, expected) in [
        (
            "zzz",
            "old_str is 0 times in `f`, nothing was changed: view the file",
        ),
        (
            "a\nb",
            "old_str is 0 times in `f`, nothing was changed: its lines end with \\r\\n",
        ),
        (
            " b ",
            "old_str is 0 times in `f`, nothing was changed: without the blanks",
        ),
        (
            "a",
            "old_str is 2 times in `f` (lines 1, 4), nothing was changed: make it longer",
        ),
        ("", "`old_str` is empty"),
    ] {
        let error = replace(&host, "f", old, "x").unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(fs::read_to_string(host.work("f")).unwrap(), text);
}

#[test]
fn a_link_in_the_place_of_the_working_directory_leads_no_file_tool_elsewhere() {
    let host = LocalTestHost::new();
    let keys = host.path("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("key"), "a secret").unwrap();
    let init = |host: &LocalTestHost| {
        let sandbox = json!({ "sandbox": { "write": [host.path("")] } });
        host.call("executor.init", &sandbox)
    };
    init(&host).unwrap();
    create(&host, "before", "x").unwrap();
    fs::rename(host.path("work"), host.path("old")).unwrap();
    symlink(&keys, host.path("work")).unwrap();
    let anew = json!({ "session": "anew" });
    // A session that is prepared again is where it was, too.
    for _ in 0..2 {
        let asked = [
            host.call("executor.view", &json!({ "path": "key" })),
            create(&host, "new", "x"),
            replace(&host, "key", "secret", "lie"),
            host.call("executor.bash", &json!({ "command": "true" })),
            // As for a plugin that was loaded anew, which knows of no session before.
            host.call_with(
                "executor.view",
                &json!({ "path": "key" }),
                &anew,
                &TestCall::new(),
            ),
        ];
        for refused in asked {
            let said = refused.unwrap_err();
            assert!(said.contains("a link is there"), "{said}");
        }
        init(&host).unwrap();
    }
    assert_eq!(fs::read(keys.join("key")).unwrap(), b"a secret");
    assert_eq!(fs::read_dir(&keys).unwrap().count(), 1);
    fs::remove_file(host.path("work")).unwrap();
    fs::rename(host.path("old"), host.path("work")).unwrap();
    create(&host, "after", "x").unwrap();
}
