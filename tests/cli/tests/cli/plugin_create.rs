//! `conjure plugin create`: a crate outside the workspace that builds and is used.
//!
//! The crates share a target directory, and so what they depend on; the first of a fresh checkout
//! takes its time.

use std::path::PathBuf;

use conjure_kit::{Cargo, Model, Workspace, repo_root};
use conjure_mock_llm::Message;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stage::{asks, conjure, workspace};

/// Makes a crate with an SDK, the program's own where none is named, and builds it.
pub(crate) fn built(workspace: &Workspace, kind: &str, name: &str, sdk: &str) -> PathBuf {
    let made = conjure(workspace, &format!("plugin create {kind} {name} {sdk}"))
        .run()
        .unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let target = repo_root().join("target/plugin-new");
    Cargo::at(workspace.work().join(name), target)
        .plugin(name)
        .unwrap()
}

/// The SDK of this checkout, which is built once for all that name it.
pub(crate) fn checkout() -> String {
    format!("--sdk {}", repo_root().join("skill-sdk").display())
}

#[test]
fn the_sdk_comes_with_the_program_and_is_written_once() {
    let workspace = workspace(&[]);
    let names = ["one", "two", "three", "four"];
    let made = names.map(|name| {
        let args = format!("plugin create skill {name} --json");
        conjure(&workspace, &args).start().unwrap()
    });
    let sdks = made.map(|made| {
        let output = made.wait().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        let said: Value = serde_json::from_str(&output.stdout).unwrap();
        said["sdk"].as_str().unwrap().to_owned()
    });
    assert!(sdks.iter().all(|sdk| *sdk == sdks[0]), "{sdks:?}");
    let (version, path) = sdks[0].split_once(", path = ").unwrap();
    assert_eq!(
        version,
        format!("version = \"{}\"", env!("CARGO_PKG_VERSION"))
    );
    let sdk = PathBuf::from(path.trim_matches('"'));
    assert!(!sdk.starts_with(repo_root()), "{}", sdk.display());
    let manifest = std::fs::read_to_string(sdk.join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains("name = \"conjure-skill-sdk\""),
        "{manifest}"
    );
    let beside = std::fs::read_dir(sdk.parent().unwrap()).unwrap();
    assert_eq!(
        beside.count(),
        1,
        "nothing is left of those that were slower"
    );
    // What was changed or lost there is written anew.
    let (source, licence) = (sdk.join("src/lib.rs"), sdk.join("LICENSE"));
    let before = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, "compile_error!();").unwrap();
    std::fs::remove_file(&licence).unwrap();
    let again = conjure(&workspace, "plugin create skill five")
        .run()
        .unwrap();
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(std::fs::read_to_string(&source).unwrap(), before);
    assert!(licence.is_file());
}

