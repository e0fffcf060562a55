//! Skills that come as one file: a ZIP archive, harmless or not.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use conjure_host::session::BackendSpec;
use conjure_kit::Workspace;
use conjure_mock_llm::{Hosted, MockLlm, Script};
use serde_json::json;
use zip::write::SimpleFileOptions;

use crate::folders::printed;
use crate::stage::{LOCAL, Seen, Stage, bash, conjure, workspace};

const SKILL_MD: &[u8] = b"---\nname: packed\ndescription: Came as one file.\n---\nRun it.\n";

/// Name, mode and content.
type Member<'a> = (&'a str, u32, &'a [u8]);

/// Writes an archive.
fn archive(path: &Path, members: &[Member<'_>]) -> PathBuf {
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    for (name, mode, content) in members {
        let large = content.len() > 32 * 1024 * 1024;
        let options = SimpleFileOptions::default()
            .compression_method(if large {
                zip::CompressionMethod::Stored
            } else {
                zip::CompressionMethod::Deflated
            })
            .unix_permissions(*mode);
        zip.start_file(*name, options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap();
    path.to_owned()
}

#[test]
fn b20_what_other_systems_put_beside_a_skill_is_fine() {
    let workspace = workspace(&[]);
    let members: &[Member<'_>] = &[
        ("packed/SKILL.md", 0o644, SKILL_MD),
        ("packed/scripts/run.sh", 0o755, b"#!/bin/sh\necho ran\n"),
        ("packed/.DS_Store", 0o644, b"x"),
        ("__MACOSX/packed/._SKILL.md", 0o644, b"x"),
    ];
    archive(&workspace.work().join("packed.skill"), members);
    let show = conjure(&workspace, ["skill", "show", "packed.skill", "--json"])
        .run()
        .unwrap();
    assert_eq!(show.code, Some(0), "{show:?}");
    let shown = printed(&show);
    assert_eq!(shown["name"], "packed");
    assert_eq!(shown["resources"], json!(["scripts/run.sh"]));
    assert_eq!(shown["diagnostics"], json!([]));
}

#[test]
fn p12_a_folder_and_its_package_are_the_same_parts() {
    let workspace = workspace(&[]);
    let script: &[u8] = b"#!/bin/sh\necho \xff\n";
    let members = [
        (
            "my-report/SKILL.md",
            "---\nname: my-report\ndescription: Reports.\n---\nBody\n".as_bytes(),
        ),
        ("my-report/scripts/run.sh", script),
        ("my-report/references/a/b.md", b"b"),
    ];
    for (path, content) in members {
        let path = workspace.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    archive(
        &workspace.work().join("packed.skill"),
        &members.map(|(name, content)| (name, 0o644, content)),
    );
    let mock = MockLlm::start_blocking(Script::new().hosted(Hosted::new())).unwrap();
    let uploaded = ["my-report", "packed.skill"].map(|what| {
        let output = conjure(&workspace, ["skill", "upload", what])
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("ANTHROPIC_BASE_URL", mock.base_url())
            .run()
            .unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        let skill = mock.hosted().skills().last().unwrap().clone();
        let mut files = skill.versions[0].files.clone();
        files.sort();
        files
    });
    assert_eq!(uploaded[0], uploaded[1]);
    let names: Vec<&str> = uploaded[0].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "my-report/SKILL.md",
            "my-report/references/a/b.md",
            "my-report/scripts/run.sh"
        ]
    );
    assert_eq!(uploaded[0][2].1, script);
    assert_eq!(mock.violations(), []);
}

#[test]
fn b20_a_hostile_package_is_refused() {
    let zeros = vec![0; 65 * 1024 * 1024];
    let many: Vec<(String, u32, &[u8])> = (0..10_001)
        .map(|n| (format!("f{n}"), 0o644, b"".as_slice()))
        .collect();
    let skill: Member<'_> = ("SKILL.md", 0o644, SKILL_MD);
    let cases: Vec<(&str, Vec<Member<'_>>)> = vec![
        ("unpacks to more", vec![skill, ("zeros", 0o644, &zeros)]),
        (
            "bomb",
            vec![skill, ("zeros", 0o644, &zeros[..4 * 1024 * 1024])],
        ),
        ("outside", vec![skill, ("../evil.sh", 0o755, b"x")]),
        ("outside", vec![skill, ("a/../../evil.sh", 0o755, b"x")]),
        ("outside", vec![skill, ("/evil.sh", 0o755, b"x")]),
        ("outside", vec![skill, ("a\\..\\evil.sh", 0o755, b"x")]),
        (
            "members",
            many.iter()
                .map(|(name, mode, text)| (name.as_str(), *mode, *text))
                .collect(),
        ),
        ("SKILL.md", vec![("README.md", 0o644, b"x")]),
        (
            "two SKILL.md",
            vec![skill, ("other/SKILL.md", 0o644, SKILL_MD)],
        ),
        ("two SKILL.md", vec![skill, ("skill.md", 0o644, SKILL_MD)]),
        (
            "two SKILL.md",
            vec![
                ("pk/SKILL.md", 0o644, SKILL_MD),
                ("pk/a/deep/SKILL.md", 0o644, SKILL_MD),
            ],
        ),
        (
            "SKILL.md",
            vec![
                ("a/SKILL.md", 0o644, SKILL_MD),
                ("b/SKILL.md", 0o644, SKILL_MD),
            ],
        ),
    ];
    for (word, members) in cases {
        refused(word, |path| archive(path, &members));
    }
    refused("the same name", |path| {
        let members: [Member<'_>; 2] = [
            ("pk/SKILL.md", 0o644, SKILL_MD),
            ("pk/SKILL.m_", 0o644, b"other"),
        ];
        archive(path, &members);
        // No writer makes such an archive.
        let mut bytes = std::fs::read(path).unwrap();
        let name = b"pk/SKILL.m_";
        while let Some(at) = bytes.windows(name.len()).position(|part| part == name) {
            bytes[at..at + name.len()].copy_from_slice(b"pk/SKILL.md");
        }
        std::fs::write(path, bytes).unwrap();
        path.to_owned()
    });
    refused("link", |path| {
        let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
        zip.start_file("SKILL.md", SimpleFileOptions::default())
            .unwrap();
        zip.write_all(SKILL_MD).unwrap();
        zip.add_symlink("link", "/etc/passwd", SimpleFileOptions::default())
            .unwrap();
        zip.finish().unwrap();
        path.to_owned()
    });
    refused("ZIP", |path| {
        std::fs::write(path, "no archive at all").unwrap();
        path.to_owned()
    });
}

/// Fails unless the package that `make` makes is refused, with no trace of it left.
fn refused(word: &str, make: impl Fn(&Path) -> PathBuf) {
    let workspace = workspace(&[]);
    make(&workspace.work().join("packed.skill"));
    let show = conjure(&workspace, ["skill", "show", "packed.skill"])
        .run()
        .unwrap();
    assert_eq!(show.code, Some(1), "{word}: {show:?}");
    let said = show.stderr.replace("packed.skill", "");
    assert!(
        said.contains("refused") && said.contains(word),
        "{word}: {show:?}"
    );
    assert_eq!(workspace.files().unwrap(), [Path::new("packed.skill")]);
    let mut left: Vec<_> = std::fs::read_dir(workspace.root().join("tmp"))
        .unwrap()
        .collect();
    assert!(left.pop().is_none(), "{word}: something stayed: {left:?}");
    assert!(!workspace.root().join("evil.sh").exists() && !Path::new("/evil.sh").exists());
}

#[tokio::test]
async fn b20_execute_bits_are_kept_and_two_loads_are_independent() {
    let stage = Stage::new(&[LOCAL]).await;
    let package = packed(&stage.workspace);
    let open = || stage.session([BackendSpec::local([package.display().to_string()])]);
    let (one, two) = (open().await, open().await);
    let ran = Seen::ok("ran\n");
    let run = bash("./scripts/run.sh");
    assert_eq!(stage.call(&one, "packed_bash_tool", run.clone()).await, ran);
    let place = stage
        .call(&one, "packed_bash_tool", bash("echo $SKILL_DIR"))
        .await
        .text;
    let other = stage
        .call(&two, "packed_bash_tool", bash("echo $SKILL_DIR"))
        .await
        .text;
    assert_ne!(place, other);
    let script = Path::new(place.trim()).join("scripts/run.sh");
    assert_eq!(
        script.metadata().unwrap().permissions().mode() & 0o777,
        0o755 & script_mask()
    );
    one.close().await;
    assert!(!script.exists(), "what was unpacked goes with its session");
    assert_eq!(stage.call(&two, "packed_bash_tool", run).await, ran);
    two.close().await;
}

/// What the umask leaves of a mode with execute bits.
fn script_mask() -> u32 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    File::create(&file).unwrap();
    let mode = file.metadata().unwrap().permissions().mode() & 0o777;
    mode | (mode >> 2)
}

fn packed(workspace: &Workspace) -> PathBuf {
    let members: &[Member<'_>] = &[
        ("SKILL.md", 0o644, SKILL_MD),
        ("scripts/run.sh", 0o755, b"#!/bin/sh\necho ran\n"),
    ];
    archive(&workspace.root().join("packed.skill"), members)
}
