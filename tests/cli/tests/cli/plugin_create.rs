//! `conjure plugin create`: a crate outside the workspace that builds and is used.
//!
//! The crates share a target directory, and so what they depend on; the first of a fresh checkout
//! takes its time.

use std::path::PathBuf;

use conjure_kit::{Cargo, Model, ProgramHandle, Workspace, repo_root};
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
fn a_skill_in_python_works_as_it_is_made_and_moves_on_in_a_conversation() {
    let workspace = workspace(&[]);
    let made = conjure(&workspace, "plugin create skill my-skill --lang python")
        .run()
        .unwrap();
    assert_snapshot!(made.stdout, @r#"
    Made my-skill.

      cd my-skill && python3 -m unittest
      conjure plugin check my-skill.plugin.toml
      conjure call my-skill_greet --args '{"name": "Ada"}' --plugin my-skill.plugin.toml
    "#);
    let dir = workspace.work().join("my-skill");
    let tested = std::process::Command::new("/usr/bin/python3")
        .args(["-B", "-m", "unittest"])
        .current_dir(&dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tested.stderr);
    assert!(
        tested.status.success() && said.contains("Ran 2 tests"),
        "{said}"
    );
    let plugin = dir.join("my-skill.plugin.toml");
    let plugin = plugin.to_str().unwrap();
    let check = conjure(&workspace, &format!("plugin check {plugin}")).run();
    let check = check.unwrap().stdout;
    let accepted =
        "ok my-skill 0.1.0 (skill): a host takes it\n  tools     3, which every wire takes\n";
    assert!(check.starts_with(accepted), "{check}");
    for part in [
        "KB, with its files\n",
        "protocol  1\n",
        "no LICENSE is beside",
    ] {
        assert!(check.contains(part), "{check}");
    }
    let args = format!("call my-skill_greet --args {{\"name\":\"Ada\"}} --plugin {plugin}");
    let call = conjure(&workspace, &args).run().unwrap();
    assert_eq!(call.stdout, "Hello, Ada!\n", "{call:?}");
    // A model calls it, and goes on with what it kept when the files of the skill are others.
    let model = Model::start().unwrap();
    let args = format!("chat --json --allow * --plugin-dir {}", dir.display());
    let mut chat = asks(&workspace, &model, &args, "").start().unwrap();
    let turn = |chat: &mut ProgramHandle, id: &str, tool: &str, arguments: Value| {
        model.calls(id, &format!("my-skill_{tool}"), arguments);
        model.says(Message::new().text(format!("after {id}")));
        chat.send_line("Go on.").unwrap();
        let over = format!("\"text\":\"after {id}\"");
        chat.wait_for_stdout(&over).unwrap();
        model.last_request().tool_result_text(id).unwrap()
    };
    let greeted = turn(&mut chat, "toolu_1", "greet", json!({ "name": "Grace" }));
    assert_eq!(greeted, "Hello, Grace!");
    let change = |file: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        assert!(text.contains(from), "{text}");
        let new = dir.join("new");
        std::fs::write(&new, text.replace(from, to)).unwrap();
        std::fs::rename(new, dir.join(file)).unwrap();
    };
    change("my_skill.py", "Hello, {name}!", "Welcome, {name}!");
    change("my-skill.plugin.toml", "0.1.0", "0.2.0");
    chat.wait_for_stdout("0.1.0 \u{2192} 0.2.0").unwrap();
    let greeted = turn(&mut chat, "toolu_2", "greet", json!({ "name": "Alan" }));
    // That it has another version, and its state, stands behind that.
    assert!(greeted.starts_with("Welcome, Alan!"), "{greeted}");
    let kept = turn(&mut chat, "toolu_3", "read", json!({ "path": "greeted" }));
    assert_eq!(kept, "Grace\nAlan");
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

#[test]
fn a_program_is_added_shown_and_rolled_back_as_a_library_is() {
    let workspace = workspace(&[]);
    let run = |args: &str| conjure(&workspace, args).run().unwrap();
    run("plugin create skill my-skill --lang python");
    let description = workspace.work().join("my-skill/my-skill.plugin.toml");
    let add = || run(&format!("plugin add {}", description.display()));
    assert_snapshot!(add().stdout, @r"
    my-skill 0.1.0 is new
      tools: greet, execute, read
    ");
    let listed: Value = serde_json::from_str(&run("plugin list --json").stdout).unwrap();
    let listed = &listed["plugins"][0];
    assert_eq!(
        (&listed["command"], &listed["isolation"], &listed["rustc"]),
        (
            &json!(["python3", "my_skill.py"]),
            &json!("process"),
            &Value::Null
        )
    );
    assert!(
        listed["file"]
            .as_str()
            .unwrap()
            .ends_with("plugins/my-skill.plugin")
    );
    let shown = run(&format!("plugin show {}", listed["file"].as_str().unwrap()));
    for part in ["protocol  1", "python3 my_skill.py", "conjure_plugin.py"] {
        assert!(shown.stdout.contains(part), "{shown:?}");
    }
    let text = std::fs::read_to_string(&description).unwrap();
    std::fs::write(&description, text.replace("0.1.0", "0.2.0")).unwrap();
    let upgraded = add().stdout;
    assert!(
        upgraded.starts_with("my-skill 0.1.0 \u{2192} 0.2.0\n"),
        "{upgraded}"
    );
    let back = run("plugin rollback my-skill").stdout;
    assert!(back.starts_with("my-skill 0.2.0 \u{2192} 0.1.0"), "{back}");
    let args = "call my-skill_greet --args {\"name\":\"Ada\"}";
    assert_eq!(run(args).stdout, "Hello, Ada!\n");
    let trusted = run(&format!("plugin trust {}", description.display()));
    assert_eq!(trusted.code, Some(1));
    assert!(
        trusted
            .stdout
            .contains("always runs in a process of its own"),
        "{trusted:?}"
    );
    run("plugin remove my-skill");
    assert_ne!(run(args).code, Some(0), "it is gone");
}

#[test]
fn what_there_is_no_template_for_is_said() {
    let workspace = workspace(&[]);
    for (args, expected) in [
        ("skill other --lang python --sdk 1", "one file"),
        ("skill other --lang cobol", "cobol"),
        ("skill conjure-skill-sdk --path other", "stands on"),
    ] {
        let refused = conjure(&workspace, &format!("plugin create {args}"))
            .run()
            .unwrap();
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{refused:?}");
        assert!(!workspace.work().join("other").exists());
    }
}

#[test]
fn a_name_that_is_one_of_pythons_own_makes_a_plugin_that_works() {
    let workspace = workspace(&[]);
    for name in ["json", "class", "conjure-plugin"] {
        let run = |args: &str| conjure(&workspace, args).run().unwrap();
        let made = run(&format!("plugin create skill {name} --lang python"));
        assert_eq!(made.code, Some(0), "{made:?}");
        let check = run(&format!("plugin check {name}/{name}.plugin.toml"));
        assert_eq!(check.code, Some(0), "{check:?}");
        let tests = std::process::Command::new("python3")
            .args(["-B", "-m", "unittest"])
            .current_dir(workspace.work().join(name))
            .output()
            .unwrap();
        assert!(tests.status.success(), "{name}: {tests:?}");
    }
}

#[test]
fn the_tests_of_a_crate_that_was_made_pass_and_it_builds_without_warnings() {
    let workspace = workspace(&[]);
    for kind in ["skill", "executor", "backend"] {
        let name = format!("own-{kind}");
        let create = format!("plugin create {kind} {name} {}", checkout());
        let made = conjure(&workspace, &create).run().unwrap();
        assert_eq!(made.code, Some(0), "{made:?}");
        let dir = workspace.work().join(&name);
        // A beginning that needs no network; cargo makes its own lock file out of it.
        std::fs::copy(repo_root().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let tested = std::process::Command::new(cargo)
            .arg("test")
            .current_dir(dir)
            .env("CARGO_TARGET_DIR", repo_root().join("target/plugin-new"))
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&tested.stdout),
            String::from_utf8_lossy(&tested.stderr)
        );
        assert!(tested.status.success(), "{said}");
        let tests = if kind == "executor" { 2 } else { 1 };
        assert!(said.contains(&format!("{tests} passed")), "{said}");
        let warned = format!("`{name}` (lib");
        assert!(!said.contains(&warned), "{said}");
    }
}

#[test]
fn what_is_to_be_typed_next_is_quoted_for_a_shell() {
    let workspace = workspace(&[]);
    for lang in ["rust", "python"] {
        let args = ["plugin", "create", "skill", "one", "--lang", lang];
        let path = ["--path", "my skills/$one"];
        let made = conjure_kit::cli(args.into_iter().chain(path)).workspace(&workspace);
        let made = made.run().unwrap();
        assert!(made.stdout.contains("cd 'my skills/$one' &&"), "{made:?}");
        std::fs::remove_dir_all(workspace.work().join("my skills")).unwrap();
    }
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