#[test]
fn a_path_of_any_characters_is_one_that_a_manifest_has() {
    let workspace = workspace(&[]);
    let data = workspace.work().join("Jose\u{301} \"o\\ne\"");
    let made = conjure(&workspace, "plugin create skill one")
        .env("CONJURE_DATA_DIR", data.to_str().unwrap())
        .run()
        .unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let manifest = std::fs::read_to_string(workspace.work().join("one/Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap();
    let sdk = manifest["dependencies"]["conjure-skill-sdk"]["path"].as_str();
    let sdk = PathBuf::from(sdk.unwrap());
    assert!(sdk.starts_with(data.canonicalize().unwrap()), "{sdk:?}");
    assert!(sdk.join("Cargo.toml").is_file());
    let nowhere = workspace.work().join("file");
    std::fs::write(&nowhere, "").unwrap();
    let refused = conjure(&workspace, "plugin create skill two")
        .env("CONJURE_DATA_DIR", nowhere.to_str().unwrap())
        .run()
        .unwrap();
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("--sdk PATH"), "{refused:?}");
}

#[test]
fn a_skill_is_made_built_called_and_used_by_a_model() {
    let workspace = workspace(&[]);
    let library = built(&workspace, "skill", "my-skill", "");
    let library = library.to_str().unwrap();
    let check = conjure(&workspace, &format!("plugin check {library}"))
        .run()
        .unwrap();
    assert!(
        check
            .stdout
            .starts_with("ok my-skill 0.1.0 (skill): a host takes it\n"),
        "{check:?}"
    );
    let args = format!("call my-skill_greet --args {{\"name\":\"Ada\"}} --plugin {library}");
    let call = conjure(&workspace, &args).run().unwrap();
    assert_eq!(
        (call.code, call.stdout.as_str()),
        (Some(0), "Hello, Ada!\n"),
        "{call:?}"
    );
    let model = Model::start().unwrap();
    model.calls("toolu_1", "my-skill_greet", json!({ "name": "Grace" }));
    model.says(Message::new().text("She is greeted."));
    let run = asks(
        &workspace,
        &model,
        &format!("run --plugin {library}"),
        "Greet Grace.",
    )
    .run();
    assert_eq!(run.unwrap().stdout, "She is greeted.\n");
    let greeted = model.last_request().tool_result_text("toolu_1");
    assert_eq!(greeted.as_deref(), Some("Hello, Grace!"));
}

#[test]
fn an_executor_is_made_built_and_used() {
    let workspace = workspace(&[]);
    let library = built(&workspace, "executor", "my-executor", &checkout());
    let library = library.to_str().unwrap();
    let args = json!({ "path": "a.txt", "file_text": "text", "description": "" }).to_string();
    let call = format!(
        "call my-executor_create_file --executor my-executor --plugin {library} --args {args}"
    );
    let call = conjure(&workspace, &call).run().unwrap();
    assert_eq!(call.code, Some(0), "{call:?}");
    assert!(call.stdout.contains("Created a.txt."), "{call:?}");
    let routes = format!("routes --executor my-executor --plugin {library}");
    let routes = conjure(&workspace, &routes).run().unwrap();
    assert_eq!(
        routes.stdout.matches("my-executor_").count(),
        4,
        "{routes:?}"
    );
}

#[test]
fn a_backend_is_made_built_and_used() {
    let workspace = workspace(&[]);
    let library = built(&workspace, "backend", "my-backend", &checkout());
    let library = library.to_str().unwrap();
    let args = "{\"text\":\"hi\"}";
    let call =
        format!("call my-backend_echo --executor my-backend --plugin {library} --args {args}");
    let call = conjure(&workspace, &call).run().unwrap();
    assert_eq!(
        (call.code, call.stdout.as_str()),
        (Some(0), "hi\n"),
        "{call:?}"
    );
}

#[test]
fn it_says_what_comes_next() {
    let workspace = workspace(&[]);
    let mut story = String::new();
    for args in [
        "plugin create skill my-skill",
        "plugin create skill my-skill",
        "plugin create executor my-executor --path elsewhere/here",
        "plugin create backend my-backend --sdk 0.1",
        "plugin create skill Bad_Name",
        "plugin create skill other --sdk nowhere",
        "plugin create sandwich other",
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        story.push_str(&format!("$ conjure {args}\n{}\n", output.snapshot()));
    }
    assert_snapshot!(story, @r#"
    $ conjure plugin create skill my-skill
    exit code 0
    --- stdout
    Made my-skill.

      cd my-skill && cargo build
      conjure plugin check target/debug/libmy_skill.so
      conjure call my-skill_greet --args '{"name": "Ada"}' --plugin target/debug/libmy_skill.so
    --- stderr

    $ conjure plugin create skill my-skill
    exit code 2
    --- stdout
    --- stderr
    error: `my-skill` is there already and not empty
    hint: name another place with `--path`

    $ conjure plugin create executor my-executor --path elsewhere/here
    exit code 0
    --- stdout
    Made elsewhere/here.

      cd elsewhere/here && cargo build
      conjure plugin check target/debug/libmy_executor.so
      conjure routes --executor my-executor --plugin target/debug/libmy_executor.so
    --- stderr

    $ conjure plugin create backend my-backend --sdk 0.1
    exit code 0
    --- stdout
    Made my-backend.

      cd my-backend && cargo build
      conjure plugin check target/debug/libmy_backend.so
      conjure call my-backend_echo --executor my-backend --args '{"text": "hi"}' --plugin target/debug/libmy_backend.so
    --- stderr

    $ conjure plugin create skill Bad_Name
    exit code 2
    --- stdout
    --- stderr
    error: `Bad_Name` is not a name for a plugin: 1 to 64 lower-case letters, digits and single hyphens, a letter first

    $ conjure plugin create skill other --sdk nowhere
    exit code 2
    --- stdout
    --- stderr
    error: `nowhere` is neither a version nor the directory of an SDK (with a Cargo.toml)

    $ conjure plugin create sandwich other
    exit code 2
    --- stdout
    --- stderr
    error: invalid value 'sandwich' for '<KIND>'
      [possible values: skill, executor, backend]

    For more information, try '--help'.
    "#);
    let files: Vec<String> = workspace
        .files()
        .unwrap()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert_snapshot!(files.join("\n"), @r"
    elsewhere/here/.gitignore
    elsewhere/here/Cargo.toml
    elsewhere/here/src/lib.rs
    my-backend/.gitignore
    my-backend/Cargo.toml
    my-backend/src/lib.rs
    my-skill/.gitignore
    my-skill/Cargo.toml
    my-skill/src/lib.rs
    ");
}
