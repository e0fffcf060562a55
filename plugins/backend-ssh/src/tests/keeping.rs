//! Files on a remote machine.

use std::fs;

use conjure_skill_sdk::protocol::{FileRef, Viewed, Written};
use serde_json::json;

use super::world;

#[test]
fn p6_files_are_written_shown_and_changed() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let create = json!({ "path": "deep/a.txt", "file_text": "one\ntwo\n" });
    let made: Written = world.call("executor.create_file", create).parse().unwrap();
    assert!(!made.replaced && made.file.size == Some(8));
    let view = |path: &str| -> Viewed {
        let viewed = world.call("executor.view", json!({ "path": path }));
        viewed.parse().unwrap()
    };
    assert_eq!(view("deep/a.txt").content, "     1\tone\n     2\ttwo\n");
    assert_eq!(
        view(&world.ready.working_dir).content,
        "deep/\ndeep/a.txt\n"
    );
    let skill = format!("{}/SKILL.md", world.ready.skills[0].dir);
    assert_eq!(view(&skill).content, "     1\ta skill\n");
    let absolute = world.work("deep/a.txt");
    let replace = json!({ "path": absolute, "old_str": "two", "new_str": "2" });
    world.call("executor.str_replace", replace).reply.unwrap();
    assert_eq!(world.bash("cat deep/a.txt").stdout, "one\n2\n");
    for (op, body) in [
        ("executor.view", json!({ "path": "/etc/passwd" })),
        (
            "executor.create_file",
            json!({ "path": "/tmp/../etc/x", "file_text": "" }),
        ),
        (
            "executor.create_file",
            json!({ "path": skill, "file_text": "" }),
        ),
    ] {
        let error = world.error(op, body);
        assert!(error.contains(&world.ready.working_dir), "{error}");
    }
    world.bash("ln -s /etc link");
    let through = json!({ "path": "link/passwd" });
    assert!(world.error("executor.view", through).contains("is outside"));
}

/// Brings bytes in by `files.put` and out by `files.get`.
#[test]
fn a_hundred_megabytes_go_there_and_back() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let bytes: Vec<u8> = (0..100_000_000_u32).map(|n| (n % 253) as u8).collect();
    let from = world.path("exchange/in");
    fs::write(&from, &bytes).unwrap();
    let calls = world.plugin.with(|envelope| envelope.deadline_ms = 240_000);
    let put = json!({ "file": { "name": "data.bin", "path": from } });
    let there: FileRef = calls.call("files.put", put).parse().unwrap();
    assert_eq!(
        there.path,
        Some(world.work("data.bin").display().to_string())
    );
    assert_eq!(world.bash("wc -c <data.bin").stdout, "100000000\n");
    let to = world.path("exchange/out");
    let get = json!({ "id": there.id, "to": to });
    let got: FileRef = calls.call("files.get", get).parse().unwrap();
    assert_eq!(got.size, Some(100_000_000));
    assert!(fs::read(to).unwrap() == bytes);
    let to = world.path("exchange/none");
    let get = json!({ "id": "/etc/passwd", "to": to });
    assert!(world.error("files.get", get).contains("is outside"));
    assert!(!to.exists());
}

#[test]
fn a_file_that_is_handed_over_is_a_regular_one_and_no_way_out_of_the_directory() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    fs::write(world.path("outside"), "secret").unwrap();
    let link = world.path("work/link");
    std::os::unix::fs::symlink(world.path("outside"), link).unwrap();
    // A pipe without a writer: who opens it to read waits for ever.
    let mut make = std::process::Command::new("mkfifo");
    assert!(
        make.arg(world.path("work/pipe"))
            .status()
            .unwrap()
            .success()
    );
    for name in ["link", "pipe"] {
        let file = json!({ "name": name, "path": world.path("work").join(name) });
        let body = json!({ "path": "copy", "description": "d", "content": file });
        let error = world.error("executor.create_file", body);
        assert!(error.contains(name), "{error}");
    }
    assert!(!world.work("copy").exists());
}
