//! `conjure docker`: the image of the container backend.

use conjure_kit::Engine;

use crate::stage::{conjure, json, workspace};

#[test]
fn the_dockerfile_is_written_once_and_is_the_persons_from_then_on() {
    let workspace = workspace(&[]);
    let told = json(
        &conjure(&workspace, "docker build --no-build --json")
            .run()
            .unwrap(),
    );
    let file = told["dockerfile"].as_str().unwrap().to_owned();
    assert_eq!(told["image"], "conjure-workspace");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nFROM "), "{text}");
    std::fs::write(&file, "FROM mine\n").unwrap();
    let again = conjure(&workspace, "docker build --no-build")
        .run()
        .unwrap();
    assert_eq!(again.stdout, format!("The Dockerfile is {file}.\n"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "FROM mine\n");
}

#[test]
fn a_program_that_is_missing_or_fails_is_named() {
    let workspace = workspace(&[]);
    for (program, words) in [
        ("no-such-program", "install Docker or Podman"),
        ("false", "`false build` failed"),
    ] {
        let build = format!("docker build --engine {program}");
        let output = conjure(&workspace, &build).run().unwrap();
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
    }
}

#[test]
fn an_image_is_built_from_a_dockerfile() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let workspace = workspace(&[]);
    let text = format!("FROM {}\nCOPY mine.txt /mine.txt\n", engine.image());
    workspace.write("image/Dockerfile", &text).unwrap();
    workspace.write("image/mine.txt", "mine\n").unwrap();
    let build = "docker build --image conjure-test-built --file image/Dockerfile --engine docker";
    let output = conjure(&workspace, build).run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output.stdout,
        "Built `conjure-test-built` from image/Dockerfile. Sessions with a `docker` backend use it.\n"
    );
    let run = ["run", "--rm", "conjure-test-built", "cat", "/mine.txt"];
    let seen = engine.docker(run);
    engine.docker(["rmi", "conjure-test-built"]).unwrap();
    assert_eq!(seen.unwrap(), "mine");
}
