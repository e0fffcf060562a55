//! Files in a container: mounted, and in volumes.

use std::fs;

use conjure_skill_sdk::protocol::{FileRef, Viewed, Written};
use serde_json::{Value, json};

use super::{World, world};

fn files(world: &World) {
    let create = json!({ "path": "deep/a.txt", "file_text": "one\ntwo\n" });
    let made: Written = world.call("executor.create_file", create).parse().unwrap();
    assert!(!made.replaced && made.file.size == Some(8));
    let view = |path: &str| -> Viewed {
        let viewed = world.call("executor.view", json!({ "path": path }));
        viewed.parse().unwrap()
    };
    assert_eq!(view("deep/a.txt").content, "     1\tone\n     2\ttwo\n");
    assert_eq!(view("/workspace").content, "deep/\ndeep/a.txt\n");
    assert_eq!(
        view("/mnt/skills/analyzer/SKILL.md").content,
        "     1\ta skill\n"
    );
    let replace = json!({ "path": "/workspace/deep/a.txt", "old_str": "two", "new_str": "2" });
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
            json!({ "path": "/mnt/skills/analyzer/SKILL.md", "file_text": "" }),
        ),
    ] {
        assert!(world.error(op, body).contains("/workspace"));
    }
    world.bash("ln -s /etc link");
    let through = json!({ "path": "link/passwd" });
    assert!(world.error("executor.view", through).contains("is outside"));
}

/// Brings bytes in by `files.put` and out by `files.get`.
fn there_and_back(world: &World) {
    let bytes: Vec<u8> = (0..1_500_000_u32).map(|n| (n % 253) as u8).collect();
    let from = world.path("exchange/in");
    fs::write(&from, &bytes).unwrap();
    let put = json!({ "file": { "name": "data.bin", "path": from } });
    let there = || -> FileRef { world.call("files.put", put.clone()).parse().unwrap() };
    for _ in 0..2 {
        assert_eq!(there().path.as_deref(), Some("/workspace/data.bin"));
    }
    // What became of it in the container stays.
    world.bash("cp data.bin kept; echo more >>data.bin");
    assert_eq!(there().path.as_deref(), Some("/workspace/data-2.bin"));
    world.bash("mv kept data.bin; rm data-2.bin");
    let sums = world.bash("wc -c <data.bin; cp data.bin copy");
    assert_eq!(sums.stdout, "1500000\n");
    assert!(
        sums.files.iter().any(|file| file.name == "copy"),
        "{sums:?}"
    );
    let to = world.path("exchange/out");
    let get = json!({ "id": "/workspace/copy", "to": to });
    let got: FileRef = world.call("files.get", get).parse().unwrap();
    assert_eq!(got.size, Some(1_500_000));
    assert!(fs::read(to).unwrap() == bytes);
    let to = world.path("exchange/none");
    let get = json!({ "id": "/etc/passwd", "to": to });
    assert!(world.error("files.get", get).contains("is outside"));
    assert!(!to.exists());
}

fn large_content(world: &World) {
    let from = world.path("exchange/large");
    fs::write(&from, "x\n".repeat(100_000)).unwrap();
    let create = json!({ "path": "large.txt", "content": { "name": "large", "path": from } });
    world.call("executor.create_file", create).reply.unwrap();
    assert_eq!(world.bash("wc -l <large.txt").stdout, "100000\n");
    let viewed = world.call("executor.view", json!({ "path": "large.txt" }));
    let viewed: Viewed = viewed.parse().unwrap();
    assert_eq!(viewed.total_lines, Some(100_000));
    assert_eq!(viewed.full_content.unwrap().size, Some(200_000));
    let outside = json!({ "path": "x", "content": { "name": "p", "path": "/etc/passwd" } });
    assert!(
        world
            .error("executor.create_file", outside)
            .contains("outside")
    );
}

fn all(config: &Value) -> Option<World> {
    let world = world(config)?;
    files(&world);
    there_and_back(&world);
    large_content(&world);
    Some(world)
}

#[test]
fn p6_files_of_a_mounted_directory() {
    let Some(world) = all(&json!({})) else { return };
    assert_eq!(fs::read(world.work("deep/a.txt")).unwrap(), b"one\n2\n");
}

#[test]
fn p6_files_of_a_volume_on_an_engine_elsewhere() {
    let Some(world) = all(&json!({ "files": "copy" })) else {
        return;
    };
    assert!(!world.work("deep").exists());
    let label = world.inspect("{{index .Config.Labels \"io.conjure.host\"}}");
    let filter = format!("label=io.conjure.host={label}");
    let volumes = || {
        let listed = ["volume", "ls", "-q", "--filter", &filter];
        world.engine.docker(listed).unwrap().lines().count()
    };
    assert_eq!(volumes(), 2);
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(volumes(), 0);
}

#[test]
fn a_file_that_is_handed_over_is_a_regular_one_and_no_way_out_of_the_directory() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    fs::write(world.path("outside"), "secret").unwrap();
    std::os::unix::fs::symlink(world.path("outside"), world.work("link")).unwrap();
    // A pipe without a writer: who opens it to read waits for ever.
    let mut make = std::process::Command::new("mkfifo");
    assert!(make.arg(world.work("pipe")).status().unwrap().success());
    for name in ["link", "pipe"] {
        let file = json!({ "name": name, "path": world.work(name) });
        let body = json!({ "path": "copy", "description": "d", "content": file });
        let error = world.error("executor.create_file", body);
        assert!(error.contains(name), "{error}");
    }
    assert!(!world.work("copy").exists());
}
